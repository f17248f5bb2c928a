"""Classes found without labels: a Gaussian mixture on codes, whose components are named after the classes."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from textspace.errors import TextspaceError
from textspace.evaluate.measure import Cells, Findings, Measure, Subject, Table
from textspace.evaluate.measures.classifiers import (
    Settings,
    accuracy,
    accuracy_over_seeds,
    known,
    labelled,
    majority_estimate,
    one_thread,
    per_sentence,
    random_state,
)
from textspace.evaluate.statistics import some_rows
from textspace.progress import track
from textspace.types import Estimate

__all__ = ["MEASURES", "chance_rate", "clusters", "fit_mixtures", "most_probable_names", "one_to_one_names"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MANY_COMPONENTS = 10
"""Components of the second figure, the default of the code published with Li et al. 2019; twice the classes if more."""

FITTED = 20_000
"""Training sentences that mixtures are fitted to, drawn at random from all: more take minutes and change little."""

FULL_COVARIANCE = 128
"""Beyond so many dimensions covariances are diagonal: full ones take too long and too much data."""


@one_thread
def fit_mixtures(codes_NZ: Floats, components: int, runs: int, seed: int) -> list[GaussianMixture]:
    """Gaussian mixtures from different initialisations, the one with the best likelihood first."""
    if len(codes_NZ) < components:
        raise TextspaceError(f"{len(codes_NZ)} training sentences cannot make {components} clusters: give more of them")
    covariance = "full" if codes_NZ.shape[1] <= FULL_COVARIANCE else "diag"
    mixtures = []
    for run in range(runs):
        mixture = GaussianMixture(
            components, covariance_type=covariance, max_iter=200, random_state=random_state(seed, components, run)
        )
        with warnings.catch_warnings():
            # Codes of a collapsed space are all alike: fewer clusters than asked for are then the right answer.
            warnings.simplefilter("ignore", ConvergenceWarning)
            mixtures.append(mixture.fit(codes_NZ))
    return sorted(mixtures, key=lambda mixture: -mixture.lower_bound_)


def one_to_one_names(component_N: Ints, classes_N: Ints, components: int, classes: int) -> Ints:
    """The class of each component, no two the same, such that most sentences are right (the Hungarian method).

    A component for which no class is left is -1, always wrong.

    >>> one_to_one_names(np.array([0, 0, 1, 1, 1]), np.array([1, 1, 0, 0, 1]), 2, 2).tolist()
    [1, 0]
    """
    known_N = classes_N >= 0
    counts_CK = np.zeros((components, classes), np.int64)
    np.add.at(counts_CK, (component_N[known_N], classes_N[known_N]), 1)
    names_C = np.full(components, -1)
    rows, columns = linear_sum_assignment(counts_CK, maximize=True)
    names_C[rows] = columns
    return names_C


def most_probable_names(responsibility_NC: Floats, classes_N: Ints) -> Ints:
    """The class of each component: that of the one sentence which most probably belongs to it.

    >>> most_probable_names(np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]), np.array([1, 0, 0])).tolist()
    [1, 0]
    """
    return classes_N[responsibility_NC.argmax(0)]


def chance_rate(names_C: Ints, component_N: Ints, classes_N: Ints) -> float:
    """The accuracy (0 to 1) of named components if they had nothing to do with the classes; -1 is always wrong.

    >>> chance_rate(np.array([0, 1]), np.array([0, 1, 0, 1]), np.array([0, 0, 0, 1]))
    0.5
    >>> chance_rate(np.array([0, -1]), np.array([0, 1, 0, 1]), np.array([0, 0, -1, -1]))
    0.25
    """
    predicted = names_C[component_N]
    names = [name for name in np.unique(predicted) if name >= 0]
    return float(sum((predicted == name).mean() * (classes_N == name).mean() for name in names))


def clusters(subject: Subject) -> Findings:
    """Accuracy of clusters of mean codes [Li et al. 2019, table 8, no labels].

    A mixture with as many components as classes is fitted on training codes, components and classes are paired on
    validation sentences, and test sentences are scored. Of several initialisations the one with the best training
    likelihood counts. Beside it the rule of the published code: more components than classes, each named after the one
    validation sentence that most probably belongs to it.
    """
    classes, (train, valid, test) = labelled(subject, "train", "valid", "test")
    known(valid.classes_N)  # or no cluster can be named
    train_NZ, valid_NZ, test_NZ = (split.sentences.means_NZ for split in (train, valid, test))
    train_NZ = train_NZ[some_rows(len(train_NZ), FITTED)]
    runs = subject.effort.repeats
    many = max(MANY_COMPONENTS, 2 * len(classes))
    estimates: dict[str, Estimate] = {}
    by_sentence: dict[str, list[float]] = {}
    rows: list[Cells] = []
    rules = [("one_to_one", len(classes)), ("most_probable", many)]
    for rule, components in track(rules, "clustering", subject.show_progress, len(rules)):
        if components > len(train_NZ):
            continue
        correct_RN, chances = np.zeros((runs, len(test)), bool), []
        for run, mixture in enumerate(fit_mixtures(train_NZ, components, runs, subject.seed)):
            if rule == "one_to_one":
                names_C = one_to_one_names(mixture.predict(valid_NZ), valid.classes_N, components, len(classes))
            else:
                names_C = most_probable_names(mixture.predict_proba(valid_NZ), valid.classes_N)
            test_component_N = mixture.predict(test_NZ)
            correct_RN[run] = (names_C[test_component_N] == test.classes_N) & (test.classes_N >= 0)
            chances.append(100 * chance_rate(names_C, test_component_N, test.classes_N))
        per_run_R = 100 * correct_RN.mean(1)
        settings: Settings = {
            "seed": subject.seed,
            "codes": "posterior means",
            "fitted_to": len(train_NZ),
            "components": components,
            "classes": len(classes),
            "covariance": mixture.covariance_type,
            "initialisations": runs,
            "lowest": float(per_run_R.min()),
            "highest": float(per_run_R.max()),
            "without_relation": chances[0],
        }
        name = f"accuracy (%) of {_RULES[rule].format(components)}"
        best = accuracy(f"{name}, best training likelihood of {runs} initialisations", correct_RN[0], settings)
        mean = accuracy_over_seeds(f"{name}, mean of {runs} initialisations", correct_RN, settings)
        estimates |= {f"{rule}": best, f"{rule}_mean": mean}
        by_sentence[rule] = per_sentence(correct_RN[:1])
        rows.append((_RULES[rule].format(components), best.value, best.stderr, mean.value, mean.stderr, chances[0]))
    majority = estimates["majority"] = majority_estimate(train.classes_N, test.classes_N)
    rows.append(("the majority class", majority.value, majority.stderr, None, None, majority.value))
    columns = ("rule", "accuracy (%)", "± over sentences", "mean of initialisations", "± over them", "without relation")
    table = Table("Clusters of mean codes as classes", columns, tuple(rows))
    return Findings(estimates, {"clusters": table}, per_sentence=by_sentence)


_RULES = {
    "one_to_one": "{} Gaussian clusters of mean codes, paired one to one with the classes",
    "most_probable": "{} Gaussian clusters of mean codes, each named by its most probable validation sentence",
}

MEASURES = {
    "clusters": Measure(
        clusters,
        "How well clusters of codes are the classes, found without labels.",
        ("codes", "labels", "train", "valid"),
    )
}
