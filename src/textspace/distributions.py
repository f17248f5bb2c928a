"""The distributions torch lacks, which pairs have a closed KL, and how keyed noise becomes a sample."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import singledispatch
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, Normal, constraints, register_kl
from torch.distributions.kl import _dispatch_kl
from torch.nn import functional as F

from textspace.noise import Noise

__all__ = ["Delta", "GateLogit", "Implicit", "Mixture", "SpikeAndSlab", "centre", "closed_kl", "draw", "moments"]


_Shape = torch.Size | list[int] | tuple[int, ...]


class Delta(Distribution):
    """All mass at one point: the posterior of a plain autoencoder. It has no density, hence no `log_prob`."""

    arg_constraints = {"loc": constraints.real}  # noqa: RUF012 (torch's own convention)
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Tensor) -> None:
        self.loc = loc
        super().__init__(batch_shape=loc.shape, validate_args=False)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def stddev(self) -> Tensor:
        return torch.zeros_like(self.loc)

    def rsample(self, sample_shape: _Shape = ()) -> Tensor:
        return self.loc.expand(self._extended_shape(torch.Size(sample_shape)))

    def expand(self, batch_shape: _Shape, _instance: Distribution | None = None) -> Delta:
        return Delta(self.loc.expand(batch_shape))


class Implicit(Distribution):
    """What a function makes of standard normal noise: it can be drawn from, and has neither density nor known mean.

    Args:
        push: noise (samples, *batch_shape[:1], noise) to samples (samples, *batch_shape).
        noise: numbers the function takes for each sample.
        batch_shape: sentences, and the latent axes.
    """

    arg_constraints = {}  # noqa: RUF012 (torch's own convention)
    support = constraints.real
    has_rsample = True

    def __init__(self, push: Callable[[Tensor], Tensor], noise: int, batch_shape: torch.Size) -> None:
        self.push, self.noise = push, noise
        super().__init__(batch_shape=batch_shape, validate_args=False)


class GateLogit(Distribution):
    """logit(gamma) of a gate gamma with a Beta(alpha, beta) distribution; gamma is the probability of OFF.

    In logits a gate is never rounded to 0 or 1. Densities are those of the logit: alpha log gamma + beta log(1 - gamma)
    - log B(alpha, beta).
    """

    arg_constraints = {"alpha": constraints.positive, "beta": constraints.positive}  # noqa: RUF012 (torch's convention)
    support = constraints.real
    has_rsample = True

    def __init__(self, alpha: Tensor, beta: Tensor) -> None:
        self.alpha, self.beta = torch.broadcast_tensors(alpha, beta)
        super().__init__(batch_shape=self.alpha.shape, validate_args=False)

    @property
    def off(self) -> Tensor:
        """E[gamma]."""
        return self.alpha / (self.alpha + self.beta)

    @property
    def mean(self) -> Tensor:
        return (self.alpha.double().digamma() - self.beta.double().digamma()).to(self.alpha.dtype)

    @property
    def variance(self) -> Tensor:
        both = (torch.polygamma(1, parameter.double()) for parameter in (self.alpha, self.beta))
        return sum(both).to(self.alpha.dtype)  # type: ignore[union-attr]

    def log_prob(self, value: Tensor) -> Tensor:
        log_beta = _log_beta(self.alpha.double(), self.beta.double()).to(value.dtype)
        return self.alpha * F.logsigmoid(value) + self.beta * F.logsigmoid(-value) - log_beta

    def expand(self, batch_shape: _Shape, _instance: Distribution | None = None) -> GateLogit:
        return GateLogit(self.alpha.expand(batch_shape), self.beta.expand(batch_shape))


def _log_beta(alpha: Tensor, beta: Tensor) -> Tensor:
    return torch.lgamma(alpha) + torch.lgamma(beta) - torch.lgamma(alpha + beta)


@register_kl(GateLogit, GateLogit)
def _(q: GateLogit, p: GateLogit) -> Tensor:
    """That of the two Beta distributions, in float64: its terms are large and nearly cancel."""
    alpha, beta, alpha_p, beta_p = (each.double() for each in (q.alpha, q.beta, p.alpha, p.beta))
    log_gamma = alpha.digamma() - (alpha + beta).digamma()
    log_rest = beta.digamma() - (alpha + beta).digamma()
    difference = _log_beta(alpha_p, beta_p) - _log_beta(alpha, beta)
    return (difference + (alpha - alpha_p) * log_gamma + (beta - beta_p) * log_rest).to(q.alpha.dtype)


class SpikeAndSlab(Distribution):
    """gamma N(0, spike^2) + (1 - gamma) N(loc, scale^2) in every dimension: gamma is the probability of OFF.

    Args:
        off_logit: logit(gamma).
        loc, scale: of the slab.
        spike: deviation of the spike.
        temperature: of the relaxed switch that training draws with; None draws switches that are on or off.
        hard: whether a relaxed switch has the value of a hard one and only its gradient is relaxed.
    """

    arg_constraints = {}  # noqa: RUF012 (torch's own convention)
    support = constraints.real
    has_rsample = True

    def __init__(
        self,
        off_logit: Tensor,
        loc: Tensor,
        scale: Tensor,
        spike: float,
        temperature: float | None = None,
        hard: bool = True,
    ) -> None:
        self.off_logit, self.loc, self.scale = torch.broadcast_tensors(off_logit, loc, scale)
        self.spike, self.temperature, self.hard = spike, temperature, hard
        super().__init__(batch_shape=self.loc.shape, validate_args=False)

    @property
    def off(self) -> Tensor:
        return self.off_logit.sigmoid()

    @property
    def mean(self) -> Tensor:
        return (1 - self.off) * self.loc

    @property
    def variance(self) -> Tensor:
        """Within the two, and between them; of terms that are never negative, so that nothing cancels."""
        within = self.off * self.spike**2 + (1 - self.off) * self.scale**2
        return within + self.off * (1 - self.off) * self.loc**2

    @property
    def relaxed(self) -> bool:
        """Whether its draws lie between spike and slab: they do not have the density that `log_prob` gives."""
        return self.temperature is not None and not self.hard

    def log_prob(self, value: Tensor) -> Tensor:
        slab = F.logsigmoid(-self.off_logit) + _log_normal(value - self.loc, self.scale)
        spike = F.logsigmoid(self.off_logit) + _log_normal(value, torch.full_like(self.scale, self.spike))
        return torch.logaddexp(slab, spike)

    def expand(self, batch_shape: _Shape, _instance: Distribution | None = None) -> SpikeAndSlab:
        off_logit, loc, scale = (part.expand(batch_shape) for part in (self.off_logit, self.loc, self.scale))
        return SpikeAndSlab(off_logit, loc, scale, self.spike, self.temperature, self.hard)


class Mixture(Distribution):
    """The mean of K distributions of codes, (K, Z): its dimensions depend on each other.

    `log_prob` gives every dimension an equal share of the whole, so that their sum is right, as for factorised ones.
    """

    arg_constraints = {}  # noqa: RUF012 (torch's own convention)
    support = constraints.real

    def __init__(self, components: Distribution, batch_shape: _Shape | None = None) -> None:
        self.components = components
        super().__init__(torch.Size(batch_shape or components.batch_shape[1:]), validate_args=False)

    @property
    def mean(self) -> Tensor:
        return self.components.mean.mean(0)

    @property
    def variance(self) -> Tensor:
        return self.components.variance.mean(0) + self.components.mean.var(0, unbiased=False)

    def log_prob(self, value: Tensor) -> Tensor:
        each = self.components.log_prob(value[..., None, :]).sum(-1)
        whole = each.logsumexp(-1, keepdim=True) - math.log(each.shape[-1])
        return (whole / value.shape[-1]).expand_as(value)

    def expand(self, batch_shape: _Shape, _instance: Distribution | None = None) -> Mixture:
        return Mixture(self.components, batch_shape)


def _log_normal(from_mean: Tensor, scale: Tensor) -> Tensor:
    return -0.5 * (from_mean / scale) ** 2 - scale.log() - 0.5 * math.log(2 * math.pi)


def closed_kl(q: type[Distribution], p: type[Distribution]) -> bool:
    """Whether KL(q || p) has a closed form: ours or torch's, in torch's one table of them.

    >>> closed_kl(Normal, Normal), closed_kl(Delta, Normal)
    (True, False)
    """
    return _dispatch_kl(q, p) is not NotImplemented


@singledispatch
def draw(q: Distribution, noise: Noise, stream: str, samples: int, given: bool = False) -> Tensor:
    """Reparameterised samples (samples, *q.batch_shape) of q, whose first axis is the batch, from keyed noise.

    Like `q.rsample((samples,))`, but each sentence's noise is its own. With `given`, q has a sample axis already, one
    distribution for each sample of what it was given, and each is drawn from once. A new distribution registers its
    rule here.
    """
    raise TypeError(f"no rule to draw from {type(q).__name__} with keyed noise; register one with draw.register")


def _latent_axes(q: Distribution, given: bool) -> tuple[int, ...]:
    return tuple(q.batch_shape[2 if given else 1 :])


@draw.register
def _(q: Normal, noise: Noise, stream: str, samples: int, given: bool = False) -> Tensor:
    return q.loc + q.scale * noise.normal(stream, _latent_axes(q, given), samples, q.loc.dtype)


@draw.register
def _(q: Delta, noise: Noise, stream: str, samples: int, given: bool = False) -> Tensor:
    return q.loc if given else q.rsample((samples,))


@draw.register
def _(q: Implicit, noise: Noise, stream: str, samples: int, given: bool = False) -> Tensor:
    return q.push(noise.normal(stream, (q.noise,), samples))


@draw.register
def _(q: GateLogit, noise: Noise, stream: str, samples: int, given: bool = False) -> Tensor:
    """log of a ratio of two gamma variables, whose pathwise gradients are implicit [Figurnov et al. 2018]."""
    axes = _latent_axes(q, given)
    logs = (
        _gamma(parameter.double(), noise, f"{stream} {name}", samples, axes).log()
        for name, parameter in (("alpha", q.alpha), ("beta", q.beta))
    )
    return torch.sub(*logs).to(q.alpha.dtype)


@draw.register
def _(q: SpikeAndSlab, noise: Noise, stream: str, samples: int, given: bool = False) -> Tensor:
    """A switch, and what it chooses; while a switch is relaxed it mixes the two."""
    axes = _latent_axes(q, given)
    slab = q.loc + q.scale * noise.normal(f"{stream} slab", axes, samples, q.loc.dtype)
    spike = q.spike * noise.normal(f"{stream} spike", axes, samples, q.loc.dtype)
    logistic = torch.special.logit(noise.uniform(f"{stream} switch", axes, samples)).to(q.loc.dtype)
    off = (q.off_logit + logistic > 0).to(q.loc.dtype)
    if q.temperature is not None:
        relaxed = ((q.off_logit + logistic) / q.temperature).sigmoid()
        off = off + (relaxed - relaxed.detach()) if q.hard else relaxed  # exactly 0 or 1: the bracket is exactly 0
    return off * spike + (1 - off) * slab


@draw.register
def _(q: Mixture, noise: Noise, stream: str, samples: int, given: bool = False) -> Tensor:
    """From a component at random."""
    sentences, dim = q.batch_shape[-2:]
    of = q.components.batch_shape[0]
    number_SB = (noise.uniform(f"{stream} component", (), samples) * of).long()
    drawn_SBKZ = draw(q.components.expand((sentences, of, dim)), noise, stream, samples)
    return drawn_SBKZ.gather(2, number_SB[:, :, None, None].expand(-1, -1, 1, dim))[:, :, 0]


TRIES = 6
"""Proposals for each gamma variable, of which the first accepted one is taken. Each is accepted with probability 0.95
or more, so that one or two variables in a hundred million reject all of them, and keep the first."""
PROPOSALS_AT_ONCE = 2**24


def _gamma(concentration: Tensor, noise: Noise, stream: str, samples: int, axes: tuple[int, ...]) -> Tensor:
    """Standard gamma variables with keyed noise and pathwise gradients, in float64; some samples at a time."""
    each = concentration.detach().expand(samples, len(noise.rows_B), *axes)
    at_once = max(1, PROPOSALS_AT_ONCE // max(1, each.shape[1:].numel() * TRIES))
    drawn = [_gamma_values(part, noise.after(at_once * i), stream) for i, part in enumerate(each.split(at_once))]
    return _Pathwise.apply(concentration.expand_as(each), torch.cat(drawn))


def _gamma_values(concentration: Tensor, noise: Noise, stream: str) -> Tensor:
    """Gamma variables with concentrations (samples, sentences, ...) [Marsaglia and Tsang 2000]."""
    samples, _, *axes = concentration.shape
    third = concentration + 1 - 1 / 3  # the method needs 1 at least; the power below takes the 1 away again
    normal = noise.normal(f"{stream} normal", (*axes, TRIES), samples, torch.float64)
    uniform = noise.uniform(f"{stream} uniform", (*axes, TRIES), samples)
    cube = (1 + normal / (9 * third).sqrt()[..., None]) ** 3
    fits = uniform.log() < 0.5 * normal**2 + third[..., None] * (1 - cube + cube.clamp(min=1e-300).log())
    first = (fits & (cube > 0)).to(torch.int8).argmax(-1, keepdim=True)  # 0 where none is accepted
    value = third * cube.gather(-1, first)[..., 0].clamp(min=1e-12)
    power = noise.uniform(f"{stream} power", tuple(axes), samples).log() / concentration
    return (value.log() + power).exp().clamp(min=1e-290)


class _Pathwise(torch.autograd.Function):
    """Samples of gamma variables as functions of their concentration."""

    @staticmethod
    def forward(ctx: Any, concentration: Tensor, drawn: Tensor) -> Tensor:
        ctx.save_for_backward(concentration, drawn)
        return drawn.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        concentration, drawn = ctx.saved_tensors
        return gradient * torch._standard_gamma_grad(concentration, drawn), None


@singledispatch
def centre(q: Distribution) -> Tensor:
    """The value that stands for q where no sample is wanted: its mean, for a gate the logit of its mean."""
    return q.mean


@centre.register
def _(q: GateLogit) -> Tensor:
    return q.alpha.log() - q.beta.log()


def moments(q: Distribution, noise: Noise, samples: int = 100) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of q: its own, or those of `samples` draws where only draws can be had."""
    if not isinstance(q, Implicit):
        return q.mean, q.stddev
    drawn = draw(q, noise, "moments", samples)
    return drawn.mean(0), drawn.std(0)
