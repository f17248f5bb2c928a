"""Hoyer against numbers by hand and closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest

from textspace.evaluate.hoyer import average_hoyer, deviations, hoyer, hoyer_error
from textspace.evaluate.statistics import jackknife_error


@pytest.fixture
def chance() -> np.random.Generator:
    return np.random.default_rng(5)


def test_one_dimension_is_1_and_equal_ones_are_0() -> None:
    for dims in (2, 7, 32):
        np.testing.assert_allclose(hoyer(-3.5 * np.eye(dims)), 1)
        np.testing.assert_allclose(hoyer(np.full((3, dims), -0.2) * [[1], [5], [1e-9]]), 0, atol=1e-12)


def test_hoyer_by_hand() -> None:
    np.testing.assert_allclose(hoyer(np.array([[3.0, -4.0]])), (math.sqrt(2) - 7 / 5) / (math.sqrt(2) - 1))
    # Deviations 1 and 2, so the codes become (1, 0) and (3, 2): divided, and not centred.
    found = average_hoyer(np.array([[1.0, 0.0], [3.0, 4.0]]))
    np.testing.assert_allclose(found.values_N, [1, (math.sqrt(2) - 5 / math.sqrt(13)) / (math.sqrt(2) - 1)])
    assert (found.dead, found.zeros) == (0, 0)


@pytest.mark.parametrize(("dims", "about"), [(32, 0.24), (768, 0.21)])
def test_a_dense_gaussian_has_the_hoyer_of_its_formula(dims: int, about: float, chance) -> None:
    # E[l1 / l2] = d E|u| for a direction u on the sphere.
    ratio = dims * math.exp(math.lgamma(dims / 2) - math.lgamma((dims + 1) / 2)) / math.sqrt(math.pi)
    exact = (math.sqrt(dims) - ratio) / (math.sqrt(dims) - 1)
    values_N = average_hoyer(chance.normal(size=(3_000, dims))).values_N
    assert exact == pytest.approx(about, abs=0.005)
    assert values_N.mean() == pytest.approx(exact, abs=4 * values_N.std() / math.sqrt(3_000))


def test_codes_with_so_many_dimensions_on_have_a_hoyer_by_hand(chance) -> None:
    """Each sentence has m of d dimensions at plus or minus the dimension's own scale, all dimensions equally often."""
    dims, on = 16, 3
    places = np.stack([np.roll(np.arange(dims) < on, shift) for shift in range(dims)]).astype(float)
    codes_NZ = np.concatenate([places, -places]) * chance.uniform(0.01, 100, size=dims)
    found = average_hoyer(codes_NZ)
    np.testing.assert_allclose(found.values_N, (math.sqrt(dims) - math.sqrt(on)) / (math.sqrt(dims) - 1))


def test_the_scale_of_a_dimension_does_not_count_and_its_offset_does(chance) -> None:
    codes_NZ = chance.normal(size=(50, 6)) * (chance.random((50, 6)) < 0.3)
    scaled = average_hoyer(codes_NZ * np.array([1e-6, -3, 1, 70, 1e5, 0.5])).values_N
    np.testing.assert_allclose(scaled, average_hoyer(codes_NZ).values_N)
    assert average_hoyer(codes_NZ + 5).values_N.mean() < np.nanmean(average_hoyer(codes_NZ).values_N) - 0.3


def test_dimensions_that_never_change_stay_0_and_count_as_dimensions(chance) -> None:
    alive_NZ = chance.normal(size=(400, 4))
    dead_NZ = np.broadcast_to([7.0, -0.1, 0.0, 30.0], (400, 4)).astype(np.float32)
    rounded_NZ = dead_NZ * (1 + 1e-7 * chance.normal(size=(400, 4)).astype(np.float32))
    for beside in (dead_NZ, rounded_NZ):
        found = average_hoyer(np.concatenate([alive_NZ, beside.astype(np.float64)], axis=1))
        assert found.dead == 4
        alone_N = math.sqrt(4) - hoyer(alive_NZ / alive_NZ.std(0)) * (math.sqrt(4) - 1)  # l1 / l2
        np.testing.assert_allclose(found.values_N, (math.sqrt(8) - alone_N) / (math.sqrt(8) - 1))
    np.testing.assert_allclose(deviations(alive_NZ), alive_NZ.std(0))


def test_codes_of_zeros_have_no_hoyer_and_are_counted() -> None:
    found = average_hoyer(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, -2.0], [0.0, 0.0]]))
    assert found.zeros == 2
    assert found.there_M.tolist() == [1, 1]
    assert np.isnan(found.values_N[[0, 3]]).all()
    assert average_hoyer(np.ones((3, 2))).zeros == 3


# Errors


def gaps(chance: np.random.Generator) -> np.ndarray:
    return chance.normal(size=(100, 8)) * (chance.random((100, 8)) < 0.5)


def offset(chance: np.random.Generator) -> np.ndarray:
    """Two dimensions of eight that are far from 0, so that all of Hoyer hangs on their deviations."""
    return chance.normal(size=(100, 8)) + np.where(np.arange(8) < 2, 10, 0)


def rare(chance: np.random.Generator) -> np.ndarray:
    """Half of the dimensions are off in all but a few sentences, whose values make their deviations."""
    return 0.5 + chance.normal(size=(100, 8)) * (chance.random((100, 8)) < np.where(np.arange(8) % 2, 1, 0.1))


@pytest.mark.parametrize(("codes", "least", "most"), [(gaps, 0.8, 1.2), (offset, 0.8, 1.3), (rare, 0.8, 2)])
def test_the_error_is_the_spread_over_other_sentences(codes, least: float, most: float, chance) -> None:
    drawn = [codes(chance) for _ in range(200)]
    spread = np.std([average_hoyer(codes_NZ).there_M.mean() for codes_NZ in drawn])
    assert least < math.sqrt(np.mean([hoyer_error(codes_NZ) ** 2 for codes_NZ in drawn])) / spread < most


def test_tokens_of_a_sentence_that_are_alike_make_the_error_larger(chance) -> None:
    owner_N = np.arange(60).repeat(5)
    drawn = [
        (chance.exponential(size=(60, 1)) * chance.normal(size=(60, 6)) + [8, 0, 0, 0, 0, 0]).repeat(5, axis=0)
        + 0.2 * chance.normal(size=(300, 6))
        for _ in range(200)
    ]
    spread = np.std([average_hoyer(codes_NZ).there_M.mean() for codes_NZ in drawn])
    told = [math.sqrt(np.mean([hoyer_error(codes_NZ, of) ** 2 for codes_NZ in drawn])) for of in (owner_N, None)]
    assert told[0] == pytest.approx(spread, rel=0.2)
    assert told[1] < 0.9 * spread


def test_the_error_is_the_jackknife_of_codes_scaled_anew(chance) -> None:
    codes_NZ = chance.normal(size=(90, 5)) * (chance.random((90, 5)) < 0.3) + [0, 3, 0, 0, 0]
    codes_NZ = np.concatenate([codes_NZ, np.full((90, 1), 7.0), np.eye(90)[:, :1]], axis=1)  # dead, and all but dead
    codes_NZ[:4] = 0
    expected = jackknife_error(lambda rows: float(average_hoyer(codes_NZ[rows]).there_M.mean()), 90)
    assert hoyer_error(codes_NZ) == pytest.approx(expected, rel=1e-9)
    assert hoyer_error(codes_NZ, np.arange(90) + 5) == pytest.approx(expected, rel=1e-9)
    doubled = hoyer_error(codes_NZ.repeat(2, axis=0), np.arange(90).repeat(2))
    assert doubled == pytest.approx(expected, rel=1e-9)


def test_too_few_codes_have_no_error() -> None:
    for codes_NZ in (np.ones((1, 2)), np.eye(2), np.zeros((5, 2)), np.zeros((0, 2))):
        assert hoyer_error(codes_NZ) is None
