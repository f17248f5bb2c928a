"""Mathematics of codes, on arrays: what they tell, where they vary, how they lie.

Shape suffixes here: N sentences, or tokens where each has a code, Z dimensions, H features.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import psi
from torch.distributions import Normal

from textspace.evaluate.aggregated import log_normals
from textspace.evaluate.statistics import standard_error

__all__ = [
    "Information",
    "Mean",
    "covariance_of_means",
    "gaussian_kl",
    "gaussian_kl_by_chance",
    "mean_cosine",
    "mutual_information",
]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

DENSITIES_AT_ONCE = 2**23
"""Pairs of sentences whose densities are held in memory together."""

EIGENVALUE_FLOOR = 1e-6
"""Codes that leave a direction out altogether would lie infinitely far from the prior: its variance there counts as
this share of the prior's, which makes the distance smaller and so keeps it a lower bound."""


class Mean(NamedTuple):
    """A mean over sentences or pairs of them, and its standard error; None where there are too few."""

    value: float
    stderr: float | None

    @classmethod
    def of(cls, values_N: Floats, sentence_N: Integers | None = None) -> Mean:
        """Of values of a sentence each, or of those that `sentence_N` numbers.

        Values of one sentence depend on each other, so that the error is over the sentences' sums.
        """
        value = float(values_N.mean())
        if sentence_N is None:
            return cls(value, standard_error(values_N))
        sums_S: Floats = np.bincount(sentence_N, values_N - value).astype(np.float64)
        error = standard_error(sums_S)
        return cls(value, None if error is None else error * len(sums_S) / len(values_N))


class Information(NamedTuple):
    """log q(z|x) - log q(z) at each sentence's sample: their mean estimates the mutual information."""

    counted_N: Floats
    """q(z) is the mean over all sentences, the sample's own among them: at most ln N."""
    left_out_N: Floats
    """q(z) is the mean over the other sentences."""


def mutual_information(
    mean_NZ: Floats, deviation_NZ: Floats, sample_NZ: Floats, device: torch.device | None = None
) -> Information:
    """Mutual information between sentence and code for Gaussian posteriors, one sample of each, two or more sentences.

    With sentences drawn at random from a source, the first estimate lies below the mutual information of source and
    code in expectation, since mutual information is concave in the distribution of x; and the second above it, since
    the mean over others is unbiased for q(z) and the logarithm is concave [Poole et al. 2019]. All pairs of sentences
    are compared, on the device that is named.
    """
    mean, deviation, sample = (torch.from_numpy(x).to(device) for x in (mean_NZ, deviation_NZ, sample_NZ))
    count = len(mean)
    own_N = Normal(mean, deviation, validate_args=False).log_prob(sample).sum(1)
    others_N = torch.empty_like(own_N)
    size = max(1, DENSITIES_AT_ONCE // count)
    for start in range(0, count, size):
        log_q = log_normals(sample[start : start + size], mean, deviation)
        log_q.diagonal(start).fill_(-torch.inf)
        others_N[start : start + size] = log_q.logsumexp(1)
    counted_N = own_N - torch.logaddexp(own_N, others_N) + math.log(count)
    left_out_N = own_N - others_N + math.log(count - 1)
    return Information(counted_N.cpu().numpy(), left_out_N.cpu().numpy())


def covariance_of_means(first_NZ: Floats, second_NZ: Floats) -> Floats:
    """Covariance over sentences of E[z|x], (Z, Z), from two independent estimates of it or twice the exact one.

    The variance of one estimate has the estimate's own error in it, which would make dimensions look active that are
    not; the covariance of two has not.
    """
    centred_NZ = first_NZ - first_NZ.mean(0)
    covariance_ZZ = centred_NZ.T @ (second_NZ - second_NZ.mean(0)) / (len(first_NZ) - 1)
    return (covariance_ZZ + covariance_ZZ.T) / 2


def mean_cosine(features_NH: Floats, sentence_N: Integers | None = None) -> Mean:
    """Mean cosine over all pairs of different rows, from the sum of their directions; a row of zeros has none.

    `sentence_N` says which rows are of one sentence, where it has several: see `Mean.of`.
    """
    count = len(features_NH)
    lengths_N1 = np.linalg.norm(features_NH, axis=1, keepdims=True)
    directions_NH = features_NH / np.where(lengths_N1 > 0, lengths_N1, 1)
    to_others_N = directions_NH @ directions_NH.sum(0) - (directions_NH**2).sum(1)
    each = Mean.of(to_others_N / (count - 1), sentence_N)
    return Mean(each.value, each.stderr and 2 * each.stderr)  # every pair counts for both of its rows


def gaussian_kl(mean_Z: Floats, covariance_ZZ: Floats, prior_mean_Z: Floats, prior_variance_Z: Floats) -> float:
    """KL from the Gaussian with these moments to a prior of independent normals.

    That of any distribution with these moments is no smaller, since of all of them a Gaussian has the most entropy.
    """
    deviation_Z = np.sqrt(prior_variance_Z)
    shift_Z = (mean_Z - prior_mean_Z) / deviation_Z
    relative_ZZ = covariance_ZZ / np.outer(deviation_Z, deviation_Z)
    log_determinant = np.log(np.linalg.eigvalsh(relative_ZZ).clip(min=EIGENVALUE_FLOOR)).sum()
    return float(0.5 * (np.trace(relative_ZZ) + shift_Z @ shift_Z - len(mean_Z) - log_determinant))


def gaussian_kl_by_chance(covariance_ZZ: Floats, between_ZZ: Floats, count: int) -> float | None:
    """What `gaussian_kl` of so many codes has on average though those of all sentences fill the prior exactly.

    Of N points drawn from a normal prior the covariance is Wishart's, so that the logarithm of its determinant is less
    than 0 by a sum of digammas: about Z (Z + 3) / 4N nats are seen where there are none. Posteriors that are wide
    scatter less than points; by how much less is taken to the second order. None of fewer than three codes for each
    dimension, where that is no longer good enough.

    Args:
        covariance_ZZ: of all codes together.
        between_ZZ: the part of it that is the codes' means'.
        count: N.
    """
    dims = len(covariance_ZZ)
    if count < 3 * dims:
        return None
    digammas = psi((count - np.arange(1, dims + 1)) / 2).sum()
    of_points = -0.5 * (digammas + dims * math.log(2 / count))
    share_ZZ = np.linalg.pinv(covariance_ZZ, hermitian=True) @ between_ZZ
    width = np.trace(share_ZZ)
    scatter = (width**2 + (share_ZZ * share_ZZ.T).sum() + 2 * width) / (dims * (dims + 3))
    return float(of_points * min(max(scatter, 0.0), 1.0))
