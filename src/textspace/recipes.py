"""Every named recipe, derived from a base by replacing parts, with its citation."""

from __future__ import annotations

from textspace.config import Recipe
from textspace.errors import TextspaceError, nearest

__all__ = ["RECIPES", "recipe"]

_LI_2019 = (
    "Li, He, Neubig, Berg-Kirkpatrick and Yang. A Surprisingly Effective Fix for Deep Latent Variable Modeling of "
    "Text. EMNLP 2019"
)

_VAE = Recipe(
    name="vae",
    about="Variational autoencoder of sentences, LSTM 256 on both sides, 32 latent dimensions: the baseline, which "
    "collapses on most corpora.",
    citation=_LI_2019,
)
"""Penn Treebank settings of the paper: see the defaults in config.py."""

_LSTM_LM = _VAE.but(
    {
        "name": "lstm-lm",
        "about": "LSTM language model: the decoder of `vae` without a latent.",
        "encoder": None,
        "pooling": None,
        "posterior": None,
        "prior": None,
        "objective.kind": "reconstruction",
    }
)

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in [
        _LSTM_LM,
        _LSTM_LM.but(
            {
                "name": "gru-lm",
                "about": "GRU language model, trained with Adam.",
                "citation": "",
                "decoder.kind": "gru",
                "training.optimizer.kind": "adam",
                "training.optimizer.lr": 1e-3,
            }
        ),
        _VAE.but(
            {
                "name": "ae",
                "about": "Autoencoder: `vae` with the KL's weight at 0, selected by reconstruction. It copies well and "
                "its codes do not fill the prior.",
                "objective.kl_weight": 0.0,
                "training.criterion": "reconstruction",
            }
        ),
        _VAE,
        _VAE.but(
            {
                "name": "default",
                "about": "What you get without asking: a GRU variational autoencoder that reads both ways, with half "
                "the KL's weight so that codes hold what decoding needs.",
                "citation": "",
                "encoder.kind": "gru",
                "encoder.embedding": 128,
                "encoder.hidden": 192,
                "encoder.bidirectional": True,
                "decoder.kind": "gru",
                "decoder.embedding": 128,
                "decoder.hidden": 192,
                "decoder.input_dropout": 0.2,
                "decoder.output_dropout": 0.2,
                "initial.weights": None,
                "objective.kl_weight": {"kind": "linear", "start": 0.0, "end": 0.5, "over": 4, "unit": "epochs"},
                "training.optimizer": {"kind": "adam", "lr": 2e-3},
                "training.epochs": 20,
                "training.plateau": {"patience": 1, "max_decays": 4},
            }
        ),
    ]
}


def recipe(name: str) -> Recipe:
    """
    >>> recipe("vae").latent.dim
    32
    >>> recipe("vea")
    Traceback (most recent call last):
    textspace.errors.TextspaceError: there is no recipe 'vea'; did you mean 'vae'?
    """
    if name not in RECIPES:
        raise TextspaceError(f"there is no recipe {name!r}; {nearest(name, RECIPES)}")
    return RECIPES[name]
