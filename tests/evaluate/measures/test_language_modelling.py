"""The measures of language modelling: known answers, and what must not change them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import small, tiny_sentences
from small_subjects import subject_on, untrained

from textspace.errors import TextspaceError
from textspace.evaluate import measure
from textspace.evaluate.doctor import diagnose
from textspace.evaluate.likelihood import Likelihood
from textspace.evaluate.likelihood import likelihood as likelihood_of
from textspace.evaluate.measure import Subject
from textspace.evaluate.measures import language_modelling as module
from textspace.evaluate.measures.language_modelling import (
    course,
    likelihood,
    likelihood_findings,
    likelihood_with_length_prior,
    likelihood_without_end,
    posterior,
    training_curves,
)
from textspace.evaluate.posterior import posterior_statistics
from textspace.evaluate.subjects import SourcedSubject
from textspace.lengths import METRIC, Lengths
from textspace.recipes import RECIPES
from textspace.space import Space

TEXTS = tiny_sentences(40)


@pytest.fixture(scope="module")
def space(tiny) -> Space:
    return untrained(small(RECIPES["vae"]), tiny.tokenizer)


@pytest.fixture(scope="module")
def subject(space) -> Subject:
    return subject_on(space, TEXTS)


# Likelihood


def test_the_numbers_are_those_of_the_likelihood(subject, space) -> None:
    found = likelihood(subject)
    expected = likelihood_of(space.model, subject.test.split, samples=4)
    for key, estimate in expected.estimates().items():
        assert found.estimates[key].value == estimate.value
        assert found.estimates[key].stderr == estimate.stderr
        assert found.estimates[key].settings["error"] == "standard error over sentences"
    assert "importance-weighted NLL, 4 samples, upper bound" in found.estimates["nll"].name


def test_the_gap_is_the_mean_of_each_sentences_own(subject, space) -> None:
    measured = likelihood_of(space.model, subject.test.split, samples=4)
    gap_N = measured.elbo_N - measured.nll_N
    found = likelihood(subject).estimates["gap"]
    assert found.value == pytest.approx(gap_N.mean(), rel=1e-12)
    assert found.stderr == pytest.approx(gap_N.std(ddof=1) / math.sqrt(40), rel=1e-12)
    assert found.stderr < likelihood(subject).estimates["nll"].stderr / 5  # paired, the sentences' own cost is gone
    assert (found.bound, found.better, found.n) == ("lower", "lower", 40)


def test_every_sentence_has_its_values_under_the_name_of_their_estimate(subject) -> None:
    found = likelihood(subject)
    assert set(found.per_sentence) == {"reconstruction", "kl", "elbo", "nll", "gap", "effective_samples"}
    for key, values in found.per_sentence.items():
        assert len(values) == 40
        assert np.mean(values) == pytest.approx(found.estimates[key].value, rel=1e-12)


def test_neither_chunks_nor_batches_change_anything(subject, monkeypatch) -> None:
    whole = likelihood(subject)
    monkeypatch.setattr(measure, "likelihood", partial(likelihood_of, chunk=3, batch_tokens=40))
    subject.test._likelihoods.clear()
    parts = likelihood(subject)
    for key, values in whole.per_sentence.items():
        np.testing.assert_allclose(parts.per_sentence[key], values, rtol=1e-4, atol=1e-5)


def test_without_the_end_token_sentences_cost_less_and_the_names_say_so(subject, space) -> None:
    with_end, without = likelihood(subject), likelihood_without_end(subject)
    expected = likelihood_of(space.model, subject.test.split, samples=4, end_token="dropped")
    assert without.estimates["nll_ppl_word"].value == expected.estimates()["nll_ppl_word"].value
    assert without.estimates["nll"].value < with_end.estimates["nll"].value
    assert without.estimates["nll"].name.endswith(", the end token left out")
    assert without.estimates["kl"].name == with_end.estimates["kl"].name


def test_with_a_distribution_of_lengths_the_names_say_so(subject, space) -> None:
    lengths = Lengths(np.bincount([len(text.split()) for text in TEXTS], minlength=12))
    known = Space(space.recipe, space.tokenizer, space.model, {METRIC: lengths.to_dict()})
    found = likelihood_with_length_prior(subject_on(known, TEXTS))
    expected = likelihood_of(space.model, subject.test.split, samples=4, end_token="length", lengths=lengths)
    for key in ("nll", "elbo", "nll_ppl_word"):
        assert found.estimates[key].value == expected.estimates()[key].value
        assert found.estimates[key].name.endswith("as p_seq(x|z) p(length), the end token without probability")
    assert found.estimates["gap"].name.endswith("as p_seq(x|z) p(length), the end token without probability")
    assert found.estimates["kl"].name == likelihood(subject).estimates["kl"].name
    with pytest.raises(TextspaceError, match="does not know how long"):
        likelihood_with_length_prior(subject)


def test_a_language_model_is_exact_and_has_neither_kl_nor_gap(tiny) -> None:
    found = likelihood(subject_on(untrained(small(RECIPES["lstm-lm"]), tiny.tokenizer), TEXTS))
    assert {"kl", "elbo", "gap", "effective_samples"}.isdisjoint(found.estimates)
    assert found.estimates["nll"].bound == "exact"
    assert list(found.pictures["nats"].series) == ["exact NLL"]


def scored(nll_N: list[float], words_N: list[int]) -> Likelihood:
    nats_N, counts_N = np.array(nll_N), np.array(words_N)
    settings = {"samples": None, "seed": None, "end_token": "included", "proposal": None}
    counts: Any = {"word": counts_N, "token": counts_N, "character": counts_N}
    return Likelihood(nats_N, {}, {}, None, nats_N, None, counts, settings)


def test_the_hardest_and_easiest_sentences_are_so_for_each_word() -> None:
    found = likelihood_findings(scored([10.0, 9.0, 8.0, 30.0, 6.0], [10, 1, 2, 3, 1]), ["a", "b", "c", "d", "e"])
    assert found.tables["sentences"].rows == (
        ("hardest", "d", 10.0, 30.0),
        ("hardest", "b", 9.0, 9.0),
        ("easiest", "c", 4.0, 8.0),
        ("easiest", "a", 1.0, 10.0),
    )


def test_one_sentence_has_no_error(space) -> None:
    found = likelihood(subject_on(space, TEXTS[:1]))
    assert found.estimates["gap"].stderr is None
    assert found.tables["sentences"].rows == ()


# The posterior


def test_the_posterior_is_what_the_statistics_say_and_the_doctor_too(subject, space) -> None:
    found = posterior(subject)
    statistics = posterior_statistics(space.model, subject.test.split)
    assert {key: each.value for key, each in found.estimates.items()} == {
        key: each.value for key, each in statistics.estimates().items() if not key.startswith("hoyer")
    }
    scored_once = likelihood_of(space.model, subject.test.split).estimates()
    numbers = {key: each.value for key, each in found.estimates.items()}
    told = diagnose(numbers | {key: scored_once[key].value for key in ("kl", "reconstruction")}, space.recipe)
    rows = dict(found.tables["doctor"].rows)
    assert (rows["state"], rows["in words"]) == (told.state, told.sentence)
    assert [rows.get(key) for key in ("to try", "or")] == [*told.advice, None, None][:2]


@pytest.mark.parametrize(("name", "shown"), [("vae", False), ("mat-vae", True), ("hsvae", True)])
def test_hoyer_stands_with_spaces_that_are_to_be_sparse_alone(tiny, name: str, shown: bool) -> None:
    found = posterior(subject_on(untrained(small(RECIPES[name]), tiny.tokenizer), TEXTS))
    assert ("hoyer_samples" in found.estimates) == ("hoyer_means" in found.estimates) == shown


def test_bars_are_sorted_and_keep_their_dimension(subject, space) -> None:
    found = posterior(subject).pictures
    statistics = posterior_statistics(space.model, subject.test.split)
    (kl,), (activity,) = found["kl"].series.values(), found["activity"].series.values()
    assert kl == sorted(kl, reverse=True)
    dimensions = [int(tick) for tick in found["activity"].ticks]
    assert sorted(dimensions) == [0, 1, 2, 3]
    np.testing.assert_allclose(activity, statistics.mean_variance_Z[dimensions])


def test_a_collapsed_space_has_no_kl_no_information_and_no_active_unit(tiny) -> None:
    space = untrained(small(RECIPES["vae"]), tiny.tokenizer)
    with torch.no_grad():
        for parameter in space.model.posterior.parameters():
            parameter.zero_()
    subject = subject_on(space, TEXTS)
    assert likelihood(subject).estimates["kl"].value == pytest.approx(0, abs=1e-6)
    found = posterior(subject)
    for key in ("mi", "mi_leave_one_out", "active_units"):
        assert found.estimates[key].value == pytest.approx(0, abs=1e-6)
    assert dict(found.tables["doctor"].rows)["state"] == "collapsed"


def test_the_doctor_sees_the_history_of_the_run(tiny, tmp_path) -> None:
    space = untrained(small(RECIPES["vae"]), tiny.tokenizer)
    plain = subject_on(space, TEXTS)
    kl = likelihood(plain).estimates["kl"].value
    lines = [{"event": "validation", "step": n, "epoch": n + 20, "kl": value} for n, value in enumerate((9, 8, 7, kl))]
    (tmp_path / "steps.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    subject = SourcedSubject(space, plain.splits, plain.effort, folder=tmp_path)
    told = dict(posterior(subject).tables["doctor"].rows)["in words"]
    assert "so far" not in told  # after 23 epochs
    assert "so far" in dict(posterior(replace(subject, folder=young(tmp_path))).tables["doctor"].rows)["in words"]


def young(folder: Path) -> Path:
    other = folder / "young"
    other.mkdir()
    (other / "steps.jsonl").write_text(json.dumps({"event": "validation", "step": 1, "epoch": 1, "kl": 0.0}) + "\n")
    return other


# The run


def test_curves_are_means_of_steps_and_validations_as_they_are(monkeypatch) -> None:
    monkeypatch.setattr(module, "SHOWN_STEPS", 2)
    steps = [
        {"step": n, "epoch": n / 2, "reconstruction": float(10 - n), "kl": 1.0, "loss": 0.0, "weights": {"kl": 1.0}}
        for n in range(1, 5)
    ]
    validated = [{"epoch": 1.5, "reconstruction": 7.0, "elbo": 8.0, "active_units": 3}]
    pictures = course(steps, validated).pictures
    assert list(pictures) == ["reconstruction", "kl", "elbo", "active_units"]
    drawn = pictures["reconstruction"]
    assert drawn.x == [1.0, 1.5, 2.0]
    np.testing.assert_array_equal(drawn.series["training"], [8.5, math.nan, 6.5])
    np.testing.assert_array_equal(drawn.series["validation"], [math.nan, 7.0, math.nan])
    assert list(pictures["elbo"].series) == ["validation"]
    assert pictures["active_units"].y_label == "dimensions"


@pytest.mark.parametrize("unit", ["sentence", "token"])
def test_what_a_code_tells_is_told_of_what_has_one(unit: str) -> None:
    pictures = course([], [{"epoch": 1.0, "elbo": 8.0, "mi": 2.0}], unit).pictures
    assert pictures["mi"].y_label == f"nats per {unit}"
    assert pictures["elbo"].y_label == "nats per sentence"


def test_a_space_without_a_log_has_no_curves(subject, tmp_path) -> None:
    assert training_curves(subject).pictures == {}
    there = SourcedSubject(subject.space, subject.splits, folder=tmp_path)
    assert training_curves(there).pictures == {}
    step = {"event": "step", "step": 1, "epoch": 0.5, "reconstruction": 3.0, "weights": {"reconstruction": 1.0}}
    (tmp_path / "steps.jsonl").write_text(json.dumps(step) + '\n{"event": "st')  # ends in the middle of a line
    assert training_curves(there).pictures["reconstruction"].series == {"training": [3.0]}
