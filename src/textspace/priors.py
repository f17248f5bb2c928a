"""Priors: p(z), site by site, given the samples of the sites before."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Normal

from textspace.config import StandardNormalPrior as StandardNormalPriorConfig

__all__ = ["PRIORS", "StandardNormalPrior"]


class StandardNormalPrior(nn.Module):
    """N(0, I)."""

    distributions: ClassVar[dict[str, type[Distribution]]] = {"z": Normal}
    zero_Z: Tensor
    one_Z: Tensor

    def __init__(self, config: StandardNormalPriorConfig, dim: int) -> None:
        super().__init__()
        self.register_buffer("zero_Z", torch.zeros(dim), persistent=False)
        self.register_buffer("one_Z", torch.ones(dim), persistent=False)

    def forward(self, site: str, earlier: dict[str, Tensor]) -> Normal:
        return Normal(self.zero_Z, self.one_Z, validate_args=False)


PRIORS = {"standard-normal": StandardNormalPrior}
