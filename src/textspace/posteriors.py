"""Posteriors: features to q(z | x).

A posterior has an ordered set of named sites and gives the distribution of each, given the features and the samples
of the sites before it. `distributions` says of which type, so that a recipe whose parts cannot work together is
refused before any number is computed.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Normal
from torch.nn import functional as F

from textspace.config import DeltaPosterior as DeltaPosteriorConfig
from textspace.config import GaussianPosterior as GaussianPosteriorConfig
from textspace.config import ImplicitPosterior as ImplicitPosteriorConfig
from textspace.config import Latent
from textspace.config import SpikeAndSlabPosterior as SpikeAndSlabPosteriorConfig
from textspace.distributions import Delta, GateLogit, Implicit, SpikeAndSlab
from textspace.networks import perceptron
from textspace.start_values import declared

__all__ = [
    "POSTERIORS",
    "DeltaPosterior",
    "GaussianPosterior",
    "ImplicitPosterior",
    "Posterior",
    "SpikeAndSlabPosterior",
]


class GaussianPosterior(nn.Module):
    """Independent normals: the mean and what gives the standard deviation are linear in the features.

    Both are computed in 32 bits: rounded to 16, means of narrow posteriors would be off by more than the deviation.

    Args:
        config: how the second head gives the deviation, and its floor.
        features: units of the features.
        latent: size of a code.
        noise: standard deviation of the noise that the head's deviation multiplies; `q` is the distribution of the
            codes, so its deviation is the head's times `noise`.
    """

    distributions: ClassVar[dict[str, type[Distribution]]] = {"z": Normal}
    has_log_prob = True

    def __init__(self, config: GaussianPosteriorConfig, features: int, latent: Latent, noise: float = 1.0) -> None:
        super().__init__()
        self.features, self.noise = features, noise
        self.floor, self.kind = config.log_variance_floor, config.deviation
        self.mean = declared("mean", nn.Linear(features, latent.dim))
        self.log_variance = declared("log variance", nn.Linear(features, latent.dim))

    def forward(self, site: str, features_BH: Tensor, earlier: dict[str, Tensor]) -> Normal:
        features_BH = features_BH.to(self.mean.weight.dtype)
        with torch.autocast(features_BH.device.type, enabled=False):
            return Normal(self.mean(features_BH), self.noise * self._deviation(features_BH), validate_args=False)

    def _deviation(self, features_BH: Tensor) -> Tensor:
        """What the second head gives; its module is called `log_variance` by spaces of either kind."""
        raw_BZ = self.log_variance(features_BH)
        if self.kind == "softplus":
            deviation_BZ = _softplus(raw_BZ)
            return deviation_BZ if self.floor is None else deviation_BZ.clamp(min=math.exp(0.5 * self.floor))
        if self.floor is not None:
            raw_BZ = raw_BZ.clamp(min=self.floor)
        return (0.5 * raw_BZ).exp()


class DeltaPosterior(nn.Module):
    """A single point, linear in the features: a plain autoencoder's code."""

    distributions: ClassVar[dict[str, type[Distribution]]] = {"z": Delta}
    has_log_prob = False

    def __init__(self, config: DeltaPosteriorConfig, features: int, latent: Latent) -> None:
        super().__init__()
        self.features = features
        self.mean = declared("mean", nn.Linear(features, latent.dim))

    def forward(self, site: str, features_BH: Tensor, earlier: dict[str, Tensor]) -> Delta:
        return Delta(self.mean(features_BH))


class ImplicitPosterior(nn.Module):
    """A network of features and noise: samples of any shape, and no density [Fang et al. 2019]."""

    distributions: ClassVar[dict[str, type[Distribution]]] = {"z": Implicit}
    has_log_prob = False

    def __init__(self, config: ImplicitPosteriorConfig, features: int, latent: Latent) -> None:
        super().__init__()
        self.features = features
        self.noise, self.dim = config.noise or latent.dim, latent.dim
        network = perceptron(features + self.noise, config.hidden, config.layers, latent.dim)
        self.network = declared("network", network)

    def forward(self, site: str, features_BH: Tensor, earlier: dict[str, Tensor]) -> Implicit:
        def push(noise_SBE: Tensor) -> Tensor:
            features_SBH = features_BH.expand(len(noise_SBE), -1, -1)
            return self.network(torch.cat([features_SBH, noise_SBE.to(features_BH.dtype)], dim=2))

        return Implicit(push, self.noise, torch.Size((len(features_BH), self.dim)))


class SpikeAndSlabPosterior(nn.Module):
    """Gates that switch dimensions off, and a slab for those that are on.

    With Beta gates gamma is a latent before z, and q(z | gamma, x) has gamma for weights and a slab that depends on the
    features and (unless told otherwise) on gamma. Without, gamma is a function of the features.

    The published code of HSVAE adds 1e-5 to the parameters of the gates' Beta distributions, so that none is 0. Here
    their bounds do that: `concentration`, as the code's own notes advise.
    """

    has_log_prob = True

    def __init__(self, config: SpikeAndSlabPosteriorConfig, features: int, latent: Latent) -> None:
        super().__init__()
        self.config, self.features, self.spike = config, features, latent.spike
        beta = config.gates == "beta"
        self.distributions: dict[str, type[Distribution]] = ({"gate": GateLogit} if beta else {}) | {"z": SpikeAndSlab}
        gates = perceptron(features, config.hidden, config.layers, latent.dim * (2 if beta else 1))
        self.gates = declared("gates", gates)
        self.sees_gates = beta and config.slab_sees_gates
        seen = features + (latent.dim if self.sees_gates else 0)
        self.slab = declared("slab", perceptron(seen, config.hidden, config.layers, 2 * latent.dim))

    def forward(self, site: str, features_BH: Tensor, earlier: dict[str, Tensor]) -> GateLogit | SpikeAndSlab:
        if site == "gate":
            both = _whole(self.gates(features_BH)).chunk(2, dim=-1)
            return GateLogit(*(_bounded(F.softplus(part), *self.config.concentration) for part in both))
        off_logit = earlier["gate"] if "gate" in self.distributions else _whole(self.gates(features_BH))
        inputs = features_BH
        if self.sees_gates:
            off = off_logit.sigmoid()
            inputs = torch.cat([features_BH.expand(*off.shape[:-1], -1), off], dim=-1)
        loc, raw = _whole(self.slab(inputs)).chunk(2, dim=-1)
        if self.config.deviation == "softplus":
            scale = _softplus(raw)
        else:
            scale = (0.5 * _bounded(raw, *SLAB_LOG_VARIANCE)).exp()
        temperature = self.config.temperature if self.training else None
        return SpikeAndSlab(off_logit, loc, scale, self.spike, temperature, self.config.hard)


SLAB_LOG_VARIANCE = (-20.0, 20.0)
"""Bounds far outside of what training wants (deviations of 5e-5 and 2e4), within which no density overflows."""


def _softplus(raw: Tensor) -> Tensor:
    """A standard deviation within the same bounds: softplus itself rounds to 0 far below."""
    low, high = (math.exp(0.5 * bound) for bound in SLAB_LOG_VARIANCE)
    return _bounded(F.softplus(raw), low, high)


def _bounded(x: Tensor, low: float, high: float) -> Tensor:
    """Within bounds, with the gradient of what is not: whatever lies outside can come back."""
    return x.detach().clamp(low, high) + (x - x.detach())  # the bracket is exactly 0


def _whole(x: Tensor) -> Tensor:
    """In float32 at least: half as many digits are too few for densities of gates."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


Posterior = GaussianPosterior | DeltaPosterior | ImplicitPosterior | SpikeAndSlabPosterior
POSTERIORS: dict[str, Any] = {
    "gaussian": GaussianPosterior,
    "delta": DeltaPosterior,
    "implicit": ImplicitPosterior,
    "spike-and-slab": SpikeAndSlabPosterior,
}
