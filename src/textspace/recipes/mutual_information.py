"""SentenceMIM: mutual-information learning, and the models of the same architecture that it is compared with.

One GRU on each side, one embedding for both, the words fed to the encoder in reverse, and the code at every input of
the decoder. Penn Treebank settings; `--sizes yahoo` has those of the longer corpora, on which the paper trains with SGD
at a learning rate of 5 and lowers it after one epoch without improvement. The floor of the log-variance, the normal
embeddings, the start token after the words, batches of sentences of any length, the rule that lowers the rate and the
KL weights of `svae` are the public code's. That code multiplies the rate by 0.25 at the third epoch without a new best
since the last decay, not in a row, and stops when it is below 1e-8: at the ninth decay from 1e-3, at the fifteenth from
5. The paper has 2 epochs without improvement, no stop, and another annealing: `PRINTED_RATE`, `PRINTED_WARM_UP`.

Training counts the end token, here and there; only their evaluation leaves its loss out (`Melbo`).
"""

from __future__ import annotations

from typing import Any

from textspace.recipes.base import BOWMAN_2016, VAE, derived

__all__ = ["PRINTED_RATE", "PRINTED_WARM_UP", "RECIPES"]

_LIVNE_2020 = "Livne, Swersky and Fleet. SentenceMIM: A Latent Variable Language Model. 2020"

PRINTED_RATE = {"factor": 0.25, "patience": 2, "max_decays": 4}
"""When the learning rate falls, as the paper has it. It names no stop; ours is the fourth decay, at a rate of 4e-6."""
PRINTED_WARM_UP = {"kind": "linear", "start": 0.0, "end": 1.0, "over": 10_000, "unit": "steps"}
"""The KL's weight of its sVAE "+ kl", as the paper has it."""


def _logistic(midpoint: int) -> dict[str, Any]:
    """The KL's weight in the public code: 1 / (1 + exp(-0.0025 (step - midpoint)))."""
    return {"kind": "logistic", "start": 0.0, "end": 1.0, "midpoint": midpoint, "slope": 0.0025, "unit": "steps"}


_SVAE = derived(
    VAE,
    "svae",
    "Variational autoencoder, GRU 512, 512 latent dimensions, of the architecture of `smim`; the KL's weight rises "
    "from 0.5 to 0.99 in 1,840 steps.",
    _LIVNE_2020,
    {
        "latent.dim": 512,
        "objective.kl_weight": _logistic(0),
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
        "training.plateau": {"factor": 0.25, "patience": 3, "max_decays": 9, "counted": "over_the_run"},
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
        "`svae` with a KL weight that rises late, from 0 to 0.5 at 10,000 steps and 0.99 at 11,840.",
        BOWMAN_2016,
        {"objective.kl_weight": _logistic(10_000)},
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
