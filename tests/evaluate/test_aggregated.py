"""The aggregated posterior: its density against the plain formula, its draws against the density, and its refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from helpers import small
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

from textspace.errors import TextspaceError
from textspace.evaluate import aggregated
from textspace.evaluate.aggregated import AggregatedPosterior
from textspace.evaluate.code_statistics import mutual_information
from textspace.evaluate.statistics import some_rows
from textspace.model import Model
from textspace.noise import Noise
from textspace.recipes import RECIPES


def mixture(count: int, dim: int, spread: float = 1.0, log_deviation: float = 0.0) -> AggregatedPosterior:
    chance = torch.Generator().manual_seed(3)
    mean_NZ = spread * torch.randn(count, dim, generator=chance) + spread
    deviation_NZ = (log_deviation + 0.3 * torch.randn(count, dim, generator=chance)).exp()
    return AggregatedPosterior(mean_NZ, deviation_NZ, "some mixture")


def exact(prior: AggregatedPosterior, z: torch.Tensor) -> torch.Tensor:
    components = Independent(Normal(prior.mean_NZ.double(), prior.deviation_NZ.double()), 1)
    return MixtureSameFamily(Categorical(torch.ones(len(prior))), components).log_prob(z.double())


@pytest.mark.parametrize("spread", [1.0, 10.0])
@pytest.mark.parametrize("wide", [1.0, 10.0, 100.0])
def test_the_density_is_exact_where_posteriors_are_narrow_and_dimensions_many(spread: float, wide: float) -> None:
    prior = mixture(300, 512, spread, log_deviation=-5)
    normal_SBZ = torch.randn(2, 20, 512, generator=torch.Generator().manual_seed(4))
    z_SBZ = prior.mean_NZ[:20] + wide * prior.deviation_NZ[:20] * normal_SBZ
    found_SB, expected_SB = prior.log_prob(z_SBZ), exact(prior, z_SBZ)
    assert found_SB.dtype == torch.float64
    assert found_SB.shape == (2, 20)
    assert (found_SB - expected_SB).abs().max() < 1e-4
    if wide == 100:
        assert expected_SB.abs().min() > 1e6  # where single precision would be off by much more than a nat


def test_chunks_change_nothing(monkeypatch) -> None:
    prior = mixture(57, 3)
    z_PZ = 2 * torch.randn(41, 3, generator=torch.Generator().manual_seed(4))
    whole, nearest = prior.log_prob(z_PZ), prior.likeliest(z_PZ, 9)
    monkeypatch.setattr(aggregated, "POINTS_AT_ONCE", 6)
    monkeypatch.setattr(aggregated, "COMPONENTS_AT_ONCE", 5)
    torch.testing.assert_close(prior.log_prob(z_PZ), whole, rtol=0, atol=1e-10)
    torch.testing.assert_close(prior.likeliest(z_PZ, 9), nearest)


def test_the_likeliest_components_are_those_of_the_largest_density() -> None:
    prior = mixture(57, 3)
    z_PZ = 2 * torch.randn(41, 3, generator=torch.Generator().manual_seed(4))
    log_q_PN = Normal(prior.mean_NZ, prior.deviation_NZ).log_prob(z_PZ[:, None]).sum(2)
    torch.testing.assert_close(prior.likeliest(z_PZ, 5), log_q_PN.argsort(dim=1, descending=True)[:, :5])
    assert prior.likeliest(z_PZ, 100).shape == (41, 57)


def test_draws_have_the_mixtures_moments_and_their_own_noise() -> None:
    prior = mixture(5, 2, spread=3)
    rows = torch.arange(40_000)
    drawn_BZ = prior.draw(Noise(1, 0, rows))
    mean_Z = prior.mean_NZ.mean(0)
    variance_Z = (prior.deviation_NZ**2 + prior.mean_NZ**2).mean(0) - mean_Z**2
    torch.testing.assert_close(drawn_BZ.mean(0), mean_Z, rtol=0, atol=0.1)
    torch.testing.assert_close(drawn_BZ.var(0), variance_Z, rtol=0.05, atol=0)
    entropy = -prior.log_prob(drawn_BZ).mean().item()
    grid = torch.cartesian_prod(torch.linspace(-15, 20, 500), torch.linspace(-15, 20, 500))
    log_q = prior.log_prob(grid)
    assert log_q.exp().sum() * (35 / 499) ** 2 == pytest.approx(1, abs=1e-3)
    assert entropy == pytest.approx(-(log_q.exp() * log_q).sum().item() * (35 / 499) ** 2, abs=0.03)
    torch.testing.assert_close(prior.draw(Noise(1, 0, rows[7:9])), drawn_BZ[7:9])
    assert not torch.equal(prior.draw(Noise(2, 0, rows[7:9])), drawn_BZ[7:9])


def test_sentences_are_encoded_in_their_order_and_spread_evenly(tiny, tiny_model) -> None:
    split = tiny.encoded.splits["train"]
    whole = AggregatedPosterior.of(tiny_model, split)
    small_batches = AggregatedPosterior.of(tiny_model, split, batch_tokens=40)
    torch.testing.assert_close(small_batches.mean_NZ, whole.mean_NZ, rtol=0, atol=1e-5)
    assert whole.name == f"the aggregated posterior of {len(split)} training sentences"
    some = AggregatedPosterior.of(tiny_model, split, limit=10)
    rows = some_rows(len(split), 10)
    torch.testing.assert_close(some.mean_NZ, whole.mean_NZ[rows], rtol=0, atol=1e-5)
    torch.testing.assert_close(some.deviation_NZ, whole.deviation_NZ[rows], rtol=0, atol=1e-5)
    assert some.name == f"the aggregated posterior of 10 of {len(split)} training sentences"


def test_mutual_information_is_the_distance_from_the_mixture() -> None:
    prior = mixture(30, 3)
    sample_NZ = prior.draw_from(torch.arange(30)[None], Noise(0, 0, torch.arange(30)))[0]
    arrays = [each.double().numpy() for each in (prior.mean_NZ, prior.deviation_NZ, sample_NZ)]
    own_N = Normal(prior.mean_NZ.double(), prior.deviation_NZ.double()).log_prob(sample_NZ.double()).sum(1)
    counted_N = mutual_information(*arrays).counted_N
    np.testing.assert_allclose(counted_N, (own_N - prior.log_prob(sample_NZ)).numpy(), atol=1e-9)
    assert counted_N.max() <= math.log(30)


@pytest.mark.parametrize("recipe", ["lstm-lm", "wae", "ivae"])
def test_spaces_without_densities_are_refused(tiny, recipe: str) -> None:
    model = Model(small(RECIPES[recipe]), len(tiny.tokenizer))
    with pytest.raises(TextspaceError, match="needs a posterior of normals"):
        AggregatedPosterior.of(model, tiny.encoded.splits["test"])


def test_a_deviation_of_zero_has_no_density() -> None:
    with pytest.raises(ValueError, match="deviation above 0"):
        AggregatedPosterior(torch.zeros(3, 2), torch.zeros(3, 2), "")
