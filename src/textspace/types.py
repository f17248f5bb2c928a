"""What flows through the model: batches in, passes through, terms and estimates out.

Shape suffixes used everywhere: S samples, B sentences, T token positions, Z latent dimensions, V vocabulary,
H hidden units, E embedding units. Where every token has a latent of its own, its code has a token axis before Z that
the names do not show: `z_SBZ` is (S, B, T, Z) then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor
from torch.distributions import Distribution, kl_divergence
from torch.nn.utils.rnn import pad_sequence

from textspace.digits import plus_minus
from textspace.distributions import closed_kl, draw
from textspace.noise import Noise

__all__ = ["Batch", "Bound", "EndToken", "Estimate", "PaddedCodes", "Pass", "Settings", "Site", "Term", "Terms", "View"]

EndToken = Literal["included", "dropped", "length"]
"""How a likelihood ends a sentence: the end token is one like any other ("included"); that one term is left out and
nothing else ("dropped"), which leaves no distribution over sentences; or the end token has no probability, so that the
words share it all, and the length has a distribution of its own ("length")."""

Settings = dict[str, str | int | float | bool | None]
"""How a number was come by: samples, seed and the like."""

Bound = Literal["exact", "upper", "lower", "none"]
"""On which side of the truth an estimate lies in expectation; "none" where there is no truth to bound."""


@dataclass(frozen=True)
class View:
    """Token ids of some sentences, padded at the end: start token, words, end token, padding.

    Where the ids are not the space's own but a pretrained encoder's (`own` is False), the model's special tokens stand
    in the place of start and end, if it has any. `lengths_B` counts all but padding, and stays on the CPU (packing
    needs it there, and asking the GPU would make the step wait).
    """

    ids_BT: Tensor
    lengths_B: Tensor
    own: bool = True
    given_lengths_B: Tensor | None = None
    """The lengths where the ids are, when somebody keeps them there."""

    @cached_property
    def mask_BT(self) -> Tensor:
        """True at real tokens, start and end included."""
        return torch.arange(self.ids_BT.shape[1], device=self.ids_BT.device) < self.device_lengths_B[:, None]

    @cached_property
    def before_end_BT(self) -> Tensor:
        """True at real tokens, the end excluded."""
        return torch.arange(self.ids_BT.shape[1], device=self.ids_BT.device) < self.device_lengths_B[:, None] - 1

    @cached_property
    def device_lengths_B(self) -> Tensor:
        """The lengths where the ids are."""
        return _moved(self.lengths_B, self.ids_BT.device) if self.given_lengths_B is None else self.given_lengths_B

    def reversed(self) -> View:
        """The words in reverse order; start token, end token and padding stay where they are."""
        lengths_B1 = self.device_lengths_B[:, None]
        at_T = torch.arange(self.ids_BT.shape[1], device=self.ids_BT.device)
        is_word_BT = (at_T > 0) & (at_T < lengths_B1 - 1)
        return replace(self, ids_BT=self.ids_BT.gather(1, torch.where(is_word_BT, lengths_B1 - 1 - at_T, at_T)))

    def to(self, device: torch.device | str) -> View:
        return replace(self, ids_BT=_moved(self.ids_BT, device))


@dataclass(frozen=True)
class Batch:
    """Sentences as the encoder sees them and as the decoder must produce them; one object when the two are equal.

    `rows_B` is each sentence's position in its split: noise is keyed by it, so that results do not depend on how
    sentences were batched.
    """

    encoder: View
    decoder: View
    rows_B: Tensor

    def __len__(self) -> int:
        return len(self.rows_B)

    def to(self, device: torch.device | str) -> Batch:
        encoder = self.encoder.to(device)
        decoder = encoder if self.decoder is self.encoder else self.decoder.to(device)
        return Batch(encoder, decoder, _moved(self.rows_B, device))


@dataclass(frozen=True)
class PaddedCodes:
    """Codes of the tokens of N sentences, padded at the end; the mask is True at real tokens."""

    values_NTZ: Tensor
    mask_NT: Tensor

    @classmethod
    def of(cls, codes: Sequence[Tensor]) -> PaddedCodes:
        """From a matrix of each sentence, a row for each token; at least one sentence."""
        values_NTZ = pad_sequence(list(codes), batch_first=True)
        lengths_N = torch.tensor([len(code_TZ) for code_TZ in codes], device=values_NTZ.device)
        return cls(values_NTZ, torch.arange(values_NTZ.shape[1], device=values_NTZ.device) < lengths_N[:, None])

    def __len__(self) -> int:
        return len(self.mask_NT)

    def __getitem__(self, index: Tensor | slice) -> PaddedCodes:
        """Those of some sentences."""
        return PaddedCodes(self.values_NTZ[index], self.mask_NT[index])

    def repeat_interleave(self, times: int, dim: int = 0) -> PaddedCodes:
        return PaddedCodes(*(part.repeat_interleave(times, dim) for part in (self.values_NTZ, self.mask_NT)))

    def to(self, device: torch.device, dtype: torch.dtype) -> PaddedCodes:
        return PaddedCodes(self.values_NTZ.to(device, dtype), self.mask_NT.to(device))

    def unpadded(self) -> list[Tensor]:
        """A matrix of each sentence, as `of` took them."""
        return [values_TZ[mask_T] for values_TZ, mask_T in zip(self.values_NTZ, self.mask_NT, strict=True)]


def _moved(tensor: Tensor, device: torch.device | str) -> Tensor:
    """The tensor on a device; the host does not wait for a copy to the GPU, which needs pinned memory."""
    if torch.device(device).type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


@dataclass(frozen=True)
class Site:
    """One latent variable of a pass: its posterior given x, its prior, and the samples drawn from the posterior.

    Factorised distributions keep their latent axes in `batch_shape`; they are summed here and nowhere else. A site
    that depends on an earlier one (z given its gates) has one q and one p for each sample of that, (S, B, Z), and
    `alone` is its prior with the earlier sites integrated out. Where every token has a latent of its own, `mask_BT` is
    True at real tokens, and no other counts.
    """

    q: Distribution
    p: Distribution
    value_SBZ: Tensor
    alone: Distribution | None = None
    mask_BT: Tensor | None = None

    @cached_property
    def log_q_SB(self) -> Tensor:
        return self.summed(self.q.log_prob(self.value_SBZ))

    @cached_property
    def log_p_SB(self) -> Tensor:
        return self.summed(self.p.log_prob(self.value_SBZ))

    @cached_property
    def log_alone_SB(self) -> Tensor:
        """log p of the samples by themselves, sites before this one integrated out."""
        return self.log_p_SB if self.alone is None else self.summed(self.alone.log_prob(self.value_SBZ))

    @property
    def kl_form(self) -> Literal["closed", "sampled"]:
        return "closed" if closed_kl(type(self.q), type(self.p)) else "sampled"

    @cached_property
    def kl_BZ(self) -> Tensor:
        """KL(q || p) per sentence and latent dimension, summed over tokens that have a latent each: closed where there
        is a formula, else the mean of log q - log p over the samples."""
        if self.kl_form == "closed":
            kl = kl_divergence(self.q, self.p)
            kl = kl.mean(0) if kl.dim() == self.value_SBZ.dim() else kl
        else:
            kl = (self.q.log_prob(self.value_SBZ) - self.p.log_prob(self.value_SBZ)).mean(0)
        return self._over_tokens(kl)

    @cached_property
    def kl_B(self) -> Tensor:
        return self.kl_BZ.sum(1)

    def prior_draws(self, noise: Noise, stream: str) -> Tensor:
        """As many samples of the prior as there are of the posterior, (S, B, Z)."""
        prior = self.alone or self.p
        return draw(prior.expand(self.value_SBZ.shape[1:]), noise, stream, len(self.value_SBZ))

    def summed(self, x_BZ: Tensor) -> Tensor:
        """Over dimensions, and over real tokens where each has a latent: (B, Z) to (B,), or (S, B, Z) to (S, B)."""
        return self._over_tokens(x_BZ).sum(-1)

    def _over_tokens(self, x_BZ: Tensor) -> Tensor:
        return x_BZ if self.mask_BT is None else x_BZ.where(self.mask_BT[:, :, None], 0.0).sum(-2)


@dataclass(frozen=True)
class Pass:
    """One forward pass: everything an objective or an estimator may read. Densities and KL are computed when asked for.

    `sites` is empty for a language model: its KL is absent, not zero. `token_log_px_SBT` holds log p(x_t | x_<t, z)
    of the tokens after the start token; entries at padding mean nothing, so read `log_px_SBT`. `features_BH` is what
    the posterior saw, and `noise` what the samples were drawn with. Where the end token had no probability (`has_end`
    is False) its place counts as padding.
    """

    batch: Batch
    features_BH: Tensor | None
    sites: dict[str, Site]
    token_log_px_SBT: Tensor
    noise: Noise
    has_end: bool = True

    @cached_property
    def log_px_SBT(self) -> Tensor:
        """Per token, zero at padding."""
        view = self.batch.decoder
        return self.token_log_px_SBT.where((view.mask_BT if self.has_end else view.before_end_BT)[:, 1:], 0.0)

    @cached_property
    def log_px_SB(self) -> Tensor:
        """log p(x | z), the end token included where it has a probability."""
        return self.log_px_SBT.sum(2)

    def log_px_without_end_SB(self) -> Tensor:
        """log p(x | z) less the end token's term."""
        return self.log_px_SBT.where(self.batch.decoder.before_end_BT[:, 1:], 0.0).sum(2)


@dataclass(frozen=True)
class Term:
    """One unweighted part of a loss: a value per sentence, or one per batch; `how` says how a KL was computed."""

    values: Tensor
    per: Literal["sentence", "batch"] = "sentence"
    how: Literal["closed", "sampled"] | None = None


@dataclass(frozen=True)
class Terms:
    """What an objective returns: unweighted terms, and the weights that only `loss` applies.

    A term without a weight is a monitor: shown and logged, never optimised.
    """

    terms: dict[str, Term]
    weights: dict[str, float]

    def means(self, sentences: int, parts: int = 1) -> dict[str, Tensor]:
        """What this part adds to each term's mean over the `sentences` of the global batch; the parts' add up.

        Every part computes a batch term whole. Its value is divided by `parts`; its gradient is not, since it flows
        through this part's own codes only.
        """
        return {
            name: term.values.sum() / sentences
            if term.per == "sentence"
            else term.values - (1 - 1 / parts) * term.values.detach()
            for name, term in self.terms.items()
        }

    def loss(self, means: dict[str, Tensor], weights: Mapping[str, Tensor] | None = None) -> Tensor:
        """The weighted sum of the means; `weights` on the device may stand in for its own numbers."""
        return torch.stack([weight * means[name] for name, weight in (weights or self.weights).items()]).sum()

    def scaled(self, share_B: Tensor) -> Terms:
        """With each sentence's terms times its share; those of a batch stay as they are."""
        scaled = {
            name: replace(term, values=term.values * share_B) if term.per == "sentence" else term
            for name, term in self.terms.items()
        }
        return Terms(scaled, self.weights)


@dataclass(frozen=True)
class Estimate:
    """A reported number with all that is needed to compare it with another.

    Args:
        name: what it is, in words that say which bound it is.
        value: the number itself.
        stderr: standard error over sentences; None where there is none.
        n: how many sentences it rests on.
        bound: on which side of the truth it lies in expectation.
        better: the direction of improvement.
        settings: samples, seed, end-token policy, normalisation and the like.
    """

    name: str
    value: float
    stderr: float | None
    n: int
    bound: Bound
    better: Literal["lower", "higher"] | None
    settings: Settings

    def to_dict(self) -> dict[str, object]:
        return asdict(self)

    def __str__(self) -> str:
        """
        >>> print(Estimate("NLL", 101.234, 0.5, 3761, "upper", "lower", {}))
        101.23 ± 0.50
        >>> print(Estimate("perplexity", 9.5232e21, 1.151e19, 3761, "upper", "lower", {}))
        9.523e+21 ± 1.2e+19
        """
        return plus_minus(self.value, self.stderr)
