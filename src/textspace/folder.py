"""A saved space's folder: what its files are called, and reading them back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from textspace.config import Recipe
from textspace.data.tokenizers import Tokenizer
from textspace.errors import TextspaceError
from textspace.model import Model
from textspace.train import checkpoints

__all__ = ["METRICS", "RECIPE", "TOKENIZER", "WEIGHTS", "Saved", "load"]

RECIPE, TOKENIZER, WEIGHTS, METRICS = "recipe.json", "tokenizer.json", "model.safetensors", "metrics.json"


@dataclass(frozen=True)
class Saved:
    recipe: Recipe
    tokenizer: Tokenizer
    model: Model


def load(folder: Path | str, device: str = "cpu") -> Saved:
    """The recipe, tokenizer and model in a folder; nothing in it is ever executed."""
    folder = Path(folder)
    missing = [name for name in (RECIPE, TOKENIZER, WEIGHTS) if not (folder / name).is_file()]
    if missing:
        raise TextspaceError(f"{folder} is not a trained space: it has no {missing[0]}")
    recipe = Recipe.load(folder / RECIPE)
    tokenizer = Tokenizer.load(folder / TOKENIZER)
    model = Model(recipe, len(tokenizer))
    checkpoints.load_weights(model, checkpoints.read_tensors(folder / WEIGHTS), str(folder))
    return Saved(recipe, tokenizer, model.to(device).eval())
