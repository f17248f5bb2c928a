"""Small statistics that estimators and measures share: errors, ratios, and which sentences."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textspace.errors import TextspaceError

__all__ = [
    "BLOCKS",
    "ROUNDING",
    "SAFE_SIDE",
    "Ratio",
    "jackknife_error",
    "plus_minus",
    "spread_rows",
    "standard_error",
]

Rows = NDArray[np.int64]

BLOCKS = 50
"""Parts of the sentences that a jackknife leaves out in turn."""

ROUNDING = 1e-6
"""Codes that differ by less than this share of the longest one are equal but for rounding in float32."""


SAFE_SIDE = "rather too large than too small"
"""What settings say of the errors that `jackknife_error` makes too large."""


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


class Ratio(NamedTuple):
    """A ratio of sums over sentences, with its standard error by the delta method."""

    value: float
    stderr: float | None

    @classmethod
    def of(cls, above_N: NDArray[Any], below_N: NDArray[Any]) -> Ratio:
        """
        >>> Ratio.of(np.array([1, 2]), np.array([2, 4]))
        Ratio(value=0.5, stderr=0.0)
        """
        below = max(float(below_N.sum()), 1e-12)
        value = float(above_N.sum()) / below
        error = standard_error(above_N - value * below_N)
        return cls(value, None if error is None else error * len(below_N) / below)

    def each_sentence(self, above_N: NDArray[Any], below_N: NDArray[Any]) -> NDArray[np.float64]:
        """Values whose mean is the ratio and that scatter as it does, to first order: for paired differences.

        >>> Ratio.of(above := np.array([1, 3]), below := np.array([2, 4])).each_sentence(above, below).round(3).tolist()
        [0.556, 0.778]
        """
        return self.value + (above_N - self.value * below_N) / max(float(np.mean(below_N)), 1e-12)


def plus_minus(value: float, error: float | None) -> str:
    """A number as tables show it, rounded where its error begins.

    >>> plus_minus(34.5678, 0.2345), plus_minus(254.21, 12.6), plus_minus(0.00836, 0.0013), plus_minus(0.5, None)
    ('34.57 ± 0.23', '254 ± 13', '0.0084 ± 0.0013', '0.5')
    """
    if not error or not math.isfinite(value + error):
        return f"{value:.4g}"
    decimals = min(max(1 - math.floor(math.log10(error)), 0), 4)
    return f"{value:.{decimals}f} ± {error:.{decimals}f}"


def jackknife_error(statistic: Callable[[Rows], float], count: int, blocks: int = BLOCKS) -> float | None:
    """Standard error of a statistic of `count` sentences that is no mean over them.

    The sentences are dealt out to blocks of equal size, the statistic is taken without each block in turn, and its
    spread gives the error [Efron and Tibshirani 1993, chapter 11]. That a statistic grows or falls with the number of
    sentences does no harm: all leave out equally many (or one more). No random numbers are needed.
    None for one sentence, and where too few are left for the statistic.

    It errs on the safe side where a statistic is near an end of its range, or near where it has no slope: 1.2 to 1.8
    times too large for distances of classes that do not differ, and for shares of distinct n-grams.

    Args:
        statistic: a function of the rows that are kept, which refuses too few of them.
        count: of sentences.
        blocks: at most so many; as many as sentences is the plain jackknife.
    """
    blocks = min(blocks, count)
    if blocks < 2:
        return None
    rows_N = np.arange(count)
    try:
        values_G = np.array([statistic(rows_N[rows_N % blocks != block]) for block in range(blocks)])
    except TextspaceError:
        return None
    return float(math.sqrt((blocks - 1) * values_G.var()))
