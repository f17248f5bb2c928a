"""How few dimensions a code uses: Hoyer of a vector, and the average Hoyer of many."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from textspace.evaluate.statistics import BLOCKS, ROUNDING, block_numbers

__all__ = ["AVERAGE_HOYER", "Hoyer", "average_hoyer", "deviations", "hoyer", "hoyer_error"]

AVERAGE_HOYER = "average Hoyer (0 dense, 1 one dimension each)"
"""How the names of estimates begin; what the codes are follows."""

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def hoyer(codes_NZ: Floats) -> Floats:
    """(sqrt(d) - l1 / l2) / (sqrt(d) - 1) of each vector [Hoyer 2004]; not a number for a vector of zeros.

    1 for a vector with one dimension that is not 0, 0 for one whose dimensions are all equally large.

    >>> hoyer(np.array([[0.0, 3.0, 0.0, 0.0], [2.0, -2.0, 2.0, 2.0]])).tolist()
    [1.0, 0.0]
    """
    root = math.sqrt(codes_NZ.shape[1])
    l1_N, l2_N = np.abs(codes_NZ).sum(1), np.sqrt((codes_NZ**2).sum(1))
    ratio_N = np.divide(l1_N, l2_N, where=l2_N > 0, out=np.full(len(codes_NZ), np.nan))
    return (root - ratio_N) / (root - 1)


def deviations(codes_NZ: Floats) -> Floats:
    """Deviation of each dimension over the sentences; exactly 0 where it is no more than rounding."""
    deviation_Z = codes_NZ.std(0)
    return np.where(deviation_Z > ROUNDING * np.abs(codes_NZ).max(0), deviation_Z, 0)


class Hoyer(NamedTuple):
    """Hoyer of the codes of some sentences, and what had none."""

    values_N: Floats
    """Of each sentence; not a number where its code is zero."""
    dead: int
    """Dimensions that never change."""

    @property
    def there_M(self) -> Floats:
        return self.values_N[~np.isnan(self.values_N)]

    @property
    def zeros(self) -> int:
        """Sentences whose code is zero in every dimension."""
        return len(self.values_N) - len(self.there_M)


def average_hoyer(codes_NZ: Floats) -> Hoyer:
    """Hoyer of codes whose dimensions are divided by their deviations over the sentences, and not centred.

    So no dimension counts for more because it is measured on a larger scale. One that never changes has no deviation
    to be divided by, and counts as 0.
    """
    deviation_Z = deviations(codes_NZ)
    scaled_NZ = np.divide(codes_NZ, deviation_Z, where=deviation_Z > 0, out=np.zeros_like(codes_NZ))
    return Hoyer(hoyer(scaled_NZ), int((deviation_Z == 0).sum()))


def hoyer_error(codes_NZ: Floats, sentence_N: Integers | None = None) -> float | None:
    """Standard error of the mean of `average_hoyer` by a jackknife over blocks of sentences; None for too few.

    A deviation is estimated from the same codes and moves the Hoyer of all sentences at once, which the spread of their
    values does not show: without each block the deviations are taken anew. `sentence_N` says which codes are of one
    sentence, where it has several: they are left out together.
    """
    count, dims = codes_NZ.shape
    _, number_N = np.unique(np.arange(count) if sentence_N is None else sentence_N, return_inverse=True)
    blocks = min(BLOCKS, int(number_N.max(initial=-1)) + 1)
    if blocks < 2:
        return None
    block_N = block_numbers(int(number_N.max()) + 1, blocks)[number_N]
    kept_BN = (block_N != np.arange(blocks)[:, None]).astype(np.float64)
    left_B1 = kept_BN.sum(1, keepdims=True)
    work_NZ = codes_NZ - codes_NZ.mean(0)  # used again and again: memory costs more here than arithmetic
    mean_BZ = kept_BN @ work_NZ / left_B1
    variance_BZ = kept_BN @ np.square(work_NZ, out=work_NZ) / left_B1 - mean_BZ**2
    deviation_BZ = np.sqrt(variance_BZ.clip(min=0))
    np.abs(codes_NZ, out=work_NZ)
    alive_BZ = deviation_BZ > ROUNDING * work_NZ.max(0)
    scale_ZB = np.divide(1, deviation_BZ, where=alive_BZ, out=np.zeros_like(deviation_BZ)).T
    # All scalings at once: l1 and l2 of a scaled code are products of its sizes, or squares, with the scales.
    l1_NB = work_NZ @ scale_ZB
    l2_NB = np.sqrt(np.square(work_NZ, out=work_NZ) @ scale_ZB**2)
    there_NB = kept_BN.T * (l2_NB > 0)
    ratio_B = (there_NB * l1_NB / np.where(l2_NB > 0, l2_NB, 1)).sum(0) / np.maximum(there_NB.sum(0), 1)
    if not there_NB.any(0).all():
        return None
    return float(np.sqrt((blocks - 1) * ratio_B.var()) / (math.sqrt(dims) - 1))
