"""Errors of numbers, ratios, and rows spread evenly."""

import math

import numpy as np
import pytest

from textspace.evaluate.statistics import Ratio, jackknife_error, plus_minus, spread_rows, standard_error


def test_the_jackknife_of_a_mean_is_its_standard_error() -> None:
    values = np.random.default_rng(0).normal(size=40)
    error = jackknife_error(lambda rows: float(values[rows].mean()), 40, 40)
    assert error == pytest.approx(standard_error(values))
    assert error == pytest.approx(values.std(ddof=1) / math.sqrt(40))
    means = values.reshape(4, 10).mean(0)  # block b holds rows b, b + 10, ...
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


def test_rows_are_spread_evenly() -> None:
    rows = spread_rows(1000, 7)
    assert len(rows) == 7
    assert rows[0] == 0
    assert set(np.diff(rows)) <= {142, 143}
    assert spread_rows(5, 5).tolist() == spread_rows(5, 9).tolist() == [0, 1, 2, 3, 4]
    assert spread_rows(0, 3).tolist() == []


def test_numbers_are_shown_with_two_digits_of_their_error() -> None:
    assert plus_minus(22.0, 0.59) == "22.00 ± 0.59"
    assert plus_minus(1.5, 0.0) == "1.5"
    assert plus_minus(0.2, 0.000001) == "0.2000 ± 0.0000"
    assert plus_minus(math.inf, None) == "inf"


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
