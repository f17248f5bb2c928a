"""On the built-in corpus, whose truth is known: how far from it a space is, and which factors its codes hold."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textspace.data.english import english
from textspace.data.tokenizers import UNKNOWN
from textspace.errors import TextspaceError
from textspace.evaluate.likelihood import Likelihood, given_beforehand
from textspace.evaluate.measure import Cells, Findings, Measure, Picture, Sentences, Subject, Table
from textspace.evaluate.measures.classifiers import one_thread
from textspace.evaluate.statistics import ROUNDING, some_rows, standard_error
from textspace.noise import seed_of
from textspace.progress import track
from textspace.types import Bound, Estimate, Settings

__all__ = ["MEASURES", "Reading", "distance_to_truth", "factors", "read_factor"]

LEAVES = 16
"""Intervals of one dimension that a tree may tell apart: twice as many as any factor has values."""

SMALLEST_LEAF = 0.01
"""Share of the training sentences that each interval holds at least, so that trees learn no single sentences."""

TRAINING_SENTENCES = 5_000
"""Most sentences that probes learn from."""

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Bools = NDArray[np.bool_]
Strings = NDArray[np.str_]


# Factors


class Reading(NamedTuple):
    """How well a factor can be read from codes; everything is of test sentences."""

    majority: float
    """Accuracy of always saying what is most frequent in training."""
    correct_N: Bools
    """Of logistic regression on the whole code."""
    dimension: int
    """The one from which training sentences are read best, each half of them by a tree that learnt from the other."""
    dimension_correct_N: Bools
    """Of a tree on that dimension alone."""
    second: int | None
    """The dimension chosen next, likewise; None where there is one alone."""
    accuracy_Z: Floats
    """Of a tree on each dimension alone."""


@one_thread
def read_factor(train_MZ: Floats, values_M: Strings, test_NZ: Floats, values_N: Strings) -> Reading:
    """Learn to read a factor from training codes, from all dimensions and from each alone, and read it from test codes.

    The whole code is read by logistic regression on standardised dimensions, one dimension by a decision tree with few
    leaves.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.tree import DecisionTreeClassifier

    train_MZ, test_NZ = _standardised(train_MZ, test_NZ)
    names, value_M, counts = np.unique(values_M, return_inverse=True, return_counts=True)
    place_N = np.searchsorted(names, values_N).clip(max=len(names) - 1)
    value_N = np.where(names[place_N] == values_N, place_N, -1)  # -1: never seen in training, and never read
    majority_N = value_N == counts.argmax()
    majority, dims = float(majority_N.mean()), train_MZ.shape[1]
    if len(names) == 1:  # nothing to learn
        return Reading(majority, majority_N, 0, majority_N, 1 if dims > 1 else None, np.full(dims, majority))

    def tree_reads(dim: int, learnt_M: Bools, codes_NZ: Floats) -> Integers:
        smallest = max(1, math.ceil(SMALLEST_LEAF * learnt_M.sum()))
        tree = DecisionTreeClassifier(max_leaf_nodes=LEAVES, min_samples_leaf=smallest, random_state=0)
        return tree.fit(train_MZ[learnt_M][:, [dim]], value_M[learnt_M]).predict(codes_NZ[:, [dim]])

    all_M, half_M = np.ones(len(value_M), bool), np.arange(len(value_M)) % 2 == 0
    correct_ZN, chosen_by_Z = np.empty((dims, len(value_N)), bool), np.empty(dims)
    for dim in range(dims):
        correct_ZN[dim] = tree_reads(dim, all_M, test_NZ) == value_N
        # Each half is read by a tree of the other: noise that a tree has learnt by heart is not chosen for it.
        chosen_by_Z[dim] = np.mean(
            [(tree_reads(dim, ~half, train_MZ[half]) == value_M[half]).mean() for half in (half_M, ~half_M)]
        )
    best, *others = np.argsort(-chosen_by_Z, kind="stable").tolist()
    second = others[0] if others else None
    whole = LogisticRegression(max_iter=2_000).fit(train_MZ, value_M)
    return Reading(majority, whole.predict(test_NZ) == value_N, best, correct_ZN[best], second, correct_ZN.mean(1))


def _standardised(train_MZ: Floats, test_NZ: Floats) -> tuple[Floats, Floats]:
    """Both by the moments of the first; a dimension that does not vary but for rounding is 0."""
    mean_Z, deviation_Z = train_MZ.mean(0), train_MZ.std(0)
    varies_Z = deviation_Z > ROUNDING * np.abs(train_MZ).max()
    scale_Z = varies_Z / np.where(varies_Z, deviation_Z, 1)
    return (train_MZ - mean_Z) * scale_Z, (test_NZ - mean_Z) * scale_Z


def factors(subject: Subject) -> Findings:
    """How well each known factor of the built-in corpus can be read from the code, and from its best dimension."""
    train, test = subject.splits.get("train"), subject.test
    test_rows, truth = _parsed(test, np.arange(len(test)), subject.show_progress)
    outside = len(test) - len(test_rows)
    if train is not None:
        read_from = "train split"
        spread = some_rows(len(train), TRAINING_SENTENCES)
        train_rows, train_truth = _parsed(train, spread, subject.show_progress)
        train_MZ = train.means_NZ[train_rows]
    else:
        read_from = "half of the test split, measured on the other"
        order = np.random.default_rng(seed_of(subject.seed, "halves")).permutation(len(test_rows))
        first, second = order[: len(order) // 2], order[len(order) // 2 :]
        train_rows, train_truth = test_rows[first], {name: of[first] for name, of in truth.items()}
        test_rows, truth = test_rows[second], {name: of[second] for name, of in truth.items()}
        train_MZ = test.means_NZ[train_rows]
    if not len(train_rows) or not len(test_rows):
        raise TextspaceError("none of these sentences is one of the built-in corpus, so their factors are unknown")
    test_NZ = test.means_NZ[test_rows]

    readings = {
        name: read_factor(train_MZ, train_truth[name], test_NZ, truth[name])
        for name in track(list(truth), "reading factors", subject.show_progress, len(truth))
    }
    settings: Settings = {
        "trained_on": read_from,
        "training_sentences": len(train_rows),
        "outside_corpus": outside,
        "seed": subject.seed,
        "error": "standard error over sentences",
    }
    found = Findings()

    def add(key: str, name: str, right_N: Floats, more: Settings) -> None:
        found.estimates[key] = Estimate(
            name, float(right_N.mean()), standard_error(right_N), len(right_N), "none", "higher", settings | more
        )
        if len(right_N) == len(test):
            found.per_sentence[key] = right_N.tolist()

    rows: list[Cells] = []
    for name, reading in readings.items():
        majority = f"test accuracy 0-1 (majority {reading.majority:.3f})"
        more: Settings = {"majority": reading.majority, "dimension": reading.dimension}
        whole = f"{name} read from the posterior mean by logistic regression, {majority}"
        single = f"{name} read from dimension {reading.dimension} alone by a tree, {majority}"
        add(f"{name}_from_code", whole, reading.correct_N.astype(np.float64), more)
        add(f"{name}_from_dimension", single, reading.dimension_correct_N.astype(np.float64), more)
        rows.append(
            (
                name,
                len(np.unique(truth[name])),
                reading.majority,
                float(reading.correct_N.mean()),
                reading.dimension,
                float(reading.dimension_correct_N.mean()),
                reading.second,
                None if reading.second is None else float(reading.accuracy_Z[reading.second]),
            )
        )
    of_all = f"mean test accuracy 0-1 over {len(readings)} factors"
    more = {"majority": float(np.mean([one.majority for one in readings.values()]))}
    code_N = np.mean([one.correct_N for one in readings.values()], axis=0)
    dimension_N = np.mean([one.dimension_correct_N for one in readings.values()], axis=0)
    add("factors_from_code", f"{of_all}, each read from the posterior mean by logistic regression", code_N, more)
    add("factors_from_dimension", f"{of_all}, each read from its best dimension alone by a tree", dimension_N, more)
    of_one = ("best dimension", "that dimension", "second dimension", "that one alone")
    columns = ("factor", "values", "majority", "whole code", *of_one)
    title = (
        "Test accuracy of reading each factor of the built-in corpus from posterior means; dimensions are chosen on "
        "training sentences"
    )
    found.tables["factors"] = Table(title, columns, tuple(rows))
    found.pictures["factors"] = Picture(
        "heat",
        "Test accuracy above the majority's, each factor read from one dimension",
        {name: (reading.accuracy_Z - reading.majority).tolist() for name, reading in readings.items()},
        x_label="dimension",
        ticks=[str(dim) for dim in range(train_MZ.shape[1])],
    )
    return found


def _parsed(sentences: Sentences, rows: Integers, progress: bool) -> tuple[Integers, dict[str, Strings]]:
    """Those rows whose factors are known (a sentence that was cut has none), and the factors."""
    grammar = english()
    known: dict[int, dict[str, str]] = {}
    for row in track(rows.tolist(), "parsing", progress, len(rows)):
        with suppress(TextspaceError):
            known[row] = grammar.factors(sentences.texts[row])
    values = {name: np.array([of[name] for of in known.values()], np.str_) for name in grammar.factor_names}
    return np.array(list(known), np.int64), values


# Distance to the truth


def distance_to_truth(subject: Subject) -> Findings:
    """How many nats a sentence the space spends beyond the exact -log p(x) of the built-in corpus.

    Both are of the same sentences, so most of what differs between sentences cancels. The expectation of the exact
    difference is KL(corpus || space). Likelihoods that are given something, the length say, are no bounds on it.
    """
    test = subject.test
    scored = _scored(subject)
    grammar = english()
    truth_N = np.array([-grammar.log_prob(text) for text in test.texts])
    derived_N = np.isfinite(truth_N)
    if not derived_N.any():
        raise TextspaceError("none of these sentences is one of the built-in corpus, so their probability is unknown")
    unknown_N = derived_N & [bool((test.split.ids(row) == UNKNOWN).any()) for row in range(len(test))]
    settings = scored.settings | {
        "entropy_of_corpus": grammar.entropy(),
        "outside_corpus": int((~derived_N).sum()),
        "with_unknown_words": int(unknown_N.sum()),
        "error": "standard error over sentences",
    }
    found = Findings()

    def add(key: str, name: str, nats_N: Floats, rows_N: Bools, bound: Bound) -> None:
        kept_N = nats_N[rows_N]
        better: Literal["lower"] | None = None if key == "truth" else "lower"
        name = f"{name}, nats per sentence"
        found.estimates[key] = Estimate(
            name, float(kept_N.mean()), standard_error(kept_N), len(kept_N), bound, better, settings
        )
        if rows_N.all():
            found.per_sentence[key] = nats_N.tolist()

    exact = "exact -log p(x) of the built-in corpus"
    add("truth", exact, truth_N, derived_N, "exact")
    own = scored.estimates()
    for key, bound_N in (("nll", scored.nll_N), ("elbo", scored.elbo_N)):
        if bound_N is None:
            continue
        beyond_N, name, bound = bound_N - truth_N, f"{own[key].name}, less the {exact}", own[key].bound
        if given := scored.settings.get("given"):
            name, bound = f"{name} (no bound: the probability of {given} is missing, which flatters)", "none"
        if not unknown_N.any():
            add(f"{key}_beyond_truth", name, beyond_N, derived_N, bound)
            continue
        # All unknown words together are likelier than the one that stood there: no bound is left.
        share = f"{unknown_N.mean():.1%} of sentences have words scored as unknown, which flatters"
        add(f"{key}_beyond_truth", f"{name} ({share})", beyond_N, derived_N, "none")
        if (known_N := derived_N & ~unknown_N).any():
            only = f"{name}, only sentences without unknown words"
            add(f"{key}_beyond_truth_known_words", only, beyond_N, known_N, bound)
    return found


def _scored(subject: Subject) -> Likelihood:
    """Likelihoods of the test sentences; where codes tell their length, with the probability of that if it is known."""
    test, samples, progress = subject.test, subject.effort.importance_samples, subject.show_progress
    model = subject.space.model
    if given_beforehand(model, "included") and not given_beforehand(model, "length"):
        with suppress(TextspaceError):  # lengths of training sentences that nobody kept, a sentence that is too long
            return test.likelihood(samples, "length", progress)
    return test.likelihood(samples, progress=progress)


MEASURES: dict[str, Measure] = {
    "factors": Measure(factors, "How well each known factor can be read from the code.", ("builtin", "codes")),
    "distance_to_truth": Measure(
        distance_to_truth,
        "Nats a sentence beyond the exact log-probability of the built-in corpus.",
        ("builtin",),
        ("quick", "standard", "full"),
    ),
}
