"""The entropy of codes: how far they fill the space."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textspace.digits import plus_minus
from textspace.evaluate.measure import Cells, Findings, Measure, Subject, Table
from textspace.evaluate.measures.geometry import code_kinds, distinct_rows
from textspace.evaluate.measures.pairwise import nearest, ratio_of_nearest
from textspace.noise import seed_of
from textspace.progress import track
from textspace.types import Estimate, Settings

__all__ = ["MEASURES", "OURS", "PUBLISHED", "Entropy", "Estimator", "code_entropy", "nearest_neighbour_entropy"]

Floats = NDArray[np.float64]

SMALLEST_DISTANCE = 1e-10
"""Of points that count each though they are equal: NPEET adds noise of this size."""

MOST_DIMENSIONS = 300
"""Of codes whose entropy the public code of SentenceMIM estimates."""

PUBLISHED_DRAWS = 2
"""Sets of normal draws for the published estimator, whose distances are slow to compute."""


class Entropy(NamedTuple):
    """An entropy in nats, its error over points, and how many points it rests on."""

    value: float
    stderr: float | None
    """None for so few points that none can be left out."""
    points: int


class Estimator(NamedTuple):
    """Which distances an estimate of entropy rests on.

    Args:
        neighbor: the distance to which neighbour, 1 for the nearest.
        norm: which distance.
        equal_points: whether equal points count once, or each, at `SMALLEST_DISTANCE`.
        name: what settings call it.
    """

    neighbor: int
    norm: Literal["euclidean", "maximum"]
    equal_points: Literal["once", "each"]
    name: str


OURS = Estimator(1, "euclidean", "once", "Kozachenko-Leonenko, nearest neighbour")
PUBLISHED = Estimator(3, "maximum", "each", "Kozachenko-Leonenko, third neighbour, maximum norm, as in NPEET")
"""That of SentenceMIM's table 6, which takes NPEET with its defaults."""


def nearest_neighbour_entropy(points_NZ: Floats, estimator: Estimator = OURS) -> Entropy | None:
    """The estimator of Kozachenko and Leonenko [1987], from distances to a near other point.

    None of too few points, or where all are equal. Its bias grows with the dimension: for standard normal points
    hundreds of dimensions ask for more points than there can be.

    Its error is the jackknife's, each point left out in turn, which errs on the safe side [Efron and Stein 1981]: for
    standard normal points it is 1.0 to 1.5 times the spread. Points share their neighbours, the more so the more
    dimensions, and to take their distances for independent would promise up to twice too much.
    """
    points_NZ = np.unique(points_NZ, axis=0) if estimator.equal_points == "once" else points_NZ
    count, dims = points_NZ.shape
    if count <= estimator.neighbor or not np.ptp(points_NZ, axis=0).any():
        return None
    # The logarithm of the volume of the unit ball.
    euclidean = dims / 2 * math.log(math.pi) - math.lgamma(dims / 2 + 1)
    volume = euclidean if estimator.norm == "euclidean" else dims * math.log(2)
    harmonic = float((1 / np.arange(estimator.neighbor, count)).sum())  # digamma(N) - digamma(k)
    nearest_NK, distances_NK = nearest(points_NZ, estimator.neighbor + 1, estimator.norm)
    logs_NK = dims * np.log(np.maximum(distances_NK, SMALLEST_DISTANCE if estimator.equal_points == "each" else 0))
    mean_log, error = ratio_of_nearest(nearest_NK, logs_NK, np.ones(count), estimator.neighbor)
    return Entropy(harmonic + volume + mean_log, error, count)


def code_entropy(subject: Subject) -> Findings:
    """How far codes fill the space [Livne et al. 2020, table 6], beside N(0, I) by its formula and by as many draws.

    A posterior without spread (an autoencoder's) has one kind of code, its points. The published estimator is of
    sampled codes, or of such points, of up to 300 dimensions.
    """
    test = subject.test
    dims = subject.space.dim
    exact = dims / 2 * math.log(2 * math.pi * math.e)
    estimates: dict[str, Estimate] = {}
    rows: list[Cells] = []
    kinds = code_kinds(test)
    sampled = "samples" if "samples" in kinds else "means"
    for kind, codes_NZ in reversed(kinds.items()):
        # Equal sentences have equal means, but for rounding that would count as a distance.
        distinct_NZ = codes_NZ[distinct_rows(test)] if kind == "means" else codes_NZ
        _add(subject, kind, distinct_NZ, OURS, estimates, rows)
        if kind == sampled and dims <= MOST_DIMENSIONS:
            _add(subject, kind, codes_NZ, PUBLISHED, estimates, rows)
    name = f"entropy of N(0, I) in {dims} dimensions by its formula, nats"
    estimates["entropy_normal_exact"] = Estimate(name, exact, None, len(test), "exact", None, {"dimensions": dims})
    columns = ("codes", "estimator", "points", "entropy", "N(0, I), formula", "N(0, I), same estimator")
    table = Table(
        f"Entropy of codes in {dims} dimensions by near neighbours, nats. The estimators are biased: what each says of "
        "as many draws of N(0, I), whose entropy is known, stands beside, and that less the formula is its bias there. "
        "Numbers of two estimators do not compare",
        (*columns, "its bias", "codes less draws"),
        tuple(rows),
    )
    return Findings(estimates, {"entropy": table} if rows else {})


def _add(
    subject: Subject,
    kind: str,
    codes_NZ: Floats,
    estimator: Estimator,
    estimates: dict[str, Estimate],
    rows: list[Cells],
) -> None:
    """Add what an estimator says of codes, and of as many draws of N(0, I)."""
    found = nearest_neighbour_entropy(codes_NZ, estimator)
    if found is None:
        return
    dims = subject.space.dim
    exact = dims / 2 * math.log(2 * math.pi * math.e)
    is_ours = estimator == OURS
    repeats = max(2, subject.effort.repeats) if is_ours else PUBLISHED_DRAWS
    random = np.random.default_rng(seed_of(subject.seed, "standard normal", kind))
    normal = (nearest_neighbour_entropy(random.normal(size=(found.points, dims)), estimator) for _ in range(repeats))
    drawn = [one for one in track(normal, "entropy", subject.show_progress, repeats) if one is not None]
    anchor = float(np.mean([one.value for one in drawn]))
    # From each draw's own error, since the spread of so few draws is mostly chance.
    errors = [one.stderr for one in drawn if one.stderr is not None]
    anchor_error = math.hypot(*errors) / len(drawn) if errors else None
    settings: Settings = {
        "estimator": estimator.name,
        "dimensions": dims,
        "points": found.points,
        "duplicates": len(subject.test) - found.points,
        "draws": repeats,
        "seed": subject.seed,
    }
    by = "nearest-neighbour" if is_ours else "third-neighbour (maximum norm, as in SentenceMIM's public code)"
    text = f"{by} entropy of codes (posterior {kind}), nats"
    of_normal = f"the same {'' if is_ours else 'third-neighbour '}estimator on {found.points:,} draws of N(0, I)"
    error = None if found.stderr is None or anchor_error is None else math.hypot(found.stderr, anchor_error)
    over_draws = f"standard error over the points of {repeats} draws, jackknife"
    over_both = "standard error over sentences and the points of draws, jackknife"
    bias = f"bias of the estimator: {of_normal} as for posterior {kind}, less its formula, nats"
    numbers = {
        "": (text, found.value, found.stderr, "standard error over sentences, jackknife"),
        "_normal": (f"{of_normal} as for posterior {kind}, nats", anchor, anchor_error, over_draws),
        "_bias": (bias, anchor - exact, anchor_error, over_draws),
        "_above_normal": (f"{text}, less {of_normal}", found.value - anchor, error, over_both),
    }
    prefix = "entropy" if is_ours else "entropy_k3"
    for key, (name, value, stderr, how) in numbers.items():
        more = settings | {"error": None if stderr is None else how}
        estimates[f"{prefix}_{kind}{key}"] = Estimate(name, value, stderr, found.points, "none", None, more)
    cells = [plus_minus(value, stderr) for _, value, stderr, _ in numbers.values()]
    codes = "points" if kind == "means" and len(code_kinds(subject.test)) == 1 else kind
    which = "nearest, Euclidean" if is_ours else "third, maximum norm"
    rows.append((f"posterior {codes}", which, found.points, cells[0], round(exact, 2), *cells[1:]))


MEASURES: dict[str, Measure] = {
    "code_entropy": Measure(code_entropy, "How far codes fill the space, beside a standard normal.", ("codes",)),
}
