"""From a source of text to a trained space in a folder."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

import textspace
from textspace import folder as folders
from textspace.config import Recipe
from textspace.data.corpus import Corpus, open_corpus
from textspace.data.encoded import EncodedCorpus, EncodedSplit, encode_corpus
from textspace.data.options import ReadOptions
from textspace.data.tokenizers import Tokenizer, train_tokenizer
from textspace.errors import TextspaceError
from textspace.evaluate.likelihood import likelihood
from textspace.model import Model
from textspace.noise import seed_of
from textspace.recipes import recipe as recipe_named
from textspace.train import checkpoints
from textspace.train.curves import draw_curves
from textspace.train.loop import Trained, Trainer
from textspace.train.processes import Processes

__all__ = ["Prepared", "Rehearsal", "cache_folder", "prepare", "rehearse", "train"]


def cache_folder() -> Path:
    """Where encoded corpora are kept: TEXTSPACE_CACHE, else the user's cache folder."""
    chosen = os.environ.get("TEXTSPACE_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(chosen) if chosen else Path(home) / "textspace"


@dataclass(frozen=True)
class Prepared:
    """Text made ready for a recipe."""

    tokenizer: Tokenizer
    encoded: EncodedCorpus
    corpus: Corpus

    @property
    def fingerprint(self) -> str:
        """Of the splits that decide the weights."""
        return "/".join(self.encoded.splits[name].fingerprint for name in ("train", "valid"))


def prepare(corpus: Corpus, recipe: Recipe, *, tokenizer: Tokenizer | None = None, progress: bool = False) -> Prepared:
    """Train the recipe's tokenizer on the training split (unless one is given) and encode every split."""
    if tokenizer is None:
        if "train" not in corpus.splits:
            raise TextspaceError(f"{corpus.name} has no training split: name a file 'train' or give a single file")
        texts = (record.text for record in corpus.splits["train"])
        tokenizer = train_tokenizer(recipe.text.tokenizer, texts, progress=progress)
    encoded = encode_corpus(
        corpus,
        tokenizer,
        cache=cache_folder(),
        max_tokens=recipe.text.max_tokens,
        over_long=recipe.text.over_long,
        progress=progress,
    )
    return Prepared(tokenizer, encoded, corpus)


def train(
    source: Any,
    recipe: Recipe | str = "default",
    out: Path | str = "space",
    *,
    options: ReadOptions | None = None,
    resume: bool = False,
    init: Path | str | None = None,
    device: str | None = None,
    silent: bool = False,
    curves: bool = True,
    say: Callable[[str], None] = lambda text: None,
) -> Trained:
    """Train a space on a source of text and leave it in a folder.

    Args:
        source: a file, folder or glob, `-`, `builtin`, or what else `open_corpus` takes; or a `Corpus`.
        recipe: a recipe, or the name of one.
        out: the folder.
        options: how to read the source.
        resume: continue the run in `out` from its last checkpoint.
        init: start from the weights and the tokenizer of the space in this folder.
        device: "cpu" or "cuda"; by default the GPU where there is one.
        silent: no progress display.
        curves: draw them at the end.
        say: takes each line about the data and the result.

    Returns:
        How the run ended. The folder holds `recipe.json`, `tokenizer.json`, `model.safetensors` (the best weights),
        `metrics.json`, a model card `README.md`, `steps.jsonl`, `curves.png` and `curves.svg`, and `checkpoints/`.
    """
    recipe = recipe_named(recipe) if isinstance(recipe, str) else recipe
    options = options or ReadOptions()
    folder = Path(out)
    if not resume and checkpoints.newest(folder) is not None:
        raise TextspaceError(f"{folder} already holds a run: add --resume to continue it, or choose another folder")
    processes = Processes(device)
    corpus = source if isinstance(source, Corpus) else open_corpus(source, options, normalise=recipe.text.normalise)
    start = folders.load(init) if init is not None and not resume else None
    known = Tokenizer.load(folder / "tokenizer.json") if resume else start.tokenizer if start else None
    if processes.first:  # the others find the cache filled
        prepared = prepare(corpus, recipe, tokenizer=known, progress=not silent)
        for line in corpus.report.lines():
            say(line)
        if not resume:
            checkpoints.write_file(folder / "recipe.json", recipe.to_json().encode())
            prepared.tokenizer.save(folder / "tokenizer.json")
    processes.wait()
    if not processes.first:
        prepared = prepare(corpus, recipe, tokenizer=Tokenizer.load(folder / "tokenizer.json"))
    splits = _needed(prepared)
    model = Model(recipe, len(prepared.tokenizer))
    if start:
        checkpoints.load_weights(model, checkpoints.weights(start.model), str(init))
    trainer = Trainer(
        recipe,
        model,
        splits["train"],
        splits["valid"],
        folder,
        data=prepared.fingerprint,
        processes=processes,
        mixing=options.mixing,
        silent=silent,
    )
    if resume:
        trainer.resume()
    trained = trainer.run()
    if processes.first:
        metrics: dict[str, Any] = {
            "textspace": textspace.__version__,
            "source": corpus.name,
            "trained": asdict(trained),
            "parameters": model.parameter_counts(),
            "report": corpus.report.lines(),
        }
        for name in ("valid", "test"):
            if name in splits and len(splits[name]):
                measured = likelihood(model, splits[name], seed=seed_of(recipe.training.seed, "validation"))
                metrics[name] = {key: estimate.to_dict() for key, estimate in measured.estimates().items()}
        folders.save(folder, recipe, prepared.tokenizer, model, metrics)
        if curves:
            draw_curves(folder)
    processes.wait()
    return trained


class Rehearsal(NamedTuple):
    """What a training would be like."""

    parts: dict[str, str]
    parameters: dict[str, int]
    sentences: dict[str, int]
    vocabulary: int
    batches_per_epoch: int
    seconds_per_epoch: float
    epochs: int


def rehearse(
    source: Any, recipe: Recipe, *, options: ReadOptions | None = None, device: str | None = None, steps: int = 8
) -> Rehearsal:
    """Prepare the text and the model, time a few steps, and leave nothing behind but the cache of encoded text."""
    options = options or ReadOptions()
    corpus = source if isinstance(source, Corpus) else open_corpus(source, options, normalise=recipe.text.normalise)
    prepared = prepare(corpus, recipe, progress=True)
    splits = _needed(prepared)
    model = Model(recipe, len(prepared.tokenizer))
    with tempfile.TemporaryDirectory() as nowhere:
        processes = Processes(device)
        trainer = Trainer(
            recipe, model, splits["train"], splits["valid"], Path(nowhere), processes=processes, mixing=options.mixing
        )
        seconds = trainer.seconds_per_step(steps)
    batches = len(trainer.stream.plan)
    parts = ("encoder", "pooling", "posterior", "prior", "decoder", "objective")
    return Rehearsal(
        parts={name: _shown(getattr(recipe, name)) for name in parts},
        parameters=model.parameter_counts(),
        sentences={name: len(split) for name, split in splits.items()},
        vocabulary=len(prepared.tokenizer),
        batches_per_epoch=batches,
        seconds_per_epoch=seconds * batches,
        epochs=recipe.training.epochs,
    )


def _shown(part: BaseModel | None) -> str:
    if part is None:
        return "none"
    options = part.model_dump(exclude={"kind"})
    return " ".join([part.kind, *(f"{name}={value}" for name, value in options.items())])  # type: ignore[attr-defined]


def _needed(prepared: Prepared) -> dict[str, EncodedSplit]:
    """The splits, of which training needs two."""
    for name, purpose in (("train", "train on"), ("valid", "validate on")):
        if name not in prepared.encoded.splits or not len(prepared.encoded.splits[name]):
            raise TextspaceError(f"{prepared.corpus.name} has no sentences to {purpose}: give a source with more text")
    return prepared.encoded.splits
