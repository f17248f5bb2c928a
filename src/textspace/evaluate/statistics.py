"""Small statistics that estimators and measures share."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["BLOCKS", "ROUNDING", "spread_rows", "standard_error"]

BLOCKS = 50
"""Parts of the sentences that a jackknife leaves out in turn."""

ROUNDING = 1e-6
"""Codes that differ by less than this share of the longest one are equal but for rounding in float32."""


def spread_rows(count: int, limit: int) -> NDArray[np.int64]:
    """At most `limit` of `count` rows, evenly spread.

    >>> spread_rows(10, 4).tolist(), spread_rows(3, 4).tolist()
    ([0, 2, 5, 7], [0, 1, 2])
    """
    some = min(count, limit)
    return np.arange(some) * count // max(some, 1)


def standard_error(values_N: NDArray[np.float64]) -> float | None:
    """Of a mean; None where there are fewer than two values."""
    with np.errstate(invalid="ignore"):  # of infinite values it is not a number
        return float(np.std(values_N, ddof=1) / math.sqrt(len(values_N))) if len(values_N) > 1 else None
