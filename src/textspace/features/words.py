"""Which words some sentences have more often than others: log-odds ratios with an informative prior."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from textspace.features.results import Word

__all__ = ["FEWEST", "PRIOR_WORDS", "WordCounts", "log_odds"]

PRIOR_WORDS = 500.0
"""Words that the prior is worth on each side: so many, drawn as all sentences have them."""

FEWEST = 5
"""Occurrences of a word below which the prior outweighs them anyway, and it is not compared."""

MOST_WORDS = 20_000
"""Words that are compared at most, the most frequent."""

NOT_BY_CHANCE = 1.96
"""Deviations from 0 below which a log-odds ratio is not shown."""

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def log_odds(
    first_W: Floats, second_W: Floats, first_total: float, second_total: float, prior_W: Floats, prior_total: float
) -> tuple[Floats, Floats]:
    """Log-odds ratio of each word between two texts, and its z-score [Monroe, Colaresi and Quinn 2008].

    log((y1 + a) / (n1 + a0 - y1 - a)) - log((y2 + a) / (n2 + a0 - y2 - a)), variance 1 / (y1 + a) + 1 / (y2 + a)

    Args:
        first_W, second_W: occurrences of each word, y.
        first_total, second_total: of all words, also those not compared, n.
        prior_W, prior_total: the Dirichlet prior's pseudo-counts, a, and the sum of all, a0.
    """
    logits = []
    for counts_W, total in ((first_W, first_total), (second_W, second_total)):
        smoothed_W = counts_W + prior_W
        rest_W = np.maximum(total + prior_total - smoothed_W, np.finfo(float).tiny)  # 0 where there is one word only
        logits.append(np.log(smoothed_W) - np.log(rest_W))
    ratio_W = logits[0] - logits[1]
    return ratio_W, ratio_W / np.sqrt(1 / (first_W + prior_W) + 1 / (second_W + prior_W))


class WordCounts:
    """How often each sentence has each word (by whitespace)."""

    def __init__(self, sentences: Iterable[str]) -> None:
        number: dict[str, int] = {}
        columns: list[int] = []
        counts: list[int] = []
        starts = [0]
        for text in sentences:
            for word, count in Counter(text.split()).items():
                columns.append(number.setdefault(word, len(number)))
                counts.append(count)
            starts.append(len(columns))
        every_NW = sparse.csr_matrix((np.array(counts, np.float64), columns, starts), (len(starts) - 1, len(number)))
        totals_W = np.asarray(every_NW.sum(0)).ravel()
        frequent = np.flatnonzero(totals_W >= FEWEST)
        kept = np.sort(frequent[np.argsort(-totals_W[frequent], kind="stable")][:MOST_WORDS])
        names = list(number)
        self.words: Sequence[str] = [names[word] for word in kept]
        self._counts_WN = every_NW[:, kept].T.tocsr()
        self._lengths_N = np.asarray(every_NW.sum(1)).ravel()
        self._totals_W, self._total = totals_W[kept], float(totals_W.sum())

    def contrast(self, first_N: Bools, second_N: Bools, most: int) -> tuple[tuple[Word, ...], tuple[Word, ...]]:
        """The words over-represented in some sentences against others, and those in the others, each by falling z."""
        first_W, second_W = (self._counts_WN @ of_N.astype(np.float64) for of_N in (first_N, second_N))
        first_total, second_total = (float(self._lengths_N[of_N].sum()) for of_N in (first_N, second_N))
        prior_W = PRIOR_WORDS * self._totals_W / max(self._total, 1.0)
        ratio_W, z_W = log_odds(first_W, second_W, first_total, second_total, prior_W, PRIOR_WORDS)

        def strongest(sign: int, here_W: Floats, there_W: Floats) -> tuple[Word, ...]:
            order = np.argsort(-sign * z_W, kind="stable")[:most]
            return tuple(
                Word(
                    self.words[word],
                    float(sign * z_W[word]),
                    float(sign * ratio_W[word]),
                    int(here_W[word]),
                    int(there_W[word]),
                )
                for word in order
                if sign * z_W[word] > NOT_BY_CHANCE
            )

        return strongest(1, first_W, second_W), strongest(-1, second_W, first_W)
