"""Posteriors: features to q(z | x).

A posterior has an ordered set of named sites and gives the distribution of each, given the features and the samples
of the sites before it. `distributions` says of which type, so that a recipe whose parts cannot work together is
refused before any number is computed.
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn
from torch.distributions import Distribution, Normal

from textspace.config import DeltaPosterior as DeltaPosteriorConfig
from textspace.config import GaussianPosterior as GaussianPosteriorConfig
from textspace.distributions import Delta

__all__ = ["POSTERIORS", "DeltaPosterior", "GaussianPosterior"]


class GaussianPosterior(nn.Module):
    """Independent normals, mean and log-variance linear in the features."""

    distributions: ClassVar[dict[str, type[Distribution]]] = {"z": Normal}
    has_log_prob = True

    def __init__(self, config: GaussianPosteriorConfig, features: int, dim: int) -> None:
        super().__init__()
        self.mean = nn.Linear(features, dim)
        self.log_variance = nn.Linear(features, dim)

    def forward(self, site: str, features_BH: Tensor, earlier: dict[str, Tensor]) -> Normal:
        return Normal(self.mean(features_BH), (0.5 * self.log_variance(features_BH)).exp(), validate_args=False)


class DeltaPosterior(nn.Module):
    """A single point, linear in the features: a plain autoencoder's code."""

    distributions: ClassVar[dict[str, type[Distribution]]] = {"z": Delta}
    has_log_prob = False

    def __init__(self, config: DeltaPosteriorConfig, features: int, dim: int) -> None:
        super().__init__()
        self.mean = nn.Linear(features, dim)

    def forward(self, site: str, features_BH: Tensor, earlier: dict[str, Tensor]) -> Delta:
        return Delta(self.mean(features_BH))


POSTERIORS = {"gaussian": GaussianPosterior, "delta": DeltaPosterior}
