"""What posteriors look like where every token has one, against numbers worked out by hand."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from helpers import small
from numpy.typing import NDArray

from textspace.data.batching import make_batch
from textspace.data.encoded import EncodedSplit
from textspace.evaluate import posterior as module
from textspace.evaluate.code_statistics import Information, Mean, gaussian_kl, gaussian_kl_by_chance, mean_cosine
from textspace.evaluate.examination import examine
from textspace.evaluate.likelihood import likelihood
from textspace.evaluate.measures.language_modelling import posterior_findings
from textspace.evaluate.posterior import PosteriorStatistics, posterior_statistics
from textspace.evaluate.statistics import some_rows
from textspace.model import Model
from textspace.recipes import RECIPES

SCALE = 0.4
Floats = NDArray[np.float64]


@pytest.fixture(scope="module")
def split(tiny) -> EncodedSplit:
    return tiny.encoded.splits["valid"]


def token_model(tiny, **changes: object) -> Model:
    model = Model(small(RECIPES["vat"]).but(changes), len(tiny.tokenizer)).eval()
    with torch.no_grad():
        model.posterior.log_variance.bias.sub_(2.0)  # so narrow that tokens can be told apart
    return model


@pytest.fixture
def model(tiny) -> Model:
    return token_model(tiny)


def tokens_of(model: Model, split: EncodedSplit) -> tuple[Floats, Floats, Floats]:
    """Features, means and deviations of every token, sentence by sentence, each sentence alone."""
    found: list[list[torch.Tensor]] = []
    with torch.no_grad():
        for row in range(len(split)):
            features_TH = model.features(make_batch(split, np.array([row])).encoder)[0]
            q = model.posterior("z", features_TH, {})
            found.append([features_TH, q.mean, q.stddev])
    features_MH, mean_MZ, deviation_MZ = (torch.cat(parts).double().numpy() for parts in zip(*found, strict=True))
    return features_MH, mean_MZ, deviation_MZ


def test_every_token_counts_start_and_end_included(model: Model, split: EncodedSplit) -> None:
    found = posterior_statistics(model, split, seed=3)
    features_MH, mean_MZ, deviation_MZ = tokens_of(model, split)
    count = int(np.sum(split.lengths))
    assert len(mean_MZ) == found.codes == count
    assert found.sentences == len(split)
    close = {"rtol": 1e-4, "atol": 1e-5}
    np.testing.assert_allclose(found.mean_variance_Z, mean_MZ.var(0, ddof=1), **close)
    np.testing.assert_allclose(found.deviation_Z, deviation_MZ.mean(0), **close)
    np.testing.assert_allclose(found.prior_variance_Z, SCALE**2, rtol=1e-6)
    assert found.active_units == int((mean_MZ.var(0, ddof=1) > 0.01 * SCALE**2).sum()) > 0
    kl_MZ = math.log(SCALE) - np.log(deviation_MZ) + (deviation_MZ**2 + mean_MZ**2) / (2 * SCALE**2) - 0.5
    np.testing.assert_allclose(found.kl_Z, kl_MZ.mean(0), **close)
    estimates = found.estimates()
    assert estimates["token_kl"].value == pytest.approx(kl_MZ.sum(1).mean(), rel=1e-4)
    whole = likelihood(model, split).kl_N["z"].sum()  # all sentences' KL is all tokens' KL
    assert estimates["token_kl"].value * count == pytest.approx(whole, rel=1e-4)
    assert estimates["feature_cosine"].value == pytest.approx(mean_cosine(features_MH).value, abs=1e-4)
    covariance_ZZ = np.cov(mean_MZ.T, ddof=0) + np.diag((deviation_MZ**2).mean(0))
    marginal = gaussian_kl(mean_MZ.mean(0), covariance_ZZ, np.zeros(4), np.full(4, SCALE**2))
    by_chance = gaussian_kl_by_chance(covariance_ZZ, np.cov(mean_MZ.T, ddof=0), count)
    assert estimates["marginal_kl"].value == pytest.approx(marginal - by_chance, rel=1e-3)


def test_the_mutual_information_is_that_of_a_token_and_its_code(model: Model, split: EncodedSplit) -> None:
    """The mean over many draws of log q(z|token) - log q(z), with a loop over tokens."""
    drawn = [posterior_statistics(model, split, seed=seed) for seed in range(8)]
    _, mean_MZ, deviation_MZ = tokens_of(model, split)
    chance, found = np.random.default_rng(0), []
    for _ in range(8):
        sample_MZ = chance.normal(mean_MZ, deviation_MZ)
        for own, z in enumerate(sample_MZ):
            each_M = (-0.5 * ((z - mean_MZ) / deviation_MZ) ** 2 - np.log(deviation_MZ)).sum(1)
            found.append(each_M[own] - np.logaddexp.reduce(each_M) + math.log(len(mean_MZ)))
    assert np.mean(found) > 0.3
    error = np.std(found) / math.sqrt(len(found))
    assert np.mean([each.mi.value for each in drawn]) == pytest.approx(np.mean(found), abs=6 * error)


def test_names_speak_of_tokens(model: Model, split: EncodedSplit) -> None:
    found = posterior_statistics(model, split)
    names = {key: each.name for key, each in found.estimates().items()}
    count = int(np.sum(split.lengths))
    assert names["mi"].startswith("mutual information of token and code under q")
    assert f"at most ln {count} = {math.log(count):.2f}" in names["mi"]
    assert "varies over tokens by more than" in names["active_units"]
    assert names["feature_cosine"] == "mean cosine of two tokens' features"
    assert names["hoyer_samples"].endswith("one posterior sample a token")
    assert names["marginal_kl"].startswith("KL(q(z) || p(z)) of all these tokens' codes together")
    assert not any("sentence" in name for name in names.values())
    assert (found.settings["unit"], found.unit) == ("token", "token")
    assert (found.settings["tokens"], found.settings["sentences"], found.settings["of"]) == (count, 20, 20)


def test_sentences_are_spoken_of_where_they_have_the_codes(tiny, split: EncodedSplit) -> None:
    found = posterior_statistics(Model(small(RECIPES["transformer-vae"]), len(tiny.tokenizer)), split)
    assert found.unit == "sentence"
    assert "unit" not in found.settings
    assert "token_kl" not in found.estimates()
    assert found.codes == found.sentences == len(split)
    assert "tokens" not in found.settings
    assert not any("token" in each.name for each in found.estimates().values())


def test_neither_batches_nor_the_mode_change_anything(model: Model, split: EncodedSplit) -> None:
    whole = posterior_statistics(model.train(), split, seed=2).estimates()
    parts = posterior_statistics(model, split, seed=2, batch_tokens=30).estimates()
    assert model.training
    for name, estimate in whole.items():
        assert parts[name].value == pytest.approx(estimate.value, abs=1e-4), name


def test_a_limit_is_about_tokens(model: Model, tiny, monkeypatch) -> None:
    train = tiny.encoded.splits["train"]
    found = posterior_statistics(model, train, limit=100)
    assert found.codes == pytest.approx(100, rel=0.2)
    assert found.settings["of"] == len(train)
    few = posterior_statistics(model, train, limit=1)  # two sentences at least
    assert (few.sentences, few.codes) == (2, train.lengths[some_rows(len(train), 2)].sum())
    monkeypatch.setattr(module, "TOKENS", 50)
    assert posterior_statistics(model, train).codes == pytest.approx(50, rel=0.3)


def test_a_collapsed_space_has_no_active_units_and_tells_nothing(model: Model, split: EncodedSplit) -> None:
    with torch.no_grad():
        for head in (model.posterior.mean, model.posterior.log_variance):
            head.weight.zero_()
            head.bias.zero_()
        model.posterior.log_variance.bias.fill_(2 * math.log(SCALE))
    found = {name: each.value for name, each in posterior_statistics(model, split).estimates().items()}
    for name in ("mi", "mi_leave_one_out", "active_units", "token_kl", "marginal_kl"):
        assert found[name] == pytest.approx(0, abs=1e-5), name


@pytest.mark.parametrize("posterior", ["delta", "spike-and-slab"])
def test_other_posteriors_of_tokens_are_measured_too(tiny, split: EncodedSplit, posterior: str) -> None:
    changes = {"posterior": {"kind": posterior}, "objective.kind": "reconstruction", "initial.weights": 0.9}
    prior = {"prior": {"kind": "beta-gated"}} if posterior == "spike-and-slab" else {}
    model = Model(small(RECIPES["vat"]).but(changes | prior), len(tiny.tokenizer))
    found = posterior_statistics(model, split)
    assert found.codes == int(np.sum(split.lengths))
    assert ("token_kl" in found.estimates()) == (posterior == "spike-and-slab")
    assert found.active_units > 0


def test_statistics_of_tokens_come_back_from_json(model: Model, split: EncodedSplit) -> None:
    found = posterior_statistics(model, split)
    back = PosteriorStatistics.from_dict(json.loads(json.dumps(found.to_dict())))
    assert back.unit == "token"
    assert back.estimates().keys() == found.estimates().keys()
    assert back.estimates()["token_kl"].value == pytest.approx(found.estimates()["token_kl"].value, rel=1e-5)
    assert back.codes == found.codes


# Errors


def test_the_errors_are_the_spread_over_other_sentences_whose_tokens_are_alike() -> None:
    chance = np.random.default_rng(0)
    found: dict[str, list[Mean]] = {"mean": [], "cosine": []}
    for _ in range(400):
        sentence_M = np.arange(40).repeat(chance.integers(3, 20, size=40))
        features_MH = 0.7 + chance.normal(size=(40, 5))[sentence_M] + chance.normal(size=(len(sentence_M), 5))
        found["mean"].append(Mean.of(features_MH[:, 0], sentence_M))
        found["cosine"].append(mean_cosine(features_MH, sentence_M))
        assert found["cosine"][-1].value == mean_cosine(features_MH).value
    for each in found.values():
        assert np.mean([one.stderr for one in each]) == pytest.approx(np.std([one.value for one in each]), rel=0.1)


def test_with_one_token_a_sentence_the_error_is_the_plain_one() -> None:
    values_N = np.random.default_rng(0).normal(size=30)
    assert Mean.of(values_N, np.arange(30)) == pytest.approx(Mean.of(values_N), rel=1e-12)


def test_every_error_of_a_space_is_over_sentences(model: Model, split: EncodedSplit, monkeypatch) -> None:
    features_MH, _, _ = tokens_of(model, split)
    sentence_M = np.arange(20).repeat(split.lengths)
    information = Information(*np.random.default_rng(0).normal(sentence_M, size=(2, len(sentence_M))))
    monkeypatch.setattr(module, "mutual_information", lambda *_: information)
    owners = []
    monkeypatch.setattr(module, "hoyer_error", lambda _, owner_M: owners.append(owner_M) or 0.5)
    found = posterior_statistics(model, split)
    assert found.mi == Mean.of(information.counted_N, sentence_M)
    assert found.hoyer_samples.stderr == found.hoyer_means.stderr == 0.5
    for owner_M in owners:
        np.testing.assert_array_equal(owner_M, sentence_M)
    assert found.mi_leave_one_out == Mean.of(information.left_out_N, sentence_M)
    assert found.feature_cosine == pytest.approx(mean_cosine(features_MH, sentence_M), rel=1e-3)


def test_the_report_says_that_errors_are_over_sentences_and_counts_these(model: Model, split: EncodedSplit) -> None:
    found = posterior_findings(examine(model, split, model.recipe), sparse=True)
    assert {each.n for each in found.estimates.values()} == {20}
    told = {each.settings["error"] for each in found.estimates.values() if each.stderr is not None}
    assert told == {"standard error over sentences"}
    assert found.pictures["kl"].y_label == "KL in nats, mean over tokens"


def test_hoyer_of_codes_of_one_sentence_alone_has_no_error_and_is_left_out() -> None:
    codes_MZ = np.zeros((6, 3))
    codes_MZ[:2] = np.random.default_rng(0).normal(size=(2, 3))
    assert module._mean_hoyer(codes_MZ, np.array([0, 0, 0, 1, 1, 1])) is None
    assert module._mean_hoyer(codes_MZ, np.array([0, 1, 1, 1, 2, 2])).stderr > 0
