"""Readers of text files, streams and Python iterables: each gives rows of text and label, again and again."""

from __future__ import annotations

import codecs
import csv
import gzip
import json
import os
import re
import shutil
import tempfile
import weakref
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path
from typing import IO, Any, cast

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

__all__ = [
    "ENDINGS",
    "SAMPLE_ROWS",
    "Reader",
    "Row",
    "delimited_reader",
    "ending",
    "iterable_reader",
    "json_reader",
    "opened",
    "raw_rows",
    "reason",
    "row_of",
    "sentence_for_failure",
    "stream_reader",
    "text_reader",
]

ENDINGS = (".txt", ".tsv", ".csv", ".jsonl", ".parquet")
SAMPLE_ROWS = 100  # read ahead to choose columns
_HEADER_WORDS = frozenset(TEXT_NAMES + LABEL_NAMES)
_BINARY_PROBE = 8192
# A csv field beyond this many characters is an unclosed quotation mark, not text.
_LONGEST_FIELD = 2**27
_SURROGATES = re.compile("[\ud800-\udfff]")

Row = tuple[str, str | None]  # text and label


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


def _lines(path: Path, report: ReadReport) -> Iterator[str]:
    r"""Lines with their ends. Only \n ends a line: str.splitlines would also cut at U+2028 and others."""
    with sentence_for_failure(path), opened(path) as stream:
        if b"\0" in stream.read(_BINARY_PROBE):
            raise TextspaceError(
                f"{str(path)!r} looks like a binary file, not text; if it is UTF-16 text, save it as UTF-8"
            )
        stream.seek(0)
        for number, line in enumerate(stream):
            raw = line.removeprefix(codecs.BOM_UTF8) if number == 0 else line
            try:
                yield raw.decode("utf-8")
            except UnicodeDecodeError:
                report.bad_utf8 += 1
                yield raw.decode("utf-8", errors="replace")


def reason(problem: Exception | None) -> str:
    """The first sentence of an exception's message, fit for brackets inside another sentence."""
    said = str(problem).strip().split("\n")[0].split(". ")[0]
    return said.rstrip(".") or type(problem).__name__


@contextmanager
def sentence_for_failure(path: Path, broken: type[Exception] = zlib.error) -> Iterator[None]:
    """Turn what reading a file can raise into one sentence; `broken` is an error that means a damaged file."""
    try:
        yield
    except (gzip.BadGzipFile, EOFError, broken) as problem:
        raise TextspaceError(
            f"{str(path)!r} is damaged or cut short ({reason(problem)}); fetch or write it again"
        ) from problem
    except OSError as problem:
        raise TextspaceError(f"cannot read {str(path)!r}: {problem.strerror or reason(problem)}") from problem


def opened(path: Path) -> IO[bytes]:
    """The bytes of a file, unpacked where it is packed."""
    with path.open("rb") as stream:
        packed = path.suffix.lower() == ".gz" or stream.read(2) == b"\x1f\x8b"
    return cast(IO[bytes], gzip.open(path)) if packed else path.open("rb")


def _without_end(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")


def text_reader(path: Path, options: ReadOptions) -> Reader:
    """A sentence a line, without labels."""
    next(_lines(path, ReadReport()), None)  # so that what cannot be read says so at once
    return Reader(str(path), partial(_text_rows, path), replace(options, text=None, label=None))


def _text_rows(path: Path, report: ReadReport) -> Iterator[Row]:
    for line in _lines(path, report):
        yield _without_end(line), None


# --- .tsv and .csv ---


def _cells(path: Path, report: ReadReport) -> Iterator[list[str]]:
    """Rows as cells, none for a blank line. Quotes mean nothing in .tsv: its text is full of stray ones."""
    lines = _lines(path, report)
    if ending(path) == ".tsv":
        for line in lines:
            yield _without_end(line).split("\t") if not line.isspace() else []
    else:
        yield from _quoted_cells(path, lines, report)


def _quoted_cells(path: Path, lines: Iterator[str], report: ReadReport) -> Iterator[list[str]]:
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

    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_FIELD))
    rows = csv.reader(noted())
    while True:
        of_row.clear()
        begin = rows.line_num + 1
        try:
            cells: list[str] | None = next(rows)
        except StopIteration:
            return
        except csv.Error:  # the reader goes on with the next line
            cells = None
        if at_end or (len(of_row) > 1 and not _well_quoted(of_row)):
            raise TextspaceError(
                f"the row that begins in line {begin} of {str(path)!r} opens a quotation mark that none closes at the "
                "end of a cell: take the mark out, or close it (inside quotes a mark is written twice)"
            )
        if len(of_row) > 1:
            report.rows_over_lines += 1
            report.lines_of_those += len(of_row)
        if cells is None:
            report.bad_row()
        else:
            yield cells if any(map(str.strip, cells)) else []


def _well_quoted(lines: list[str]) -> bool:
    """Whether every quotation mark that opens a cell is closed at its end; stray carriage returns do not count."""
    try:
        return len(list(csv.reader((line.replace("\r", "") for line in lines), strict=True))) == 1
    except csv.Error:
        return False


def delimited_reader(path: Path, options: ReadOptions) -> Reader:
    """A sentence a row of cells, tabs between them in .tsv and commas in .csv, with a header or without.

    In .csv quotation marks may hold commas and line breaks, in .tsv they are text.
    """
    where = repr(str(path))
    sample = list(islice(filter(None, _cells(path, ReadReport())), SAMPLE_ROWS + 1))
    if not sample:  # nothing but blank or broken lines, to be counted as such
        nowhere = Columns(0, None, options, None)
        return Reader(str(path), partial(_delimited_rows, path, False, 1, nowhere), options)
    header = options.header
    if header is None:
        by_name = any(column is not None and not is_number(column) for column in (options.text, options.label))
        header = by_name or any(cell.strip().casefold() in _HEADER_WORDS for cell in sample[0])
    names = [cell.strip() for cell in sample[0]] if header else None
    width = len(names) if names else Counter(map(len, sample)).most_common(1)[0][0]
    columns = choose_columns(names, width, sample[1:] if names else sample, options, where)
    rows = partial(_delimited_rows, path, header, width, columns)
    # In files that follow one without a header, a sentence or class that reads like a column's name is none.
    settled = columns.options if header else replace(columns.options, header=False)
    return Reader(str(path), rows, settled, columns.note)


def _delimited_rows(path: Path, header: bool, width: int, columns: Columns, report: ReadReport) -> Iterator[Row]:
    needed = max(columns.text, columns.label or 0) + 1
    for cells in _cells(path, report):
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
    objects = (value for line in _lines(path, ReadReport()) if (value := _object(line)))
    sample = list(islice(objects, SAMPLE_ROWS))
    names = list(dict.fromkeys(name for value in sample for name in value))
    wanted = {str(column) for column in (options.text, options.label) if isinstance(column, str)}
    if not wanted <= set(names):  # a column may begin later than the sample ends
        names = list(dict.fromkeys([*names, *(name for value in objects for name in value)]))
    if not names:  # nothing but blank or broken lines, to be counted as such
        return Reader(str(path), partial(_json_rows, path, "", None), options)
    cells = [[value.get(name) for name in names] for value in sample]
    columns = choose_columns(names, len(names), cells, options, repr(str(path)))
    rows = partial(_json_rows, path, *names_of(columns, names))
    return Reader(str(path), rows, columns.options, columns.note)


def _json_rows(path: Path, text: str, label: str | None, report: ReadReport) -> Iterator[Row]:
    for line in _lines(path, report):
        if not line.strip():
            yield "", None
            continue
        value = _object(line)
        if value is None or text not in value or (label is not None and label not in value):
            report.bad_row()
        else:
            yield from row_of(value[text], value[label] if label is not None else None, report)


def row_of(text: object, label: object, report: ReadReport) -> Iterator[Row]:
    """The row of two cells; none where the text is missing or either is nested. A null label is no label."""
    if text is None or isinstance(text, dict | list | bytes) or isinstance(label, dict | list | bytes):
        report.bad_row()
        return
    yield (
        _encodable(str(text), report),
        None if label is None else _encodable(str(label), report).strip() or None,
    )


def _encodable(text: str, report: ReadReport) -> str:
    r"""The text without lone surrogates, which JSON can spell (\ud800) and UTF-8 cannot."""
    if text.isascii() or not _SURROGATES.search(text):
        return text
    report.bad_utf8 += 1
    return _SURROGATES.sub("\N{REPLACEMENT CHARACTER}", text)


# --- tables of more than text and label ---


def raw_rows(path: Path, report: ReadReport) -> Iterator[list[str] | dict[str, Any]]:
    """The rows of a .tsv or .csv file as cells, those of a .jsonl file as objects; blank or broken ones are counted."""
    kind = ending(path)
    if kind not in (".tsv", ".csv", ".jsonl"):
        raise TextspaceError(f"{str(path)!r} is no table: give a .tsv, .csv or .jsonl file (also .gz)")
    if kind == ".jsonl":
        for line in _lines(path, report):
            if not line.strip():
                report.empty += 1
            elif (value := _object(line)) is None:
                report.bad_row()
            else:
                yield value
        return
    for cells in _cells(path, report):
        if cells:
            yield cells
        else:
            report.empty += 1


# --- streams and Python iterables ---


class _Spool:
    """A temporary file that lasts as long as this object, in the process that made it."""

    def __init__(self, suffix: str) -> None:
        handle, name = tempfile.mkstemp(prefix="textspace-", suffix=suffix)
        os.close(handle)
        self.path = Path(name)
        weakref.finalize(self, _remove, name, os.getpid())


def _remove(name: str, owner: int) -> None:
    if os.getpid() == owner:  # a forked worker must not take the file away from its parent
        Path(name).unlink(missing_ok=True)


def stream_reader(name: str, stream: IO[bytes], options: ReadOptions) -> Reader:
    """A stream that can be read only once, copied to a temporary file.

    Without a name to tell, it is .txt; or .tsv when a text or label column is asked for.
    """
    with_columns = options.text is not None or options.label is not None
    spool = _Spool(".tsv" if with_columns else ".txt")
    with spool.path.open("wb") as copy:
        shutil.copyfileobj(stream, copy)
    reader = delimited_reader(spool.path, options) if with_columns else text_reader(spool.path, options)
    return replace(reader, name=name, keep=spool)


def iterable_reader(name: str, sentences: Iterable[str], labels: Iterable[Any] | None, options: ReadOptions) -> Reader:
    """Sentences from Python: read again where they can be, else copied to a temporary file."""
    settled = replace(options, text=None, label=None)
    if isinstance(sentences, str):
        raise TextspaceError("sentences must be a list of strings, not one string; for a file use open_corpus(path)")
    if all(iter(values) is not values for values in (sentences, () if labels is None else labels)):
        return Reader(name, partial(_iterable_rows, sentences, labels), settled)
    spool = _Spool(".jsonl")
    with spool.path.open("w", encoding="utf-8") as copy:
        for text, label in _checked(sentences, labels):
            print(json.dumps({"text": text, "label": label}), file=copy)
    return Reader(name, partial(_json_rows, spool.path, "text", "label"), settled, keep=spool)


def _iterable_rows(sentences: Iterable[str], labels: Iterable[Any] | None, report: ReadReport) -> Iterator[Row]:
    for text, label in _checked(sentences, labels):
        yield from row_of(text, label, report)


def _checked(sentences: Iterable[str], labels: Iterable[Any] | None) -> Iterator[Row]:
    if labels is None:
        pairs: Iterable[tuple[Any, Any]] = ((text, None) for text in sentences)
    else:
        pairs = zip_longest(sentences, labels, fillvalue=_checked)
    for number, (text, label) in enumerate(pairs, start=1):
        if text is _checked or label is _checked:
            raise TextspaceError(f"there must be as many labels as sentences, but one ends before number {number}")
        if not isinstance(text, str):
            raise TextspaceError(f"sentence {number} is of type {type(text).__name__}; every sentence must be a string")
        yield text, None if label is None else str(label)
