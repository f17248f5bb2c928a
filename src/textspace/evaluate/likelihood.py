"""How likely text is under a model: the ELBO, its parts, and the importance-weighted bound, each under its own name."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from textspace.config import DualKlObjective, MimObjective, PretrainedEncoder
from textspace.data.batching import batches_by_length, make_batch
from textspace.distributions import Mixture
from textspace.divergences import DualPair, dual_kls
from textspace.errors import TextspaceError
from textspace.evaluate.bounds import Likelihood, Settings, Weighted, counts_of, weighted_bound
from textspace.evaluate.proposals import Proposal, proposal_name, proposed
from textspace.lengths import Lengths
from textspace.model import Model
from textspace.networks import evaluating
from textspace.noise import Noise
from textspace.progress import track
from textspace.token_losses import Precision, computing_in
from textspace.types import Batch, EndToken, Pass

if TYPE_CHECKING:
    from textspace.data.encoded import EncodedSplit

__all__ = [
    "Likelihood",
    "Prior",
    "batches_of",
    "given_beforehand",
    "lengths_for",
    "likelihood",
    "log_px_SB",
]

DUAL_SAMPLES = 128
"""Samples of each sentence that the published code of the implicit VAE reports its numbers with."""

TOKEN_SAMPLES_AT_ONCE = 2**19
"""Tokens x samples that a GPU scores at once where it keeps no logits: thousands of samples of sentences, so that its
matrix products are large, and some GB."""

Floats = NDArray[np.float64]


class Prior(Protocol):
    """A density of codes that may stand in for the model's own prior."""

    name: str
    """In words, as in "NLL under ..."."""

    def log_prob(self, z_SBZ: Tensor) -> Tensor:
        """Of shape (S, B), in float64."""
        ...


def lengths_for(end_token: str, metrics: Mapping[str, Any]) -> Lengths | None:
    """The lengths that `likelihood` needs for a way to end sentences, as a trained space keeps them."""
    if end_token not in get_args(EndToken):
        raise TextspaceError(f"end_token is {end_token!r}: use 'included', 'dropped' or 'length'")
    return Lengths.of_metrics(metrics) if end_token == "length" else None


@torch.no_grad()
def likelihood(
    model: Model,
    split: EncodedSplit,
    *,
    samples: int = 0,
    end_token: EndToken = "included",
    lengths: Lengths | None = None,
    priors: Mapping[str, Prior] | None = None,
    proposal_scale: float = 1.0,
    seed: int = 0,
    chunk: int | None = None,
    batch_tokens: int | None = None,
    keep_tokens: bool = False,
    encoder_split: EncodedSplit | None = None,
    share: tuple[int, int] = (0, 1),
    precision: Precision = "float32",
    watch: Callable[[Pass], None] | None = None,
    progress: bool = False,
) -> Likelihood:
    """Reconstruction, KL, ELBO and the importance-weighted bound of every sentence of a split.

    The importance-weighted bound is log 1/K sum_k p(x|z_k) p(z_k) / q(z_k|x), z_k from q(z|x) [Burda et al. 2016]:
    below log p(x) in expectation, closer with every sample. Noise is keyed by sentence and sample, so neither `chunk`
    nor `batch_tokens` changes what is estimated. Dropout is off. Where every token has a code, their number is that of
    the sentence's tokens, start and end included: likelihoods are then given the length, unless `end_token` gives that
    a probability of its own.

    Args:
        model: on the device where it shall run.
        split: the sentences.
        samples: K; 0 leaves the bound out, and reconstruction and ELBO take one sample. With K samples reconstruction
            and ELBO take K, too; for a posterior without a density they take one, or 128 where the model has dual
            functions, as the published code of the implicit VAE does for all that it reports.
        end_token: "dropped" leaves the end token out of every likelihood and count; with "length" the end token has
            no probability, and log p(length) is added to every likelihood.
        lengths: the distribution of lengths, for "length".
        priors: further priors of z by short names: the same samples give the bound under each.
        proposal_scale: z_k come from the posterior with its deviation times this, which also takes the place of q(z|x)
            in the weights: more samples count where the posterior is narrower than p(z|x). Reconstruction and ELBO
            stay those of the posterior itself, and take one sample.
        seed: of the noise.
        chunk: samples at once; by default as many as fit.
        batch_tokens: padded tokens at once; by default as many as fit.
        keep_tokens: also keep every token's log-probability, of those that count.
        encoder_split: what the encoder reads instead of each sentence, row by row (words swapped, say); the proposal
            then comes from it, and the sentences that are scored stay the same.
        share: (i, n): compute the i-th of n shares of the batches only and leave zeros elsewhere.
        precision: of the factors of the decoder's matrix products, most of the work: "tf32" and "bf16" are faster on a
            GPU. Posteriors, their samples and log p(z) - log q(z|x) stay as they are.
        watch: takes each pass with samples of the posterior.
        progress: show a bar.
    """
    priors = priors or {}
    _check(model, samples, end_token, lengths, priors, proposal_scale)
    if len(split) and not any(counts_N.any() for counts_N in counts_of(split, end_token).values()):
        raise TextspaceError(
            "there is nothing to score: the sentences are empty and their ends do not count; let them ('included')"
        )
    device = next(model.parameters()).device
    with evaluating(model), computing_in(precision, device):
        can_share = model.decoder.shares_words(max(samples, 1))
        shared = model.posterior is not None and device.type == "cuda" and can_share
    if shared and batch_tokens is None:
        batch_tokens = max(64, min(TOKEN_SAMPLES_AT_ONCE // max(samples, 1), 2**15))
    logits_at_once, batches = batches_of(model, split, batch_tokens, encoder_split, share, progress)
    at_once = TOKEN_SAMPLES_AT_ONCE if shared else logits_at_once // model.vocabulary
    has_latent = model.posterior is not None
    sites = list(model.posterior.distributions) if model.posterior is not None else []
    weighted = ["", *priors] if samples and has_latent else []
    names = ["reconstruction", *sites, *(f"{what} {key}" for key in weighted for what in ("bound", "effective"))]
    names += ["dual_kl"] if model.dual is not None else []
    names += ["dual_marginal_kl"] if isinstance(model.dual, DualPair) else []
    names += ["mim"] if isinstance(model.recipe.objective, MimObjective) else []
    columns = {name: np.zeros(len(split)) for name in names}
    per_dimension = {name: torch.zeros(model.recipe.latent.dim, dtype=torch.float64) for name in _factorised(model)}
    log_length_N = None if lengths is None else _log_lengths(lengths, split)
    log_length_on_device_N = None if log_length_N is None else torch.from_numpy(log_length_N).to(device)
    asked = _Asked(
        samples, end_token, priors, proposal_scale, chunk, at_once, precision, keep_tokens, [*per_dimension], watch
    )
    tokens: list[Floats] = [np.zeros(0)] * len(split) if keep_tokens else []
    # Read at the end, since to read is to wait for all that was asked before.
    with evaluating(model):
        scores = [_score(model, batch.to(device), seed, asked, log_length_on_device_N) for batch in batches]
    for scored in scores:
        rows = scored.rows_B.cpu().numpy()
        for name, values_B in scored.columns.items():
            columns[name][rows] = values_B.double().cpu().numpy()
        for name, kl_Z in scored.kl_per_dimension.items():
            per_dimension[name] += kl_Z.cpu()
        if scored.log_px_BT is not None:
            for row, log_px_T in zip(rows, scored.log_px_BT.cpu(), strict=True):
                counted = int(split.lengths[row]) - (1 if end_token == "included" else 2)
                tokens[row] = log_px_T[:counted].double().numpy()

    settings: Settings = {
        "samples": samples if has_latent else None,
        "seed": seed if has_latent else None,
        "end_token": end_token,
        "proposal": proposal_name(model, proposal_scale),
    }
    if model.has_gates:
        settings["gates"] = "hard"
    if not has_latent and model.recipe.text.tokenizer.kind != "words":
        settings["tokens"] = "subwords"
    if given := given_beforehand(model, end_token):
        settings["given"] = given
    if proposal_scale != 1:
        settings["proposal_scale"] = proposal_scale
    if precision != "float32":
        settings["precision"] = precision
    if isinstance(objective := model.recipe.objective, DualKlObjective):
        of_codes_alone = objective.of == "aggregated" and objective.networks == "one"
        settings["dual_kl_of"] = "KL(q(z) || p(z))" if of_codes_alone else "KL(q(z|x) || p(z))"
        settings["dual_samples"] = _own_samples(model, samples, proposal_scale)
    kl_N = {name: columns[name] for name in sites} if model.posterior is None or model.posterior.has_log_prob else {}
    elbo_N = columns["reconstruction"] + sum(kl_N.values()) if kl_N else None
    return Likelihood(
        reconstruction_N=columns["reconstruction"],
        kl_N=kl_N,
        kl_per_dimension={name: (kl / len(split)).numpy() for name, kl in per_dimension.items()},
        elbo_N=elbo_N,
        nll_N=columns.get("bound ") if has_latent else columns["reconstruction"],
        effective_samples_N=columns.get("effective "),
        counts_N=counts_of(split, end_token),
        settings=settings,
        tokens=tokens if keep_tokens else None,
        dual_kl_N=columns.get("dual_kl"),
        dual_marginal_kl_N=columns.get("dual_marginal_kl"),
        mim_N=columns.get("mim"),
        under={
            key: Weighted(columns[f"bound {key}"], columns[f"effective {key}"], {"prior": prior.name})
            for key, prior in priors.items()
        },
        log_length_N=log_length_N,
    )


def _check(
    model: Model,
    samples: int,
    end_token: EndToken,
    lengths: Lengths | None,
    priors: Mapping[str, Prior] | None,
    proposal_scale: float,
) -> None:
    if (end_token == "length") != (lengths is not None):
        raise TextspaceError(
            "end_token 'length' and a distribution of lengths go together: give both, such as "
            "lengths=Lengths.of_metrics(space.metrics), or neither"
        )
    if priors and (model.posterior is None or not samples):
        raise TextspaceError("other priors need codes and importance samples: give a space with codes and samples=100")
    if not 0 < proposal_scale < math.inf:
        raise TextspaceError(f"proposal_scale is {proposal_scale}: give a number above 0 (1 is the posterior itself)")


def _log_lengths(lengths: Lengths, split: EncodedSplit) -> Floats:
    tokens_N = np.asarray(split.lengths) - 2
    log_length_N = lengths.log_prob(tokens_N)
    if not np.isfinite(log_length_N).all():
        row = int(np.isfinite(log_length_N).argmin())
        raise TextspaceError(
            f"sentence {row + 1} has {tokens_N[row]:,} tokens, more than a sentence of this space can have, so that "
            "its length has no probability: drop it, or let the end token have one ('included')"
        )
    return log_length_N


def batches_of(
    model: Model,
    split: EncodedSplit,
    batch_tokens: int | None,
    encoder_split: EncodedSplit | None = None,
    share: tuple[int, int] = (0, 1),
    progress: bool = False,
) -> tuple[int, Iterable[Batch]]:
    """How many logits fit into memory at once, and the batches to be scored (see `likelihood`)."""
    # The logits are the largest tensor by far.
    logits_at_once = 2**26 if next(model.parameters()).device.type == "cpu" else 2**27
    if batch_tokens is None:
        batch_tokens = max(64, min(logits_at_once // model.vocabulary, 2**15))
    plan = batches_by_length(split.lengths, tokens=batch_tokens)
    mine = range(share[0], len(plan), share[1])
    batches = (_batch(split, plan[i], encoder_split) for i in mine)
    return logits_at_once, track(batches, "scoring", progress, len(mine))


def _batch(split: EncodedSplit, rows: NDArray[np.int64], encoder_split: EncodedSplit | None) -> Batch:
    batch = make_batch(split, rows)
    return batch if encoder_split is None else replace(batch, encoder=make_batch(encoder_split, rows).encoder)


def given_beforehand(model: Model, end_token: EndToken) -> str | None:
    """What a code for each token tells beforehand: how many tokens there are, unless that has a probability here."""
    if not model.is_token_level:
        return None
    if isinstance(model.recipe.encoder, PretrainedEncoder):  # whose tokens nobody counts
        return "the encoder's number of tokens"
    return None if end_token == "length" else "the length"


def _factorised(model: Model) -> list[str]:
    """Sites whose KL is a sum over dimensions: not without a density, nor under a prior that is a mixture."""
    if model.posterior is None or model.prior is None or not model.posterior.has_log_prob:
        return []
    return [name for name in model.posterior.distributions if model.prior.distributions[name] is not Mixture]


@dataclass(frozen=True)
class _Asked:
    samples: int
    end_token: EndToken
    priors: Mapping[str, Prior]
    scale: float
    chunk: int | None
    at_once: int
    """Tokens x samples."""
    precision: Precision
    keep_tokens: bool
    factorised: list[str]
    """Sites whose KL is kept of each dimension."""
    watch: Callable[[Pass], None] | None


@dataclass(frozen=True)
class _Scored:
    rows_B: Tensor
    columns: dict[str, Tensor]
    kl_per_dimension: dict[str, Tensor]
    log_px_BT: Tensor | None


def _score(model: Model, batch: Batch, seed: int, asked: _Asked, log_length_N: Tensor | None) -> _Scored:
    """One batch, its samples in chunks; each chunk continues the numbering of the noise. The host waits for nothing."""
    noise = Noise(seed, 0, batch.rows_B)
    log_length_B = None if log_length_N is None else log_length_N[batch.rows_B]
    features_BH = model.features(batch.encoder)
    samples, device = asked.samples, noise.rows_B.device
    has_density = model.posterior is None or model.posterior.has_log_prob
    own_proposal = has_density and asked.scale == 1  # the samples of the posterior serve both as well
    wanted = _own_samples(model, samples, asked.scale)
    chunk = asked.chunk or max(1, asked.at_once // batch.decoder.ids_BT.numel())

    def passes(count: int, proposal: Proposal) -> Iterator[tuple[float, Pass]]:
        """The passes that make up `count` samples, each with its share of them."""
        for first in range(0, count, chunk):
            size = min(chunk, count - first)
            chunk_noise = noise.after(first)
            sites = model.sites(features_BH, chunk_noise, size, batch.encoder, proposal)
            with computing_in(asked.precision, device):
                has_end = asked.end_token != "length"
                passed = model.decode(batch, features_BH, sites, chunk_noise, has_end=has_end)
            yield size / count, passed

    def log_px(passed: Pass) -> Tensor:
        return log_px_SB(passed, asked.end_token, log_length_B)

    def log_weights_SB(passed: Pass) -> dict[str, Tensor]:
        """Under the model's own prior, called "", and under the others."""
        own_SB = log_px(passed) + sum(s.log_p_SB.double() - s.log_q_SB.double() for s in passed.sites.values())
        found = {"": own_SB}
        for key, prior in asked.priors.items():
            z = passed.sites["z"]
            found[key] = own_SB - z.log_alone_SB.double() + prior.log_prob(z.value_SBZ)
        return found

    columns: dict[str, Tensor] = defaultdict(lambda: torch.zeros((), device=device))
    kl_per_dimension: dict[str, Tensor] = defaultdict(lambda: torch.zeros((), device=device))
    log_px_BT = torch.zeros((), device=device) if asked.keep_tokens else None
    log_weights = []
    for part, passed in passes(wanted, lambda q: q):
        if asked.watch is not None:
            asked.watch(passed)
        columns["reconstruction"] = columns["reconstruction"] - log_px(passed).mean(0) * part
        if log_px_BT is not None:
            log_px_BT = log_px_BT + passed.log_px_SBT.double().mean(0) * part
        if model.dual is not None and features_BH is not None:
            z_SBZ, prior_SBZ = passed.sites["z"].value_SBZ, passed.sites["z"].prior_draws(passed.noise, "prior draws")
            for name, kl_B in dual_kls(model.dual, features_BH, z_SBZ, prior_SBZ).items():
                columns[name] = columns[name] + kl_B.double() * part
        if has_density:
            for name, site in passed.sites.items():
                columns[name] = columns[name] + site.kl_B.double() * part
                if name in asked.factorised:
                    kl_per_dimension[name] = kl_per_dimension[name] + site.kl_BZ.double().sum(0) * part
            if isinstance(model.recipe.objective, MimObjective):
                columns["mim"] = columns["mim"] + _mim_SB(passed, log_px(passed)).mean(0) * part
        if samples and own_proposal and passed.sites:
            log_weights.append(log_weights_SB(passed))
    if samples and model.posterior is not None:
        if not own_proposal:
            proposals = passes(samples, lambda q: proposed(q, noise, asked.scale))
            log_weights = [log_weights_SB(passed) for _, passed in proposals]
        for key in log_weights[0]:
            all_SB = torch.cat([each[key] for each in log_weights])
            columns[f"bound {key}"], columns[f"effective {key}"] = weighted_bound(all_SB)
    return _Scored(batch.rows_B, columns, kl_per_dimension, log_px_BT)


def _own_samples(model: Model, samples: int, scale: float) -> int:
    """Samples of the posterior itself, behind reconstruction, ELBO and the dual forms; see `likelihood`."""
    if model.posterior is None or not samples:
        return 1
    if model.posterior.has_log_prob and scale == 1:
        return samples
    return DUAL_SAMPLES if model.dual is not None else 1


def log_px_SB(passed: Pass, end_token: EndToken, log_length_B: Tensor | None) -> Tensor:
    """log p(x | z), in float64, with sentences that end so."""
    if end_token == "dropped":
        return passed.log_px_without_end_SB().double()
    return passed.log_px_SB.double() + (0 if log_length_B is None else log_length_B)


def _mim_SB(passed: Pass, log_px_SB: Tensor) -> Tensor:
    """-(log p(x|z) + 1/2 (log q(z|x) + log P(z))) at each sample."""
    return -log_px_SB - 0.5 * sum((s.log_q_SB.double() + s.log_p_SB.double()) for s in passed.sites.values())
