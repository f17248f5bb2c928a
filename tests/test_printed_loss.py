"""The loss that the VAT paper prints: noise scaled by the prior's deviation, and a KL that knows nothing of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from helpers import small
from torch import Tensor
from torch.distributions import Normal

from textspace.data.batching import make_batch
from textspace.errors import TextspaceError
from textspace.model import Model
from textspace.noise import Noise
from textspace.objectives import build_objective, printed_kl
from textspace.recipes import RECIPES
from textspace.schedules import Progress
from textspace.types import Pass, Site, Terms

NOW = Progress(0, 0.0)
READINGS = [("scale", 0.4, 0.4), ("root-scale", 0.4, math.sqrt(0.4)), ("scale", 0.1, 0.1)]
"""Options of the prior, s, and the standard deviation of the noise that they stand for."""


def terms_of(name: str, noise: str, scale: float, tiny, changes: dict | None = None) -> tuple[Model, Pass, Terms]:
    prior = {"prior": {"kind": "scaled-normal", "scale": scale, "noise": noise}, "objective.kl_weight": 0.7}
    recipe = small(RECIPES[name]).but(prior | (changes or {}))
    model = Model(recipe, len(tiny.tokenizer)).eval()
    batch = make_batch(tiny.encoded.splits["train"], np.arange(16))
    passed = model(batch, Noise(0, 0, batch.rows_B))
    return model, passed, build_objective(recipe, model)(passed, NOW)


def kl_of(mean: Tensor, deviation: Tensor, scale: float) -> Tensor:
    """Equation 6 of the paper, in every dimension."""
    return (deviation**2 + mean**2) / (2 * scale**2) - (deviation / scale).log() - 0.5


@pytest.mark.parametrize("name", ["vat", "vae"])
@pytest.mark.parametrize(("noise", "scale", "drawn"), READINGS)
def test_codes_have_the_scaled_noise_and_the_loss_the_kl_without_it(
    name: str, noise: str, scale: float, drawn: float, tiny
) -> None:
    model, passed, terms = terms_of(name, noise, scale, tiny)
    features = model.features(passed.batch.encoder)
    mean, deviation = model.posterior.mean(features), (model.posterior.log_variance(features) / 2).exp()
    e = passed.noise.normal("z", tuple(mean.shape[1:]), 1)
    torch.testing.assert_close(passed.sites["z"].value_SBZ, mean + deviation * drawn * e)

    def summed(kl: Tensor) -> Tensor:
        if name == "vae":
            return kl.sum(1)
        lengths = passed.batch.encoder.lengths_B.tolist()
        return torch.stack([each[:length].sum() for each, length in zip(kl, lengths, strict=True)])

    printed, kl = (summed(kl_of(mean, each, scale)) for each in (deviation, drawn * deviation))
    torch.testing.assert_close(terms.terms["kl_printed"].values, printed)
    torch.testing.assert_close(terms.terms["kl"].values, kl)
    assert terms.weights == {"reconstruction": 1.0, "kl_printed": 0.7}
    assert terms.terms["kl_printed"].how == "closed"


@pytest.mark.parametrize("noise", ["scale", "root-scale"])
def test_at_a_scale_of_1_there_is_one_loss(noise: str, tiny) -> None:
    _, passed, terms = terms_of("vat", noise, 1.0, tiny)
    _, plain, of_plain = terms_of("vat", "standard", 1.0, tiny)
    assert torch.equal(passed.sites["z"].value_SBZ, plain.sites["z"].value_SBZ)
    assert terms.weights == of_plain.weights == {"reconstruction": 1.0, "kl": 0.7}
    assert torch.equal(terms.terms["kl"].values, of_plain.terms["kl"].values)


def test_codes_that_are_read_have_the_deviation_of_those_that_are_drawn(tiny) -> None:
    model, passed, _ = terms_of("vae", "scale", 0.4, tiny)
    mean_BZ, deviation_BZ = model.code_moments(passed.features_BH, passed.noise)
    torch.testing.assert_close(deviation_BZ, 0.4 * (model.posterior.log_variance(passed.features_BH) / 2).exp())
    torch.testing.assert_close(mean_BZ, model.posterior.mean(passed.features_BH))


# What it amounts to


def least_curvature(signal: float, scale: float, noise: float, kl_weight: float) -> float:
    """The smallest eigenvalue of a loss's second derivatives where the code is not used.

    A sentence is a number x of variance `signal`, the decoder N(w z, 1), the posterior's mean a x and its deviation
    d: with noise t the expected reconstruction is ((1 - w a)^2 signal + w^2 t^2 d^2) / 2.
    """
    x_BZ = torch.tensor([[-1.0], [1.0]], dtype=torch.float64) * math.sqrt(signal)
    p = Normal(torch.zeros(1, dtype=torch.float64), scale, validate_args=False)

    def loss(parameters: Tensor) -> Tensor:
        a, w, log_d = parameters
        z = Site(Normal(a * x_BZ, noise * log_d.exp(), validate_args=False), p, x_BZ[None])
        reconstruction = ((1 - w * a) ** 2 * signal + w**2 * z.q.variance.mean()) / 2
        return reconstruction + kl_weight * printed_kl(z, noise).mean()

    unused = torch.tensor([0.0, 0.0, math.log(scale)], dtype=torch.float64)
    (gradient,) = torch.autograd.grad(loss(at := unused.clone().requires_grad_()), at)
    assert gradient.abs().max() < 1e-12
    return torch.linalg.eigvalsh(torch.autograd.functional.hessian(loss, unused)).min().item()


@pytest.mark.parametrize(("noise", "scale", "drawn"), READINGS)
def test_a_linear_decoder_uses_a_code_where_it_would_under_an_elbo_with_weight_of_the_noise_squared(
    noise: str, scale: float, drawn: float
) -> None:
    """With noise t and weight 1 that is where the signal is above t^2, and with standard noise and weight b above b:
    s^2 and s, as diag(s) is read as deviations or variances, whatever the prior's deviation."""
    beta = {"scale": scale**2, "root-scale": scale}[noise]
    for signal, is_used in ((0.98 * beta, False), (1.02 * beta, True)):
        assert (least_curvature(signal, scale, drawn, 1.0) < 0) == is_used
        assert (least_curvature(signal, scale, 1.0, beta) < 0) == is_used
        assert (least_curvature(signal, 1.0, 1.0, beta) < 0) == is_used


@pytest.mark.parametrize(("noise", "scale", "drawn"), READINGS)
def test_a_weak_code_tells_more_than_it_pays(noise: str, scale: float, drawn: float) -> None:
    """1 / t^2 times: means of variance v beside noise of t s tell ln(1 + v / (t s)^2) / 2 and pay v / (2 s^2)."""
    v = 1e-6 * scale**2
    means_BZ = torch.tensor([[-1.0], [1.0]], dtype=torch.float64) * math.sqrt(v)
    p = Normal(torch.zeros(1, dtype=torch.float64), scale, validate_args=False)
    z = Site(Normal(means_BZ, drawn * scale, validate_args=False), p, means_BZ[None])
    tells = math.log1p(v / z.q.variance.mean().item()) / 2
    assert tells / printed_kl(z, drawn).mean().item() == pytest.approx(1 / drawn**2, rel=1e-3)


# What cannot be


@pytest.mark.parametrize(
    ("name", "changes", "sentence"),
    [
        (
            "vat-printed",
            {"prior.learned": True},
            "noise 'scale' is drawn with a fixed scale, and learned is true: set noise=standard or learned=false",
        ),
        (
            "vat-printed",
            {"objective": {"kind": "mim"}},
            "prior.noise 'scale' has a KL of its own in objective 'elbo', and not with objective 'mim': set "
            "prior.noise=standard, or use objective 'elbo' without free bits",
        ),
        ("vat-printed", {"objective.free_bits": {}}, "and not with objective.free_bits: set prior.noise=standard"),
        (
            "vat-printed",
            {"posterior": {"kind": "spike-and-slab", "gates": "features"}},
            "prior.noise 'scale' scales the noise of posterior 'gaussian': set posterior.kind=gaussian",
        ),
    ],
)
def test_noise_without_a_loss_of_its_own_is_refused(name: str, changes: dict, sentence: str) -> None:
    with pytest.raises(TextspaceError) as told:
        RECIPES[name].but(changes)
    assert sentence in str(told.value)
    assert "\n" not in str(told.value)
