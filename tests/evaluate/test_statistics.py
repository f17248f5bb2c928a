"""Errors of numbers, ratios, and rows drawn at random."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from textspace.evaluate.statistics import Ratio, jackknife_error, some_rows, standard_error

Floats = NDArray[np.float64]


def test_the_jackknife_of_a_mean_is_its_standard_error() -> None:
    values = np.random.default_rng(0).normal(size=40)
    error = jackknife_error(lambda rows: float(values[rows].mean()), 40, 40)
    assert error == pytest.approx(standard_error(values))
    assert error == pytest.approx(values.std(ddof=1) / math.sqrt(40))
    means = values.reshape(10, 4).mean(1)
    blocked = jackknife_error(lambda rows: float(values[rows].mean()), 40, 10)
    assert blocked == pytest.approx(means.std(ddof=1) / math.sqrt(10))
    assert jackknife_error(lambda rows: 1.0, 1) is None
    assert standard_error(np.ones(1)) is None


def test_a_statistic_that_depends_on_the_number_of_sentences_alone_has_no_error() -> None:
    assert jackknife_error(lambda rows: 1 / len(rows), 40, 10) == pytest.approx(0, abs=1e-12)


def test_the_error_of_a_ratio_is_nearly_that_of_the_jackknife() -> None:
    random = np.random.default_rng(0)
    below = random.integers(3, 20, 400)
    above = random.binomial(below, 0.3)
    found = Ratio.of(above, below)
    assert found.value == above.sum() / below.sum()
    assert found.stderr == pytest.approx(
        jackknife_error(lambda rows: above[rows].sum() / below[rows].sum(), 400, 400), rel=0.01
    )
    assert Ratio.of(np.zeros(2), np.zeros(2)).value == 0


def test_rows_are_drawn_once_and_alike_at_every_call() -> None:
    rows = some_rows(1000, 7)
    assert len(rows) == 7
    assert (np.diff(rows) > 0).all()
    assert rows.max() < 1000
    assert some_rows(1000, 7).tolist() == rows.tolist()
    assert some_rows(5, 5).tolist() == some_rows(5, 9).tolist() == [0, 1, 2, 3, 4]
    assert some_rows(0, 3).tolist() == []


def test_rows_of_text_that_repeats_itself_are_of_all_kinds() -> None:
    """Captions, of which each picture has five, the longest first: every tenth row would be a longest one."""
    for limit in (500, 1_000, 2_000, 4_000):
        places = np.bincount(some_rows(5_000, limit) % 5, minlength=5) / limit
        assert abs(places - 0.2).max() < 4 * math.sqrt(0.16 / limit)


def test_errors_hold_where_neighbours_are_unlike_and_where_they_are_alike() -> None:
    random = np.random.default_rng(0)

    def texts(alike: float) -> Floats:
        """Sentences that hand on so much of what they are to the next, of variance 1."""
        values_N = random.normal(size=2_000)
        for row in range(1, 2_000):
            values_N[row] = alike * values_N[row - 1] + math.sqrt(1 - alike**2) * values_N[row]
        return values_N

    def left_out(values_N: Floats) -> float:
        return jackknife_error(lambda rows: float(values_N[rows].mean()), len(values_N)) or math.nan

    for alike, least, most in ((0.0, 0.95, 1.15), (0.5, 0.8, 1.15)):
        drawn = [texts(alike) for _ in range(150)]
        truth = math.sqrt((1 + alike) / (1 - alike) / 2_000)
        for error_of in (standard_error, left_out):
            told = math.sqrt(np.mean([error_of(values_N) ** 2 for values_N in drawn]))
            assert least < told / truth < most
    periodic_N = np.tile([18.0, 14.0, 12.0, 10.0, 8.0], 400) + random.normal(size=2_000)
    plain = periodic_N.std() / math.sqrt(2_000)
    assert left_out(periodic_N) < 1.1 * plain
    assert standard_error(periodic_N) == pytest.approx(plain, rel=0.01)


def test_values_of_sentences_scatter_as_their_ratio_does() -> None:
    random = np.random.default_rng(0)
    ratios, errors = [], []
    for _ in range(400):
        words_N = random.integers(1, 60, 100)
        nats_N = 5.0 * words_N + random.normal(0, 3, 100)
        found = Ratio.of(nats_N, words_N)
        each_N = found.each_sentence(nats_N, words_N)
        assert each_N.mean() == pytest.approx(found.value)
        ratios.append(found.value)
        errors.append(each_N.std(ddof=1) / 10)
    assert np.mean(errors) == pytest.approx(np.std(ratios), rel=0.1)
