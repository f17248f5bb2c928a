"""What importance samples are drawn from: the posterior, or a Gaussian that stands in for it."""

from __future__ import annotations

from collections.abc import Callable

from torch.distributions import Distribution, Normal

from textspace.distributions import GateLogit, SpikeAndSlab, moments
from textspace.model import Model
from textspace.noise import Noise

__all__ = ["Proposal", "proposal_name", "proposed"]

FITTED_DEVIATION_FLOOR = 0.1
"""Smallest deviation of a Gaussian fitted to the samples of a posterior that has no density."""

Proposal = Callable[[Distribution], Distribution]


def proposal_name(model: Model, scale: float) -> str | None:
    """A proposal in words; None for a language model."""
    if model.posterior is None:
        return None
    wider = "" if scale == 1 else f" with {scale:g} times its deviation"
    if model.posterior.has_log_prob:
        return f"posterior{wider}"
    return f"Gaussian fitted to posterior samples, deviation at least {FITTED_DEVIATION_FLOOR}{wider and ',' + wider}"


def proposed(q: Distribution, noise: Noise, scale: float) -> Distribution:
    """What proposals are drawn from: the posterior, or a Gaussian fitted to one without a density; made wider.

    Gates stay as they are; of what they choose between, spike and slab, both become wider.
    """
    if isinstance(q, GateLogit):
        return q
    if isinstance(q, SpikeAndSlab):
        return SpikeAndSlab(q.off_logit, q.loc, scale * q.scale, scale * q.spike)
    mean_BZ, deviation_BZ = moments(q, noise)
    if not isinstance(q, Normal):
        deviation_BZ = deviation_BZ.clamp(min=FITTED_DEVIATION_FLOOR)
    return Normal(mean_BZ, scale * deviation_BZ, validate_args=False)
