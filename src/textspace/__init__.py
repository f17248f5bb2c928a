"""Textspace: learn a latent space of text from your own sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from textspace.config import Recipe
    from textspace.errors import TextspaceError
    from textspace.recipes import recipe
    from textspace.sklearn_transformer import TextspaceTransformer
    from textspace.space import Space

__all__ = ["Recipe", "Space", "TextspaceError", "TextspaceTransformer", "__version__", "recipe"]

__version__ = "0.1.0"

_HOMES = {
    "Recipe": "textspace.config",
    "Space": "textspace.space",
    "TextspaceError": "textspace.errors",
    "TextspaceTransformer": "textspace.sklearn_transformer",
    "recipe": "textspace.recipes",
}
"""Where each public name lives: its module, and the heavy packages behind it, load when the name is first used."""


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'textspace' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
