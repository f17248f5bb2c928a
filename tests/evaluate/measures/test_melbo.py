"""The measure of MELBO: its numbers, what stands beside it, and how its proposals are chosen."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import small, tiny_sentences
from small_subjects import subject_on, untrained

from textspace.evaluate.aggregated import AggregatedPosterior, nearest_bound
from textspace.evaluate.likelihood import likelihood
from textspace.evaluate.measure import Findings, Subject
from textspace.evaluate.measures.melbo import melbo
from textspace.recipes import RECIPES
from textspace.space import Space

TEXTS = tiny_sentences(160)
SPLITS = {"train": TEXTS[:80], "valid": TEXTS[80:110], "test": TEXTS[110:]}
SAYS = "its prior is the evaluated set itself, no likelihood of a sentence on its own"


@pytest.fixture(scope="module")
def narrow(tiny) -> Space:
    """A space whose posteriors are far narrower than p(z|x), as mutual-information learning makes them."""
    space = untrained(small(RECIPES["smim"]).but({"initial.weights": 0.6}), tiny.tokenizer)
    with torch.no_grad():
        space.model.posterior.log_variance.bias.fill_(-8)
        space.model.posterior.mean.weight.mul_(2)
    return space


@pytest.fixture(scope="module")
def subject(narrow) -> Subject:
    return subject_on(narrow, SPLITS)


@pytest.fixture(scope="module")
def found(subject) -> Findings:
    return melbo(subject)


@pytest.mark.parametrize(("end_token", "ending"), [("dropped", ""), ("included", "_with_end")])
def test_melbo_is_reconstruction_and_log_n(found, subject, end_token: str, ending: str) -> None:
    plain = subject.test.likelihood(4, end_token)
    estimate = found.estimates[f"melbo{ending}"]
    assert estimate.value == pytest.approx(plain.reconstruction_N.mean() + math.log(50))
    assert SAYS in estimate.name
    assert ("the end token left out" in estimate.name) == (end_token == "dropped")
    total = plain.reconstruction_N.sum() + 50 * math.log(50)
    words = plain.counts_N["word"].sum()
    assert found.estimates[f"melbo_ppl_word{ending}"].value == pytest.approx(math.exp(total / words))
    assert found.estimates[f"elbo{ending}"].value == pytest.approx(plain.elbo_N.mean())
    distinct = len(set(SPLITS["test"]))
    assert found.estimates[f"melbo{ending}"].settings["duplicates"] == 50 - distinct


def test_proposals_are_the_best_of_those_tried_on_validation_sentences(found, subject) -> None:
    rows = found.tables["proposals"].rows
    names = [row[0] for row in rows]
    own = [row[1] for row in rows[:-1]]
    mixed = [row[2] for row in rows]
    assert names[0] == "the posterior"
    assert rows[-1][:2] == ("the mixture's nearest components", None)
    assert int(np.argmin(own)) > 0  # a wider one
    best = (1, 3, 10, 30, 100)[int(np.argmin(own))]
    expected = likelihood(
        subject.space.model, subject.test.split, samples=4, end_token="dropped", proposal_scale=float(best)
    )
    estimate = found.estimates["nll_own_prior"]
    assert estimate.value == pytest.approx(expected.nll_N.mean())
    assert f"proposal: posterior with {best} times its deviation" in estimate.name
    assert "NLL under the standard normal prior" in estimate.name
    assert estimate.settings["proposal_chosen_on"] == "30 valid sentences"
    assert min(own) < own[0] - 1
    assert int(np.argmin(mixed)) == 5  # and under the mixture its own components
    prior = AggregatedPosterior.of(subject.space.model, subject.splits["train"].split)
    near = nearest_bound(subject.space.model, subject.test.split, prior, samples=4, end_token="dropped")
    estimate = found.estimates["nll_aggregated"]
    assert estimate.value == pytest.approx(near.nll_N.mean())
    assert "under the aggregated posterior of 80 training sentences, 4 samples, upper bound" in estimate.name
    assert estimate.bound == "upper"


def test_where_the_posterior_is_wide_it_proposes_for_both_priors(tiny) -> None:
    space = untrained(small(RECIPES["vae"]).but({"initial.weights": 0.01}), tiny.tokenizer)
    subject = subject_on(space, SPLITS)
    found = melbo(subject)
    plain = subject.test.likelihood(4, "dropped")
    assert found.estimates["nll_own_prior"].value == pytest.approx(plain.nll_N.mean())
    prior = AggregatedPosterior.of(space.model, subject.splits["train"].split)
    expected = likelihood(space.model, subject.test.split, samples=4, end_token="dropped", priors={"it": prior})
    assert found.estimates["nll_aggregated"].value == pytest.approx(expected.under["it"].nll_N.mean())


def test_the_table_puts_four_bounds_side_by_side_and_says_why_one_does_not_compare(found) -> None:
    table = found.tables["bounds"]
    assert "MELBO compares with none of the others" in table.title
    keys = ["melbo", "elbo", "nll_own_prior", "nll_aggregated"]
    assert [row[1] for row in table.rows] == [found.estimates[key].value for key in keys]
    assert [row[2] for row in table.rows] == [found.estimates[f"{key}_ppl_word"].value for key in keys]
    assert [row[3] for row in table.rows] == [found.estimates[f"{key}_with_end"].value for key in keys]
    assert [row[4] for row in table.rows] == [found.estimates[f"{key}_ppl_word_with_end"].value for key in keys]


def test_sentences_have_their_values_and_the_pictures_show_them(found) -> None:
    for key, values in found.per_sentence.items():
        assert np.mean(values) == pytest.approx(found.estimates[key].value)
    assert list(found.pictures["sentences"].series.values()) == [found.per_sentence[key] for key in ("melbo", "elbo")]
    sizes = found.pictures["sizes"]
    assert sizes.x[0] == 0
    assert sizes.x[-1] == pytest.approx(math.log10(50))
    assert sizes.series["mean over trials"][-1] == pytest.approx(found.estimates["melbo"].value)
    assert "larger_sets" not in found.pictures  # it is above the likelihood already


def test_a_space_that_copies_needs_a_larger_set_to_meet_the_likelihood(narrow) -> None:
    subject = subject_on(narrow, SPLITS)
    for end_token in ("dropped", "included"):
        plain = subject.test.likelihood(4, end_token)
        subject.test._likelihoods[4, end_token] = replace(plain, reconstruction_N=0.01 * plain.reconstruction_N)
    found = melbo(subject)
    tightest = min(found.estimates[key].value for key in ("nll_own_prior", "nll_aggregated"))
    assert found.estimates["melbo"].value < tightest
    larger = found.pictures["larger_sets"]
    assert larger.x[0] == pytest.approx(math.log10(50))
    assert larger.x[-1] == pytest.approx(found.estimates["melbo_meets"].value)
    assert larger.series["MELBO, extrapolated"][0] == pytest.approx(found.estimates["melbo"].value)
    assert larger.series["MELBO, extrapolated"][-1] == pytest.approx(tightest)
    assert larger.series["importance-weighted NLL"] == pytest.approx([tightest] * len(larger.x))


def test_without_a_training_or_validation_split_it_says_what_is_missing(narrow) -> None:
    subject = subject_on(narrow, SPLITS["test"])
    with pytest.warns(UserWarning, match="the text has no training split"):
        found = melbo(subject)
    assert not any("aggregated" in key for key in found.estimates)
    assert found.estimates["nll_own_prior"].settings["proposal_chosen_on"] == "25 test sentences"
    assert len(found.tables["bounds"].rows) == 3


def test_an_autoencoder_has_neither_elbo_nor_aggregated_posterior(tiny) -> None:
    with pytest.warns(UserWarning, match="the posterior has no density"):
        found = melbo(subject_on(untrained(small(RECIPES["smim-ae"]), tiny.tokenizer), SPLITS))
    assert {"melbo", "nll_own_prior", "reconstruction_per_token"} <= found.estimates.keys()
    assert not any(key.startswith(("elbo", "kl")) for key in found.estimates)
    assert "Gaussian fitted" in found.estimates["nll_own_prior"].name


def test_a_space_with_a_code_for_every_token_has_no_aggregated_posterior_and_all_the_rest(token_space) -> None:
    subject = subject_on(token_space, SPLITS)
    with pytest.warns(UserWarning, match="no likelihood under the aggregated posterior: every token of the space has"):
        found = melbo(subject)
    assert {"melbo", "elbo", "nll_own_prior", "melbo_meets"} <= found.estimates.keys()
    assert not any("aggregated" in key for key in found.estimates)
    plain = subject.test.likelihood(4, "dropped")
    assert found.estimates["melbo"].value == pytest.approx(plain.reconstruction_N.mean() + math.log(50))


def test_the_size_at_which_it_meets_the_tightest_likelihood_has_the_error_of_the_difference(found) -> None:
    for ending in ("", "_with_end"):
        keys = [f"nll_own_prior{ending}", f"nll_aggregated{ending}"]
        tightest = min(keys, key=lambda key: found.estimates[key].value)
        values = found.per_sentence
        difference_N = np.array(values[tightest]) - np.array(values[f"reconstruction{ending}"])
        meets = found.estimates[f"melbo_meets{ending}"]
        assert meets.value == pytest.approx(difference_N.mean() / math.log(10))
        assert meets.stderr == pytest.approx(difference_N.std(ddof=1) / math.sqrt(50) / math.log(10))


def test_results_depend_on_the_seed_alone(subject, found, narrow) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = melbo(subject_on(narrow, SPLITS))
        other = melbo(subject_on(narrow, SPLITS, seed=1))
    assert {key: each.value for key, each in again.estimates.items()} == {
        key: each.value for key, each in found.estimates.items()
    }
    assert other.estimates["melbo"].value != found.estimates["melbo"].value
