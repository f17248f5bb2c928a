"""Sentences on the way from one code to another, and how smooth the way is."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textspace.errors import TextspaceError
from textspace.evaluate.measure import Findings, Measure, Picture, Subject, Table
from textspace.evaluate.statistics import standard_error
from textspace.evaluate.text_metrics import word_edit_distance
from textspace.generate import Greedy
from textspace.noise import seed_of
from textspace.paths import interpolated
from textspace.types import Estimate

__all__ = ["MEASURES", "Smoothness", "interpolations", "smoothness"]

POINTS = 11
"""Codes of a path, its ends included [Li et al. 2019, tables 12 and 13]."""

SHOWN = 10
"""Paths of each kind that the report shows, and the fewest that are measured."""

MOST = 100
"""The most paths of each kind that are measured."""

Floats = NDArray[np.float64]
Words = Sequence[str]


class Smoothness(NamedTuple):
    """How evenly the sentences of a path change, by word edit distance."""

    detour: float | None
    """All steps together / the distance of the ends: 1 when every step leads on; None for equal ends."""
    largest_step: float | None
    """The largest step / all steps together: at best one divided by their number; None when nothing changes."""
    repeated: float
    """Share of steps that change nothing."""
    distinct: int
    """Different sentences on the path."""


def smoothness(path: Sequence[Words]) -> Smoothness:
    """How evenly the sentences of a path change, each a sequence of words; two or more.

    >>> smoothness(["a b".split(), "a c".split(), "a c".split(), "d c".split()])
    Smoothness(detour=1.0, largest_step=0.5, repeated=0.3333333333333333, distinct=3)
    """
    steps = [word_edit_distance(a, b) for a, b in pairwise(path)]
    whole, between = sum(steps), word_edit_distance(path[0], path[-1])
    return Smoothness(
        detour=whole / between if between else None,
        largest_step=max(steps) / whole if whole else None,
        repeated=steps.count(0) / len(steps),
        distinct=len({tuple(words) for words in path}),
    )


def interpolations(subject: Subject) -> Findings:
    """Straight paths between prior samples and between posterior samples of test sentences, decoded greedily
    [Bowman et al. 2016; Li et al. 2019], with the smoothness of each."""
    space, test = subject.space, subject.test
    if len(test) < 2:
        raise TextspaceError(f"a path leads from one sentence to another, and there is {len(test)}")
    count = min(MOST, max(SHOWN, subject.effort.decoded // (2 * POINTS)))
    random = np.random.default_rng(seed_of(subject.seed, "ends of paths"))
    ends_N2 = np.array([random.choice(len(test), 2, replace=False) for _ in range(count)])
    sampled = "samples" if test.deviations_NZ.any() else "points"  # an autoencoder has nothing to sample
    kinds: dict[str, tuple[str, Floats]] = {
        "prior": (
            "prior samples",
            space.prior_codes(2 * count, seed=subject.seed).astype(np.float64).reshape(count, 2, -1),
        ),
        "posterior": (f"posterior {sampled} of test sentences", test.samples_NZ[ends_N2]),
    }
    parts = [_paths(subject, key, name, ends) for key, (name, ends) in kinds.items()]
    sources = tuple(
        (number, end, test.texts[row])
        for number, rows in enumerate(ends_N2[:SHOWN], 1)
        for end, row in zip(("from", "to"), rows, strict=True)
    )
    given = Table("Test sentences whose codes are the ends of the paths", ("path", "end", "sentence"), sources)
    return Findings(
        estimates={name: one for part in parts for name, one in part.estimates.items()},
        tables={name: one for part in parts for name, one in part.tables.items()} | {"posterior_ends": given},
        pictures={name: one for part in parts for name, one in part.pictures.items()},
    )


def _paths(subject: Subject, key: str, name: str, ends_N2Z: Floats) -> Findings:
    """What there is to say of paths between pairs of codes."""
    codes_MZ = np.concatenate([interpolated(start_Z, end_Z, POINTS) for start_Z, end_Z in ends_N2Z])
    texts = subject.space.decode(codes_MZ, method=Greedy(), show_progress=subject.show_progress)
    paths = [texts[start : start + POINTS] for start in range(0, len(texts), POINTS)]
    words = [[text.split() for text in path] for path in paths]
    found = [smoothness(path) for path in words]
    shares = [step / (POINTS - 1) for step in range(POINTS)]

    between = f"straight paths between {name}, {POINTS} points each, greedy"
    sentences = tuple(
        (number, round(share, 2), text)
        for number, path in enumerate(paths[:SHOWN], 1)
        for share, text in zip(shares, path, strict=True)
    )
    columns = ("path", "all steps / distance of ends", "largest step / all steps", "steps repeated", "distinct")
    rows = tuple((number, *one) for number, one in enumerate(found[:SHOWN], 1))
    tables = {
        f"{key}_paths": Table(f"Sentences on {between}", ("path", "share of the way", "sentence"), sentences),
        f"{key}_smoothness": Table(f"Smoothness of {between}", columns, rows),
    }
    picture = _picture(name, words, shares)
    return Findings(
        _estimates(subject, key, between, found), tables, {} if picture is None else {f"{key}_paths": picture}
    )


def _estimates(subject: Subject, key: str, between: str, found: list[Smoothness]) -> dict[str, Estimate]:
    """Means over the paths for which there is a number."""
    step = "word edit distances of neighbours"
    wanted: dict[str, tuple[str, Literal["lower"] | None]] = {
        "detour": (f"{step} summed over the path / that of its ends (1 is straight)", "lower"),
        "largest_step": (f"largest / sum of the {step} (at best {1 / (POINTS - 1):.2g})", "lower"),
        "repeated": ("share of neighbours that are the same sentence", None),
        "distinct": (f"distinct sentences of {POINTS}", None),
    }
    estimates = {}
    for field, (words, better) in wanted.items():
        values = [getattr(one, field) for one in found]
        known_N = np.array([value for value in values if value is not None], np.float64)
        if not len(known_N):
            continue
        settings: dict[str, str | int | float | bool | None] = {
            "paths": len(known_N),
            "without_number": len(found) - len(known_N),
            "points": POINTS,
            "seed": subject.seed,
            "error": "standard error over paths",
        }
        name, error = f"{words}, mean over {between}", standard_error(known_N)
        estimates[f"{key}_{field}"] = Estimate(
            name, float(known_N.mean()), error, len(known_N), "none", better, settings
        )
    return estimates


def _picture(name: str, paths: list[list[list[str]]], shares: list[float]) -> Picture | None:
    """Mean edit distances to both ends along the way, relative to that of the ends; even ways make straight lines."""
    paths = [path for path in paths if path[0] != path[-1]]
    if not paths:
        return None
    series: dict[str, list[float]] = {}
    for which, end in (("to the start", 0), ("to the end", -1)):
        ways = np.array([[word_edit_distance(path[end], words) for words in path] for path in paths], np.float64)
        between_N = ways[:, -1 - end]  # at the other end
        series[which] = (ways / between_N[:, None]).mean(0).tolist()
    return Picture(
        "lines",
        f"Paths between {name}: mean word edit distance to their ends",
        series,
        x=shares,
        x_label="share of the way",
        y_label="distance / distance of the ends",
    )


MEASURES: dict[str, Measure] = {
    "interpolations": Measure(
        interpolations, "Sentences on the way between codes, and how smooth the way is.", ("codes",)
    ),
}
