"""Errors over few pairs that share sentences, against the spread over sentences drawn anew."""

import math

import numpy as np
import pytest

from textspace.evaluate.measures.pairwise import (
    FEW,
    code_distances,
    error_of_mean,
    error_of_pairs,
    pair_correlation,
    pairs_of,
    partners,
    random_pairs,
)


@pytest.mark.parametrize(("sentences", "pairs"), [(9, 1000), (20, 1000), (40, 60)])
def test_the_error_of_the_correlation_is_its_spread_also_for_few_sentences(chance, sentences: int, pairs: int) -> None:
    """To first order alone it is 0.6 of the spread at 9 sentences, and 0.75 at 20."""
    found = []
    for _ in range(300):
        points_NZ = chance.normal(size=(sentences, 3))
        pairs_P2 = random_pairs(np.zeros(sentences, np.int64), pairs, chance)
        x_P, y_P = (code_distances(points_NZ[:, columns], pairs_P2) for columns in ([0, 1], [0, 2]))
        found.append(pair_correlation(x_P, y_P, pairs_P2, sentences))
    told = math.sqrt(np.mean([one.stderr**2 for one in found]))
    assert 0.9 < told / np.std([one.value for one in found]) < 1.4


def test_the_error_goes_on_where_the_jackknife_over_few_sentences_ends(chance) -> None:
    errors = []
    for sentences in (FEW - 1, FEW):
        points_NZ = np.random.default_rng(0).normal(size=(FEW, 3))[:sentences]
        pairs_P2 = random_pairs(np.zeros(sentences, np.int64), 10**6, chance)
        x_P, y_P = (code_distances(points_NZ[:, columns], pairs_P2) for columns in ([0, 1], [0, 2]))
        errors.append(pair_correlation(x_P, y_P, pairs_P2, sentences).stderr)
    assert errors[0] == pytest.approx(errors[1], rel=0.2)


def test_a_correlation_that_hangs_on_one_sentence_has_no_error() -> None:
    pairs_P2 = np.array([[0, 1], [0, 2], [1, 2]])  # without a sentence one pair is left, which has no correlation
    found = pair_correlation(np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0]), pairs_P2, 3)
    assert found == (pytest.approx(0.5), None)


def test_both_orders_of_two_sentences_are_one_pair(chance) -> None:
    pairs_P2 = random_pairs(np.zeros(9, np.int64), 20, chance)
    terms_P, single_N = chance.normal(size=len(pairs_P2)), chance.normal(size=9)
    both = error_of_pairs(single_N, np.concatenate([terms_P, terms_P]), np.concatenate([pairs_P2, pairs_P2[:, ::-1]]))
    assert both == pytest.approx(error_of_pairs(single_N, 2 * terms_P, pairs_P2))


@pytest.mark.parametrize("sentences", [5, 9, 20])
@pytest.mark.parametrize("every", [True, False])
def test_the_error_of_a_mean_over_pairs_is_its_spread_also_for_few_sentences(sentences: int, every: bool) -> None:
    """Distances of random points, of all pairs or of neighbours in a ring: without the factor 0.55 to 0.9 of it."""
    means, errors = [], []
    for seed in range(600):
        random = np.random.default_rng(seed)
        points_NZ = random.normal(size=(sentences, 4))
        ring_P2 = pairs_of(partners(sentences, 1, random))
        pairs_P2 = random_pairs(np.zeros(sentences, np.int64), 1000, random) if every else ring_P2
        distances_P = code_distances(points_NZ, pairs_P2)
        means.append(distances_P.mean())
        errors.append(error_of_mean(distances_P, pairs_P2))
    assert math.sqrt(np.mean(np.square(errors))) == pytest.approx(np.std(means), rel=0.2)
    three = np.array([[0, 1], [1, 2], [2, 0]])
    assert error_of_mean(np.array([1.0, 2.0, 4.0]), three) is None
