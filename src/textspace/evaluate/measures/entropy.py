"""The entropy of codes: how far they fill the space."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from textspace.digits import plus_minus
from textspace.evaluate.measure import Cells, Findings, Measure, Subject, Table
from textspace.evaluate.measures.geometry import code_kinds, distinct_rows
from textspace.evaluate.measures.pairwise import nearest, ratio_of_nearest
from textspace.noise import seed_of
from textspace.progress import track
from textspace.types import Estimate, Settings

__all__ = ["MEASURES", "Entropy", "code_entropy", "nearest_neighbour_entropy"]

Floats = NDArray[np.float64]


class Entropy(NamedTuple):
    """An entropy in nats, its error over points, and how many points it rests on: those that differ."""

    value: float
    stderr: float | None
    """None for two points, of which none can be left out."""
    points: int


def nearest_neighbour_entropy(points_NZ: Floats) -> Entropy | None:
    """The estimator of Kozachenko and Leonenko [1987], from distances to the nearest other point; 2 points or more.

    Equal points, whose distance has no logarithm, count as one; None where only one is left. Its bias grows with the
    dimension: for standard normal points hundreds of dimensions ask for more points than there can be.

    Its error is the jackknife's, each point left out in turn, which errs on the safe side [Efron and Stein 1981]: for
    standard normal points it is 1.0 to 1.5 times the spread. Points share their neighbours, the more so the more
    dimensions, and to take their distances for independent would promise up to twice too much.
    """
    points_NZ = np.unique(points_NZ, axis=0)
    count, dims = points_NZ.shape
    if count < 2:
        return None
    volume = dims / 2 * math.log(math.pi) - math.lgamma(dims / 2 + 1)  # of the unit ball, its logarithm
    harmonic = float((1 / np.arange(1, count)).sum())  # digamma(N) - digamma(1)
    nearest_NK, distances_NK = nearest(points_NZ, 2)
    mean_log, error = ratio_of_nearest(nearest_NK, dims * np.log(distances_NK), np.ones(count))
    return Entropy(harmonic + volume + mean_log, error, count)


def code_entropy(subject: Subject) -> Findings:
    """How far codes fill the space [Livne et al. 2020, table 6], beside N(0, I) by its formula and by as many draws.

    A posterior without spread (an autoencoder's) has one kind of code, its points.
    """
    test = subject.test
    dims = subject.space.dim
    repeats = max(2, subject.effort.repeats)
    exact = dims / 2 * math.log(2 * math.pi * math.e)
    estimates: dict[str, Estimate] = {}
    rows: list[Cells] = []
    for kind, codes_NZ in reversed(code_kinds(test).items()):
        # Equal sentences have equal means, but for rounding that would count as a distance.
        codes_NZ = codes_NZ[distinct_rows(test)] if kind == "means" else codes_NZ
        found = nearest_neighbour_entropy(codes_NZ)
        if found is None:
            continue
        random = np.random.default_rng(seed_of(subject.seed, "standard normal", kind))
        normal = (nearest_neighbour_entropy(random.normal(size=(found.points, dims))) for _ in range(repeats))
        drawn = [one for one in track(normal, "entropy", subject.show_progress, repeats) if one is not None]
        anchor = float(np.mean([one.value for one in drawn]))
        # From each draw's own error, since the spread of so few draws is mostly chance.
        errors = [one.stderr for one in drawn if one.stderr is not None]
        anchor_error = math.hypot(*errors) / len(drawn) if errors else None
        settings: Settings = {
            "estimator": "Kozachenko-Leonenko, nearest neighbour",
            "dimensions": dims,
            "points": found.points,
            "duplicates": len(test) - found.points,
            "draws": repeats,
            "seed": subject.seed,
        }
        text = f"nearest-neighbour entropy of codes (posterior {kind}), nats"
        of_normal = f"the same estimator on {found.points:,} draws of N(0, I)"
        error = None if found.stderr is None or anchor_error is None else math.hypot(found.stderr, anchor_error)
        over_draws = f"standard error over the points of {repeats} draws, jackknife"
        numbers = {
            "": (text, found.value, found.stderr, "standard error over sentences, jackknife"),
            "_normal": (f"{of_normal} as for posterior {kind}, nats", anchor, anchor_error, over_draws),
            "_bias": (
                f"bias of the estimator: {of_normal} as for posterior {kind}, less its formula, nats",
                anchor - exact,
                anchor_error,
                over_draws,
            ),
            "_above_normal": (
                f"{text}, less {of_normal}",
                found.value - anchor,
                error,
                "standard error over sentences and the points of draws, jackknife",
            ),
        }
        estimates |= {
            f"entropy_{kind}{key}": Estimate(
                name, value, stderr, found.points, "none", None, settings | {"error": None if stderr is None else how}
            )
            for key, (name, value, stderr, how) in numbers.items()
        }
        cells = [plus_minus(value, stderr) for _, value, stderr, _ in numbers.values()]
        name = "points" if kind == "means" and len(code_kinds(test)) == 1 else kind
        rows.append((f"posterior {name}", found.points, cells[0], round(exact, 2), *cells[1:]))
    name = f"entropy of N(0, I) in {dims} dimensions by its formula, nats"
    estimates["entropy_normal_exact"] = Estimate(name, exact, None, len(test), "exact", None, {"dimensions": dims})
    table = Table(
        f"Entropy of codes in {dims} dimensions by nearest neighbours, nats. The estimator is biased: what it says of "
        "as many draws of N(0, I), whose entropy is known, stands beside, and that less the formula is its bias there",
        ("codes", "points", "entropy", "N(0, I), formula", "N(0, I), same estimator", "its bias", "codes less draws"),
        tuple(rows),
    )
    return Findings(estimates, {"entropy": table} if rows else {})


MEASURES: dict[str, Measure] = {
    "code_entropy": Measure(code_entropy, "How far codes fill the space, beside a standard normal.", ("codes",)),
}
