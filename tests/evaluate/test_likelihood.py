"""Likelihoods against truths: quadrature, enumeration, conjugacy, and their own invariances."""

import math
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import torch
from helpers import small, tiny_sentences
from torch.distributions import Normal

from textspace.config import Recipe
from textspace.data.batching import make_batch
from textspace.data.corpus import corpus_of
from textspace.data.encoded import EncodedSplit
from textspace.data.preparing import Prepared, prepare
from textspace.divergences import dual_kl
from textspace.errors import TextspaceError
from textspace.evaluate.likelihood import Likelihood, likelihood
from textspace.evaluate.posterior import posterior_statistics
from textspace.lengths import Lengths
from textspace.model import Model
from textspace.noise import Noise
from textspace.recipes import RECIPES


@pytest.fixture(scope="module")
def test_split(tiny):
    return tiny.encoded.splits["test"]


@pytest.fixture(scope="module")
def one_dimensional(tiny) -> Model:
    """A model with one latent dimension that matters, so that its marginal is an integral over the line."""
    recipe = small(RECIPES["vae"]).but({"latent.dim": 1, "initial.weights": 0.6, "training.seed": 2})
    model = Model(recipe, len(tiny.tokenizer)).eval()
    with torch.no_grad():
        model.decoder.first_state.weight.mul_(3)
        model.posterior.log_variance.bias.fill_(-0.5)
    return model


def exact_log_px(model: Model, split) -> np.ndarray:
    """log of the integral of p(x | z) p(z) dz by the trapezoid rule on 1,201 points in [-6, 6]."""
    grid = torch.linspace(-6, 6, 1201)
    batch = make_batch(split, np.arange(len(split)))
    with torch.no_grad():
        log_px = []
        for z in grid.split(100):
            z_SBZ = z[:, None, None].expand(-1, len(split), 1)
            token_log_px = model.decoder(z_SBZ, batch.decoder, Noise(0, 0, batch.rows_B))
            log_px.append(token_log_px.double().where(batch.decoder.mask_BT[:, 1:], 0.0).sum(2))
        log_joint = torch.cat(log_px) + Normal(0.0, 1.0).log_prob(grid)[:, None].double()
    return (log_joint.logsumexp(0) + math.log(12 / 1200)).numpy()


def test_the_bound_lies_below_the_truth_and_converges_to_it(one_dimensional, tiny) -> None:
    split = tiny.encoded.splits["train"]
    truth_N = exact_log_px(one_dimensional, split)
    gaps = {}
    for samples in (1, 5, 50, 500):
        gap_N = likelihood(one_dimensional, split, samples=samples).nll_N + truth_N
        error = gap_N.std() / math.sqrt(len(gap_N))
        gaps[samples] = gap_N.mean()
        assert gaps[samples] > -3 * error  # an upper bound on -log p(x) in expectation
    assert gaps[1] > gaps[5] > gaps[50] > gaps[500]
    assert gaps[1] > 0.05  # the posterior is not the true one: there is something to converge from
    assert gaps[500] < 0.01
    elbo_gap = (likelihood(one_dimensional, split, samples=200).elbo_N + truth_N).mean()
    assert elbo_gap == pytest.approx(gaps[1], abs=0.1)  # one sample estimates the ELBO
    assert elbo_gap > gaps[5]


def test_chunks_change_memory_and_not_the_estimate(tiny_model, test_split) -> None:
    at_once = likelihood(tiny_model, test_split, samples=7, chunk=7)
    chunks = likelihood(tiny_model, test_split, samples=7, chunk=3)
    for name in ("nll_N", "effective_samples_N", "reconstruction_N", "elbo_N"):
        np.testing.assert_allclose(getattr(chunks, name), getattr(at_once, name), atol=1e-5)
    six = likelihood(tiny_model, test_split, samples=6, chunk=3)
    assert np.abs(six.nll_N - at_once.nll_N).max() > 1e-4  # the seventh sample is not dropped


def test_a_model_trains_on_as_before_even_if_scoring_fails(tiny_model, test_split, monkeypatch) -> None:
    for mode in (True, False):
        tiny_model.train(mode)
        likelihood(tiny_model, test_split, samples=1)
        assert tiny_model.training is tiny_model.decoder.training is mode
    tiny_model.train()
    monkeypatch.setattr(tiny_model.decoder, "forward", mock.Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        likelihood(tiny_model, test_split, samples=1)
    assert tiny_model.decoder.training
    tiny_model.eval()


def test_batches_shares_and_repetition_change_nothing(tiny_model, test_split) -> None:
    whole = likelihood(tiny_model, test_split, samples=3)
    again = likelihood(tiny_model, test_split, samples=3)
    small_batches = likelihood(tiny_model, test_split, samples=3, batch_tokens=30)
    shares = [likelihood(tiny_model, test_split, samples=3, batch_tokens=30, share=(i, 3)) for i in range(3)]
    for name in ("nll_N", "reconstruction_N", "elbo_N"):
        assert np.array_equal(getattr(whole, name), getattr(again, name))
        np.testing.assert_allclose(getattr(small_batches, name), getattr(whole, name), atol=1e-5)
        np.testing.assert_allclose(sum(getattr(s, name) for s in shares), getattr(whole, name), atol=1e-5)


def test_parts_add_up(tiny_model, test_split) -> None:
    measured = likelihood(tiny_model, test_split, samples=4, keep_tokens=True)
    np.testing.assert_allclose(measured.elbo_N, measured.reconstruction_N + measured.kl_N["z"])
    np.testing.assert_allclose(measured.kl_per_dimension["z"].sum(), measured.kl_N["z"].mean(), rtol=1e-5)
    np.testing.assert_allclose([-t.sum() for t in measured.tokens], measured.reconstruction_N, rtol=1e-5)
    assert [len(t) for t in measured.tokens] == [test_split.lengths[i] - 1 for i in range(len(test_split))]


def test_a_language_models_likelihood_is_exact_and_has_no_kl(tiny, test_split) -> None:
    model = Model(small(RECIPES["lstm-lm"]), len(tiny.tokenizer))
    measured = likelihood(model, test_split, samples=10)
    estimates = measured.estimates()
    assert measured.kl_N == {}
    assert measured.elbo_N is None
    assert "kl" not in estimates
    assert estimates["nll"].bound == "exact"
    assert estimates["nll"].name == "exact NLL"


def test_a_language_model_of_subwords_knows_one_of_many_ways_to_write_a_text(tiny, test_split) -> None:
    model = Model(small(RECIPES["lstm-lm"]).but({"text.tokenizer": {"kind": "bpe", "size": 300}}), len(tiny.tokenizer))
    estimates = likelihood(model, test_split).estimates()
    assert {estimates[key].bound for key in ("nll", "nll_ppl_word")} == {"upper"}
    assert estimates["nll"].name == "NLL of the tokenizer's own subwords, upper bound on that of the text"


def test_a_share_without_batches_has_all_that_is_summed_with_others(tiny_model, test_split) -> None:
    """Processes sum what they have number by number: one that has nothing must have as many."""
    whole, none = (likelihood(tiny_model, test_split, batch_tokens=2**20, share=(i, 2)) for i in (0, 1))
    assert whole.kl_per_dimension.keys() == none.kl_per_dimension.keys() == {"z"}
    assert not none.kl_per_dimension["z"].any()
    assert not none.reconstruction_N.any()


def test_under_a_mixture_no_dimension_has_a_share_of_its_own(tiny, test_split) -> None:
    recipe = small(RECIPES["vae"]).but({"prior": {"kind": "pseudo-inputs", "count": 3}})
    model = Model(recipe, len(tiny.tokenizer))
    measured = likelihood(model, test_split)
    assert measured.kl_per_dimension == {}
    assert measured.kl_N["z"].shape == (len(test_split),)
    assert posterior_statistics(model, test_split).kl_Z is None


def test_dropping_the_end_token_drops_that_term_only(tiny_model, test_split) -> None:
    kept = likelihood(tiny_model, test_split, keep_tokens=True)
    dropped = likelihood(tiny_model, test_split, end_token="dropped", keep_tokens=True)
    for one, all_of_it in zip(dropped.tokens, kept.tokens, strict=True):
        np.testing.assert_array_equal(one, all_of_it[:-1])
    end = np.array([tokens[-1] for tokens in kept.tokens])
    np.testing.assert_allclose(dropped.reconstruction_N, kept.reconstruction_N + end, atol=1e-5)
    assert np.array_equal(kept.counts_N["word"], dropped.counts_N["word"] + 1)
    assert dropped.settings["end_token"] == "dropped"


def test_a_posterior_without_density_gets_a_fitted_proposal_and_says_so(tiny, test_split, one_dimensional) -> None:
    recipe = one_dimensional.recipe.but({"posterior.kind": "delta", "objective.kind": "reconstruction"})
    model = Model(recipe, len(tiny.tokenizer)).eval()
    truth = exact_log_px(model, test_split)
    measured = likelihood(model, test_split, samples=3000)
    assert measured.kl_N == {}
    assert measured.elbo_N is None
    assert "Gaussian fitted to posterior samples" in measured.estimates()["nll"].name
    assert measured.estimates()["nll"].bound == "upper"
    assert (measured.nll_N + truth).mean() > -0.01
    # reconstructions come from the posterior itself, not from the proposal
    batch = make_batch(test_split, np.arange(len(test_split)))
    with torch.no_grad():
        direct = -model(batch, Noise(0, 0, batch.rows_B)).log_px_SB[0]
    np.testing.assert_allclose(measured.reconstruction_N, direct.numpy(), atol=1e-5)


def test_few_effective_samples_are_called_loose(tiny, test_split) -> None:
    model = Model(small(RECIPES["vae"]), len(tiny.tokenizer))
    with torch.no_grad():
        model.posterior.mean.bias.fill_(4.0)  # far from the prior, so that weights differ wildly
        model.posterior.log_variance.bias.fill_(2.0)
    measured = likelihood(model, test_split, samples=50)
    assert measured.loose
    assert "loose: effective sample size" in measured.estimates()["nll"].name
    fine = likelihood(
        Model(small(RECIPES["vae"]).but({"initial.weights": 0.01}), len(tiny.tokenizer)), test_split, samples=50
    )
    assert not fine.loose
    assert fine.effective_samples_N.mean() > 40


def _prepared(tokenizer: str) -> Prepared:
    recipe = Recipe().with_settings([f"text.tokenizer.kind={tokenizer}", "text.tokenizer.size=260"])
    return prepare(corpus_of(tiny_sentences()), recipe)


def test_word_and_character_models_with_equal_nll_have_equal_perplexity_per_word() -> None:
    """Two tokenizations, both models uniform over their units and scaled to the same total NLL."""
    words, characters = _prepared("words"), _prepared("bpe")
    splits = [each.encoded.splits["test"] for each in (words, characters)]
    assert splits[0].lengths.sum() < splits[1].lengths.sum()
    measured = []
    for prepared, split in zip((words, characters), splits, strict=True):
        model = Model(small(RECIPES["lstm-lm"]), len(prepared.tokenizer))
        nats_N = 2.0 * np.asarray(split.words) + 1.0  # the same function of the sentence, whatever the tokens
        measured.append(replace(likelihood(model, split), nll_N=nats_N).estimates())
    for unit in ("word", "character"):
        assert measured[0][f"nll_ppl_{unit}"].value == pytest.approx(measured[1][f"nll_ppl_{unit}"].value)
    assert measured[0]["nll_ppl_token"].value > 2 * measured[1]["nll_ppl_token"].value


def test_perplexity_and_its_error(test_split, tiny_model) -> None:
    measured = likelihood(tiny_model, test_split)
    estimate = measured.estimates()["elbo_ppl_word"]
    words = np.asarray(test_split.words) + 1
    assert estimate.value == pytest.approx(math.exp(measured.elbo_N.sum() / words.sum()))
    chance = np.random.default_rng(0)
    draws = chance.integers(0, len(words), (2000, len(words)))
    bootstrap = np.exp(measured.elbo_N[draws].sum(1) / words[draws].sum(1))
    assert estimate.stderr == pytest.approx(bootstrap.std(), rel=0.2)
    assert estimate.bound == "upper"


# Models trained with the dual form of the KL

IMPLICIT = {
    "posterior.layers": 1,
    "posterior.hidden": 16,
    "objective.dual.hidden": 16,
    "objective.networks": "one",
    "initial": {"weights": 0.6, "embeddings": 0.1},
}


@pytest.fixture(scope="module")
def implicit(tiny) -> Model:
    return Model(small(RECIPES["ivae"]).but(IMPLICIT), len(tiny.tokenizer)).eval()


@pytest.fixture
def gaussian_with_dual(tiny) -> Model:
    """A Gaussian posterior trained with the dual form, whose KL is known too."""
    recipe = small(RECIPES["ivae"]).but({"posterior": {"kind": "gaussian"}, "objective.networks": "one"})
    model = Model(recipe.but({"initial.weights": 0.6, "initial.embeddings": 1.0}), len(tiny.tokenizer)).eval()
    with torch.no_grad():
        model.posterior.log_variance.bias.fill_(-2.0)
    return model


def trained_dual(model: Model, split, steps: int = 300) -> None:
    """Move the dual function alone, as the alternating rule does."""
    batch = make_batch(split, np.arange(len(split)))
    adam = torch.optim.Adam(model.dual.parameters(), lr=0.01)
    for step in range(steps):
        noise = Noise(9, step, batch.rows_B)
        with torch.no_grad():
            features_BH = model.features(batch.encoder)
            z = model.sites(features_BH, noise, 4)["z"]
        adam.zero_grad()
        (-dual_kl(model.dual, features_BH, z.value_SBZ, z.prior_draws(noise, "prior draws")).mean()).backward()
        adam.step()


@pytest.mark.parametrize("samples", [0, 20])
@pytest.mark.parametrize("of", ["posterior", "aggregated"])
def test_the_dual_form_says_that_it_is_a_lower_bound(tiny, test_split, of: str, samples: int) -> None:
    model = Model(small(RECIPES["ivae"]).but(IMPLICIT | {"objective.of": of}), len(tiny.tokenizer)).eval()
    estimates = likelihood(model, test_split, samples=samples).estimates()
    for name in ("dual_kl", "dual_elbo"):
        assert estimates[name].bound == "lower"
        assert "lower bound" in estimates[name].name
        assert "NLL bound" not in estimates[name].name
    assert "no bound on NLL" in estimates["dual_elbo"].name
    kl = {"posterior": "KL(q(z|x) || p(z))", "aggregated": "KL(q(z) || p(z))"}[of]
    assert kl in estimates["dual_kl"].name
    assert not {"kl", "elbo", "elbo_ppl_word", "dual_marginal_kl", "dual_mi"} & estimates.keys()  # which nobody knows
    assert "no bound on NLL" in estimates["dual_elbo_ppl_word"].name  # as the paper prints it
    assert ("nll" in estimates) == (samples > 0)
    if samples:
        assert estimates["nll"].bound == "upper"
        assert "importance-weighted NLL, 20 samples" in estimates["nll"].name
        assert "proposal: Gaussian fitted to posterior samples" in estimates["nll"].name
        assert estimates["nll"].settings["proposal"].startswith("Gaussian fitted to posterior samples")


def test_the_dual_form_is_measured_with_one_draw_of_posterior_and_prior(implicit: Model, test_split) -> None:
    measured = likelihood(implicit, test_split)
    batch = make_batch(test_split, np.arange(len(test_split)))
    noise = Noise(0, 0, batch.rows_B)
    with torch.no_grad():
        passed = implicit(batch, noise)
        prior_SBZ = noise.normal("prior draws", (4,), 1)
        truth_B = dual_kl(implicit.dual, passed.features_BH, passed.sites["z"].value_SBZ, prior_SBZ)
    np.testing.assert_allclose(measured.dual_kl_N, truth_B.numpy(), atol=1e-5)
    np.testing.assert_allclose(measured.reconstruction_N, -passed.log_px_SB[0].numpy(), atol=1e-4)
    estimates = measured.estimates()
    assert estimates["dual_kl"].value == pytest.approx(truth_B.mean().item(), abs=1e-5)
    together = estimates["reconstruction"].value + max(estimates["dual_kl"].value, 0)
    assert estimates["dual_elbo"].value == pytest.approx(together)


@pytest.fixture(params=["ivae", "ivae-mi"])
def with_both(request, tiny) -> Model:
    recipe = small(RECIPES[request.param]).but(IMPLICIT | {"objective.networks": "both"})
    return Model(recipe, len(tiny.tokenizer)).eval()


def test_both_dual_forms_and_their_difference_are_reported(with_both: Model, test_split) -> None:
    """Functions that are a constant c have the dual form c - e^c + 1, whatever the samples are."""
    with torch.no_grad():
        for function, constant in ((with_both.dual.posterior, 0.5), (with_both.dual.aggregated, -0.25)):
            function.network[-1].weight.zero_()
            function.network[-1].bias.fill_(constant)
    form, marginal = (c - math.exp(c) + 1 for c in (0.5, -0.25))
    for samples in (0, 5):
        measured = likelihood(with_both, test_split, samples=samples)
        estimates = measured.estimates()
        assert estimates["dual_kl"].value == pytest.approx(form, abs=1e-5)
        assert estimates["dual_marginal_kl"].value == pytest.approx(marginal, abs=1e-5)
        assert estimates["dual_mi"].value == pytest.approx(form - marginal, abs=1e-5)
        assert "dual form of KL(q(z|x) || p(z)), lower bound" in estimates["dual_kl"].name
        assert "dual form of KL(q(z) || p(z)), lower bound" in estimates["dual_marginal_kl"].name
        assert [estimates[name].bound for name in ("dual_kl", "dual_marginal_kl", "dual_mi")] == ["lower"] * 2 + [
            "none"
        ]
        assert estimates["dual_elbo"].value == pytest.approx(estimates["reconstruction"].value)  # the form is below 0


def test_what_a_dual_model_reports_rests_on_128_samples_of_each_sentence(with_both: Model, test_split) -> None:
    drawn, reconstructed, rows = [], [], []

    def watch(passed) -> None:
        drawn.append(passed.sites["z"].value_SBZ)
        reconstructed.append(-passed.log_px_SB.double())
        rows.append(passed.batch.rows_B)

    measured = likelihood(with_both, test_split, samples=3, chunk=50, watch=watch)
    z_SBZ = torch.cat(drawn)
    assert len(z_SBZ) == 128
    assert len(set(z_SBZ[:, 0, 0].tolist())) == 128
    found_N = torch.cat(reconstructed).mean(0).numpy()
    np.testing.assert_allclose(measured.reconstruction_N[rows[0]], found_N, atol=1e-4)
    batch = make_batch(test_split, np.arange(len(test_split)))
    noise = Noise(0, 0, batch.rows_B)
    with torch.no_grad():
        features_BH = with_both.features(batch.encoder)
        z_SBZ = with_both.sites(features_BH, noise, 128)["z"].value_SBZ
        prior_SBZ = noise.normal("prior draws", (4,), 128)
        pair = with_both.dual
        of_both = [dual_kl(v, features_BH, z_SBZ, prior_SBZ).numpy() for v in (pair.posterior, pair.aggregated)]
    np.testing.assert_allclose(measured.dual_kl_N, of_both[0], atol=1e-5)
    np.testing.assert_allclose(measured.dual_marginal_kl_N, of_both[1], atol=1e-5)
    estimates = measured.estimates()
    assert estimates["dual_kl"].settings["dual_samples"] == 128
    tokens = int(measured.counts_N["word"].sum())
    total = measured.reconstruction_N.sum() + max(measured.dual_kl_N.sum(), 0)
    assert estimates["dual_elbo_ppl_word"].value == pytest.approx(math.exp(total / tokens), rel=1e-6)
    assert likelihood(with_both, test_split).settings["dual_samples"] == 1  # in validations


def test_sentences_have_both_dual_forms_among_their_numbers(with_both: Model, test_split) -> None:
    measured = likelihood(with_both, test_split)
    assert [row["dual_marginal_kl"] for row in measured.rows()] == measured.dual_marginal_kl_N.tolist()
    some = measured.of_rows(np.array([3, 1]))
    assert some.dual_marginal_kl_N.tolist() == measured.dual_marginal_kl_N[[3, 1]].tolist()
    shares = [likelihood(with_both, test_split, batch_tokens=30, share=(i, 2)) for i in range(2)]
    whole = shares[0].summed_with(lambda part: part + torch.from_numpy(shares[1].dual_marginal_kl_N))
    np.testing.assert_allclose(whole.dual_marginal_kl_N, measured.dual_marginal_kl_N, atol=1e-5)


def test_a_gaussian_posterior_with_a_dual_form_has_its_closed_kl_too(gaussian_with_dual: Model, tiny) -> None:
    split = tiny.encoded.splits["train"]
    before = likelihood(gaussian_with_dual, split, samples=4)
    trained_dual(gaussian_with_dual, split)
    measured = likelihood(gaussian_with_dual, split, samples=4)
    estimates = measured.estimates()
    assert {"kl", "elbo", "dual_kl", "dual_elbo", "nll"} <= estimates.keys()
    assert estimates["elbo"].bound == "upper"
    assert estimates["nll"].settings["proposal"] == "posterior"
    np.testing.assert_array_equal(measured.kl_N["z"], before.kl_N["z"])
    assert estimates["kl"].value > 1  # there is something to estimate
    error = 4 * (estimates["dual_kl"].stderr + estimates["kl"].stderr)
    assert 0.7 * estimates["kl"].value < estimates["dual_kl"].value < estimates["kl"].value + error
    assert before.estimates()["dual_kl"].value < 0.3 * estimates["kl"].value


def test_chunks_batches_and_shares_do_not_change_the_dual_form(gaussian_with_dual: Model, test_split) -> None:
    whole = likelihood(gaussian_with_dual, test_split, samples=7, chunk=7).dual_kl_N
    chunks = likelihood(gaussian_with_dual, test_split, samples=7, chunk=3).dual_kl_N
    small_batches = likelihood(gaussian_with_dual, test_split, samples=7, batch_tokens=30).dual_kl_N
    shares = [likelihood(gaussian_with_dual, test_split, samples=7, batch_tokens=30, share=(i, 3)) for i in range(3)]
    for other in (chunks, small_batches, sum(share.dual_kl_N for share in shares)):
        np.testing.assert_allclose(other, whole, atol=1e-5)
    exchanged: list[list[torch.Tensor]] = [[] for _ in shares]  # what each process would give for the sum
    for share, given in zip(shares, exchanged, strict=True):
        share.summed_with(lambda own, given=given: given.append(own) or own)
    sums = [sum(parts) for parts in zip(*exchanged, strict=True)]
    together = shares[0].summed_with(lambda own: sums.pop(0))
    np.testing.assert_allclose(together.dual_kl_N, whole, atol=1e-5)
    six = likelihood(gaussian_with_dual, test_split, samples=6, chunk=3).dual_kl_N
    assert np.abs(six - whole).max() > 1e-4


def test_the_importance_weighted_bound_of_an_implicit_posterior_converges_to_the_truth(tiny, test_split) -> None:
    recipe = small(RECIPES["ivae"]).but(IMPLICIT | {"latent.dim": 1, "posterior.layers": 0})
    model = Model(recipe, len(tiny.tokenizer)).eval()
    with torch.no_grad():
        model.decoder.first_state.weight.mul_(3)
        model.posterior.network[0].weight[:, -1] = 1.2  # of the noise: the deviation
    truth_N = exact_log_px(model, test_split)
    gaps = [(likelihood(model, test_split, samples=samples).nll_N + truth_N).mean() for samples in (1, 10, 2000)]
    assert gaps[0] > gaps[1] > gaps[2] > -0.01  # an upper bound on -log p(x) in expectation
    assert gaps[0] > 0.05
    assert gaps[2] < 0.01


def test_a_dual_form_below_zero_counts_as_zero_in_the_sum(implicit: Model, test_split) -> None:
    """Else weights whose dual function fits badly would look best of all."""
    measured = likelihood(implicit, test_split)
    for shift, expected in (
        (-1e6, measured.reconstruction_N),
        (1e6, measured.reconstruction_N + measured.dual_kl_N + 1e6),
    ):
        estimates = replace(measured, dual_kl_N=measured.dual_kl_N + shift).estimates()
        assert estimates["dual_elbo"].value == pytest.approx(expected.mean())
        assert estimates["dual_kl"].value == pytest.approx(measured.dual_kl_N.mean() + shift)


def test_sentences_have_their_dual_form_among_their_numbers(implicit: Model, tiny_model, test_split) -> None:
    measured = likelihood(implicit, test_split)
    assert [row["dual_kl"] for row in measured.rows()] == measured.dual_kl_N.tolist()
    assert "dual_kl" not in next(likelihood(tiny_model, test_split).rows())


# Models trained with mutual-information learning, and other priors


@pytest.fixture(scope="module")
def mim(tiny) -> Model:
    return Model(small(RECIPES["vae"]).but({"objective": {"kind": "mim"}}), len(tiny.tokenizer)).eval()


def test_the_mim_loss_is_its_formula_and_no_bound(mim: Model, tiny_model, test_split) -> None:
    measured = likelihood(mim, test_split, samples=3)
    batch = make_batch(test_split, np.arange(len(test_split)))
    with torch.no_grad():
        passed = mim(batch, Noise(0, 0, batch.rows_B), samples=3)
    z = passed.sites["z"]
    log_q = Normal(z.q.mean, z.q.stddev).log_prob(z.value_SBZ).sum(2)
    log_p = Normal(0.0, 1.0).log_prob(z.value_SBZ).sum(2)
    expected_N = -(passed.log_px_SB + 0.5 * (log_q + log_p)).mean(0)
    np.testing.assert_allclose(measured.mim_N, expected_N.numpy(), atol=1e-4)
    estimate = measured.estimates()["mim"]
    assert estimate.value == pytest.approx(expected_N.mean().item(), abs=1e-4)
    assert estimate.bound == "none"
    assert estimate.name.endswith("without the constant H(x)/2; no bound on NLL")
    assert [row["mim"] for row in measured.rows()] == measured.mim_N.tolist()
    assert "mim" not in likelihood(tiny_model, test_split).estimates()


def test_shares_of_the_mim_loss_and_of_other_priors_add_up(mim: Model, test_split) -> None:
    class Wide:
        name = "a wider normal"

        def log_prob(self, z_SBZ: torch.Tensor) -> torch.Tensor:
            return Normal(0.0, 2.0).log_prob(z_SBZ.double()).sum(2)

    def measured(**more: object) -> Likelihood:
        return likelihood(mim, test_split, samples=7, priors={"wide": Wide()}, **more)

    whole, chunks, small_batches = measured(chunk=7), measured(chunk=3), measured(batch_tokens=30)
    shares = [measured(batch_tokens=30, share=(i, 3)) for i in range(3)]
    exchanged: list[list[torch.Tensor]] = [[] for _ in shares]
    for share, given in zip(shares, exchanged, strict=True):
        share.summed_with(lambda own, given=given: given.append(own) or own)
    sums = [sum(parts) for parts in zip(*exchanged, strict=True)]
    together = shares[0].summed_with(lambda own: sums.pop(0))
    for other in (chunks, small_batches, together):
        np.testing.assert_allclose(other.mim_N, whole.mim_N, atol=1e-4)
        np.testing.assert_allclose(other.under["wide"].nll_N, whole.under["wide"].nll_N, atol=1e-4)
    assert "importance-weighted NLL under a wider normal, 7 samples" in together.estimates()["nll_wide"].name
    assert together.estimates()["nll_wide_ppl_word"].settings["prior"] == "a wider normal"


def test_a_prior_equal_to_the_models_own_gives_its_bound(mim: Model, test_split) -> None:
    class Same:
        name = "a standard normal"

        def log_prob(self, z_SBZ: torch.Tensor) -> torch.Tensor:
            return Normal(0.0, 1.0).log_prob(z_SBZ.double()).sum(2)

    measured = likelihood(mim, test_split, samples=5, priors={"same": Same()})
    np.testing.assert_allclose(measured.under["same"].nll_N, measured.nll_N, atol=1e-5)
    np.testing.assert_allclose(measured.under["same"].effective_samples_N, measured.effective_samples_N, atol=1e-4)
    for wrong in ({"samples": 0}, {"samples": 5, "proposal_scale": 0.0}):
        with pytest.raises(TextspaceError, match=r"other priors need|proposal_scale is 0\.0"):
            likelihood(mim, test_split, **{"priors": {"same": Same()}} | wrong)


def test_the_proposal_of_a_posterior_without_density_widens_too(tiny, test_split, one_dimensional) -> None:
    recipe = one_dimensional.recipe.but({"posterior.kind": "delta", "objective.kind": "reconstruction"})
    model = Model(recipe, len(tiny.tokenizer)).eval()
    truth = exact_log_px(model, test_split)
    narrow, wide = (likelihood(model, test_split, samples=300, proposal_scale=scale) for scale in (1.0, 15.0))
    assert (wide.nll_N + truth).mean() < 0.05 < (narrow.nll_N + truth).mean()
    assert "deviation at least 0.1, with 15 times its deviation" in wide.estimates()["nll"].name


# Precision


@pytest.fixture(scope="module")
def wider(tiny) -> Model:
    """With 64 hidden units, and codes that matter."""
    sizes = {"decoder.hidden": 64, "initial.weights": 0.4, "initial.embeddings": 0.5}
    return Model(small(RECIPES["vae"]).but(sizes), len(tiny.tokenizer)).eval()


def test_likelihoods_in_bf16_are_those_in_float32_to_a_fiftieth_of_a_nat(wider: Model, tiny) -> None:
    """The mean over 200 sentences of the absolute difference; the posterior's own numbers are the very same."""
    split = EncodedSplit.of(tiny_sentences(200), tiny.tokenizer, None)
    exact, short = (likelihood(wider, split, samples=20, precision=each) for each in ("float32", "bf16"))
    assert len(exact) == 200
    for name in ("nll_N", "elbo_N", "reconstruction_N"):
        apart_N = np.abs(getattr(short, name) - getattr(exact, name))
        assert 0 < apart_N.mean() < 0.02
        assert apart_N.max() < 0.1
    np.testing.assert_array_equal(short.kl_N["z"], exact.kl_N["z"])
    assert "precision" not in exact.settings
    assert short.settings["precision"] == "bf16"
    assert short.estimates()["nll"].settings["precision"] == "bf16"
    chunks = likelihood(wider, split, samples=20, precision="bf16", chunk=7, batch_tokens=100)
    np.testing.assert_allclose(chunks.nll_N, short.nll_N, atol=0.02)


@pytest.mark.parametrize("name", ["lstm-lm", "skip-vae", "vat-small"])
def test_other_models_can_be_scored_in_bf16_too(tiny, test_split, name: str) -> None:
    model = Model(small(RECIPES[name]), len(tiny.tokenizer)).eval()
    exact, short = (likelihood(model, test_split, samples=2, precision=each) for each in ("float32", "bf16"))
    assert 0 < np.abs(short.nll_N - exact.nll_N).mean() < 0.05


def test_precisions_that_are_not_there_are_refused(tiny_model, test_split) -> None:
    tiny_model.train()
    for wrong, told in (("fp8", "precision is 'fp8': use 'float32', 'tf32' or 'bf16'"), ("tf32", "is for a GPU")):
        with pytest.raises(TextspaceError, match=told):
            likelihood(tiny_model, test_split, precision=wrong)
    assert tiny_model.training


def test_tokens_are_those_of_their_sentences_in_any_batches(tiny_model, test_split) -> None:
    options = {"samples": 3, "keep_tokens": True, "end_token": "included"}
    whole = likelihood(tiny_model, test_split, **options)
    parts = likelihood(tiny_model, test_split, batch_tokens=30, chunk=2, **options)
    for one, other in zip(whole.tokens, parts.tokens, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    assert likelihood(tiny_model, test_split, samples=3).tokens is None


def test_what_has_no_probability_and_what_has_no_tokens_is_told(small_vae: Recipe, tiny) -> None:
    model = Model(small_vae, len(tiny.tokenizer)).eval()
    split = EncodedSplit.of(["anna sees cats", "anna " * 30], tiny.tokenizer, None)
    with pytest.raises(TextspaceError, match="sentence 2 has 30 tokens, more than a sentence of this space can have"):
        likelihood(model, split, end_token="length", lengths=Lengths([0, 1, 2, 3]))
    with pytest.raises(TextspaceError, match="there is nothing to score"):
        likelihood(model, EncodedSplit.of([""], tiny.tokenizer, None), end_token="dropped")
