"""Mutual information within minibatches, as aggressive training measures it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import Normal

from textspace.data.batching import make_batch
from textspace.evaluate.aggregated import log_normals
from textspace.evaluate.code_statistics import Mean
from textspace.evaluate.posterior import SENTENCES, encode_batch
from textspace.model import Model
from textspace.networks import evaluating
from textspace.types import Estimate, Settings

if TYPE_CHECKING:
    from textspace.data.encoded import EncodedSplit

__all__ = ["information_within", "minibatch_information"]


def information_within(mean_NZ: Tensor, deviation_NZ: Tensor, sample_NZ: Tensor) -> Tensor:
    """log q(z|x) - log q(z) at the sample of each sentence, q(z) the mean over the sentences of the minibatch (N).

    Each is at most ln N, since the posterior of the sentence itself is one of the N in q(z).
    """
    log_q_NN = log_normals(sample_NZ, mean_NZ, deviation_NZ)
    return log_q_NN.diagonal() - log_q_NN.logsumexp(1) + math.log(len(log_q_NN))


@torch.no_grad()
def minibatch_information(
    model: Model, split: EncodedSplit, batches: Sequence[NDArray[np.int64]], *, seed: int = 0
) -> Estimate | None:
    """Mutual information between sentence and code within minibatches, the mean over their sentences.

    This is what aggressive training watches [He et al. 2019]: no value exceeds the logarithm of the size of its
    minibatch, so that it does not compare with the estimate of a whole set. One sample of each code serves both
    densities, where the published code takes the entropy of the posterior in closed form: the expectation is the same.
    Where every token has a code, tokens stand for sentences. None without a density that posteriors could be compared
    by.

    Args:
        model: on the device where it shall run.
        split: the sentences.
        batches: rows of the split. After 10,000 sentences no more are taken.
        seed: of the noise, which is keyed by sentence.
    """
    if model.posterior is None:
        return None
    device = next(model.parameters()).device
    found: list[Tensor] = []
    sentences = 0
    with evaluating(model):
        for rows_B in batches:
            if sentences >= SENTENCES:
                break
            columns = encode_batch(model, make_batch(split, rows_B).to(device), seed).columns
            if "sample" not in columns:
                return None
            gaussians = (columns[name].double() for name in ("centre", "spread", "sample"))
            found.append(information_within(*gaussians))
            sentences += len(rows_B)
    if not found:
        return None
    sizes = np.array([len(values_M) for values_M in found])
    mean = Mean.of(torch.cat(found).cpu().numpy(), np.arange(len(found)).repeat(sizes))
    unit = "token" if model.is_token_level else "sentence"
    most = f"at most ln {sizes.max()} = {math.log(sizes.max()):.2f}"
    name = f"mutual information of {unit} and code within minibatches, {most}"
    is_exact = model.posterior.distributions["z"] is Normal
    name += "" if is_exact else ", each posterior replaced by a Gaussian"
    settings: Settings = {"seed": seed, "sentences": sentences, "of": len(split), "batches": len(found)}
    return Estimate(name, mean.value, mean.stderr, sentences, "lower" if is_exact else "none", None, settings)
