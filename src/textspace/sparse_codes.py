"""Codes whose dimensions are mostly off: as scipy matrices, and in files."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from textspace.data.array_file import ArrayFile

__all__ = [
    "as_rows",
    "compressed",
    "is_sparse_file",
    "not_finite",
    "read_sparse",
    "sparse_sink",
    "stacked",
]

_FORMATS = ("csr", "csc", "coo")


def compressed(codes_NZ: NDArray[Any]) -> sparse.csr_matrix:
    """Codes with exact zeros as a CSR matrix of float32."""
    return sparse.csr_matrix(codes_NZ.astype(np.float32, copy=False))


def stacked(parts: Sequence[sparse.csr_matrix], dim: int) -> sparse.csr_matrix:
    """All parts below each other; a matrix without rows where there are none."""
    return sparse.vstack([sparse.csr_matrix((0, dim), dtype=np.float32), *parts], format="csr")


def as_rows(codes: Any) -> sparse.csr_matrix:
    """A scipy matrix or array of any format as CSR, its indices checked; a sparse vector is one row."""
    if codes.dtype.kind not in "fiub" or codes.ndim > 2:
        raise TypeError(f"a sparse array of {codes.ndim} axes and type {codes.dtype} holds no codes")
    if codes.format in ("csr", "csc"):
        codes.check_format(full_check=True)  # scipy reads wherever an index points to
    rows = sparse.csr_matrix(codes.reshape(1, -1) if codes.ndim == 1 else codes)
    if not rows.has_canonical_format:
        rows = rows.copy()  # the caller's own stays as it is
        rows.sum_duplicates()
    return rows.astype(np.result_type(rows.dtype, np.float32), copy=False)


def not_finite(rows: sparse.csr_matrix) -> int | None:
    """The first row, counted from 0, that is not all finite."""
    bad = np.flatnonzero(~np.isfinite(rows.data))
    return None if len(bad) == 0 else int(np.searchsorted(rows.indptr, bad[0], side="right")) - 1


# --- files, in the layout of scipy.sparse.save_npz ---


@contextmanager
def sparse_sink(path: Path, dim: int, dtype: np.dtype) -> Iterator[Callable[..., None]]:
    """Appends CSR matrices to files beside `path`, which are zipped into it at the end."""
    kinds = {"data": dtype, "indices": np.dtype(np.int32), "indptr": np.dtype(np.int64)}
    count = rows = 0
    with (
        ArrayFile(path.with_name("data.npy"), kinds["data"], ()) as data,
        ArrayFile(path.with_name("indices.npy"), kinds["indices"], ()) as indices,
        ArrayFile(path.with_name("indptr.npy"), kinds["indptr"], ()) as indptr,
    ):

        def append(codes_BZ: sparse.csr_matrix, columns: Any) -> None:
            nonlocal count, rows
            data.append(codes_BZ.data)
            indices.append(codes_BZ.indices)
            indptr.append(count + codes_BZ.indptr[1:].astype(np.int64))
            count, rows = count + codes_BZ.nnz, rows + codes_BZ.shape[0]

        indptr.append(np.zeros(1, np.int64))
        yield append
    np.save(path.with_name("shape.npy"), np.array([rows, dim]))
    np.save(path.with_name("format.npy"), np.array(b"csr"))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("indices", "indptr", "format", "shape", "data"):
            archive.write(path.with_name(f"{name}.npy"), f"{name}.npy")


def is_sparse_file(names: list[str]) -> bool:
    """Whether a zip file with these members holds a sparse matrix."""
    return "format.npy" in names and "shape.npy" in names


def read_sparse(path: Path) -> sparse.csr_matrix:
    """What `save_npz` or `sparse_sink` wrote, as CSR."""
    with zipfile.ZipFile(path) as archive:
        broken = archive.testzip()
    if broken is not None:
        raise ValueError(f"the checksum of {broken} is wrong")
    found = sparse.load_npz(path)  # which cannot unpickle
    if found.format not in _FORMATS:
        raise ValueError(f"its matrix is {found.format} and not one of {', '.join(_FORMATS)}")
    return as_rows(found)
