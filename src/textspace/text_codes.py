"""Files of codes in text, `.csv` and `.jsonl`, one line a sentence."""

from __future__ import annotations

import csv
import json
import re
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import chain, dropwhile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from textspace.errors import TextspaceError
from textspace.files import LONGEST_LINE, bounded_lines, piped_in

__all__ = ["DIGITS", "csv_codes", "csv_sink", "jsonl_codes", "jsonl_sink", "standard_input", "standard_output"]

DIGITS = {"float16": 9, "float32": 9, "float64": 17}
"""Decimal digits that give every number back exactly, as float32."""

_Append = Callable[[Any, Mapping[str, Sequence[str | None]]], None]


@contextmanager
def _text_sink(line: Callable[..., str], path: Path | None, dim: int, dtype: np.dtype) -> Iterator[_Append]:
    """To standard output where there is no path."""
    numbers = ",".join([f"%.{DIGITS[dtype.name]}g"] * dim)
    with nullcontext(sys.stdout) if path is None else path.open("w", encoding="utf-8", newline="") as stream:

        def append(codes_BZ: NDArray[Any], columns: Mapping[str, Sequence[str | None]]) -> None:
            if line is _csv_line and stream.tell() == 0:
                stream.write(",".join([*(f"z{number}" for number in range(dim)), *columns]) + "\n")
            for code, *cells in zip(codes_BZ.tolist(), *columns.values(), strict=True):
                stream.write(line(numbers % tuple(code), dict(zip(columns, cells, strict=True))) + "\n")

        yield append
        append(np.empty((0, dim)), {})  # the header of a .csv without codes
        stream.flush()


def standard_output(dim: int, dtype: np.dtype) -> AbstractContextManager[_Append]:
    """`.jsonl`."""
    line = partial(_jsonl_line, escape=(sys.stdout.encoding or "utf-8").lower() != "utf-8")
    return _text_sink(line, None, dim, dtype)


def _csv_line(numbers: str, others: dict[str, str | None]) -> str:
    # Text is always in quotation marks: the csv module leaves a lone carriage return without, and then reads two rows.
    cells = ["" if cell is None else '"' + cell.replace('"', '""') + '"' for cell in others.values()]
    return ",".join([numbers, *cells])


def _jsonl_line(numbers: str, others: dict[str, str | None], escape: bool = False) -> str:
    texts = json.dumps(others, ensure_ascii=escape).removesuffix("}")
    return f'{texts}{", " if others else ""}"code": [{numbers}]}}'


def _text_codes(rows: Callable[[Iterator[str], str], NDArray[Any]], path: Path) -> NDArray[Any]:
    with path.open("rb") as stream:
        return rows(_lines(stream), str(path))


def standard_input(_: Path) -> NDArray[Any]:
    lines = dropwhile(lambda line: not line.strip(), _lines(piped_in()))
    first = next(lines, "")
    rows = _csv_rows if first and not first.startswith("{") else _jsonl_rows
    return rows(chain([first], lines), "standard input")


def _lines(stream: IO[bytes]) -> Iterator[str]:
    for number, line in enumerate(bounded_lines(stream)):
        yield line.decode("utf-8-sig" if number == 0 else "utf-8")


def _ended(line: str) -> str:
    if not line.endswith("\n"):  # a file cut inside its last number would still read as a number
        raise ValueError("its last line has no end")
    return line


def _csv_rows(lines: Iterator[str], name: str) -> NDArray[Any]:
    # Python's own limit is 128 KiB.
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_LINE))
    rows = filter(None, csv.reader(map(_ended, lines), strict=True))  # strict about quotation marks never closed
    header = next(rows, [])
    where = {cell: column for column, cell in enumerate(header) if re.fullmatch(r"z\d+", cell)}
    columns = [where.get(f"z{number}", -1) for number in range(len(where))]
    if not columns or -1 in columns:
        raise TextspaceError(f"{name} must name columns z0, z1 and so on without a gap in its first line")

    def code(cells: list[str]) -> list[float]:
        if len(cells) != len(header):
            raise ValueError
        return [float(cells[column]) for column in columns]

    return _gathered(code, rows, len(columns), name, f"{len(header)} cells with numbers in every z column")


def _jsonl_rows(lines: Iterator[str], name: str) -> NDArray[Any]:
    def code(line: str) -> list[float]:
        numbers = json.loads(line, parse_int=float)["code"]  # as float, because the integer -0 loses its sign
        if not isinstance(numbers, list) or not {float}.issuperset(map(type, numbers)):
            raise ValueError
        return numbers

    return _gathered(code, filter(str.strip, lines), None, name, "a list of numbers called code")


def _gathered(
    code_of: Callable[[Any], list[float]], rows: Iterable[Any], width: int | None, name: str, wanted: str
) -> NDArray[Any]:
    numbers = array("f")  # grows in place at four bytes a number
    count = 0
    for count, row in enumerate(rows, start=1):
        try:
            code = code_of(row)
        except (ValueError, KeyError, TypeError, RecursionError) as problem:
            raise TextspaceError(f"row {count} of {name} does not have {wanted}") from problem
        width = len(code) if width is None else width
        if len(code) != width:
            raise TextspaceError(f"row {count} of {name} has {len(code)} numbers where {width} were expected")
        numbers.extend(code)
    return np.frombuffer(numbers, np.float32).reshape(count, width or 0)


csv_sink, csv_codes = partial(_text_sink, _csv_line), partial(_text_codes, _csv_rows)
jsonl_sink, jsonl_codes = partial(_text_sink, _jsonl_line), partial(_text_codes, _jsonl_rows)
