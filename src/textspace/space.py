"""The object users hold: sentences to codes, codes to sentences, and what one can do in between."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from numpy.typing import ArrayLike

from textspace import folder as folders
from textspace.checks import seed_number, whole_number
from textspace.coder import Coder
from textspace.config import Recipe
from textspace.encoding import Codes, Parameters, Texts, directions
from textspace.errors import TextspaceError
from textspace.evaluate.likelihood import Likelihood, lengths_for, likelihood
from textspace.generate import Method
from textspace.inputs import Troubles, check_sentences, is_by_name, listed, warn
from textspace.marks import marks_in, token_positions
from textspace.paths import Path as CodePath
from textspace.paths import interpolated
from textspace.sampling import check_strength
from textspace.token_losses import Precision
from textspace.types import EndToken

if TYPE_CHECKING:
    from textspace.data.corpus import Corpus
    from textspace.data.options import ReadOptions
    from textspace.evaluate.examination import Examination
    from textspace.evaluate.measure import Suite
    from textspace.evaluate.reports.report import Report
    from textspace.evaluate.suite import EndTokens

__all__ = ["Neighbor", "Parameters", "Space", "Variant", "recipe_with"]


class Variant(NamedTuple):
    """A sentence near another: how far its code was moved, and how far from the start re-encoding it lands.

    Where every token has a code, both are distances of the means over a sentence's tokens: the variant may have more
    tokens than the sentence, or fewer.
    """

    text: str
    moved: float
    landed: float


class Neighbor(NamedTuple):
    text: str
    similarity: float
    row: int
    """Position in the corpus, from 0."""


class Space(Coder):
    """A trained latent space of text.

    >>> space = Space.fit(["anna sees cats", "bob sees dogs", "carl likes cats"] * 30, "vae", epochs=1)
    >>> space.encode("anna sees dogs").shape, space.encode(["bob likes cats", "anna"]).shape, space.encode([]).shape
    ((32,), (2, 32), (0, 32))
    >>> type(space.decode(space.encode("anna sees dogs"))).__name__
    'str'
    """

    # Making, keeping, moving

    @classmethod
    def fit(
        cls,
        source: str | Path | Iterable[str | Path] | Mapping[str, Any] | Corpus,
        recipe: Recipe | str = "default",
        *,
        out: Path | str | None = None,
        epochs: int | None = None,
        seed: int | None = None,
        sparsity: float | None = None,
        settings: str | Iterable[str] = (),
        options: ReadOptions | None = None,
        device: str | torch.device | None = None,
        show_progress: bool = False,
    ) -> Space:
        """Train a space.

        Args:
            source: the name of a file, folder, glob or dataset, "builtin" or "-" (see `open_corpus`), a list of such
                names, a `Corpus`, sentences, or a mapping from "train", "valid" and "test" to a name or sentences.
            recipe: a recipe or the name of one.
            out: the folder to leave it in; by default nothing is kept on disk.
            epochs: at most so many.
            seed: of all randomness.
            sparsity: share of the dimensions that shall be off, for recipes with gates like "hsvae".
            settings: changes to the recipe, like "latent.dim=64".
            options: how to read the source.
            device: "cpu" or "cuda"; by default the GPU where there is one.
            show_progress: show how training goes, and what is to be said of the text; without it what is wrong with
                the text or the codes is a warning.
        """
        seed = None if seed is None else seed_number(seed)
        from textspace.data.options import ReadOptions
        from textspace.recipes import with_sparsity
        from textspace.train.fit import train

        settings = list(settings) if isinstance(settings, Iterable) and not isinstance(settings, str) else settings
        shorthands = {"training.epochs": epochs, "training.seed": seed}
        chosen = recipe_with(recipe, settings).but({path: n for path, n in shorthands.items() if n is not None})
        chosen = chosen if sparsity is None else with_sparsity(chosen, sparsity)
        if recipe_with(chosen, settings) != chosen:
            raise TextspaceError("settings and epochs, seed or sparsity say two things of one setting: leave out one")
        corpus = _corpus(source, options or ReadOptions(), chosen)
        device = None if device is None else str(device)
        with tempfile.TemporaryDirectory() as temporary:
            where = folders.named(temporary if out is None else out)
            kept = out is not None
            say = partial(print, file=sys.stderr) if show_progress else lambda text: None
            train(corpus, chosen, where, options=options, device=device, silent=not show_progress, curves=kept, say=say)
            space = cls.load(where, device)
        if not show_progress:
            for told in _troubles(space.metrics, corpus):
                warn(told)
        return space

    @classmethod
    def load(cls, folder: Path | str, device: str | torch.device | None = None) -> Space:
        """The space in a folder; nothing in the folder is ever executed."""
        from textspace.train.processes import Processes

        saved = folders.load(folder, str(Processes(device).device))
        return cls(saved.recipe, saved.tokenizer, saved.model, saved.metrics)

    def save(self, folder: Path | str) -> None:
        """Write the space into a folder: recipe, weights, tokenizer, metrics and a model card.

        One that was saved there before is written over; a run of another space, or somebody's own files, are not.
        """
        folders.check_writable(folders.named(folder), self.recipe, self.metrics)
        folders.save(folder, self.recipe, self.tokenizer, self.model, self.metrics)

    def to(self, device: str | torch.device) -> Space:
        """Move the model; returns the space itself."""
        from textspace.train.processes import Processes

        self.model.to(Processes(device).device)
        return self

    # In between

    def interpolate(
        self,
        a: str | ArrayLike,
        b: str | ArrayLike,
        *,
        steps: int = 7,
        path: CodePath = "linear",
        ends: Literal["mean", "sample"] = "mean",
        method: Method | str | None = None,
        seed: int = 0,
    ) -> list[str]:
        """Sentences on the way from one to another, both ends included.

        Ends are sentences or codes. Sentences stand for their posteriors' means, or for samples of them, as in
        sentenceMIM [Livne et al. 2020], each end with its own noise. Where every token has a code, each goes its own
        way; in between, both ends count as equally long, and tokens that one lacks are at zero, the prior's mean.
        """
        seed = seed_number(seed)
        if ends not in ("mean", "sample"):
            raise TextspaceError(f"ends cannot be {ends!r}: use 'mean' or 'sample'")
        start_Z, end_Z = (
            self._one_code(end, "an end", ends, row, seed).cpu().numpy() for row, end in enumerate((a, b))
        )
        return self.decode(interpolated(start_Z, end_Z, steps, path), method=method, seed=seed)

    def vary(
        self,
        text: str,
        n: int = 5,
        *,
        tokens: str | Sequence[str] | None = None,
        strength: float = 1.0,
        method: Method | str | None = None,
        seed: int = 0,
    ) -> list[Variant]:
        """Sentences near another, like paraphrases: its code is moved at random and decoded.

        At strength 1 the code is a sample of the posterior; at 0 it is the mean, at 2 it strays twice as far, and
        sentenceMIM's paper goes to 10. A posterior without spread (an autoencoder's) strays by `strength` prior
        deviations instead.

        Where every token has a code, words can be marked, as in "the [food] was great": then their tokens alone are
        moved, and all others stay at their means. Plain brackets are written \\[ and \\].

        Args:
            text: a sentence.
            n: how many variants.
            tokens: words to move instead of marked ones, all places of each; the text is then taken as it is.
            strength: how far codes stray, see above.
            method: how to choose words; `Greedy()` by default.
            seed: of all randomness.
        """
        seed = seed_number(seed)
        if not isinstance(text, str):
            raise TextspaceError(f"vary takes one sentence, not a {type(text).__name__}: give a string")
        n = whole_number(n, 0, f"cannot make {n!r} variants")
        self._needs_codes()
        check_strength(strength)
        check_sentences([text], first=1)
        plain, marks = marks_in(text, tokens, self.normalise)
        if marks.spans and not self.is_token_level:
            raise TextspaceError(
                "single words can be varied where every token has a code, and in this space a sentence has one: mark "
                "none, and write \\[ and \\] for plain brackets"
            )
        split = self.read([plain])
        positions = token_positions(marks, split, self.tokenizer) if marks.spans else None
        mean, moved = self._around(split, n, strength, seed, positions)
        texts = self.decode(moved, method=method, seed=seed)
        split = self._split(texts, Troubles())  # which are not told: these are not the user's sentences
        landed_NZ = self._encode(split, "mean", None, False, 0, pool=self._pool)[0]
        if self.is_token_level:
            mean, moved = mean.mean(0), moved.mean(1)
        distances = ((codes_NZ - mean).norm(dim=1).tolist() for codes_NZ in (moved, landed_NZ))
        return [Variant(*each) for each in zip(texts, *distances, strict=True)]

    def similarity(self, a: Texts | ArrayLike, b: Texts | ArrayLike) -> float | Codes:
        """Cosine of codes: a number for two sentences, a matrix for lists; sentences or codes.

        Where every token has a code, a sentence counts by the mean of them.
        """
        (a_NZ, one_a), (b_NZ, one_b) = self._vectors_of(a), self._vectors_of(b)
        cosines = (directions(a_NZ) @ directions(b_NZ).T).clamp(-1, 1).cpu().numpy()
        if one_a and one_b:
            return float(cosines[0, 0])
        return cosines[0] if one_a else cosines[:, 0] if one_b else cosines

    def neighbors(
        self, query: str | ArrayLike, corpus: Iterable[str], k: int = 5, *, show_progress: bool = False
    ) -> list[Neighbor]:
        """The k sentences of a corpus whose codes are most like the query's (by cosine); the corpus is streamed.

        Where every token has a code, a sentence counts by the mean of them.
        """
        k = whole_number(k, 1, f"cannot find {k!r} neighbours")
        code = self._one_code(query, "the query")
        direction_Z = directions((code.mean(0) if self.is_token_level else code)[None])[0]
        best: list[Neighbor] = []
        bar = "searching" if show_progress else None
        for chunk, first, codes_NZ in self._streamed(corpus, "mean", 0, pool=self._pool, bar=bar):
            # Sorted and not torch.topk, which of equal numbers takes any.
            top = (directions(codes_NZ) @ direction_Z).clamp(-1, 1).sort(descending=True, stable=True)
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
        precision: Precision = "float32",
        show_progress: bool = False,
    ) -> Likelihood:
        """How likely sentences are, per sentence and per token (`.tokens`), every number named after its bound.

        `.estimates()` sums up; `.nll_N` is each sentence's importance-weighted bound, or exact for a language model.
        On a GPU "tf32" and "bf16" are several times as fast as "float32", and off by hundredths of a nat.
        Training sentences make a space look better than it is: `textspace.evaluate.held_out.held_out_note` finds them.
        """
        seed = seed_number(seed)
        problem = f"cannot take {samples!r} samples (0 is for no importance-weighted bound)"
        samples = whole_number(samples, 0, problem)
        lengths = lengths_for(end_token, self.metrics)
        return likelihood(
            self.model,
            self.read(listed(texts)),
            samples=samples,
            end_token=end_token,
            lengths=lengths,
            seed=seed,
            precision=precision,
            keep_tokens=True,
            progress=show_progress,
        )

    def examine(self, texts: Texts, *, seed: int = 0, show_progress: bool = False) -> Examination:
        """What the codes of sentences look like, and in plain words whether they are well: `.diagnosis`, `.numbers`."""
        from textspace.evaluate.examination import examine

        seed = seed_number(seed)
        split = self.read(listed(texts))
        return examine(self.model, split, self.recipe, seed=seed, progress=show_progress)

    def evaluate(
        self,
        source: Any,
        *,
        suite: Suite = "quick",
        measures: str | Iterable[str] = (),
        options: ReadOptions | None = None,
        tasks: str | Path | None = None,
        baselines: str | Iterable[str] = (),
        samples: int | None = None,
        end_token: EndTokens = "included",
        precision: Precision = "float32",
        cache: str | Path | None = None,
        seed: int = 0,
        show_progress: bool = False,
    ) -> Report:
        """How good the space is on some text: a suite of measures, or those named.

        Args:
            source: as for `fit`; its test split is measured on, or all sentences where they are given.
            suite: "quick", "standard" or "full".
            measures: instead of the suite's, one name or several (`textspace evaluate --list`).
            options: how to read the source, such as its label column.
            tasks: folder with files of sentence-pair and transfer tasks.
            baselines: encoders of Hugging Face, folders or names of the hub, one or several, that some measures put
                beside the space.
            samples: importance samples, instead of the suite's number.
            end_token: how sentences end in likelihoods, as for `score`; "both" measures with the end and without.
            precision: of the decoder's matrix products in likelihoods, as for `score`.
            cache: folder where finished measures are kept.
            seed: of all randomness.
            show_progress: show bars.

        Returns:
            A report: `.entries` by measure, `.save(folder)` writes JSON, Markdown and a page.
        """
        from textspace.data.corpus import Corpus
        from textspace.evaluate import suite as suites

        seed = seed_number(seed)
        effort = suites.effort_of(suite, samples, precision)
        chosen = suites.chosen_measures(suite, _names(measures), end_token)
        if not isinstance(source, Corpus) and not is_by_name(source):
            source = {"test": source}
        subject = suites.subject_of(
            self,
            source,
            effort=effort,
            seed=seed,
            options=options,
            task_files=None if tasks is None else Path(tasks),
            baselines=_names(baselines),
            show_progress=show_progress,
        )
        kept = None if cache is None else Path(cache)
        return suites.evaluate(subject, chosen, suite=suite, cache=kept)

    def __repr__(self) -> str:
        codes = "no codes" if self.model.posterior is None else f"{self.recipe.latent.dim} dimensions"
        codes += " for each token" if self.is_token_level else ""
        return f"Space({self.recipe.name!r}, {codes}, {len(self.tokenizer):,} tokens, on {self.device})"


def _corpus(source: Any, options: ReadOptions, recipe: Recipe) -> Corpus:
    """What a user gives to learn from."""
    from textspace.data.corpus import Corpus, corpus_of, open_corpus

    if isinstance(source, Corpus):
        return source
    if is_by_name(source):
        return open_corpus(source, options, normalise=recipe.text.normalise)
    if not isinstance(source, Iterable):
        raise TextspaceError(f"cannot learn from {source!r}: give a file's name, or a list of sentences")
    return corpus_of(source, options=options, normalise=recipe.text.normalise)


def _names(given: str | Iterable[str]) -> list[str]:
    """One name or several as a list."""
    return [given] if isinstance(given, str) else list(given)


def _troubles(metrics: Mapping[str, Any], corpus: Corpus) -> list[str]:
    """What training has found wrong with the text and with the codes."""
    of_text = [line for line in metrics["report"] if line not in corpus.report.notes]
    diagnosis = metrics["examination"]["diagnosis"]
    is_bad = diagnosis["state"] in ("collapsed", "collapsing", "overfull")
    return [*of_text, *([diagnosis["sentence"]] if is_bad else [])]


def recipe_with(recipe: Recipe | str, settings: str | Iterable[str]) -> Recipe:
    """A recipe, or the one of a name, with settings."""
    from textspace.recipes import recipe as recipe_named

    chosen = recipe_named(recipe) if isinstance(recipe, str) else recipe
    if not isinstance(chosen, Recipe):
        raise TextspaceError(f"recipe is of type {type(chosen).__name__}: give a recipe or the name of one")
    return chosen.with_settings(settings)
