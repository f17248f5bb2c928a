"""What a resumed run must share with the one it continues: settings that decide its weights, and random states."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from textspace.config import Recipe

__all__ = [
    "as_first_written",
    "can_continue",
    "own_random_states",
    "random_states",
    "weight_relevant",
    "with_own_length_of_first_phase",
]


def weight_relevant(recipe: Recipe) -> Recipe:
    """What decides the next step; how long to go on, and how often to look, may change on resuming.

    Where a schedule is in shares of the run, its length decides too; and the first of two phases has a length.
    """
    recipe = with_own_length_of_first_phase(recipe)
    free: dict[str, Any] = {"validate_every": None, "checkpoint_every": None}
    if not _counts_shares_of_the_run(recipe.model_dump()):
        free |= {"epochs": 1} if recipe.pretrain else {"epochs": 1, "steps": None}
    return recipe.but({"name": "", "about": "", "citation": ""} | {f"training.{k}": v for k, v in free.items()})


def can_continue(stored: Recipe, recipe: Recipe) -> bool:
    """Whether a run of one recipe can be resumed with the other: by which number weights are kept may change."""
    return _any_criterion(weight_relevant(stored)) == _any_criterion(weight_relevant(recipe))


def _any_criterion(recipe: Recipe) -> Recipe:
    return recipe.but({"training.criterion": "objective"})


def with_own_length_of_first_phase(recipe: Recipe) -> Recipe:
    """The epochs of the first phase, where there are two, as a setting of their own, and not those of the second."""
    if recipe.pretrain is None or recipe.pretrain.epochs is not None:
        return recipe
    return recipe.but({"pretrain.epochs": recipe.training.epochs})


_THERE_WAS_NO_CHOICE = (
    '"by_length": true',
    '"start_last": false',
    '"from_last_decay": false',
    '"counted": "in_a_row"',
    '"deviation": "exp"',
    '"first_state": "code"',
    '"noise": "standard"',
    '"per": "code"',
    '"clip_together": false',
    '"inner_batches": "epochs"',
    '"ends": "growth"',
    '"clip_apart": false',
    '"clip_dual": true',
    '"networks": "one"',
)
"""Options that the first versions lacked, with the value that stands for what those did."""


def as_first_written(recipe_json: str) -> str:
    """JSON of a recipe in the words of the first versions, for keys: what was made by them is found again."""
    renamed = recipe_json.replace('"precision": "float32"', '"precision": "fp32"')
    if '"kind": "mim"' in renamed:
        renamed = renamed.replace('"criterion": "objective"', '"criterion": "mim"')
    return re.sub(rf"\s*({'|'.join(_THERE_WAS_NO_CHOICE)}),", "", renamed)


def _counts_shares_of_the_run(options: Any) -> bool:
    if not isinstance(options, dict):
        return False
    return options.get("unit") == "run" or any(map(_counts_shares_of_the_run, options.values()))


def random_states() -> dict[str, Tensor]:
    """Of torch's generators; our parts draw keyed noise, those of other libraries may use these."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


@contextmanager
def own_random_states(seed: int, states: Mapping[str, Tensor]) -> Iterator[None]:
    """Torch's generators seeded, or in the states of a run that is resumed; afterwards as the caller had them."""
    with torch.random.fork_rng([torch.cuda.current_device()] if torch.cuda.is_available() else []):
        torch.manual_seed(seed)
        for name, state in states.items():
            if name == "cpu":
                torch.set_rng_state(state)
            elif torch.cuda.is_available():
                torch.cuda.set_rng_state(state)
        yield
