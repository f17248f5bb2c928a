"""Small subjects of measures: untrained spaces and sentences, made in no time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from helpers import small

from textspace.config import Recipe
from textspace.data.encoded import EncodedSplit
from textspace.data.tokenizers import Tokenizer
from textspace.evaluate.measure import Effort, Sentences, Subject
from textspace.model import Model
from textspace.recipes import RECIPES
from textspace.space import Space


def untrained(recipe: Recipe, tokenizer: Tokenizer) -> Space:
    return Space(recipe, tokenizer, Model(recipe, len(tokenizer)))


def spread_out(recipe: Recipe, tokenizer: Tokenizer) -> Space:
    """An untrained space whose codes differ: the features of so small an encoder are much alike."""
    space = untrained(recipe, tokenizer)
    with torch.no_grad():
        space.model.posterior.mean.weight.mul_(60)
    return space


def collapse(space: Space) -> None:
    with torch.no_grad():
        for parameter in space.model.posterior.parameters():
            parameter.zero_()


def with_codes(subject: Subject, means_NZ: np.ndarray) -> Subject:
    """The same subject, its test sentences with codes made by hand, which have no spread."""
    subject.test.__dict__["_parameters"] = (means_NZ, np.zeros_like(means_NZ))
    return subject


def gated(tokenizer: Tokenizer, recipe: str = "hsvae", **changes: Any) -> Space:
    """An untrained space whose dimensions can be off; weights so large that gates differ between sentences."""
    made = small(RECIPES[recipe]).but({"latent.dim": 8, "initial.weights": 0.8, "pooling.kind": "mean"} | changes)
    space = untrained(made, tokenizer)
    with torch.no_grad():
        space.model.encoder.embedding.weight.normal_(0, 2, generator=torch.Generator().manual_seed(0))
    return space


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
