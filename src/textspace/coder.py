"""Sentences to codes and back, in batches: what every use of a space goes through."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from torch import Tensor

from textspace.checks import seed_number, whole_number
from textspace.encoding import TextEncoder, Texts
from textspace.errors import TextspaceError
from textspace.generate import Generated, Greedy, Method, Sampling, generate
from textspace.inputs import SparseRows, Troubles, checked_codes, is_text
from textspace.lengths import Lengths
from textspace.noise import seed_of
from textspace.progress import track
from textspace.sampling import Deviation, drawn_lengths, picked, prior_codes, prior_token_codes
from textspace.token_codes import TokenCodes, arrays, checked_token_codes, tensors

__all__ = ["Coder"]

DECODED_AT_ONCE = 256
"""Sentences in a batch of decoding unless asked otherwise."""


class Coder(TextEncoder):
    """A model with its tokenizer, between sentences and codes."""

    def of_normalised(self) -> Self:
        """The same for sentences that are normalised already.

        Normalising twice would harm: "&lt;b>" becomes "<b>" the first time, and is dropped as a tag the second.
        """
        if not self.recipe.text.normalise:
            return self
        return type(self)(self.recipe.but({"text.normalise": []}), self.tokenizer, self.model, self.metrics)

    # Codes to sentences

    def decode(
        self,
        codes: Any,
        *,
        method: Method | str | None = None,
        batch_size: int | None = None,
        show_progress: bool = False,
        seed: int = 0,
    ) -> Any:
        """Sentences of codes: a string for a vector, a list for a matrix.

        Args:
            codes: a vector of `dim` numbers, or a matrix with such rows; numpy, tensor, nested lists or scipy's sparse
                matrices, which become dense a batch at a time. Where every token has a code, a matrix with such rows is
                one sentence, and several are a list of matrices or an array with three axes.
            method: `Greedy()` (default), `Sampling(...)` or `Beam(...)` of `textspace.generate`, or a name: "greedy",
                "sampling", "beam".
            batch_size: sentences at once; the result depends on it through rounding alone.
            show_progress: show a bar.
            seed: of sampling; each code's noise is keyed by its position.
        """
        seed = seed_number(seed)
        codes_NZ, one = self._checked_codes(codes)
        how = Greedy() if method is None else method
        texts = list(self._decode(codes_NZ, len(codes_NZ), how, batch_size, show_progress, seed))
        return texts[0] if one else texts

    def decode_with_ends(
        self,
        codes: Any,
        *,
        method: Method | str | None = None,
        batch_size: int | None = None,
        show_progress: bool = False,
        seed: int = 0,
    ) -> tuple[list[str], NDArray[np.bool_]]:
        """Sentences of several codes, as `decode` gives them, and which of them ended before `max_tokens` cut them."""
        codes_NZ, _ = self._checked_codes(codes)
        how = Greedy() if method is None else method
        made = list(self._generate(codes_NZ, len(codes_NZ), how, batch_size, show_progress, seed_number(seed)))
        texts = [self.tokenizer.decode(ids) for each in made for ids in each.ids]
        return texts, np.concatenate([each.ended_N.numpy() for each in made]) if made else np.zeros(0, bool)

    def reconstruct(
        self,
        texts: Texts,
        *,
        what: Literal["mean", "sample"] = "mean",
        strength: float | None = None,
        method: Method | str | None = None,
        batch_size: int | None = None,
        show_progress: bool = False,
        seed: int = 0,
    ) -> str | list[str]:
        """Encode and decode again: how much of a sentence its code holds.

        The code is the posterior's mean, a sample of it, or a sample with `strength` times the posterior's deviation,
        as in `encode`; sentenceMIM's perturbed reconstruction [Livne et al. 2020] has strength 10.
        """
        seed = seed_number(seed)
        if what not in ("mean", "sample"):
            raise TextspaceError(f"reconstruct cannot decode {what!r}: ask for 'mean' or 'sample'")
        both: dict[str, Any] = {"batch_size": batch_size, "show_progress": show_progress, "seed": seed}
        codes_NZ = self.encode(texts, what=what, strength=strength, output="tensor", **both)
        return self.decode(codes_NZ, method=method, **both)

    def _decode(
        self,
        codes_NZ: Tensor | SparseRows | TokenCodes | None,
        count: int,
        method: Method | str,
        batch_size: int | None,
        show_progress: bool,
        seed: int,
        lengths_N: Tensor | None = None,
    ) -> Iterator[str]:
        """One sentence for each code, of a given length or not; a language model has no codes and makes `count`."""
        for made in self._generate(codes_NZ, count, method, batch_size, show_progress, seed, lengths_N):
            yield from (self.tokenizer.decode(ids) for ids in made.ids)

    def _generate(
        self,
        codes_NZ: Tensor | SparseRows | TokenCodes | None,
        count: int,
        method: Method | str,
        batch_size: int | None,
        show_progress: bool,
        seed: int,
        lengths_N: Tensor | None = None,
    ) -> Iterator[Generated]:
        """The same as token ids, a batch at a time."""
        size = DECODED_AT_ONCE
        if batch_size is not None:
            size = whole_number(batch_size, 1, f"a batch cannot hold {batch_size!r} sentences")
        starts = range(0, count, size)
        for start in track(starts, "decoding", show_progress, len(starts)):
            rows_B = torch.arange(start, min(start + size, count), device=self.device)
            codes_BZ = None if codes_NZ is None else codes_NZ[start : start + size]
            lengths_B = None if lengths_N is None else lengths_N[start : start + size]
            yield generate(self.model.decoder, codes_BZ, method, rows_N=rows_B, seed=seed, lengths_N=lengths_B)

    def _checked_codes(self, codes: Any) -> tuple[Tensor | SparseRows | TokenCodes, bool]:
        """Codes as something whose slices are on the device, and whether it was one."""
        self._needs_codes()
        check = checked_token_codes if self.is_token_level else checked_codes
        return check(codes, self.dim, self.device, self._dtype)

    def _one_code(self, given: str | ArrayLike, what: str, of: str = "mean", row: int = 0, seed: int = 0) -> Tensor:
        """The code of one sentence (its mean, or a sample with the noise of a row), or one code checked; a matrix where
        every token has a code."""
        self._needs_codes()
        if isinstance(given, str):
            return tensors(self._encode(self.read([given]), of, None, False, seed, row)[0])[0]
        codes, one = self._codes_of(given)
        if not one and not (issparse(given) and len(codes) == 1):  # a row of a sparse matrix is a matrix
            these = "this is a list with one in it" if len(codes) == 1 else f"these are {len(codes)}"
            raise TextspaceError(f"{what} is one sentence or one code, and {these}: give the string or the code itself")
        return tensors(codes)[0]

    def _codes_of(self, given: Any) -> tuple[Tensor | TokenCodes, bool]:
        """Codes of sentences, or codes checked, and whether one was given."""
        if isinstance(given, Iterable) and not isinstance(given, Sequence) and not hasattr(given, "ndim"):
            given = list(given)  # of a generator, or the keys of a mapping
        codes = self.encode(given, output="tensor") if is_text(given) else given
        found, one = self._checked_codes(codes)
        return found if isinstance(found, TokenCodes) else found[:], one

    def _vectors_of(self, given: Texts | ArrayLike) -> tuple[Tensor, bool]:
        """The same as one vector for a sentence: the mean over its tokens, where they have codes."""
        codes, one = self._codes_of(given)
        return codes.pooled("mean") if isinstance(codes, TokenCodes) else codes, one

    # New sentences

    def sample(
        self,
        n: int = 1,
        *,
        deviation: Deviation | None = None,
        of: Iterable[str] | None = None,
        chain: int = 0,
        lengths: Literal["decoded", "drawn"] = "decoded",
        method: Method | str | None = None,
        batch_size: int | None = None,
        show_progress: bool = False,
        seed: int = 0,
    ) -> list[str]:
        """New sentences: codes from the prior, words sampled from the decoder.

        Where every token has a code, a sentence has as many as training sentences have tokens: their number is drawn
        from those lengths, and with `lengths` "drawn" the sentence has that very length.

        Args:
            n: how many.
            deviation: draw codes nearer to the prior's middle, with so many of its deviations (sentenceMIM's paper
                takes 0.1), or "dim" for 1 / sqrt(dimensions), as its public code does.
            of: draw codes from the aggregated posterior of these sentences instead: a sentence at random, and a
                sample of its posterior. They are read once, and only those drawn are held.
            chain: so many times encode what was decoded (a posterior sample) and decode that, so that codes the
                decoder was not trained on give way to codes of sentences.
            lengths: "decoded", a sentence is as long as its decoder makes it; or "drawn", its number of tokens is
                drawn first, from the lengths of training sentences, and the decoder chooses the words
                (sentenceMIM's equation 2).
            method: how to choose words; `Sampling()` by default.
            batch_size: sentences at once; the result depends on it through rounding alone.
            show_progress: show bars.
            seed: of all randomness.
        """
        seed = seed_number(seed)
        n = whole_number(n, 0, f"cannot sample {n!r} sentences")
        chain = whole_number(chain, 0, f"a chain cannot have {chain!r} rounds")
        if lengths not in ("decoded", "drawn"):
            raise TextspaceError(f"lengths cannot be {lengths!r}: use 'decoded' or 'drawn'")
        known = Lengths.of_metrics(self.metrics) if lengths == "drawn" else None

        def decoded(codes_NZ: Any, seed: int) -> list[str]:
            lengths_N = None if known is None else drawn_lengths(known, n, seed)
            if lengths_N is not None and isinstance(codes_NZ, TokenCodes):
                lengths_N = codes_NZ.lengths_N - 2  # were drawn with the codes, or are those of their sentences
            how = Sampling() if method is None else method
            return list(self._decode(codes_NZ, n, how, batch_size, show_progress, seed, lengths_N))

        texts = decoded(self._first_codes(n, deviation, of, chain, batch_size, show_progress, seed), seed)
        for number in range(1, chain + 1):
            round_seed = seed_of(seed, "chain", number)
            split = self._split(texts, Troubles())  # which are not told: these are not the user's sentences
            texts = decoded(self._encode(split, "sample", batch_size, show_progress, round_seed)[0], round_seed)
        return texts

    def prior_codes(self, n: int, *, deviation: Deviation | None = None, seed: int = 0) -> Any:
        """Codes drawn from the prior, or nearer to its middle: those that `sample` decodes.

        A matrix; or, where every token has a code, a list of matrices as long as training sentences are.
        """
        seed = seed_number(seed)
        self._needs_codes()
        n = whole_number(n, 0, f"cannot draw {n!r} codes")
        return arrays(self._prior_codes(n, deviation, seed))

    @torch.no_grad()
    def _prior_codes(self, n: int, deviation: Deviation | None, seed: int) -> Tensor | TokenCodes:
        prior = self.model.prior.codes()  # type: ignore[union-attr]
        if self.is_token_level:
            return prior_token_codes(prior, n, deviation, seed, Lengths.of_metrics(self.metrics))
        return prior_codes(prior, torch.arange(n, device=self.device), deviation, seed)

    def _first_codes(
        self,
        n: int,
        deviation: Deviation | None,
        of: Iterable[str] | None,
        chain: int,
        batch_size: int | None,
        show_progress: bool,
        seed: int,
    ) -> Tensor | TokenCodes | None:
        """Where sampling starts; nowhere for a language model."""
        if self.model.prior is None:
            if deviation is not None or of is not None or chain:
                raise TextspaceError(
                    f"{self.recipe.name!r} is a language model and has no codes: sample from it without a deviation, "
                    "sentences to sample around or a chain"
                )
            return None
        if of is None:
            return self._prior_codes(n, deviation, seed)
        if deviation is not None:
            raise TextspaceError(
                "a deviation is of the prior's codes: give it, or sentences to sample around, not both"
            )
        texts = picked(of, n, seed, show_progress)
        return self._encode(self.read(texts), "sample", batch_size, show_progress, seed)[0]
