"""Small subjects of measures: untrained spaces and sentences, made in no time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from textspace.config import Recipe
from textspace.data.encoded import EncodedSplit
from textspace.data.tokenizers import Tokenizer
from textspace.evaluate.measure import Effort, Sentences, Subject
from textspace.model import Model
from textspace.space import Space


def untrained(recipe: Recipe, tokenizer: Tokenizer) -> Space:
    return Space(recipe, tokenizer, Model(recipe, len(tokenizer)))


def subject_on(
    space: Space,
    texts: Sequence[str] | Mapping[str, Sequence[str]],
    labels: Mapping[str, Sequence[str]] | None = None,
    **more: Any,
) -> Subject:
    """A subject on test sentences, or on splits of sentences."""
    splits = texts if isinstance(texts, Mapping) else {"test": texts}
    seed = more.get("seed", 0)
    made = {
        name: Sentences(
            name,
            list(given),
            None if labels is None else list(labels[name]),
            EncodedSplit.of(given, space.tokenizer, space.recipe.text.max_tokens),
            space,
            seed,
        )
        for name, given in splits.items()
    }
    effort = Effort(importance_samples=4, decoded=50, pairs=300, repeats=3)
    return Subject(space, made, **{"effort": effort} | more)
