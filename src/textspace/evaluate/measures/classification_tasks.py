"""The published classification tasks: sentiment, question types, paraphrase and entailment.

The files are looked for in one folder: cls/MR.all.tsv, cls/SST2.train.tsv, mrpc/train.tsv and so on (also with .gz).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold

from textspace.errors import TextspaceError
from textspace.evaluate.measure import Subject
from textspace.evaluate.measures.classifiers import Settings, random_state
from textspace.evaluate.measures.sentence_encoders import Input
from textspace.evaluate.measures.tasks import Pairs, Screen, Singles, folder_of, read_pairs, read_singles
from textspace.progress import track

__all__ = ["FOLDS", "TASKS", "Form", "Prepared", "Task", "outer_folds", "prepared_tasks", "read_task"]

Ints = NDArray[np.int64]
Rows = Singles | Pairs

FOLDS = 10


@dataclass(frozen=True)
class Task:
    """One task: its files, and what it is called.

    Args:
        title: in a table.
        files: of its parts, of "all" or of "train", "valid" and "test".
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


@dataclass(frozen=True)
class Form:
    """How what is classified is given to an encoder.

    Args:
        key: appended to that of the task.
        title: appended to that of the task.
        joins: whether two sentences are one text.
    """

    key: str = ""
    title: str = ""
    joins: bool = False


COMPARED = Form("", " (|u - v|, u * v)")
JOINED = Form("_joined", " joined", joins=True)


@dataclass(frozen=True)
class Prepared:
    """A task as it is measured on: what is tested has no sentence that the space was trained on.

    Attributes:
        parts: "all", or "train", "test" and perhaps "valid".
        classes: of each part's rows; -1 for a class that training does not know.
        settings: for every estimate.
    """

    key: str
    task: Task
    parts: dict[str, Rows]
    classes: dict[str, Ints]
    settings: Settings

    @property
    def forms(self) -> tuple[Form, ...]:
        """In which its inputs are read."""
        return (Form(),) if self.task.kind is None else (COMPARED, JOINED)

    @property
    def class_count(self) -> int:
        """Classes that training knows."""
        return 1 + max(int(classes_N.max()) for classes_N in self.classes.values())

    def inputs(self, part: str, form: Form) -> list[list[Input]]:
        """What an encoder reads: one column, or two of which it makes vectors apart."""
        rows = self.parts[part]
        if isinstance(rows, Singles):
            return [[*rows.texts]]
        return [[*zip(rows.first, rows.second, strict=True)]] if form.joins else [[*rows.first], [*rows.second]]

    def all_inputs(self) -> list[Input]:
        """Of all parts and forms."""
        columns = (column for form in self.forms for part in self.parts for column in self.inputs(part, form))
        return [each for column in columns for each in column]


def prepared_tasks(subject: Subject, name: str) -> Iterator[Prepared]:
    """The tasks whose files there are, one after the other; `name` is shown."""
    folder, screen = folder_of(subject), Screen.of(subject)
    found = False
    for key, task in track(TASKS.items(), name, subject.show_progress, len(TASKS)):
        parts = read_task(folder, task)
        if parts is not None:
            found = True
            yield _prepared(key, task, parts, screen)
    if not found:
        raise TextspaceError(f"{str(folder)!r} has no files of transfer tasks, like cls/MR.all.tsv and mrpc/test.tsv")


def read_task(folder: Path, task: Task) -> dict[str, Rows] | None:
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


def _prepared(key: str, task: Task, parts: dict[str, Rows], screen: Screen) -> Prepared:
    unseen = {part: screen.unseen(*_columns(rows)) for part, rows in parts.items() if part != "train"}
    kept = {part: rows.only(unseen[part]) if part in unseen else rows for part, rows in parts.items()}
    kept = {part: rows for part, rows in kept.items() if len(rows) or part != "valid"}
    tested = "test" if "test" in parts else "all"
    screen.warn_of(task.title, *_columns(parts[tested]))
    learnt = kept["train"] if "train" in kept else kept["all"]
    known = {label: number for number, label in enumerate(sorted(set(learnt.labels)))}
    classes = {part: np.array([known.get(label, -1) for label in rows.labels]) for part, rows in kept.items()}
    settings = screen.settings(unseen[tested], parts[tested].empty)
    return Prepared(key, task, kept, classes, {**settings, "classes": len(known)})


def _columns(rows: Rows) -> list[list[str]]:
    return [rows.texts] if isinstance(rows, Singles) else [rows.first, rows.second]


def outer_folds(classes_N: Ints, seed: int, folds: int = FOLDS) -> list[tuple[Ints, Ints]]:
    """Rows to train on and rows to test on, each row tested once; fewer folds where a class is that small."""
    folds = min(folds, int(np.unique(classes_N, return_counts=True)[1].min()))
    if folds < 2:
        raise TextspaceError("a class has a single sentence, so that it cannot be cross-validated: drop it")
    cut = StratifiedKFold(folds, shuffle=True, random_state=random_state(seed, "outer folds"))
    return list(cut.split(classes_N[:, None], classes_N))
