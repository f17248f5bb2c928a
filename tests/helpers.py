"""Small recipes and a tiny corpus that the tests share."""

from __future__ import annotations

import random

from textspace.config import Recipe

SMALL = {
    "latent.dim": 4,
    "decoder.embedding": 12,
    "decoder.hidden": 16,
    "initial.weights": 0.3,
    "training.optimizer": {"kind": "adam", "lr": 0.005},
    "training.epochs": 2,
}
SMALL_ENCODER = {"encoder.embedding": 12, "encoder.hidden": 16}


def small(recipe: Recipe) -> Recipe:
    return recipe.but(SMALL | (SMALL_ENCODER if recipe.encoder else {}))


def tiny_sentences(count: int = 400) -> list[str]:
    """Sentences of 2 to 9 words from a vocabulary of 14."""
    chance = random.Random(7)
    subjects, verbs = ["anna", "bob", "carl", "dora"], ["sees", "likes", "hears"]
    things = ["cats", "dogs", "trees", "birds", "rivers", "songs", "stones"]
    return [
        " ".join([chance.choice(subjects), chance.choice(verbs)] + chance.choices(things, k=chance.randint(0, 7)))
        for _ in range(count)
    ]
