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
        counts: entry `i` says how many training sentences have `i` tokens.
        longest: the most tokens there can be; where it is not given, those of the last of the counts.

    >>> lengths = Lengths([0, 1, 2])
    >>> [round(float(p), 3) for p in np.exp(lengths.log_prob([0, 1, 2, 3]))]
    [0.083, 0.333, 0.583, 0.0]
    >>> [round(float(p), 3) for p in np.exp(Lengths([0, 1, 2], longest=3).log_prob([0, 1, 2, 3]))]
    [0.062, 0.312, 0.562, 0.062]
    """

    def __init__(self, counts: Sequence[int] | NDArray[np.integer], longest: int | None = None) -> None:
        counts_L = np.asarray(counts, np.float64)
        if counts_L.ndim != 1 or not len(counts_L) or (counts_L < 0).any() or not counts_L.any():
            raise ValueError("lengths need a count, 0 or more, for each length, and one above 0")
        self.longest = len(counts_L) - 1 if longest is None else int(longest)
        if self.longest < len(counts_L) - 1:
            raise ValueError(f"there are counts of sentences longer than {longest} tokens")
        self.counts_L = counts_L
        share, mass = 1 / (self.longest + 1), counts_L.sum() + 1
        self._p_L, self._p_beyond = (counts_L + share) / mass, share / mass

    @classmethod
    def of(cls, tokens_N: NDArray[np.integer], longest: int | None) -> Lengths:
        """From the token counts of training sentences; twice the longest seen where there is no longest allowed."""
        seen = int(tokens_N.max(initial=0))
        return cls(np.bincount(tokens_N), max(seen, 2 * seen if longest is None else longest))

    @classmethod
    def of_metrics(cls, metrics: Mapping[str, Any]) -> Lengths:
        """Those that a trained space keeps; one of an earlier version has a count for each length there can be."""
        try:
            kept = metrics[METRIC]
            return cls(**kept) if isinstance(kept, Mapping) else cls(kept)
        except (KeyError, OverflowError, TypeError, ValueError):
            raise TextspaceError(
                "this space does not know how long its training sentences were: train it again with this version of "
                "textspace, or use another length rule"
            ) from None

    def to_dict(self) -> dict[str, Any]:
        """For JSON, and for `of_metrics`."""
        return {"counts": self.counts_L.astype(int).tolist(), "longest": self.longest}

    def log_prob(self, tokens_N: Sequence[int] | NDArray[np.integer]) -> NDArray[np.float64]:
        """log p of each length; minus infinity for one longer than there can be."""
        at_N = np.asarray(tokens_N, np.int64)
        last = len(self._p_L) - 1
        p_beyond_N = np.where(at_N <= self.longest, self._p_beyond, 0.0)
        p_N = np.where(at_N <= last, self._p_L[np.minimum(at_N, last)], p_beyond_N)
        with np.errstate(divide="ignore"):
            return np.log(p_N)

    def drawn(self, uniform_N: NDArray[np.floating[Any]]) -> NDArray[np.int64]:
        """A length for each uniform number between 0 and 1."""
        below_L = self._p_L.cumsum()
        counted_N = np.searchsorted(below_L, uniform_N, side="right")
        beyond_N = ((uniform_N - below_L[-1]) / self._p_beyond).clip(0).astype(np.int64)  # all are equally likely
        return np.minimum(counted_N + beyond_N, self.longest)
