"""Files of codes, one row a sentence: written as they come and read back, in the format that the ending says."""

from __future__ import annotations

import csv
import errno
import importlib
import json
import re
import sys
import tempfile
import zipfile
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_matrix, issparse

from textspace.data.encoded import ArrayFile
from textspace.data.sources import reason
from textspace.errors import TextspaceError, nearest
from textspace.sparse_codes import as_rows, is_sparse_file, not_finite, read_sparse, sparse_sink

__all__ = ["FORMATS", "CodeWriter", "check_sparse_file", "read_codes"]

_DIGITS = {"float16": 9, "float32": 9, "float64": 17}  # decimal digits that give every number back exactly, as float32
_BLOCK_ROWS = 16_384  # of a parquet row group, and of what is looked through at a time in a mapped file
_LONGEST_FIELD = 2**27  # of a csv text; Python's own limit is 128 KiB

_Append = Callable[[Any, Mapping[str, Sequence[str | None]]], None]  # codes, and columns to go with them
_Sink = Callable[[Path, int, np.dtype], AbstractContextManager[_Append]]


class CodeWriter:
    """Writes codes a chunk at a time; the file gets its name only once it is complete.

    `.npy` and `.npz` (as `codes`) hold the codes alone. `.csv` has columns z0, z1, ... and then `text` and `label`
    where given, `.jsonl` objects of `text`, `label` and `code`, `.parquet` those three as columns. Sparse codes go into
    `.npz` files as scipy.sparse.load_npz reads them.

    Args:
        path: its ending is the format; "-" or None is .jsonl on standard output.
        dim: numbers in a code.
        dtype: float16, float32 or float64, as which the numbers are written; sparse ones not as float16.
        sparse: whether the chunks are scipy CSR matrices.

    >>> with CodeWriter("-", 2) as writer:
    ...     writer.write(np.array([[0.5, -1]]), texts=["a dog"])
    {"text": "a dog", "code": [0.5,-1]}
    """

    def __init__(
        self, path: Path | str | None, dim: int, *, dtype: DTypeLike = "float32", sparse: bool = False
    ) -> None:
        self._dim, self._dtype, self._sparse = dim, np.dtype(dtype), sparse
        known = [name for name in _DIGITS if not (sparse and name == "float16")]  # which scipy cannot hold
        if dim < 1 or self._dtype.name not in known:
            raise ValueError(f"dim={dim} must be positive and dtype={self._dtype} one of {', '.join(known)}")
        self._path = None if path is None or str(path) == "-" else Path(path)
        if sparse:
            check_sparse_file(path)
            self._opening = _whole_or_nothing(Path(path), sparse_sink, dim, self._dtype)  # type: ignore[arg-type]
        elif self._path is None:
            line = partial(_jsonl_line, escape=(sys.stdout.encoding or "utf-8").lower() != "utf-8")
            self._opening = _text_sink(line, None, dim, self._dtype)
        else:
            self._opening = _whole_or_nothing(self._path, FORMATS[_ending(self._path)][0], dim, self._dtype)
        self._rows = 0
        self._names: list[str] | None = None  # of the columns in the first chunk

    def __enter__(self) -> CodeWriter:
        with self._sentence_for_failure():
            self._append = self._opening.__enter__()
        return self

    def write(
        self,
        codes_BZ: NDArray[Any] | csr_matrix,
        texts: Sequence[str] | None = None,
        labels: Sequence[str | None] | None = None,
    ) -> None:
        """Append codes; texts and labels are given with every chunk or with none."""
        columns = {name: column for name, column in (("text", texts), ("label", labels)) if column is not None}
        if issparse(codes_BZ) != self._sparse:
            raise ValueError("sparse codes are written by a writer of sparse codes, and dense ones by another")
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused below
            codes_BZ = (as_rows(codes_BZ) if self._sparse else np.asarray(codes_BZ)).astype(self._dtype, copy=False)
        if codes_BZ.ndim != 2 or codes_BZ.shape[1] != self._dim:
            raise ValueError(f"codes of shape {codes_BZ.shape} where (any, {self._dim}) is wanted")
        count = codes_BZ.shape[0]
        if self._names not in (None, list(columns)) or {count} != {count, *map(len, columns.values())}:
            raise ValueError("texts and labels must be as many as the codes, and given with every chunk or with none")
        bad = _not_finite(codes_BZ)
        if bad is not None:
            where = f"the code of sentence {self._rows + bad + 1}"
            raise TextspaceError(f"{where} has a number that is NaN, infinite or too large for {self._dtype}")
        with self._sentence_for_failure():
            self._append(codes_BZ, columns)
        self._names = list(columns)
        self._rows += count

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        # Where there is an error already, a full disk fails again on closing, which would hide the first one.
        with self._sentence_for_failure() if kind is None else suppress(OSError):
            self._opening.__exit__(kind, error, trace)

    @contextmanager
    def _sentence_for_failure(self) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            if self._path is None:  # the command line knows what a closed pipe means
                raise
            raise TextspaceError(f"cannot write {self._path}: {problem.strerror or reason(problem)}") from problem


def check_sparse_file(path: Path | str | None) -> None:
    """Refuse a file that cannot hold sparse codes."""
    if path is None or Path(path).suffix.lower() != ".npz":
        where = "standard output" if path in (None, "-") else path
        raise TextspaceError(f"sparse codes go into .npz files and not into {where}: give a name that ends in .npz")


def read_codes(path: Path | str, *, dim: int | None = None) -> NDArray[np.float32] | csr_matrix:
    """The codes in a file, shape (n, dim), as a CSR matrix where the file is sparse.

    An `.npy` file of float32 is mapped instead of read into memory.

    Args:
        path: its ending is the format; "-" is standard input, .jsonl if it starts with "{" and else .csv.
        dim: numbers that every code must have.
    """
    name, path = ("standard input" if str(path) == "-" else str(path)), Path(path)
    source = _standard_input if str(path) == "-" else FORMATS[_ending(path)][1]
    try:
        codes = source(path)
    except TextspaceError:
        raise
    except FileNotFoundError as problem:
        raise TextspaceError(f"there is no file {name}") from problem
    except OSError as problem:
        raise TextspaceError(f"cannot read {name}: {problem.strerror or reason(problem)}") from problem
    except Exception as problem:  # damage can make the readers raise almost anything
        raise TextspaceError(f"{name} is damaged, cut short or not a file of codes ({reason(problem)})") from problem
    return _checked(codes, name, dim)


def _checked(codes: Any, name: str, dim: int | None) -> NDArray[np.float32] | csr_matrix:
    if codes.dtype.kind not in "fiu":
        raise TextspaceError(f"{name} holds values of type {codes.dtype}, which are not numbers")
    if codes.ndim == 1:
        codes = codes.reshape(1, -1)  # a plain vector is one code
    if codes.ndim != 2:
        raise TextspaceError(f"{name} has shape {codes.shape}, but codes are a table of sentences and dimensions")
    if codes.shape == (0, 0) and dim is not None:  # an empty .jsonl does not say how many numbers its codes have
        codes = codes.reshape(0, dim)
    if dim not in (None, codes.shape[1]):
        counts = [f"{n} {noun}{'' if n == 1 else 's'}" for n, noun in ((codes.shape[1], "column"), (dim, "dimension"))]
        raise TextspaceError(f"{name} has {counts[0]} and this space has {counts[1]}")
    with np.errstate(over="ignore"):
        codes = codes.astype(np.float32, copy=False)
    bad = _not_finite(codes)
    if bad is not None:
        raise TextspaceError(f"row {bad + 1} of {name} has a number that is NaN, infinite or too large for float32")
    return codes


def _not_finite(codes_BZ: Any) -> int | None:
    """The first row, counted from 0, that is not all finite."""
    if issparse(codes_BZ):
        return not_finite(codes_BZ)
    for start in range(0, len(codes_BZ), _BLOCK_ROWS):
        fine_B = np.isfinite(codes_BZ[start : start + _BLOCK_ROWS]).all(1)
        if not fine_B.all():
            return start + int(fine_B.argmin())
    return None


def _ending(path: Path) -> str:
    ending = path.suffix.lower()
    if ending not in FORMATS:
        raise TextspaceError(f"the ending of {path} is not one of a file of codes; {nearest(ending, FORMATS)}")
    return ending


@contextmanager
def _whole_or_nothing(path: Path, sink: _Sink, dim: int, dtype: np.dtype) -> Iterator[_Append]:
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    # In a folder of its own, because a file made by tempfile could be read by its owner alone for ever.
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".unfinished-") as folder:
        unfinished = Path(folder, path.name)
        with sink(unfinished, dim, dtype) as append:
            yield append
        unfinished.replace(path)


# --- .npy and .npz ---


@contextmanager
def _npy_sink(path: Path, dim: int, dtype: np.dtype) -> Iterator[_Append]:
    with ArrayFile(path, dtype, (dim,)) as file:
        yield lambda codes_BZ, columns: file.append(codes_BZ)


def _npy_codes(path: Path) -> NDArray[Any]:
    codes = npy.open_memmap(path, mode="r")  # which cannot unpickle
    if path.stat().st_size != codes.offset + codes.nbytes:
        raise ValueError("it is longer than its header says")
    return codes.view(np.ndarray)


@contextmanager
def _npz_sink(path: Path, dim: int, dtype: np.dtype) -> Iterator[_Append]:
    whole = path.with_name("codes.npy")  # zipped at the end: the header says how many, and comes first
    with _npy_sink(whole, dim, dtype) as append:
        yield append
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(whole, whole.name)


def _npz_codes(path: Path) -> NDArray[Any] | csr_matrix:
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        if is_sparse_file(names):
            return read_sparse(path)
        name = names[0] if len(names) == 1 else "codes.npy"
        if name not in names:
            raise ValueError(f"it has {len(names)} arrays and none is called codes")
        with archive.open(name) as stream:
            codes = npy.read_array(stream, allow_pickle=False)
            if stream.read(1):  # reading to the end is also what makes zipfile compare the checksum
                raise ValueError("it is longer than its header says")
    return codes


# --- .csv and .jsonl ---


@contextmanager
def _text_sink(line: Callable[..., str], path: Path | None, dim: int, dtype: np.dtype) -> Iterator[_Append]:
    """To standard output where there is no path."""
    numbers = ",".join([f"%.{_DIGITS[dtype.name]}g"] * dim)
    with nullcontext(sys.stdout) if path is None else path.open("w", encoding="utf-8", newline="") as stream:

        def append(codes_BZ: NDArray[Any], columns: Mapping[str, Sequence[str | None]]) -> None:
            if line is _csv_line and stream.tell() == 0:
                stream.write(",".join([*(f"z{number}" for number in range(dim)), *columns]) + "\n")
            for code, *cells in zip(codes_BZ.tolist(), *columns.values(), strict=True):
                stream.write(line(numbers % tuple(code), dict(zip(columns, cells, strict=True))) + "\n")

        yield append
        append(np.empty((0, dim)), {})  # the header of a .csv without codes
        stream.flush()


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


def _standard_input(_: Path) -> NDArray[Any]:
    lines = _lines(sys.stdin.buffer)
    first = next(lines, "")
    rows = _csv_rows if first and not first.startswith("{") else _jsonl_rows
    return rows(chain([first], lines), "standard input")


def _lines(stream: IO[bytes]) -> Iterator[str]:
    for number, line in enumerate(stream):
        yield line.decode("utf-8-sig" if number == 0 else "utf-8")


def _ended(line: str) -> str:
    if not line.endswith("\n"):  # a file cut inside its last number would still read as a number
        raise ValueError("its last line has no end")
    return line


def _csv_rows(lines: Iterator[str], name: str) -> NDArray[Any]:
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_FIELD))
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


# --- .parquet ---


def _arrow() -> tuple[Any, Any]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError as problem:
        raise TextspaceError('.parquet files need more packages: pip install "textspace[datasets]"') from problem


@contextmanager
def _parquet_sink(path: Path, dim: int, dtype: np.dtype) -> Iterator[_Append]:
    arrow, parquet = _arrow()
    kinds = {"code": arrow.list_(arrow.from_numpy_dtype(dtype), dim), "text": arrow.string(), "label": arrow.string()}
    waiting: list[Any] = []  # chunks may be small, and small row groups make large and slow files

    def append(codes_BZ: NDArray[Any], columns: Mapping[str, Sequence[str | None]]) -> None:
        codes = arrow.FixedSizeListArray.from_arrays(codes_BZ.flatten(), dim)  # a copy: the caller may reuse the array
        others = [arrow.array(columns.get(name, [None] * len(codes)), kinds[name]) for name in ("text", "label")]
        waiting.append(arrow.table([codes, *others], writer.schema))
        if sum(map(len, waiting)) >= _BLOCK_ROWS:
            writer.write_table(arrow.concat_tables(waiting))
            waiting.clear()

    with parquet.ParquetWriter(path, arrow.schema(kinds)) as writer:
        yield append
        if waiting:
            writer.write_table(arrow.concat_tables(waiting))


def _parquet_codes(path: Path) -> NDArray[Any]:
    _, parquet = _arrow()
    blocks: list[NDArray[Any]] = []
    with parquet.ParquetFile(path) as file:
        kinds = dict(zip(file.schema_arrow.names, file.schema_arrow.types, strict=True))
        if "list" not in str(kinds.get("code")):
            raise TextspaceError(f"{path} has no column of lists called code")
        width = getattr(kinds["code"], "list_size", None)
        for batch in file.iter_batches(_BLOCK_ROWS, columns=["code"]):
            widths_B = batch.column(0).value_lengths().fill_null(0).to_numpy()
            width = int(widths_B[0]) if width is None else width
            if (widths_B != width).any():
                raise ValueError("its lists of numbers differ in length")
            numbers = batch.column(0).flatten().to_numpy(zero_copy_only=False)  # in which a null becomes NaN
            blocks.append(numbers.reshape(len(batch), width))
    return np.concatenate(blocks) if blocks else np.empty((0, width or 0), np.float32)


FORMATS: dict[str, tuple[_Sink, Callable[[Path], Any]]] = {
    ".npy": (_npy_sink, _npy_codes),
    ".npz": (_npz_sink, _npz_codes),
    ".csv": (partial(_text_sink, _csv_line), partial(_text_codes, _csv_rows)),
    ".jsonl": (partial(_text_sink, _jsonl_line), partial(_text_codes, _jsonl_rows)),
    ".parquet": (_parquet_sink, _parquet_codes),
}
"""The writer and the reader of each ending."""
