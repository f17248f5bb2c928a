"""Posteriors: what they make of features, and of noise."""

import itertools
import math

import numpy as np
import pytest
import torch
from helpers import small
from torch import Tensor
from torch.nn import functional as F

from textspace.config import DeltaPosterior, GaussianPosterior, ImplicitPosterior, Latent, SpikeAndSlabPosterior
from textspace.data.batching import make_batch
from textspace.distributions import GateLogit, Implicit, SpikeAndSlab, centre, draw, moments
from textspace.model import Model
from textspace.noise import Noise
from textspace.posteriors import POSTERIORS, SLAB_LOG_VARIANCE
from textspace.recipes import RECIPES

CONFIGS = {
    "gaussian": GaussianPosterior(),
    "delta": DeltaPosterior(),
    "implicit": ImplicitPosterior(),
    "gates of features": SpikeAndSlabPosterior(gates="features"),
}
FEATURES, DIM = 6, 3


def posterior_of(config, features: int = FEATURES, dim: int = DIM) -> torch.nn.Module:
    torch.manual_seed(5)
    return POSTERIORS[config.kind](config, features, Latent(dim=dim))


@pytest.fixture
def features_BH() -> Tensor:
    return torch.randn(4, FEATURES, generator=torch.manual_seed(6))


def test_a_gaussian_is_computed_in_32_bits_where_its_features_have_16(features_BH: Tensor) -> None:
    """Rounded to 16, a mean of 1 is off by half the deviation of the narrowest posteriors there are."""
    posterior = posterior_of(GaussianPosterior(log_variance_floor=-10))
    with torch.autocast("cpu", torch.bfloat16):
        q = posterior("z", features_BH.bfloat16(), {})
    exact = posterior("z", features_BH.bfloat16().float(), {})
    assert torch.equal(q.mean, exact.mean)
    assert torch.equal(q.stddev, exact.stddev)


def test_a_gaussians_mean_and_log_variance_are_linear(features_BH: Tensor) -> None:
    posterior = posterior_of(GaussianPosterior())
    q = posterior("z", features_BH, {})
    mean, log_variance = posterior.mean, posterior.log_variance
    torch.testing.assert_close(q.loc, features_BH @ mean.weight.T + mean.bias)
    torch.testing.assert_close(q.variance.log(), features_BH @ log_variance.weight.T + log_variance.bias)


def test_a_gaussians_log_variance_does_not_fall_below_its_floor(features_BH: Tensor) -> None:
    free_BZ = posterior_of(GaussianPosterior())("z", features_BH, {}).variance.log()
    floor = free_BZ.median().item()
    posterior = posterior_of(GaussianPosterior(log_variance_floor=floor))
    held_BZ = posterior("z", features_BH, {}).variance.log()
    assert (free_BZ < floor).any()
    torch.testing.assert_close(held_BZ, free_BZ.clamp(min=floor))
    assert torch.equal(posterior("z", features_BH, {}).loc, posterior_of(GaussianPosterior())("z", features_BH, {}).loc)


@pytest.mark.parametrize("floor", [None, -1.0])
def test_a_gaussians_deviation_may_be_a_softplus(floor: float | None, features_BH: Tensor) -> None:
    posterior = posterior_of(GaussianPosterior(deviation="softplus", log_variance_floor=floor))
    raw_BZ = features_BH @ posterior.log_variance.weight.T + posterior.log_variance.bias
    least = 0.0 if floor is None else math.exp(floor / 2)
    truth_BZ = (1 + raw_BZ.exp()).log().clamp(min=least)
    torch.testing.assert_close(posterior("z", features_BH, {}).stddev, truth_BZ)
    assert (truth_BZ == least).any() == (floor is not None)
    with torch.no_grad():
        posterior.log_variance.bias.fill_(-1e4)
    assert torch.isfinite(posterior("z", features_BH, {}).log_prob(torch.zeros(4, DIM))).all()


@pytest.mark.parametrize("kind", CONFIGS)
def test_what_a_posterior_says_of_itself_is_true(kind: str, features_BH: Tensor) -> None:
    posterior = posterior_of(CONFIGS[kind])
    q = posterior("z", features_BH, {})
    assert type(q) is posterior.distributions["z"]
    assert q.batch_shape == (4, DIM)
    drawn_SBZ = draw(q, Noise(0, 0, torch.arange(4)), "z", 5)
    assert drawn_SBZ.shape == (5, 4, DIM)
    if posterior.has_log_prob:
        assert q.log_prob(drawn_SBZ).shape == (5, 4, DIM)
    else:
        with pytest.raises(NotImplementedError):
            q.log_prob(drawn_SBZ)


@pytest.mark.parametrize("layers", [0, 1, 2, 3])
def test_an_implicit_posterior_is_a_network_of_features_and_noise(layers: int, features_BH: Tensor) -> None:
    posterior = posterior_of(ImplicitPosterior(layers=layers, hidden=7))
    linears = [part for part in posterior.network if isinstance(part, torch.nn.Linear)]
    assert len(linears) == layers + 1
    assert all(linear.out_features == 7 for linear in linears[:-1])
    noise = Noise(0, 0, torch.arange(4))
    drawn_SBZ = draw(posterior("z", features_BH, {}), noise, "z", 5)
    noise_SBE = noise.normal("z", (DIM,), 5)
    for sample, row in itertools.product(range(5), range(4)):
        x = torch.cat([features_BH[row], noise_SBE[sample, row]])
        for linear in linears[:-1]:
            x = F.leaky_relu(linear.weight @ x + linear.bias)
        torch.testing.assert_close(drawn_SBZ[sample, row], linears[-1].weight @ x + linears[-1].bias)


def curvature(posterior: torch.nn.Module, features_BH: Tensor) -> tuple[float, float]:
    """How far the posterior is from linear in noise, and in features."""
    generator = torch.manual_seed(1)
    one, other = torch.randn(2, 1, len(features_BH), DIM, generator=generator)
    zero = torch.zeros_like(one)
    shift_BH = torch.randn(features_BH.shape, generator=generator)

    def push(at_BH: Tensor, noise_SBE: Tensor) -> Tensor:
        return posterior("z", at_BH, {}).push(noise_SBE)

    def bend(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> float:
        return (a - b - c + d).abs().max().item()

    in_noise = bend(*(push(features_BH, noise) for noise in (one + other, one, other, zero)))
    in_features = bend(*(push(at, one) for at in (features_BH + shift_BH, features_BH, shift_BH, 0 * shift_BH)))
    return in_noise, in_features


def test_without_hidden_layers_an_implicit_posterior_is_linear(features_BH: Tensor) -> None:
    assert max(curvature(posterior_of(ImplicitPosterior(layers=0)), features_BH)) < 1e-6
    assert min(curvature(posterior_of(ImplicitPosterior(layers=2)), features_BH)) > 1e-3


def test_a_linear_implicit_posterior_is_the_gaussian_it_must_be(features_BH: Tensor) -> None:
    posterior = posterior_of(ImplicitPosterior(layers=0, noise=5))
    linear = posterior.network[0]
    weight_features, weight_noise = linear.weight.split([FEATURES, 5], dim=1)
    mean_BZ, deviation_BZ = moments(posterior("z", features_BH, {}), Noise(0, 0, torch.arange(4)), 20_000)
    truth_Z = weight_noise.square().sum(1).sqrt()
    error_Z = 5 * truth_Z / 20_000**0.5
    assert ((mean_BZ - (features_BH @ weight_features.T + linear.bias)).abs() < error_Z).all()
    assert ((deviation_BZ - truth_Z).abs() < error_Z).all()


@pytest.mark.parametrize(("noise", "taken"), [(None, DIM), (1, 1), (11, 11)])
def test_an_implicit_posterior_takes_as_much_noise_as_asked_for(noise: int | None, taken: int, features_BH) -> None:
    posterior = posterior_of(ImplicitPosterior(noise=noise))
    q = posterior("z", features_BH, {})
    assert isinstance(q, Implicit)
    assert q.noise == taken
    assert posterior.network[0].in_features == FEATURES + taken
    drawn_SBZ = draw(q, Noise(0, 0, torch.arange(4)), "z", 50)
    assert drawn_SBZ.shape == (50, 4, DIM)
    centred_SZ = (drawn_SBZ - drawn_SBZ.mean(0))[:, 0]
    if taken == 1:  # piecewise linear in one number: all draws of a sentence lie close to a line
        assert torch.linalg.svdvals(centred_SZ)[1] < 0.5 * torch.linalg.svdvals(centred_SZ)[0]


@pytest.mark.parametrize("layers", [0, 2])
def test_gradients_reach_all_of_an_implicit_posterior_and_its_features(layers: int, features_BH: Tensor) -> None:
    posterior = posterior_of(ImplicitPosterior(layers=layers))
    features_BH.requires_grad_()
    draw(posterior("z", features_BH, {}), Noise(0, 0, torch.arange(4)), "z", 3).square().sum().backward()
    assert [n for n, p in posterior.named_parameters() if p.grad is None or not (p.grad != 0).any()] == []
    assert (features_BH.grad.abs().sum(1) > 0).all()
    first = posterior.network[0].weight.grad
    assert (first.abs().sum(0) > 0).all()  # every feature and every number of noise


def test_codes_of_an_implicit_model_are_keyed_by_sentence_and_sample(tiny) -> None:
    model = Model(small(RECIPES["ivae"]).but({"posterior.layers": 2}), len(tiny.tokenizer)).eval()
    split = tiny.encoded.splits["train"]

    def codes(rows: list[int], step: int = 0, samples: int = 4, first: int = 0) -> Tensor:
        batch = make_batch(split, np.array(rows))
        return model(batch, Noise(3, step, batch.rows_B).after(first), samples).sites["z"].value_SBZ.detach()

    whole_SBZ = codes([3, 9, 4])
    assert torch.equal(codes([3, 9, 4]), whole_SBZ)
    torch.testing.assert_close(codes([9]), whole_SBZ[:, 1:2], atol=1e-6, rtol=0)
    torch.testing.assert_close(codes([3, 9, 4], samples=2, first=2), whole_SBZ[2:], atol=1e-6, rtol=0)
    assert not torch.isclose(codes([3, 9, 4], step=1), whole_SBZ).any()
    assert whole_SBZ.std(0).min() > 1e-3  # samples differ


# Spike and slab


def by_hand(network: torch.nn.Sequential, x: Tensor) -> Tensor:
    first, last = network[0], network[2]
    return F.leaky_relu(x @ first.weight.T + first.bias) @ last.weight.T + last.bias


@pytest.mark.parametrize("sees_gates", [True, False])
def test_beta_gates_come_first_and_the_slab_may_see_them(sees_gates: bool, features_BH: Tensor) -> None:
    posterior = posterior_of(SpikeAndSlabPosterior(slab_sees_gates=sees_gates, hidden=7)).eval()
    assert list(posterior.distributions.items()) == [("gate", GateLogit), ("z", SpikeAndSlab)]
    q = posterior("gate", features_BH, {})
    raw_alpha, raw_beta = by_hand(posterior.gates, features_BH).chunk(2, dim=1)
    torch.testing.assert_close(q.alpha, F.softplus(raw_alpha).clamp(0.5, 100))
    torch.testing.assert_close(q.beta, F.softplus(raw_beta).clamp(0.5, 100))
    assert (q.alpha != q.beta).any()

    off_logit_SBZ = draw(q, Noise(0, 0, torch.arange(4)), "gate", 5)
    z = posterior("z", features_BH, {"gate": off_logit_SBZ})
    assert z.batch_shape == (5, 4, DIM)
    assert torch.equal(z.off_logit, off_logit_SBZ)
    inputs = features_BH.expand(5, -1, -1)
    if sees_gates:
        inputs = torch.cat([inputs, off_logit_SBZ.sigmoid()], dim=2)
    loc, log_variance = by_hand(posterior.slab, inputs).chunk(2, dim=2)
    torch.testing.assert_close(z.loc, loc)
    torch.testing.assert_close(z.scale, (log_variance / 2).exp())
    assert (z.loc.std(0) > 1e-3).all() == sees_gates  # over samples of the gates
    assert z.spike == 0.05


@pytest.mark.parametrize("gates", ["beta", "features"])
def test_without_hidden_layers_gates_and_slab_are_linear_as_in_the_published_code(
    gates: str, features_BH: Tensor
) -> None:
    """Mean W h + b; deviation softplus(W h + b); gates' parameters softplus(W h + b), here within bounds."""
    config = SpikeAndSlabPosterior(gates=gates, layers=0, slab_sees_gates=False, deviation="softplus")
    posterior = posterior_of(config).eval()

    def linear(network: torch.nn.Sequential) -> Tensor:
        (only,) = network
        return features_BH @ only.weight.T + only.bias

    earlier = {}
    if gates == "beta":
        q = posterior("gate", features_BH, {})
        alpha, beta = (1 + linear(posterior.gates).exp()).log().clamp(0.5, 100).chunk(2, dim=1)
        torch.testing.assert_close((q.alpha, q.beta), (alpha, beta))
        earlier["gate"] = draw(q, Noise(0, 0, torch.arange(4)), "gate", 5)
    z = posterior("z", features_BH, earlier)
    loc, raw = linear(posterior.slab).chunk(2, dim=1)
    torch.testing.assert_close(z.loc, loc.expand_as(z.loc))
    torch.testing.assert_close(z.scale, (1 + raw.exp()).log().expand_as(z.scale))


def test_gates_of_features_are_one_site(features_BH: Tensor) -> None:
    posterior = posterior_of(SpikeAndSlabPosterior(gates="features", hidden=7)).eval()
    assert posterior.distributions == {"z": SpikeAndSlab}
    q = posterior("z", features_BH, {})
    torch.testing.assert_close(q.off_logit, by_hand(posterior.gates, features_BH))


@pytest.mark.parametrize("raw", [-1e4, -20.0, -1.0, 5.0, 200.0, 1e9])
def test_concentrations_stay_within_their_bounds_and_their_gradients_do_not(raw: float) -> None:
    posterior = posterior_of(SpikeAndSlabPosterior(layers=0))
    with torch.no_grad():
        posterior.gates[0].weight.zero_()
        posterior.gates[0].bias.fill_(raw)
    q = posterior("gate", torch.ones(2, FEATURES), {})
    bounded = min(max(F.softplus(torch.tensor(raw)).item(), 0.5), 100.0)
    assert torch.equal(q.alpha, torch.full((2, DIM), bounded))
    q.alpha.sum().backward()
    gradient = posterior.gates[0].bias.grad[:DIM]
    torch.testing.assert_close(gradient, torch.full((DIM,), 2 * torch.tensor(raw).sigmoid().item()))


@pytest.mark.parametrize("deviation", ["exp", "softplus"])
@pytest.mark.parametrize("raw", [-1e6, 1e6])
def test_a_slab_neither_overflows_nor_vanishes(raw: float, deviation: str) -> None:
    posterior = posterior_of(SpikeAndSlabPosterior(layers=0, deviation=deviation))
    with torch.no_grad():
        posterior.slab[0].weight.zero_()
        posterior.slab[0].bias.fill_(raw)
    q = posterior("z", torch.ones(2, FEATURES), {"gate": torch.zeros(3, 2, DIM)})
    bound = torch.tensor(SLAB_LOG_VARIANCE[0 if raw < 0 else 1])
    torch.testing.assert_close(q.scale.log().mul(2).unique(), bound[None])
    z = draw(q, Noise(0, 0, torch.arange(2)), "z", 3, given=True)
    q.log_prob(z).sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in posterior.slab.parameters())


def test_switches_are_relaxed_in_training_only(features_BH: Tensor) -> None:
    for config in (SpikeAndSlabPosterior(hard=False), SpikeAndSlabPosterior(hard=True, temperature=0.3)):
        posterior = posterior_of(config)
        given = {"gate": torch.zeros(1, 4, DIM)}
        training, reported = posterior.train()("z", features_BH, given), posterior.eval()("z", features_BH, given)
        assert (training.temperature, training.hard) == (config.temperature, config.hard)
        assert training.relaxed == (not config.hard)
        assert reported.temperature is None
        assert not reported.relaxed
        noise = Noise(0, 0, torch.arange(4))
        hard_SBZ = draw(reported, noise, "z", 1, given=True)
        assert torch.equal(draw(training, noise, "z", 1, given=True), hard_SBZ) == config.hard


@pytest.mark.parametrize("gates", ["beta", "features"])
def test_gradients_reach_gates_and_slab(gates: str, features_BH: Tensor) -> None:
    posterior = posterior_of(SpikeAndSlabPosterior(gates=gates))
    features_BH.requires_grad_()
    noise, earlier = Noise(0, 0, torch.arange(4)), {}
    if gates == "beta":
        earlier["gate"] = draw(posterior("gate", features_BH, {}), noise, "gate", 50)
    q = posterior("z", features_BH, earlier)
    draw(q, noise, "z", 50, given=bool(earlier)).square().sum().backward()
    assert [n for n, p in posterior.named_parameters() if p.grad is None or not (p.grad != 0).any()] == []
    assert (features_BH.grad.abs().sum(1) > 0).all()


def test_a_gated_models_mean_codes_have_their_gates_at_the_mean(tiny) -> None:
    model = Model(small(RECIPES["hsvae"]), len(tiny.tokenizer)).eval()
    batch = make_batch(tiny.encoded.splits["train"], np.arange(6))
    features_BH = model.features(batch.encoder)
    gate = model.posterior("gate", features_BH, {})
    off_BZ = gate.alpha / (gate.alpha + gate.beta)
    torch.testing.assert_close(model.gates(features_BH), off_BZ)
    torch.testing.assert_close(centre(gate).sigmoid(), off_BZ)
    slab = model.posterior("z", features_BH, {"gate": torch.special.logit(off_BZ)})
    mean_BZ, deviation_BZ = model.code_moments(features_BH, Noise(0, 0, batch.rows_B))
    torch.testing.assert_close(mean_BZ, (1 - off_BZ) * slab.loc)
    second_BZ = off_BZ * 0.05**2 + (1 - off_BZ) * (slab.scale**2 + slab.loc**2)
    torch.testing.assert_close(deviation_BZ, (second_BZ - mean_BZ**2).sqrt(), rtol=1e-4, atol=1e-5)
    plain = Model(small(RECIPES["vae"]), len(tiny.tokenizer)).eval()
    assert plain.gates(plain.features(batch.encoder)) is None


def test_gated_codes_are_keyed_by_sentence_and_sample(tiny) -> None:
    model = Model(small(RECIPES["hsvae"]), len(tiny.tokenizer)).eval()
    split = tiny.encoded.splits["train"]

    def sites(rows: list[int], samples: int = 4, first: int = 0) -> list[Tensor]:
        batch = make_batch(split, np.array(rows))
        found = model(batch, Noise(3, 0, batch.rows_B).after(first), samples).sites
        return [found[name].value_SBZ.detach() for name in ("gate", "z")]

    for whole_SBZ, alone_SBZ, later_SBZ in zip(
        sites([3, 9, 4]), sites([9]), sites([3, 9, 4], samples=2, first=2), strict=True
    ):
        torch.testing.assert_close(alone_SBZ, whole_SBZ[:, 1:2], atol=1e-5, rtol=0)
        torch.testing.assert_close(later_SBZ, whole_SBZ[2:], atol=1e-5, rtol=0)
        assert whole_SBZ.std(0).min() > 1e-3  # samples differ


def test_a_posterior_in_half_precision_has_gates_and_slabs_in_full(features_BH: Tensor) -> None:
    posterior = posterior_of(SpikeAndSlabPosterior())
    with torch.autocast("cpu", torch.bfloat16):
        gate = posterior("gate", features_BH, {})
        off_logit_SBZ = draw(gate, Noise(0, 0, torch.arange(4)), "gate", 2)
        z = posterior("z", features_BH, {"gate": off_logit_SBZ})
    assert {x.dtype for x in (gate.alpha, gate.beta, off_logit_SBZ, z.loc, z.scale)} == {torch.float32}
