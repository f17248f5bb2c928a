"""What tests of measures share."""

import numpy as np
import pytest
from helpers import read_for, small
from small_subjects import spread_out, untrained

from textspace.config import Recipe
from textspace.recipes import RECIPES
from textspace.space import Space


@pytest.fixture
def chance() -> np.random.Generator:
    return np.random.default_rng(1)


@pytest.fixture
def space(tiny) -> Space:
    return spread_out(small(RECIPES["vae"]), tiny.tokenizer)


@pytest.fixture
def autoencoder(tiny) -> Space:
    recipe = small(RECIPES["vae"]).but({"posterior.kind": "delta", "objective.kind": "reconstruction"})
    return untrained(recipe, tiny.tokenizer)


@pytest.fixture
def token_space(tiny) -> Space:
    """Every token has a code."""
    sizes = {"kind": "transformer", "hidden": 16, "layers": 1, "heads": 2, "feed_forward": 16}
    parts = {"encoder": sizes, "pooling": {"kind": "none"}, "decoder": sizes}
    return untrained(Recipe().but({**parts, "latent.dim": 4, "initial.weights": 0.3}), tiny.tokenizer)


@pytest.fixture
def pretrained_space(tiny) -> Space:
    """With a frozen encoder of Hugging Face."""
    recipe = small(RECIPES["b-vae"]).but({"encoder.frozen": True})
    return untrained(recipe, read_for(tiny, recipe).tokenizer)
