"""Likelihoods of sentences, and the numbers they sum up to, each named after the bound it is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from textspace.errors import TextspaceError
from textspace.evaluate.statistics import Ratio, standard_error
from textspace.types import Bound, EndToken, Estimate, Settings

if TYPE_CHECKING:
    from textspace.data.encoded import EncodedSplit

__all__ = [
    "END_WORDS",
    "Likelihood",
    "Normalisation",
    "Weighted",
    "counts_of",
    "per_unit",
    "perplexity",
    "weighted_bound",
]

LOOSE_BELOW = 10
"""An importance-weighted estimate whose effective sample size is below this calls itself loose."""

END_WORDS: Mapping[EndToken, str] = {
    "included": "",
    "dropped": ", the end token left out",
    "length": ", as p_seq(x|z) p(length), the end token without probability",
}
"""What the name of an estimate says of how sentences end."""

_WITHOUT_END = ("kl", "dual_kl", "dual_marginal_kl", "dual_mi")
"""Estimates of codes alone: they are the same however sentences end."""

Floats = NDArray[np.float64]
Normalisation = Literal["word", "token", "character"]


class Weighted(NamedTuple):
    """Importance-weighted upper bounds on -log p(x) of each sentence."""

    nll_N: Floats
    effective_samples_N: Floats
    settings: Settings
    """Where they differ from those of the rest: "prior", "proposal", "samples" and the like."""


def weighted_bound(log_weights_SB: Tensor) -> tuple[Tensor, Tensor]:
    """-log of the mean weight of each sentence, and the effective sample size (none where all weights are 0)."""
    log_sum_B = log_weights_SB.logsumexp(0)
    effective_B = (2 * log_sum_B - (2 * log_weights_SB).logsumexp(0)).exp()
    return math.log(len(log_weights_SB)) - log_sum_B, effective_B.nan_to_num(0)


@dataclass(frozen=True)
class Likelihood:
    """Per-sentence results in the order of the data, in nats; `estimates` sums them up.

    `kl_N` and `elbo_N` are absent (empty, None) for a language model, whose `nll_N` is exact (of subwords an upper
    bound on that of the text, which has other sequences of them too); where there is a latent `nll_N` is the
    importance-weighted upper bound, and None when no samples were asked for. `elbo_N` is the negative ELBO.
    """

    reconstruction_N: Floats
    kl_N: dict[str, Floats]
    kl_per_dimension: dict[str, Floats]
    elbo_N: Floats | None
    nll_N: Floats | None
    effective_samples_N: Floats | None
    counts_N: dict[Normalisation, NDArray[np.int64]]
    settings: Settings
    tokens: list[Floats] | None = field(default=None, repr=False)
    """log p(x_t | x_<t, z) of every token, averaged over samples, when asked for."""
    dual_kl_N: Floats | None = None
    """The dual form of the KL where the model was trained with it: a lower bound on the KL in expectation."""
    dual_marginal_kl_N: Floats | None = None
    """The dual form of KL(q(z) || p(z)), where the model has a dual function for each of the two KLs."""
    mim_N: Floats | None = None
    """The A-MIM loss where the model was trained with it."""
    under: dict[str, Weighted] = field(default_factory=dict)
    """Importance-weighted bounds under other priors or with other proposals, by short names."""
    log_length_N: Floats | None = None
    """log p(length), a term of every likelihood here, where sentences end so."""

    def __len__(self) -> int:
        return len(self.reconstruction_N)

    def estimates(self) -> dict[str, Estimate]:
        """Every number of the corpus: nats per sentence, and perplexities per word, token and character."""
        if not len(self):
            raise TextspaceError("no sentence was scored, so there is nothing to sum up: give at least one")
        found = {"reconstruction": self._mean("reconstruction, -E_q log p(x|z)", self.reconstruction_N, "none")}
        for name, kl_N in self.kl_N.items():
            label = "kl" if len(self.kl_N) == 1 else f"kl_{name}"
            found[label] = self._mean(f"KL(q || p) of {name}", kl_N, "none", better=None)
        if len(self.kl_N) > 1:
            name = f"KL(q || p) of {' and '.join(self.kl_N)} together"
            found["kl"] = self._mean(name, np.sum(list(self.kl_N.values()), axis=0), "none", better=None)
        if self.dual_kl_N is not None:
            found |= self._dual_forms(self.dual_kl_N)
        if self.mim_N is not None:
            name = "A-MIM loss, -(log p(x|z) + 1/2 (log q(z|x) + log P(z))), without the constant H(x)/2"
            found["mim"] = self._mean(f"{name}; no bound on NLL", self.mim_N, "none")
        if self.elbo_N is not None:
            found |= self._with_perplexities("elbo", "negative ELBO, upper bound on NLL", self.elbo_N, "upper")
        if self.nll_N is not None and self.effective_samples_N is None:
            # A text has other sequences of subwords too, of which each has some probability.
            in_subwords = self.settings.get("tokens") == "subwords"
            name = (
                "NLL of the tokenizer's own subwords, upper bound on that of the text" if in_subwords else "exact NLL"
            )
            found |= self._with_perplexities("nll", name, self.nll_N, "upper" if in_subwords else "exact")
        if self.nll_N is not None and self.effective_samples_N is not None:
            found |= self._weighted("", Weighted(self.nll_N, self.effective_samples_N, {}))
        for key, weighted in self.under.items():
            found |= self._weighted(f"_{key}", weighted)
        gates = f", {self.settings['gates']} gates" if "gates" in self.settings else ""
        return {
            key: replace(each, name=each.name + gates + ("" if key.startswith(_WITHOUT_END) else self.end_words))
            for key, each in found.items()
        }

    def rows(self) -> Iterator[dict[str, Any]]:
        """Every sentence's numbers under the names `estimates` uses, with its tokens' log-probabilities if kept."""
        columns = {"nll": self.nll_N, "elbo": self.elbo_N, "reconstruction": self.reconstruction_N}
        columns |= {"kl" if len(self.kl_N) == 1 else f"kl_{name}": kl_N for name, kl_N in self.kl_N.items()}
        columns |= {
            "dual_kl": self.dual_kl_N,
            "dual_marginal_kl": self.dual_marginal_kl_N,
            "mim": self.mim_N,
            "log_length": self.log_length_N,
        }
        columns |= {f"nll_{key}": weighted.nll_N for key, weighted in self.under.items()}
        for row in range(len(self)):
            numbers: dict[str, Any] = {name: float(c[row]) for name, c in columns.items() if c is not None}
            if self.tokens is not None:
                numbers["token_log_probabilities"] = self.tokens[row].tolist()
            yield numbers

    def of_rows(self, rows: NDArray[Any]) -> Likelihood:
        """The same of some sentences; without the KL of each dimension, which is kept for all sentences together."""

        def some(values: Any) -> Any:
            if isinstance(values, Weighted):
                return Weighted(values.nll_N[rows], values.effective_samples_N[rows], values.settings)
            if isinstance(values, dict):
                return {name: some(each) for name, each in values.items()}
            return None if values is None else values[rows]

        named = [each.name for each in fields(self) if each.name.endswith("_N") or each.name == "under"]
        tokens = None if self.tokens is None else [self.tokens[row] for row in np.arange(len(self))[rows]]
        return replace(self, **{name: some(getattr(self, name)) for name in named}, kl_per_dimension={}, tokens=tokens)

    def summed_with(self, total: Callable[[Tensor], Tensor]) -> Likelihood:
        """The whole from shares (see `likelihood`): `total` sums a tensor over the processes that hold them."""

        def whole(values: Floats) -> Floats:
            return total(torch.from_numpy(values)).cpu().numpy()

        def whole_if_any(values: Floats | None) -> Floats | None:
            return None if values is None else whole(values)

        return replace(
            self,
            reconstruction_N=whole(self.reconstruction_N),
            kl_N={name: whole(kl) for name, kl in self.kl_N.items()},
            kl_per_dimension={name: whole(kl) for name, kl in self.kl_per_dimension.items()},
            elbo_N=whole_if_any(self.elbo_N),
            dual_kl_N=whole_if_any(self.dual_kl_N),
            dual_marginal_kl_N=whole_if_any(self.dual_marginal_kl_N),
            mim_N=whole_if_any(self.mim_N),
            nll_N=whole_if_any(self.nll_N),
            effective_samples_N=whole_if_any(self.effective_samples_N),
            under={
                key: Weighted(whole(each.nll_N), whole(each.effective_samples_N), each.settings)
                for key, each in self.under.items()
            },
        )

    @property
    def loose(self) -> bool:
        """Whether the importance-weighted bound rests on too few effective samples to be near the truth."""
        return self.effective_samples_N is not None and float(np.mean(self.effective_samples_N)) < LOOSE_BELOW

    @property
    def end_words(self) -> str:
        """What names say of how sentences end, and of what was given besides."""
        words = next(words for end, words in END_WORDS.items() if end == self.settings["end_token"])
        return words + (f", given {given}" if (given := self.settings.get("given")) else "")

    def _dual_forms(self, dual_kl_N: Floats) -> dict[str, Estimate]:
        """The dual forms, what they come to together with the reconstruction, and their difference."""
        name = f"dual form of {self.settings['dual_kl_of']}, lower bound on it"
        found = {"dual_kl": self._mean(name, dual_kl_N, "lower", better=None)}
        # A dual function that fits badly gives a bound far below 0, where 0 is the better one: no KL lies below it.
        whole_N = self.reconstruction_N + (dual_kl_N if dual_kl_N.mean() > 0 else 0)
        name = "reconstruction + dual form of the KL (or 0 if that is more), lower bound on the negative ELBO, "
        found |= self._with_perplexities("dual_elbo", f"{name}no bound on NLL", whole_N, "lower")
        if (marginal_N := self.dual_marginal_kl_N) is not None:
            name = "dual form of KL(q(z) || p(z)), lower bound on it"
            found["dual_marginal_kl"] = self._mean(name, marginal_N, "lower", better=None)
            name = "mutual information as the difference of the dual forms of KL(q(z|x) || p(z)) and KL(q(z) || p(z)), "
            name += "two lower bounds: no bound, and with no largest value"
            found["dual_mi"] = self._mean(name, dual_kl_N - marginal_N, "none", better=None)
        return found

    def _weighted(self, key: str, weighted: Weighted) -> dict[str, Estimate]:
        settings = self.settings | weighted.settings
        under = f" under {settings['prior']}" if "prior" in settings else ""
        name = f"importance-weighted NLL{under}, {settings['samples']} samples, upper bound"
        if settings["proposal"] != "posterior":
            name += f", proposal: {settings['proposal']}"
        effective = float(np.mean(weighted.effective_samples_N))
        if effective < LOOSE_BELOW:
            name += f" (loose: effective sample size {effective:.1f})"
        found = self._with_perplexities(f"nll{key}", name, weighted.nll_N, "upper")
        name = f"effective sample size of the importance weights{under}"
        found[f"effective_samples{key}"] = self._mean(name, weighted.effective_samples_N, "none", better="higher")
        return {name: replace(each, settings=settings) for name, each in found.items()}

    def _with_perplexities(self, key: str, name: str, nats_N: Floats, bound: Bound) -> dict[str, Estimate]:
        found = {key: self._mean(name, nats_N, bound)}
        for per, counts_N in self.counts_N.items():
            title = f"perplexity per {per} from {name}"
            found[f"{key}_ppl_{per}"] = perplexity(title, nats_N, counts_N, bound, self.settings)
        return found

    def _mean(
        self, name: str, nats_N: Floats, bound: Bound, better: Literal["lower", "higher"] | None = "lower"
    ) -> Estimate:
        return Estimate(name, float(nats_N.mean()), standard_error(nats_N), len(nats_N), bound, better, self.settings)


def counts_of(split: EncodedSplit, end_token: EndToken) -> dict[Normalisation, NDArray[np.int64]]:
    """What totals are divided by: whitespace words, tokens or characters, plus one for the end where it counts."""
    end = 1 if end_token == "included" else 0
    return {
        "word": np.asarray(split.words, np.int64) + end,
        "token": np.asarray(split.lengths, np.int64) - 2 + end,
        "character": np.asarray(split.chars, np.int64) + end,
    }


def per_unit(name: str, nats_N: Floats, counts_N: NDArray[Any], bound: Bound, settings: Settings) -> Estimate:
    """Total nats / total count."""
    value, error = Ratio.of(nats_N, counts_N)
    return Estimate(name, value, error, len(nats_N), bound, "lower", settings)


def perplexity(name: str, nats_N: Floats, counts_N: NDArray[Any], bound: Bound, settings: Settings) -> Estimate:
    """exp(total nats / total count), its error by the delta method."""
    each = per_unit(name, nats_N, counts_N, bound, settings)
    value = math.exp(each.value) if each.value < 700 else math.inf
    return replace(each, value=value, stderr=None if each.stderr is None else value * each.stderr)
