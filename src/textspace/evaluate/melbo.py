"""MELBO: reconstruction + log N, a bound on the NLL of a set of sentences under a prior made of that very set.

Equation 16 of Livne et al. 2020. With the aggregated posterior 1/N sum_j q(z|x_j) of the evaluated sentences as the
prior, -log p(x_i) is at most -E_q(z|x_i) log p(x_i|z) + log N. What is spent on telling the N sentences apart is log N,
whatever they say: a model that copies its input scores log N, and no sentence on its own has a MELBO.

Its paper and public code leave the end's loss out of MELBO and count the end in the divisor of the perplexity: that is
`melbo_ppl_word_end_counted` of a likelihood whose end is dropped. `melbo_ppl_word` then divides by words alone.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from textspace.errors import TextspaceError
from textspace.evaluate.bounds import Floats, Likelihood, Normalisation, Settings, per_unit, perplexity
from textspace.evaluate.statistics import standard_error
from textspace.types import Estimate

if TYPE_CHECKING:
    from textspace.data.encoded import EncodedSplit

__all__ = ["WORDS", "Melbo", "SizeCurve"]

WORDS = "its prior is the evaluated set itself, no likelihood of a sentence on its own"
"""What every name of such a number says."""

LEAST_TRIALS = 500

PICKED_AT_MOST = 5 * 10**7
"""Sentences picked in all trials of a curve; more trials than `LEAST_TRIALS` are not made beyond that."""

STEADY_FROM = 1_000
"""Set size from which on the deviation over trials is judged."""


@dataclass(frozen=True)
class SizeCurve:
    """MELBO of random parts of a set, by size: mean and deviation over trials."""

    sizes_K: NDArray[np.int64]
    trials_K: NDArray[np.int64]
    mean_K: Floats
    deviation_K: Floats
    extrapolated_K: Floats
    """With the reconstruction of the whole set at every size."""

    @property
    def largest_percent(self) -> float | None:
        """Largest deviation at sizes of `STEADY_FROM` or more, in percent of the mean; None for a smaller set."""
        steady_K = self.sizes_K >= STEADY_FROM
        return float(100 * (self.deviation_K / self.mean_K)[steady_K].max()) if steady_K.any() else None


@dataclass(frozen=True)
class Melbo:
    """MELBO of a set of sentences.

    Args:
        reconstruction_N: -log p(x|z) of each sentence in nats, over samples of its own posterior.
        counts_N: words, tokens and characters of each sentence.
        repeats: how often each distinct sentence occurs.
        settings: of the likelihood it was made from.
        end_words: what names say of how sentences end.
        nll_N: NLL of each sentence in nats by that likelihood, where it has one.
    """

    reconstruction_N: Floats
    counts_N: dict[Normalisation, NDArray[np.int64]]
    repeats: tuple[int, ...]
    settings: Settings
    end_words: str = ""
    nll_N: Floats | None = None

    @classmethod
    def of(cls, measured: Likelihood, split: EncodedSplit) -> Melbo:
        """From the reconstructions of a split; sentences are equal when their tokens are."""
        if measured.settings["samples"] is None:
            raise TextspaceError("MELBO needs codes and this is a language model: use its exact NLL")
        if not len(split):
            raise TextspaceError("MELBO needs a sentence: give some text")
        repeats = Counter(split.ids(row).tobytes() for row in range(len(split)))
        settings = {name: value for name, value in measured.settings.items() if not name.startswith("proposal")}
        # A reconstruction takes one sample where the importance samples come from elsewhere, or where there are none.
        shared = measured.settings["proposal"] == "posterior"
        settings["samples"] = max(1, int(measured.settings["samples"])) if shared else 1
        words, counted = measured.end_words, tuple(repeats.values())
        return cls(measured.reconstruction_N, measured.counts_N, counted, settings, words, measured.nll_N)

    def __len__(self) -> int:
        return len(self.reconstruction_N)

    @property
    def duplicates(self) -> int:
        """Sentences less distinct sentences."""
        return len(self) - len(self.repeats)

    @property
    def entropy(self) -> float:
        """Of a sentence drawn from the set at random: log N where all are distinct, else less."""
        shares = np.array(self.repeats) / len(self)
        return float(-(shares * np.log(shares)).sum())

    @property
    def melbo_N(self) -> Floats:
        """Each sentence's share: its reconstruction, and log N."""
        return self.reconstruction_N + math.log(len(self))

    @property
    def words(self) -> str:
        """What every name says of the set."""
        return f"{WORDS}; N = {len(self):,}, log N = {math.log(len(self)):.2f}, {self.duplicates:,} duplicates"

    def estimates(
        self,
        tokens_per_sentence: float | None = None,
        nll: Estimate | None = None,
        nll_N: Floats | None = None,
    ) -> dict[str, Estimate]:
        """All numbers of the set.

        Args:
            tokens_per_sentence: of another count of tokens: perplexity and reconstruction per token by that, too.
            nll: how large a set would have to be for MELBO to be as large as this.
            nll_N: the same of each sentence; by default that of the likelihood this was made from, if `nll` is its
                mean. Without it the size has no error.
        """
        melbo = f"MELBO, reconstruction + log N ({self.words})"
        found = {"melbo": self._mean(melbo, self.melbo_N)}
        for per in ("word", "token"):
            name = f"perplexity per {per} from {melbo}"
            found[f"melbo_ppl_{per}"] = self._named(perplexity, name, self.melbo_N, self.counts_N[per])
        if self.settings["end_token"] == "dropped":
            name = f"perplexity per word from {melbo}; the divisor counts the end as a word, as in Livne et al. 2020"
            found["melbo_ppl_word_end_counted"] = self._named(perplexity, name, self.melbo_N, self.counts_N["word"] + 1)
        if self.duplicates:
            name = f"MELBO with the entropy of the evaluated set, {self.entropy:.4f}, for log N ({self.words})"
            found["melbo_entropy"] = self._mean(name, self.reconstruction_N + self.entropy)
        name = "reconstruction per token, -log p(x|z) / tokens"
        found["reconstruction_per_token"] = self._named(per_unit, name, self.reconstruction_N, self.counts_N["token"])
        if tokens_per_sentence is not None:
            each_N = np.full(len(self), float(tokens_per_sentence))
            at = f"at {tokens_per_sentence:g} tokens a sentence, not our count"
            name = f"perplexity per token {at}, from {melbo}"
            found["melbo_ppl_given"] = self._named(perplexity, name, self.melbo_N, each_N)
            name = f"reconstruction per token {at}"
            found["reconstruction_per_given"] = self._named(per_unit, name, self.reconstruction_N, each_N)
        if nll is not None:
            found["melbo_meets"] = self._meets(nll, self._nll_of(nll) if nll_N is None else nll_N)
        return found

    def meeting_size_log10(self, nll: float) -> float:
        """log10 of the set size at which MELBO would be this large, were the reconstruction the same for any set."""
        return (nll - float(self.reconstruction_N.mean())) / math.log(10)

    def curve(self, seed: int = 0, points: int = 30) -> SizeCurve:
        """MELBO of random parts of the set: at each of about `points` sizes K, max(N - K, 500) trials.

        A trial's sentences are the first K of a random order, so that one order serves all sizes. Very large sets get
        fewer trials than N - K, but no fewer than 500.
        """
        count = len(self)
        grid = np.geomspace(1, count, points).round().astype(np.int64)
        sizes_K = np.unique([*grid, count, min(count, STEADY_FROM)])
        most = max(LEAST_TRIALS, PICKED_AT_MOST // count)
        trials_K = np.minimum(np.maximum(count - sizes_K, LEAST_TRIALS), most)
        chance = np.random.default_rng(seed)
        trials = int(trials_K.max())
        mean_TK = np.empty((trials, len(sizes_K)))
        at_once = max(1, 2**20 // count)
        for first in range(0, trials, at_once):
            some = slice(first, min(first + at_once, trials))
            mixed_TN = np.tile(self.reconstruction_N, (some.stop - first, 1))
            chance.permuted(mixed_TN, axis=1, out=mixed_TN)
            mean_TK[some] = mixed_TN.cumsum(1)[:, sizes_K - 1] / sizes_K
        made_TK = np.arange(trials)[:, None] < trials_K
        mean_K = mean_TK.mean(0, where=made_TK)
        log_K = np.log(sizes_K)
        return SizeCurve(
            sizes_K,
            trials_K,
            mean_K + log_K,
            mean_TK.std(0, where=made_TK, ddof=1),
            float(self.reconstruction_N.mean()) + log_K,
        )

    def _nll_of(self, nll: Estimate) -> Floats | None:
        """The sentences' own NLL, if this estimate is its mean."""
        own = self.nll_N is not None and math.isclose(float(self.nll_N.mean()), nll.value)
        return self.nll_N if own else None

    def _meets(self, nll: Estimate, nll_N: Floats | None) -> Estimate:
        """Where MELBO meets an estimate, as the logarithm of a set size.

        Both are of the same sentences, whose lengths they share: the error is that of the difference.
        """
        name = (
            f"log10 of the set size at which MELBO would reach {nll.value:.2f} nats, were the reconstruction the same "
            f"({self.words}){self.end_words}"
        )
        error = None if nll_N is None else standard_error(nll_N - self.reconstruction_N)
        value = self.meeting_size_log10(nll.value)
        error = None if error is None else error / math.log(10)
        return Estimate(name, value, error, len(self), "none", None, self._settings | {"reaches": nll.name})

    def _mean(self, name: str, nats_N: Floats) -> Estimate:
        value, error = float(nats_N.mean()), standard_error(nats_N)
        return Estimate(name + self.end_words, value, error, len(nats_N), "none", "lower", self._settings)

    def _named(self, ratio: Any, name: str, nats_N: Floats, counts_N: NDArray[Any]) -> Estimate:
        return ratio(name + self.end_words, nats_N, counts_N, "none", self._settings)

    @property
    def _settings(self) -> Settings:
        return self.settings | {"log_n": math.log(len(self)), "duplicates": self.duplicates}
