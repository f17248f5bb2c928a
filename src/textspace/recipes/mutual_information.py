"""SentenceMIM: mutual-information learning, and the models of the same architecture that it is compared with.

One GRU on each side, one embedding for both, the words fed to the encoder in reverse, and the code at every input of
the decoder. Penn Treebank settings; `--sizes yahoo` has those of the longer corpora, on which the paper trains with SGD
at a learning rate of 5 and lowers it after one epoch without improvement. The floor of the log-variance, the normal
embeddings, the start token after the words and batches of sentences of any length are the published code's. The paper
does not say when to stop: four decays bring the rate to 4e-6.
"""

from __future__ import annotations

from textspace.recipes.base import BOWMAN_2016, VAE, derived

__all__ = ["RECIPES"]

_LIVNE_2020 = "Livne, Swersky and Fleet. SentenceMIM: A Latent Variable Language Model. 2020"

_SVAE = derived(
    VAE,
    "svae",
    "Variational autoencoder, GRU 512, 512 latent dimensions, of the architecture of `smim`.",
    _LIVNE_2020,
    {
        "latent.dim": 512,
        "encoder": {"kind": "gru", "embedding": 300, "hidden": 512, "reverse_input": True, "start_last": True},
        "posterior.log_variance_floor": -10.0,
        "decoder": {
            "kind": "gru",
            "embedding": 300,
            "hidden": 512,
            "input_dropout": 0.5,
            "output_dropout": 0.0,
            "output_bias": True,
        },
        "share_embeddings": True,
        "initial": {"weights": None, "embeddings": None},
        "training.batch": {"sentences": 20, "by_length": False},
        "training.optimizer": {"kind": "adam", "lr": 1e-3},
        "training.clip": 0.25,
        "training.plateau": {"factor": 0.25, "patience": 2, "max_decays": 4},
        "training.epochs": 200,
    },
)

_SMIM = derived(
    _SVAE,
    "smim",
    "Mutual-information learning, GRU 512, 512 latent dimensions: good copies from narrow codes that do not fill the "
    "prior.",
    _LIVNE_2020,
    {"objective": {"kind": "mim"}, "training.criterion": "objective"},
)

RECIPES = [
    _SMIM,
    derived(
        _SMIM,
        "smim-pretrain",
        "`smim` that starts from a briefly trained autoencoder: far better copies after as many steps.",
        _LIVNE_2020,
        {
            "pretrain": {"keep": "both", "epochs": 4},
            "initial.embeddings": 0.1,
            "training.batch.sentences": 100,
            "training.optimizer.lr": 2e-3,
            "training.optimizer.schedule": {"kind": "linear", "start": 1.0, "end": 0.0, "over": 1, "unit": "run"},
            "training.plateau": None,
            "training.epochs": 20,
        },
    ),
    _SVAE,
    derived(
        _SVAE,
        "svae-anneal",
        "`svae` with a KL weight that rises from 0 to 1 over 10,000 steps.",
        BOWMAN_2016,
        {"objective.kl_weight": {"kind": "linear", "start": 0.0, "end": 1.0, "over": 10_000, "unit": "steps"}},
    ),
    derived(
        _SVAE,
        "smim-ae",
        "Plain autoencoder of the architecture of `smim`: one code for each sentence, and no distribution.",
        _LIVNE_2020,
        {
            "posterior": {"kind": "delta"},
            "objective": {"kind": "reconstruction"},
            "training.criterion": "reconstruction",
        },
    ),
]
