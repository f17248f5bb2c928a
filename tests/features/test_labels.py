"""What a yes or no tells about classes: known tables, and the null against labels really shuffled."""

import math

import numpy as np
import pytest

from textspace.features.labels import SHUFFLES, association, mutual_information


def test_information_of_known_tables() -> None:
    all_C = np.array([50, 50])
    assert mutual_information(np.array([[25, 25], [50, 0], [10, 30]]), all_C) == pytest.approx(
        [
            0.0,
            math.log(2),
            0.1 * math.log(0.1 / 0.2)
            + 0.3 * math.log(0.3 / 0.2)
            + 0.4 * math.log(0.4 / 0.3)
            + 0.2 * math.log(0.2 / 0.3),
        ]
    )


def test_a_class_that_is_always_on() -> None:
    """On in all 20 of one class and in 10 of the 80 others: the entropy of on less what is left within the others."""
    found = association(np.array([20, 10]), np.array([20, 80]), ["soup", "boat"], seed=0)
    assert found is not None
    entropy = -(0.3 * math.log(0.3) + 0.7 * math.log(0.7))
    left = -0.8 * (1 / 8 * math.log(1 / 8) + 7 / 8 * math.log(7 / 8))
    assert found.information == pytest.approx(entropy - left)
    assert (found.label, found.lift) == ("soup", pytest.approx(1 / 0.3))
    assert found.shares == {"soup": 1.0, "boat": 0.125}
    assert found.p == 1 / (1 + SHUFFLES)
    assert found.excess == found.information - found.shuffled


def test_the_null_is_that_of_shuffled_labels() -> None:
    chance = np.random.default_rng(3)
    labels_N, on_N = chance.choice(4, 300, p=[0.5, 0.3, 0.15, 0.05]), np.arange(300) < 60
    all_C = np.bincount(labels_N, minlength=4)
    tables_KC = np.stack([np.bincount(chance.permutation(labels_N)[on_N], minlength=4) for _ in range(4_000)])
    shuffled_K = mutual_information(tables_KC, all_C)
    found = association(tables_KC[0], all_C, list("abcd"), seed=5)
    assert found is not None
    error = shuffled_K.std() * math.sqrt(1 / SHUFFLES + 1 / 4_000)
    assert found.shuffled == pytest.approx(shuffled_K.mean(), abs=4 * error)
    assert found.shuffled == pytest.approx(3 / (2 * 300), rel=0.15)  # (classes - 1) / 2N, of large N
    assert found.p == pytest.approx((shuffled_K >= shuffled_K[0] - 1e-12).mean(), abs=0.06)


def test_by_chance_p_is_uniform() -> None:
    chance = np.random.default_rng(4)
    all_C = np.array([400, 300, 300])
    drawn = chance.multivariate_hypergeometric(all_C, 200, size=300)
    found = [association(first_C, all_C, list("abc"), seed=number) for number, first_C in enumerate(drawn)]
    p_K = np.array([each.p for each in found if each])
    assert (p_K <= 0.1).mean() == pytest.approx(0.1, abs=0.06)
    assert p_K.mean() == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize(("first", "all_"), [([0, 0], [5, 5]), ([5, 5], [5, 5]), ([3], [5])])
def test_nothing_to_tell_is_no_association(first: list[int], all_: list[int]) -> None:
    assert association(np.array(first), np.array(all_), list("ab")[: len(all_)], seed=0) is None
