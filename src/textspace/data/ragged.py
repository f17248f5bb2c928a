"""Sequences of different lengths in one array, end to end."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = ["end_to_end", "gathered"]


def end_to_end(sequences: Sequence[Sequence[int]], dtype: DTypeLike) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """All numbers in one array, and where each sequence ends in it.

    >>> [array.tolist() for array in end_to_end([[7, 8], [], [9]], np.uint16)]
    [[7, 8, 9], [2, 2, 3]]
    """
    counts = np.array([len(sequence) for sequence in sequences], np.int64)
    return np.fromiter(itertools.chain.from_iterable(sequences), dtype, counts.sum()), counts.cumsum()


def gathered(
    values: NDArray[Any], offsets: NDArray[np.int64], rows: NDArray[np.integer]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The numbers of some sequences end to end, and how many each has; sequence i is values[offsets[i]:offsets[i + 1]].

    >>> [array.tolist() for array in gathered(np.array([7, 8, 9]), np.array([0, 2, 2, 3]), np.array([2, 0]))]
    [[9, 7, 8], [1, 2]]
    """
    starts_B = offsets[rows]
    counts_B = offsets[rows + 1] - starts_B
    ends_B = counts_B.cumsum()  # in the result
    shifts_B = starts_B - ends_B + counts_B
    positions = np.arange(ends_B[-1] if len(rows) else 0) + shifts_B.repeat(counts_B)
    return values[positions], counts_B
