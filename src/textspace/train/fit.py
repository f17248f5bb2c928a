"""From a source of text to a trained space in a folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import textspace
from textspace import folder as folders
from textspace.coder import Coder
from textspace.config import Recipe
from textspace.data.batching import Mixing
from textspace.data.content import TRAINING_TEXT, Sketch
from textspace.data.corpus import Corpus, open_corpus
from textspace.data.encoded import EncodedSplit
from textspace.data.options import ReadOptions
from textspace.data.preparing import Prepared, cache_folder, needed_splits, prepare
from textspace.digits import number
from textspace.encoding import is_on
from textspace.errors import TextspaceError
from textspace.evaluate.examination import History, examine
from textspace.evaluate.likelihood import likelihood
from textspace.evaluate.sources import estimates_by_source, source_names
from textspace.files import alone_in, check_no_file, read_json, write_file
from textspace.lengths import METRIC, Lengths
from textspace.model import Model
from textspace.noise import seed_of
from textspace.recipes import recipe as recipe_named
from textspace.recipes.sparse import asked_share
from textspace.token_codes import TokenCodes
from textspace.train.beginning import Beginning, Noted, check_free
from textspace.train.curves import draw_curves
from textspace.train.loop import Interrupted, Trained, Trainer
from textspace.train.notes import notes_on, unknown_shares
from textspace.train.pretraining import pretrain
from textspace.train.processes import Processes
from textspace.train.record import KEPT, TRAINED, RunRecord
from textspace.train.resuming import with_own_length_of_first_phase
from textspace.train.selection import notes_on_criterion

__all__ = ["train"]

PRETRAINING, PRETRAINING_LOG = "pretraining.json", "pretraining.jsonl"
"""How the first phase of a two-phase run ended, and its log."""


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
        How the run ended. The folder holds `recipe.json`, `tokenizer.json`, `model.safetensors` (the weights that
        `training.criterion` keeps), `metrics.json`, a model card `README.md`, `steps.jsonl`, `curves.png` and
        `curves.svg`, and `checkpoints/`; `begun.json` says what it began with; with a pretrained encoder there is also
        `encoder/`; of a two-phase recipe also `pretraining.json`, `pretraining.jsonl` and `pretraining-curves.png` of
        the first phase.
    """
    recipe = recipe_named(recipe) if isinstance(recipe, str) else recipe
    options = options or ReadOptions()
    folder = folders.named(out)
    recipe = recipe if resume else with_own_length_of_first_phase(recipe)
    processes = Processes(device)
    if processes.count > 1 and "-" in (source if isinstance(source, list | tuple) else [source]):
        raise TextspaceError("several processes cannot read one standard input: write the text to a file first")
    check_no_file(folder, "choose another folder with --out")
    # The first process holds the lock for all of them.
    with alone_in(folder, "choose another folder with --out") if processes.first else nullcontext():
        if not resume:
            check_free(folder, recipe)
        corpus = source if isinstance(source, Corpus) else open_corpus(source, options, normalise=recipe.text.normalise)
        beginning = Beginning.of(recipe, folder if resume else None, init, options.mixing or corpus.mixing)
        recipe = beginning.with_own_tokenizer(recipe)
        return _trained(corpus, recipe, folder, beginning, processes, silent, curves, say)


def _trained(
    corpus: Corpus,
    recipe: Recipe,
    folder: Path,
    beginning: Beginning,
    processes: Processes,
    silent: bool,
    curves: bool,
    say: Callable[[str], None],
) -> Trained:
    """Train from the beginning to the end; arguments as of `train`."""

    def made(prepared: Prepared) -> tuple[dict[str, EncodedSplit], Model]:
        return needed_splits(prepared), beginning.model(recipe, prepared.tokenizer)

    if processes.first:  # the others find the cache filled
        prepared = prepare(corpus, recipe, tokenizer=beginning.tokenizer, progress=not silent)
        notes = [*notes_on(prepared, beginning.learnt_before), *notes_on_criterion(recipe)]
        for line in notes:
            say(line)
        splits, model = made(prepared)  # before anything is written: weights may be missing, or of another model
        noted = Noted.read(folder) if beginning.resumed else None
        if noted and noted.data != prepared.fingerprint:
            raise TextspaceError(f"the run in {folder} began with other text: resume with the same source and options")
        if not beginning.goes_on:  # in this order: what resuming needs comes first, and nothing is half written
            Noted.of(prepared.fingerprint, beginning, recipe).write(folder)
            write_file(folder / folders.RECIPE, recipe.to_json().encode())
            folders.save_tokenizer(folder, prepared.tokenizer)
        facts = _facts(corpus, recipe, prepared, splits, model, notes, folder, beginning)
        record = RunRecord(folder, facts, lambda metrics: folders.card(recipe, prepared.tokenizer, model, metrics))
        record.begin()
    processes.wait()
    if not processes.first:
        prepared = prepare(corpus, recipe, tokenizer=folders.load_tokenizer(folder, recipe))
        splits, model = made(prepared)
    if beginning.has_first_phase:
        _first_phase(recipe, model, prepared, folder, beginning.mixing, processes, silent, say)
    trainer = Trainer(
        recipe,
        model,
        splits["train"],
        splits["valid"],
        folder,
        data=prepared.fingerprint,
        processes=processes,
        mixing=beginning.mixing,
        silent=silent,
        **({"write_best": record.replace_weights} if processes.first else {}),
    )
    if beginning.goes_on:
        trainer.resume()
        if processes.first and recipe.training.epochs >= trainer.stream.position:  # it may be to go on for longer
            folders.replace_recipe(folder, recipe)
    trained = trainer.run()
    if processes.first:
        metrics: dict[str, Any] = record.facts | {TRAINED: asdict(trained), KEPT: trainer.kept()._asdict()}
        with suppress(OSError, ValueError):  # not there, or damaged
            metrics["pretraining"] = read_json(folder / PRETRAINING)
        seed = seed_of(recipe.training.seed, "validation")  # as validations have it, so that they say the same
        for name in ("valid", "test"):
            if name in splits and len(splits[name]):
                measured = likelihood(model, splits[name], seed=seed)
                metrics[name] = {key: estimate.to_dict() for key, estimate in measured.estimates().items()}
                if apart := estimates_by_source(measured, splits[name].sources, source_names(corpus)):
                    metrics.setdefault("by_source", {})[name] = {
                        source: {key: estimate.to_dict() for key, estimate in found.items()}
                        for source, found in apart.items()
                    }
                if name == "valid":
                    history = History.of(folder, metrics).earlier
                    epochs = trainer.stream.position
                    examination = examine(
                        model, splits[name], recipe, seed=seed, scored=measured, history=history, epochs=epochs
                    )
                    metrics["examination"] = examination.to_dict()
                    if recipe.posterior is not None and str(examination.diagnosis) != trainer.told:
                        say(str(examination.diagnosis))
        if (asked := asked_share(recipe)) is not None:
            coder = Coder(recipe, prepared.tokenizer, model)
            metrics["sparsity"] = {"asked": asked.off, **_share_off(coder, splits["valid"])}
            say(_sparsity_told(metrics["sparsity"]))
        folders.save(folder, recipe, prepared.tokenizer, model, metrics)
        if curves:
            unit = "token" if model.is_token_level else "sentence"
            draw_curves(folder / "steps.jsonl", folder / "curves", unit)
            if (folder / PRETRAINING_LOG).exists():
                draw_curves(folder / PRETRAINING_LOG, folder / "pretraining-curves", unit)
    processes.wait()
    return trained


def _facts(
    corpus: Corpus,
    recipe: Recipe,
    prepared: Prepared,
    splits: dict[str, EncodedSplit],
    model: Model,
    notes: list[str],
    folder: Path,
    beginning: Beginning,
) -> dict[str, Any]:
    """What a space's record says of the text and the model, whatever training will bring."""
    facts: dict[str, Any] = {
        "textspace": textspace.__version__,
        "source": corpus.name,
        TRAINING_TEXT: _text_of_training(prepared, folder),
        "parameters": model.parameter_counts(),
        "report": notes,
        "unknown": unknown_shares(splits),
        METRIC: Lengths.of(splits["train"].lengths - 2, recipe.text.max_tokens).to_dict(),
    }
    if beginning.init is not None:
        facts["started_from"] = str(beginning.init)
    if len(corpus.sources) > 1:
        facts |= {"sources": list(source_names(corpus)), "mixing": beginning.mixing}
    return facts


def _text_of_training(prepared: Prepared, folder: Path) -> dict[str, Any]:
    """What the text was, with what the space it started from had learnt from before."""
    content = prepared.encoded.contents["train"]
    noted = Noted.read(folder)
    earlier = noted.sketch if noted else None
    return content.text | ({"sketch": Sketch.of(content.sketch.written, earlier).written} if earlier else {})


def _first_phase(
    recipe: Recipe,
    model: Model,
    prepared: Prepared,
    folder: Path,
    mixing: Mixing,
    processes: Processes,
    silent: bool,
    say: Callable[[str], None],
) -> None:
    """Put the encoder of the first phase into the model, and what is to be known of that phase into the folder."""
    if processes.first:
        say(f"first phase of {recipe.name}: an autoencoder, kept in the cache for other runs")
    try:
        first = pretrain(
            recipe,
            len(prepared.tokenizer),
            needed_splits(prepared),
            cache_folder(),
            data=prepared.fingerprint,
            processes=processes,
            mixing=mixing,
            silent=silent,
        )
    except Interrupted:
        raise Interrupted(f"stopped in the first phase; resume with --resume --out {folder}") from None
    first.keep(model, recipe)
    if not processes.first:
        return
    write_file(folder / PRETRAINING, (json.dumps(first.summary(), indent=1) + "\n").encode())
    write_file(folder / PRETRAINING_LOG, (first.folder / "steps.jsonl").read_bytes())
    trained = first.trained
    done = "found in the cache" if first.reused else f"done in {trained.seconds:.0f} s"
    say(
        f"first phase {done}: {trained.epochs} epochs, best {trained.criterion} {number(trained.best)}; second phase: "
        f"{recipe.pretrain.keep if recipe.pretrain else ''} kept"
    )


def _share_off(coder: Coder, split: EncodedSplit) -> dict[str, float | None]:
    """The share of dimensions whose gates are more probably off than on in a sentence (or in a token, where each has a
    code), and the mean gate."""
    if not coder.model.has_gates:
        return {"achieved": None, "mean_gate": None}
    (on_NZ,) = coder._encode(split, "gates", None, False, 0)
    probability_NZ = (on_NZ.values_MZ if isinstance(on_NZ, TokenCodes) else on_NZ).double()
    share_on = float(is_on(probability_NZ).double().mean())
    return {"achieved": 1 - share_on, "mean_gate": 1 - float(probability_NZ.mean())}


def _sparsity_told(sparsity: dict[str, Any]) -> str:
    if sparsity["achieved"] is None:
        return f"sparsity {sparsity['asked']:.2f} was asked of the prior; these codes have no gates that could be off"
    return (
        f"sparsity: of a validation sentence's dimensions {sparsity['achieved']:.2f} are off (E[gamma|x] > 0.5; mean "
        f"gate {sparsity['mean_gate']:.2f}), asked for {sparsity['asked']:.2f}"
    )
