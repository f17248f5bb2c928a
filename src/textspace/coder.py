"""Sentences to codes and back, in batches: what every use of a space goes through."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from torch import Tensor

from textspace.config import Recipe
from textspace.data.batching import make_batch, plan_batches
from textspace.data.encoded import EncodedSplit
from textspace.data.normalise import normaliser
from textspace.data.tokenizers import Tokenizer
from textspace.distributions import draw
from textspace.errors import TextspaceError
from textspace.generate import Greedy, Method, generate
from textspace.inputs import SparseRows, Troubles, check_sentences, checked_codes, is_text, listed
from textspace.model import Model
from textspace.noise import Noise
from textspace.progress import track
from textspace.sampling import Deviation, check_strength, picked, prior_share, strayed
from textspace.sparse_codes import compressed, stacked

__all__ = ["Coder", "Codes", "Parameters", "Texts", "directions"]

Codes = NDArray[np.float32]
Texts = str | Sequence[str]

CHUNK = 4096
"""Sentences that streaming methods hold at once."""

OFF = 0.5
"""Sparse codes are 0 where a dimension is off with a probability above this."""

DECODED_AT_ONCE = 256
"""Sentences in a batch of decoding unless asked otherwise."""


class Parameters(NamedTuple):
    """The posterior of each sentence: its mean and standard deviation in every dimension."""

    mean: Codes
    deviation: Codes


class Coder:
    """A model with its tokenizer, between sentences and codes."""

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer, model: Model) -> None:
        self.recipe, self.tokenizer = recipe, tokenizer
        self.model: Model = model.eval()
        self._normalise = normaliser(recipe.text.normalise)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def dim(self) -> int:
        """Dimensions of a code."""
        self._needs_codes()
        return self.recipe.latent.dim

    # Sentences to codes

    def encode(
        self,
        texts: Texts,
        *,
        what: Literal["mean", "sample", "parameters", "gates"] = "mean",
        strength: float | None = None,
        sparse: bool = False,
        output: Literal["numpy", "tensor"] = "numpy",
        normalize: bool = False,
        batch_size: int | None = None,
        show_progress: bool = False,
        seed: int = 0,
    ) -> Any:
        """Codes of sentences: a vector for a string, a matrix for a list, in its order.

        Args:
            texts: a sentence or a list of them.
            what: the posterior's mean, a sample of it, its parameters (mean and deviation), or, in a space that can
                switch dimensions off, its gates: how probably each dimension is on.
            strength: of a sample: how many times the posterior's deviation; 0 is the mean, 1 a sample as it is. A
                posterior without spread (an autoencoder's) strays by so many deviations of the prior instead.
            sparse: a scipy CSR matrix of float32, one row for a string too, with exact zeros in the dimensions that are
                probably off (gate below 0.5). Where on, a mean code has the slab's mean, which is not scaled by the
                gate as in dense codes, and a sample has what was drawn. Needs a space with gates.
            output: numpy on the CPU, or a tensor on the space's device.
            normalize: scale every code to length 1, and its deviation by the same factor.
            batch_size: sentences at once; by default as many as fit. The result does not depend on it.
            show_progress: show a bar.
            seed: of the samples; each sentence's noise is keyed by its position.
        """
        self._check_what("encode", what, ("mean", "sample", "parameters", "gates"), sparse, strength)
        if output not in ("numpy", "tensor"):
            raise TextspaceError(f"encode has no output {output!r}: ask for 'numpy' or 'tensor'")
        if sparse and output == "tensor":
            raise TextspaceError("sparse codes are scipy matrices and not tensors: leave out sparse or output")
        if normalize and what == "gates":
            raise TextspaceError("gates are probabilities and are not scaled: leave out normalize")
        if sparse:
            every = listed(texts)
            shown = track(every, "encoding", show_progress, len(every))
            chunks = self._streamed(shown, what, seed, strength, sparse=True, batch_size=batch_size)
            parts = [
                compressed((directions(codes_NZ) if normalize else codes_NZ).cpu().numpy()) for *_, codes_NZ in chunks
            ]
            return stacked(parts, self.dim)
        found = self._encode(self._encoded(listed(texts)), what, batch_size, show_progress, seed, strength=strength)
        if normalize:
            length_N1 = _lengths(found[0])
            found = [codes_NZ / length_N1 for codes_NZ in found]
        shaped: list[Any] = [codes_NZ[0] if isinstance(texts, str) else codes_NZ for codes_NZ in found]
        if output == "numpy":
            shaped = [codes.cpu().numpy() for codes in shaped]
        return Parameters(*shaped) if what == "parameters" else shaped[0]

    def encode_stream(
        self,
        texts: Iterable[str],
        *,
        what: Literal["mean", "sample", "gates"] = "mean",
        strength: float | None = None,
        sparse: bool = False,
        seed: int = 0,
    ) -> Iterator[tuple[list[str], Any]]:
        """Chunks of sentences with their codes, for a corpus larger than memory; troubles are told once, at the end.

        The arguments are those of `encode`; codes are numpy arrays, or CSR matrices where sparse ones are asked for.
        """
        self._check_what("encode_stream", what, ("mean", "sample", "gates"), sparse, strength)
        for chunk, _, codes_NZ in self._streamed(texts, what, seed, strength, sparse=sparse):
            codes = codes_NZ.cpu().numpy()
            yield chunk, compressed(codes) if sparse else codes

    def _check_what(self, method: str, what: str, known: Sequence[str], sparse: bool, strength: float | None) -> None:
        """Refuse what cannot be had from sentences, or not from this space."""
        self._needs_codes()
        if what not in known:
            raise TextspaceError(
                f"{method} cannot give {what!r}: ask for {', '.join(map(repr, known[:-1]))} or {known[-1]!r}"
            )
        check_strength(strength, what)
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
    ) -> Iterator[tuple[list[str], int, Tensor]]:
        """Chunks of sentences, the position of the first of each, and their codes."""
        self._needs_codes()
        if isinstance(texts, str):
            raise TextspaceError("this takes many sentences: give a list of them, not one string")
        rest, troubles = iter(texts), Troubles()
        while chunk := list(islice(rest, CHUNK)):
            first = troubles.sentences
            split = self._split(chunk, troubles)
            yield chunk, first, self._encode(split, what, batch_size, False, seed, first, strength, sparse)[0]
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
    ) -> list[Tensor]:
        """[means, samples or gates], or [means, deviations], each (N, dim), in the order of the split.

        `first` is the position of the first sentence among all there are, which keys the noise.
        """
        wanted = 2 if what == "parameters" else 1
        codes = [torch.zeros(len(split), self.dim, device=self.device, dtype=self._dtype) for _ in range(wanted)]
        size = {"tokens": 2**14} if batch_size is None else {"size": batch_size}
        plan = plan_batches(split.lengths, **size, seed=0, epoch=0, shuffle=False)  # type: ignore[arg-type]
        for rows in track(plan, "encoding", show_progress, len(plan)):
            batch = make_batch(split, rows).to(self.device)
            noise = Noise(seed, 0, batch.rows_B + first)
            features_BH = self.model.features(batch.encoder)
            parts = self._parts(features_BH, noise, what, strength, sparse)  # type: ignore[arg-type]
            for whole, part in zip(codes, parts, strict=True):
                whole[batch.rows_B] = part
        return codes

    def _parts(
        self, features_BH: Tensor, noise: Noise, what: str, strength: float | None, sparse: bool
    ) -> list[Tensor]:
        """What `_encode` gives, of one batch."""
        off_BZ: Any = self.model.gates(features_BH) if sparse or what == "gates" else None
        if what == "gates":
            return [1 - off_BZ]
        if what == "parameters":
            return [*self.model.code_moments(features_BH, noise)]
        if what == "sample" and strength is None:  # which needs no mean
            codes_BZ = self.model.sites(features_BH, noise, 1)["z"].value_SBZ[0]
        else:
            codes_BZ = self.model.slab_means(features_BH) if sparse else self.model.code_moments(features_BH, noise)[0]
            if what == "sample":
                codes_BZ = strayed(self.model.sites(features_BH, noise, 1)["z"], codes_BZ, noise, strength)[0]
        return [codes_BZ.masked_fill(off_BZ > OFF, 0) if sparse else codes_BZ]

    @torch.no_grad()
    def _around(self, split: EncodedSplit, n: int, strength: float, seed: int) -> tuple[Tensor, Tensor]:
        """The code of a split's one sentence, and n codes that stray from it."""
        batch = make_batch(split, np.arange(1)).to(self.device)
        noise = Noise(seed, 0, batch.rows_B)
        features_BH = self.model.features(batch.encoder)
        mean_BZ, _ = self.model.code_moments(features_BH, noise)
        site = self.model.sites(features_BH, noise, n)["z"]
        return mean_BZ[0], strayed(site, mean_BZ, noise, strength)[:, 0]

    def _encoded(self, texts: Sequence[str]) -> EncodedSplit:
        """Tokens of sentences; says what was cut or is mostly unknown."""
        troubles = Troubles()
        split = self._split(texts, troubles)
        troubles.warn(self.recipe.text.max_tokens)
        return split

    def _split(self, texts: Sequence[str], troubles: Troubles) -> EncodedSplit:
        check_sentences(texts, first=troubles.sentences + 1)
        split = EncodedSplit.of([self._normalise(text) for text in texts], self.tokenizer, self.recipe.text.max_tokens)
        troubles.count(split)
        return split

    # Codes to sentences

    def decode(
        self,
        codes: Any,
        *,
        method: Method | None = None,
        batch_size: int | None = None,
        show_progress: bool = False,
        seed: int = 0,
    ) -> Any:
        """Sentences of codes: a string for a vector, a list for a matrix.

        Args:
            codes: a vector of `dim` numbers, or a matrix with such rows; numpy, tensor, nested lists or scipy's sparse
                matrices, which become dense a batch at a time.
            method: `Greedy()` (default), `Sampling(...)` or `Beam(...)` of `textspace.generate`.
            batch_size: sentences at once; the result depends on it through rounding alone.
            show_progress: show a bar.
            seed: of sampling; each code's noise is keyed by its position.
        """
        codes_NZ, one = self._checked_codes(codes)
        texts = list(self._decode(codes_NZ, len(codes_NZ), method or Greedy(), batch_size, show_progress, seed))
        return texts[0] if one else texts

    def _decode(
        self,
        codes_NZ: Tensor | SparseRows | None,
        count: int,
        method: Method,
        batch_size: int | None,
        show_progress: bool,
        seed: int,
        lengths_N: Tensor | None = None,
    ) -> Iterator[str]:
        """One sentence for each code, of a given length or not; a language model has no codes and makes `count`."""
        size = DECODED_AT_ONCE if batch_size is None else batch_size
        if size < 1:
            raise TextspaceError(f"a batch cannot hold {size} sentences")
        starts = range(0, count, size)
        for start in track(starts, "decoding", show_progress, len(starts)):
            rows_B = torch.arange(start, min(start + size, count), device=self.device)
            codes_BZ = None if codes_NZ is None else codes_NZ[start : start + size]
            lengths_B = None if lengths_N is None else lengths_N[start : start + size]
            made = generate(self.model.decoder, codes_BZ, method, rows_N=rows_B, seed=seed, lengths_N=lengths_B)
            yield from (self.tokenizer.decode(ids) for ids in made.ids)

    def _checked_codes(self, codes: Any) -> tuple[Tensor | SparseRows, bool]:
        """Codes as a matrix whose slices are on the device, and whether they were one vector."""
        self._needs_codes()
        return checked_codes(codes, self.dim, self.device, self._dtype)

    def _one_code(self, given: str | ArrayLike, what: str, of: str = "mean", row: int = 0, seed: int = 0) -> Tensor:
        """The code of one sentence (its mean, or a sample with the noise of a row), or one code checked."""
        if of == "sample" and isinstance(given, str):
            self._needs_codes()
            return self._encode(self._encoded([given]), of, None, False, seed, row)[0][0]
        codes_NZ, one = self._codes_of(given)
        if not one and not (issparse(given) and len(codes_NZ) == 1):  # a row of a sparse matrix is a matrix
            raise TextspaceError(f"{what} is one sentence or one code, and these are {len(codes_NZ)}")
        return codes_NZ[0]

    def _codes_of(self, given: Texts | ArrayLike) -> tuple[Tensor, bool]:
        """Codes of sentences, or codes checked, as a matrix; and whether one was given."""
        codes = self.encode(given, output="tensor") if is_text(given) else given  # type: ignore[arg-type]
        codes_NZ, one = self._checked_codes(codes)
        return codes_NZ[:], one

    @property
    def _dtype(self) -> torch.dtype:
        return next(self.model.parameters()).dtype

    # Codes to sample from

    def prior_codes(self, n: int, *, deviation: Deviation | None = None, seed: int = 0) -> Codes:
        """Codes drawn from the prior, or nearer to its middle: those that `sample` decodes."""
        self._needs_codes()
        return self._prior_codes(n, deviation, seed).cpu().numpy()

    @torch.no_grad()
    def _prior_codes(self, n: int, deviation: Deviation | None, seed: int) -> Tensor:
        prior = self.model.prior.codes().expand((n, self.dim))  # type: ignore[union-attr]
        codes_NZ = draw(prior, Noise(seed, 0, torch.arange(n, device=self.device)), "prior", 1)[0]
        return codes_NZ if deviation is None else torch.lerp(prior.mean, codes_NZ, prior_share(deviation, self.dim))

    def _first_codes(
        self,
        n: int,
        deviation: Deviation | None,
        of: Iterable[str] | None,
        chain: int,
        batch_size: int | None,
        show_progress: bool,
        seed: int,
    ) -> Tensor | None:
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
        return self._encode(self._encoded(texts), "sample", batch_size, show_progress, seed)[0]

    def _needs_codes(self) -> None:
        if self.model.posterior is None:
            raise TextspaceError(
                f"{self.recipe.name!r} is a language model and has no codes: it can score and sample; "
                "train a recipe with an encoder to encode and decode"
            )


def _lengths(codes_NZ: Tensor) -> Tensor:
    """(N, 1), above 0 so that one can divide by them."""
    return codes_NZ.norm(dim=1, keepdim=True).clamp(min=1e-12)


def directions(codes_NZ: Tensor) -> Tensor:
    """Every code scaled to length 1."""
    return codes_NZ / _lengths(codes_NZ)
