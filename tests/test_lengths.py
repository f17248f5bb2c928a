"""The lengths of sentences: a count for each length seen, and a formula for all that there can be."""

import json
from typing import Any

import numpy as np
import pytest

from textspace.errors import TextspaceError
from textspace.lengths import METRIC, Lengths

SEEN = [0, 3, 0, 5, 1]
EVERY = [*SEEN, 0, 0, 0, 0]
"""As earlier versions counted them: up to the longest that there can be."""


@pytest.fixture
def lengths() -> Lengths:
    return Lengths.of(np.repeat(np.arange(len(SEEN)), SEEN), longest=8)


def test_lengths_are_counted_as_far_as_they_were_seen(lengths: Lengths) -> None:
    assert lengths.to_dict() == {"counts": SEEN, "longest": 8}
    assert Lengths.of(np.array([1, 4]), longest=None).to_dict() == {"counts": [0, 1, 0, 0, 1], "longest": 8}
    assert Lengths.of(np.array([1, 4]), longest=2).to_dict() == {"counts": [0, 1, 0, 0, 1], "longest": 4}


@pytest.mark.parametrize("kept", [EVERY, {"counts": SEEN, "longest": 8}], ids=["of an earlier version", "of this one"])
def test_lengths_are_the_same_however_they_were_kept(kept: Any, lengths: Lengths) -> None:
    again = Lengths.of_metrics(json.loads(json.dumps({METRIC: kept})))
    at_N = np.arange(12)
    expected_N = np.append((np.array(EVERY) + 1 / 9) / (sum(SEEN) + 1), [0, 0, 0])
    np.testing.assert_allclose(np.exp(again.log_prob(at_N)), expected_N, rtol=1e-14)
    np.testing.assert_array_equal(again.log_prob(at_N), lengths.log_prob(at_N))
    uniform_N = np.append(np.random.default_rng(0).random(5000), [0.0, 1.0])
    drawn_N = np.searchsorted(expected_N[:9].cumsum(), uniform_N, side="right").clip(max=8)
    np.testing.assert_array_equal(again.drawn(uniform_N), drawn_N)
    np.testing.assert_array_equal(again.drawn(uniform_N[:50].astype(np.float32)), drawn_N[:50])
    assert set(drawn_N) == set(range(9))


@pytest.mark.parametrize("longest", [10**9, 10**15])
def test_a_huge_limit_costs_nothing(longest: int) -> None:
    lengths = Lengths.of_metrics({METRIC: Lengths.of(np.array([1, 4]), longest).to_dict()})
    assert lengths.log_prob([longest, longest + 1]) == pytest.approx([-np.log(longest + 1) - np.log(3), -np.inf])
    drawn_N = lengths.drawn(np.linspace(0, 1, 301))
    assert (drawn_N[1:100] == 1).all()
    assert (drawn_N[101:200] == 4).all()
    np.testing.assert_allclose(drawn_N[201:], np.linspace(0, longest, 101)[1:], atol=longest / 1000)
    assert drawn_N.max() == longest


@pytest.mark.parametrize(
    "kept",
    [[], [0, 0], [1, -1], {}, {"counts": [0, 1, 1], "longest": 1}, {"counts": [1], "most": 1}, {"counts": "x"}, 3,
     {"counts": [1], "longest": "x"}, {"counts": [1], "longest": float("inf")}],
    ids=repr,
)  # fmt: skip
def test_what_is_no_lengths_is_refused(kept: Any) -> None:
    for metrics in ({}, {METRIC: kept}):
        with pytest.raises(TextspaceError, match="does not know how long its training sentences were"):
            Lengths.of_metrics(metrics)
