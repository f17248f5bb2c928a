"""Paths between codes: ends, even steps, and what happens where there is no arc."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from textspace.errors import TextspaceError
from textspace.paths import interpolated

Vector = NDArray[np.float64]


@st.composite
def ends(draw: st.DrawFn) -> tuple[Vector, Vector]:
    """Two vectors of 2 to 6 dimensions, not near zero."""
    dim = draw(st.integers(2, 6))
    vectors = st.lists(st.floats(-10, 10, width=32), min_size=dim, max_size=dim).map(np.array)
    a, b = draw(vectors), draw(vectors)
    assume(min(np.linalg.norm(a), np.linalg.norm(b)) > 1e-2)
    return a, b


def angle(u: Vector, v: Vector) -> float:
    """Between two vectors; Kahan's formula, exact for small and for straight angles."""
    u, v = u / np.linalg.norm(u), v / np.linalg.norm(v)
    return 2 * np.arctan2(np.linalg.norm(u - v), np.linalg.norm(u + v))


@given(ends(), st.integers(2, 9), st.sampled_from(["linear", "spherical"]))
def test_both_ends_are_there_to_the_last_bit(two: tuple[Vector, Vector], steps: int, path: str) -> None:
    a, b = two
    codes = interpolated(a, b, steps, path)
    assert codes.shape == (steps, len(a))
    np.testing.assert_array_equal(codes[0], a)
    np.testing.assert_array_equal(codes[-1], b)


@given(ends(), st.integers(2, 9))
def test_linear_steps_are_all_the_same(two: tuple[Vector, Vector], steps: int) -> None:
    a, b = two
    np.testing.assert_allclose(
        np.diff(interpolated(a, b, steps), axis=0), [(b - a) / (steps - 1)] * (steps - 1), atol=1e-9
    )


@given(ends(), st.integers(3, 9))
def test_spherical_steps_turn_evenly_while_the_length_changes_evenly(two: tuple[Vector, Vector], steps: int) -> None:
    a, b = two
    whole = angle(a, b)
    assume(1e-4 < whole < np.pi - 1e-4)
    codes = interpolated(a, b, steps, "spherical")
    lengths = np.linalg.norm(codes, axis=1)
    np.testing.assert_allclose(lengths, np.linspace(lengths[0], lengths[-1], steps), rtol=1e-9)
    turns = [angle(before, after) for before, after in itertools.pairwise(codes)]
    np.testing.assert_allclose(turns, whole / (steps - 1), rtol=1e-6)


def test_spherical_keeps_the_length_where_linear_cuts_the_corner() -> None:
    a, b = np.array([2.0, 0.0, 0.0]), np.array([0.0, 0.0, 2.0])
    np.testing.assert_allclose(interpolated(a, b, 3, "spherical")[1], [2**0.5, 0, 2**0.5])
    np.testing.assert_allclose(interpolated(a, b, 3, "linear")[1], [1, 0, 1])


@pytest.mark.parametrize("almost", [1e-3, 1e-4, 1e-5])
def test_almost_opposite_codes_in_single_precision_still_make_a_half_circle(almost: float) -> None:
    a, b = np.array([1, 0, 0], np.float32), np.array([-1, almost, 0], np.float32)
    np.testing.assert_allclose(np.linalg.norm(interpolated(a, b, 7, "spherical"), axis=1), 1, atol=1e-6)


@pytest.mark.parametrize(
    ("a", "b"),
    [([1.0, 2.0], [3.0, 6.0]), ([1.0, 2.0], [-1.0, -2.0]), ([0.0, 0.0], [1.0, 2.0]), ([1.0, 2.0], [0.0, 0.0])],
    ids=["same direction", "opposite direction", "from zero", "to zero"],
)
def test_where_there_is_no_one_arc_the_path_is_straight(a: list[float], b: list[float]) -> None:
    spherical = interpolated(np.array(a), np.array(b), 5, "spherical")
    np.testing.assert_allclose(spherical, interpolated(np.array(a), np.array(b), 5), atol=1e-12)


def test_the_ends_given_are_left_as_they_were() -> None:
    a, b = np.array([3.0, 4.0]), np.array([-4.0, 3.0])
    interpolated(a, b, 4, "spherical")[:] = 0
    assert (a.tolist(), b.tolist()) == ([3.0, 4.0], [-4.0, 3.0])


ENDS = "an interpolation has at least its 2 ends, so steps cannot be"


@pytest.mark.parametrize(
    ("steps", "path", "told"),
    [
        (1, "linear", f"{ENDS} 1: give a whole number from 2"),
        (-2, "spherical", f"{ENDS} -2: give a whole number from 2"),
        (2.5, "linear", f"{ENDS} 2.5: give a whole number from 2"),
        ("3", "linear", f"{ENDS} '3': give a whole number from 2"),
        (3, "sphere", "there is no path 'sphere': use 'linear' or 'spherical'"),
    ],
)
def test_mistakes_are_told_in_one_sentence(steps: Any, path: Any, told: str) -> None:
    with pytest.raises(TextspaceError) as caught:
        interpolated(np.ones(2), np.ones(2), steps, path)
    assert str(caught.value) == told


# Codes with a row for each token


@pytest.mark.parametrize("path", ["linear", "spherical"])
def test_tokens_go_their_own_ways_and_ends_keep_their_lengths(path: str) -> None:
    random = np.random.default_rng(0)
    a, b = random.normal(size=(3, 4)), random.normal(size=(5, 4))
    codes = interpolated(a, b, 5, path)
    assert [code.shape for code in codes] == [(3, 4), (5, 4), (5, 4), (5, 4), (5, 4)]
    np.testing.assert_array_equal(codes[0], a)
    np.testing.assert_array_equal(codes[-1], b)
    for step, code in enumerate(codes[1:-1], 1):
        for token in range(3):
            np.testing.assert_allclose(code[token], interpolated(a[token], b[token], 5, path)[step])
        np.testing.assert_allclose(code[3:], b[3:] * step / 4)  # from zero, where no direction is
    back = interpolated(b, a, 5, path)
    for one, other in zip(codes, reversed(back), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


def test_mistakes_of_tokens_ways_are_those_of_sentences() -> None:
    a = np.ones((2, 3))
    assert len(interpolated(a, a[:1], 2)) == 2
    with pytest.raises(TextspaceError, match="steps cannot be 1"):
        interpolated(a, a, 1)
    with pytest.raises(TextspaceError, match="there is no path 'curved'"):
        interpolated(a, a, 3, "curved")  # type: ignore[arg-type]
