"""Whether classes of text switch off dimensions of their own, and whether classes of other words do so more."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textspace.digits import plus_minus
from textspace.errors import TextspaceError
from textspace.evaluate.measure import Findings, Measure, Picture, Subject, Table
from textspace.evaluate.measures.corpus_statistics import class_counts, mean_off_diagonal, pairwise_kl, word_counts
from textspace.evaluate.statistics import SAFE_SIDE, jackknife_error
from textspace.noise import seed_of
from textspace.progress import track
from textspace.types import Estimate, Settings

__all__ = ["MEASURES", "Relation", "Shuffled", "class_gates", "class_vectors", "distances", "mantel", "shuffled_labels"]

SHUFFLES = 200
"""Of labels: what the distance of class vectors is by chance."""

ORDERS = 5_000
"""Of classes at most, for the significance of a rank correlation; all there are if not more."""

GROUPS = 20
"""Parts of the text that are left out in turn for the error of a number of all of it."""

SHOWN = 32
"""Neighbouring dimensions in the picture, from the first on."""

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


# The mathematics, on arrays


def class_vectors(off_NZ: NDArray[Any], label_N: Integers, classes: int) -> Floats:
    """In which share of a class's sentences each dimension is off, (C, Z); every class has a sentence."""
    member_CN = (np.arange(classes)[:, None] == label_N).astype(off_NZ.dtype)
    return (member_CN @ off_NZ).astype(np.float64) / member_CN.sum(1, dtype=np.float64)[:, None]


def distances(vectors_CZ: Floats) -> Floats:
    """Euclidean distances of class vectors over the root of the dimensions, (C, C): 0 alike, 1 opposite everywhere."""
    return np.sqrt(((vectors_CZ[:, None] - vectors_CZ) ** 2).mean(2))


class Shuffled(NamedTuple):
    """A number of labelled sentences beside the same with labels dealt out anew."""

    value: float
    mean: float
    deviation: float
    p: float
    """How probable such a value or a larger one is by chance; never 0."""

    @property
    def z(self) -> float:
        """Deviations above chance; 0 where neither varies."""
        return (self.value - self.mean) / self.deviation if self.deviation > 0 else 0.0


def shuffled_labels(
    off_NZ: NDArray[Any], label_N: Integers, classes: int, *, shuffles: int, seed: int, progress: bool = False
) -> Shuffled:
    """The mean pairwise distance of class vectors, against what chance gives.

    Class vectors of few sentences differ by chance alone, the more so the fewer, and the distance is never below 0: so
    it tells something only beside its value for classes of the same sizes without anything in common.
    """
    random = np.random.default_rng(seed)

    def mean_distance(of_N: Integers) -> float:
        return mean_off_diagonal(distances(class_vectors(off_NZ, of_N, classes)))

    value = mean_distance(label_N)
    turns = track(range(shuffles), "shuffling labels", progress, shuffles)
    null_S = np.array([mean_distance(random.permutation(label_N)) for _ in turns])
    reached = int((null_S >= value - 1e-12).sum())
    return Shuffled(value, float(null_S.mean()), float(null_S.std(ddof=1)), (1 + reached) / (1 + shuffles))


class Relation(NamedTuple):
    """A rank correlation over pairs of classes."""

    value: float
    stderr: float | None
    """By a jackknife over classes."""
    p: float
    """How probable such a value or one further from 0 is by chance, the classes of one matrix in any order."""
    orders: int
    """On how many orders that rests."""


def mantel(one_CC: Floats, other_CC: Floats, *, orders: int, seed: int) -> Relation | None:
    """Spearman's correlation of two symmetric matrices over pairs of classes; None where nothing can be ranked.

    Pairs that share a class depend on each other, so whole classes are put into another order [Mantel 1967]: into all
    orders there are, or into that many random ones.
    """
    classes = len(one_CC)
    if classes < 3:
        return None
    above = np.triu_indices(classes, 1)
    one_P, ranks_CC = _ranks(one_CC)[above], _ranks(other_CC)
    value = _correlation(one_P, ranks_CC[above])
    if math.isnan(value):
        return None
    tried = list(_orders(classes, orders, seed))
    found = np.array([_correlation(one_P, ranks_CC[np.ix_(order_C, order_C)][above]) for order_C in tried])
    reached = int((np.abs(found) >= abs(value) - 1e-12).sum())
    everything = len(tried) == math.factorial(classes)  # the order as it is then is among them
    p = reached / len(tried) if everything else (1 + reached) / (1 + len(tried))

    def of_classes(kept_C: Integers) -> float:
        at = np.triu_indices(len(kept_C), 1)
        return _correlation(*(_ranks(matrix[np.ix_(kept_C, kept_C)])[at] for matrix in (one_CC, other_CC)))

    error = jackknife_error(of_classes, classes, classes) if classes > 3 else None
    return Relation(value, None if error is None or math.isnan(error) else error, p, len(tried))


def _orders(classes: int, most: int, seed: int) -> Iterator[Integers]:
    if math.factorial(classes) <= most:
        yield from (np.array(order) for order in permutations(range(classes)))
    else:
        random = np.random.default_rng(seed)
        yield from (random.permutation(classes) for _ in range(most))


def _ranks(matrix_CC: Floats) -> Floats:
    """The rank of each pair of a symmetric matrix among all pairs, in its place; equal ones have their mean rank."""
    from scipy.stats import rankdata

    ranks_CC = np.zeros_like(matrix_CC)
    above = np.triu_indices(len(matrix_CC), 1)
    ranks_CC[above] = rankdata(matrix_CC[above])
    return ranks_CC + ranks_CC.T


def _correlation(x_P: Floats, y_P: Floats) -> float:
    """Pearson's; not a number where one of them does not vary."""
    x_P, y_P = x_P - x_P.mean(), y_P - y_P.mean()
    size = math.sqrt(float((x_P**2).sum() * (y_P**2).sum()))
    return float((x_P * y_P).sum()) / size if size > 0 else math.nan


# The measure


def class_gates(subject: Subject) -> Findings:
    """Class-averaged gates [Prokhorov et al. 2021, figure 4] and how far classes differ, beside chance and their words.

    gamma_class averages over the test sentences of a class which dimensions are off, binarised at E[gamma|x] >= 0.5:
    even chances are off, as in the paper.
    """
    test, seed = subject.test, subject.seed
    if test.gates_NZ is None:
        raise TextspaceError("the space has no gates: no dimension of its codes can be off")
    if test.labels is None:
        raise TextspaceError("the test split has no labels, so there are no classes to compare")
    names, label_N = np.unique(np.array(test.labels), return_inverse=True)
    classes = [str(name) for name in names]
    if len(classes) < 2:
        raise TextspaceError(f"all sentences are of the class {classes[0]!r}, so there are no classes to compare")
    off_NZ = (test.gates_NZ <= 0.5).astype(np.float32)
    vectors_CZ = class_vectors(off_NZ, label_N, len(classes))
    found = shuffled_labels(
        off_NZ,
        label_N,
        len(classes),
        shuffles=SHUFFLES,
        seed=seed_of(seed, "shuffled labels"),
        progress=subject.show_progress,
    )
    dims, count = off_NZ.shape[1], len(test)
    settings: Settings = {
        "classes": len(classes),
        "dimensions": dims,
        "distance": "Euclidean over the root of the dimensions",
        "shuffles": SHUFFLES,
        "seed": seed,
    }

    def of_rows(rows: Integers) -> float:
        there, label_M = np.unique(label_N[rows], return_inverse=True)
        if len(there) < 2:
            return 0.0
        return mean_off_diagonal(distances(class_vectors(off_NZ[rows], label_M, len(there))))

    blocks = min(GROUPS, count)
    error = jackknife_error(of_rows, count, blocks)
    jackknife = (
        f"standard error by a jackknife over {blocks} blocks of sentences, {SAFE_SIDE} where classes do not differ"
    )
    spread = f"spread over {SHUFFLES} shuffles"
    about = f"mean pairwise distance (0-1) of the class-averaged binarised gates of {len(classes)} classes"
    whole = f"{about}, all {dims} dimensions"
    numbers: dict[str, tuple[str, float, float | None, str]] = {
        "gate_distance": (whole, found.value, error, jackknife),
        "gate_distance_shuffled": (
            f"{whole}, labels shuffled: what chance alone gives",
            found.mean,
            found.deviation,
            spread,
        ),
        "gate_distance_beyond_chance": (
            f"{whole}, less that of shuffled labels",
            found.value - found.mean,
            error,
            jackknife,
        ),
        "gate_distance_z": (
            f"{whole}: deviations above that of shuffled labels (z-score)",
            found.z,
            None,
            f"none: a ratio to the {spread}",
        ),
        "gate_distance_p": (
            f"{whole}: share of shuffled labels that reach it (p-value, one-sided)",
            found.p,
            None,
            f"none: a permutation test, {1 / (1 + SHUFFLES):.2g} at least",
        ),
    }
    estimates = {
        key: Estimate(name, value, stderr, count, "none", None, settings | {"error": how})
        for key, (name, value, stderr, how) in numbers.items()
    }
    rows = [(name.removeprefix(about).removeprefix(", "), plus_minus(v, e)) for name, v, e, _ in numbers.values()]
    tables = {"class_gates": Table(f"{about.capitalize()}", ("of", "found"), tuple(rows))}
    last = min(dims, SHOWN)
    part = "" if last == dims else f", dimensions 1 to {last} of {dims}"
    heat = Picture(
        "heat",
        f"Share of each class's sentences in which a dimension is off (E gamma >= 0.5){part}",
        {name: row.tolist() for name, row in zip(classes, vectors_CZ[:, :last], strict=True)},
        x_label="dimension",
        y_label="class",
        ticks=[str(place) for place in range(1, last + 1)],
    )
    related = _related(subject, classes, distances(vectors_CZ))
    return Findings(estimates | related.estimates, tables | related.tables, {"class_gates": heat} | related.pictures)


def _related(subject: Subject, classes: list[str], distance_CC: Floats) -> Findings:
    """Whether classes whose words differ more have gates that differ more."""
    read = subject.splits.get("train", subject.test)
    labels: Iterable[str] = read.labels or ()
    numbers = {name: number for number, name in enumerate(classes)}
    label_N = np.array([numbers.get(label, -1) for label in labels], np.int64)
    both_C = np.array([number for number in range(len(classes)) if (label_N == number).any()], np.int64)
    if len(both_C) < 3:
        return Findings()
    counts_CV = class_counts(word_counts(read.words), label_N, len(classes))[both_C]
    kl_CC = pairwise_kl(counts_CV)
    kl_CC = (kl_CC + kl_CC.T) / 2
    distance_CC = distance_CC[np.ix_(both_C, both_C)]
    found = mantel(distance_CC, kl_CC, orders=ORDERS, seed=seed_of(subject.seed, "orders of classes"))
    above = np.triu_indices(len(both_C), 1)
    pairs = np.stack([kl_CC[above], distance_CC[above]], axis=1)
    picture = Picture(
        "points",
        "Pairs of classes: distance of their gates against the KL of their words",
        {"pair of classes": pairs.ravel().tolist()},
        x_label="KL of add-one word distributions, mean of both directions, nats per word",
        y_label="distance of class-averaged gates",
    )
    if found is None:
        return Findings(pictures={"gates_and_words": picture})
    of = (
        "rank correlation (Spearman) over pairs of classes of the distance of their gates and the KL of their words "
        f"(mean of KL(row || column) and KL(column || row), {read.name} split)"
    )
    settings: Settings = {"classes": len(both_C), "pairs": len(pairs), "orders": found.orders, "seed": subject.seed}
    estimates = {
        "gates_and_words": Estimate(
            of,
            found.value,
            found.stderr,
            len(subject.test),
            "none",
            None,
            settings | {"error": "standard error by a jackknife over classes"},
        ),
        "gates_and_words_p": Estimate(
            f"{of}: share of orders of the classes that reach it (p-value, two-sided)",
            found.p,
            None,
            len(subject.test),
            "none",
            None,
            settings | {"error": "none: a permutation test"},
        ),
    }
    cells = (len(both_C), len(pairs), plus_minus(found.value, found.stderr), plus_minus(found.p, None))
    table = Table("Gates and words of classes: " + of, ("classes", "pairs", "correlation", "p-value"), (cells,))
    return Findings(estimates, {"gates_and_words": table}, {"gates_and_words": picture})


MEASURES: dict[str, Measure] = {
    "class_gates": Measure(
        class_gates,
        "Whether classes switch off dimensions of their own, against chance and against their words.",
        ("codes", "gates", "labels"),
        ("full",),
    ),
}
