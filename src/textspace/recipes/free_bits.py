"""Pretraining and free bits, and what that paper compares. Penn Treebank settings: see the defaults in config/."""

from __future__ import annotations

from textspace.recipes.base import BOWMAN_2016, LI_2019, VAE, WARM_UP, derived

__all__ = ["RECIPES"]

_BURDA_2016 = "Burda, Grosse and Salakhutdinov. Importance Weighted Autoencoders. ICLR 2016"
_HIGGINS_2017 = (
    "Higgins et al. beta-VAE: Learning Basic Visual Concepts with a Constrained Variational Framework. ICLR 2017"
)
_KINGMA_2016 = "Kingma et al. Improved Variational Inference with Inverse Autoregressive Flow. NeurIPS 2016"
_LIU_2019 = (
    "Fu, Li, Liu, Gao, Celikyilmaz and Carin. Cyclical Annealing Schedule: A Simple Approach to Mitigating KL "
    "Vanishing. NAACL 2019"
)
_PELSMAEKER_2019 = "Pelsmaeker and Aziz. Effective Estimation of Deep Generative Language Models. 2019"

_LSTM_LM = derived(
    VAE,
    "lstm-lm",
    "LSTM language model: the decoder of `vae` without a latent.",
    LI_2019,
    {"encoder": None, "pooling": None, "posterior": None, "prior": None, "objective.kind": "reconstruction"},
)

_FOUR_CYCLES = {
    "kind": "cyclic",
    "start": 0.1,
    "end": 1.0,
    "cycles": 4,
    "rising": 0.45,
    "over": 40,
    "unit": "epochs",
}
"""The KL's weight in the public code of cyclic annealing: in each cycle of 10 epochs from 0.1 by 1 / (5 x batches) a
step, so that it reaches 1 after 4.5 epochs. That code raises it before a step and this schedule after it, a difference
of 1 / (5 x batches). The README there has the general form, from 0 to 1 in half of each cycle: start 0, rising 0.5."""

_CYCLIC = derived(
    VAE,
    "vae-cyclic",
    "`vae` with a KL weight that rises from 0.1 to 1 four times in 40 epochs, trained with Adam, whose rate falls from "
    "1e-3 along a cosine in each cycle.",
    _LIU_2019,
    {
        "objective.kl_weight": _FOUR_CYCLES,
        "initial": {"weights": 0.1, "embeddings": 0.1},
        "training.optimizer": {
            "kind": "adam",
            "lr": 1e-3,
            "schedule": {"kind": "cosine", "cycles": 4, "over": 40, "stairs": 10, "unit": "epochs"},
        },
        "training.epochs": 40,
        "training.plateau": None,
    },
)

_PRETRAIN = derived(
    VAE,
    "vae-pretrain",
    "`vae` that starts from the encoder of a converged autoencoder, with the KL's full weight at once.",
    LI_2019,
    {"pretrain": {"keep": "encoder"}},
)

_PRETRAIN_FREE_BITS = derived(
    _PRETRAIN,
    "pretrain-free-bits",
    "`vae` that starts from the encoder of a converged autoencoder and keeps 4 nats free, an equal share in each "
    "dimension, the KL's weight rising over 10 epochs.",
    LI_2019,
    {"objective.kl_weight": WARM_UP, "objective.free_bits": {"target": 4.0}},
)

_IWAE = derived(
    VAE,
    "iwae",
    "`vae` trained on the importance-weighted bound with 10 samples.",
    _BURDA_2016,
    {"objective.kind": "iwae", "objective.samples": 10, "training.criterion": "iwae"},
)

RECIPES = [
    _LSTM_LM,
    derived(
        _LSTM_LM,
        "gru-lm",
        "GRU language model, trained with Adam.",
        "",
        {"decoder.kind": "gru", "training.optimizer.kind": "adam", "training.optimizer.lr": 1e-3},
    ),
    derived(
        VAE,
        "ae",
        "Autoencoder: `vae` with the KL's weight at 0, selected by reconstruction. It copies well and its codes do not "
        "fill the prior.",
        LI_2019,
        {"objective.kl_weight": 0.0, "training.criterion": "reconstruction"},
    ),
    VAE,
    derived(
        VAE,
        "vae-anneal",
        "`vae` with a KL weight that rises from 0 to 1 over 10 epochs.",
        BOWMAN_2016,
        {"objective.kl_weight": WARM_UP},
    ),
    _CYCLIC,
    derived(
        VAE,
        "vae-cyclic-sgd",
        "`vae` with the KL weight of `vae-cyclic`, trained with SGD, as the other recipes.",
        LI_2019,
        {"objective.kl_weight": _FOUR_CYCLES, "training.epochs": 40, "training.plateau": "public-code"},
    ),
    derived(
        VAE,
        "beta-vae",
        "`vae` with half the KL's weight throughout: fuller codes at a worse likelihood.",
        _HIGGINS_2017,
        {"objective.kl_weight": 0.5, "training.criterion": "objective"},
    ),
    derived(
        VAE,
        "vae-free-bits",
        "`vae` with 3 nats of the KL free, an equal share in each dimension.",
        _KINGMA_2016,
        {"objective.free_bits": {"target": 3.0}},
    ),
    derived(
        VAE,
        "vae-free-bits-total",
        "`vae` with 3 nats of the KL free, however the dimensions share them.",
        _PELSMAEKER_2019,
        {"objective.free_bits": {"target": 3.0, "per": "total"}},
    ),
    _PRETRAIN,
    derived(
        _PRETRAIN,
        "vae-pretrain-anneal",
        "`vae-pretrain` with a KL weight that rises from 0 to 1 over 10 epochs.",
        LI_2019,
        {"objective.kl_weight": WARM_UP},
    ),
    derived(
        _PRETRAIN_FREE_BITS,
        "vae-pretrain-both",
        "`pretrain-free-bits` that keeps the autoencoder's decoder too.",
        LI_2019,
        {"pretrain.keep": "both"},
    ),
    _PRETRAIN_FREE_BITS,
    derived(
        _PRETRAIN_FREE_BITS,
        "pretrain-free-bits-no-anneal",
        "`pretrain-free-bits` with the KL's full weight at once.",
        LI_2019,
        {"objective.kl_weight": 1.0},
    ),
    _IWAE,
    derived(
        _IWAE,
        "iwae-pretrain",
        "`iwae` that starts from the encoder of a converged autoencoder.",
        LI_2019,
        {"pretrain": {"keep": "encoder"}},
    ),
]
