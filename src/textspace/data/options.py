"""What reading is asked for and gives: options, the columns they choose, records and a report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from textspace.checks import is_within, seed_number, whole_number
from textspace.errors import TextspaceError, nearest

__all__ = [
    "LABEL_NAMES",
    "TEXT_NAMES",
    "Columns",
    "ReadOptions",
    "ReadReport",
    "Record",
    "check_options",
    "choose_columns",
    "close_names",
    "find_column",
    "is_number",
    "names_of",
]

TEXT_NAMES = ("text", "sentence", "sentences", "review", "question", "content", "body", "comment", "document")
LABEL_NAMES = ("label", "labels", "class", "category", "stars", "sentiment", "topic", "target")


class Record(NamedTuple):
    """One sentence, its class if it has one, and the number of the source it came from."""

    text: str
    label: str | None
    source: int = 0


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How to read a source.

    Attributes:
        text: column of the sentences: a name, or a number from 1. By default the first of `TEXT_NAMES` among the
            columns, else the column whose text is longest on average in the first 100 rows.
        label: column of the classes, likewise. By default the first of `LABEL_NAMES` among them, else none.
        header: whether the first row of a .tsv or .csv names the columns. By default it does when a column is
            asked for by name, or when one of its cells is in `TEXT_NAMES` or `LABEL_NAMES` (in any case).
        valid: share of the sentences cut off for validation when the source has no splits of its own; or of train
            when it has train but no valid. 0 cuts none.
        test: share cut off for testing when the source has no splits of its own. 0 cuts none.
        most: the most sentences cut off for either.
        seed: seeds the cut and the choice of `per_class`.
        per_class: keep only this many sentences of each class, chosen at random with `seed`: before any
            cut, and where splits are given in train only, so that figures on those given stay comparable.
        mixing: with several sources, "all" takes every sentence once an epoch; "balanced" takes from every
            source as many as the smallest has, drawn anew each epoch. By default a run that goes on has the one it
            began with, and another has "all".
    """

    text: str | int | None = None
    label: str | int | None = None
    header: bool | None = None
    valid: float = 0.05
    test: float = 0.05
    most: int = 10_000
    seed: int = 0
    per_class: int | None = None
    mixing: Literal["all", "balanced"] | None = None

    def __post_init__(self) -> None:
        if not (is_within(self.valid, 0, 1) and is_within(self.test, 0, 1) and self.valid + self.test < 1):
            raise TextspaceError(
                f"valid={self.valid} and test={self.test} must be shares from 0 that leave some for training"
            )
        for name in ("most", "per_class"):
            if (given := getattr(self, name)) is not None:
                number = whole_number(given, 1, f"{name}={given!r} is no number of sentences")
                object.__setattr__(self, name, number)
        object.__setattr__(self, "seed", seed_number(self.seed))
        if not isinstance(self.header, bool | None):
            raise TextspaceError(f"header={self.header!r} must be True, False or None")
        for name in ("text", "label"):
            object.__setattr__(self, name, _column(getattr(self, name)))
        if self.mixing not in (None, "all", "balanced"):
            raise TextspaceError(f"mixing={self.mixing!r} is not a mixing rule; there are 'all' and 'balanced'")


def _column(given: Any) -> str | int | None:
    if given is None or isinstance(given, str):
        return given
    return whole_number(given, 1, f"{given!r} is no column (its name, or its number from 1)")


def check_options(options: Any) -> None:
    """Refuse options that are none, such as a dict of them."""
    if not isinstance(options, ReadOptions):
        raise TextspaceError(
            f"options are of type {type(options).__name__}: give those of textspace.data.options, such as "
            "ReadOptions(valid=0.1)"
        )


@dataclass
class ReadReport:
    """What reading met: counted in one pass over the source, however often it is read later."""

    read: int = 0
    kept: int = 0
    empty: int = 0
    incomplete: int = 0  # of questions
    bad_utf8: int = 0
    bad_rows: int = 0
    rows_over_lines: int = 0  # of .csv, between quotation marks
    lines_of_those: int = 0
    over_long: int = 0  # this and what follows is set when the sentences are made into tokens
    max_tokens: int | None = None
    cuts: bool = False  # what is over long, in place of leaving it out
    encoder_cut: int = 0
    encoder_limit: int = 0
    notes: list[str] = field(default_factory=list)

    def bad_row(self) -> None:
        self.read += 1
        self.bad_rows += 1

    def lines(self) -> list[str]:
        """At most a few sentences for people.

        >>> ReadReport(empty=3, bad_utf8=1, notes=["text is column 2"]).lines()
        ['3 empty lines skipped, 1 line with bad UTF-8 (\ufffd in its place)', 'text is column 2']
        """
        more = f"with more than {self.max_tokens} tokens"
        end = (
            "cut there (raise text.max_tokens)"
            if self.cuts
            else ("left out (raise text.max_tokens, or cut with text.over_long=truncate)")
        )
        counts = (
            (self.empty, "empty line skipped", "empty lines skipped"),
            (
                self.incomplete,
                "row without a question, an answer or a label skipped",
                "rows without a question, an answer or a label skipped",
            ),
            (self.bad_utf8, "line with bad UTF-8 (\ufffd in its place)", "lines with bad UTF-8 (\ufffd in its place)"),
            (self.bad_rows, "row not fitting the columns skipped", "rows not fitting the columns skipped"),
            (
                self.rows_over_lines,
                f"row with line breaks between quotation marks ({self.lines_of_those:,} lines)",
                f"rows with line breaks between quotation marks ({self.lines_of_those:,} lines)",
            ),
            (
                self.over_long,
                f"sentence {more} {end}",
                f"sentences {more} {end}",
            ),
            (
                self.encoder_cut,
                f"sentence longer than the {self.encoder_limit} tokens that the encoder reads (its code knows nothing "
                "of the rest)",
                f"sentences longer than the {self.encoder_limit} tokens that the encoder reads (their codes know "
                "nothing of the rest)",
            ),
        )
        counted = [f"{count:,} {one if count == 1 else many}" for count, one, many in counts if count]
        return ([", ".join(counted)] if counted else []) + self.notes


# --- which columns ---


class Columns(NamedTuple):
    """Where the text and the label are, as numbers from 0 and as options to read other files by."""

    text: int
    label: int | None
    options: ReadOptions
    note: str | None


def is_number(column: str | int | None) -> bool:
    """Whether a column is asked for by its number."""
    return isinstance(column, int) or (isinstance(column, str) and column.isdecimal())


def choose_columns(
    names: Sequence[str] | None, width: int, sample: Sequence[Sequence[Any]], options: ReadOptions, where: str
) -> Columns:
    """The text and label columns: as asked for, else by name, else (text only) the longest on average."""
    folded = [name.casefold() for name in names or ()]
    text, label = (
        None if column is None else find_column(column, names, width, where) for column in (options.text, options.label)
    )
    if text is not None and text == label:
        raise TextspaceError(f"text and label of {where} cannot be the same column: name two")
    why = None
    if text is None:
        free = [column for column in range(width) if column != label]
        if not free:
            raise TextspaceError(f"{where} has no column but the label; name the column of the sentences")
        named = [folded.index(name) for name in TEXT_NAMES if name in folded]
        text = next((column for column in named if column != label), None)
        why = "by its name" if text is not None else "the longest on average" if len(free) > 1 else None
        if text is None:
            text = max(free, key=lambda column: sum(_length(row, column) for row in sample))
    if label is None:
        named = [folded.index(name) for name in LABEL_NAMES if name in folded]
        label = next((column for column in named if column != text), None)
    spoken = [None if column is None else names[column] if names else column + 1 for column in (text, label)]
    classes = "no label column" if label is None else f"label in column {spoken[1]!r}"
    note = f"{where}: text in column {spoken[0]!r} ({why}), {classes}" if why else None
    return Columns(text, label, replace(options, text=spoken[0], label=spoken[1]), note)


def _length(row: Sequence[Any], column: int) -> int:
    return len(row[column]) if column < len(row) and isinstance(row[column], str) else 0


def find_column(column: str | int, names: Sequence[str] | None, width: int, where: str) -> int:
    """The number from 0 of a column asked for by name, or by number from 1."""
    if isinstance(column, str) and names is not None and column in names:
        return names.index(column)
    if is_number(column):
        if len(str(column)) > 9 or not 1 <= int(column) <= width:
            columns = "1 column" if width == 1 else f"{width} columns"
            raise TextspaceError(f"there is no column {column} in {where}, which has {columns}, counted from 1")
        return int(column) - 1
    if names is None:
        raise TextspaceError(f"{where} is read without a header, so give column {column!r} by its number, from 1")
    raise TextspaceError(f"there is no column {column!r} in {where}; {close_names(str(column), names)}")


def names_of(columns: Columns, names: Sequence[str]) -> tuple[str, str | None]:
    """The names of the text and the label column."""
    return names[columns.text], None if columns.label is None else names[columns.label]


def close_names(name: str, names: Iterable[str]) -> str:
    """`nearest`, kept to a readable length where there are many or long names."""
    short = [choice if len(choice) <= 40 else choice[:37] + "..." for choice in names]
    clause = nearest(name, short)
    return clause if clause.startswith("did you mean") or len(short) <= 12 else f"there are {len(short)} others"
