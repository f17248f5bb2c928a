"""Gates, spikes and slabs: densities, draws and gradients against closed forms, quadrature and finite differences."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Tensor
from torch.distributions import Beta, Normal, kl_divergence

from textspace import distributions
from textspace.distributions import GateLogit, Mixture, SpikeAndSlab, centre, draw, moments
from textspace.noise import Noise

SPIKE = 0.05
GAMMAS = [0.02, 0.3, 0.8, 0.97]
SLABS = [(0.0, 1.0), (1.5, 0.4), (-0.7, 2.0), (0.02, 0.03)]
CONCENTRATIONS = [0.5, 1.0, 4.0, 30.0, 100.0]


def logit(gamma: float) -> float:
    return math.log(gamma / (1 - gamma))


def single(gamma: float, loc: float, scale: float, spike: float = SPIKE, **more) -> SpikeAndSlab:
    """One sentence, one dimension."""
    parts = (torch.full((1, 1), number, dtype=torch.float64) for number in (logit(gamma), loc, scale))
    return SpikeAndSlab(*parts, spike, **more)


def one_sentence(seed: int = 0) -> Noise:
    return Noise(seed, 0, torch.tensor([0]))


# Spike and slab


@pytest.mark.parametrize(("gamma", "slab"), [*itertools.product(GAMMAS, SLABS)])
def test_a_spike_and_slab_density_integrates_to_one_with_its_mean_and_variance(gamma: float, slab) -> None:
    q = single(gamma, *slab)
    grid_G = torch.linspace(-25, 25, 500_001, dtype=torch.float64)
    density_G = q.log_prob(grid_G[:, None, None])[:, 0, 0].exp()
    mass = torch.trapezoid(density_G, grid_G)
    mean = torch.trapezoid(grid_G * density_G, grid_G)
    variance = torch.trapezoid((grid_G - mean) ** 2 * density_G, grid_G)
    np.testing.assert_allclose([mass, mean, variance], [1.0, q.mean.item(), q.variance.item()], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("gamma", "slab"), [*itertools.product(GAMMAS, SLABS)])
def test_draws_of_a_spike_and_slab_have_its_density(gamma: float, slab) -> None:
    q = single(gamma, *slab)
    drawn_S = draw(q, one_sentence(), "z", 20_000).flatten()

    def cumulative(z: np.ndarray) -> np.ndarray:
        spike, slabs = scipy.stats.norm(0, SPIKE), scipy.stats.norm(*slab)
        return gamma * spike.cdf(z) + (1 - gamma) * slabs.cdf(z)

    assert scipy.stats.kstest(drawn_S.numpy(), cumulative).pvalue > 1e-3
    error = q.stddev.item() / len(drawn_S) ** 0.5
    assert abs(drawn_S.mean().item() - q.mean.item()) < 4 * error
    fourth = ((drawn_S - drawn_S.mean()) ** 4).mean().item()
    spread = math.sqrt(fourth - q.variance.item() ** 2) / len(drawn_S) ** 0.5
    assert abs(drawn_S.var().item() - q.variance.item()) < 4 * spread


def test_the_polarity_of_gamma_is_off() -> None:
    """gamma is the probability of OFF: of the spike, near 0."""
    far = 10.0
    drawn_S = draw(single(0.9, far, 0.1), one_sentence(), "z", 10_000).flatten()
    near_zero = (drawn_S.abs() < 1).double().mean().item()
    assert abs(near_zero - 0.9) < 4 * math.sqrt(0.9 * 0.1 / 10_000)
    assert ((drawn_S.abs() < 1) | ((drawn_S - far).abs() < 1)).all()  # nothing in between


@pytest.mark.parametrize(("off_logit", "loc", "scale"), [(-60.0, 1.5, 0.4), (60.0, 0.0, SPIKE)])
def test_a_gate_that_is_sure_leaves_one_normal(off_logit: float, loc: float, scale: float) -> None:
    parts = (torch.full((1, 1), number, dtype=torch.float64) for number in (off_logit, 1.5, 0.4))
    q, truth = SpikeAndSlab(*parts, SPIKE), Normal(torch.full((1, 1), loc).double(), scale)
    near_S11 = truth.mean + truth.stddev * torch.linspace(-5, 5, 101, dtype=torch.float64)[:, None, None]
    torch.testing.assert_close(q.log_prob(near_S11), truth.log_prob(near_S11), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(q.mean, truth.mean)
    torch.testing.assert_close(q.variance, truth.variance)
    drawn_S = draw(q, one_sentence(), "z", 5_000).flatten().numpy()
    assert scipy.stats.kstest(drawn_S, scipy.stats.norm(loc, scale).cdf).pvalue > 1e-3


def test_a_small_variance_beside_a_large_mean_is_not_lost() -> None:
    q = SpikeAndSlab(torch.tensor([-90.0]), torch.tensor([1000.0]), torch.tensor([1e-3]), SPIKE)
    torch.testing.assert_close(q.stddev, torch.tensor([1e-3]))


def batch_of_parts(requires_grad: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.manual_seed(3)
    off_logit, loc, scale = torch.randn(3, 40, 6, generator=generator)
    return tuple(x.requires_grad_(requires_grad) for x in (2 * off_logit, 2 * loc, scale.exp()))  # type: ignore


def test_a_hard_straight_through_switch_has_exactly_the_value_of_a_hard_one() -> None:
    noise = Noise(0, 0, torch.arange(40))
    parts = batch_of_parts(requires_grad=True)
    hard_SBZ = draw(SpikeAndSlab(*parts, SPIKE), noise, "z", 50)
    assert torch.equal(draw(SpikeAndSlab(*parts, SPIKE, 0.01), noise, "z", 50), hard_SBZ)
    for temperature in (0.5, 3.0):
        through_SBZ = draw(SpikeAndSlab(*parts, SPIKE, temperature), noise, "z", 50)
        assert torch.equal(through_SBZ, hard_SBZ)
        (gradient_BZ,) = torch.autograd.grad(through_SBZ.square().sum(), parts[0])
        assert (gradient_BZ != 0).all()
    assert torch.autograd.grad(hard_SBZ.sum(), parts[0], allow_unused=True) == (None,)


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("slab", [(1.5, 0.4), (-2.0, 1.0)])
def test_the_straight_through_gradient_points_where_the_expectation_goes(gamma: float, slab) -> None:
    """d E[f(z)] / d logit = gamma (1 - gamma) (E_spike[f] - E_slab[f]); the estimate has a bias, within a factor 3."""
    loc, scale = slab
    for f, at_spike, at_slab in (
        (lambda z: z, 0.0, loc),
        (lambda z: z**2, SPIKE**2, loc**2 + scale**2),
    ):
        q = single(gamma, loc, scale, temperature=0.5)
        q.off_logit.requires_grad_()
        (found,) = torch.autograd.grad(f(draw(q, one_sentence(), "z", 100_000)).mean(), q.off_logit)
        truth = gamma * (1 - gamma) * (at_spike - at_slab)
        assert 1 / 3 < found.item() / truth < 3


def test_relaxed_draws_approach_hard_ones_as_the_temperature_falls() -> None:
    noise, parts = Noise(0, 0, torch.arange(40)), batch_of_parts()
    hard_SBZ = draw(SpikeAndSlab(*parts, SPIKE), noise, "z", 50)

    def distance(temperature: float) -> float:
        relaxed_SBZ = draw(SpikeAndSlab(*parts, SPIKE, temperature, hard=False), noise, "z", 50)
        return (relaxed_SBZ - hard_SBZ).abs().mean().item()

    distances = [distance(temperature) for temperature in (2.0, 0.5, 0.1, 0.02, 0.004)]
    assert all(later < 0.4 * earlier for earlier, later in itertools.pairwise(distances))
    assert distances[-1] < 0.002


def test_a_relaxed_kl_is_no_kl_and_may_be_negative_where_that_of_hard_draws_is_not() -> None:
    """Codes between spike and slab are where neither density is: log q - log p there means nothing."""
    noise = one_sentence()
    p = single(0.8, 0.0, 1.0)
    hard = single(0.8, 2.0, 0.3)
    relaxed = single(0.8, 2.0, 0.3, temperature=0.5, hard=False)

    def kl(q: SpikeAndSlab) -> tuple[float, float]:
        z = draw(q, noise, "z", 100_000)
        log_ratio = q.log_prob(z) - p.log_prob(z)
        return log_ratio.mean().item(), log_ratio.std().item() / 100_000**0.5

    grid_G11 = torch.linspace(-12, 12, 400_001, dtype=torch.float64)[:, None, None]
    log_q_G11, log_p_G11 = hard.log_prob(grid_G11), p.log_prob(grid_G11)
    truth = torch.trapezoid((log_q_G11.exp() * (log_q_G11 - log_p_G11)).flatten(), grid_G11.flatten()).item()
    found, error = kl(hard)
    assert truth > 0
    assert abs(found - truth) < 4 * error
    found, error = kl(relaxed)
    assert relaxed.relaxed
    assert not hard.relaxed
    assert found < -10 * error


# Gates


def gates(alpha: float, beta: float, sentences: int = 1, dim: int = 1) -> GateLogit:
    both = (torch.full((sentences, dim), number, dtype=torch.float64) for number in (alpha, beta))
    return GateLogit(*both)


@pytest.mark.parametrize(("alpha", "beta"), [*itertools.product(CONCENTRATIONS, repeat=2)])
def test_a_gates_density_over_logits_integrates_to_one_with_its_moments(alpha: float, beta: float) -> None:
    q = gates(alpha, beta)
    grid_G = torch.linspace(-80, 80, 320_001, dtype=torch.float64)
    density_G = q.log_prob(grid_G[:, None, None])[:, 0, 0].exp()
    mass, off, mean = (torch.trapezoid(x * density_G, grid_G) for x in (grid_G**0, grid_G.sigmoid(), grid_G))
    variance = torch.trapezoid((grid_G - mean) ** 2 * density_G, grid_G)
    truths = [1.0, q.off.item(), q.mean.item(), q.variance.item()]
    np.testing.assert_allclose([mass, off, mean, variance], truths, rtol=1e-6, atol=1e-6)
    assert centre(q).sigmoid().item() == pytest.approx(alpha / (alpha + beta))


@pytest.mark.parametrize(("alpha", "beta"), [*itertools.product(CONCENTRATIONS, repeat=2)])
def test_gates_are_drawn_from_the_beta_distribution(alpha: float, beta: float) -> None:
    drawn_S = draw(gates(alpha, beta), one_sentence(int(alpha + 7 * beta)), "gate", 20_000).flatten().sigmoid()
    assert scipy.stats.kstest(drawn_S.numpy(), scipy.stats.beta(alpha, beta).cdf).pvalue > 1e-3


@pytest.mark.parametrize("alpha", CONCENTRATIONS)
@pytest.mark.parametrize(("alpha_p", "beta_p"), [(4.0, 1.0), (0.5, 100.0), (100.0, 0.5)])
def test_the_kl_of_gates_is_that_of_beta_distributions(alpha: float, alpha_p: float, beta_p: float) -> None:
    for beta in CONCENTRATIONS:
        q, p = gates(alpha, beta), gates(alpha_p, beta_p)
        truth = kl_divergence(Beta(q.alpha, q.beta), Beta(p.alpha, p.beta)).item()
        found = kl_divergence(q, p).item()
        assert found == pytest.approx(truth, rel=1e-9, abs=1e-9)
        in_float32 = kl_divergence(GateLogit(q.alpha.float(), q.beta.float()), p)
        assert in_float32.dtype == torch.float32
        assert in_float32.item() == pytest.approx(truth, rel=1e-6, abs=1e-6)
        drawn_S = draw(q, one_sentence(), "gate", 4_000)
        log_ratio_S = q.log_prob(drawn_S) - p.log_prob(drawn_S)
        assert abs(log_ratio_S.mean().item() - truth) < 5 * log_ratio_S.std().item() / 4_000**0.5 + 1e-9
    assert kl_divergence(gates(alpha, alpha), gates(alpha, alpha)).item() == 0


@pytest.mark.parametrize(("alpha", "beta"), [(0.5, 0.5), (0.5, 100.0), (4.0, 1.0), (30.0, 4.0), (100.0, 100.0)])
def test_pathwise_gradients_of_gates_are_those_of_expectations(alpha: float, beta: float) -> None:
    """E[gamma] = a / (a + b), E[gamma^2] = a (a + 1) / ((a + b) (a + b + 1)) and E[logit] = psi(a) - psi(b), whose
    derivatives are taken by finite differences."""

    def first(a: float, b: float) -> float:
        return a / (a + b)

    def second(a: float, b: float) -> float:
        return a * (a + 1) / ((a + b) * (a + b + 1))

    def of_logit(a: float, b: float) -> float:
        return float(scipy.special.digamma(a) - scipy.special.digamma(b))

    samples, sentences = 200, 200
    for expectation, f in (
        (first, lambda x: x.sigmoid()),
        (second, lambda x: x.sigmoid() ** 2),
        (of_logit, lambda x: x),
    ):
        q = gates(alpha, beta, sentences)
        q.alpha.requires_grad_(), q.beta.requires_grad_()
        drawn_SBZ = draw(q, Noise(0, 0, torch.arange(sentences)), "gate", samples)
        found = torch.autograd.grad(f(drawn_SBZ).mean(0).sum(), [q.alpha, q.beta])
        step = 1e-4
        truths = (
            (expectation(alpha + step, beta) - expectation(alpha - step, beta)) / (2 * step),
            (expectation(alpha, beta + step) - expectation(alpha, beta - step)) / (2 * step),
        )
        for gradient_BZ, truth in zip(found, truths, strict=True):
            error = gradient_BZ.std().item() / sentences**0.5
            assert abs(gradient_BZ.mean().item() - truth) < 4 * error
            assert error < 0.1 * abs(truth)


def test_a_sentences_gates_do_not_depend_on_its_batch_nor_on_how_samples_are_chunked(monkeypatch) -> None:
    generator = torch.manual_seed(2)
    alpha_BZ, beta_BZ = torch.rand(2, 5, 3, generator=generator) * 9 + 0.5
    rows = torch.tensor([4, 9, 2, 7, 30])
    whole_SBZ = draw(GateLogit(alpha_BZ, beta_BZ), Noise(0, 0, rows), "gate", 7)
    assert whole_SBZ.dtype == torch.float32
    alone_SBZ = draw(GateLogit(alpha_BZ[3:4], beta_BZ[3:4]), Noise(0, 0, rows[3:4]), "gate", 7)
    assert torch.equal(alone_SBZ, whole_SBZ[:, 3:4])
    later_SBZ = draw(GateLogit(alpha_BZ, beta_BZ), Noise(0, 0, rows).after(4), "gate", 3)
    assert torch.equal(later_SBZ, whole_SBZ[4:])
    assert not torch.isclose(draw(GateLogit(alpha_BZ, beta_BZ), Noise(1, 0, rows), "gate", 7), whole_SBZ).any()
    monkeypatch.setattr(distributions, "PROPOSALS_AT_ONCE", 2 * 15 * distributions.TRIES)
    assert torch.equal(draw(GateLogit(alpha_BZ, beta_BZ), Noise(0, 0, rows), "gate", 7), whole_SBZ)


def test_a_sentences_switches_do_not_depend_on_its_batch() -> None:
    parts, rows = batch_of_parts(), torch.arange(100, 140)
    whole_SBZ = draw(SpikeAndSlab(*parts, SPIKE), Noise(0, 0, rows), "z", 6)
    alone_SBZ = draw(SpikeAndSlab(*(part[8:9] for part in parts), SPIKE), Noise(0, 0, rows[8:9]), "z", 6)
    assert torch.equal(alone_SBZ, whole_SBZ[:, 8:9])


def test_codes_given_gates_are_drawn_once_for_each_of_them() -> None:
    """With one code for each gate the draws have the density with the gates integrated out, which is linear in gamma:
    that of the mean gate."""
    noise = Noise(0, 0, torch.arange(100))
    off_logit_SBZ = draw(gates(4.0, 1.0, 100), noise, "gate", 200)
    q = SpikeAndSlab(off_logit_SBZ, torch.zeros(100, 1), torch.ones(100, 1), SPIKE)
    drawn_SBZ = draw(q, noise, "z", 200, given=True)
    assert drawn_SBZ.shape == (200, 100, 1)

    def cumulative(z: np.ndarray) -> np.ndarray:
        return 0.8 * scipy.stats.norm.cdf(z, 0, SPIKE) + 0.2 * scipy.stats.norm.cdf(z)

    assert scipy.stats.kstest(drawn_SBZ.flatten().numpy(), cumulative).pvalue > 1e-3


# Mixtures


def mixture() -> tuple[Mixture, Normal]:
    generator = torch.manual_seed(8)
    loc_KZ, scale_KZ = 3 * torch.randn(3, 2, generator=generator), torch.rand(3, 2, generator=generator) + 0.1
    components = Normal(loc_KZ.double(), scale_KZ.double())
    return Mixture(components), components


def test_a_mixtures_density_is_the_mean_of_its_components_densities_over_whole_codes() -> None:
    q, components = mixture()
    z_SBZ = torch.randn(5, 4, 2, generator=torch.manual_seed(1)).double()
    truth_SB = torch.stack([components.log_prob(z[None]).sum(1).exp().mean().log() for z in z_SBZ.view(-1, 2)])
    torch.testing.assert_close(q.log_prob(z_SBZ).sum(2), truth_SB.view(5, 4))
    assert q.batch_shape == (2,)
    assert q.expand((7, 2)).batch_shape == (7, 2)


def test_a_mixture_draws_whole_codes_from_one_component_at_a_time() -> None:
    q, components = mixture()
    rows = torch.arange(200)
    drawn_SBZ = draw(q.expand((200, 2)), Noise(0, 0, rows), "z", 100)
    assert drawn_SBZ.shape == (100, 200, 2)
    alone_SBZ = draw(q.expand((1, 2)), Noise(0, 0, rows[7:8]), "z", 100)
    assert torch.equal(alone_SBZ, drawn_SBZ[:, 7:8])
    codes_NZ = drawn_SBZ.flatten(0, 1)
    for at, (mean, variance) in enumerate(zip(q.mean.tolist(), q.variance.tolist(), strict=True)):
        assert abs(codes_NZ[:, at].mean().item() - mean) < 4 * math.sqrt(variance / len(codes_NZ))
        assert codes_NZ[:, at].var().item() == pytest.approx(variance, rel=0.05)

    def cumulative(z: np.ndarray) -> np.ndarray:
        each = [scipy.stats.norm(*of) for of in zip(components.loc[:, 0], components.scale[:, 0], strict=True)]
        return np.mean([one.cdf(z) for one in each], axis=0)

    assert scipy.stats.kstest(codes_NZ[:, 0].numpy(), cumulative).pvalue > 1e-3
    centred_KZ = components.loc - components.loc.mean(0)
    truth_ZZ = centred_KZ.T @ centred_KZ / 3 + components.variance.mean(0).diag()
    torch.testing.assert_close(torch.cov(codes_NZ.T), truth_ZZ, rtol=0.05, atol=0.05)


def test_moments_of_gated_distributions_are_exact() -> None:
    q = single(0.3, 1.5, 0.4)
    mean, deviation = moments(q, one_sentence())
    assert torch.equal(mean, q.mean)
    assert torch.equal(deviation, q.variance.sqrt())


# Never anything that is not finite


@pytest.mark.parametrize("dim", [32, 768])
@pytest.mark.parametrize("temperature", [None, 0.01, 0.5])
def test_values_and_gradients_stay_finite_whatever_the_gates(dim: int, temperature: float | None) -> None:
    """In float32, with gates and slabs far beyond what training asks for."""
    sentences, samples = 4, 2 if dim == 768 else 40
    generator = torch.manual_seed(dim)
    noise = Noise(0, 0, torch.arange(sentences))
    for alpha, beta in itertools.product((0.5, 3.0, 100.0), (0.5, 3.0, 100.0)):
        q = GateLogit(torch.full((sentences, dim), alpha), torch.full((sentences, dim), beta))
        loc = 100 * torch.randn(sentences, dim, generator=generator)
        log_variance = (20 * torch.randn(sentences, dim, generator=generator)).clamp(-20, 20)
        leaves = [leaf.requires_grad_() for leaf in (q.alpha, q.beta, loc, log_variance)]
        off_logit = draw(q, noise, "gate", samples)
        for extreme in (0.0, -90.0, 90.0):
            parts = (off_logit + extreme, loc, (0.5 * log_variance).exp())
            for hard in (True, False):
                z_q = SpikeAndSlab(*parts, SPIKE, temperature, hard)
                z = draw(z_q, noise, "z", samples, given=True)
                z_p = SpikeAndSlab(off_logit + extreme, torch.zeros(dim), torch.ones(dim), SPIKE)
                found = [z, z_q.log_prob(z), z_p.log_prob(z), z_q.mean, z_q.stddev]
                for alpha_p, beta_p in ((0.5, 100.0), (100.0, 0.5)):
                    p = GateLogit(torch.full((dim,), alpha_p), torch.full((dim,), beta_p))
                    found += [kl_divergence(q, p), q.log_prob(off_logit) - p.log_prob(off_logit)]
                gradients = torch.autograd.grad(sum(x.sum() for x in found), leaves, retain_graph=True)
                assert all(torch.isfinite(x).all() for x in (*found, *gradients))
