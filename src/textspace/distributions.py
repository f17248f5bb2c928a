"""The distributions torch lacks, which pairs have a closed KL, and how keyed noise becomes a sample."""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch

import torch
from torch import Tensor
from torch.distributions import Distribution, Normal, constraints
from torch.distributions.kl import _dispatch_kl

from textspace.noise import Noise

__all__ = ["Delta", "Implicit", "closed_kl", "draw", "moments"]


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


def closed_kl(q: type[Distribution], p: type[Distribution]) -> bool:
    """Whether KL(q || p) has a closed form: ours or torch's, in torch's one table of them.

    >>> closed_kl(Normal, Normal), closed_kl(Delta, Normal)
    (True, False)
    """
    return _dispatch_kl(q, p) is not NotImplemented


@singledispatch
def draw(q: Distribution, noise: Noise, stream: str, samples: int) -> Tensor:
    """Reparameterised samples (samples, *q.batch_shape) of q, whose first axis is the batch, from keyed noise.

    Like `q.rsample((samples,))`, but each sentence's noise is its own. A new distribution registers its rule here.
    """
    raise TypeError(f"no rule to draw from {type(q).__name__} with keyed noise; register one with draw.register")


@draw.register
def _(q: Normal, noise: Noise, stream: str, samples: int) -> Tensor:
    return q.loc + q.scale * noise.normal(stream, tuple(q.batch_shape[1:]), samples, q.loc.dtype)


@draw.register
def _(q: Delta, noise: Noise, stream: str, samples: int) -> Tensor:
    return q.rsample((samples,))


@draw.register
def _(q: Implicit, noise: Noise, stream: str, samples: int) -> Tensor:
    return q.push(noise.normal(stream, (q.noise,), samples))


def moments(q: Distribution, noise: Noise, samples: int = 100) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of q: its own, or those of `samples` draws where only draws can be had."""
    if not isinstance(q, Implicit):
        return q.mean, q.stddev
    drawn = draw(q, noise, "moments", samples)
    return drawn.mean(0), drawn.std(0)
