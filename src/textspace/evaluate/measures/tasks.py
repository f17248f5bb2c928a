"""Files of published tasks: how they are read, which of their sentences a space has seen, and how they are spelled."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from textspace.data.encoded import EncodedSplit
from textspace.data.sources import opened, sentence_for_failure
from textspace.errors import TextspaceError
from textspace.evaluate.held_out import held_out_note, training_record
from textspace.evaluate.measure import Subject
from textspace.evaluate.measures.classifiers import Settings
from textspace.inputs import warn

if TYPE_CHECKING:
    from textspace.space import Space

__all__ = [
    "AS_IN_THE_FILE",
    "Pairs",
    "Screen",
    "Singles",
    "Spelling",
    "best_spelling",
    "folder_of",
    "read_pairs",
    "read_rows",
    "read_singles",
]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

COLUMNS = {
    "sts": ("subset", "score", "sentence", "sentence"),
    "stsb": ("genre", "file", "year", "score", "sentence", "sentence"),
    "sick": ("number", "score", "label", "sentence", "sentence"),
    "mrpc": ("label", "sentence", "sentence"),
    "cls": ("label", "sentence"),
}
"""What the columns of each kind of file are, tabs between them."""

HIGHEST_SCORE = 5.0


# Reading


@dataclass(frozen=True)
class Singles:
    """Sentences with labels, and how many lines were left out for having no text."""

    texts: list[str]
    labels: list[str]
    empty: int = 0

    def __len__(self) -> int:
        return len(self.texts)

    def only(self, kept_N: Bools) -> Singles:
        rows = np.flatnonzero(kept_N)
        return Singles([self.texts[row] for row in rows], [self.labels[row] for row in rows], self.empty)


@dataclass(frozen=True)
class Pairs:
    """Pairs of sentences with what the file says of them: a score, a label or a subset; empty where it says none."""

    first: list[str]
    second: list[str]
    scores_N: Floats
    labels: list[str]
    groups: list[str]
    empty: int = 0

    def __len__(self) -> int:
        return len(self.first)

    def only(self, kept_N: Bools) -> Pairs:
        def some(values: list[str]) -> list[str]:
            return [values[row] for row in np.flatnonzero(kept_N)] if values else []

        scores_N = self.scores_N[kept_N] if len(self.scores_N) else self.scores_N
        return Pairs(some(self.first), some(self.second), scores_N, some(self.labels), some(self.groups), self.empty)


def folder_of(subject: Subject) -> Path:
    """The folder with the files of tasks."""
    if subject.task_files is None:
        raise TextspaceError("this measure needs the files of its tasks: say in which folder they are")
    if not subject.task_files.is_dir():
        raise TextspaceError(f"there is no folder {str(subject.task_files)!r} with the files of tasks")
    return subject.task_files


def read_rows(path: Path, columns: Sequence[str]) -> list[list[str]]:
    """The cells of every line of a file, tabs between them; blank lines are passed over."""
    with sentence_for_failure(path), opened(path) as file:
        raw = file.read()
    try:
        lines = raw.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as problem:
        raise TextspaceError(f"{str(path)!r} is not UTF-8 text ({problem.reason}): write it again as UTF-8") from None
    rows = []
    for number, line in enumerate(lines, start=1):
        cells = line.removesuffix("\r").split("\t")
        if not line.strip():
            continue
        if len(cells) != len(columns):
            raise TextspaceError(
                f"line {number} of {str(path)!r} has {len(cells)} columns where there should be {len(columns)} "
                f"({', '.join(columns)}): mend or drop it"
            )
        rows.append([cell.strip() for cell in cells])
    if not rows:
        raise TextspaceError(f"{str(path)!r} is empty: fetch or write it again")
    return rows


def _found(folder: Path, name: str) -> Path | None:
    candidates = [folder / f"{name}.tsv.gz", folder / f"{name}.tsv"]
    return next((path for path in candidates if path.exists()), None)


def read_pairs(folder: Path, name: str, kind: str) -> Pairs | None:
    """The pairs of a file, or None where there is no such file; pairs with an empty sentence are left out."""
    path = _found(folder, name)
    if path is None:
        return None
    columns = COLUMNS[kind]
    rows = read_rows(path, columns)
    full = [row for row in rows if row[-2] and row[-1]]

    def column(what: str) -> list[str]:
        return [row[columns.index(what)] for row in full] if what in columns else []

    scores_N = np.array([_score(text, path) for text in column("score")])
    sentences = [row[-2] for row in full], [row[-1] for row in full]
    return Pairs(*sentences, scores_N, column("label"), column("subset"), len(rows) - len(full))


def _score(text: str, path: Path) -> float:
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if not 0 <= score <= HIGHEST_SCORE:
        raise TextspaceError(f"{str(path)!r} has the score {text!r}, which is no number from 0 to 5: mend or drop it")
    return score


def read_singles(folder: Path, name: str) -> Singles | None:
    """The sentences of a file, or None where there is no such file; empty ones are left out."""
    path = _found(folder, name)
    if path is None:
        return None
    rows = read_rows(path, COLUMNS["cls"])
    full = [row for row in rows if row[1]]
    return Singles([text for _, text in full], [label for label, _ in full], len(rows) - len(full))


# What the space has seen


def _words(text: str) -> str:
    """The words alone, however they were cased, spaced and punctuated: corpora differ in that.

    >>> _words("A man's dog , barking .") == _words("a man 's dog, barking")
    True
    """
    return " ".join(re.findall(r"\w+", text.lower()))


def _fingerprints(texts: Iterable[str]) -> NDArray[np.uint64]:
    numbers = (int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") for text in texts)
    return np.fromiter(numbers, np.uint64)


@dataclass(frozen=True)
class Screen:
    """The training sentences of a space, which must not be tested on; None where they are not at hand.

    All of them, and not only those that are measured on: eight bytes of each are kept, sorted. `metrics` are the
    space's, whose record of the training text says at least how many sentences are in it.
    """

    seen: NDArray[np.uint64] | None
    metrics: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, subject: Subject) -> Screen:
        train = subject.splits.get("train") if subject.own_train is not False else None
        if train is None:
            return cls(None, subject.space.metrics)
        if (known := subject.kept.get("screen")) is None:
            words = filter(None, map(_words, train.all_texts()))
            known = subject.kept["screen"] = np.unique(_fingerprints(words))
        return cls(known)

    def unseen(self, *texts: Sequence[str]) -> Bools:
        """Which rows have no training sentence in any of the columns."""
        if self.seen is None:
            return np.ones(len(texts[0]), bool)
        unseen_N = np.ones(len(texts[0]), bool)
        for column in texts:
            unseen_N &= ~np.isin(_fingerprints(map(_words, column)), self.seen)
        return unseen_N

    def warn_of(self, task: str, *texts: Sequence[str]) -> None:
        """Warn of training sentences in a task where they are not at hand to be dropped."""
        if self.seen is not None or training_record(self.metrics) is None:
            return
        if note := held_out_note(self.metrics, chain.from_iterable(texts), task):
            warn(note)

    def without_training(self, pairs: Pairs, task: str) -> tuple[Pairs, Settings]:
        """The pairs without a training sentence of the space, and how many had one."""
        self.warn_of(task, pairs.first, pairs.second)
        kept_N = self.unseen(pairs.first, pairs.second)
        return pairs.only(kept_N), self.settings(kept_N, pairs.empty)

    def settings(self, kept_N: Bools, empty: int) -> Settings:
        if not kept_N.any():
            raise TextspaceError("the space was trained on all sentences of a task: there is nothing left to test on")
        return {
            "dropped_for_training": None if self.seen is None else int((~kept_N).sum()),
            "dropped_for_no_text": empty,
            "training_sentences": "not at hand, so none was dropped" if self.seen is None else len(self.seen),
        }


# Spelling


def _apart(text: str) -> str:
    return " ".join(re.findall(r"\w+|[^\w\s]", text))


AS_IN_THE_FILE = "as in the file"
_SPELLINGS: dict[str, Callable[[str], str]] = {
    AS_IN_THE_FILE: lambda text: text,
    "lower case": str.lower,
    "punctuation apart": _apart,
    "lower case, punctuation apart": lambda text: _apart(text).lower(),
}
_SPELLED_BY = 2_000
"""Sentences by which a spelling is chosen."""


@dataclass(frozen=True)
class Spelling:
    """How sentences are spelled for a reader, and the share of their tokens that it then does not know."""

    name: str
    unknown: float | None
    """None where that was not counted."""

    def __call__(self, text: str) -> str:
        return _SPELLINGS[self.name](text)

    @property
    def settings(self) -> Settings:
        return {"spelling": self.name, "unknown_tokens_percent": None if self.unknown is None else 100 * self.unknown}


def best_spelling(space: Space, texts: Sequence[str]) -> Spelling:
    """The spelling in which a space knows most words of sentences.

    Some files are cased and unseparated ("A dog barks."), others are not ("a dog barks ."): a word tokenizer that
    learnt one of these knows little of the other. No score or label is looked at.
    """
    some = texts[:: max(1, len(texts) // _SPELLED_BY)]
    shares = {name: _unknown_share(space, map(spell, some)) for name, spell in _SPELLINGS.items()}
    chosen = min(shares, key=lambda name: shares[name])  # of equals the first
    return Spelling(chosen, shares[chosen])


def _unknown_share(space: Space, texts: Iterable[str]) -> float:
    split = EncodedSplit.of([space.normalise(text) for text in texts], space.tokenizer, space.recipe.text.max_tokens)
    return split.unknown_share
