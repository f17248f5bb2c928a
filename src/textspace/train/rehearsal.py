"""A rehearsal: what a training would be like, before one waits for it."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from textspace.config import Recipe
from textspace.data.corpus import Corpus, open_corpus
from textspace.data.options import ReadOptions
from textspace.data.preparing import needed_splits, prepare
from textspace.train.beginning import Beginning
from textspace.train.loop import Trainer
from textspace.train.notes import notes_on
from textspace.train.processes import Processes
from textspace.train.resuming import with_own_length_of_first_phase
from textspace.train.selection import notes_on_criterion

__all__ = ["Rehearsal", "rehearse"]


class Rehearsal(NamedTuple):
    """What a training would be like."""

    parts: dict[str, str]
    parameters: dict[str, int]
    sentences: dict[str, int]
    vocabulary: int
    batches_per_epoch: int
    seconds_per_epoch: float
    epochs: int
    """At most; of the second phase where there are two."""
    epochs_before: int
    """Of a first phase, 0 where there is none."""
    notes: list[str]


def rehearse(
    source: Any,
    recipe: Recipe,
    *,
    options: ReadOptions | None = None,
    resumed: Path | None = None,
    init: Path | str | None = None,
    device: str | None = None,
    steps: int = 8,
) -> Rehearsal:
    """Prepare the text and the model, time a few steps, and leave nothing behind but the cache of encoded text.

    `resumed` is the folder of a run that would go on, `init` that of a space to start from.
    """
    options = options or ReadOptions()
    recipe = with_own_length_of_first_phase(recipe)
    corpus = source if isinstance(source, Corpus) else open_corpus(source, options, normalise=recipe.text.normalise)
    beginning = Beginning.of(recipe, resumed, init, options.mixing or corpus.mixing)
    recipe = beginning.with_own_tokenizer(recipe)
    prepared = prepare(corpus, recipe, tokenizer=beginning.tokenizer, progress=True)
    splits = needed_splits(prepared)
    model = beginning.model(recipe, prepared.tokenizer)
    with tempfile.TemporaryDirectory() as nowhere:
        processes = Processes(device)
        trainer = Trainer(
            recipe, model, splits["train"], splits["valid"], Path(nowhere), processes=processes, mixing=beginning.mixing
        )
        seconds = trainer.seconds_per_step(steps)
    batches = len(trainer.stream.plan)

    def at_most(epochs: int) -> int:
        steps = recipe.training.steps
        return epochs if steps is None else min(epochs, math.ceil(steps / batches))

    names = ("encoder", "pooling", "posterior", "prior", "decoder", "objective")
    parts = {name: getattr(recipe, name) for name in names}
    parts |= {"pretrain": recipe.pretrain if beginning.has_first_phase else None, "update": recipe.training.update}
    return Rehearsal(
        parts={name: _shown(part) for name, part in parts.items()},
        parameters=model.parameter_counts(),
        sentences={name: len(split) for name, split in splits.items()},
        vocabulary=len(prepared.tokenizer),
        batches_per_epoch=batches,
        seconds_per_epoch=seconds * batches,
        epochs=at_most(recipe.training.epochs),
        epochs_before=at_most(recipe.pretrain.epochs or 0) if recipe.pretrain and beginning.has_first_phase else 0,
        notes=[*notes_on(prepared, beginning.learnt_before), *notes_on_criterion(recipe)],
    )


def _shown(part: BaseModel | None) -> str:
    if part is None:
        return "none"
    options = part.model_dump(exclude={"kind"})
    kind = [part.kind] if hasattr(part, "kind") else []
    return " ".join([*kind, *(f"{name}={value}" for name, value in options.items())])
