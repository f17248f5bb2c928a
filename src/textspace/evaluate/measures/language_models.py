"""Small language models that judge samples."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from textspace.evaluate.measure import Subject
from textspace.evaluate.statistics import some_rows
from textspace.model import Model
from textspace.noise import seed_of
from textspace.recipes import RECIPES
from textspace.train.loop import Interrupted, Trainer
from textspace.train.processes import Processes

__all__ = ["LanguageModel", "language_model_of_text", "train_language_model"]

MOST_TRAINING = 50_000
"""Sentences that a language model learns from at most."""

UNITS = (128, 192)
"""Embedding and hidden units of a language model."""

STEPS = 100
"""A language model makes at least so many steps for each epoch it is granted: over little text it goes more often."""

STEPS_BETWEEN = 25
"""Steps at least between two looks at the sentences that select its weights."""

HELD_OUT = 10
"""One of so many sentences of a language model's text selects its weights instead of being learnt from."""


class LanguageModel(NamedTuple):
    model: Model
    learnt_from: int
    """Sentences; those that selected its weights are not counted."""


def train_language_model(texts: Sequence[str], subject: Subject, purpose: str) -> LanguageModel:
    """A small GRU language model with the space's tokenizer, trained for as long as the effort allows.

    It learns from nine tenths of the sentences, and the rest selects its weights.

    Args:
        texts: to learn from.
        subject: gives tokenizer, device, effort and seed.
        purpose: models for one purpose start from the same weights.
    """
    space = subject.space
    granted = subject.effort.language_model_epochs
    held_out = set(some_rows(len(texts), len(texts) // HELD_OUT).tolist())
    selecting = [texts[row] for row in sorted(held_out)] or list(texts)
    learnt = [text for row, text in enumerate(texts) if row not in held_out]
    base = RECIPES["gru-lm"]
    batch = base.training.batch.sentences or 1
    often = math.ceil(STEPS_BETWEEN * batch / len(learnt))
    steps = math.ceil(len(learnt) * often / batch)
    recipe = base.but(
        {
            "text.tokenizer": space.recipe.text.tokenizer,
            "decoder.embedding": UNITS[0],
            "decoder.hidden": UNITS[1],
            "decoder.input_dropout": 0.2,
            "decoder.output_dropout": 0.2,
            "initial.weights": None,
            "training.seed": seed_of(subject.seed, "language model", purpose),
            "training.epochs": granted * math.ceil(STEPS / steps),
            "training.optimizer.lr": 2e-3,
            "training.plateau": None,
            "training.patience": 3,
            "training.checkpoint_every": None,
        }
    )
    model = Model(recipe, len(space.tokenizer))
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            recipe,
            model,
            subject.encoded(learnt * often),
            subject.encoded(selecting),
            Path(folder),
            processes=Processes(str(space.device)),
            silent=not subject.show_progress,
        )
        try:
            trainer.run()
        except Interrupted:
            # What it saved goes with the folder: to the caller this is an interrupt like any other.
            raise KeyboardInterrupt from None
    return LanguageModel(model.eval(), len(learnt))


def language_model_of_text(subject: Subject) -> LanguageModel:
    """One of the training split, trained once for all measures."""
    train = subject.splits["train"]
    if "language model" not in subject.kept:
        texts = [train.texts[row] for row in some_rows(len(train), MOST_TRAINING)]
        subject.kept["language model"] = train_language_model(texts, subject, "all real")
    return subject.kept["language model"]
