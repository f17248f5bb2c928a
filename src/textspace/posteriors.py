"""Posteriors: features to q(z | x).

A posterior has an ordered set of named sites and gives the distribution of each, given the features and the samples
of the sites before it. `distributions` says of which type, so that a recipe whose parts cannot work together is
refused before any number is computed.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Normal

from textspace.config import DeltaPosterior as DeltaPosteriorConfig
from textspace.config import GaussianPosterior as GaussianPosteriorConfig
from textspace.config import ImplicitPosterior as ImplicitPosteriorConfig
from textspace.distributions import Delta, Implicit
from textspace.networks import perceptron

__all__ = ["POSTERIORS", "DeltaPosterior", "GaussianPosterior", "ImplicitPosterior", "Posterior"]


class GaussianPosterior(nn.Module):
    """Independent normals, mean and log-variance linear in the features; the latter may have a floor."""

    distributions: ClassVar[dict[str, type[Distribution]]] = {"z": Normal}
    has_log_prob = True

    def __init__(self, config: GaussianPosteriorConfig, features: int, dim: int) -> None:
        super().__init__()
        self.floor = config.log_variance_floor
        self.mean = nn.Linear(features, dim)
        self.log_variance = nn.Linear(features, dim)

    def forward(self, site: str, features_BH: Tensor, earlier: dict[str, Tensor]) -> Normal:
        log_variance_BZ = self.log_variance(features_BH)
        if self.floor is not None:
            log_variance_BZ = log_variance_BZ.clamp(min=self.floor)
        return Normal(self.mean(features_BH), (0.5 * log_variance_BZ).exp(), validate_args=False)


class DeltaPosterior(nn.Module):
    """A single point, linear in the features: a plain autoencoder's code."""

    distributions: ClassVar[dict[str, type[Distribution]]] = {"z": Delta}
    has_log_prob = False

    def __init__(self, config: DeltaPosteriorConfig, features: int, dim: int) -> None:
        super().__init__()
        self.mean = nn.Linear(features, dim)

    def forward(self, site: str, features_BH: Tensor, earlier: dict[str, Tensor]) -> Delta:
        return Delta(self.mean(features_BH))


class ImplicitPosterior(nn.Module):
    """A network of features and noise: samples of any shape, and no density [Fang et al. 2019]."""

    distributions: ClassVar[dict[str, type[Distribution]]] = {"z": Implicit}
    has_log_prob = False

    def __init__(self, config: ImplicitPosteriorConfig, features: int, dim: int) -> None:
        super().__init__()
        self.noise, self.dim = config.noise or dim, dim
        self.network = perceptron(features + self.noise, config.hidden, config.layers, dim)

    def forward(self, site: str, features_BH: Tensor, earlier: dict[str, Tensor]) -> Implicit:
        def push(noise_SBE: Tensor) -> Tensor:
            features_SBH = features_BH.expand(len(noise_SBE), -1, -1)
            return self.network(torch.cat([features_SBH, noise_SBE.to(features_BH.dtype)], dim=2))

        return Implicit(push, self.noise, torch.Size((len(features_BH), self.dim)))


Posterior = GaussianPosterior | DeltaPosterior | ImplicitPosterior
POSTERIORS: dict[str, Any] = {
    "gaussian": GaussianPosterior,
    "delta": DeltaPosterior,
    "implicit": ImplicitPosterior,
}
