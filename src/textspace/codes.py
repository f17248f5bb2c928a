"""Files of codes, one row a sentence: written as they come and read back, in the format that the ending says."""

from __future__ import annotations

import importlib
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.lib import format as npy
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_matrix, issparse

from textspace.data.array_file import ArrayFile
from textspace.data.sources import reason
from textspace.errors import TextspaceError, nearest
from textspace.files import open_regular, whole_or_nothing
from textspace.ragged_codes import apart, array_in, is_ragged_file, ragged_sink, read_ragged
from textspace.sparse_codes import as_rows, is_sparse_file, not_finite, read_sparse, sparse_sink
from textspace.text_codes import DIGITS, csv_codes, csv_sink, jsonl_codes, jsonl_sink, standard_input, standard_output

__all__ = ["FORMATS", "CodeWriter", "Form", "check_npz", "read_codes"]

Form = Literal["dense", "sparse", "tokens"]
"""Of codes: a matrix, a scipy CSR matrix, or a list of matrices with a row for each token."""

_BLOCK_ROWS = 16_384  # of a parquet row group, and of what is looked through at a time in a mapped file

_Append = Callable[[Any, Mapping[str, Sequence[str | None]]], None]  # codes, and columns to go with them
_Sink = Callable[[Path, int, np.dtype], AbstractContextManager[_Append]]


class CodeWriter:
    """Writes codes a chunk at a time; the file gets its name only once it is complete.

    `.npy` and `.npz` (as `codes`) hold the codes alone. `.csv` has columns z0, z1, ... and then `text` and `label`
    where given, `.jsonl` objects of `text`, `label` and `code`, `.parquet` those three as columns. Sparse codes go into
    `.npz` files as scipy.sparse.load_npz reads them, and codes of tokens into those of `textspace.ragged_codes`.

    Args:
        path: its ending is the format; "-" or None is .jsonl on standard output.
        dim: numbers in a code.
        dtype: float16, float32 or float64, as which the numbers are written; sparse ones not as float16.
        form: what the chunks are.

    >>> with CodeWriter("-", 2) as writer:
    ...     writer.write(np.array([[0.5, -1]]), texts=["a dog"])
    {"text": "a dog", "code": [0.5,-1]}
    """

    def __init__(
        self, path: Path | str | None, dim: int, *, dtype: DTypeLike = "float32", form: Form = "dense"
    ) -> None:
        self._dim, self._dtype, self._form = dim, np.dtype(dtype), form
        known = [name for name in DIGITS if not (form == "sparse" and name == "float16")]  # which scipy cannot hold
        if dim < 1 or self._dtype.name not in known:
            raise ValueError(f"dim={dim} must be positive and dtype={self._dtype} one of {', '.join(known)}")
        self._path = None if path is None or str(path) == "-" else Path(path)
        self._opening: AbstractContextManager[_Append]
        if form != "dense":
            check_npz(path, form)
            sink = sparse_sink if form == "sparse" else ragged_sink
            self._opening = _whole_or_nothing(Path(path), sink, dim, self._dtype)  # type: ignore[arg-type]
        elif self._path is None:
            self._opening = standard_output(dim, self._dtype)
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
        codes: NDArray[Any] | csr_matrix | list[NDArray[Any]],
        texts: Sequence[str] | None = None,
        labels: Sequence[str | None] | None = None,
    ) -> None:
        """Append codes; texts and labels are given with every chunk or with none."""
        columns = {name: column for name, column in (("text", texts), ("label", labels)) if column is not None}
        if self._form != ("sparse" if issparse(codes) else "tokens" if isinstance(codes, list) else "dense"):
            raise ValueError(f"a writer of {self._form} codes writes no others")
        parts = [self._part(code_TZ) for code_TZ in codes] if self._form == "tokens" else [self._part(codes)]
        count = len(parts) if self._form == "tokens" else parts[0].shape[0]
        if self._names not in (None, list(columns)) or {count} != {count, *map(len, columns.values())}:
            raise ValueError("texts and labels must be as many as the codes, and given with every chunk or with none")
        for number, part in enumerate(parts):
            bad = _not_finite(part)
            if bad is not None:
                where = f"the code of sentence {self._rows + (number if self._form == 'tokens' else bad) + 1}"
                raise TextspaceError(f"{where} has a number that is NaN, infinite or too large for {self._dtype}")
        with self._sentence_for_failure():
            self._append(parts if self._form == "tokens" else parts[0], columns)
        self._names = list(columns)
        self._rows += count

    def _part(self, codes_BZ: Any) -> Any:
        """Codes of the right type and shape."""
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
            rows = as_rows(codes_BZ) if self._form == "sparse" else np.asarray(codes_BZ)
            codes_BZ = rows.astype(self._dtype, copy=False)
        if codes_BZ.ndim != 2 or codes_BZ.shape[1] != self._dim or (self._form == "tokens" and not len(codes_BZ)):
            raise ValueError(f"codes of shape {codes_BZ.shape} where (any, {self._dim}) is wanted")
        return codes_BZ

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


def check_npz(path: Path | str | None, form: Form) -> None:
    """Refuse a file that cannot hold sparse codes, or those of tokens."""
    if path is None or Path(path).suffix.lower() != ".npz":
        where = "standard output" if path in (None, "-") else path
        what, otherwise = {
            "sparse": ("sparse codes", ""),
            "tokens": ("codes of tokens", ", or pool them into one for each sentence with --pool"),
        }[form]
        raise TextspaceError(
            f"{what} go into .npz files and not into {where}: give a name that ends in .npz{otherwise}"
        )


def read_codes(path: Path | str, *, dim: int | None = None, of_tokens: bool | None = None) -> Any:
    """The codes in a file, shape (n, dim): a CSR matrix where the file is sparse, a list of matrices with a row for
    each token where it holds codes of tokens.

    An `.npy` file of float32 is mapped instead of read into memory.

    Args:
        path: its ending is the format; "-" is standard input, .jsonl if it starts with "{" and else .csv.
        dim: numbers that every code must have.
        of_tokens: whether codes must be those of tokens, or of sentences; by default either.
    """
    name, path = ("standard input" if str(path) == "-" else str(path)), Path(path)
    source = standard_input if str(path) == "-" else FORMATS[_ending(path)][1]
    try:
        if str(path) != "-":
            open_regular(path).close()
        codes = source(path)
    except TextspaceError:
        raise
    except FileNotFoundError as problem:
        raise TextspaceError(f"there is no file {name}") from problem
    except OSError as problem:
        raise TextspaceError(f"cannot read {name}: {problem.strerror or reason(problem)}") from problem
    except Exception as problem:  # damage can make the readers raise almost anything
        raise TextspaceError(f"{name} is damaged, cut short or not a file of codes ({reason(problem)})") from problem
    codes, lengths_N = codes if isinstance(codes, tuple) else (codes, None)
    if of_tokens is not None and of_tokens != (lengths_N is not None):
        has, wants = ("sentence", "token") if of_tokens else ("token", "sentence")
        raise TextspaceError(
            f"{name} has a code for each {has}, and this space one for each {wants}: "
            + ("encode without --pool, into an .npz file" if of_tokens else "give the codes that it encodes itself")
        )
    checked = _checked(codes, name, dim)
    return checked if lengths_N is None else apart(checked, lengths_N)


def _checked(codes: Any, name: str, dim: int | None) -> Any:
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
        raise TextspaceError(f"{name} has {counts[0]} and this space has {counts[1]}: give codes that this space made")
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
    with whole_or_nothing(path) as unfinished, sink(unfinished, dim, dtype) as append:
        yield append


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


def _npz_codes(path: Path) -> Any:
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        if is_sparse_file(names):
            return read_sparse(path)
        if is_ragged_file(names):
            return read_ragged(path)
        name = names[0] if len(names) == 1 else "codes.npy"
        if name not in names:
            raise ValueError(f"it has {len(names)} arrays and none is called codes")
        return array_in(archive, name)


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
    ".csv": (csv_sink, csv_codes),
    ".jsonl": (jsonl_sink, jsonl_codes),
    ".parquet": (_parquet_sink, _parquet_codes),
}
"""The writer and the reader of each ending."""
