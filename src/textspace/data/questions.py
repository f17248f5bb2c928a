"""Questions with answers to rank: read from tables, or made of sentences that ask and answer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from textspace.data.cells import plain
from textspace.data.options import ReadReport, find_column, is_number
from textspace.data.sources import ending, raw_rows
from textspace.errors import TextspaceError
from textspace.noise import Noise

__all__ = ["NAMES", "Question", "QuestionColumns", "questions_in", "read_questions"]

NAMES: dict[str, tuple[str, ...]] = {
    "question": ("question", "query"),
    "answer": ("answer", "candidate", "sentence", "comment", "response"),
    "label": ("label", "relevance", "grade", "score", "correct"),
}
"""Names of columns that are found without being asked for, in any case."""

_SAMPLE_ROWS = 100
_JSON_ROW = 'a JSON object on a line of its own, such as {"question": "who sees cats ?", "answer": "anna", "label": 1}'
_SHOWN = 20
"""Characters of a cell that an error shows."""

SHORTEST, LONGEST = 5, 50
"""Words of a question that is made of a sentence, its question mark not counted."""

FEWEST, MOST = 2, 4
"""Answers of other questions that are put beside its own."""

_DRAWS = 32
"""Other questions looked at for them."""


@dataclass(frozen=True)
class Question:
    """A question, the answers to choose from, and how good each is: 0 or 1, or any grade, the highest the best."""

    text: str
    answers: tuple[str, ...]
    labels: tuple[float, ...] = ()

    @property
    def right(self) -> tuple[bool, ...]:
        """Which answers have the highest label of the question."""
        best = max(self.labels, default=0.0)
        return tuple(label == best for label in self.labels)

    @property
    def can_be_ranked(self) -> bool:
        """Whether some answers are better than others; without that, every order is as good."""
        return len(set(self.labels)) > 1


class QuestionColumns(NamedTuple):
    """Columns by name or by number from 1; None to find them. `group` tells questions apart that are worded alike."""

    question: str | int | None = None
    answer: str | int | None = None
    label: str | int | None = None
    group: str | int | None = None


# From tables


def read_questions(
    path: Path, columns: QuestionColumns | None = None, header: bool | None = None
) -> tuple[list[Question], ReadReport]:
    """The questions of a .tsv, .csv or .jsonl file (also .gz), a row for every answer; and what reading met.

    Args:
        path: of the file.
        columns: by default those of `NAMES` where there is a header, or else of three columns question, answer, label.
        header: whether the first row of a .tsv or .csv names the columns. By default it does when a column is asked for
            by name, or when it names a column of questions and one of answers.

    Rows without a question, an answer or a label are left out and counted. Rows of one question need not be neighbours.
    """
    columns = columns or QuestionColumns()
    report, where = ReadReport(), repr(str(path))
    rows = list(raw_rows(path, report))
    if not rows:
        raise TextspaceError(f"{where} {_nothing_read(path, report.bad_rows)}")
    names, table = _as_table(rows, columns, header)
    width = len(names) if names else Counter(map(len, table[:_SAMPLE_ROWS])).most_common(1)[0][0]
    question, answer, label = _chosen(columns, names, width, table, where)
    group = question if columns.group is None else find_column(columns.group, names, width, where)
    found: dict[Any, tuple[str, list[str], list[float]]] = {}
    for number, row in enumerate(table, start=1):
        report.read += 1
        if len(row) <= max(question, answer, label, group):
            report.bad_rows += 1
            continue
        asked, given, graded, key = (_cell(row[column]) for column in (question, answer, label, group))
        if not (asked.strip("? ") and given and graded):
            report.incomplete += 1
            continue
        entry = found.setdefault(key, (asked, [], []))
        entry[1].append(given)
        entry[2].append(_label(graded, number, where))
    report.kept = sum(len(answers) for _, answers, _ in found.values())
    if not found:
        raise TextspaceError(f"{where} has no row with a question, an answer and a label: check the columns")
    return [Question(text, tuple(answers), tuple(labels)) for text, answers, labels in found.values()], report


def _nothing_read(path: Path, broken: int) -> str:
    """What is wrong with a file without a row."""
    if not broken:
        return "is empty: give questions, answers and labels"
    rows = f"{broken:,} {'row' if broken == 1 else 'rows'}"
    row = _JSON_ROW if ending(path) == ".jsonl" else "a question, an answer and a label with commas between"
    return f"has {rows}, none of which can be read: write each as {row}"


def _as_table(
    rows: list[list[str] | dict[str, Any]], columns: QuestionColumns, header: bool | None
) -> tuple[list[str] | None, list[list[Any]]]:
    """The names of the columns, if there are some, and the cells below."""
    if isinstance(rows[0], dict):
        objects = [row for row in rows if isinstance(row, dict)]
        names = list(dict.fromkeys(name for row in objects for name in row))
        return names, [[row.get(name) for name in names] for row in objects]
    table = [row for row in rows if isinstance(row, list)]
    if header is None:
        named = any(column is not None and not is_number(column) for column in columns)
        first = {cell.strip().casefold() for cell in table[0]}
        header = named or bool(first & {*NAMES["question"]} and first & {*NAMES["answer"]})
    return ([cell.strip() for cell in table[0]], table[1:]) if header else (None, table)


def _chosen(
    columns: QuestionColumns, names: list[str] | None, width: int, table: list[list[Any]], where: str
) -> tuple[int, int, int]:
    asked = (columns.question, columns.answer, columns.label)
    if names is None and width == 3 and not any(asked):
        return 0, 1, 2
    folded = [name.casefold() for name in names or ()]
    found = [
        find_column(column, names, width, where)
        if column is not None
        else next((folded.index(name) for name in known if name in folded), None)
        for column, known in zip(asked, NAMES.values(), strict=True)
    ]
    missing = [f"--{what}-column" for what, column in zip(NAMES, found, strict=True) if column is None]
    if missing:
        shown = names or [_shown(cell) for cell in (table[0] if table else [])]
        told = ", ".join(f"{number} {name!r}" for number, name in enumerate(shown, start=1))
        what = "columns" if names else "columns without a header, of which the first row is"
        raise TextspaceError(f"{where} has {width} {what} {told}: say which is meant with {', '.join(missing)}")
    question, answer, label = (column for column in found if column is not None)
    if len({question, answer, label}) < 3:
        raise TextspaceError(f"question, answer and label of {where} cannot be the same column: name three")
    return question, answer, label


def _cell(value: object) -> str:
    value = plain(value)
    return "" if value is None else " ".join(str(value).split())


def _shown(cell: object) -> str:
    text = _cell(cell)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def _label(written: str, row: int, where: str) -> float:
    try:
        value = {"true": 1.0, "false": 0.0}.get(written.casefold())
        value = float(written) if value is None else value
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise TextspaceError(
            f"row {row} of {where} has the label {_shown(written)!r}, which is no number: mend it, or name another "
            "column with --label-column"
        )
    return value


# From sentences


def questions_in(texts: Sequence[str], *, seed: int) -> list[Question]:
    """Questions made of sentences that ask and then answer, each with answers of others: the right one comes first.

    A sentence is cut at its first question mark. Questions of 5 to 50 words with an answer are kept, and each gets 2 to
    4 answers of others, drawn with keyed noise: worded unlike its own, and of questions worded unlike it.

    >>> texts = [f"what does number {n} mean here ? it means {n}" for n in range(9)]
    >>> [len(question.answers) for question in questions_in(texts, seed=0)]
    [4, 4, 5, 3, 3, 5, 3, 4, 3]
    """
    pairs = list(_pairs(texts))
    if len(pairs) <= FEWEST:
        return []
    uniform_ND = Noise(seed, 0, torch.arange(len(pairs))).uniform("other answers", (1 + _DRAWS,), 1)[0].numpy()
    others_ND = (uniform_ND[:, 1:] * len(pairs)).astype(int)
    made = []
    for (text, own), share, others_D in zip(pairs, uniform_ND[:, 0], others_ND, strict=True):
        wanted = FEWEST + int(share * (MOST - FEWEST + 1))
        wrong = dict.fromkeys(pairs[other][1] for other in others_D if pairs[other][0] != text)
        wrong.pop(own, None)
        if len(wrong) >= FEWEST:
            answers = (own, *list(wrong)[:wanted])
            made.append(Question(text, answers, (1.0,) + (0.0,) * (len(answers) - 1)))
    return made


def _pairs(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    for text in texts:
        question, mark, answer = (" ".join(part.split()) for part in text.partition("?"))
        if mark and answer and SHORTEST <= len(question.split()) <= LONGEST:
            yield question, answer
