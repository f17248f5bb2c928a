"""Published classification tasks on frozen codes: sentiment, question types, paraphrase and entailment.

The files are looked for in one folder: cls/MR.all.tsv, cls/SST2.train.tsv, mrpc/train.tsv and so on (also with .gz).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold

from textspace.errors import TextspaceError
from textspace.evaluate.measure import Findings, Measure, Subject, Table
from textspace.evaluate.measures.classifiers import (
    accuracy,
    fit_linear,
    majority_correct,
    random_state,
)
from textspace.evaluate.measures.pairs import pair_features
from textspace.evaluate.measures.tasks import Coder, Pairs, Screen, Singles, folder_of, read_pairs, read_singles
from textspace.noise import seed_of
from textspace.progress import track
from textspace.types import Estimate

__all__ = ["MEASURES", "TASKS", "Outcome", "Task", "cross_validated", "held_out", "transfer"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Rows = Singles | Pairs

FOLDS = 10


@dataclass(frozen=True)
class Task:
    """One task: its files, and what it is called.

    Args:
        title: in a table.
        files: of its parts, of "all" or of "train", "valid" and "test"; without "valid" the penalty is chosen by
            10-fold cross-validation on "train".
        kind: of pair files; None for single sentences.
    """

    title: str
    files: dict[str, str]
    kind: str | None = None


def _three(stem: str, train: str = "train", joint: str = ".") -> dict[str, str]:
    return {"train": f"{stem}{joint}{train}", "valid": f"{stem}{joint}valid", "test": f"{stem}{joint}test"}


TASKS = {
    "mr": Task("MR", {"all": "cls/MR.all"}),
    "cr": Task("CR", {"all": "cls/CR.all"}),
    "sst2": Task("SST2, trained on sentences", _three("cls/SST2")),
    "sst2_phrases": Task("SST2, trained on phrases", _three("cls/SST2", "train_phrases")),
    "sst5": Task("SST5", _three("cls/SST5")),
    "trec": Task("TREC", {"train": "cls/TREC.train", "test": "cls/TREC.test"}),
    "mrpc": Task("MRPC", _three("mrpc", joint="/"), "mrpc"),
    "sick_e": Task("SICK-E", _three("sick", joint="/"), "sick"),
}


# On arrays


@dataclass(frozen=True)
class Outcome:
    """Which test sentences were right, which the majority class gets right, and the accuracy (0 to 1) on dev data."""

    correct_N: Bools
    majority_N: Bools
    dev: float | None


def cross_validated(features_NF: Floats, classes_N: Ints, *, seed: int, folds: int = FOLDS) -> Outcome:
    """Every sentence is tested once, by a classifier of the other folds, which chose its penalty within them."""
    correct_N, majority_N = (np.zeros(len(classes_N), bool) for _ in range(2))
    devs = []
    folds = min(folds, int(np.unique(classes_N, return_counts=True)[1].min()))
    if folds < 2:
        raise TextspaceError("a class has a single sentence, so that it cannot be cross-validated: drop it")
    cut = StratifiedKFold(folds, shuffle=True, random_state=random_state(seed, "outer folds"))
    for fold, (train, test) in enumerate(cut.split(features_NF, classes_N)):
        fit = fit_linear(features_NF[train], classes_N[train], seed=seed_of(seed, fold))
        correct_N[test] = fit.predict(features_NF[test]) == classes_N[test]
        majority_N[test] = majority_correct(classes_N[train], classes_N[test])
        devs.append(fit.dev)
    known = [dev for dev in devs if dev is not None]
    return Outcome(correct_N, majority_N, float(np.mean(known)) if known else None)


def held_out(
    train: tuple[Floats, Ints], valid: tuple[Floats, Ints] | None, test: tuple[Floats, Ints], *, seed: int
) -> Outcome:
    """Fitted on the training set, its penalty chosen on validation data or by 10-fold cross-validation, tested once."""
    fit = fit_linear(*train, seed=seed, valid=valid, folds=FOLDS)
    return Outcome(fit.predict(test[0]) == test[1], majority_correct(train[1], test[1]), fit.dev)


# The measure


def transfer(subject: Subject) -> Findings:
    """Accuracy of logistic regression on frozen mean codes [VAT paper, table 5; Conneau and Kiela 2018].

    MR and CR by 10-fold cross-validation, the others on their test sets; pairs as (|u - v|, u * v). A second classifier
    sees the logarithm of the length beside the code: what it gains is no merit of the code. Sentences that the space
    was trained on are left out of what is tested and counted.
    """
    folder, screen = folder_of(subject), Screen.of(subject)
    estimates: dict[str, Estimate] = {}
    rows: list[tuple[str | float | None, ...]] = []
    for key, task in track(TASKS.items(), "transfer", subject.show_progress, len(TASKS)):
        parts = _read(folder, task)
        if parts is None:
            continue
        found, dropped = _one(subject, key, task, parts, screen)
        estimates |= found
        own, with_length, majority = found[key], found[f"{key}_with_length"], found[f"{key}_majority"]
        dev = own.settings["dev"]
        assert dev is None or isinstance(dev, float)
        rows.append(
            (
                task.title,
                own.n,
                dropped,
                majority.value,
                dev,
                own.value,
                own.stderr,
                with_length.value,
                with_length.stderr,
            )
        )
    if not rows:
        raise TextspaceError(f"{str(folder)!r} has no files of transfer tasks, like cls/MR.all.tsv and mrpc/test.tsv")
    columns = (
        "task",
        "tested",
        "dropped",
        "majority",
        "dev",
        "test",
        "± test",
        "test, with log length",
        "± with log length",
    )
    table = Table("Accuracy (%) of logistic regression on frozen mean codes", columns, tuple(rows))
    return Findings(estimates, {"transfer": table})


def _read(folder: Path, task: Task) -> dict[str, Rows] | None:
    """The parts of a task, or None where there is nothing to train it on."""
    parts = {
        part: read_singles(folder, name) if task.kind is None else read_pairs(folder, name, task.kind)
        for part, name in task.files.items()
    }
    found = {part: rows for part, rows in parts.items() if rows is not None}
    if "train" in found and "test" not in found:
        raise TextspaceError(
            f"{task.title} lacks its test set: {str(folder / task.files['test'])!r} with .tsv or .tsv.gz"
        )
    return found if found.keys() & {"train", "all"} else None


def _one(
    subject: Subject, key: str, task: Task, parts: dict[str, Rows], screen: Screen
) -> tuple[dict[str, Estimate], int | None]:
    """The estimates of one task, and how many tested sentences were dropped."""
    unseen = {part: screen.unseen(*_texts(rows)) for part, rows in parts.items() if part != "train"}
    kept = {part: rows.only(unseen[part]) if part in unseen else rows for part, rows in parts.items()}
    tested = "test" if "test" in parts else "all"
    settings = screen.settings(unseen[tested], parts[tested].empty)
    coder = Coder.of(subject.space, [text for rows in kept.values() for texts in _texts(rows) for text in texts])
    learnt = kept["train"] if "train" in kept else kept["all"]
    known = {label: number for number, label in enumerate(sorted(set(learnt.labels)))}
    classes = {part: np.array([known.get(label, -1) for label in rows.labels]) for part, rows in kept.items()}
    seed = seed_of(subject.seed, "transfer", key)

    def outcome(features: Callable[[Rows], Floats]) -> Outcome:
        data = {part: (features(rows), classes[part]) for part, rows in kept.items()}
        if "all" in data:
            return cross_validated(*data["all"], seed=seed)
        return held_out(data["train"], data.get("valid"), data["test"], seed=seed)

    def codes(rows: Rows) -> Floats:
        found = [coder.codes(texts) for texts in _texts(rows)]
        return found[0] if len(found) == 1 else pair_features(*found)

    def codes_and_length(rows: Rows) -> Floats:
        lengths = [np.log1p([[len(text.split())] for text in texts]) for texts in _texts(rows)]
        return np.concatenate([codes(rows), lengths[0] if len(lengths) == 1 else pair_features(*lengths)], axis=1)

    plain, longer = outcome(codes), outcome(codes_and_length)
    how = f"{FOLDS}-fold cross-validation" if "all" in kept else f"test set, trained on {len(kept['train']):,}"
    settings |= {
        **coder.settings,
        "seed": subject.seed,
        "codes": "posterior means, scaled" if task.kind is None else "(|u - v|, u * v) of posterior means, scaled",
        "classifier": "logistic regression",
        "penalty_chosen_on": "validation set" if "valid" in kept else "cross-validation within the training data",
        "classes": len(known),
    }

    def estimate(name: str, found: Outcome) -> Estimate:
        dev = None if found.dev is None else 100 * found.dev
        return accuracy(f"accuracy (%) on {task.title} of {name}, {how}", found.correct_N, {**settings, "dev": dev})

    majority = f"accuracy (%) on {task.title} of always the class most frequent in training"
    return {
        key: estimate("logistic regression on mean codes", plain),
        f"{key}_with_length": estimate("logistic regression on mean codes and log length", longer),
        f"{key}_majority": accuracy(majority, plain.majority_N, {"classes": len(known)}, None),
    }, settings["dropped_for_training"]  # type: ignore[return-value]


def _texts(rows: Rows) -> list[list[str]]:
    return [rows.texts] if isinstance(rows, Singles) else [rows.first, rows.second]


MEASURES = {
    "transfer": Measure(
        transfer,
        "What logistic regression reads from codes in published classification tasks.",
        ("codes", "files"),
        ("full",),
    )
}
