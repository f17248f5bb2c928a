"""Answers put in order: ranks, how good they are, what chance gives, and two rankings by words alone.

Arrays over pairs (N) hold the answers of all questions (Q) end to end, as many of each as `counts_Q` says.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from textspace.data.questions import Question
from textspace.data.tokenizers import UNKNOWN_ALIASES
from textspace.noise import Noise

__all__ = ["MEASURED", "Quality", "bm25", "chance", "counts_of", "quality", "ranks", "word_overlap"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

MEASURED = {"p_at_1": "P@1", "mrr": "MRR", "map": "MAP"}

SATURATION, LENGTH_SHARE = 1.2, 0.75
"""BM25's k1 and b."""

_UNKNOWN = re.compile("|".join(map(re.escape, UNKNOWN_ALIASES)))


class Quality(NamedTuple):
    """How good the order of each question's answers is; means over questions are P@1, MRR and MAP."""

    p_at_1_Q: Floats
    """1 where the first answer is right."""
    mrr_Q: Floats
    """1 / rank of the first right answer."""
    map_Q: Floats
    """Mean over right answers of the share of right ones up to and with it (average precision)."""

    def only(self, kept_Q: Bools) -> Quality:
        return Quality(*(values_Q[kept_Q] for values_Q in self))


def counts_of(questions: Sequence[Question]) -> Ints:
    """Answers of each question."""
    return np.array([len(question.answers) for question in questions], np.int64)


def ranks(scores_N: Floats, counts_Q: Ints, *, lowest_first: bool = False, seed: int = 0) -> Ints:
    """The rank of each answer among those of its question, from 1: the highest score first, or the lowest.

    Equal scores come in an order shuffled with keyed noise, so that where an answer stands in a file is of no help.

    >>> ranks(np.array([0.1, 0.7, 0.3, 5.0]), np.array([3, 1])).tolist()
    [3, 1, 2, 1]
    """
    question_N = np.arange(len(counts_Q)).repeat(counts_Q)
    tie_N = Noise(seed, 0, torch.arange(len(scores_N))).uniform("ties", (), 1)[0].numpy()
    order_N = np.lexsort((tie_N, scores_N if lowest_first else -scores_N, question_N))
    ranks_N = np.empty(len(scores_N), np.int64)
    ranks_N[order_N] = np.arange(len(scores_N)) - _starts(counts_Q).repeat(counts_Q) + 1
    return ranks_N


def quality(ranks_N: Ints, right_N: Bools, counts_Q: Ints) -> Quality:
    """Of rankings; every question has a right answer.

    >>> quality(np.array([3, 1, 2]), np.array([True, False, True]), np.array([3]))
    Quality(p_at_1_Q=array([0.]), mrr_Q=array([0.5]), map_Q=array([0.58333333]))
    """
    starts_Q = _starts(counts_Q)
    order_N = np.lexsort((ranks_N, np.arange(len(counts_Q)).repeat(counts_Q)))
    right_N = right_N[order_N]
    rank_N = ranks_N[order_N]
    so_far_N = right_N.cumsum()
    so_far_N = so_far_N - (so_far_N - right_N)[starts_Q].repeat(counts_Q)
    first_Q = np.minimum.reduceat(np.where(right_N, rank_N, len(rank_N) + 1), starts_Q)
    precision_Q = np.add.reduceat(right_N * so_far_N / rank_N, starts_Q) / np.add.reduceat(right_N, starts_Q, dtype=int)
    return Quality((first_Q == 1).astype(float), 1 / first_Q, precision_Q)


def chance(counts_Q: Ints, right_Q: Ints) -> Quality:
    """What a random order gives on average, exactly.

    With m of n answers right, the first right one is at rank 1 with probability m / n and at rank r + 1 with
    (n - m - r + 1) / (n - r) times that at rank r; and rank r holds a right answer that finds
    (r - 1) (m - 1) / (n - 1) others above it.

    >>> [values_Q.round(4).tolist() for values_Q in chance(np.array([3, 4]), np.array([1, 4]))]
    [[0.3333, 1.0], [0.6111, 1.0], [0.6111, 1.0]]
    """
    reciprocal = []
    for n, m in zip(counts_Q.tolist(), right_Q.tolist(), strict=True):
        rank_R = np.arange(1, n - m + 1)
        first_R = m / n * np.cumprod(np.append(1.0, (n - m - rank_R + 1) / (n - rank_R)))
        reciprocal.append(math.fsum(first_R / np.arange(1, n - m + 2)))
    precision = [
        math.fsum((1 + (r - 1) * (m - 1) / max(n - 1, 1)) / r for r in range(1, n + 1)) / n
        for n, m in zip(counts_Q.tolist(), right_Q.tolist(), strict=True)
    ]
    return Quality(right_Q / counts_Q, np.array(reciprocal), np.array(precision))


def _starts(counts_Q: Ints) -> Ints:
    return counts_Q.cumsum() - counts_Q


# By words alone


def _words(text: str) -> list[str]:
    """Words in lower case, without those that a corpus writes for unknown ones."""
    return re.findall(r"\w+", _UNKNOWN.sub(" ", text).lower())


def word_overlap(questions: Sequence[Question]) -> Floats:
    """How many different words of its question each answer has."""
    question_NV, answer_NV, _ = _counted(questions)
    return np.asarray((question_NV > 0).multiply(answer_NV > 0).sum(1), float).ravel()


def bm25(questions: Sequence[Question]) -> Floats:
    """Okapi BM25 of each answer [Robertson and Zaragoza 2009], every different word of the question counted once.

    With f the count of a word in an answer of length l, N different answers of mean length L, and n of them with the
    word: sum of log(1 + (N - n + 1/2) / (n + 1/2)) f (k + 1) / (f + k (1 - b + b l / L)), k = 1.2 and b = 0.75.
    """
    question_NV, answer_NV, document_AV = _counted(questions)
    documents, lengths_A = document_AV.shape[0], np.asarray(document_AV.sum(1)).ravel()
    with_word_V = np.asarray((document_AV > 0).sum(0)).ravel()
    idf_V = np.log1p((documents - with_word_V + 0.5) / (with_word_V + 0.5))
    lengths_N = np.asarray(answer_NV.sum(1)).ravel() / max(lengths_A.mean(), 1e-12)
    weights_NV = answer_NV.astype(float)
    inside_D = SATURATION * (1 - LENGTH_SHARE + LENGTH_SHARE * lengths_N.repeat(np.diff(weights_NV.indptr)))
    weights_NV.data *= idf_V[weights_NV.indices] * (SATURATION + 1) / (weights_NV.data + inside_D)
    return np.asarray((question_NV > 0).multiply(weights_NV).sum(1), float).ravel()


def _counted(questions: Sequence[Question]) -> tuple[csr_matrix, csr_matrix, csr_matrix]:
    """Counts of words: of each pair's question, of its answer, and of each different answer."""
    from sklearn.feature_extraction.text import CountVectorizer

    answers = [answer for question in questions for answer in question.answers]
    row_of = {answer: row for row, answer in enumerate(dict.fromkeys(answers))}
    vocabulary = sorted({word for answer in row_of for word in _words(answer)}) or [""]
    vectorizer = CountVectorizer(analyzer=_words, vocabulary=vocabulary)
    document_AV = csr_matrix(vectorizer.transform(row_of))
    question_QV = csr_matrix(vectorizer.transform([question.text for question in questions]))
    question_N = np.arange(len(questions)).repeat(counts_of(questions))
    return question_QV[question_N], document_AV[[row_of[answer] for answer in answers]], document_AV
