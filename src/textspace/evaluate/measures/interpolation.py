"""Sentences on the way from one code to another, and how smooth the way is."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textspace.errors import TextspaceError
from textspace.evaluate.measure import Cells, Findings, Measure, Picture, Subject, Table
from textspace.evaluate.statistics import standard_error
from textspace.evaluate.text_metrics import word_edit_distance
from textspace.generate import Greedy, Method, Sampling
from textspace.noise import seed_of
from textspace.paths import interpolated
from textspace.types import Estimate, Settings

__all__ = ["MEASURES", "Smoothness", "interpolations", "smoothness"]

POINTS = 11
"""Codes of a path, its ends included [Li et al. 2019, tables 12 and 13]."""

PAPER_POINTS = 10
"""Codes of a path as in sentenceMIM, its ends included [Livne et al. 2020, appendix D.2]."""

STEPS_POINTS = 5
"""Codes of a path of three steps between its ends [VAT paper, table 3]."""

SHOWN = 10
"""Paths of each kind that the report shows, and the fewest that are measured where there are sentences for them."""

MOST = 100
"""The most paths of each kind that are measured."""

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


class _Kind(NamedTuple):
    """Paths of one kind: where they end, how long they are, and how words are chosen."""

    key: str
    name: str
    ends: Sequence[tuple[NDArray[Any], NDArray[Any]]]
    points: int = POINTS
    method: Method = Greedy()
    sentences: Sequence[tuple[str, str]] | None = None
    """Those whose codes are the ends, to be shown above each path."""

    @property
    def words(self) -> str:
        chosen = "greedy" if isinstance(self.method, Greedy) else "words sampled at temperature 1"
        return f"straight paths between {self.name}, {self.points} points each, {chosen}"

    @property
    def shares(self) -> list[float]:
        return [step / (self.points - 1) for step in range(self.points)]


def interpolations(subject: Subject) -> Findings:
    """Straight paths between prior samples and between posterior samples of test sentences, decoded greedily
    [Bowman et al. 2016; Li et al. 2019], with the smoothness of each; as in sentenceMIM [Livne et al. 2020], of 10
    points between samples of sentences that follow each other, decoded greedily and with sampled words; and as in the
    VAT paper, of three steps between means."""
    space, test = subject.space, subject.test
    if len(test) < 2:
        raise TextspaceError(f"a path leads from one sentence to another, and there is {len(test)}")
    count = min(MOST, max(SHOWN, subject.effort.decoded // (2 * POINTS)))
    random = np.random.default_rng(seed_of(subject.seed, "ends of paths"))
    # No two paths of a kind share a sentence, so that they are independent and at most half as many as sentences.
    ends = 2 * min(count, len(test) // 2)
    ends_N2, following_N2 = random.permutation(len(test))[:ends].reshape(-1, 2), np.arange(ends).reshape(-1, 2)
    sampled = "samples" if test.has_spread else "points"  # an autoencoder has nothing to sample
    following = f"posterior {sampled} of one test sentence and the next, two by two in the order of the text"

    def texts(rows_N2: NDArray[np.int64]) -> list[tuple[str, str]]:
        return [(test.texts[one], test.texts[other]) for one, other in rows_N2]

    prior = _two_by_two(space.prior_codes(2 * count, seed=subject.seed))
    any_two, next_two = (_two_by_two(test.codes("sample", rows.ravel())) for rows in (ends_N2, following_N2))
    means = _two_by_two(test.codes("mean", ends_N2.ravel()))
    kinds = (
        _Kind("prior", "prior samples", prior),
        _Kind("posterior", f"posterior {sampled} of test sentences", any_two),
        _Kind("sampled_ends", following, next_two, PAPER_POINTS, Greedy(), texts(following_N2)),
        _Kind("sampled_ends_and_words", following, next_two, PAPER_POINTS, Sampling(), texts(following_N2)),
        _Kind("three_steps", "posterior means of test sentences", means, STEPS_POINTS, Greedy(), texts(ends_N2)),
    )
    parts = [_paths(subject, kind) for kind in kinds]
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


def _two_by_two(codes: Sequence[NDArray[Any]]) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    return list(zip(codes[::2], codes[1::2], strict=True))


def _paths(subject: Subject, kind: _Kind) -> Findings:
    """What there is to say of paths between pairs of codes."""
    points = kind.points
    codes = [code for start, end in kind.ends for code in interpolated(start, end, points)]
    seed = seed_of(subject.seed, "words of paths")
    texts = subject.space.decode(codes, method=kind.method, seed=seed, show_progress=subject.show_progress)
    paths = [texts[start : start + points] for start in range(0, len(texts), points)]
    words = [[text.split() for text in path] for path in paths]
    found = [smoothness(path) for path in words]
    sentences: list[Cells] = []
    for number, path in enumerate(paths[:SHOWN], 1):
        if kind.sentences is not None:
            sentences.append((number, "ends", " → ".join(kind.sentences[number - 1])))
        sentences += [(number, round(share, 2), text) for share, text in zip(kind.shares, path, strict=True)]
    columns = ("path", "all steps / distance of ends", "largest step / all steps", "steps repeated", "distinct")
    rows = tuple((number, *one) for number, one in enumerate(found[:SHOWN], 1))
    told = ("path", "share of the way", "sentence")
    tables = {
        f"{kind.key}_paths": Table(
            f"Sentences on {kind.words}", told, tuple(sentences), grouped=kind.sentences is not None
        ),
        f"{kind.key}_smoothness": Table(f"Smoothness of {kind.words}", columns, rows),
    }
    picture = _picture(kind, words)
    return Findings(_estimates(subject, kind, found), tables, {} if picture is None else {f"{kind.key}_paths": picture})


def _estimates(subject: Subject, kind: _Kind, found: list[Smoothness]) -> dict[str, Estimate]:
    """Means over the paths for which there is a number."""
    step = "word edit distances of neighbours"
    wanted: dict[str, tuple[str, Literal["lower"] | None]] = {
        "detour": (f"{step} summed over the path / that of its ends (1 is straight)", "lower"),
        "largest_step": (f"largest / sum of the {step} (at best {1 / (kind.points - 1):.2g})", "lower"),
        "repeated": ("share of neighbours that are the same sentence", None),
        "distinct": (f"distinct sentences of {kind.points}", None),
    }
    estimates = {}
    for field, (words, better) in wanted.items():
        values = [getattr(one, field) for one in found]
        known_N = np.array([value for value in values if value is not None], np.float64)
        if not len(known_N):
            continue
        settings: Settings = {
            "paths": len(known_N),
            "without_number": len(found) - len(known_N),
            "points": kind.points,
            "seed": subject.seed,
            "error": "standard error over paths, of which no two share an end",
        }
        name, error = f"{words}, mean over {kind.words}", standard_error(known_N)
        estimates[f"{kind.key}_{field}"] = Estimate(
            name, float(known_N.mean()), error, len(known_N), "none", better, settings
        )
    return estimates


def _picture(kind: _Kind, paths: list[list[list[str]]]) -> Picture | None:
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
        f"{kind.words.capitalize()}: mean word edit distance to their ends",
        series,
        x=kind.shares,
        x_label="share of the way",
        y_label="distance / distance of the ends",
    )


MEASURES: dict[str, Measure] = {
    "interpolations": Measure(
        interpolations, "Sentences on the way between codes, and how smooth the way is.", ("codes",)
    ),
}
