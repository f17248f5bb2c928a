"""The object users hold: sentences to codes, codes to sentences, and what one can do in between."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from textspace import folder as folders
from textspace.config import Recipe
from textspace.data.batching import make_batch, plan_batches
from textspace.data.encoded import EncodedSplit
from textspace.data.normalise import normaliser
from textspace.data.tokenizers import UNKNOWN, Tokenizer
from textspace.distributions import draw
from textspace.errors import TextspaceError
from textspace.evaluate.likelihood import Likelihood, likelihood
from textspace.generate import Greedy, Method, Sampling, generate
from textspace.model import Model
from textspace.noise import Noise
from textspace.paths import Path as CodePath
from textspace.paths import interpolated
from textspace.progress import track
from textspace.types import EndToken

if TYPE_CHECKING:
    from textspace.data.corpus import Corpus
    from textspace.data.options import ReadOptions

__all__ = ["Neighbor", "Parameters", "Space", "Variant"]

Codes = NDArray[np.float32]
Texts = str | Sequence[str]

CHUNK = 4096
"""Sentences that streaming methods hold at once."""

MOSTLY_UNKNOWN = 0.5
"""Sentences with more than this share of unknown words are reported."""


class Parameters(NamedTuple):
    """The posterior of each sentence: its mean and standard deviation in every dimension."""

    mean: Codes
    deviation: Codes


class Variant(NamedTuple):
    """A sentence near another: how far its code was moved, and how far from the start re-encoding it lands."""

    text: str
    moved: float
    landed: float


class Neighbor(NamedTuple):
    text: str
    similarity: float
    row: int
    """Position in the corpus, from 0."""


class Space:
    """A trained latent space of text.

    >>> space = Space.fit(["anna sees cats", "bob sees dogs", "carl likes cats"] * 30, "vae", epochs=1)
    >>> space.encode("anna sees dogs").shape, space.encode(["bob likes cats", "anna"]).shape, space.encode([]).shape
    ((32,), (2, 32), (0, 32))
    >>> type(space.decode(space.encode("anna sees dogs"))).__name__
    'str'
    """

    def __init__(
        self, recipe: Recipe, tokenizer: Tokenizer, model: Model, metrics: dict[str, Any] | None = None
    ) -> None:
        self.recipe, self.tokenizer = recipe, tokenizer
        self.model = model.eval()
        self.metrics = metrics or {}
        self._normalise = normaliser(recipe.text.normalise)

    # Making, keeping, moving

    @classmethod
    def fit(
        cls,
        source: str | Path | Iterable[str] | Corpus,
        recipe: Recipe | str = "default",
        *,
        out: Path | str | None = None,
        epochs: int | None = None,
        seed: int | None = None,
        settings: Iterable[str] = (),
        options: ReadOptions | None = None,
        device: str | None = None,
        show_progress: bool = False,
    ) -> Space:
        """Train a space.

        Args:
            source: a file, folder or other source by name (see `textspace train --help`), a `Corpus`, or sentences.
            recipe: a recipe or the name of one.
            out: the folder to leave it in; by default nothing is kept on disk.
            epochs: at most so many.
            seed: of all randomness.
            settings: changes to the recipe, like "latent.dim=64".
            options: how to read the source.
            device: "cpu" or "cuda"; by default the GPU where there is one.
            show_progress: show how training goes.
        """
        from textspace.data.corpus import Corpus, corpus_of
        from textspace.data.options import ReadOptions
        from textspace.recipes import recipe as recipe_named
        from textspace.train.fit import train

        chosen = recipe_named(recipe) if isinstance(recipe, str) else recipe
        shorthands = {"training.epochs": epochs, "training.seed": seed}
        chosen = chosen.with_settings(settings).but({path: n for path, n in shorthands.items() if n is not None})
        if not isinstance(source, str | Path | Corpus):
            source = corpus_of(source, options=options or ReadOptions(), normalise=chosen.text.normalise)
        with tempfile.TemporaryDirectory() as temporary:
            where = Path(out) if out is not None else Path(temporary)
            train(source, chosen, where, options=options, device=device, silent=not show_progress)
            return cls.load(where, device)

    @classmethod
    def load(cls, folder: Path | str, device: str | None = None) -> Space:
        """The space in a folder; nothing in the folder is ever executed."""
        from textspace.train.processes import Processes

        saved = folders.load(folder, str(Processes(device).device))
        return cls(saved.recipe, saved.tokenizer, saved.model, saved.metrics)

    def save(self, folder: Path | str) -> None:
        """Write the space into a folder: recipe, weights, tokenizer, metrics and a model card."""
        folders.save(Path(folder), self.recipe, self.tokenizer, self.model, self.metrics)

    def to(self, device: str) -> Space:
        """Move the model; returns the space itself."""
        from textspace.train.processes import Processes

        self.model.to(Processes(device).device)
        return self

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
        what: Literal["mean", "sample", "parameters"] = "mean",
        output: Literal["numpy", "tensor"] = "numpy",
        normalize: bool = False,
        batch_size: int | None = None,
        show_progress: bool = False,
        seed: int = 0,
    ) -> Any:
        """Codes of sentences: a vector for a string, a matrix for a list, in its order.

        Args:
            texts: a sentence or a list of them.
            what: the posterior's mean, a sample of it, or its parameters (mean and deviation).
            output: numpy on the CPU, or a tensor on the space's device.
            normalize: scale every code to length 1.
            batch_size: sentences at once; by default as many as fit. The result does not depend on it.
            show_progress: show a bar.
            seed: of the samples; each sentence's noise is keyed by its position.
        """
        self._needs_codes()
        if what not in ("mean", "sample", "parameters"):
            raise TextspaceError(f"encode cannot give {what!r}: ask for 'mean', 'sample' or 'parameters'")
        found = self._encode(self._encoded(_listed(texts)), what, batch_size, show_progress, seed)
        if normalize:
            found = [_directions(codes_NZ) for codes_NZ in found]
        shaped: list[Any] = [codes_NZ[0] if isinstance(texts, str) else codes_NZ for codes_NZ in found]
        if output == "numpy":
            shaped = [codes.cpu().numpy() for codes in shaped]
        return Parameters(*shaped) if what == "parameters" else shaped[0]

    @torch.no_grad()
    def _encode(
        self, split: EncodedSplit, what: str, batch_size: int | None, show_progress: bool, seed: int
    ) -> list[Tensor]:
        """[means or samples], or [means, deviations], each (N, dim), in the order of the split."""
        wanted = 2 if what == "parameters" else 1
        codes = [torch.zeros(len(split), self.dim, device=self.device) for _ in range(wanted)]
        size = {"size": batch_size} if batch_size else {"tokens": 2**14}
        plan = plan_batches(split.lengths, **size, seed=0, epoch=0, shuffle=False)  # type: ignore[arg-type]
        for rows in track(plan, "encoding", show_progress, len(plan)):
            batch = make_batch(split, rows).to(self.device)
            noise = Noise(seed, 0, batch.rows_B)
            site = self.model.sites(self.model.features(batch.encoder), noise, 1)["z"]
            parts = {"mean": [site.q.mean], "sample": [site.value_SBZ[0]], "parameters": [site.q.mean, site.q.stddev]}
            for whole, part in zip(codes, parts[what], strict=True):
                whole[batch.rows_B] = part.to(whole.dtype)
        return codes

    def _encoded(self, texts: Sequence[str]) -> EncodedSplit:
        """Tokens of sentences; says once what was cut or is mostly unknown."""
        for row, text in enumerate(texts):
            if not isinstance(text, str):
                raise TextspaceError(f"sentence {row + 1} is of type {type(text).__name__}: give strings")
        split = EncodedSplit.of([self._normalise(text) for text in texts], self.tokenizer, self.recipe.text.max_tokens)
        if split.over_long:
            warnings.warn(
                f"{split.over_long:,} of {len(split):,} sentences had more than {self.recipe.text.max_tokens} tokens "
                "and were cut there",
                stacklevel=3,
            )
        unknown_N = np.diff(np.concatenate([[0], (split.tokens == UNKNOWN).cumsum()])[split.offsets])
        counts_N = split.lengths - 2
        heavy = int(((unknown_N > MOSTLY_UNKNOWN * counts_N) & (counts_N > 0)).sum())
        if heavy:
            warnings.warn(
                f"{heavy:,} of {len(split):,} sentences are mostly words this space does not know; codes mean little",
                stacklevel=3,
            )
        return split

    # Codes to sentences

    def decode(
        self,
        codes: Any,
        *,
        method: Method | None = None,
        batch_size: int = 256,
        show_progress: bool = False,
        seed: int = 0,
    ) -> Any:
        """Sentences of codes: a string for a vector, a list for a matrix.

        Args:
            codes: a vector of `dim` numbers, or a matrix with such rows; numpy, tensor or nested lists.
            method: `Greedy()` (default), `Sampling(...)` or `Beam(...)` of `textspace.generate`.
            batch_size: sentences at once.
            show_progress: show a bar.
            seed: of sampling; each code's noise is keyed by its position.
        """
        codes_NZ, one = self._checked_codes(codes)
        texts = list(self._decode(codes_NZ, method or Greedy(), batch_size, show_progress, seed))
        return texts[0] if one else texts

    def _decode(
        self, codes_NZ: Tensor, method: Method, batch_size: int, show_progress: bool, seed: int
    ) -> Iterator[str]:
        chunks = range(0, len(codes_NZ), batch_size)
        for start in track(chunks, "decoding", show_progress, len(chunks)):
            chunk_NZ = codes_NZ[start : start + batch_size]
            rows_N = torch.arange(start, start + len(chunk_NZ), device=self.device)
            made = generate(self.model.decoder, chunk_NZ, method, rows_N=rows_N, seed=seed)
            yield from (self.tokenizer.decode(ids) for ids in made.ids)

    def _checked_codes(self, codes: Any) -> tuple[Tensor, bool]:
        """Codes as a matrix on the device, and whether they were one vector."""
        self._needs_codes()
        dtype = next(self.model.parameters()).dtype
        try:
            tensor = torch.as_tensor(np.asarray(codes) if not isinstance(codes, Tensor) else codes)
            tensor = tensor.to(self.device, dtype)
        except (TypeError, ValueError, RuntimeError):
            raise TextspaceError(f"these are not codes: give vectors of {self.dim} numbers") from None
        one = tensor.dim() == 1
        matrix = tensor[None] if one else tensor
        if matrix.dim() != 2 or (matrix.shape[1] != self.dim and matrix.numel()):
            raise TextspaceError(
                f"codes of this space have {self.dim} dimensions and these have shape {tuple(tensor.shape)}"
            )
        if not matrix.isfinite().all():
            row = int((~matrix.isfinite().all(1)).nonzero()[0])
            raise TextspaceError(f"code {row} holds a number that is not finite (NaN or infinity): mend or drop it")
        return matrix.reshape(-1, self.dim), one

    def reconstruct(
        self,
        texts: Texts,
        *,
        what: Literal["mean", "sample"] = "mean",
        method: Method | None = None,
        seed: int = 0,
        **options: Any,
    ) -> str | list[str]:
        """Encode and decode again: how much of a sentence its code holds."""
        codes = self.encode(texts, what=what, output="tensor", seed=seed)
        return self.decode(codes, method=method, seed=seed, **options)

    @torch.no_grad()
    def sample(self, n: int = 1, *, method: Method | None = None, seed: int = 0, **options: Any) -> list[str]:
        """New sentences: codes from the prior, words sampled from the decoder (or by another method)."""
        if n < 0:
            raise TextspaceError(f"cannot sample {n} sentences: give a number from 0")
        rows_N = torch.arange(n, device=self.device)
        method = method or Sampling()
        if self.model.prior is None:
            made = generate(self.model.decoder, None, method, rows_N=rows_N, seed=seed, count=n)
            return [self.tokenizer.decode(ids) for ids in made.ids]
        prior = self.model.prior("z", {}).expand((n, self.dim))
        codes_NZ = draw(prior, Noise(seed, 0, rows_N), "prior", 1)[0]
        return self.decode(codes_NZ, method=method, seed=seed, **options) if n else []

    # In between

    def interpolate(
        self,
        a: str | ArrayLike,
        b: str | ArrayLike,
        *,
        steps: int = 7,
        path: CodePath = "linear",
        method: Method | None = None,
    ) -> list[str]:
        """Sentences on the way from one to another, both ends included; ends are sentences or codes."""
        ends = [self._checked_codes(self.encode(end) if isinstance(end, str) else end)[0][0] for end in (a, b)]
        return self.decode(interpolated(ends[0].cpu().numpy(), ends[1].cpu().numpy(), steps, path), method=method)

    def vary(
        self, text: str, n: int = 5, *, strength: float = 1.0, method: Method | None = None, seed: int = 0
    ) -> list[Variant]:
        """Sentences near another, like paraphrases: its code is moved at random and decoded.

        At strength 1 the code is a sample of the posterior; at 0 it is the mean, at 2 it strays twice as far. A
        posterior without spread (an autoencoder's) strays by `strength` prior deviations instead.
        """
        if strength < 0:
            raise TextspaceError(f"strength is {strength}: give a number from 0 (the mean itself) up")
        mean_Z, deviation_Z = self.encode(text, what="parameters", output="tensor")
        if not deviation_Z.any() and self.model.prior is not None:
            deviation_Z = self.model.prior("z", {}).stddev
        rows_N = torch.arange(n, device=self.device)
        noise_NZ = Noise(seed, 0, rows_N).normal("vary", (self.dim,), 1)[0].to(mean_Z.dtype)
        moved_NZ = mean_Z + strength * deviation_Z * noise_NZ
        texts = self.decode(moved_NZ, method=method, seed=seed)
        landed_NZ = self.encode(texts, output="tensor")
        return [
            Variant(each, float(moved), float(landed))
            for each, moved, landed in zip(
                texts, (moved_NZ - mean_Z).norm(dim=1), (landed_NZ - mean_Z).norm(dim=1), strict=True
            )
        ]

    def similarity(self, a: Texts | ArrayLike, b: Texts | ArrayLike) -> float | Codes:
        """Cosine of codes: a number for two sentences, a matrix for lists; sentences or codes."""
        (a_NZ, one_a), (b_NZ, one_b) = self._directions_of(a), self._directions_of(b)
        cosines = (a_NZ @ b_NZ.T).cpu().numpy()
        if one_a and one_b:
            return float(cosines[0, 0])
        return cosines[0] if one_a else cosines[:, 0] if one_b else cosines

    def neighbors(
        self, query: str | ArrayLike, corpus: Iterable[str], k: int = 5, *, show_progress: bool = False
    ) -> list[Neighbor]:
        """The k sentences of a corpus whose codes are most like the query's (by cosine); the corpus is streamed."""
        if k < 1:
            raise TextspaceError(f"cannot find {k} neighbours: give a number from 1")
        direction_Z = self._directions_of(query)[0][0]
        best: list[Neighbor] = []
        first = 0
        texts = iter(track(corpus, "searching", show_progress))
        while chunk := list(islice(texts, CHUNK)):
            cosines_N = self._directions_of(chunk)[0] @ direction_Z
            top = cosines_N.topk(min(k, len(chunk)))
            best += [
                Neighbor(chunk[row], value, first + row)
                for value, row in zip(top.values.tolist(), top.indices.tolist(), strict=True)
            ]
            best = sorted(best, key=lambda neighbor: (-neighbor.similarity, neighbor.row))[:k]
            first += len(chunk)
        return best

    def _directions_of(self, given: Texts | ArrayLike) -> tuple[Tensor, bool]:
        """Codes of length 1 of sentences or codes, as a matrix, and whether one was given."""
        is_text = isinstance(given, str) or (isinstance(given, Sequence) and all(isinstance(g, str) for g in given))
        codes_NZ, one = self._checked_codes(self.encode(given, output="tensor") if is_text else given)  # type: ignore[arg-type]
        return _directions(codes_NZ), one

    # How likely

    def score(
        self,
        texts: Texts,
        *,
        samples: int = 100,
        end_token: EndToken = "included",
        seed: int = 0,
        show_progress: bool = False,
    ) -> Likelihood:
        """How likely sentences are, per sentence and per token (`.tokens`), every number named after its bound.

        `.estimates()` sums up; `.nll_N` is each sentence's importance-weighted bound, or exact for a language model.
        """
        split = self._encoded(_listed(texts))
        return likelihood(
            self.model, split, samples=samples, end_token=end_token, seed=seed, keep_tokens=True, progress=show_progress
        )

    def _needs_codes(self) -> None:
        if self.model.posterior is None:
            raise TextspaceError(
                f"{self.recipe.name!r} is a language model and has no codes: it can score and sample; "
                "train a recipe with an encoder to encode and decode"
            )

    def __repr__(self) -> str:
        codes = "no codes" if self.model.posterior is None else f"{self.recipe.latent.dim} dimensions"
        return f"Space({self.recipe.name!r}, {codes}, {len(self.tokenizer):,} tokens, on {self.device})"


def _listed(texts: Texts) -> Sequence[str]:
    return [texts] if isinstance(texts, str) else texts


def _directions(codes_NZ: Tensor) -> Tensor:
    """Every code scaled to length 1."""
    return codes_NZ / codes_NZ.norm(dim=1, keepdim=True).clamp(min=1e-12)
