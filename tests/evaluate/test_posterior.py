"""What posteriors look like, against truths: closed forms, quadrature, double loops, and posteriors made by hand."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import small
from torch.distributions import Laplace, MultivariateNormal, Normal, kl_divergence

from textspace.data.batching import make_batch
from textspace.distributions import draw
from textspace.evaluate import code_statistics
from textspace.evaluate import posterior as module
from textspace.evaluate.code_statistics import (
    covariance_of_means,
    gaussian_kl,
    gaussian_kl_by_chance,
    mean_cosine,
    mutual_information,
)
from textspace.evaluate.hoyer import average_hoyer, hoyer_error
from textspace.evaluate.likelihood import likelihood
from textspace.evaluate.posterior import PosteriorStatistics, posterior_statistics
from textspace.evaluate.statistics import some_rows
from textspace.model import Model
from textspace.noise import Noise
from textspace.recipes import RECIPES


@pytest.fixture(scope="module")
def split(tiny):
    return tiny.encoded.splits["train"]


@pytest.fixture
def chance() -> np.random.Generator:
    return np.random.default_rng(1)


def posteriors(chance: np.random.Generator, count: int, dims: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    mean_NZ = chance.normal(size=(count, dims))
    deviation_NZ = np.exp(0.5 * chance.normal(size=(count, dims)))
    return mean_NZ, deviation_NZ, mean_NZ + deviation_NZ * chance.normal(size=(count, dims))


# Mutual information


def test_equal_posteriors_tell_nothing(chance) -> None:
    mean_NZ, deviation_NZ = np.full((50, 4), 3.0), np.full((50, 4), 0.1)
    found = mutual_information(mean_NZ, deviation_NZ, chance.normal(3.0, 0.1, size=(50, 4)))
    np.testing.assert_allclose(found.counted_N, 0, atol=1e-10)
    np.testing.assert_allclose(found.left_out_N, 0, atol=1e-10)


@pytest.mark.parametrize("deviation", [1.0, 1e-3, 1e-6])
def test_posteriors_far_apart_tell_all(chance, deviation: float) -> None:
    mean_NZ = 100.0 * np.arange(30)[:, None] + np.zeros(2)
    deviation_NZ = np.full_like(mean_NZ, deviation)
    found = mutual_information(mean_NZ, deviation_NZ, mean_NZ + deviation_NZ * chance.normal(size=(30, 2)))
    np.testing.assert_allclose(found.counted_N, math.log(30), atol=1e-9)
    assert found.left_out_N.min() > 1000


@pytest.mark.parametrize("pairs_at_once", [1, 40 * 7, 2**23])
def test_mutual_information_equals_the_double_loop(chance, monkeypatch, pairs_at_once: int) -> None:
    monkeypatch.setattr(code_statistics, "DENSITIES_AT_ONCE", pairs_at_once)
    mean_NZ, deviation_NZ, sample_NZ = map(torch.from_numpy, posteriors(chance, 40))
    log_q = torch.zeros(40, 40, dtype=torch.float64)
    for i in range(40):
        for j in range(40):
            log_q[i, j] = Normal(mean_NZ[j], deviation_NZ[j]).log_prob(sample_NZ[i]).sum()
    counted = [log_q[i, i] - log_q[i].exp().mean().log() for i in range(40)]
    left_out = [log_q[i, i] - log_q[i][torch.arange(40) != i].exp().mean().log() for i in range(40)]
    found = mutual_information(mean_NZ.numpy(), deviation_NZ.numpy(), sample_NZ.numpy())
    np.testing.assert_allclose(found.counted_N, counted, atol=1e-9)
    np.testing.assert_allclose(found.left_out_N, left_out, atol=1e-9)


def test_two_gaussians_against_quadrature(chance) -> None:
    mean_2, deviation_2 = np.array([-0.5, 1.2]), np.array([0.6, 1.1])
    grid = torch.linspace(-9, 9, 20_001, dtype=torch.float64)
    density_2 = Normal(torch.tensor(mean_2)[:, None], torch.tensor(deviation_2)[:, None]).log_prob(grid).exp()
    truth = float(torch.trapezoid((density_2 * (density_2 / density_2.mean(0)).log()).mean(0), grid))
    mean_NZ, deviation_NZ = np.tile(mean_2, 3000)[:, None], np.tile(deviation_2, 3000)[:, None]
    sample_NZ = mean_NZ + deviation_NZ * chance.normal(size=mean_NZ.shape)
    counted_N = mutual_information(mean_NZ, deviation_NZ, sample_NZ).counted_N
    assert 0.2 < truth < math.log(2)
    assert counted_N.mean() == pytest.approx(truth, abs=3 * counted_N.std() / math.sqrt(len(counted_N)))


def test_the_two_estimates_bracket_a_linear_gaussian_truth_and_approach_it(chance) -> None:
    slope, deviation = 1.0, 0.5
    truth = 0.5 * math.log(1 + slope**2 / deviation**2)
    gaps = []
    for count, repeats in ((10, 2000), (100, 200), (1000, 20)):
        estimates = []
        for _ in range(repeats):
            mean_NZ = slope * chance.normal(size=(count, 1))
            deviation_NZ = np.full_like(mean_NZ, deviation)
            found = mutual_information(mean_NZ, deviation_NZ, chance.normal(mean_NZ, deviation_NZ))
            estimates.append([found.counted_N.mean(), found.left_out_N.mean()])
        below, above = np.mean(estimates, axis=0)
        errors = np.std(estimates, axis=0) / math.sqrt(repeats)
        assert below < truth + 3 * errors[0]
        assert above > truth - 3 * errors[1]
        gaps.append(above - below)
    assert gaps[0] > 3 * gaps[1] > 9 * gaps[2]
    assert gaps[2] < 0.01


# The other numbers


def test_active_units_and_the_share_of_the_prior() -> None:
    chance = np.random.default_rng(0)
    wanted_Z = np.array([0.0, 0.009, 0.011, 2.0])
    means_NZ = chance.normal(size=(500, 4))
    means_NZ = (means_NZ - means_NZ.mean(0)) / means_NZ.std(0, ddof=1) * np.sqrt(wanted_Z)
    variance_Z = covariance_of_means(means_NZ, means_NZ).diagonal()
    np.testing.assert_allclose(variance_Z, wanted_Z, atol=1e-12)
    for prior_variance, active in ((1.0, 2), (0.5, 3), (300.0, 0)):
        assert (
            statistics(mean_variance_Z=variance_Z, prior_variance_Z=np.full(4, prior_variance)).active_units == active
        )


def statistics(**fields: object) -> PosteriorStatistics:
    none = dict.fromkeys(PosteriorStatistics.__dataclass_fields__)
    return PosteriorStatistics(**(none | fields))  # type: ignore[arg-type]


def test_the_covariance_of_two_estimates_has_no_error_of_its_own(chance) -> None:
    truth_NZ = chance.normal(size=(20_000, 2)) @ np.array([[1.0, 0.5], [0.0, 1.0]])
    first_NZ, second_NZ = (truth_NZ + chance.normal(size=truth_NZ.shape) for _ in range(2))
    found_ZZ = covariance_of_means(first_NZ, second_NZ)
    np.testing.assert_allclose(found_ZZ, np.cov(truth_NZ.T), atol=0.05)
    np.testing.assert_array_equal(found_ZZ, found_ZZ.T)
    assert covariance_of_means(first_NZ, first_NZ)[0, 0] > 1.9  # one estimate alone: its error is in there


def test_the_mean_cosine_equals_the_double_loop(chance) -> None:
    features_NH = chance.normal(0.3, 1.0, size=(30, 5))
    cosines = [
        a @ b / np.linalg.norm(a) / np.linalg.norm(b)
        for i, a in enumerate(features_NH)
        for j, b in enumerate(features_NH)
        if i != j
    ]
    assert mean_cosine(features_NH).value == pytest.approx(np.mean(cosines))
    assert mean_cosine(np.ones((4, 3))).value == pytest.approx(1)
    assert mean_cosine(np.zeros((4, 3))) == (0, 0)
    repeats = [mean_cosine(chance.normal(0.3, 1.0, size=(200, 5))) for _ in range(300)]
    spread = np.std([one.value for one in repeats])
    assert np.mean([one.stderr for one in repeats]) == pytest.approx(spread, rel=0.15)


def test_the_marginal_kl_is_that_of_gaussians(chance) -> None:
    factor_ZZ, mean_Z, prior_mean_Z = chance.normal(size=(4, 4)), chance.normal(size=4), chance.normal(size=4)
    covariance_ZZ, prior_variance_Z = factor_ZZ @ factor_ZZ.T + 0.1 * np.eye(4), np.array([0.5, 1.0, 2.0, 3.0])
    q = MultivariateNormal(torch.from_numpy(mean_Z), torch.from_numpy(covariance_ZZ))
    p = MultivariateNormal(torch.from_numpy(prior_mean_Z), torch.from_numpy(np.diag(prior_variance_Z)))
    found = gaussian_kl(mean_Z, covariance_ZZ, prior_mean_Z, prior_variance_Z)
    assert found == pytest.approx(float(kl_divergence(q, p)))
    assert gaussian_kl(np.zeros(3), np.eye(3), np.zeros(3), np.ones(3)) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("count", "dims", "deviation"), [(100, 32, 0.0), (100, 32, 0.5), (500, 32, 0.1), (400, 128, 0.1)]
)
def test_codes_that_fill_the_prior_lie_near_it_by_their_number_alone(chance, count, dims, deviation) -> None:
    left, seen = [], []
    for _ in range(60):
        means_NZ = math.sqrt(1 - deviation**2) * chance.normal(size=(count, dims))
        between_ZZ = np.cov(means_NZ.T, ddof=0)
        covariance_ZZ = between_ZZ + deviation**2 * np.eye(dims)
        seen.append(gaussian_kl(means_NZ.mean(0), covariance_ZZ, np.zeros(dims), np.ones(dims)))
        left.append(seen[-1] - gaussian_kl_by_chance(covariance_ZZ, between_ZZ, count))
    assert abs(np.mean(left)) < max(0.05, 0.1 * np.mean(seen))


def test_what_is_by_chance_is_little_where_posteriors_are_wide_and_unknown_of_few_codes(chance) -> None:
    between_ZZ = 0.01 * np.cov(chance.normal(size=(500, 8)).T)
    assert 0 < gaussian_kl_by_chance(between_ZZ + np.eye(8), between_ZZ, 500) < 1e-3
    assert gaussian_kl_by_chance(between_ZZ + np.eye(8), between_ZZ, 23) is None
    assert gaussian_kl_by_chance(between_ZZ + np.eye(8), between_ZZ, 24) > 0
    assert math.isfinite(gaussian_kl_by_chance(np.zeros((8, 8)), np.zeros((8, 8)), 30))


def test_the_marginal_kl_is_below_that_of_a_mixture() -> None:
    mean_N, deviation_N = torch.tensor([-2.0, 0.5, 3.0]).double(), torch.tensor([0.3, 0.5, 0.2]).double()
    grid = torch.linspace(-12, 12, 40_001, dtype=torch.float64)
    log_q = Normal(mean_N[:, None], deviation_N[:, None]).log_prob(grid).logsumexp(0) - math.log(3)
    truth = float(torch.trapezoid(log_q.exp() * (log_q - Normal(0.0, 1.0).log_prob(grid)), grid))
    variance = mean_N.var(correction=0) + (deviation_N**2).mean()
    moments = mean_N.mean()[None].numpy(), variance[None, None].numpy()
    assert 0.5 < gaussian_kl(*moments, np.zeros(1), np.ones(1)) < truth


def test_the_marginal_kl_of_codes_that_leave_directions_out_is_finite_and_large(chance) -> None:
    line_N1 = chance.normal(size=(50, 1))
    covariance_ZZ = np.cov((line_N1 @ np.ones((1, 3))).T)
    singular = gaussian_kl(np.zeros(3), covariance_ZZ, np.zeros(3), np.ones(3))
    nearly = gaussian_kl(np.zeros(3), covariance_ZZ + 1e-4 * np.eye(3), np.zeros(3), np.ones(3))
    assert nearly < singular < 20
    assert math.isfinite(gaussian_kl(np.zeros(3), np.zeros((3, 3)), np.zeros(3), np.ones(3)))


# Models


def test_the_whole_of_a_small_model(tiny_model, split) -> None:
    with torch.no_grad():
        tiny_model.posterior.mean.weight.mul_(60)  # features of so small an encoder are much alike
    found = posterior_statistics(tiny_model, split, seed=3)
    batch = make_batch(split, np.arange(len(split)))
    with torch.no_grad():
        features_NH = tiny_model.features(batch.encoder)
        site = tiny_model.sites(features_NH, Noise(3, 0, batch.rows_B), 1)["z"]
    mean_NZ, deviation_NZ = site.q.mean.double(), site.q.stddev.double()
    close = {"rtol": 1e-4, "atol": 1e-6}
    np.testing.assert_allclose(found.mean_variance_Z, mean_NZ.var(0).numpy(), **close)
    np.testing.assert_allclose(found.deviation_Z, deviation_NZ.mean(0).numpy(), **close)
    np.testing.assert_allclose(found.kl_Z, likelihood(tiny_model, split).kl_per_dimension["z"], **close)
    np.testing.assert_array_equal(found.prior_variance_Z, np.ones(4))
    assert found.active_units == int((mean_NZ.var(0) > 0.01).sum())
    estimates = found.estimates()
    expected = mutual_information(mean_NZ.numpy(), deviation_NZ.numpy(), site.value_SBZ[0].double().numpy())
    assert estimates["mi"].value == pytest.approx(expected.counted_N.mean(), abs=1e-4)
    assert estimates["mi_leave_one_out"].value == pytest.approx(expected.left_out_N.mean(), abs=1e-4)
    assert estimates["feature_cosine"].value == pytest.approx(mean_cosine(features_NH.double().numpy()).value, abs=1e-4)
    for key, codes_NZ in (("hoyer_samples", site.value_SBZ[0].double()), ("hoyer_means", mean_NZ)):
        hoyer_N = average_hoyer(codes_NZ.numpy()).values_N
        assert estimates[key].value == pytest.approx(hoyer_N.mean(), abs=1e-4)
        assert estimates[key].stderr == pytest.approx(hoyer_error(codes_NZ.numpy()), abs=1e-4)
    # the mean KL is what a code tells about its sentence and how far all codes together lie from the prior
    rest = found.kl_Z.sum() - estimates["mi"].value
    assert 0 < estimates["marginal_kl"].value < rest + 3 * estimates["mi"].stderr
    hoyers = ["hoyer_samples", "hoyer_means"]
    assert list(estimates) == ["mi", "mi_leave_one_out", "active_units", "feature_cosine", *hoyers, "marginal_kl"]
    assert all(estimate.n == len(split) for estimate in estimates.values())


def test_names_say_what_each_number_is(tiny_model, split) -> None:
    estimates = posterior_statistics(tiny_model, split).estimates()
    count = len(split)
    assert f"own component counted, at most ln {count} = {math.log(count):.2f}, lower bound" in estimates["mi"].name
    assert "left out, upper bound" in estimates["mi_leave_one_out"].name
    assert [one.bound for one in estimates.values()] == ["lower", "upper", *["none"] * 4, "lower"]
    assert estimates["hoyer_samples"].name.endswith("each) of one posterior sample a sentence")
    assert estimates["hoyer_means"].name.endswith("each) of posterior means")
    assert "0.01 of the prior's variance" in estimates["active_units"].name
    assert estimates["active_units"].settings["active_above"] == 0.01


def test_neither_batches_nor_the_mode_change_anything(tiny_model, split) -> None:
    tiny_model.train()
    whole, again = (posterior_statistics(tiny_model, split).estimates() for _ in range(2))
    small_batches = posterior_statistics(tiny_model, split, batch_tokens=40).estimates()
    other_seed = posterior_statistics(tiny_model, split, seed=1).estimates()
    assert tiny_model.training
    assert whole == again
    for name, estimate in whole.items():
        assert small_batches[name].value == pytest.approx(estimate.value, abs=1e-5), name
    assert other_seed["mi"].value != whole["mi"].value
    assert other_seed["marginal_kl"].value == whole["marginal_kl"].value


def test_a_limit_spreads_over_the_split_and_is_told(tiny_model, split, monkeypatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(module, "make_batch", lambda split, rows: seen.extend(rows) or make_batch(split, rows))
    found = posterior_statistics(tiny_model, split, limit=10)
    assert sorted(seen) == some_rows(len(split), 10).tolist()
    assert (found.settings["sentences"], found.settings["of"], found.sentences) == (10, len(split), 10)
    assert "at most ln 10 = 2.30" in found.estimates()["mi"].name
    seen.clear()
    posterior_statistics(tiny_model, split, limit=10**6)
    assert sorted(seen) == list(range(len(split)))


def test_there_is_nothing_to_say_without_codes_or_of_one_sentence(tiny, tiny_model, split) -> None:
    assert posterior_statistics(Model(small(RECIPES["lstm-lm"]), len(tiny.tokenizer)), split) is None
    assert posterior_statistics(tiny_model, split, limit=1) is None
    assert posterior_statistics(tiny_model, split, limit=2) is not None


def test_a_collapsed_gaussian(tiny_model, split) -> None:
    with torch.no_grad():
        for parameter in tiny_model.posterior.parameters():
            parameter.zero_()
    estimates = {name: one.value for name, one in posterior_statistics(tiny_model, split).estimates().items()}
    assert estimates.pop("feature_cosine") > 0.1
    assert estimates.pop("hoyer_samples") > 0.1  # of the prior's own samples: the means alone have none
    assert estimates == pytest.approx(dict.fromkeys(estimates, 0), abs=1e-6)


def test_points_have_no_density(tiny, split) -> None:
    recipe = small(RECIPES["vae"]).but({"posterior.kind": "delta", "objective.kind": "reconstruction"})
    found = posterior_statistics(Model(recipe, len(tiny.tokenizer)), split)
    assert found.kl_Z is None
    assert list(found.estimates()) == ["active_units", "feature_cosine", "hoyer_samples", "hoyer_means", "marginal_kl"]
    assert found.hoyer_samples == found.hoyer_means
    assert not found.deviation_Z.any()
    assert found.settings["density"] is None


def test_codes_of_one_dimension_or_of_zeros_have_no_hoyer(tiny, split) -> None:
    point = small(RECIPES["vae"]).but({"posterior.kind": "delta", "objective.kind": "reconstruction"})
    line, model = (Model(each, len(tiny.tokenizer)) for each in (point.but({"latent.dim": 1}), point))
    with torch.no_grad():
        for parameter in model.posterior.parameters():
            parameter.zero_()
    for found in (posterior_statistics(line, split), posterior_statistics(model, split)):
        assert (found.hoyer_samples, found.hoyer_means) == (None, None)
        assert list(found.estimates()) == ["active_units", "feature_cosine", "marginal_kl"]


# Posteriors that can only be drawn from


def implicit(tiny, reads_features: bool) -> Model:
    """z = A h + noise, or the noise alone: a posterior whose density we know and the code does not."""
    recipe = small(RECIPES["vae"]).but(
        {"posterior.kind": "implicit", "posterior.layers": 0, "objective.kind": "reconstruction"}
    )
    model = Model(recipe, len(tiny.tokenizer))
    (linear,) = model.posterior.network
    with torch.no_grad():
        linear.weight[:, -4:] = torch.eye(4)
        linear.weight[:, :-4] *= 400.0 if reads_features else 0.0
        linear.bias.zero_()
    return model


def test_a_collapsed_sampler_has_no_active_units(tiny, split) -> None:
    model = implicit(tiny, reads_features=False)
    batch = make_batch(split, np.arange(len(split)))
    with torch.no_grad():
        q = model.sites(model.features(batch.encoder), Noise(0, 0, batch.rows_B), 1)["z"].q
        mean_NZ = draw(q, Noise(0, 0, batch.rows_B), "posterior statistics", module.DRAWS // 2).mean(0)
    naive = statistics(mean_variance_Z=mean_NZ.var(0).numpy(), prior_variance_Z=np.ones(4))
    assert naive.active_units == 4
    found = posterior_statistics(model, split)
    assert found.active_units == 0
    estimates = found.estimates()
    assert estimates["mi"].value == pytest.approx(0, abs=1e-9)
    assert estimates["marginal_kl"].value == pytest.approx(0, abs=0.01)
    with torch.no_grad():
        model.posterior.network[0].weight[0, -1] = 1.0  # dimensions that hang together within a sentence
    factor_ZZ = np.eye(4) + np.outer([1, 0, 0, 0], [0, 0, 0, 1])
    truth = gaussian_kl(np.zeros(4), factor_ZZ @ factor_ZZ.T, np.zeros(4), np.ones(4))
    assert posterior_statistics(model, split).marginal_kl == pytest.approx(truth, rel=0.05)


def test_a_sampler_is_measured_like_the_gaussian_it_is(tiny, split) -> None:
    model = implicit(tiny, reads_features=True)
    found = posterior_statistics(model, split)
    batch = make_batch(split, np.arange(len(split)))
    with torch.no_grad():
        features_NH = model.features(batch.encoder)
        mean_NZ = (features_NH @ model.posterior.network[0].weight[:, :-4].T).double().numpy()
    one_NZ = np.ones_like(mean_NZ)
    np.testing.assert_allclose(found.mean_variance_Z, mean_NZ.var(0, ddof=1), rtol=0.05, atol=0.01)
    np.testing.assert_allclose(found.deviation_Z, 1, atol=0.02)
    assert found.kl_Z is None
    noise_NZ = np.random.default_rng(0).normal(size=mean_NZ.shape)
    truth = mutual_information(mean_NZ, one_NZ, mean_NZ + noise_NZ).counted_N
    estimates = found.estimates()
    assert truth.mean() > 0.5
    assert estimates["mi"].value == pytest.approx(truth.mean(), rel=0.15)
    assert "each posterior replaced by a Gaussian fitted to 100 samples" in estimates["mi"].name
    assert estimates["mi"].bound == "none"
    covariance_ZZ = np.cov(mean_NZ.T, ddof=0) + np.eye(4)
    marginal = gaussian_kl(mean_NZ.mean(0), covariance_ZZ, np.zeros(4), np.ones(4))
    assert estimates["marginal_kl"].value == pytest.approx(marginal, rel=0.05)
    again = posterior_statistics(model, split, batch_tokens=100).estimates()
    assert {name: one.value for name, one in again.items()} == pytest.approx(
        {name: one.value for name, one in estimates.items()}, abs=1e-5
    )


def gated(tiny, name: str, reads_features: bool) -> Model:
    recipe = small(RECIPES[name]).but({"decoder.first_state": "code", "posterior.deviation": "exp"})
    model = Model(recipe, len(tiny.tokenizer)).eval()
    with torch.no_grad():
        for network in (model.posterior.gates, model.posterior.slab):
            network[0].weight[:, : model.posterior.features] *= 150.0 if reads_features else 0.0
        model.posterior.slab[2].weight[4:] = 0.0  # slabs are as wide in every sentence
    return model


@pytest.mark.parametrize("name", ["hsvae", "ton-vae"])
def test_gated_codes_are_measured_like_many_draws_of_them(tiny, split, name: str) -> None:
    model = gated(tiny, name, reads_features=True)
    found = posterior_statistics(model, split)
    batch = make_batch(split, np.arange(len(split)))
    with torch.no_grad():
        sites = model.sites(model.features(batch.encoder), Noise(9, 0, batch.rows_B), 1000)
    drawn_SBZ = sites["z"].value_SBZ.double()
    halves = [half.mean(0) for half in drawn_SBZ.chunk(2)]
    truth_Z = covariance_of_means(*(half.numpy() for half in halves)).diagonal()
    assert truth_Z.max() > 0.05
    np.testing.assert_allclose(found.mean_variance_Z, truth_Z, rtol=0.1, atol=0.01)
    np.testing.assert_allclose(found.deviation_Z, drawn_SBZ.std(0).mean(0), rtol=0.02)
    if name == "hsvae":
        kl_Z = sum(site.kl_BZ for site in sites.values()).mean(0)
        assert sum(found.kl_Z) == pytest.approx(kl_Z.sum().item(), rel=0.1, abs=0.05)
    else:  # whose prior is a mixture: no dimension has a KL of its own
        assert found.kl_Z is None
    assert found.settings["means"] == ("two halves of 20 samples of the gates" if name == "hsvae" else "exact")
    assert "each posterior replaced by a Gaussian with its mean and deviation" in found.estimates()["mi"].name
    many = [average_hoyer(codes_NZ.numpy()).values_N.mean() for codes_NZ in drawn_SBZ[:50]]
    assert found.hoyer_samples.value == pytest.approx(np.mean(many), abs=4 * np.std(many))
    with torch.no_grad():  # gates at their centre, and nothing drawn
        mean_NZ, _ = model.code_moments(model.features(batch.encoder), Noise(9, 0, batch.rows_B))
    assert found.hoyer_means.value == pytest.approx(average_hoyer(mean_NZ.double().numpy()).values_N.mean(), abs=1e-4)
    again = posterior_statistics(model, split, batch_tokens=100)
    np.testing.assert_allclose(again.mean_variance_Z, found.mean_variance_Z, atol=1e-5)


def test_a_sample_has_gates_that_are_on_or_off_whatever_the_mode(tiny, split) -> None:
    model = gated(tiny, "ton-vae", reads_features=False)
    with torch.no_grad():
        model.posterior.gates[-1].weight.zero_()
        model.posterior.gates[-1].bias.zero_()  # each dimension is on in half of the sentences
        model.posterior.slab[2].weight.zero_()
        model.posterior.slab[2].bias[:4] = 3.0
        model.posterior.slab[2].bias[4:] = -6.0
    found = posterior_statistics(model.train(), split, seed=2)
    on_NZ = np.random.default_rng(0).random((20_000, 4)) < 0.5
    truth = average_hoyer(3.0 * on_NZ).there_M.mean()
    assert found.hoyer_samples.value == pytest.approx(truth, abs=0.08)
    assert found.hoyer_means is None


@pytest.mark.parametrize("name", ["hsvae", "ton-vae"])
def test_collapsed_gated_codes_have_no_active_units(tiny, split, name: str) -> None:
    found = posterior_statistics(gated(tiny, name, reads_features=False), split)
    assert found.active_units == 0
    assert found.estimates()["mi"].value == pytest.approx(0, abs=1e-6)


class Odd(Laplace):
    """A posterior nobody knows."""


def test_unknown_posteriors_are_named_and_leave_the_model_as_it_was(tiny_model, split, monkeypatch) -> None:
    draw.register(Odd, lambda q, noise, stream, samples, given: q.sample((samples,)))
    own = tiny_model.posterior.forward
    monkeypatch.setattr(tiny_model.posterior, "forward", lambda *given: Odd(own(*given).mean, 1.0))
    tiny_model.train()
    with pytest.raises(TypeError, match="posteriors of type Odd"):
        posterior_statistics(tiny_model, split)
    assert tiny_model.training


def test_statistics_come_back_from_json(tiny, tiny_model, split) -> None:
    for model in (tiny_model, implicit(tiny, reads_features=True)):
        found = posterior_statistics(model, split)
        back = PosteriorStatistics.from_dict(json.loads(json.dumps(found.to_dict())))
        assert back.estimates() == found.estimates()
        assert back.to_dict() == found.to_dict()
        np.testing.assert_allclose(back.mean_variance_Z, found.mean_variance_Z, rtol=1e-5)
    older = {name: each for name, each in found.to_dict().items() if not name.startswith("hoyer")}
    back = PosteriorStatistics.from_dict(older)
    assert (back.hoyer_samples, back.hoyer_means, back.mi) == (None, None, found.mi)
    without = replace(found, mi=None, mi_leave_one_out=None, marginal_kl=None)
    assert PosteriorStatistics.from_dict(without.to_dict()).estimates() == without.estimates()
