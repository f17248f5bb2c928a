"""How vectors of tokens lie: alike for all tokens, for one token in different sentences, or within a sentence.

Three cosines of Ethayarajh 2019 ("How contextual are contextualized word representations?"), each the mean over all
pairs there are and not over some that are drawn. Shape suffixes: N sentences, M tokens of all sentences, D dimensions,
W different tokens, B blocks of sentences. K is 1 + B: a number of all sentences, and without each block in turn.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textspace.errors import TextspaceError
from textspace.evaluate.statistics import BLOCKS, block_numbers

__all__ = ["FEWEST_SENTENCES", "Cosine", "Isotropy", "Ranked", "isotropy_of"]

FEWEST_SENTENCES = 5
"""Sentences that a token must occur in to have a self-similarity."""

_TOO_FEW = "tokens of different sentences are compared, which needs 2 sentences with tokens, and there is {}"

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Cosine(NamedTuple):
    """A mean of cosines, and its standard error; None where too few sentences are left without a block."""

    value: float
    stderr: float | None


class Ranked(NamedTuple):
    """A token by how alike its vectors in different sentences are."""

    token: int
    occurrences: int
    sentences: int
    similarity: float


@dataclass(frozen=True)
class Isotropy:
    """Cosines of token vectors, with standard errors by a jackknife over blocks of sentences.

    "Adjusted" is less the cosine of random tokens, sentence by sentence in the error too. None: no token, or no marked
    one, occurs in `FEWEST_SENTENCES`, or all sentences have one token.
    """

    random: Cosine
    """Of two tokens of different sentences."""
    self_tokens: Cosine | None
    """Of one token in different sentences; each token counts alike."""
    self_tokens_adjusted: Cosine | None
    self_occurrences: Cosine | None
    """The same, tokens counting as often as they occur."""
    self_occurrences_adjusted: Cosine | None
    intra: Cosine | None
    """Of a token with the mean of its sentence: mean over the sentences of two tokens or more."""
    intra_adjusted: Cosine | None
    intra_dealt: Cosine | None
    """The same after all tokens were dealt out anew to sentences of the same lengths. A token is part of the mean it is
    compared with, so that this is above the cosine of random tokens: 1 / sqrt(n) for n tokens at right angles. A block
    that is left out leaves gaps in all sentences, which makes the error a little too large (up to 1.3 times)."""
    intra_beyond_dealt: Cosine | None
    self_marked: Cosine | None
    """Self-similarity of marked tokens; each counts alike."""
    self_unmarked: Cosine | None
    self_marked_less_unmarked: Cosine | None
    ranked: list[Ranked]
    """The most contextual first: those of the lowest self-similarity."""
    length: float
    """Of a vector on average."""
    sentences: int
    tokens: int
    zeros: int
    """Tokens left out because their vector is zero and has no direction."""

    def marked_share(self, marked: Collection[int], most: int | None = None) -> float:
        """Share of marked tokens among the `most` contextual ones, or among all that are ranked."""
        among = self.ranked[:most]
        return sum(each.token in marked for each in among) / max(len(among), 1)


def isotropy_of(
    vectors: Sequence[NDArray[Any]],
    ids: Sequence[Sequence[int] | NDArray[Any]],
    *,
    marked: Collection[int] = (),
    unranked: Collection[int] = (),
    seed: int = 0,
) -> Isotropy:
    """Cosines of the token vectors of some sentences, whatever encoder they come from.

    Args:
        vectors: of each sentence (tokens, dimensions); without those of start, end and other special tokens.
        ids: which token each vector is of.
        marked: tokens whose self-similarity is compared with that of all others, such as function words.
        unranked: tokens without a self-similarity, such as that for unknown words, which is not one word.
        seed: of dealing out tokens anew.
    """
    lengths_N = np.array([len(each) for each in vectors], np.int64)
    if [len(each) for each in ids] != lengths_N.tolist():
        raise ValueError("as many vectors as tokens are needed in every sentence")
    if not lengths_N.any():
        raise TextspaceError(_TOO_FEW.format(0))
    vectors_MD = np.concatenate([np.asarray(each, np.float64) for each in vectors])
    token_M = np.concatenate([np.asarray(each, np.int64) for each in ids])
    sentence_M = np.repeat(np.arange(len(lengths_N)), lengths_N)
    norm_M = np.linalg.norm(vectors_MD, axis=1)
    there_M = norm_M > 0
    mean_length = float(norm_M.mean())
    vectors_MD, norm_M, token_M, sentence_M = (each[there_M] for each in (vectors_MD, norm_M, token_M, sentence_M))
    names_N, sentence_M = np.unique(sentence_M, return_inverse=True)
    if len(names_N) < 2:
        raise TextspaceError(_TOO_FEW.format(len(names_N)))
    blocks_N = block_numbers(len(names_N), min(BLOCKS, len(names_N)))
    units_MD = vectors_MD / norm_M[:, None]

    random_K = _apart(units_MD, np.zeros_like(token_M), sentence_M, blocks_N).similarity_KW[:, 0]
    names_W, number_M = np.unique(token_M, return_inverse=True)
    own = _apart(units_MD, number_M, sentence_M, blocks_N)
    ranked_W = (own.sentences_W >= FEWEST_SENTENCES) & ~np.isin(names_W, list(unranked))
    marked_W = np.isin(names_W, list(marked))
    tokens_K = own.mean(ranked_W)
    occurrences_K = own.mean(ranked_W, by_occurrence=True)
    marked_K, unmarked_K = own.mean(ranked_W & marked_W), own.mean(ranked_W & ~marked_W)
    block_M = blocks_N[sentence_M]
    intra_K = _intra(vectors_MD, units_MD, sentence_M, block_M)
    # The deal stays as it is: a block that is left out takes its own tokens with it, wherever they were dealt to.
    dealt_M = np.random.default_rng(seed).permutation(len(token_M))
    dealt_K = _intra(vectors_MD[dealt_M], units_MD[dealt_M], sentence_M, block_M[dealt_M])

    order = sorted(np.flatnonzero(ranked_W), key=lambda w: (own.similarity_KW[0, w], names_W[w]))
    return Isotropy(
        random=_jackknifed(random_K),
        self_tokens=_known(tokens_K),
        self_tokens_adjusted=_known(tokens_K - random_K),
        self_occurrences=_known(occurrences_K),
        self_occurrences_adjusted=_known(occurrences_K - random_K),
        intra=_known(intra_K),
        intra_adjusted=_known(intra_K - random_K),
        intra_dealt=_known(dealt_K),
        intra_beyond_dealt=_known(intra_K - dealt_K),
        self_marked=_known(marked_K),
        self_unmarked=_known(unmarked_K),
        self_marked_less_unmarked=_known(marked_K - unmarked_K),
        ranked=[
            Ranked(
                int(names_W[w]),
                int(own.occurrences_KW[0, w]),
                int(own.sentences_W[w]),
                float(own.similarity_KW[0, w]),
            )
            for w in order
        ],
        length=mean_length,
        sentences=len(names_N),
        tokens=len(token_M),
        zeros=int((~there_M).sum()),
    )


def _jackknifed(values_K: Floats) -> Cosine:
    """A number of all sentences, its error from those without each block in turn [Efron and Tibshirani 1993, 11]."""
    left_B = values_K[1:][~np.isnan(values_K[1:])]
    return Cosine(float(values_K[0]), float(np.sqrt((len(left_B) - 1) * left_B.var())) if len(left_B) > 1 else None)


def _known(values_K: Floats) -> Cosine | None:
    return None if np.isnan(values_K[0]) else _jackknifed(values_K)


class _Apart(NamedTuple):
    """Cosines of the tokens of each group, over all pairs of two in different sentences."""

    similarity_KW: Floats
    """Their mean; not a number where there is no such pair."""
    occurrences_KW: Floats
    sentences_W: Integers

    def mean(self, chosen_W: NDArray[np.bool_], by_occurrence: bool = False) -> Floats:
        """Over groups that have one; not a number where none has."""
        similarity_KW = self.similarity_KW[:, chosen_W]
        weight_KW = self.occurrences_KW[:, chosen_W] if by_occurrence else np.ones_like(similarity_KW)
        weight_KW = np.where(np.isnan(similarity_KW), 0, weight_KW)
        return _ratio((weight_KW * np.nan_to_num(similarity_KW)).sum(1), weight_KW.sum(1))


def _apart(units_MD: Floats, group_M: Integers, sentence_M: Integers, block_N: Integers) -> _Apart:
    """Cosines of all pairs add up to the squared length of the vectors' sum, from which pairs within a sentence go off.

    Without a block b that is |sum - sum_b|^2 = |sum|^2 - 2 sum . sum_b + |sum_b|^2.
    """
    groups, sentences, blocks = int(group_M.max()) + 1, len(block_N), int(block_N.max()) + 1
    # P: a group in a sentence, C: a group in a block; of each the sum of its vectors.
    pair_P, sums_PD, count_P = _summed(units_MD, group_M * sentences + sentence_M, np.ones(len(units_MD)))
    group_P, sentence_P = np.divmod(pair_P, sentences)
    cell_P = group_P * blocks + block_N[sentence_P]
    cell_C, sums_CD, _ = _summed(sums_PD, cell_P, count_P)
    group_C = cell_C // blocks
    _, sums_WD, _ = _summed(sums_CD, group_C, np.ones(len(group_C)))

    def by_block(values: Floats, cell: Integers) -> Floats:
        return np.bincount(cell, values, groups * blocks).astype(np.float64).reshape(groups, blocks).T

    within_BW, within_counts_BW = by_block((sums_PD**2).sum(1), cell_P), by_block(count_P**2, cell_P)
    count_BW = by_block(count_P, cell_P)
    whole_W = (sums_WD**2).sum(1)
    cross_C, square_C = (sums_CD * sums_WD[group_C]).sum(1), (sums_CD**2).sum(1)
    left_BW = whole_W + by_block(square_C - 2 * cross_C, cell_C)
    count_KW = _with_all(count_BW)
    cosines_KW = np.concatenate([whole_W[None], left_BW]) - _with_all(within_BW)
    pairs_KW = count_KW**2 - _with_all(within_counts_BW)
    return _Apart(_ratio(cosines_KW, pairs_KW), count_KW, np.bincount(group_P, minlength=groups))


def _intra(vectors_MD: Floats, units_MD: Floats, sentence_M: Integers, block_M: Integers) -> Floats:
    """Cosine of each token with the mean of its sentence, mean over sentences of two tokens or more.

    Those of a sentence add up to the product of its units' sum and its vectors' sum, over the length of the latter.
    `block_M` says with which block each token is left out.
    """
    blocks = int(block_M.max()) + 1
    # C: the tokens of a block in a sentence.
    cell_M = sentence_M * blocks + block_M
    cell_C, sums_CD, count_C = _summed(vectors_MD, cell_M, np.ones(len(vectors_MD)))
    _, units_CD, _ = _summed(units_MD, cell_M, np.ones(len(vectors_MD)))
    sentence_C, block_C = np.divmod(cell_C, blocks)
    _, sums_ND, count_N = _summed(sums_CD, sentence_C, count_C)
    _, units_ND, _ = _summed(units_CD, sentence_C, count_C)

    def cosines(sums: Floats, units: Floats, count: Floats) -> tuple[Floats, Floats]:
        """Of each sentence their mean, and 1; both 0 where there are fewer than two tokens."""
        length = np.linalg.norm(sums, axis=1)
        several = (count > 1).astype(np.float64)
        return several * (units * sums).sum(1) / np.where(length > 0, length, 1) / np.maximum(count, 1), several

    whole, left = (
        cosines(sums_ND, units_ND, count_N),
        cosines(sums_ND[sentence_C] - sums_CD, units_ND[sentence_C] - units_CD, count_N[sentence_C] - count_C),
    )
    # Without a block only the sentences that have tokens of it change.
    above_K, below_K = (
        np.concatenate([[of_N.sum()], of_N.sum() + np.bincount(block_C, of_C - of_N[sentence_C], blocks)])
        for of_N, of_C in zip(whole, left, strict=True)
    )
    return _ratio(above_K, below_K)


def _summed(values_MD: Floats, key_M: Integers, count_M: Floats) -> tuple[Integers, Floats, Floats]:
    """The keys there are, and for each of them the sum of its rows and of its counts."""
    order_M = np.argsort(key_M, kind="stable")
    keys, first = np.unique(key_M[order_M], return_index=True)
    return keys, np.add.reduceat(values_MD[order_M], first, axis=0), np.add.reduceat(count_M[order_M], first)


def _with_all(by_block: Floats) -> Floats:
    """Sums over blocks (B, ...): all of them, and all but each in turn (K, ...)."""
    all_of_it = by_block.sum(0, keepdims=True)
    return np.concatenate([all_of_it, all_of_it - by_block])


def _ratio(above: Floats, below: Floats) -> Floats:
    """Not a number where there is nothing below."""
    return np.divide(above, below, where=below > 0.5, out=np.full(np.shape(above), np.nan))
