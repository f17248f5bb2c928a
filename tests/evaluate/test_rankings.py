"""Ranks and their quality against enumeration, chance, and sums by hand."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest

from textspace.data.questions import Question
from textspace.evaluate.rankings import Quality, bm25, chance, counts_of, quality, ranks, word_overlap


def test_a_constructed_case_has_the_quality_counted_by_hand() -> None:
    counts_Q = np.array([3, 2, 4])
    ranks_N = np.array([2, 1, 3, 1, 2, 4, 2, 3, 1])
    right_N = np.array([True, False, False, True, False, True, True, False, False])
    found = quality(ranks_N, right_N, counts_Q)
    assert found.p_at_1_Q.tolist() == [0, 1, 0]
    assert found.mrr_Q.tolist() == [1 / 2, 1, 1 / 2]
    assert found.map_Q.tolist() == [1 / 2, 1, (1 / 2 + 2 / 4) / 2]


@pytest.mark.parametrize(("n", "m"), [(n, m) for n in range(1, 6) for m in range(1, n + 1)])
def test_chance_is_the_mean_over_all_orders(n: int, m: int) -> None:
    right_N = np.arange(n) < m
    all_orders = [quality(np.array(order) + 1, right_N, np.array([n])) for order in permutations(range(n))]
    expected = [np.mean([values[k] for values in all_orders]) for k in range(3)]
    assert np.allclose(np.concatenate(chance(np.array([n]), np.array([m]))), expected, atol=1e-12)


def test_chance_of_many_answers() -> None:
    """With half of very many right it is that of coins: E 1 / rank = ln 2."""
    found = chance(np.array([40_000]), np.array([20_000]))
    assert found.mrr_Q[0] == pytest.approx(np.log(2), abs=1e-4)


def far_apart(found: Quality, expected: Quality) -> np.ndarray:
    """In standard errors, of each of the three."""
    return np.array(
        [
            abs(values_Q.mean() - known_Q.mean()) / (values_Q.std(ddof=1) / math.sqrt(len(values_Q)))
            for values_Q, known_Q in zip(found, expected, strict=True)
        ]
    )


def test_random_scores_are_at_chance() -> None:
    counts_Q, right_N = np.full(2000, 5), np.tile([True, True, False, False, False], 2000)
    random_N = np.random.default_rng(1).normal(size=10_000)
    assert (
        far_apart(quality(ranks(random_N, counts_Q), right_N, counts_Q), chance(counts_Q, counts_Q * 0 + 2)) < 3
    ).all()


def test_equal_scores_do_not_favour_the_first_answer() -> None:
    counts_Q, right_N = np.full(2000, 4), np.tile([True, False, False, False], 2000)
    found = quality(ranks(np.zeros(8000), counts_Q, seed=5), right_N, counts_Q)
    assert (far_apart(found, chance(counts_Q, counts_Q * 0 + 1)) < 3).all()
    assert (ranks(np.zeros(8000), counts_Q, seed=5) == ranks(np.zeros(8000), counts_Q, seed=5)).all()
    assert (ranks(np.zeros(8000), counts_Q, seed=5) != ranks(np.zeros(8000), counts_Q, seed=6)).any()


def test_ranks_follow_scores_in_both_directions() -> None:
    scores_N, counts_Q = np.array([0.5, 0.1, 0.9, 2.0, 3.0]), np.array([3, 2])
    assert ranks(scores_N, counts_Q).tolist() == [2, 3, 1, 2, 1]
    assert ranks(scores_N, counts_Q, lowest_first=True).tolist() == [2, 1, 3, 1, 2]


# Words

QUESTIONS = [
    Question("Who sees the cats?", ("the cats see the dogs", "Anna sees cats.")),
    Question("what <unk> is _UNK", ("it _UNK is", "Anna sees cats.")),
]


def test_overlap_counts_different_words_whatever_their_case_and_no_unknown_ones() -> None:
    assert counts_of(QUESTIONS).tolist() == [2, 2]
    assert word_overlap(QUESTIONS).tolist() == [2, 2, 1, 0]


def test_bm25_against_a_sum_by_hand() -> None:
    # The different answers: 5, 3 and 2 words, so 10 / 3 on average.
    def part(with_word: int, count: int, length: int) -> float:
        idf = math.log(1 + (3 - with_word + 0.5) / (with_word + 0.5))
        return idf * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * length / (10 / 3)))

    expected = [
        part(1, 2, 5) + part(2, 1, 5),  # the, cats
        part(1, 1, 3) + part(2, 1, 3),  # sees, cats
        part(1, 1, 2),  # is
        0.0,
    ]
    assert bm25(QUESTIONS) == pytest.approx(expected, rel=1e-12)


def test_answers_without_any_word_score_nothing() -> None:
    questions = [Question("who ?", ("...", "!"))]
    assert word_overlap(questions).tolist() == bm25(questions).tolist() == [0, 0]
