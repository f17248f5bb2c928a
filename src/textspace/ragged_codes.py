"""Files of codes of tokens, as many for each sentence as it has tokens: `.npz` with `codes` (M, dim), all tokens of the
first sentence, then those of the second and so on, and `lengths` (N,), how many are whose."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from textspace.data.array_file import ArrayFile

__all__ = ["apart", "array_in", "is_ragged_file", "ragged_sink", "read_ragged"]

_ARRAYS = ("codes.npy", "lengths.npy")


@contextmanager
def ragged_sink(path: Path, dim: int, dtype: np.dtype) -> Iterator[Callable[..., None]]:
    """Appends lists of matrices to files beside `path`, which are zipped into it at the end."""
    places = [path.with_name(name) for name in _ARRAYS]
    with ArrayFile(places[0], dtype, (dim,)) as values, ArrayFile(places[1], np.int64) as lengths:

        def append(codes: Sequence[NDArray[Any]], columns: Any) -> None:
            lengths.append(np.array([len(code_TZ) for code_TZ in codes], np.int64))
            for code_TZ in codes:
                values.append(code_TZ)

        yield append
    with zipfile.ZipFile(path, "w") as archive:
        for place in places:
            archive.write(place, place.name)


def is_ragged_file(names: list[str]) -> bool:
    """Whether a zip file with these members holds codes of tokens."""
    return set(_ARRAYS) <= set(names)


def read_ragged(path: Path) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Codes and lengths, which fit."""
    with zipfile.ZipFile(path) as archive:
        values_MZ, lengths_N = (array_in(archive, name) for name in _ARRAYS)
    if values_MZ.ndim != 2 or lengths_N.ndim != 1 or lengths_N.dtype.kind not in "iu":
        raise ValueError("its codes are not a table or its lengths not a row of whole numbers")
    if (lengths_N < 1).any() or lengths_N.sum(dtype=np.float64) != len(values_MZ):
        raise ValueError(f"its lengths do not add up to {len(values_MZ)} tokens, at least one for each sentence")
    return values_MZ, lengths_N.astype(np.int64)


def apart(values_MZ: NDArray[Any], lengths_N: NDArray[np.int64]) -> list[NDArray[Any]]:
    """A matrix of each sentence.

    >>> [code.tolist() for code in apart(np.array([[1], [2], [3]]), np.array([2, 1]))]
    [[[1], [2]], [[3]]]
    """
    return np.split(values_MZ, lengths_N.cumsum()[:-1]) if len(lengths_N) else []


def array_in(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """An array of an `.npz` file; nothing is ever unpickled."""
    with archive.open(name) as stream:
        found = npy.read_array(stream, allow_pickle=False)
        if stream.read(1):  # reading to the end is also what makes zipfile compare the checksum
            raise ValueError("it is longer than its header says")
    return found
