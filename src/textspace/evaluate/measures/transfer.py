"""Published classification tasks on frozen codes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textspace.evaluate.measure import Cells, Findings, Measure, Subject, Table
from textspace.evaluate.measures.classification_tasks import FOLDS, Form, Prepared, outer_folds, prepared_tasks
from textspace.evaluate.measures.classifiers import Settings, accuracy, fit_linear, majority_correct
from textspace.evaluate.measures.pairs import pair_features
from textspace.evaluate.measures.sentence_encoders import (
    Input,
    SentenceEncoder,
    TaskCodes,
    encoders_of,
    put,
)
from textspace.noise import seed_of
from textspace.types import Estimate

__all__ = ["MEASURES", "Outcome", "cross_validated", "held_out", "majority_of", "transfer", "transfer_to"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


# On arrays


@dataclass(frozen=True)
class Outcome:
    """Which test sentences were right, which the majority class gets right, and the accuracy (0 to 1) on dev data."""

    correct_N: Bools
    majority_N: Bools
    dev: float | None
    folds: int | None = None
    """That were tested in turn; None on a test set."""


def cross_validated(features_NF: Any, classes_N: Ints, *, seed: int, folds: int = FOLDS, scale: bool = True) -> Outcome:
    """Every sentence is tested once, by a classifier of the other folds, which chose its penalty within them."""
    correct_N, majority_N = (np.zeros(len(classes_N), bool) for _ in range(2))
    devs = []
    cuts = outer_folds(classes_N, seed, folds)
    for fold, (train, test) in enumerate(cuts):
        fit = fit_linear(features_NF[train], classes_N[train], seed=seed_of(seed, fold), scale=scale)
        correct_N[test] = fit.predict(features_NF[test]) == classes_N[test]
        majority_N[test] = majority_correct(classes_N[train], classes_N[test])
        devs.append(fit.dev)
    known = [dev for dev in devs if dev is not None]
    return Outcome(correct_N, majority_N, float(np.mean(known)) if known else None, len(cuts))


def held_out(
    train: tuple[Any, Ints], valid: tuple[Any, Ints] | None, test: tuple[Any, Ints], *, seed: int, scale: bool = True
) -> Outcome:
    """Fitted on the training set, its penalty chosen on validation data or by 10-fold cross-validation, tested once."""
    fit = fit_linear(*train, seed=seed, valid=valid, folds=FOLDS, scale=scale)
    return Outcome(fit.predict(test[0]) == test[1], majority_correct(train[1], test[1]), fit.dev)


# The measure


def transfer(subject: Subject) -> Findings:
    """Accuracy of logistic regression on frozen mean codes [VAT paper, table 5; Conneau and Kiela 2018].

    MR and CR by 10-fold cross-validation (fewer folds where a class is that small), the others on their test sets;
    pairs as (|u - v|, u * v), and as the code of both sentences joined in one text. A second classifier sees the
    logarithm of the length beside the code: what it gains is no merit of the code. Sentences that the space was trained
    on are left out of what is tested and counted.
    """
    found = [transfer_to(subject, prepared) for prepared in prepared_tasks(subject, "transfer")]
    estimates = {key: one for part, _ in found for key, one in part.items()}
    rows = tuple(row for _, part in found for row in part)
    columns = ("task", "codes of", "tested", "dev", "test", "± test", "with log length", "± with log length")
    table = Table("Accuracy (%) of logistic regression on frozen codes", columns, rows, grouped=True)
    return Findings(estimates, {"transfer": table})


def transfer_to(subject: Subject, prepared: Prepared) -> tuple[dict[str, Estimate], list[Cells]]:
    """Estimates of one task, and its rows of the table."""
    estimates: dict[str, Estimate] = {}
    rows: list[Cells] = []
    coded = [(encoder, TaskCodes.of(encoder, prepared.all_inputs())) for encoder in encoders_of(subject)]
    for form in prepared.forms:
        key, title = prepared.key + form.key, prepared.task.title + form.title
        below: list[Cells] = []
        for encoder, codes in coded:
            own, longer, majority = _with_form(subject, prepared, form, encoder, codes)
            put(estimates, key, encoder, own)
            put(estimates, f"{key}_with_length", encoder, longer)
            numbers = own.settings["dev"], own.value, own.stderr, longer.value, longer.stderr
            below.append((title, encoder.title, own.n, *numbers))
        estimates[f"{prepared.key}_majority"] = majority
        rows += [(title, "none: majority class", majority.n, None, majority.value, majority.stderr, None, None), *below]
    return estimates, rows


def _with_form(
    subject: Subject, prepared: Prepared, form: Form, encoder: SentenceEncoder, coded: TaskCodes
) -> tuple[Estimate, Estimate, Estimate]:
    """Accuracies on the codes alone, with the length beside, and of the majority class."""
    classes, seed = prepared.classes, seed_of(subject.seed, "transfer", prepared.key)

    def outcome(features: Callable[[list[list[Input]]], Floats]) -> Outcome:
        data = {part: (features(prepared.inputs(part, form)), classes[part]) for part in prepared.parts}
        if "all" in data:
            return cross_validated(*data["all"], seed=seed)
        return held_out(data["train"], data.get("valid"), data["test"], seed=seed)

    def codes(columns: list[list[Input]]) -> Floats:
        return _joint([coded.codes(column) for column in columns])

    def codes_and_length(columns: list[list[Input]]) -> Floats:
        lengths = [np.log1p([[_words(each)] for each in column]) for column in columns]
        return np.concatenate([codes(columns), _joint(lengths)], axis=1)

    plain, longer = outcome(codes), outcome(codes_and_length)
    in_folds = "all" in classes
    how = f"{plain.folds}-fold cross-validation" if in_folds else f"test set, trained on {len(classes['train']):,}"
    settings: Settings = {
        **prepared.settings,
        **coded.writing.settings,
        "seed": subject.seed,
        "codes": f"{encoder.codes}{form.title}, scaled",
        "classifier": "logistic regression",
        "penalty_chosen_on": "validation set" if "valid" in classes else "cross-validation within the training data",
    }
    if form.joins:
        settings["separator"] = coded.writing.separator
    title = prepared.task.title + form.title

    def estimate(name: str, found: Outcome) -> Estimate:
        dev = None if found.dev is None else 100 * found.dev
        return accuracy(f"accuracy (%) on {title} of {name}, {how}", found.correct_N, {**settings, "dev": dev})

    return (
        estimate(f"logistic regression on {encoder.codes}", plain),
        estimate(f"logistic regression on {encoder.codes} and log length", longer),
        majority_of(prepared, plain.majority_N),
    )


def majority_of(prepared: Prepared, majority_N: Bools) -> Estimate:
    """What guessing reaches on a task that looks at no sentence."""
    name = f"accuracy (%) on {prepared.task.title} of always the class most frequent in training"
    return accuracy(name, majority_N, {"classes": prepared.settings["classes"]}, None)


def _joint(columns: list[Floats]) -> Floats:
    """The features of single inputs, or of two that are compared."""
    return columns[0] if len(columns) == 1 else pair_features(*columns)


def _words(given: Input) -> int:
    """Of a sentence, or of two together."""
    return len((given if isinstance(given, str) else " ".join(given)).split())


MEASURES = {
    "transfer": Measure(
        transfer,
        "What logistic regression reads from codes in published classification tasks.",
        ("codes", "files"),
        ("full",),
        has_baselines=True,
    )
}
