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
    "OVER_SENTENCES",
    "ROUNDING",
    "SAFE_SIDE",
    "Ratio",
    "block_numbers",
    "jackknife_error",
    "some_rows",
    "standard_error",
]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

BLOCKS = 50
"""Parts of the sentences that a jackknife leaves out in turn."""

FEWEST_BLOCKS, BLOCK_SENTENCES = 20, 20
"""`standard_error` also takes the error over blocks where there are at least so many, each of so many sentences."""

OVER_SENTENCES = "standard error over sentences"
"""What settings say of errors that `standard_error` gives."""

ROUNDING = 1e-6
"""Codes that differ by less than this share of the longest one are equal but for rounding in float32."""


SAFE_SIDE = "rather too large than too small"
"""What settings say of the errors that `jackknife_error` makes too large."""


def some_rows(count: int, limit: int) -> Integers:
    """At most `limit` of `count` rows in their order, drawn at random: the same at every call.

    Rows at equal distances would be of one kind alone in text that repeats itself, as captions do of which each picture
    has five, the longest first.

    >>> some_rows(10, 4).tolist(), some_rows(3, 4).tolist()
    ([1, 2, 3, 6], [0, 1, 2])
    """
    if limit >= count:
        return np.arange(count)
    return np.sort(np.random.Generator(np.random.Philox(key=count)).choice(count, limit, replace=False))


def block_starts(count: int, blocks: int) -> Integers:
    """Where each of so many stretches of `count` rows begins, all equally long but for one row; `count` at the end.

    >>> block_starts(10, 4).tolist()
    [0, 2, 5, 7, 10]
    """
    return np.arange(blocks + 1) * count // blocks


def block_numbers(count: int, blocks: int) -> Integers:
    """In which of these stretches each row lies.

    >>> block_numbers(5, 2).tolist()
    [0, 0, 1, 1, 1]
    """
    return np.repeat(np.arange(blocks), np.diff(block_starts(count, blocks)))


def standard_error(values_N: Floats) -> float | None:
    """Of a mean over sentences in the order of their text; None where there are fewer than two.

    The larger of two: that of independent values, and where there are many that of stretches of text. A sentence of
    running text is like its neighbours: on Penn Treebank the first is half of the second, for a likelihood and for
    the difference of two. Where sentences are independent, the larger of the two is 3 to 6 percent too large.
    """
    if len(values_N) < 2:
        return None
    with np.errstate(invalid="ignore"):  # of infinite values it is not a number
        alone = float(np.std(values_N, ddof=1) / math.sqrt(len(values_N)))
        blocks = min(BLOCKS, len(values_N) // BLOCK_SENTENCES)
        if blocks < FEWEST_BLOCKS or not math.isfinite(alone):
            return alone
        return max(alone, _error_left_out(_means_without_each_block(np.asarray(values_N, np.float64), blocks)))


def _means_without_each_block(values_N: Floats, blocks: int) -> Floats:
    starts_B = block_starts(len(values_N), blocks)
    left_G = len(values_N) - np.diff(starts_B)
    return (values_N.sum() - np.add.reduceat(values_N, starts_B[:-1])) / left_G


def _error_left_out(values_G: Floats) -> float:
    """The jackknife's, from a statistic without each block in turn."""
    return float(math.sqrt((len(values_G) - 1) * values_G.var()))


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


def jackknife_error(statistic: Callable[[Integers], float], count: int, blocks: int = BLOCKS) -> float | None:
    """Standard error of a statistic of `count` sentences that is no mean over them.

    The text is cut into stretches of equal length, the statistic is taken without each of them in turn, and its
    spread gives the error [Efron and Tibshirani 1993, chapter 11]. That a statistic grows or falls with the number of
    sentences does no harm: all leave out equally many (or one more). Since neighbours stay together, it holds for
    running text too. None for one sentence, and where too few are left for the statistic.

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
    block_N = block_numbers(count, blocks)
    try:
        values_G = np.array([statistic(np.flatnonzero(block_N != block)) for block in range(blocks)])
    except TextspaceError:
        return None
    return _error_left_out(values_G)
