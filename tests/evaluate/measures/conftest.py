"""What tests of measures share."""

import numpy as np
import pytest
from helpers import small
from small_subjects import spread_out, untrained

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
