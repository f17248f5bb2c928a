"""Divergences between samples: maximum mean discrepancy, and the dual form of the KL."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from textspace.config import DualFunction as DualFunctionConfig
from textspace.config import DualKlObjective
from textspace.networks import perceptron

__all__ = ["DualFunction", "DualPair", "build_dual", "dual_kl", "dual_kls", "mmd"]


def mmd(
    x_NZ: Tensor,
    y_MZ: Tensor,
    scales: tuple[float, ...],
    kernel: Literal["inverse-multiquadratic", "gaussian"] = "inverse-multiquadratic",
    variance: Tensor | float = 1.0,
) -> Tensor:
    """Squared maximum mean discrepancy, the unbiased estimate: E k(x, x') + E k(y, y') - 2 E k(x, y).

    Equal samples are left out of the first two means, so the estimate may be below 0; it takes two samples on either
    side, and is 0 where there are fewer. With c = scale x 2 Z variance
    (the squared distance expected of two draws from N(0, variance I), times each scale) the kernels summed are
    c / (c + |x - y|^2), or exp(-|x - y|^2 / c).
    """
    n, m = len(x_NZ), len(y_MZ)
    if min(n, m) < 2:
        return 0.0 * x_NZ.sum()
    base = 2.0 * x_NZ.shape[1] * variance

    def means(a_NZ: Tensor, b_MZ: Tensor, pairs: int) -> Tensor:
        squares_NM = (
            (a_NZ**2).sum(1)[:, None] + (b_MZ**2).sum(1)[None] - 2 * a_NZ @ b_MZ.T
        ).clamp(min=0)  # fmt: skip
        total = torch.zeros((), device=a_NZ.device)
        for scale in scales:
            width = scale * base
            values_NM = width / (width + squares_NM) if kernel != "gaussian" else (-squares_NM / width).exp()
            kept = values_NM.sum() if a_NZ is not b_MZ else values_NM.sum() - values_NM.diagonal().sum()
            total = total + kept / pairs
        return total

    return means(x_NZ, x_NZ, n * (n - 1)) + means(y_MZ, y_MZ, m * (m - 1)) - 2 * means(x_NZ, y_MZ, n * m)


class DualFunction(nn.Module):
    """v(x, z), a log-ratio of densities: of either sign. Without features it is v(z)."""

    def __init__(self, config: DualFunctionConfig, features: int, dim: int) -> None:
        super().__init__()
        self.network = perceptron(features + dim, config.hidden, config.layers, 1)
        self.takes_features = features > 0

    def forward(self, features_BH: Tensor, z_SBZ: Tensor) -> Tensor:
        """(S, B). Features are taken as they are: only the samples tell the encoder how to change."""
        inputs = [z_SBZ]
        if self.takes_features:
            inputs = [features_BH.detach().expand(len(z_SBZ), -1, -1), z_SBZ]
        return self.network(torch.cat(inputs, dim=2)).squeeze(2)


class DualPair(nn.Module):
    """Two log-ratios: that of q(z | x) and the prior, and that of the codes of all sentences and the prior."""

    def __init__(self, config: DualFunctionConfig, features: int, dim: int) -> None:
        super().__init__()
        self.posterior = DualFunction(config, features, dim)
        self.aggregated = DualFunction(config, 0, dim)


def build_dual(config: DualKlObjective, features: int, dim: int) -> DualFunction | DualPair:
    """The dual functions that an objective trains."""
    if config.networks == "both":
        return DualPair(config.dual, features, dim)
    return DualFunction(config.dual, features if config.of == "posterior" else 0, dim)


def dual_kls(dual: DualFunction | DualPair, features_BH: Tensor, z_SBZ: Tensor, prior_SBZ: Tensor) -> dict[str, Tensor]:
    """The dual forms of each sentence (B) by name: of one function it is `dual_kl`, whatever the function sees; of two
    `dual_kl` is KL(q(z | x) || p(z)), and `dual_marginal_kl` is KL(q(z) || p(z))."""
    if isinstance(dual, DualFunction):
        return {"dual_kl": dual_kl(dual, features_BH, z_SBZ, prior_SBZ)}
    return {
        "dual_kl": dual_kl(dual.posterior, features_BH, z_SBZ, prior_SBZ),
        "dual_marginal_kl": dual_kl(dual.aggregated, features_BH, z_SBZ, prior_SBZ),
    }


def dual_kl(v: DualFunction, features_BH: Tensor, z_SBZ: Tensor, prior_SBZ: Tensor) -> Tensor:
    """E_q[v] - E_p[exp v] + 1 of each sentence (B): at most the KL whatever v is, and the KL at the best v."""
    return v(features_BH, z_SBZ).mean(0) - v(features_BH, prior_SBZ).exp().mean(0) + 1
