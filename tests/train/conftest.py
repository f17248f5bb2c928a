"""What the tests of training share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import trainer_on

from textspace.config import Recipe
from textspace.train.loop import Trainer


@pytest.fixture
def trainer_of(tiny, tmp_path: Path) -> Callable[..., Trainer]:
    def build(recipe: Recipe, folder: str = "run", **more) -> Trainer:
        return trainer_on(tiny, recipe, tmp_path / folder, **more)

    return build
