"""Arrays written to disk piece by piece, of a length that is not known before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import DTypeLike, NDArray

__all__ = ["ArrayFile"]


class ArrayFile:
    """A `.npy` file that grows: of numbers, or of rows of a shape."""

    def __init__(self, path: Path, dtype: DTypeLike, row: tuple[int, ...] = ()) -> None:
        self.dtype = np.dtype(dtype)
        self.length = 0
        self._path = path
        self._row = row

    def __enter__(self) -> ArrayFile:
        self._file = self._path.open("wb")
        self._write_header()
        return self

    def append(self, array: NDArray[Any]) -> None:
        self._file.write(np.ascontiguousarray(array, self.dtype).data)
        self.length += len(array)

    def __exit__(self, *_: object) -> None:
        # The final header takes the first one's place: numpy leaves room in it for the length to grow.
        self._file.seek(0)
        self._write_header()
        self._file.close()

    def _write_header(self) -> None:
        header = {
            "descr": npy.dtype_to_descr(self.dtype),
            "fortran_order": False,
            "shape": (self.length, *self._row),
        }
        npy.write_array_header_1_0(self._file, header)
