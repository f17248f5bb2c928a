"""What the codes of a set of sentences look like: how much they tell, how many dimensions they use, how they lie."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import Normal

from textspace.data.batching import batches_by_length, make_batch
from textspace.distributions import Delta, Implicit, Mixture, SpikeAndSlab, draw, moments
from textspace.evaluate.code_statistics import (
    Mean,
    covariance_of_means,
    gaussian_kl,
    gaussian_kl_by_chance,
    mean_cosine,
    mutual_information,
)
from textspace.evaluate.hoyer import AVERAGE_HOYER, average_hoyer, hoyer_error
from textspace.evaluate.statistics import some_rows
from textspace.model import Model
from textspace.networks import evaluating
from textspace.noise import Noise
from textspace.progress import track
from textspace.types import Batch, Bound, Estimate, Settings, Site

if TYPE_CHECKING:
    from textspace.data.encoded import EncodedSplit

__all__ = [
    "ACTIVE_ABOVE",
    "PosteriorStatistics",
    "encode_batch",
    "posterior_statistics",
]

ACTIVE_ABOVE = 0.01
"""A dimension is active when E[z|x] varies over sentences by more than this share of the prior's variance."""

DRAWS = 100
"""Samples of each sentence's posterior where its mean is not known, half of them for each of two means."""

GATE_DRAWS = 20
"""Samples of each sentence's gates, likewise; the mean and variance of a code given its gates are known."""

DEVIATION_FLOOR = 1e-6
"""Smallest deviation of a Gaussian fitted to samples, which may all be equal."""

SENTENCES, TOKENS = 10_000, 4_000
"""Sentences, or tokens where each has a code, that are measured unless asked otherwise."""

LONGEST = 2**20
"""More tokens than any sentence has: keys the noise of each."""

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


# What is reported


@dataclass(frozen=True)
class PosteriorStatistics:
    """The posterior over a set of sentences, dimension by dimension and summed up; nats throughout.

    Where every token has a code, tokens stand for sentences in all of this (the start and end tokens too), and
    `settings["unit"]` says so. Errors are over sentences even there, whose tokens depend on each other.

    Attributes:
        mean_variance_Z: variance over sentences of E[z|x]; slightly below 0 is possible where that is estimated.
        prior_variance_Z: variance of the prior.
        deviation_Z: mean over sentences of the posterior's standard deviation.
        kl_Z: mean over sentences of KL(q(z|x) || p(z)); None for a posterior without density, and under a prior whose
            dimensions depend on each other.
        mi, mi_leave_one_out: see `mutual_information`; None for a posterior without any spread.
        feature_cosine: see `mean_cosine`, of the features that the posterior is computed from.
        hoyer_samples: see `average_hoyer`, of one sample of each sentence's code, whose gates are on or off.
        hoyer_means: the same of E[z|x] with gates at their centre: of a mean over draws the error would be scaled
            along. Either is None for codes of one dimension, and where too few sentences have one other than zero,
            as of a collapse's means. The error is that of `hoyer_error`.
        marginal_kl: see `gaussian_kl`, of all codes together, less what there is by chance in so many; None where the
            prior is not normal, and of fewer than three codes for each dimension.
        sentences: how many all of this rests on; how many tokens stands in `settings["tokens"]`.
        settings: how it was measured.
    """

    mean_variance_Z: Floats
    prior_variance_Z: Floats
    deviation_Z: Floats
    kl_Z: Floats | None
    mi: Mean | None
    mi_leave_one_out: Mean | None
    feature_cosine: Mean
    hoyer_samples: Mean | None
    hoyer_means: Mean | None
    marginal_kl: float | None
    sentences: int
    settings: Settings

    @property
    def active_units(self) -> int:
        """How many dimensions change with the sentence, or the token."""
        return int((self.mean_variance_Z > ACTIVE_ABOVE * self.prior_variance_Z).sum())

    @property
    def unit(self) -> str:
        """What has a code: sentence or token."""
        return str(self.settings.get("unit", "sentence"))

    @property
    def codes(self) -> int:
        """How many there are, of sentences or tokens."""
        return int(self.settings.get("tokens") or self.sentences)

    def estimates(self) -> dict[str, Estimate]:
        """Every number of the set. None has a better direction: a collapse is one extreme, a full copy the other."""
        found: dict[str, Estimate] = {}
        if self.mi is not None and self.mi_leave_one_out is not None:
            most = f"at most ln {self.codes} = {math.log(self.codes):.2f}"
            found["mi"] = self._information(f"counted, {most}", self.mi, "lower")
            found["mi_leave_one_out"] = self._information("left out", self.mi_leave_one_out, "upper")
        name = (
            f"active units: dimensions of {len(self.mean_variance_Z)} whose E[z|x] varies over {self.unit}s by more "
            f"than {ACTIVE_ABOVE} of the prior's variance"
        )
        found["active_units"] = self._estimate(name, self.active_units)
        if self.unit == "token" and self.kl_Z is not None:  # a sentence's is among its likelihoods
            found["token_kl"] = self._estimate("KL(q || p) of a token's z", float(self.kl_Z.sum()))
        found["feature_cosine"] = self._estimate(f"mean cosine of two {self.unit}s' features", self.feature_cosine)
        if self.hoyer_samples is not None:
            name = f"{AVERAGE_HOYER} of one posterior sample a {self.unit}"
            found["hoyer_samples"] = self._estimate(name, self.hoyer_samples)
        if self.hoyer_means is not None:
            found["hoyer_means"] = self._estimate(f"{AVERAGE_HOYER} of posterior means", self.hoyer_means)
        if self.marginal_kl is not None:
            name = f"KL(q(z) || p(z)) of all these {self.unit}s' codes together, lower bound from mean and covariance, "
            name += f"corrected for the number of {self.unit}s"
            found["marginal_kl"] = self._estimate(name, self.marginal_kl, "lower")
        return found

    def _information(self, own: str, measured: Mean, side: Bound) -> Estimate:
        name = f"mutual information of {self.unit} and code under q, own component "
        density = self.settings["density"]
        if density == "posterior":
            return self._estimate(f"{name}{own}, {side} bound", measured, side)
        return self._estimate(f"{name}{own}, each posterior replaced by a {density}", measured)

    def _estimate(self, name: str, measured: Mean | float, bound: Bound = "none") -> Estimate:
        value, stderr = measured if isinstance(measured, Mean) else (float(measured), None)
        return Estimate(name, value, stderr, self.sentences, bound, None, self.settings)

    def to_dict(self) -> dict[str, Any]:
        """For JSON; the dimensions' numbers have 6 digits."""
        return {
            "mean_variance": _digits(self.mean_variance_Z),
            "prior_variance": _digits(self.prior_variance_Z),
            "deviation": _digits(self.deviation_Z),
            "kl": None if self.kl_Z is None else _digits(self.kl_Z),
            "mi": self.mi,
            "mi_leave_one_out": self.mi_leave_one_out,
            "feature_cosine": self.feature_cosine,
            "hoyer_samples": self.hoyer_samples,
            "hoyer_means": self.hoyer_means,
            "marginal_kl": self.marginal_kl,
            "sentences": self.sentences,
            "settings": self.settings,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PosteriorStatistics:
        arrays: dict[str, Any] = {
            f"{name}_Z": None if data[name] is None else np.array(data[name], np.float64)
            for name in ("mean_variance", "prior_variance", "deviation", "kl")
        }
        if len({array.shape for array in arrays.values() if array is not None}) > 1:
            raise ValueError("not every dimension has all its numbers")
        measured = {"hoyer_samples": None, "hoyer_means": None} | dict(data)  # which older files lack
        means: dict[str, Any] = {
            name: None if measured[name] is None else Mean(*map(float, measured[name]))
            for name in ("mi", "mi_leave_one_out", "feature_cosine", "hoyer_samples", "hoyer_means")
        }
        return cls(
            **arrays,
            **means,
            marginal_kl=None if data["marginal_kl"] is None else float(data["marginal_kl"]),
            sentences=int(data["sentences"]),
            settings={"density": None} | data["settings"],
        )


def _digits(values_Z: Floats) -> list[float]:
    return [float(f"{value:.6g}") for value in values_Z]


# Measuring


@torch.no_grad()
def posterior_statistics(
    model: Model,
    split: EncodedSplit,
    *,
    seed: int = 0,
    limit: int | None = None,
    batch_tokens: int | None = None,
    progress: bool = False,
) -> PosteriorStatistics | None:
    """Encode sentences and say what their posteriors of z look like; only the encoder runs, without dropout.

    None for a language model, and for fewer than two sentences, which cannot be told apart.

    Args:
        model: on the device where it shall run.
        split: the sentences.
        seed: of the noise, which is keyed by sentence.
        limit: take at most so many sentences, drawn at random; where every token has a code, about
            as many as have so many tokens.
        batch_tokens: padded tokens at once; by default as many as fit.
        progress: show a bar.
    """
    if model.posterior is None or model.prior is None or len(split) < 2:
        return None
    device = next(model.parameters()).device
    sentence_M: Integers | None = None  # of each code, where a sentence has several
    if model.is_token_level:
        sentences = int((limit or TOKENS) / np.mean(split.encoder_lengths))
        rows_N = some_rows(len(split), min(len(split), max(sentences, 2)))
        tokens_N = np.asarray(split.encoder_lengths)[rows_N]
        ends_N, sentence_M = tokens_N.cumsum(), np.arange(len(rows_N)).repeat(tokens_N)
    else:
        rows_N = some_rows(len(split), min(len(split), limit or SENTENCES))
        ends_N = np.arange(1, len(rows_N) + 1)
    count = int(ends_N[-1])
    if count < 2:
        return None
    kind = model.posterior.distributions["z"]
    sampled = kind is Implicit or "gate" in model.posterior.distributions
    if batch_tokens is None:
        batch_tokens = 2**12 if sampled else 2**14  # a sentence has many samples or one
    plan = batches_by_length(split.lengths[rows_N], tokens=batch_tokens)

    columns: dict[str, Floats] = {}
    within_ZZ = np.zeros((model.recipe.latent.dim,) * 2)
    with evaluating(model):
        for places in track(plan, "encoding", progress, len(plan)):
            batch = make_batch(split, rows_N[places]).to(device)
            encoded = encode_batch(model, batch, seed)
            starts = np.concatenate([[0], ends_N])[places]
            at = np.concatenate([np.arange(*span) for span in zip(starts, ends_N[places], strict=True)])
            for name, part in encoded.columns.items():
                columns.setdefault(name, np.empty((count, part.shape[1])))[at] = part.double().cpu().numpy()
            within_ZZ += encoded.covariance_ZZ.cpu().numpy() / count

    mean_NZ = (columns["first"] + columns["second"]) / 2
    means_ZZ = covariance_of_means(columns["first"], columns["second"])
    prior = model.prior.codes()
    prior_mean_Z, prior_variance_Z = (part.double().cpu().numpy() for part in (prior.mean, prior.variance))
    marginal_kl = None
    if isinstance(prior, Normal):
        between_ZZ = means_ZZ * (count - 1) / count
        covariance_ZZ = between_ZZ + within_ZZ
        by_chance = gaussian_kl_by_chance(covariance_ZZ, between_ZZ, count)
        if by_chance is not None:
            whole = gaussian_kl(mean_NZ.mean(0), covariance_ZZ, prior_mean_Z, prior_variance_Z)
            marginal_kl = whole - by_chance
    mi = mi_leave_one_out = None
    if "sample" in columns:
        information = mutual_information(columns["centre"], columns["spread"], columns["sample"], device)
        mi, mi_leave_one_out = (Mean.of(each_N, sentence_M) for each_N in information)
    drawn = f"{DRAWS} samples" if kind is Implicit else f"{GATE_DRAWS} samples of the gates"
    densities: dict[type, str] = {
        Normal: "posterior",
        Implicit: f"Gaussian fitted to {DRAWS} samples",
        SpikeAndSlab: "Gaussian with its mean and deviation",
    }
    return PosteriorStatistics(
        mean_variance_Z=means_ZZ.diagonal().copy(),
        prior_variance_Z=prior_variance_Z,
        deviation_Z=columns["deviation"].mean(0),
        kl_Z=columns["kl"].mean(0) if "kl" in columns else None,
        mi=mi,
        mi_leave_one_out=mi_leave_one_out,
        feature_cosine=mean_cosine(columns["features"], sentence_M),
        hoyer_samples=_mean_hoyer(columns["code"], sentence_M),
        hoyer_means=_mean_hoyer(columns["mean"], sentence_M),
        marginal_kl=marginal_kl,
        sentences=len(rows_N),
        settings={
            "seed": seed,
            "sentences": len(rows_N),
            "of": len(split),
            **({"unit": "token", "tokens": count} if model.is_token_level else {}),
            "active_above": ACTIVE_ABOVE,
            "means": f"two halves of {drawn}" if sampled else "exact",
            "density": densities.get(kind),
        },
    )


def _mean_hoyer(codes_MZ: Floats, sentence_M: Integers | None) -> Mean | None:
    if codes_MZ.shape[1] == 1:
        return None
    values_M = average_hoyer(codes_MZ).values_N
    there_M = ~np.isnan(values_M)
    sentences = there_M.sum() if sentence_M is None else len(np.unique(sentence_M[there_M]))
    error = hoyer_error(codes_MZ, sentence_M) if sentences > 1 else None
    return None if error is None else Mean(float(values_M[there_M].mean()), error)


class _Encoded(NamedTuple):
    columns: dict[str, Tensor]
    """A row for each sentence, or for each token in the order of sentences."""
    covariance_ZZ: Tensor
    """Cov[z|x], summed over the rows."""


def encode_batch(model: Model, batch: Batch, seed: int) -> _Encoded:
    """The posteriors of a batch: two estimates of their means (one, twice, where it is exact), their deviations, a
    code of each; and the Gaussians and samples for the mutual information."""
    features_BH = model.features(batch.encoder)
    if features_BH is None:
        raise ValueError("a language model has no posterior")
    noise = Noise(seed, 0, batch.rows_B)
    if model.is_token_level:  # whose posteriors each see one token's features, wherever they stand
        mask_BT = batch.encoder.mask_BT
        features_BH = features_BH[mask_BT]
        row_B1, at_T = batch.rows_B[:, None], torch.arange(mask_BT.shape[1], device=mask_BT.device)
        noise = Noise(seed, 0, (row_B1 * LONGEST + at_T)[mask_BT])
    site = model.sites(features_BH, noise, 1)["z"]
    q = site.q
    columns = {"features": features_BH, "code": site.value_SBZ[0]}
    # Every fit sees the same noise: what it gets wrong is then wrong for all sentences alike, and does not look as if
    # it told them apart.
    alike = Noise(noise.seed, 0, torch.zeros_like(noise.rows_B))
    match q:
        case Normal():
            columns |= {"mean": q.mean, "first": q.mean, "second": q.mean, "deviation": q.stddev}
            columns |= {} if isinstance(site.p, Mixture) else {"kl": site.kl_BZ}
            columns |= {"centre": q.mean, "spread": q.stddev, "sample": site.value_SBZ[0]}
            covariance_ZZ = q.variance.double().sum(0).diag()
        case Delta():
            columns |= {"mean": q.mean, "first": q.mean, "second": q.mean, "deviation": q.stddev}
            covariance_ZZ = q.stddev.double().sum(0).diag()
        case Implicit():
            drawn_SBZ = draw(q, noise, "posterior statistics", DRAWS).double()
            halves = drawn_SBZ.chunk(2)
            columns |= {"first": halves[0].mean(0), "second": halves[1].mean(0), "deviation": drawn_SBZ.std(0)}
            covariance_ZZ = _summed_covariance(drawn_SBZ)
            columns |= _as_gaussians(*moments(q, alike, DRAWS), noise)
            columns["mean"] = columns["centre"]
        case SpikeAndSlab():
            sites = model.sites(features_BH, noise, GATE_DRAWS)
            if not isinstance(site.p, Mixture):
                columns["kl"] = torch.stack([each.kl_BZ for each in sites.values()]).sum(0)
            columns["mean"] = model.code_moments(features_BH, noise)[0]
            mean_SBZ, variance_SBZ = _given_gates(sites["z"])
            halves = mean_SBZ.chunk(2)
            deviation_BZ = (variance_SBZ.mean(0) + mean_SBZ.var(0)).sqrt()
            columns |= {"first": halves[0].mean(0), "second": halves[1].mean(0), "deviation": deviation_BZ}
            covariance_ZZ = variance_SBZ.mean(0).sum(0).diag() + _summed_covariance(mean_SBZ)
            mean_SBZ, variance_SBZ = _given_gates(model.sites(features_BH, alike, GATE_DRAWS)["z"])
            deviation_BZ = (variance_SBZ.mean(0) + mean_SBZ.var(0)).sqrt()
            columns |= _as_gaussians(mean_SBZ.mean(0), deviation_BZ, noise)
        case _:
            raise TypeError(f"no rule to measure posteriors of type {type(q).__name__}; add one to {__name__}")
    return _Encoded(columns, covariance_ZZ)


def _as_gaussians(mean_BZ: Tensor, deviation_BZ: Tensor, noise: Noise) -> dict[str, Tensor]:
    """Gaussians with these moments and a sample of each: what the mutual information is measured with."""
    fitted = Normal(mean_BZ, deviation_BZ.clamp(min=DEVIATION_FLOOR), validate_args=False)
    sample_BZ = draw(fitted, noise, "fitted posterior", 1)[0]
    return {"centre": fitted.mean, "spread": fitted.stddev, "sample": sample_BZ}


def _summed_covariance(drawn_SBZ: Tensor) -> Tensor:
    """Covariance of each sentence's draws, summed over the sentences."""
    centred_SBZ = drawn_SBZ - drawn_SBZ.mean(0)
    return torch.einsum("sbz,sby->zy", centred_SBZ, centred_SBZ) / (len(drawn_SBZ) - 1)


def _given_gates(z: Site) -> tuple[Tensor, Tensor]:
    """Mean and variance of codes given each draw of the gates; all the same where gates are no latent."""
    mean, variance = (moment.double().expand_as(z.value_SBZ) for moment in (z.q.mean, z.q.variance))
    return mean, variance
