"""How likely text is under a model: the ELBO, its parts, and the importance-weighted bound, each under its own name."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import Distribution, Normal

from textspace.config import DualKlObjective
from textspace.data.batching import make_batch, plan_batches
from textspace.distributions import moments
from textspace.divergences import dual_kl
from textspace.evaluate.statistics import standard_error
from textspace.model import Model
from textspace.noise import Noise
from textspace.progress import track
from textspace.types import Batch, Bound, EndToken, Estimate, Pass

if TYPE_CHECKING:
    from textspace.data.encoded import EncodedSplit

__all__ = ["Likelihood", "likelihood"]

LOOSE_BELOW = 10
"""An importance-weighted estimate whose effective sample size is below this calls itself loose."""

FITTED_DEVIATION_FLOOR = 0.1
"""Smallest deviation of a Gaussian fitted to the samples of a posterior that has no density."""

Floats = NDArray[np.float64]
Proposal = Callable[[Distribution], Distribution]
Normalisation = Literal["word", "token", "character"]


@dataclass(frozen=True)
class Likelihood:
    """Per-sentence results in the order of the data, in nats; `estimates` sums them up.

    `kl_N` and `elbo_N` are absent (empty, None) for a language model, whose `nll_N` is exact; where there is a latent
    `nll_N` is the importance-weighted upper bound, and None when no samples were asked for. `elbo_N` is the negative
    ELBO.
    """

    reconstruction_N: Floats
    kl_N: dict[str, Floats]
    kl_per_dimension: dict[str, Floats]
    elbo_N: Floats | None
    nll_N: Floats | None
    effective_samples_N: Floats | None
    counts_N: dict[Normalisation, NDArray[np.int64]]
    settings: dict[str, str | int | float | bool | None]
    tokens: list[Floats] | None = field(default=None, repr=False)
    """log p(x_t | x_<t, z) of every token, averaged over samples, when asked for."""
    dual_kl_N: Floats | None = None
    """The dual form of the KL where the model was trained with it: a lower bound on the KL in expectation."""

    def __len__(self) -> int:
        return len(self.reconstruction_N)

    def estimates(self) -> dict[str, Estimate]:
        """Every number of the corpus: nats per sentence, and perplexities per word, token and character."""
        found = {"reconstruction": self._mean("reconstruction, -E_q log p(x|z)", self.reconstruction_N, "none")}
        for name, kl_N in self.kl_N.items():
            label = "kl" if len(self.kl_N) == 1 else f"kl_{name}"
            found[label] = self._mean(f"KL(q || p) of {name}", kl_N, "none", better=None)
        if self.dual_kl_N is not None:
            name = f"dual form of {self.settings['dual_kl_of']}, lower bound on it"
            found["dual_kl"] = self._mean(name, self.dual_kl_N, "lower", better=None)
            # A dual function that fits badly gives a bound far below 0, where 0 is the better one: no KL lies below it.
            whole_N = self.reconstruction_N + (self.dual_kl_N if self.dual_kl_N.mean() > 0 else 0)
            name = "reconstruction + dual form of the KL (or 0 if that is more), lower bound on the negative ELBO"
            found["dual_elbo"] = self._mean(f"{name}, no bound on NLL", whole_N, "lower")
        if self.elbo_N is not None:
            found |= self._with_perplexities("elbo", "negative ELBO, upper bound on NLL", self.elbo_N, "upper")
        if self.nll_N is not None:
            bound: Bound = "exact" if self.effective_samples_N is None else "upper"
            found |= self._with_perplexities("nll", self._nll_name(), self.nll_N, bound)
        if self.effective_samples_N is not None:
            found["effective_samples"] = self._mean(
                "effective sample size of the importance weights",
                self.effective_samples_N,
                "none",
                better="higher",
            )
        return found

    def rows(self) -> Iterator[dict[str, Any]]:
        """Every sentence's numbers under the names `estimates` uses, with its tokens' log-probabilities if kept."""
        columns = {"nll": self.nll_N, "elbo": self.elbo_N, "reconstruction": self.reconstruction_N}
        columns |= {"kl" if len(self.kl_N) == 1 else f"kl_{name}": kl_N for name, kl_N in self.kl_N.items()}
        columns |= {"dual_kl": self.dual_kl_N}
        for row in range(len(self)):
            numbers: dict[str, Any] = {name: float(c[row]) for name, c in columns.items() if c is not None}
            if self.tokens is not None:
                numbers["token_log_probabilities"] = self.tokens[row].tolist()
            yield numbers

    def summed_with(self, total: Callable[[Tensor], Tensor]) -> Likelihood:
        """The whole from shares (see `likelihood`): `total` sums a tensor over the processes that hold them."""

        def whole(values: Floats) -> Floats:
            return total(torch.from_numpy(values)).cpu().numpy()

        return replace(
            self,
            reconstruction_N=whole(self.reconstruction_N),
            kl_N={name: whole(kl) for name, kl in self.kl_N.items()},
            kl_per_dimension={name: whole(kl) for name, kl in self.kl_per_dimension.items()},
            elbo_N=None if self.elbo_N is None else whole(self.elbo_N),
            dual_kl_N=None if self.dual_kl_N is None else whole(self.dual_kl_N),
            nll_N=None if self.nll_N is None else whole(self.nll_N),
            effective_samples_N=None if self.effective_samples_N is None else whole(self.effective_samples_N),
        )

    @property
    def loose(self) -> bool:
        """Whether the importance-weighted bound rests on too few effective samples to be near the truth."""
        return self.effective_samples_N is not None and float(np.mean(self.effective_samples_N)) < LOOSE_BELOW

    def _nll_name(self) -> str:
        if self.effective_samples_N is None:
            return "exact NLL"
        name = f"importance-weighted NLL, {self.settings['samples']} samples, upper bound"
        if self.settings["proposal"] != "posterior":
            name += f", proposal: {self.settings['proposal']}"
        if self.loose:
            name += f" (loose: effective sample size {float(np.mean(self.effective_samples_N)):.1f})"
        return name

    def _with_perplexities(self, key: str, name: str, nats_N: Floats, bound: Bound) -> dict[str, Estimate]:
        found = {key: self._mean(name, nats_N, bound)}
        for per, counts_N in self.counts_N.items():
            found[f"{key}_ppl_{per}"] = self._perplexity(f"perplexity per {per} from {name}", nats_N, counts_N, bound)
        return found

    def _mean(
        self, name: str, nats_N: Floats, bound: Bound, better: Literal["lower", "higher"] | None = "lower"
    ) -> Estimate:
        return Estimate(name, float(nats_N.mean()), standard_error(nats_N), len(nats_N), bound, better, self.settings)

    def _perplexity(self, name: str, nats_N: Floats, counts_N: NDArray[np.int64], bound: Bound) -> Estimate:
        """exp(total nats / total count), its error by the delta method for a ratio of sums."""
        nats_per_unit = float(nats_N.sum() / counts_N.sum())
        value = math.exp(nats_per_unit) if nats_per_unit < 700 else math.inf
        ratio_error = standard_error(nats_N - nats_per_unit * counts_N)
        error = None if ratio_error is None else value * ratio_error / float(counts_N.mean())
        return Estimate(name, value, error, len(nats_N), bound, "lower", self.settings)


@torch.no_grad()
def likelihood(
    model: Model,
    split: EncodedSplit,
    *,
    samples: int = 0,
    end_token: EndToken = "included",
    seed: int = 0,
    chunk: int | None = None,
    batch_tokens: int | None = None,
    keep_tokens: bool = False,
    encoder_split: EncodedSplit | None = None,
    share: tuple[int, int] = (0, 1),
    progress: bool = False,
) -> Likelihood:
    """Reconstruction, KL, ELBO and the importance-weighted bound of every sentence of a split.

    The importance-weighted bound is log 1/K sum_k p(x|z_k) p(z_k) / q(z_k|x), z_k from q(z|x) [Burda et al. 2016]:
    below log p(x) in expectation, closer with every sample. Noise is keyed by sentence and sample, so neither `chunk`
    nor `batch_tokens` changes what is estimated. Dropout is off.

    Args:
        model: on the device where it shall run.
        split: the sentences.
        samples: K; 0 leaves the bound out, and reconstruction and ELBO take one sample.
        end_token: "dropped" leaves the end token out of every likelihood and count.
        seed: of the noise.
        chunk: samples at once; by default as many as fit.
        batch_tokens: padded tokens at once; by default as many as fit.
        keep_tokens: also keep every token's log-probability.
        encoder_split: what the encoder reads instead of each sentence, row by row (words swapped, say); the proposal
            then comes from it, and the sentences that are scored stay the same.
        share: (i, n): compute the i-th of n shares of the batches only and leave zeros elsewhere.
        progress: show a bar.
    """
    device = next(model.parameters()).device
    # The logits are the largest tensor by far: this many numbers of them at once.
    logits_at_once = 2**26 if device.type == "cpu" else 2**27
    if batch_tokens is None:
        batch_tokens = max(64, min(logits_at_once // model.vocabulary, 2**15))
    plan = plan_batches(split.lengths, size=None, tokens=batch_tokens, seed=0, epoch=0, shuffle=False)
    mine = range(share[0], len(plan), share[1])
    batches = track((_batch(split, plan[i], encoder_split) for i in mine), "scoring", progress, len(mine))

    has_latent = model.posterior is not None
    sites = list(model.posterior.distributions) if model.posterior is not None else []
    names = ["reconstruction", *sites, *(["bound", "effective"] if samples and has_latent else [])]
    names += ["dual_kl"] if model.dual is not None else []
    columns = {name: np.zeros(len(split)) for name in names}
    per_dimension = {name: torch.zeros(model.recipe.latent.dim, dtype=torch.float64) for name in sites}
    tokens: list[Floats] = [np.zeros(0)] * len(split) if keep_tokens else []

    was_training = model.training
    model.eval()
    for batch in batches:
        rows = batch.rows_B.numpy()
        noise = Noise(seed, 0, batch.rows_B.to(device))
        scored = _score(model, batch.to(device), noise, samples, end_token, chunk, logits_at_once)
        for name, values_B in scored.columns.items():
            columns[name][rows] = values_B.double().cpu().numpy()
        for name, kl_Z in scored.kl_per_dimension.items():
            per_dimension[name] += kl_Z.cpu()
        if keep_tokens:
            for row, length, log_px_T in zip(rows, batch.decoder.lengths_B, scored.log_px_BT.cpu(), strict=True):
                tokens[row] = log_px_T[: int(length) - 1].double().numpy()
    model.train(was_training)

    settings: dict[str, str | int | float | bool | None] = {
        "samples": samples if has_latent else None,
        "seed": seed if has_latent else None,
        "end_token": end_token,
        "proposal": _proposal_name(model),
    }
    if isinstance(objective := model.recipe.objective, DualKlObjective):
        settings["dual_kl_of"] = "KL(q(z|x) || p(z))" if objective.of == "posterior" else "KL(q(z) || p(z))"
    kl_N = {name: columns[name] for name in sites} if model.posterior is None or model.posterior.has_log_prob else {}
    elbo_N = columns["reconstruction"] + sum(kl_N.values()) if kl_N else None
    return Likelihood(
        reconstruction_N=columns["reconstruction"],
        kl_N=kl_N,
        kl_per_dimension={name: (kl / len(split)).numpy() for name, kl in per_dimension.items() if name in kl_N},
        elbo_N=elbo_N,
        nll_N=columns.get("bound") if has_latent else columns["reconstruction"],
        effective_samples_N=columns.get("effective"),
        counts_N=_counts(split, end_token),
        settings=settings,
        tokens=tokens if keep_tokens else None,
        dual_kl_N=columns.get("dual_kl"),
    )


def _batch(split: EncodedSplit, rows: NDArray[np.int64], encoder_split: EncodedSplit | None) -> Batch:
    batch = make_batch(split, rows)
    return batch if encoder_split is None else replace(batch, encoder=make_batch(encoder_split, rows).encoder)


def _counts(split: EncodedSplit, end_token: EndToken) -> dict[Normalisation, NDArray[np.int64]]:
    """What totals are divided by: whitespace words, tokens or characters, plus one for the end where it counts."""
    end = 1 if end_token == "included" else 0
    return {
        "word": np.asarray(split.words, np.int64) + end,
        "token": np.asarray(split.lengths, np.int64) - 2 + end,
        "character": np.asarray(split.chars, np.int64) + end,
    }


def _proposal_name(model: Model) -> str | None:
    if model.posterior is None:
        return None
    if model.posterior.has_log_prob:
        return "posterior"
    return f"Gaussian fitted to posterior samples, deviation at least {FITTED_DEVIATION_FLOOR}"


@dataclass(frozen=True)
class _Scored:
    columns: dict[str, Tensor]
    kl_per_dimension: dict[str, Tensor]
    log_px_BT: Tensor


def _score(
    model: Model,
    batch: Batch,
    noise: Noise,
    samples: int,
    end_token: EndToken,
    chunk: int | None,
    at_once: int,
) -> _Scored:
    """One batch, its samples in chunks; each chunk continues the numbering of the noise."""
    features_BH = model.features(batch.encoder)
    has_density = model.posterior is None or model.posterior.has_log_prob
    wanted = max(samples, 1) if has_density and model.posterior is not None else 1
    if chunk is None:
        chunk = max(1, at_once // (batch.decoder.ids_BT.numel() * model.vocabulary))

    def passes(count: int, proposal: Proposal) -> Iterator[tuple[float, Pass]]:
        """The passes that make up `count` samples, each with its share of them."""
        for first in range(0, count, chunk):
            size = min(chunk, count - first)
            chunk_noise = noise.after(first)
            sites = model.sites(features_BH, chunk_noise, size, proposal)
            yield size / count, model.decode(batch, features_BH, sites, chunk_noise)

    def log_px_SB(passed: Pass) -> Tensor:
        return (passed.log_px_SB if end_token == "included" else passed.log_px_without_end_SB()).double()

    def log_weights_SB(passed: Pass) -> Tensor:
        return log_px_SB(passed) + sum(s.log_p_SB.double() - s.log_q_SB.double() for s in passed.sites.values())

    columns: dict[str, Tensor] = defaultdict(lambda: torch.zeros((), device=noise.rows_B.device))
    kl_per_dimension: dict[str, Tensor] = defaultdict(lambda: torch.zeros((), device=noise.rows_B.device))
    log_px_BT = torch.zeros((), device=noise.rows_B.device)  # stays where it is until somebody asks for tokens
    log_weights = []
    for part, passed in passes(wanted, lambda q: q):
        columns["reconstruction"] = columns["reconstruction"] - log_px_SB(passed).mean(0) * part
        log_px_BT = log_px_BT + passed.log_px_SBT.double().mean(0) * part
        if model.dual is not None and features_BH is not None:
            z_SBZ, prior_SBZ = passed.sites["z"].value_SBZ, passed.sites["z"].prior_draws(passed.noise, "prior draws")
            columns["dual_kl"] = columns["dual_kl"] + dual_kl(model.dual, features_BH, z_SBZ, prior_SBZ).double() * part
        if has_density:
            for name, site in passed.sites.items():
                columns[name] = columns[name] + site.kl_B.double() * part
                kl_per_dimension[name] = kl_per_dimension[name] + site.kl_BZ.double().sum(0) * part
            log_weights.append(log_weights_SB(passed))
    if samples and model.posterior is not None:
        if not has_density:
            log_weights = [log_weights_SB(passed) for _, passed in passes(samples, lambda q: _fitted(q, noise))]
        all_SB = torch.cat(log_weights)
        log_sum_B = all_SB.logsumexp(0)
        columns["bound"] = math.log(samples) - log_sum_B
        columns["effective"] = (2 * log_sum_B - (2 * all_SB).logsumexp(0)).exp()
    return _Scored(columns, kl_per_dimension, log_px_BT)


def _fitted(q: Distribution, noise: Noise) -> Normal:
    """A Gaussian fitted to a posterior without a density, to draw proposals from."""
    mean_BZ, deviation_BZ = moments(q, noise)
    return Normal(mean_BZ, deviation_BZ.clamp(min=FITTED_DEVIATION_FLOOR))
