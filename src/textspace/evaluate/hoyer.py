"""How few dimensions a code uses: Hoyer of a vector, and the average Hoyer of many."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from textspace.evaluate.statistics import ROUNDING

__all__ = ["AVERAGE_HOYER", "Hoyer", "average_hoyer", "deviations", "hoyer"]

AVERAGE_HOYER = "average Hoyer (0 dense, 1 one dimension each)"
"""How the names of estimates begin; what the codes are follows."""

Floats = NDArray[np.float64]


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
