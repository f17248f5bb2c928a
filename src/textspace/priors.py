"""Priors: p(z), site by site, given the samples of the sites before; and the distribution of codes by themselves."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Normal

from textspace.config import BetaGatedPrior as BetaGatedPriorConfig
from textspace.config import Latent
from textspace.config import PseudoInputPrior as PseudoInputPriorConfig
from textspace.config import ScaledNormalPrior as ScaledNormalPriorConfig
from textspace.config import SpikeAndSlabPrior as SpikeAndSlabPriorConfig
from textspace.config import StandardNormalPrior as StandardNormalPriorConfig
from textspace.distributions import GateLogit, Mixture, SpikeAndSlab
from textspace.posteriors import Posterior
from textspace.start_values import declared

__all__ = [
    "PRIORS",
    "BetaGatedPrior",
    "Prior",
    "PseudoInputPrior",
    "ScaledNormalPrior",
    "SpikeAndSlabPrior",
    "StandardNormalPrior",
]


class _OfCodes(nn.Module):
    """Zeros and ones of the shape of a code, on the device of the model."""

    zero_Z: Tensor
    one_Z: Tensor

    def __init__(self, latent: Latent) -> None:
        super().__init__()
        self.spike = latent.spike
        self.register_buffer("zero_Z", torch.zeros(latent.dim), persistent=False)
        self.register_buffer("one_Z", torch.ones(latent.dim), persistent=False)

    def spike_and_slab(self, off_logit: Tensor) -> SpikeAndSlab:
        """Standard normal where a dimension is on."""
        return SpikeAndSlab(off_logit, self.zero_Z, self.one_Z, self.spike)


class StandardNormalPrior(_OfCodes):
    """N(0, I)."""

    distributions: ClassVar[dict[str, type[Distribution]]] = {"z": Normal}

    def __init__(self, config: StandardNormalPriorConfig, latent: Latent, posterior: Posterior) -> None:
        super().__init__(latent)

    def forward(self, site: str, earlier: dict[str, Tensor]) -> Normal:
        return self.codes()

    def codes(self) -> Normal:
        return Normal(self.zero_Z, self.one_Z, validate_args=False)


class ScaledNormalPrior(_OfCodes):
    """N(0, scale^2 I), the scale fixed or learned."""

    distributions: ClassVar[dict[str, type[Distribution]]] = {"z": Normal}

    def __init__(self, config: ScaledNormalPriorConfig, latent: Latent, posterior: Posterior) -> None:
        super().__init__(latent)
        log_scale = torch.tensor(math.log(config.scale))
        self.log_scale = declared("log scale", nn.Parameter(log_scale), "kept") if config.learned else None
        self.scale = config.scale

    def forward(self, site: str, earlier: dict[str, Tensor]) -> Normal:
        return self.codes()

    def codes(self) -> Normal:
        scale = self.scale if self.log_scale is None else self.log_scale.exp()
        return Normal(self.zero_Z, scale * self.one_Z, validate_args=False)


class SpikeAndSlabPrior(_OfCodes):
    """Every dimension off with one probability."""

    distributions: ClassVar[dict[str, type[Distribution]]] = {"z": SpikeAndSlab}

    def __init__(self, config: SpikeAndSlabPriorConfig, latent: Latent, posterior: Posterior) -> None:
        super().__init__(latent)
        self.off_logit = math.log(config.off) - math.log1p(-config.off)

    def forward(self, site: str, earlier: dict[str, Tensor]) -> SpikeAndSlab:
        return self.codes()

    def codes(self) -> SpikeAndSlab:
        return self.spike_and_slab(self.off_logit * self.one_Z)


class BetaGatedPrior(_OfCodes):
    """Beta gates, and spike-and-slab codes given them."""

    distributions: ClassVar[dict[str, type[Distribution]]] = {"gate": GateLogit, "z": SpikeAndSlab}

    def __init__(self, config: BetaGatedPriorConfig, latent: Latent, posterior: Posterior) -> None:
        super().__init__(latent)
        self.alpha, self.beta = config.alpha, config.beta

    def forward(self, site: str, earlier: dict[str, Tensor]) -> GateLogit | SpikeAndSlab:
        if site == "gate":
            return GateLogit(self.alpha * self.one_Z, self.beta * self.one_Z)
        return self.spike_and_slab(earlier["gate"])

    def codes(self) -> SpikeAndSlab:
        """The gates integrated out: the density is linear in gamma, so only its mean counts."""
        return self.spike_and_slab(math.log(self.alpha / self.beta) * self.one_Z)


class PseudoInputPrior(nn.Module):
    """The mean of the posteriors at some learned features [after Tomczak and Welling 2018, who learn inputs]."""

    distributions: ClassVar[dict[str, type[Distribution]]] = {"z": Mixture}

    def __init__(self, config: PseudoInputPriorConfig, latent: Latent, posterior: Posterior) -> None:
        super().__init__()
        features_KH = nn.Parameter(torch.empty(config.count, posterior.features))
        self.features_KH = declared("features", features_KH, "normal")
        nn.init.normal_(self.features_KH)
        self._posterior = (posterior,)  # in a tuple, so that its weights are not counted as ours

    def forward(self, site: str, earlier: dict[str, Tensor]) -> Mixture:
        return self.codes()

    def codes(self) -> Mixture:
        return Mixture(self._posterior[0]("z", self.features_KH, {}))


Prior = StandardNormalPrior | ScaledNormalPrior | SpikeAndSlabPrior | BetaGatedPrior | PseudoInputPrior
PRIORS: dict[str, Any] = {
    "standard-normal": StandardNormalPrior,
    "scaled-normal": ScaledNormalPrior,
    "spike-and-slab": SpikeAndSlabPrior,
    "beta-gated": BetaGatedPrior,
    "pseudo-inputs": PseudoInputPrior,
}
