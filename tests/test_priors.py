"""Priors: what is drawn before any sentence is seen, site by site and codes by themselves."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import scipy.stats
import torch
from helpers import small
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from textspace.config import (
    BetaGatedPrior,
    Latent,
    PseudoInputPrior,
    ScaledNormalPrior,
    SpikeAndSlabPosterior,
    SpikeAndSlabPrior,
)
from textspace.data.batching import make_batch
from textspace.distributions import GateLogit, Mixture, SpikeAndSlab, draw
from textspace.model import Model
from textspace.noise import Noise
from textspace.posteriors import POSTERIORS
from textspace.priors import PRIORS
from textspace.recipes import RECIPES
from textspace.train import checkpoints
from textspace.types import Site

DIM = 3
PAIRS = [(0.5, 0.5), (4.0, 1.0), (1.0, 4.0), (0.5, 100.0), (100.0, 0.5), (60.0, 40.0)]


def prior_of(config, spike: float = 0.05) -> torch.nn.Module:
    return PRIORS[config.kind](config, Latent(dim=DIM, spike=spike), None)


@pytest.mark.parametrize(("alpha", "beta"), PAIRS)
@pytest.mark.parametrize("spike", [0.05, 0.3])
def test_with_the_gates_integrated_out_codes_are_spike_and_slab_with_the_mean_gate(
    alpha: float, beta: float, spike: float
) -> None:
    """The density is linear in gamma; here gamma is integrated numerically, over its logit."""
    prior = prior_of(BetaGatedPrior(alpha=alpha, beta=beta), spike)
    codes = prior.codes()
    torch.testing.assert_close(codes.off, torch.full((DIM,), alpha / (alpha + beta)))
    grid_G = torch.linspace(-80, 80, 160_001, dtype=torch.float64)
    gate = GateLogit(torch.tensor(alpha).double(), torch.tensor(beta).double())
    for z in (0.0, 0.03, -0.2, 0.9, -3.0):
        given = SpikeAndSlab(grid_G, torch.zeros(()).double(), torch.ones(()).double(), spike)
        integrand_G = (gate.log_prob(grid_G) + given.log_prob(torch.tensor(z).double())).exp()
        truth = torch.trapezoid(integrand_G, grid_G).log().item()
        assert codes.log_prob(torch.full((DIM,), z))[0].item() == pytest.approx(truth, abs=1e-4)


@pytest.mark.parametrize(("alpha", "beta"), PAIRS)
def test_codes_drawn_through_their_gates_are_those_drawn_by_themselves(alpha: float, beta: float) -> None:
    prior = prior_of(BetaGatedPrior(alpha=alpha, beta=beta))
    noise = Noise(0, 0, torch.arange(100))
    off_logit_SBZ = draw(prior("gate", {}).expand((100, DIM)), noise, "gate", 60)
    gammas = off_logit_SBZ.double().sigmoid().flatten()
    error = math.sqrt(gammas.var().item() / len(gammas))
    assert abs(gammas.mean().item() - alpha / (alpha + beta)) < 4 * error
    through = draw(prior("z", {"gate": off_logit_SBZ}), noise, "z", 60, given=True)
    alone = draw(prior.codes().expand((100, DIM)), noise, "alone", 60)
    found = [codes.flatten().double().numpy() for codes in (through, alone)]

    def cumulative(z: np.ndarray) -> np.ndarray:
        off = alpha / (alpha + beta)
        return off * scipy.stats.norm.cdf(z, 0, 0.05) + (1 - off) * scipy.stats.norm.cdf(z)

    for codes in found:
        assert scipy.stats.kstest(codes, cumulative).pvalue > 1e-3


def test_the_larger_alpha_is_beside_beta_the_more_is_off() -> None:
    shares = []
    for alpha, beta in ((90.0, 10.0), (4.0, 1.0), (1.0, 1.0), (1.0, 4.0), (10.0, 90.0)):
        codes = prior_of(BetaGatedPrior(alpha=alpha, beta=beta)).codes().expand((2_000, DIM))
        drawn = draw(codes, Noise(0, 0, torch.arange(2_000)), "prior", 1)
        shares.append((drawn.abs() < 0.15).double().mean().item())  # three deviations of a spike
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.88
    assert shares[-1] < 0.25


@pytest.mark.parametrize("off", [0.01, 0.5, 0.8, 0.999])
def test_a_fixed_share_off_is_the_weight_of_the_spike(off: float) -> None:
    prior = prior_of(SpikeAndSlabPrior(off=off))
    torch.testing.assert_close(prior("z", {}).off, torch.full((DIM,), off))
    torch.testing.assert_close(prior.codes().variance, torch.full((DIM,), off * 0.05**2 + 1 - off))


# Scaled normal


def scaled(scale: float, learned: bool = False) -> torch.nn.Module:
    return prior_of(ScaledNormalPrior(scale=scale, learned=learned))


@pytest.mark.parametrize("scale", [0.1, 0.4, 1.0, 3.0])
@pytest.mark.parametrize("learned", [False, True])
def test_a_scaled_normal_is_its_own_nearest(scale: float, learned: bool) -> None:
    """KL(N(0, s^2) || N(0, s^2)) = 0, at the starting value of a learned scale too."""
    prior = scaled(scale, learned)
    p = prior("z", {})
    torch.testing.assert_close(p.mean, torch.zeros(DIM))
    torch.testing.assert_close(p.stddev, torch.full((DIM,), scale))
    torch.testing.assert_close(prior.codes().variance, torch.full((DIM,), scale**2))
    q = Normal(torch.zeros(5, DIM), torch.full((5, DIM), scale))
    torch.testing.assert_close(kl_divergence(q, p), torch.zeros(5, DIM), atol=1e-6, rtol=0)


@pytest.mark.parametrize("scale", [0.2, 0.4, 1.0])
def test_the_kl_to_a_scaled_normal_is_closed_and_agrees_with_draws(scale: float) -> None:
    torch.manual_seed(1)
    mean_BZ, deviation_BZ = 0.5 * torch.randn(4, DIM), 0.05 + torch.rand(4, DIM)
    q = Normal(mean_BZ, deviation_BZ)
    site = Site(q, scaled(scale)("z", {}), q.rsample((40_000,)))
    assert site.kl_form == "closed"
    by_hand_BZ = math.log(scale) - deviation_BZ.log() + (deviation_BZ**2 + mean_BZ**2) / (2 * scale**2) - 0.5
    torch.testing.assert_close(site.kl_BZ, by_hand_BZ)
    drawn_SB = (site.log_q_SB - site.log_p_SB).double()
    assert ((drawn_SB.mean(0) - site.kl_B).abs() < 4.5 * drawn_SB.std(0) / 200).all()


def test_draws_of_a_scaled_normal_have_its_deviation() -> None:
    drawn = draw(scaled(0.4).codes().expand((5000, DIM)), Noise(0, 0, torch.arange(5000)), "prior", 1)
    assert scipy.stats.kstest(drawn.flatten().double().numpy(), "norm", (0, 0.4)).pvalue > 1e-3


def test_a_learned_scale_moves_to_the_codes_size_and_a_fixed_one_stays() -> None:
    """The scale that makes the KL small is the root of the mean of squares of what is drawn from q."""
    fixed, learned = scaled(0.4), scaled(0.4, learned=True)
    assert list(fixed.parameters()) == []
    assert [name for name, _ in learned.named_parameters()] == ["log_scale"]
    torch.manual_seed(0)
    q = Normal(torch.randn(500, DIM), torch.full((500, DIM), 0.5))
    optimizer = torch.optim.Adam(learned.parameters(), lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        kl_divergence(q, learned("z", {})).mean().backward()
        optimizer.step()
    wanted = (q.mean**2 + q.variance).mean().sqrt().item()
    assert learned.codes().stddev[0].item() == pytest.approx(wanted, rel=1e-3)


def test_a_learned_scale_starts_where_it_should_and_comes_back_from_a_file(tiny, tmp_path) -> None:
    recipe = small(RECIPES["vat"]).but({"prior.learned": True, "prior.scale": 0.7})
    model, other = (Model(recipe, len(tiny.tokenizer)) for _ in range(2))
    assert model.prior.log_scale.item() == pytest.approx(math.log(0.7))  # whatever other weights start as
    with torch.no_grad():
        model.prior.log_scale.fill_(-0.25)
    checkpoints.load_weights(other, checkpoints.weights(model), "memory")
    assert other.prior.codes().stddev[0].item() == pytest.approx(math.exp(-0.25))
    assert "prior.log_scale" in {name for name, _ in model.named_parameters()}
    assert any(parameter is model.prior.log_scale for parameter in model.generative_parameters())
    assert "prior" not in Model(recipe.but({"prior.learned": False}), 20).parameter_counts()


# Pseudo-inputs


def pseudo_inputs(count: int = 4) -> tuple[torch.nn.Module, torch.nn.Module]:
    torch.manual_seed(3)
    posterior = POSTERIORS["spike-and-slab"](SpikeAndSlabPosterior(gates="features"), 6, Latent(dim=DIM))
    return PRIORS["pseudo-inputs"](PseudoInputPrior(count=count), Latent(dim=DIM), posterior), posterior


def test_a_pseudo_input_prior_is_the_mean_of_the_posteriors_at_learned_features() -> None:
    prior, posterior = pseudo_inputs()
    assert [name for name, _ in prior.named_parameters()] == ["features_KH"]
    assert prior.features_KH.shape == (4, 6)
    z_SBZ = torch.randn(5, 2, DIM, generator=torch.manual_seed(1))
    p = prior("z", {})
    assert isinstance(p, Mixture)
    each = [posterior("z", features[None], {}).log_prob(z_SBZ).sum(2) for features in prior.features_KH]
    truth_SB = torch.stack(each).exp().mean(0).log()
    torch.testing.assert_close(p.log_prob(z_SBZ).sum(2), truth_SB)


def test_gradients_of_a_pseudo_input_prior_reach_its_features_and_the_posterior() -> None:
    prior, posterior = pseudo_inputs()
    prior.codes().log_prob(torch.randn(5, 2, DIM)).sum().backward()
    assert (prior.features_KH.grad.abs().sum(1) > 0).all()
    assert all(p.grad is not None and (p.grad != 0).any() for p in posterior.parameters())


def test_a_copied_model_has_a_prior_of_its_own_posterior(tiny) -> None:
    model = Model(small(RECIPES["ton-vae"]), len(tiny.tokenizer)).eval()
    other = copy.deepcopy(model)
    assert other.prior._posterior[0] is other.posterior
    assert not any("_posterior" in name for name in checkpoints.weights(model))

    def density(of: Model) -> Tensor:
        return of.prior.codes().log_prob(torch.ones(1, 1, 4)).detach()

    before = density(model)
    with torch.no_grad():
        other.posterior.slab[0].weight.add_(1)
    assert torch.equal(density(model), before)
    assert not torch.isclose(density(other), before).any()


@pytest.mark.parametrize("name", ["hsvae", "ton-vae", "mat-vae"])
def test_the_kl_of_a_gated_model_rests_on_its_own_draws(name: str, tiny) -> None:
    """log q - log p at the samples, all sites together, is the sum over sites of what each says."""
    model = Model(small(RECIPES[name]), len(tiny.tokenizer)).eval()
    batch = make_batch(tiny.encoded.splits["train"], np.arange(3))
    sites = model(batch, Noise(0, 0, batch.rows_B), 2000).sites
    for site in sites.values():
        log_ratio_SB = (site.log_q_SB - site.log_p_SB).double()
        error_B = log_ratio_SB.std(0) / 2000**0.5
        assert ((log_ratio_SB.mean(0) - site.kl_B).abs() < 4 * error_B + 1e-4).all()
        assert (site.kl_B > -4 * error_B).all()
    assert sites["z"].kl_form == "sampled"
    if name == "hsvae":
        assert sites["gate"].kl_form == "closed"
        assert torch.equal(sites["z"].p.off_logit, sites["gate"].value_SBZ)
        assert isinstance(sites["z"].alone, SpikeAndSlab)
        torch.testing.assert_close(sites["z"].alone.off, torch.full((4,), 0.8))
