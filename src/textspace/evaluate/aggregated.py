"""The aggregated posterior of a set of sentences as a density of codes, and likelihoods under it as the prior."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Normal

from textspace.data.batching import batches_by_length, make_batch
from textspace.errors import TextspaceError
from textspace.evaluate.bounds import Weighted, weighted_bound
from textspace.evaluate.likelihood import batches_of, log_px_SB
from textspace.evaluate.statistics import some_rows
from textspace.model import Model
from textspace.networks import evaluating
from textspace.noise import Noise
from textspace.progress import track
from textspace.types import Site

if TYPE_CHECKING:
    from textspace.data.encoded import EncodedSplit

__all__ = ["AggregatedPosterior", "log_normals", "nearest_bound"]

POINTS_AT_ONCE, COMPONENTS_AT_ONCE = 2**12, 2**11
"""Densities of so many points under so many components are held in memory together: 64 MiB."""


def log_normals(z_PZ: Tensor, mean_CZ: Tensor, deviation_CZ: Tensor) -> Tensor:
    """log density of every point under every one of some independent normals, (P, C), in float64."""
    # -1/2 ((z - m) / s)^2 is a scalar product of (z^2, z) with a vector of the component, plus its constant. Far from
    # 0 these sums would lose their last digits, so all is moved to the middle of the components.
    mean_CZ, deviation_CZ = mean_CZ.double(), deviation_CZ.double()
    centre_Z = mean_CZ.mean(0)
    z_PZ, mean_CZ = z_PZ.double() - centre_Z, mean_CZ - centre_Z
    precision_CZ = deviation_CZ**-2
    constant_C = -0.5 * (mean_CZ**2 * precision_CZ).sum(1) - deviation_CZ.log().sum(1)
    constant_C = constant_C - 0.5 * math.log(2 * math.pi) * mean_CZ.shape[1]
    of_component = torch.cat([-0.5 * precision_CZ, mean_CZ * precision_CZ], dim=1)
    return torch.addmm(constant_C, torch.cat([z_PZ**2, z_PZ], dim=1), of_component.T)


class AggregatedPosterior:
    """1/N sum_i q(z|x_i) of some sentences x_i, each q of independent normals: a prior after the fact.

    Args:
        mean_NZ, deviation_NZ: of each sentence's posterior, on the device of the codes to come.
        name: what to call it in the name of an estimate.
    """

    def __init__(self, mean_NZ: Tensor, deviation_NZ: Tensor, name: str) -> None:
        if not len(mean_NZ) or mean_NZ.shape != deviation_NZ.shape or not (deviation_NZ > 0).all():
            raise ValueError("an aggregated posterior needs a mean and a deviation above 0 of each sentence")
        self.mean_NZ, self.deviation_NZ, self.name = mean_NZ, deviation_NZ, name

    @classmethod
    @torch.no_grad()
    def of(
        cls,
        model: Model,
        split: EncodedSplit,
        *,
        limit: int | None = None,
        whose: str = "training",
        batch_tokens: int = 2**14,
        progress: bool = False,
    ) -> AggregatedPosterior:
        """That of sentences as a model encodes them.

        Args:
            model: on the device where it shall run.
            split: the sentences.
            limit: take at most so many, drawn at random.
            whose: what kind of sentences they are, for the name.
            batch_tokens: padded tokens at once.
            progress: show a bar.
        """
        if model.posterior is None or model.posterior.distributions["z"] is not Normal:
            raise TextspaceError(
                "an aggregated posterior needs a posterior of normals, and this space has none: train one with "
                "posterior.kind=gaussian"
            )
        if model.is_token_level:
            raise TextspaceError(
                "an aggregated posterior is one of sentences' codes, and in this space every token has a code: use one "
                "with a code for each sentence"
            )
        if not len(split):
            raise TextspaceError("an aggregated posterior needs a sentence: give some text")
        device = next(model.parameters()).device
        rows_N = some_rows(len(split), limit or len(split))
        plan = batches_by_length(split.lengths[rows_N], tokens=batch_tokens)
        mean_NZ, deviation_NZ = torch.empty(2, len(rows_N), model.recipe.latent.dim, device=device)
        with evaluating(model):
            for places in track(plan, "aggregating", progress, len(plan)):
                batch = make_batch(split, rows_N[places]).to(device)
                q = _posterior(model, model.features(batch.encoder), Noise(0, 0, batch.rows_B))
                at = torch.from_numpy(places).to(device)
                mean_NZ[at], deviation_NZ[at] = q.mean, q.stddev
        some = f"{len(rows_N):,}" if len(rows_N) == len(split) else f"{len(rows_N):,} of {len(split):,}"
        return cls(mean_NZ, deviation_NZ, f"the aggregated posterior of {some} {whose} sentences")

    def __len__(self) -> int:
        return len(self.mean_NZ)

    def log_prob(self, z: Tensor) -> Tensor:
        """Exact log density of codes (..., Z), in float64; memory does not grow with the sentences."""
        found = [
            torch.stack([log_q_PC.logsumexp(1) for log_q_PC in self._log_components(z_PZ)]).logsumexp(0)
            for z_PZ in z.reshape(-1, z.shape[-1]).split(POINTS_AT_ONCE)
        ]
        return (torch.cat(found) - math.log(len(self))).view(z.shape[:-1])

    def likeliest(self, z_PZ: Tensor, count: int) -> Tensor:
        """The `count` components under which each code is likeliest, (P, count)."""
        found = []
        for some_PZ in z_PZ.split(POINTS_AT_ONCE):
            best_PK = torch.empty(len(some_PZ), 0, dtype=torch.float64, device=z_PZ.device)
            number_PK = best_PK.long()
            numbers = torch.arange(len(self), device=z_PZ.device).split(COMPONENTS_AT_ONCE)
            for number_C, log_q_PC in zip(numbers, self._log_components(some_PZ), strict=True):
                all_PC = torch.cat([best_PK, log_q_PC], dim=1)
                number_PC = torch.cat([number_PK, number_C.expand(len(some_PZ), -1)], dim=1)
                best_PK, at_PK = all_PC.topk(min(count, all_PC.shape[1]), dim=1)
                number_PK = number_PC.gather(1, at_PK)
            found.append(number_PK)
        return torch.cat(found)

    def draw(self, noise: Noise) -> Tensor:
        """One code for each row of the noise: of a sentence at random, and from its posterior."""
        uniform_B = noise.uniform("aggregated sentence", (1,), 1)[0, :, 0]
        return self.draw_from((uniform_B * len(self)).long()[None], noise)[0]

    def draw_from(self, component_SB: Tensor, noise: Noise) -> Tensor:
        """A code from each of these components, (S, B, Z)."""
        shape, samples = self.mean_NZ.shape[1:], len(component_SB)
        normal_SBZ = noise.normal("aggregated posterior", tuple(shape), samples, self.mean_NZ.dtype)
        return self.mean_NZ[component_SB] + self.deviation_NZ[component_SB] * normal_SBZ

    def _log_components(self, z_PZ: Tensor) -> Iterator[Tensor]:
        """The points' log densities under some components after the other."""
        parts = (each.split(COMPONENTS_AT_ONCE) for each in (self.mean_NZ, self.deviation_NZ))
        return (log_normals(z_PZ, mean_CZ, deviation_CZ) for mean_CZ, deviation_CZ in zip(*parts, strict=True))


@torch.no_grad()
def nearest_bound(
    model: Model,
    split: EncodedSplit,
    mixture: AggregatedPosterior,
    *,
    samples: int,
    end_token: Literal["included", "dropped"] = "included",
    seed: int = 0,
    chunk: int | None = None,
    batch_tokens: int | None = None,
    progress: bool = False,
) -> Weighted:
    """-log 1/N sum_k p(x|z_k), one z_k from each of K of the mixture's N components: above the NLL under it.

    The sum over all N components has the mean p(x), those left out are not below 0, and the logarithm is concave. The
    components are those under which the sentence's mean code is likeliest: where posteriors are narrow, the mixture
    has its mass there, and no wider copy of the sentence's own posterior finds it.

    Args:
        model: on the device where it shall run.
        split: the sentences that are scored.
        mixture: the prior.
        samples: K, at most the number of components.
        end_token: as for `likelihood`.
        seed: of the noise.
        chunk, batch_tokens, progress: as for `likelihood`.
    """
    count = min(samples, len(mixture))
    at_once, batches = batches_of(model, split, batch_tokens, progress=progress)
    device = mixture.mean_NZ.device
    nll_N, effective_N = np.zeros((2, len(split)))
    with evaluating(model):
        for cpu_batch in batches:
            rows = cpu_batch.rows_B.numpy()
            batch = cpu_batch.to(device)
            noise = Noise(seed, 0, batch.rows_B)
            features_BH = model.features(batch.encoder)
            q = _posterior(model, features_BH, noise)
            near_KB = mixture.likeliest(q.mean, count).T
            log_px = []
            size = chunk or max(1, at_once // (batch.decoder.ids_BT.numel() * model.vocabulary))
            for first in range(0, count, size):
                chunk_noise = noise.after(first)
                z_SBZ = mixture.draw_from(near_KB[first : first + size], chunk_noise)
                sites = {"z": Site(q, q, z_SBZ)}  # of which the decoder reads the codes alone
                passed = model.decode(batch, features_BH, sites, chunk_noise)
                log_px.append(log_px_SB(passed, end_token, None))
            bound_B, effective_B = weighted_bound(torch.cat(log_px) + math.log(count / len(mixture)))
            nll_N[rows], effective_N[rows] = bound_B.cpu().numpy(), effective_B.cpu().numpy()
    proposal = f"one code from each of the {count:,} components under which the sentence's mean code is likeliest"
    return Weighted(nll_N, effective_N, {"prior": mixture.name, "proposal": proposal, "samples": count, "seed": seed})


def _posterior(model: Model, features_BH: Tensor | None, noise: Noise) -> Normal:
    q = model.sites(features_BH, noise, 1)["z"].q
    if not isinstance(q, Normal):
        raise TypeError(f"posteriors of type {type(q).__name__} have no place in a mixture of normals")
    return q
