"""How long sentences are: the distribution that stands beside a decoder whose end token has no probability."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textspace.errors import TextspaceError

__all__ = ["METRIC", "Lengths"]

METRIC = "train_lengths"
"""Under which name a trained space keeps the counts in its metrics."""


class Lengths:
    """p(length), a length being a count of tokens without start and end, from the lengths of training sentences.

    One sentence's worth of mass is spread evenly over all lengths there can be, so that none of them is impossible.

    Args:
        counts: entry `i` says how many training sentences have `i` tokens; up to the longest there can be.

    >>> lengths = Lengths([0, 1, 2])
    >>> [round(float(p), 3) for p in np.exp(lengths.log_prob([0, 1, 2, 3]))]
    [0.083, 0.333, 0.583, 0.0]
    """

    def __init__(self, counts: Sequence[int] | NDArray[np.integer]) -> None:
        counts_L = np.asarray(counts, np.float64)
        if counts_L.ndim != 1 or not len(counts_L) or (counts_L < 0).any() or not counts_L.any():
            raise ValueError("lengths need a count, 0 or more, for each length, and one above 0")
        self.counts_L = counts_L
        self._p_L = (counts_L + 1 / len(counts_L)) / (counts_L.sum() + 1)

    @classmethod
    def of(cls, tokens_N: NDArray[np.integer], longest: int | None) -> Lengths:
        """From the token counts of training sentences; twice the longest seen where there is no longest allowed."""
        seen = int(tokens_N.max(initial=0))
        return cls(np.bincount(tokens_N, minlength=1 + max(seen, 2 * seen if longest is None else longest)))

    @classmethod
    def of_metrics(cls, metrics: Mapping[str, Any]) -> Lengths:
        """Those that a trained space keeps."""
        try:
            return cls(metrics[METRIC])
        except (KeyError, TypeError, ValueError):
            raise TextspaceError(
                "this space does not know how long its training sentences were: train it again with this version of "
                "textspace, or use another length rule"
            ) from None

    def to_list(self) -> list[int]:
        """The counts, for JSON."""
        return self.counts_L.astype(int).tolist()

    def log_prob(self, tokens_N: Sequence[int] | NDArray[np.integer]) -> NDArray[np.float64]:
        """log p of each length; minus infinity for one longer than there can be."""
        at_N = np.asarray(tokens_N, np.int64)
        p_N = np.where(at_N < len(self._p_L), self._p_L[np.minimum(at_N, len(self._p_L) - 1)], 0.0)
        with np.errstate(divide="ignore"):
            return np.log(p_N)

    def drawn(self, uniform_N: NDArray[np.floating[Any]]) -> NDArray[np.int64]:
        """A length for each uniform number between 0 and 1."""
        return np.minimum(np.searchsorted(self._p_L.cumsum(), uniform_N, side="right"), len(self._p_L) - 1)
