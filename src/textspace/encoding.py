"""Sentences to codes, in batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from functools import partial
from itertools import islice
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from textspace.checks import seed_number
from textspace.config import Recipe
from textspace.data.batching import batches_by_length, make_batch
from textspace.data.encoded import EncodedSplit
from textspace.data.normalise import normaliser
from textspace.data.tables import check_iterable
from textspace.data.tokenizers import Tokenizer
from textspace.errors import TextspaceError
from textspace.inputs import Parameters, Troubles, check_sentences, listed
from textspace.model import Model
from textspace.noise import Noise
from textspace.progress import track
from textspace.sampling import check_strength, strayed
from textspace.sparse_codes import compressed, stacked
from textspace.token_codes import Pool, TokenCodes, arrays, check_pool, joined, tensors
from textspace.types import PaddedCodes, View

__all__ = ["Codes", "Parameters", "TextEncoder", "Texts", "directions", "is_on"]

Codes = NDArray[np.float32]
Texts = str | Sequence[str]

CHUNK = 4096
"""Sentences that streaming methods hold at once."""


def is_on(probability: Any) -> Any:
    """Whether a dimension counts as on that is on with this probability; even chances, E[gamma|x] = 0.5, do."""
    return probability >= 0.5


class TextEncoder:
    """A model with its tokenizer, from sentences to codes."""

    def __init__(
        self, recipe: Recipe, tokenizer: Tokenizer, model: Model, metrics: dict[str, Any] | None = None
    ) -> None:
        self.recipe, self.tokenizer = recipe, tokenizer
        self.model: Model = model.eval()
        self.metrics = metrics or {}
        self.normalise = normaliser(recipe.text.normalise)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def dim(self) -> int:
        """Dimensions of a code."""
        self._needs_codes()
        return self.recipe.latent.dim

    @property
    def is_token_level(self) -> bool:
        """Whether every token has a code, and not the sentence one."""
        return self.model.is_token_level

    @property
    def _pool(self) -> Pool | None:
        """How a sentence comes to one vector where it is compared with others."""
        return "mean" if self.is_token_level else None

    # Sentences to codes

    def encode(
        self,
        texts: Texts,
        *,
        what: Literal["mean", "sample", "parameters", "gates"] = "mean",
        strength: float | None = None,
        pool: Pool | None = None,
        sparse: bool = False,
        output: Literal["numpy", "tensor"] = "numpy",
        normalize: bool = False,
        batch_size: int | None = None,
        show_progress: bool = False,
        seed: int = 0,
    ) -> Any:
        """Codes of sentences: a vector for a string, a matrix for a list, in its order.

        Where every token has a code, a string gives a matrix with a row for each token, start and end included, and a
        list gives a list of them; with `pool` it is as above.

        Args:
            texts: a sentence or a list of them.
            what: the posterior's mean, a sample of it, its parameters (mean and deviation), or, in a space that can
                switch dimensions off, its gates: how probably each dimension is on.
            strength: of a sample: how many times the posterior's deviation; 0 is the mean, 1 a sample as it is. A
                posterior without spread (an autoencoder's) strays by so many deviations of the prior instead.
            pool: one code for a sentence where every token has one: that of its start token, or the mean or the sum
                over all tokens, start and end included; of means, samples or gates. Parameters are those of the
                pooled code.
            sparse: a scipy CSR matrix of float32, one row for a string too, with exact zeros in the dimensions that are
                probably off (gate below 0.5). Where on, a mean code has the slab's mean, which is not scaled by the
                gate as in dense codes, and a sample has what was drawn. Needs a space with gates.
            output: numpy on the CPU, or a tensor on the space's device.
            normalize: scale every code to length 1 (each token's, where there are such), and its deviation by the same
                factor.
            batch_size: sentences at once; by default as many as fit. The result does not depend on it.
            show_progress: show a bar.
            seed: of the samples; each sentence's noise is keyed by its position, and each token's by its own too.
        """
        seed = seed_number(seed)
        self._check_what("encode", what, ("mean", "sample", "parameters", "gates"), sparse, strength, pool)
        if output not in ("numpy", "tensor"):
            raise TextspaceError(f"encode has no output {output!r}: ask for 'numpy' or 'tensor'")
        if sparse and output == "tensor":
            raise TextspaceError("sparse codes are scipy matrices and not tensors: leave out sparse or output")
        if normalize and what == "gates":
            raise TextspaceError("gates are probabilities and are not scaled: leave out normalize")
        if sparse:
            bar = "encoding" if show_progress else None
            chunks = self._streamed(listed(texts), what, seed, strength, True, batch_size, bar=bar)
            parts = [
                compressed((directions(codes_NZ) if normalize else codes_NZ).cpu().numpy()) for *_, codes_NZ in chunks
            ]
            return stacked(parts, self.dim)
        split = self.read(listed(texts))
        found = self._encode(split, what, batch_size, show_progress, seed, strength=strength, pool=pool)
        if normalize:
            length_N1 = _lengths(found[0].values_MZ if isinstance(found[0], TokenCodes) else found[0])
            found = [codes / length_N1 for codes in found]
        shaped = [arrays(codes) if output == "numpy" else tensors(codes) for codes in found]
        if isinstance(texts, str):
            shaped = [codes[0] for codes in shaped]
        return Parameters(*shaped) if what == "parameters" else shaped[0]

    def encode_stream(
        self,
        texts: Iterable[str],
        *,
        what: Literal["mean", "sample", "gates"] = "mean",
        strength: float | None = None,
        pool: Pool | None = None,
        sparse: bool = False,
        seed: int = 0,
    ) -> Iterator[tuple[list[str], Any]]:
        """Chunks of sentences with their codes, for a corpus larger than memory; troubles are told once, at the end.

        The arguments are those of `encode`; codes are numpy arrays, lists of them where every token has a code and no
        pool is asked for, or CSR matrices where sparse ones are.
        """
        seed = seed_number(seed)
        self._check_what("encode_stream", what, ("mean", "sample", "gates"), sparse, strength, pool)
        for chunk, _, codes in self._streamed(texts, what, seed, strength, sparse=sparse, pool=pool):
            yield chunk, compressed(arrays(codes)) if sparse else arrays(codes)

    def _check_what(
        self, method: str, what: str, known: Sequence[str], sparse: bool, strength: float | None, pool: str | None
    ) -> None:
        """Refuse what cannot be had from sentences, or not from this space."""
        self._needs_codes()
        if what not in known:
            raise TextspaceError(
                f"{method} cannot give {what!r}: ask for {', '.join(map(repr, known[:-1]))} or {known[-1]!r}"
            )
        check_strength(strength, what)
        check_pool(pool, self.is_token_level)
        if sparse and self.is_token_level:
            raise TextspaceError(
                "sparse codes are of sentences, and in this space every token has a code: leave out sparse"
            )
        if sparse and what not in ("mean", "sample"):
            raise TextspaceError(
                f"sparse codes are means or samples: ask for one of them, or for {what} without sparse"
            )
        if (sparse or what == "gates") and not self.model.has_gates:
            raise TextspaceError(
                "this space has no gates that switch dimensions off: train one that has them with the recipe hsvae"
            )

    def _streamed(
        self,
        texts: Iterable[str],
        what: str,
        seed: int,
        strength: float | None = None,
        sparse: bool = False,
        batch_size: int | None = None,
        pool: Pool | None = None,
        bar: str | None = None,
    ) -> Iterator[tuple[list[str], int, Any]]:
        """Chunks of sentences, the position of the first of each, and their codes; with a bar of that name."""
        self._needs_codes()
        if isinstance(texts, str):
            raise TextspaceError("this takes many sentences: give a list of them, not one string")
        check_iterable(texts)
        total = len(texts) if isinstance(texts, Sized) else None
        rest, troubles = iter(track(texts, bar or "", bar is not None, total)), Troubles()
        while chunk := list(islice(rest, CHUNK)):
            first = troubles.sentences
            split = self._split(chunk, troubles)
            yield chunk, first, self._encode(split, what, batch_size, False, seed, first, strength, sparse, pool)[0]
        troubles.warn(self.recipe.text.max_tokens)

    @torch.no_grad()
    def _encode(
        self,
        split: EncodedSplit,
        what: str,
        batch_size: int | None,
        show_progress: bool,
        seed: int,
        first: int = 0,
        strength: float | None = None,
        sparse: bool = False,
        pool: Pool | None = None,
    ) -> list[Any]:
        """[means, samples or gates], or [means, deviations], each (N, dim), in the order of the split.

        Where every token has a code and they are not pooled, each is `TokenCodes`.

        `first` is the position of the first sentence among all there are, which keys the noise.
        """
        codes = [self._no_codes(split, pool) for _ in range(2 if what == "parameters" else 1)]
        size = {"tokens": 2**14} if batch_size is None else {"size": batch_size}
        plan = batches_by_length(split.lengths, **size)
        for rows_B in track(plan, "encoding", show_progress, len(plan)):
            batch = make_batch(split, rows_B).to(self.device)
            noise = Noise(seed, 0, batch.rows_B + first)
            parts: list[Any] = self._parts(batch.encoder, noise, what, strength, sparse)
            if self.is_token_level:
                of_tokens = [PaddedCodes(part, batch.encoder.mask_BT) for part in parts]
                parts = of_tokens if pool is None else joined(of_tokens, pool)
            for whole, part in zip(codes, parts, strict=True):
                whole[batch.rows_B] = part
        return codes

    def _no_codes(self, split: EncodedSplit, pool: Pool | None) -> Any:
        """Where the codes of a split go."""
        zeros = partial(torch.zeros, device=self.device, dtype=self._dtype)
        if not self.is_token_level or pool is not None:
            return zeros(len(split), self.dim)
        lengths_N = torch.from_numpy(split.encoder_lengths.astype(np.int64))
        return TokenCodes(zeros(int(lengths_N.sum()), self.dim), lengths_N)

    def _parts(self, view: View, noise: Noise, what: str, strength: float | None, sparse: bool) -> list[Tensor]:
        """What `_encode` gives, of one batch; padded where every token has a code."""
        features_BH: Any = self.model.features(view)
        off_BZ: Any = self.model.gates(features_BH) if sparse or what == "gates" else None
        if what == "gates":
            return [1 - off_BZ]
        if what == "parameters":
            return [*self.model.code_moments(features_BH, noise)]
        if what == "sample" and strength is None:  # which needs no mean
            codes_BZ = self.model.sites(features_BH, noise, 1, view)["z"].value_SBZ[0]
        else:
            codes_BZ = self.model.slab_means(features_BH) if sparse else self.model.code_moments(features_BH, noise)[0]
            if what == "sample":
                codes_BZ = strayed(self.model.sites(features_BH, noise, 1, view)["z"], codes_BZ, noise, strength)[0]
        return [codes_BZ.where(is_on(1 - off_BZ), 0) if sparse else codes_BZ]

    @torch.no_grad()
    def _around(
        self, split: EncodedSplit, n: int, strength: float, seed: int, positions: list[int] | None = None
    ) -> tuple[Tensor, Tensor]:
        """The code of a split's one sentence, and n codes that stray from it.

        Where every token has a code, these are (T, Z) and (n, T, Z), and all but some positions may stay as they are.
        """
        batch = make_batch(split, np.arange(1)).to(self.device)
        noise = Noise(seed, 0, batch.rows_B)
        features_BH = self.model.features(batch.encoder)
        mean_BZ, _ = self.model.code_moments(features_BH, noise)
        site = self.model.sites(features_BH, noise, n, batch.encoder)["z"]
        strayed_NZ = strayed(site, mean_BZ, noise, strength)[:, 0]
        if positions is None:
            return mean_BZ[0], strayed_NZ
        codes_NTZ = mean_BZ[0].repeat(n, 1, 1)
        codes_NTZ[:, positions] = strayed_NZ[:, positions]
        return mean_BZ[0], codes_NTZ

    def read(self, texts: Sequence[str]) -> EncodedSplit:
        """Tokens of sentences, normalised; warns of what was cut or is mostly unknown."""
        troubles = Troubles()
        split = self._split(texts, troubles)
        troubles.warn(self.recipe.text.max_tokens)
        return split

    def _split(self, texts: Sequence[str], troubles: Troubles) -> EncodedSplit:
        check_sentences(texts, first=troubles.sentences + 1)
        split = EncodedSplit.of([self.normalise(text) for text in texts], self.tokenizer, self.recipe.text.max_tokens)
        troubles.count(split)
        return split

    @property
    def _dtype(self) -> torch.dtype:
        return next(self.model.parameters()).dtype

    def _needs_codes(self) -> None:
        if self.model.posterior is None:
            raise TextspaceError(
                f"{self.recipe.name!r} is a language model and has no codes: it can score and sample; "
                "train a recipe with an encoder to encode and decode"
            )

    def _needs_sentence_codes(self, what: str) -> None:
        """Refuse what compares or changes the one code of a sentence, where every token has a code."""
        self._needs_codes()
        if self.is_token_level:
            raise TextspaceError(
                f"{what} one code for a sentence, and in this space every token has a code: train a recipe with "
                "another pooling, like transformer-vae"
            )


def _lengths(codes_NZ: Tensor) -> Tensor:
    """(N, 1), above 0 so that one can divide by them; squares of vast and tiny numbers are none in float32."""
    return codes_NZ.double().norm(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny).to(codes_NZ)


def directions(codes_NZ: Tensor) -> Tensor:
    """Every code scaled to length 1."""
    return codes_NZ / _lengths(codes_NZ)
