"""Readers of text files: each gives rows of text and label, again and again."""

from __future__ import annotations

import codecs
import csv
import gzip
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast

from textspace.data.cells import Row, row_of
from textspace.data.options import (
    LABEL_NAMES,
    TEXT_NAMES,
    Columns,
    ReadOptions,
    ReadReport,
    choose_columns,
    is_number,
    names_of,
)
from textspace.errors import TextspaceError
from textspace.files import LONGEST_LINE, bounded_lines, open_regular

__all__ = [
    "BINARY_PROBE",
    "ENDINGS",
    "PACKED",
    "SAMPLE_ROWS",
    "Reader",
    "TextFile",
    "delimited_reader",
    "ending",
    "json_reader",
    "json_rows",
    "opened",
    "raw_rows",
    "reason",
    "refuse_binary",
    "sentence_for_failure",
    "text_reader",
]

ENDINGS = (".txt", ".tsv", ".csv", ".jsonl", ".parquet")
SAMPLE_ROWS = 100  # read ahead to choose columns
PACKED = b"\x1f\x8b"  # what begins a file of gzip
_HEADER_WORDS = frozenset(TEXT_NAMES + LABEL_NAMES)
BINARY_PROBE = 8192  # bytes at the beginning


@dataclass(frozen=True)
class TextFile:
    """A file, what to call it in sentences about it, and what stands between the cells of a .csv."""

    path: Path
    name: str
    delimiter: str = ","

    @classmethod
    def at(cls, path: Path, name: str | None = None) -> TextFile:
        """By default it is called by its path."""
        return cls(path, str(path) if name is None else name)


@dataclass(frozen=True)
class Reader:
    """One stream of rows. Each call of `rows` starts from the beginning and counts into the report given to it.

    `options` are those it was made with, the columns settled (None where there are none), so that the files of
    one corpus can follow its first. `keep` holds whatever must live as long as the reader.
    """

    name: str
    rows: Callable[[ReadReport], Iterator[Row]]
    options: ReadOptions
    note: str | None = None
    keep: object = None


def ending(path: Path) -> str | None:
    """The known ending of a file, without .gz; a file with no ending at all counts as .txt.

    >>> ending(Path("a.b/train.TSV.gz")), ending(Path("sentences")), ending(Path("picture.png"))
    ('.tsv', '.txt', None)
    """
    name = path.name.lower()
    packed = name.endswith(".gz")
    found = Path(name.removesuffix(".gz")).suffix or ".txt"
    return found if found in ENDINGS and not (packed and found == ".parquet") else None


# --- lines, and .txt ---


def _lines(file: TextFile, report: ReadReport) -> Iterator[str]:
    r"""Lines with their ends. Only \n ends a line: str.splitlines would also cut at U+2028 and others."""
    with sentence_for_failure(file.name), opened(file.path) as stream:
        refuse_binary(file.name, stream.read(BINARY_PROBE))
        stream.seek(0)
        for number, line in enumerate(_ended(file.name, stream)):
            raw = line.removeprefix(codecs.BOM_UTF8) if number == 0 else line
            try:
                yield raw.decode("utf-8")
            except UnicodeDecodeError:
                report.bad_utf8 += 1
                yield raw.decode("utf-8", errors="replace")


def refuse_binary(name: str, beginning: bytes) -> None:
    """Refuse what begins with bytes that text does not have."""
    if b"\0" in beginning:
        raise TextspaceError(f"{name!r} looks like a binary file, not text; if it is UTF-16 text, save it as UTF-8")


def _ended(name: str, stream: IO[bytes]) -> Iterator[bytes]:
    r"""Lines up to \n; or up to \r in a file without any \n, as the first Macs wrote them."""
    lines = bounded_lines(stream)
    try:
        first = next(lines, b"")
        yield from [first] if first.endswith(b"\n") else first.splitlines(keepends=True)
        yield from lines
    except ValueError as problem:
        raise TextspaceError(f"{name!r} is not text in lines ({problem}); give every sentence its own line") from None


def reason(problem: Exception | None) -> str:
    """The first sentence of an exception's message, fit for brackets inside another sentence."""
    said = str(problem).strip().split("\n")[0].split(". ")[0]
    return said.rstrip(".") or type(problem).__name__


@contextmanager
def sentence_for_failure(name: Path | str, broken: type[Exception] = zlib.error) -> Iterator[None]:
    """Turn what reading a file can raise into one sentence; `broken` is an error that means a damaged file."""
    try:
        yield
    except (gzip.BadGzipFile, EOFError, broken) as problem:
        raise TextspaceError(
            f"{str(name)!r} is damaged or cut short ({reason(problem)}); fetch or write it again"
        ) from problem
    except OSError as problem:
        raise TextspaceError(f"cannot read {str(name)!r}: {problem.strerror or reason(problem)}") from problem


def opened(path: Path) -> IO[bytes]:
    """The bytes of a file, unpacked where it is packed."""
    with open_regular(path) as stream:
        packed = path.suffix.lower() == ".gz" or stream.read(2) == PACKED
    return cast(IO[bytes], gzip.open(path)) if packed else path.open("rb")


def _without_end(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")


def text_reader(path: Path, options: ReadOptions, name: str | None = None) -> Reader:
    """A sentence a line, without labels."""
    file = TextFile.at(path, name)
    next(_lines(file, ReadReport()), None)  # so that what cannot be read says so at once
    return Reader(file.name, partial(_text_rows, file), replace(options, text=None, label=None, header=None))


def _text_rows(file: TextFile, report: ReadReport) -> Iterator[Row]:
    for line in _lines(file, report):
        yield _without_end(line), None


# --- .tsv and .csv ---


def _cells(file: TextFile, report: ReadReport) -> Iterator[list[str]]:
    """Rows as cells, none for a blank line. Quotes mean nothing in .tsv: its text is full of stray ones."""
    lines = _lines(file, report)
    if ending(file.path) == ".tsv":
        for line in lines:
            yield _without_end(line).split("\t") if not line.isspace() else []
    else:
        yield from _quoted_cells(file, lines, report)


def _quoted_cells(file: TextFile, lines: Iterator[str], report: ReadReport) -> Iterator[list[str]]:
    """Rows of a .csv file, in which text between quotation marks may hold line breaks.

    A stray mark makes such rows too, out of lines that are not its own: hence they are counted, and where it shows that
    a mark is stray, since none closes it at the end of a cell, it is an error.
    """
    of_row: list[str] = []
    at_end = False

    def noted() -> Iterator[str]:
        nonlocal at_end
        for line in lines:
            of_row.append(line)
            yield line
        at_end = True

    # A longer field is an unclosed quotation mark, not text.
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_LINE))
    rows = csv.reader(noted(), delimiter=file.delimiter)
    while True:
        of_row.clear()
        begin = rows.line_num + 1
        try:
            cells: list[str] | None = next(rows)
        except StopIteration:
            return
        except csv.Error:  # the reader goes on with the next line
            cells = None
        if at_end or (len(of_row) > 1 and not _well_quoted(of_row, file.delimiter)):
            raise TextspaceError(
                f"the row that begins in line {begin} of {file.name!r} opens a quotation mark that none closes at the "
                "end of a cell: take the mark out, or close it (inside quotes a mark is written twice)"
            )
        if len(of_row) > 1:
            report.rows_over_lines += 1
            report.lines_of_those += len(of_row)
        if cells is None:
            report.bad_row()
        else:
            yield cells if any(map(str.strip, cells)) else []


def _well_quoted(lines: list[str], delimiter: str) -> bool:
    """Whether every quotation mark that opens a cell is closed at its end; stray carriage returns do not count."""
    try:
        rows = csv.reader((line.replace("\r", "") for line in lines), delimiter=delimiter, strict=True)
        return len(list(rows)) == 1
    except csv.Error:
        return False


def _sample(file: TextFile) -> list[list[str]]:
    return list(islice(filter(None, _cells(file, ReadReport())), SAMPLE_ROWS + 1))


def _separated(file: TextFile) -> TextFile:
    """The file, with semicolons between its cells where it is a .csv that has them instead of commas.

    It has them where its first row has no comma, and either names columns with semicolons between them or has as many
    cells between semicolons as all rows of the sample.
    """
    first = next(filter(None, _cells(file, ReadReport())), []) if ending(file.path) == ".csv" else []
    if len(first) != 1 or ";" not in first[0]:
        return file
    other = replace(file, delimiter=";")
    with suppress(TextspaceError):  # what is wrong with the file shows with commas too
        rows = _sample(other)
        if _is_header(rows[0]) or (len(rows) > 1 and {*map(len, rows)} == {len(rows[0])} != {1}):
            return other
    return file


def _is_header(cells: list[str]) -> bool:
    return any(cell.strip().casefold() in _HEADER_WORDS for cell in cells)


def delimited_reader(path: Path, options: ReadOptions, name: str | None = None) -> Reader:
    """A sentence a row of cells, tabs between them in .tsv, commas or semicolons in .csv, with a header or without.

    In .csv quotation marks may hold commas and line breaks, in .tsv they are text.
    """
    file = _separated(TextFile.at(path, name))
    where = repr(file.name) + (" (separated by semicolons)" if file.delimiter == ";" else "")
    sample = _sample(file)
    if not sample:  # nothing but blank or broken lines, to be counted as such
        nowhere = Columns(0, None, options, None)
        return Reader(file.name, partial(_delimited_rows, file, False, 1, nowhere), options)
    header = options.header
    if header is None:
        by_name = any(column is not None and not is_number(column) for column in (options.text, options.label))
        header = by_name or _is_header(sample[0])
    names = [cell.strip() for cell in sample[0]] if header else None
    width = len(names) if names else Counter(map(len, sample)).most_common(1)[0][0]
    columns = choose_columns(names, width, sample[1:] if names else sample, options, where)
    rows = partial(_delimited_rows, file, header, width, columns)
    # In files that follow one without a header, a sentence or class that reads like a column's name is none.
    settled = columns.options if header else replace(columns.options, header=False)
    return Reader(file.name, rows, settled, columns.note)


def _delimited_rows(file: TextFile, header: bool, width: int, columns: Columns, report: ReadReport) -> Iterator[Row]:
    needed = max(columns.text, columns.label or 0) + 1
    for cells in _cells(file, report):
        if not cells:
            yield "", None
        elif header:
            header = False
        elif needed <= len(cells) <= width:
            yield cells[columns.text], None if columns.label is None else cells[columns.label].strip() or None
        else:
            report.bad_row()


# --- .jsonl ---


def _object(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def json_reader(path: Path, options: ReadOptions) -> Reader:
    """A sentence a line, in a JSON object whose keys are the columns."""
    file = TextFile.at(path)
    objects = (value for line in _lines(file, ReadReport()) if (value := _object(line)))
    sample = list(islice(objects, SAMPLE_ROWS))
    names = list(dict.fromkeys(name for value in sample for name in value))
    wanted = {str(column) for column in (options.text, options.label) if isinstance(column, str)}
    if not wanted <= set(names):  # a column may begin later than the sample ends
        names = list(dict.fromkeys([*names, *(name for value in objects for name in value)]))
    if not names:  # nothing but blank or broken lines, to be counted as such
        return Reader(file.name, partial(json_rows, file, "", None), options)
    cells = [[value.get(name) for name in names] for value in sample]
    columns = choose_columns(names, len(names), cells, options, repr(file.name))
    rows = partial(json_rows, file, *names_of(columns, names))
    return Reader(file.name, rows, columns.options, columns.note)


def json_rows(file: TextFile, text: str, label: str | None, report: ReadReport) -> Iterator[Row]:
    """The rows of two keys; an object without the label's has no label, as where it is null."""
    for line in _lines(file, report):
        if not line.strip():
            yield "", None
            continue
        value = _object(line)
        if value is None or text not in value:
            report.bad_row()
        else:
            yield from row_of(value[text], None if label is None else value.get(label), report)


# --- tables of more than text and label ---


def raw_rows(path: Path, report: ReadReport) -> Iterator[list[str] | dict[str, Any]]:
    """The rows of a .tsv or .csv file as cells, those of a .jsonl file as objects; blank or broken ones are counted."""
    kind = ending(path)
    if kind not in (".tsv", ".csv", ".jsonl"):
        raise TextspaceError(f"{str(path)!r} is no table: give a .tsv, .csv or .jsonl file (also .gz)")
    file = _separated(TextFile.at(path))
    if kind == ".jsonl":
        for line in _lines(file, report):
            if not line.strip():
                report.empty += 1
            elif (value := _object(line)) is None:
                report.bad_row()
            else:
                yield value
        return
    for cells in _cells(file, report):
        if cells:
            yield cells
        else:
            report.empty += 1
