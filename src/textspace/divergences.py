"""Divergences between samples: maximum mean discrepancy, and the dual form of the KL."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from textspace.config import DualFunction as DualFunctionConfig
from textspace.config import DualKlObjective
from textspace.networks import perceptron
from textspace.start_values import declared

__all__ = ["DualFunction", "DualPair", "build_dual", "dual_kl", "dual_kls", "mmd", "mmd_per_dimension"]

Kernel = Literal["inverse-multiquadratic", "gaussian"]
PAIRS_AT_ONCE = 2**22
"""Differences between numbers of two samples that are held at once."""


def mmd(
    x_NZ: Tensor,
    y_MZ: Tensor,
    scales: tuple[float, ...],
    kernel: Kernel = "inverse-multiquadratic",
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


def mmd_per_dimension(
    x_NZ: Tensor, y_MZ: Tensor, scales: tuple[float, ...], kernel: Kernel = "inverse-multiquadratic"
) -> Tensor:
    """Sum over dimensions of the squared maximum mean discrepancy in each, the unbiased estimate [Mathieu et al. 2019].

    As `mmd`, on single numbers a and b, with c = 2 scale: kernels c / (c + (a - b)^2), or exp(-(a - b)^2 / c). For
    every dimension and scale it is the mean over ordered pairs of two different x, plus that of two y, less twice the
    mean over all pairs of an x and a y. Its expectation does not depend on the sizes of the samples.
    """
    n, m = len(x_NZ), len(y_MZ)
    if min(n, m) < 2:
        return 0.0 * x_NZ.sum()
    widths = tuple(2.0 * scale for scale in scales)

    def within(a_NZ: Tensor) -> Tensor:
        count, equal = len(a_NZ), len(widths) * len(a_NZ)  # a number and itself have kernels of 1
        return (_KernelSums.apply(a_NZ, a_NZ, widths, kernel) - equal) / (count * (count - 1))

    between_Z = _KernelSums.apply(x_NZ, y_MZ, widths, kernel) / (n * m)
    return (within(x_NZ) + within(y_MZ) - 2 * between_Z).sum()


class _KernelSums(torch.autograd.Function):
    """Sums of kernels over widths and all pairs of an x and a y, (Z), one for each dimension.

    Gradients are computed with the values, some dimensions at a time, so that no table of pairs is kept for backward.
    """

    @staticmethod
    def forward(ctx: Any, x_NZ: Tensor, y_MZ: Tensor, widths: tuple[float, ...], kernel: Kernel) -> Tensor:
        wanted = any(ctx.needs_input_grad[:2])
        at_once = max(1, PAIRS_AT_ONCE // (len(x_NZ) * len(y_MZ)))
        chunks = zip(x_NZ.T.split(at_once), y_MZ.T.split(at_once), strict=True)
        found = [_kernel_sums(x_CN, y_CM, widths, kernel, wanted) for x_CN, y_CM in chunks]
        sums, slopes_x, slopes_y = (torch.cat(parts) for parts in zip(*found, strict=True))
        ctx.save_for_backward(slopes_x.T, slopes_y.T)
        return sums

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_Z: Tensor) -> tuple[Tensor, Tensor, None, None]:
        slopes_NZ, slopes_MZ = ctx.saved_tensors
        return gradient_Z * slopes_NZ, gradient_Z * slopes_MZ, None, None


def _kernel_sums(
    x_CN: Tensor, y_CM: Tensor, widths: tuple[float, ...], kernel: Kernel, with_slopes: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The sums of some dimensions, (C), and their derivatives by x, (C, N), and y, (C, M), or empty ones."""
    apart_CNM = x_CN[:, :, None] - y_CM[:, None]
    squares_CNM = apart_CNM.square()
    values_CNM, slopes_CNM = torch.zeros_like(apart_CNM), torch.zeros_like(apart_CNM)
    for width in widths:
        if kernel == "gaussian":
            value_CNM = (-squares_CNM / width).exp()
            steepness_CNM = value_CNM
        else:
            value_CNM = width / (width + squares_CNM)
            steepness_CNM = value_CNM.square()
        values_CNM += value_CNM
        if with_slopes:
            slopes_CNM.addcmul_(steepness_CNM, apart_CNM, value=-2 / width)
    sums_C = values_CNM.sum((1, 2))
    if not with_slopes:
        return sums_C, x_CN[:, :0], y_CM[:, :0]
    return sums_C, slopes_CNM.sum(2), -slopes_CNM.sum(1)


class DualFunction(nn.Module):
    """v(x, z), a log-ratio of densities: of either sign. Without features it is v(z)."""

    def __init__(self, config: DualFunctionConfig, features: int, dim: int) -> None:
        super().__init__()
        self.network = declared("network", perceptron(features + dim, config.hidden, config.layers, 1))
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
        self.posterior = declared("of posteriors", DualFunction(config, features, dim))
        self.aggregated = declared("of all codes", DualFunction(config, 0, dim))


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
