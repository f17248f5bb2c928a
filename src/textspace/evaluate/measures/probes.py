"""Labels read from frozen codes: by a linear classifier with few labels, and by small networks with all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textspace.evaluate import text_metrics
from textspace.evaluate.measure import Findings, Measure, Picture, Sentences, Subject, Table
from textspace.evaluate.measures.classifiers import (
    Labelled,
    Settings,
    accuracy_over_seeds,
    balanced_draw,
    fit_linear,
    labelled,
    majority_estimate,
    network_predictions,
    per_sentence,
)
from textspace.noise import seed_of
from textspace.progress import track
from textspace.types import Estimate

__all__ = [
    "MEASURES",
    "few_label_correct",
    "few_labels",
    "label_counts",
    "length_classifier",
    "mlp_probe",
    "sampled_classifier",
    "unknown_share",
    "with_network",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

LABEL_COUNTS = (100, 500, 1_000, 2_000, 10_000)
MLP_HIDDEN = 128
CLASSIFIER_HIDDEN = 32
CLASSIFIER_SAMPLES = 5


# Few labels


def label_counts(classes_N: Ints) -> list[int]:
    """Of the usual numbers of labels those that a class-balanced draw can reach, less than all."""
    counts = np.unique(classes_N, return_counts=True)[1]
    return [n for n in LABEL_COUNTS if n < len(classes_N) and 1 <= n // len(counts) <= counts.min()]


def few_label_correct(
    train: Labelled, scored: Sequence[Labelled], *, labels: int | None, runs: int, seed: int
) -> list[Bools]:
    """Which sentences of some splits a linear classifier gets right in each run, (runs, sentences) for each split.

    Each run draws its own `labels`, as many of each class (None takes all there are), its own folds in which the
    penalty is chosen, and its own initial weights. No label beyond those drawn is used.
    """
    train_NZ, train_N = train.sentences.means_NZ, train.classes_N
    correct = [np.zeros((runs, len(split)), bool) for split in scored]
    for run in range(runs):
        own = seed_of(seed, labels, run)
        rows = np.arange(len(train_N))
        if labels is not None:
            per_class = labels // len(np.unique(train_N))
            rows = balanced_draw(train_N, per_class, np.random.default_rng(seed_of(own, "labels")))
        fit = fit_linear(train_NZ[rows], train_N[rows], seed=own)
        for correct_RN, split in zip(correct, scored, strict=True):
            correct_RN[run] = fit.predict(split.sentences.means_NZ) == split.classes_N
    return correct


def few_labels(subject: Subject) -> Findings:
    """Accuracy of a linear classifier on frozen mean codes with 100 to all labels [Li et al. 2019, table 8].

    Of the same classifiers also on validation sentences, where there are some with labels: who chooses among spaces
    chooses by that, and the test stays what it is.
    """
    has_valid = "valid" in subject.splits and bool(subject.splits["valid"].labels)
    classes, (train, *scored) = labelled(subject, "train", "test", *(["valid"] if has_valid else []))
    test = scored[0]
    counts: list[int | None] = [*label_counts(train.classes_N), None]
    estimates: dict[str, Estimate] = {}
    chosen_by: dict[str, Estimate] = {}
    by_sentence: dict[str, list[float]] = {}
    x: list[float] = []
    for labels in track(counts, "few labels", subject.show_progress, len(counts)):
        runs = 1 if labels is None else subject.effort.repeats  # with all labels there is nothing to draw
        seed = seed_of(subject.seed, "few labels")
        correct_RN, *on_valid = few_label_correct(train, scored, labels=labels, runs=runs, seed=seed)
        each = None if labels is None else labels // len(classes)
        used = len(train) if each is None else each * len(classes)
        drawn = f"all {used:,} training labels" if each is None else f"{used:,} labels, {each:,} of each class"
        key = f"linear_{'all' if labels is None else labels}_labels"
        settings: Settings = {
            "seed": subject.seed,
            "codes": "posterior means, scaled",
            "classifier": "logistic regression, penalty chosen by cross-validation on these labels",
            "classes": len(classes),
            "labels": used,
        }
        name = f"accuracy (%) of a linear classifier on mean codes, {drawn}"
        estimates[key] = accuracy_over_seeds(name, correct_RN, settings)
        for valid_RN in on_valid:
            chosen_by[key] = accuracy_over_seeds(f"{name}, validation sentences: to choose by", valid_RN, settings)
        by_sentence[key] = per_sentence(correct_RN)
        x.append(float(used))
    found = list(estimates.values())
    majority = majority_estimate(train.classes_N, test.classes_N)
    estimates |= {"majority": majority, "unknown_share": unknown_share(test.sentences)}
    estimates |= {f"valid_{key}": each for key, each in chosen_by.items()}
    rows = [(0, majority), *zip(x, found, strict=True)]
    table = Table(
        "Linear classifier on frozen mean codes (0 labels: the majority class)",
        ("labels", "accuracy (%)", "±", "± is", "runs"),
        tuple((int(n), e.value, e.stderr, str(e.settings["error"]), e.settings["runs"]) for n, e in rows),
    )
    picture = Picture(
        "lines",
        "Accuracy over the number of labels",
        {"linear classifier on mean codes": [e.value for e in found], "majority class": [majority.value] * len(x)},
        x=x,
        x_label="labels",
        y_label="accuracy (%)",
    )
    return Findings(estimates, {"few_labels": table}, {"few_labels": picture}, by_sentence)


def unknown_share(sentences: Sentences) -> Estimate:
    """How much of the text the space cannot know: much of it where a space is probed on another corpus."""
    found = text_metrics.unknown_share(sentences.split)
    name = f"tokens (%) of the {sentences.name} sentences that are unknown to the space"
    settings: Settings = {"error": "standard error over sentences", "tokens": int((sentences.split.lengths - 2).sum())}
    error = None if found.stderr is None else 100 * found.stderr
    return Estimate(name, 100 * found.value, error, len(sentences.split), "none", "lower", settings)


# Networks


def mlp_probe(subject: Subject) -> Findings:
    """Accuracy of a three-layer perceptron on mean and variance of frozen posteriors [Long et al. 2019, appendix A]."""

    def features(of: Sentences) -> Floats:
        return np.concatenate([of.means_NZ, of.deviations_NZ**2], axis=1)[:, None]

    name = "accuracy (%) of a 3-layer perceptron on [mean, variance] of the posterior, all training labels"
    settings: Settings = {"codes": "posterior means and variances, scaled", "hidden": MLP_HIDDEN}
    found = with_network(subject, "mlp", name, features, settings, MLP_HIDDEN)
    return replace(found, estimates=found.estimates | {"unknown_share": unknown_share(subject.test)})


def sampled_classifier(subject: Subject) -> Findings:
    """Accuracy of p(y | x) = 1/K sum_k p(y | z_k), z_k samples of the frozen posterior [Prokhorov et al. 2021].

    p(y | z) has two layers of 32 units with leaky ReLU; the average is taken in training as in testing. The samples
    are drawn once; a space with gates draws gates anew for each.
    """
    samples = CLASSIFIER_SAMPLES

    def features(of: Sentences) -> NDArray[np.float32]:
        # A pass for each sample: right for every posterior, also those that mean and deviation do not describe.
        seeds = [seed_of(subject.seed, "sampled classifier", of.name, k) for k in range(samples)]
        return np.stack([of.sampled(seed) for seed in seeds], axis=1)

    name = f"accuracy (%) of a 2-layer classifier averaged over {samples} posterior samples, all training labels"
    settings: Settings = {"codes": "posterior samples, scaled", "samples": samples, "hidden": CLASSIFIER_HIDDEN}
    return with_network(subject, "sampled", name, features, settings, CLASSIFIER_HIDDEN)


def length_classifier(subject: Subject) -> Findings:
    """Accuracy of the network of `sampled_classifier` on sentence lengths alone: what codes need not know more for."""

    def features(of: Sentences) -> Floats:
        words_N = np.array([len(words) for words in of.words], np.float64)
        return np.stack([words_N, np.log1p(words_N)], axis=1)[:, None]

    name = "accuracy (%) of a 2-layer classifier on the number of words and its logarithm, all training labels"
    settings: Settings = {"codes": "none: words of a sentence, scaled", "hidden": CLASSIFIER_HIDDEN}
    return with_network(subject, "length", name, features, settings, CLASSIFIER_HIDDEN)


def with_network(
    subject: Subject,
    key: str,
    name: str,
    features: Callable[[Sentences], NDArray[Any]],
    settings: Settings,
    hidden: int,
) -> Findings:
    """Train and score a network with two hidden layers on frozen features, once for each repeat."""
    _, (train, valid, test) = labelled(subject, "train", "valid", "test")
    train_NKF, valid_NKF, test_NKF = (features(split.sentences) for split in (train, valid, test))
    correct_RN = np.zeros((subject.effort.repeats, len(test)), bool)
    for run in track(range(len(correct_RN)), f"{key} classifier", subject.show_progress, len(correct_RN)):
        predicted_N = network_predictions(
            train_NKF,
            train.classes_N,
            valid_NKF,
            valid.classes_N,
            test_NKF,
            hidden=hidden,
            layers=2,
            seed=seed_of(subject.seed, key, run),
            device=subject.space.device,
        )
        correct_RN[run] = predicted_N == test.classes_N
    settings = {**settings, "seed": subject.seed, "labels": len(train), "stopped_by": "validation cross-entropy"}
    return Findings(
        {
            f"{key}_accuracy": accuracy_over_seeds(name, correct_RN, settings),
            "majority": majority_estimate(train.classes_N, test.classes_N),
        },
        per_sentence={f"{key}_accuracy": per_sentence(correct_RN)},
    )


MEASURES = {
    "few_labels": Measure(
        few_labels, "What a linear classifier reads from mean codes with few labels.", ("codes", "labels", "train")
    ),
    "mlp_probe": Measure(
        mlp_probe,
        "What a three-layer perceptron reads from mean and variance of the posterior.",
        ("codes", "labels", "train", "valid"),
    ),
    "sampled_classifier": Measure(
        sampled_classifier,
        "What a small classifier reads from posterior samples, averaged over five of them.",
        ("codes", "labels", "train", "valid"),
    ),
    "length_classifier": Measure(
        length_classifier,
        "What the same small classifier reads from the length of a sentence alone.",
        ("labels", "train", "valid"),
        ("full",),
    ),
}
