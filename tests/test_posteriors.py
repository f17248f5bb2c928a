"""Posteriors: what they make of features, and of noise."""

import itertools

import numpy as np
import pytest
import torch
from helpers import small
from torch import Tensor
from torch.nn import functional as F

from textspace.config import DeltaPosterior, GaussianPosterior, ImplicitPosterior
from textspace.data.batching import make_batch
from textspace.distributions import Implicit, draw, moments
from textspace.model import Model
from textspace.noise import Noise
from textspace.posteriors import POSTERIORS
from textspace.recipes import RECIPES

CONFIGS = {"gaussian": GaussianPosterior(), "delta": DeltaPosterior(), "implicit": ImplicitPosterior()}
FEATURES, DIM = 6, 3


def posterior_of(config, features: int = FEATURES, dim: int = DIM) -> torch.nn.Module:
    torch.manual_seed(5)
    return POSTERIORS[config.kind](config, features, dim)


@pytest.fixture
def features_BH() -> Tensor:
    return torch.randn(4, FEATURES, generator=torch.manual_seed(6))


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
