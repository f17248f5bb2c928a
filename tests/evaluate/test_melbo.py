"""MELBO by hand: copiers, duplicates, parts of a set, and the size at which it meets a likelihood."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from helpers import small

from textspace.data.encoded import EncodedSplit
from textspace.errors import TextspaceError
from textspace.evaluate.likelihood import likelihood
from textspace.evaluate.melbo import Melbo
from textspace.model import Model
from textspace.recipes import RECIPES
from textspace.types import Estimate

SETTINGS = {"samples": 1, "seed": 0, "end_token": "dropped"}


def melbo(reconstruction: list[float], tokens: list[int] | None = None, repeats: list[int] | None = None) -> Melbo:
    tokens_N = np.array(tokens or [10] * len(reconstruction))
    counts = {"word": tokens_N // 2, "token": tokens_N, "character": 5 * tokens_N}
    own = tuple(repeats or [1] * len(reconstruction))
    return Melbo(np.array(reconstruction), counts, own, dict(SETTINGS), ", the end token left out")


def test_a_perfect_copiers_perplexity_is_that_of_the_size_of_the_set() -> None:
    tokens = [20, 3, 7, 11]
    found = melbo([0.0] * 4, tokens).estimates()
    assert found["melbo_ppl_token"].value == pytest.approx(math.exp(4 * math.log(4) / sum(tokens)))
    assert found["melbo"].value == pytest.approx(math.log(4))
    # the Penn Treebank's test set, by our count of tokens
    copier = melbo([0.0] * 3761, [21] * 3761).estimates(tokens_per_sentence=22.70)
    assert copier["melbo_ppl_token"].value == pytest.approx(math.exp(math.log(3761) / 21))
    assert copier["melbo_ppl_given"].value == pytest.approx(math.exp(math.log(3761) / 22.70))
    assert copier["melbo_ppl_given"].value == pytest.approx(1.44, abs=0.005)


def test_the_published_perplexity_leaves_out_the_ends_loss_and_counts_the_end() -> None:
    """Of 2, 5 and 8 words: 15 of them, and three ends."""
    bound = melbo([10.0, 30.0, 50.0], [4, 10, 16])
    found = bound.estimates()["melbo_ppl_word_end_counted"]
    assert found.value == pytest.approx(math.exp((90 + 3 * math.log(3)) / 18))
    assert "the divisor counts the end" in found.name
    with_end = replace(bound, settings=SETTINGS | {"end_token": "included"})
    assert "melbo_ppl_word_end_counted" not in with_end.estimates()  # whose counts have it already


def test_by_hand() -> None:
    found = melbo([10.0, 30.0, 50.0], [4, 10, 16]).estimates(tokens_per_sentence=20)
    assert found["melbo"].value == pytest.approx(30 + math.log(3))
    assert found["melbo"].stderr == pytest.approx(20 / math.sqrt(3))
    assert found["melbo_ppl_token"].value == pytest.approx(math.exp((90 + 3 * math.log(3)) / 30))
    assert found["melbo_ppl_word"].value == pytest.approx(math.exp((90 + 3 * math.log(3)) / 15))
    assert found["reconstruction_per_token"].value == pytest.approx(3)
    assert found["reconstruction_per_given"].value == pytest.approx(1.5)
    assert "melbo_entropy" not in found


def test_every_name_says_whose_prior_it_is_and_every_setting_what_it_rests_on() -> None:
    given = Estimate("some NLL", 100.0, 1.0, 4, "upper", "lower", {})
    found = melbo([1.0, 2.0, 3.0, 4.0], repeats=[2, 1, 1]).estimates(22.7, given)
    for key, each in found.items():
        assert each.bound == "none"
        assert each.settings["end_token"] == "dropped"
        assert each.settings["duplicates"] == 1
        assert each.settings["log_n"] == pytest.approx(math.log(4))
        assert "the end token left out" in each.name
        if key.startswith("melbo"):
            assert "its prior is the evaluated set itself, no likelihood of a sentence on its own" in each.name
            assert "log N = 1.39, 1 duplicates" in each.name


def test_duplicates_make_the_entropy_of_the_set_smaller_than_log_n() -> None:
    bound = melbo([1.0] * 6, repeats=[3, 2, 1])
    shares = [3 / 6, 2 / 6, 1 / 6]
    assert bound.duplicates == 3
    assert bound.entropy == pytest.approx(-sum(share * math.log(share) for share in shares))
    assert bound.estimates()["melbo_entropy"].value == pytest.approx(1 + bound.entropy)
    assert melbo([1.0] * 6).entropy == pytest.approx(math.log(6))


def test_it_is_made_from_the_reconstructions_of_a_likelihood(tiny, tiny_model) -> None:
    split = EncodedSplit.of(["anna sees", "bob sees", "anna sees", "carl"], tiny.tokenizer, None)
    measured = likelihood(tiny_model, split, samples=5, end_token="dropped")
    bound = Melbo.of(measured, split)
    assert bound.duplicates == 1
    found = bound.estimates(nll=measured.estimates()["nll"])
    assert found["melbo"].value == pytest.approx(measured.reconstruction_N.mean() + math.log(4))
    assert found["melbo_ppl_token"].value == pytest.approx(
        math.exp((measured.reconstruction_N.sum() + 4 * math.log(4)) / 7)
    )
    assert found["melbo"].settings["samples"] == 5
    difference_N = measured.nll_N - measured.reconstruction_N
    assert found["melbo_meets"].value == pytest.approx(difference_N.mean() / math.log(10))
    assert found["melbo_meets"].stderr == pytest.approx(difference_N.std(ddof=1) / 2 / math.log(10))
    assert bound.estimates(nll=measured.estimates()["elbo"])["melbo_meets"].stderr is None  # of another bound
    for one in ({}, {"samples": 5, "proposal_scale": 2.0}):  # reconstructions of one sample
        assert Melbo.of(likelihood(tiny_model, split, **one), split).settings["samples"] == 1


def test_a_language_model_and_no_text_have_none(tiny) -> None:
    split = tiny.encoded.splits["test"]
    model = Model(small(RECIPES["lstm-lm"]), len(tiny.tokenizer))
    with pytest.raises(TextspaceError, match="MELBO needs codes"):
        Melbo.of(likelihood(model, split), split)


# Against the size of the set


def test_the_curve_is_that_of_all_parts_of_a_small_set() -> None:
    values = [1.0, 4.0, 2.0, 9.0, 5.0, 3.0]
    curve = melbo(values).curve(points=6)
    assert curve.sizes_K.tolist() == [1, 2, 3, 4, 6]
    assert (curve.trials_K == 500).all()
    for size, mean, deviation in zip(curve.sizes_K, curve.mean_K, curve.deviation_K, strict=True):
        parts = [np.mean(part) for part in itertools.combinations(values, int(size))]
        assert mean == pytest.approx(np.mean(parts) + math.log(size), abs=4 * np.std(parts) / math.sqrt(500) + 1e-9)
        assert deviation == pytest.approx(np.std(parts), rel=0.15, abs=1e-9)
    np.testing.assert_allclose(curve.extrapolated_K, 4 + np.log(curve.sizes_K))
    assert curve.largest_percent is None


def test_the_curve_of_a_large_set_has_the_trials_the_paper_says() -> None:
    reconstruction_N = np.random.default_rng(0).gamma(4, 20, 3761)
    bound = melbo(reconstruction_N.tolist())
    curve = bound.curve(seed=1)
    assert curve.trials_K.tolist() == [max(3761 - size, 500) for size in curve.sizes_K.tolist()]
    assert {1, 1000, 3761} <= set(curve.sizes_K.tolist())
    expected_K = reconstruction_N.std(ddof=1) * np.sqrt((1 - curve.sizes_K / 3761) / curve.sizes_K)
    np.testing.assert_allclose(curve.deviation_K, expected_K, rtol=0.12, atol=1e-9)
    assert curve.mean_K[-1] == pytest.approx(bound.estimates()["melbo"].value)
    steady = curve.sizes_K == 1000
    assert curve.largest_percent == pytest.approx(float((100 * curve.deviation_K / curve.mean_K)[steady][0]))
    again, other = bound.curve(seed=1), bound.curve(seed=2)
    assert np.array_equal(again.mean_K, curve.mean_K)
    assert not np.array_equal(other.mean_K, curve.mean_K)


def test_chunks_of_trials_and_the_limit_on_work_keep_at_least_500(monkeypatch) -> None:
    monkeypatch.setattr("textspace.evaluate.melbo.PICKED_AT_MOST", 100)
    curve = melbo(np.arange(2000.0).tolist()).curve(points=5)
    assert (curve.trials_K == 500).all()
    assert (curve.deviation_K[:-1] > 0).all()


def test_the_size_at_which_it_meets_a_likelihood() -> None:
    bound = melbo([50.0, 70.0])
    given = Estimate("importance-weighted NLL", 100.0, 1.0, 2, "upper", "lower", {})
    found = bound.estimates(nll=given)["melbo_meets"]
    assert found.value == pytest.approx(40 / math.log(10))
    assert found.stderr is None  # nothing is known of the sentences' own
    assert bound.meeting_size_log10(60 + math.log(7)) == pytest.approx(math.log10(7))
    assert bound.meeting_size_log10(60 + 43 * math.log(10)) == pytest.approx(43)


def test_the_error_of_that_size_is_that_of_the_difference_sentence_by_sentence() -> None:
    """Sentences of very different lengths cost very differently, but each as much more under the likelihood."""
    chance = np.random.default_rng(0)
    reconstruction_N = chance.gamma(4, 20, 500)
    difference_N = 40 + chance.choice([-2.0, 2.0], 500)
    nll_N = reconstruction_N + difference_N
    given = Estimate("importance-weighted NLL", float(nll_N.mean()), 1.0, 500, "upper", "lower", {})
    found = melbo(reconstruction_N.tolist()).estimates(nll=given, nll_N=nll_N)["melbo_meets"]
    assert found.value == pytest.approx(difference_N.mean() / math.log(10))
    assert found.stderr == pytest.approx(2 / math.sqrt(500) / math.log(10), rel=0.1)
    assert found.stderr < reconstruction_N.std() / math.sqrt(500) / math.log(10) / 15  # that of either alone
