"""The object users hold: sentences to codes, codes to sentences, and what one can do in between."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from textspace import folder as folders
from textspace.config import Recipe
from textspace.data.batching import make_batch, plan_batches
from textspace.data.encoded import EncodedSplit
from textspace.data.normalise import normaliser
from textspace.data.tokenizers import Tokenizer
from textspace.distributions import draw, moments
from textspace.errors import TextspaceError
from textspace.evaluate.likelihood import Likelihood, likelihood
from textspace.generate import Greedy, Method, Sampling, generate
from textspace.inputs import Troubles, check_sentences, checked_codes, is_text, listed
from textspace.model import Model
from textspace.noise import Noise
from textspace.paths import Path as CodePath
from textspace.paths import interpolated
from textspace.progress import track
from textspace.types import EndToken

if TYPE_CHECKING:
    from textspace.data.corpus import Corpus
    from textspace.data.options import ReadOptions
    from textspace.evaluate.examination import Examination
    from textspace.evaluate.measure import Suite
    from textspace.evaluate.reports.report import Report

__all__ = ["Neighbor", "Parameters", "Space", "Variant"]

Codes = NDArray[np.float32]
Texts = str | Sequence[str]

CHUNK = 4096
"""Sentences that streaming methods hold at once."""

DECODED_AT_ONCE = 256
"""Sentences in a batch of decoding unless asked otherwise."""


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
        self.model: Model = model.eval()
        self.metrics = metrics or {}
        self._normalise = normaliser(recipe.text.normalise)

    # Making, keeping, moving

    @classmethod
    def fit(
        cls,
        source: str | Path | Iterable[str] | Mapping[str, Any] | Corpus,
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
            source: a file, folder or other source by name (see `textspace train --help`), a `Corpus`, sentences, or a
                mapping from "train", "valid" and "test" to any of these.
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
        if not isinstance(source, str | Path | Corpus | Mapping):
            source = corpus_of(source, options=options or ReadOptions(), normalise=chosen.text.normalise)
        with tempfile.TemporaryDirectory() as temporary:
            where = Path(out) if out is not None else Path(temporary)
            kept = out is not None
            train(source, chosen, where, options=options, device=device, silent=not show_progress, curves=kept)
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

    def to(self, device: str | torch.device) -> Space:
        """Move the model; returns the space itself."""
        from textspace.train.processes import Processes

        self.model.to(Processes(str(device)).device)
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
            normalize: scale every code to length 1, and its deviation by the same factor.
            batch_size: sentences at once; by default as many as fit. The result does not depend on it.
            show_progress: show a bar.
            seed: of the samples; each sentence's noise is keyed by its position.
        """
        self._needs_codes()
        if what not in ("mean", "sample", "parameters"):
            raise TextspaceError(f"encode cannot give {what!r}: ask for 'mean', 'sample' or 'parameters'")
        if output not in ("numpy", "tensor"):
            raise TextspaceError(f"encode has no output {output!r}: ask for 'numpy' or 'tensor'")
        found = self._encode(self._encoded(listed(texts)), what, batch_size, show_progress, seed)
        if normalize:
            length_N1 = _lengths(found[0])
            found = [codes_NZ / length_N1 for codes_NZ in found]
        shaped: list[Any] = [codes_NZ[0] if isinstance(texts, str) else codes_NZ for codes_NZ in found]
        if output == "numpy":
            shaped = [codes.cpu().numpy() for codes in shaped]
        return Parameters(*shaped) if what == "parameters" else shaped[0]

    def encode_stream(
        self, texts: Iterable[str], *, what: Literal["mean", "sample"] = "mean", seed: int = 0
    ) -> Iterator[tuple[list[str], Codes]]:
        """Chunks of sentences with their codes, for a corpus larger than memory; troubles are told once, at the end."""
        if what not in ("mean", "sample"):
            raise TextspaceError(f"encode_stream cannot give {what!r}: ask for 'mean' or 'sample'")
        for chunk, _, codes_NZ in self._streamed(texts, what, seed):
            yield chunk, codes_NZ.cpu().numpy()

    def _streamed(self, texts: Iterable[str], what: str, seed: int) -> Iterator[tuple[list[str], int, Tensor]]:
        """Chunks of sentences, the position of the first of each, and their codes."""
        self._needs_codes()
        if isinstance(texts, str):
            raise TextspaceError("this takes many sentences: give a list of them, not one string")
        rest, troubles = iter(texts), Troubles()
        while chunk := list(islice(rest, CHUNK)):
            first = troubles.sentences
            split = self._split(chunk, troubles)
            yield chunk, first, self._encode(split, what, None, False, seed, first)[0]
        troubles.warn(self.recipe.text.max_tokens)

    @torch.no_grad()
    def _encode(
        self, split: EncodedSplit, what: str, batch_size: int | None, show_progress: bool, seed: int, first: int = 0
    ) -> list[Tensor]:
        """[means or samples], or [means, deviations], each (N, dim), in the order of the split.

        `first` is the position of the first sentence among all there are, which keys the noise.
        """
        wanted = 2 if what == "parameters" else 1
        codes = [torch.zeros(len(split), self.dim, device=self.device, dtype=self._dtype) for _ in range(wanted)]
        size = {"tokens": 2**14} if batch_size is None else {"size": batch_size}
        plan = plan_batches(split.lengths, **size, seed=0, epoch=0, shuffle=False)  # type: ignore[arg-type]
        for rows in track(plan, "encoding", show_progress, len(plan)):
            batch = make_batch(split, rows).to(self.device)
            noise = Noise(seed, 0, batch.rows_B + first)
            site = self.model.sites(self.model.features(batch.encoder), noise, 1)["z"]
            parts = [site.value_SBZ[0]] if what == "sample" else moments(site.q, noise)[:wanted]
            for whole, part in zip(codes, parts, strict=True):
                whole[batch.rows_B] = part
        return codes

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
            codes: a vector of `dim` numbers, or a matrix with such rows; numpy, tensor or nested lists.
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
        codes_NZ: Tensor | None,
        count: int,
        method: Method,
        batch_size: int | None,
        show_progress: bool,
        seed: int,
    ) -> Iterator[str]:
        """One sentence for each code; a language model has none and makes `count` sentences."""
        size = DECODED_AT_ONCE if batch_size is None else batch_size
        if size < 1:
            raise TextspaceError(f"a batch cannot hold {size} sentences")
        starts = range(0, count, size)
        for start in track(starts, "decoding", show_progress, len(starts)):
            rows_B = torch.arange(start, min(start + size, count), device=self.device)
            codes_BZ = None if codes_NZ is None else codes_NZ[start : start + size]
            made = generate(self.model.decoder, codes_BZ, method, rows_N=rows_B, seed=seed)
            yield from (self.tokenizer.decode(ids) for ids in made.ids)

    def _checked_codes(self, codes: Any) -> tuple[Tensor, bool]:
        """Codes as a matrix on the device, and whether they were one vector."""
        self._needs_codes()
        return checked_codes(codes, self.dim, self.device, self._dtype)

    def _one_code(self, given: str | ArrayLike, what: str) -> Tensor:
        """The code of one sentence, or one code checked."""
        codes_NZ, one = self._codes_of(given)
        if not one:
            raise TextspaceError(f"{what} is one sentence or one code, and these are {len(codes_NZ)}")
        return codes_NZ[0]

    def _codes_of(self, given: Texts | ArrayLike) -> tuple[Tensor, bool]:
        """Codes of sentences, or codes checked, as a matrix; and whether one was given."""
        codes = self.encode(given, output="tensor") if is_text(given) else given  # type: ignore[arg-type]
        return self._checked_codes(codes)

    @property
    def _dtype(self) -> torch.dtype:
        return next(self.model.parameters()).dtype

    def reconstruct(
        self,
        texts: Texts,
        *,
        what: Literal["mean", "sample"] = "mean",
        method: Method | None = None,
        batch_size: int | None = None,
        show_progress: bool = False,
        seed: int = 0,
    ) -> str | list[str]:
        """Encode and decode again: how much of a sentence its code holds."""
        if what not in ("mean", "sample"):
            raise TextspaceError(f"reconstruct cannot decode {what!r}: ask for 'mean' or 'sample'")
        both: dict[str, Any] = {"batch_size": batch_size, "show_progress": show_progress, "seed": seed}
        return self.decode(self.encode(texts, what=what, output="tensor", **both), method=method, **both)

    @torch.no_grad()
    def sample(
        self,
        n: int = 1,
        *,
        method: Method | None = None,
        batch_size: int | None = None,
        show_progress: bool = False,
        seed: int = 0,
    ) -> list[str]:
        """New sentences: codes from the prior, words sampled from the decoder (or by another method)."""
        if n < 0:
            raise TextspaceError(f"cannot sample {n} sentences: give a number from 0")
        codes_NZ = None if self.model.prior is None else self._prior_codes(n, seed)
        return list(self._decode(codes_NZ, n, method or Sampling(), batch_size, show_progress, seed))

    def prior_codes(self, n: int, *, seed: int = 0) -> Codes:
        """Codes drawn from the prior: those that `sample` decodes."""
        self._needs_codes()
        return self._prior_codes(n, seed).cpu().numpy()

    @torch.no_grad()
    def _prior_codes(self, n: int, seed: int) -> Tensor:
        prior = self.model.prior("z", {}).expand((n, self.dim))  # type: ignore[misc]
        return draw(prior, Noise(seed, 0, torch.arange(n, device=self.device)), "prior", 1)[0]

    # In between

    def interpolate(
        self,
        a: str | ArrayLike,
        b: str | ArrayLike,
        *,
        steps: int = 7,
        path: CodePath = "linear",
        method: Method | None = None,
        seed: int = 0,
    ) -> list[str]:
        """Sentences on the way from one to another, both ends included; ends are sentences or codes."""
        start_Z, end_Z = (self._one_code(end, "an end").cpu().numpy() for end in (a, b))
        return self.decode(interpolated(start_Z, end_Z, steps, path), method=method, seed=seed)

    def vary(
        self, text: str, n: int = 5, *, strength: float = 1.0, method: Method | None = None, seed: int = 0
    ) -> list[Variant]:
        """Sentences near another, like paraphrases: its code is moved at random and decoded.

        At strength 1 the code is a sample of the posterior; at 0 it is the mean, at 2 it strays twice as far. A
        posterior without spread (an autoencoder's) strays by `strength` prior deviations instead.
        """
        if not isinstance(text, str):
            raise TextspaceError(f"vary takes one sentence, not a {type(text).__name__}: give a string")
        if n < 0:
            raise TextspaceError(f"cannot make {n} variants: give a number from 0")
        if not 0 <= strength < math.inf:
            raise TextspaceError(f"strength is {strength}: give a number from 0 (the mean itself) up")
        mean_Z, deviation_Z = self.encode(text, what="parameters", output="tensor")
        if not deviation_Z.any() and self.model.prior is not None:
            deviation_Z = self.model.prior("z", {}).stddev
        rows_N = torch.arange(n, device=self.device)
        noise_NZ = Noise(seed, 0, rows_N).normal("vary", (self.dim,), 1, mean_Z.dtype)[0]
        moved_NZ = mean_Z + strength * deviation_Z * noise_NZ
        texts = self.decode(moved_NZ, method=method, seed=seed)
        split = self._split(texts, Troubles())  # which are not told: these are not the user's sentences
        landed_NZ = self._encode(split, "mean", None, False, 0)[0]
        return [
            Variant(each, float(moved), float(landed))
            for each, moved, landed in zip(
                texts, (moved_NZ - mean_Z).norm(dim=1), (landed_NZ - mean_Z).norm(dim=1), strict=True
            )
        ]

    def similarity(self, a: Texts | ArrayLike, b: Texts | ArrayLike) -> float | Codes:
        """Cosine of codes: a number for two sentences, a matrix for lists; sentences or codes."""
        (a_NZ, one_a), (b_NZ, one_b) = self._codes_of(a), self._codes_of(b)
        cosines = (_directions(a_NZ) @ _directions(b_NZ).T).cpu().numpy()
        if one_a and one_b:
            return float(cosines[0, 0])
        return cosines[0] if one_a else cosines[:, 0] if one_b else cosines

    def neighbors(
        self, query: str | ArrayLike, corpus: Iterable[str], k: int = 5, *, show_progress: bool = False
    ) -> list[Neighbor]:
        """The k sentences of a corpus whose codes are most like the query's (by cosine); the corpus is streamed."""
        if k < 1:
            raise TextspaceError(f"cannot find {k} neighbours: give a number from 1")
        direction_Z = _directions(self._one_code(query, "the query")[None])[0]
        best: list[Neighbor] = []
        for chunk, first, codes_NZ in self._streamed(track(corpus, "searching", show_progress), "mean", 0):
            # Sorted and not torch.topk, which of equal numbers takes any.
            top = (_directions(codes_NZ) @ direction_Z).sort(descending=True, stable=True)
            best += [
                Neighbor(chunk[row], value, first + row)
                for value, row in zip(top.values[:k].tolist(), top.indices[:k].tolist(), strict=True)
            ]
            best = sorted(best, key=lambda neighbor: (-neighbor.similarity, neighbor.row))[:k]
        return best

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
        if samples < 0:
            raise TextspaceError(f"cannot take {samples} samples: give a number from 0 (no importance-weighted bound)")
        if end_token not in get_args(EndToken):
            raise TextspaceError(f"end_token is {end_token!r}: use 'included' or 'dropped'")
        split = self._encoded(listed(texts))
        return likelihood(
            self.model, split, samples=samples, end_token=end_token, seed=seed, keep_tokens=True, progress=show_progress
        )

    def examine(self, texts: Texts, *, seed: int = 0, show_progress: bool = False) -> Examination:
        """What the codes of sentences look like, and in plain words whether they are well: `.diagnosis`, `.numbers`."""
        from textspace.evaluate.examination import examine

        split = self._encoded(listed(texts))
        return examine(self.model, split, self.recipe, seed=seed, progress=show_progress)

    def evaluate(
        self,
        source: Any,
        *,
        suite: Suite = "quick",
        measures: Iterable[str] = (),
        options: ReadOptions | None = None,
        tasks: Path | None = None,
        cache: Path | None = None,
        seed: int = 0,
        show_progress: bool = False,
    ) -> Report:
        """How good the space is on some text: a suite of measures, or those named.

        Args:
            source: as for `fit`; its test split is measured on.
            suite: "quick", "standard" or "full".
            measures: instead of the suite's, by name (`textspace evaluate --list`).
            options: how to read the source, such as its label column.
            tasks: folder with files of sentence-pair and transfer tasks.
            cache: folder where finished measures are kept.
            seed: of all randomness.
            show_progress: show bars.

        Returns:
            A report: `.entries` by measure, `.save(folder)` writes JSON, Markdown and a page.
        """
        from textspace.evaluate import suite as suites

        effort = suites.SUITES[suite]
        subject = suites.subject_of(
            self, source, effort=effort, seed=seed, options=options, task_files=tasks, show_progress=show_progress
        )
        return suites.evaluate(subject, suites.chosen_measures(suite, list(measures)), suite=suite, cache=cache)

    def _needs_codes(self) -> None:
        if self.model.posterior is None:
            raise TextspaceError(
                f"{self.recipe.name!r} is a language model and has no codes: it can score and sample; "
                "train a recipe with an encoder to encode and decode"
            )

    def __repr__(self) -> str:
        codes = "no codes" if self.model.posterior is None else f"{self.recipe.latent.dim} dimensions"
        return f"Space({self.recipe.name!r}, {codes}, {len(self.tokenizer):,} tokens, on {self.device})"


def _lengths(codes_NZ: Tensor) -> Tensor:
    """(N, 1), above 0 so that one can divide by them."""
    return codes_NZ.norm(dim=1, keepdim=True).clamp(min=1e-12)


def _directions(codes_NZ: Tensor) -> Tensor:
    """Every code scaled to length 1."""
    return codes_NZ / _lengths(codes_NZ)
