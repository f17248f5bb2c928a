"""Every named recipe, derived from a base by replacing parts, with its citation; a module for each family."""

from __future__ import annotations

from textspace.config import Recipe
from textspace.errors import TextspaceError, nearest
from textspace.recipes import auto_transformer, free_bits, mutual_information, pooling, sparse
from textspace.recipes.base import SIZES, VAE, derived, sized
from textspace.recipes.sparse import with_sparsity

__all__ = ["FAMILIES", "RECIPES", "SIZES", "recipe", "sized", "with_sparsity"]

_DEFAULT = derived(
    VAE,
    "default",
    "What you get without asking: a GRU variational autoencoder that reads both ways, with one embedding for reading, "
    "writing and choosing words, and 0.7 of the KL's weight so that codes hold what decoding needs.",
    "",
    {
        "share_embeddings": True,
        "encoder.kind": "gru",
        "encoder.embedding": 192,
        "encoder.hidden": 192,
        "encoder.bidirectional": True,
        "decoder.kind": "gru",
        "decoder.embedding": 192,
        "decoder.hidden": 192,
        "decoder.tie_output": True,
        "decoder.input_dropout": 0.2,
        "decoder.output_dropout": 0.2,
        "initial.weights": None,
        "objective.kl_weight": {"kind": "linear", "start": 0.0, "end": 0.7, "over": 4, "unit": "epochs"},
        "training.optimizer": {"kind": "adam", "lr": 2e-3},
        "training.epochs": 20,
        "training.plateau": {"patience": 1, "max_decays": 4},
        "training.criterion": "objective",
    },
)

FAMILIES: dict[str, list[Recipe]] = {
    "Where to begin": [_DEFAULT],
    "Baselines, and remedies against collapse": free_bits.RECIPES,
    "Pooling, and its rivals on long text": pooling.RECIPES,
    "Mutual-information learning (SentenceMIM), and its rivals": mutual_information.RECIPES,
    "Sparse codes, and their rivals": sparse.RECIPES,
    "Transformers, and codes of tokens": auto_transformer.RECIPES,
}

RECIPES: dict[str, Recipe] = {recipe.name: recipe for family in FAMILIES.values() for recipe in family}


def recipe(name: str) -> Recipe:
    """
    >>> recipe("vae").latent.dim
    32
    >>> recipe("vea")
    Traceback (most recent call last):
    textspace.errors.TextspaceError: there is no recipe 'vea'; did you mean 'vae' or 'vat'?
    """
    if name not in RECIPES:
        raise TextspaceError(f"there is no recipe {name!r}; {nearest(name, RECIPES)}")
    return RECIPES[name]
