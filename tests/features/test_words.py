"""Words that belong to one side: against a hand computation, without a prior, and by chance alone."""

import math

import numpy as np
import pytest

from textspace.features.words import FEWEST, PRIOR_WORDS, WordCounts, log_odds


def test_log_odds_by_hand() -> None:
    """30 of 100 words against 10 of 50, the prior worth 4 of 20."""
    ratio_W, z_W = log_odds(np.array([30.0]), np.array([10.0]), 100, 50, np.array([4.0]), 20)
    by_hand = math.log(34 / 86) - math.log(14 / 56)
    assert ratio_W[0] == pytest.approx(by_hand)
    assert z_W[0] == pytest.approx(by_hand / math.sqrt(1 / 34 + 1 / 14))


def test_a_strong_prior_says_nothing_and_a_weak_one_leaves_the_counts() -> None:
    first_W, second_W, shares_W = np.array([30.0, 70.0]), np.array([10.0, 40.0]), np.array([0.3, 0.7])
    weak_W, _ = log_odds(first_W, second_W, 100, 50, 1e-9 * shares_W, 1e-9)
    assert weak_W[0] == pytest.approx(math.log(30 / 70) - math.log(10 / 40))
    strong_W, z_W = log_odds(first_W, second_W, 100, 50, 1e9 * shares_W, 1e9)
    assert np.abs(strong_W).max() < 1e-6
    assert np.abs(z_W).max() < 1e-3


def test_by_chance_alone_z_is_standard_normal_at_most() -> None:
    """Words of sentences that are on at random: z has a deviation of 1 with little prior, and less with more."""
    chance = np.random.default_rng(0)
    counts_NW = chance.poisson(0.3, (3_000, 400)).astype(float)
    first_N = chance.random(3_000) < 0.3
    first_W, second_W = counts_NW[first_N].sum(0), counts_NW[~first_N].sum(0)
    share_W = counts_NW.sum(0) / counts_NW.sum()
    deviations = []
    for prior in (1e-6, 1e5):
        _, z_W = log_odds(first_W, second_W, first_W.sum(), second_W.sum(), prior * share_W, prior)
        deviations.append(z_W.std())
    assert deviations[0] == pytest.approx(1.0, abs=0.12)  # 3 standard errors
    assert deviations[1] < deviations[0]


def test_the_planted_word_comes_first_with_its_counts() -> None:
    first_N = np.arange(200) % 4 == 0
    texts = [f"the {'soup' if on else 'boat'} is {'hot' if row % 3 else 'cold'}" for row, on in enumerate(first_N)]
    on, off = WordCounts(texts).contrast(first_N, ~first_N, most=5)
    assert [each.word for each in on] == ["soup"]
    assert [each.word for each in off] == ["boat"]
    assert (on[0].count, on[0].other, off[0].count, off[0].other) == (50, 0, 150, 0)
    # Each has a quarter of 800 words in one side: the prior is worth 500 x 50 / 800 soups among 500 words.
    prior = PRIOR_WORDS * 50 / 800
    ratio = math.log((50 + prior) / (200 + 500 - 50 - prior)) - math.log(prior / (600 + 500 - prior))
    assert on[0].log_odds == pytest.approx(ratio)
    assert on[0].z == pytest.approx(ratio / math.sqrt(1 / (50 + prior) + 1 / prior))


def test_turned_round_the_sides_change_places() -> None:
    chance = np.random.default_rng(1)
    texts = [" ".join(chance.choice(list("abcdefgh"), 9)) for _ in range(300)]
    first_N = np.array(["a b" in text for text in texts])
    words = WordCounts(texts)
    assert words.contrast(first_N, ~first_N, 4) == words.contrast(~first_N, first_N, 4)[::-1]
    assert words.contrast(first_N, ~first_N, 4)[0][0].word in "ab"


def test_rare_words_are_not_compared_but_counted() -> None:
    texts = ["x often"] * (FEWEST - 1) + ["often y y"] * FEWEST
    words = WordCounts(texts)
    assert words.words == ["often", "y"]
    assert words._total == 2 * (FEWEST - 1) + 3 * FEWEST


@pytest.mark.parametrize("texts", [["one", "one"], ["", " "], ["a"] * 20])
def test_little_text_says_nothing(texts: list[str]) -> None:
    first_N = np.arange(len(texts)) == 0
    assert WordCounts(texts).contrast(first_N, ~first_N, 3) == ((), ())
