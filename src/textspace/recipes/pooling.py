"""Pooling, and what that paper compares: LSTM 1024, annealed, SGD with the early stopping of the code it builds on."""

from __future__ import annotations

from textspace.recipes.base import BOWMAN_2016, VAE, WARM_UP, derived, sized

__all__ = ["RECIPES"]

_DIENG_2019 = "Dieng, Kim, Rush and Blei. Avoiding Latent Variable Collapse with Generative Skip Models. AISTATS 2019"
_FANG_2019 = "Fang, Li, Gao, Dong and Chen. Implicit Deep Latent Variable Models for Text Generation. EMNLP 2019"
_HE_2019 = (
    "He, Spokoyny, Neubig and Berg-Kirkpatrick. Lagging Inference Networks and Posterior Collapse in Variational "
    "Autoencoders. ICLR 2019"
)
_LONG_2019 = "Long, Cao and Cheung. Preventing Posterior Collapse in Sequence VAEs with Pooling. 2019"
_TOLSTIKHIN_2018 = "Tolstikhin, Bousquet, Gelly and Schoelkopf. Wasserstein Auto-Encoders. ICLR 2018"

_LONG_BASE = sized(VAE, "yahoo").but({"objective.kl_weight": WARM_UP, "training.plateau": "public-code"})

_MAX_POOL = derived(
    _LONG_BASE,
    "vae-max-pool",
    "Annealed `vae`, LSTM 1024, whose features are the largest value of each unit over the sentence.",
    _LONG_2019,
    {"pooling.kind": "max"},
)

_SKIP = derived(
    _LONG_BASE,
    "skip-vae",
    "Annealed `vae`, LSTM 1024, whose code joins every layer of the decoder and the logits.",
    _DIENG_2019,
    {"decoder.skip": True},
)

_AGGRESSIVE = derived(
    _LONG_BASE,
    "vae-aggressive",
    "Annealed `vae`, LSTM 1024, whose encoder catches up before each step of the decoder.",
    _HE_2019,
    # Without any weight of the KL an encoder that moves alone runs away: with these sizes to NaN in 450 steps.
    {
        "training.update": {
            "kind": "aggressive",
            "clip_together": True,
            "inner_batches": "replacement",
            "ends": "fall",
            "window": 15,
            "cap": 99,
        },
        "objective.kl_weight": WARM_UP | {"start": 0.1},
    },
)

# The settings of Yahoo and Yelp. On Penn Treebank the published code starts all weights and embeddings from
# U(-0.1, 0.1) and trains with Adam at 1e-3.
_IVAE = derived(
    _LONG_BASE,
    "ivae",
    "Sample-only posterior, LSTM 1024, trained with the dual form of the KL: its own number is a lower bound.",
    _FANG_2019,
    {
        "posterior": {"kind": "implicit", "layers": 0},
        "initial": {"weights": 0.01, "embeddings": 0.01},
        # Each step adds 1 / (10 x batches) to the weight, which is 1 after nine epochs.
        "objective": {"kind": "dual-kl", "kl_weight": WARM_UP | {"start": 0.1, "over": 9}, "networks": "both"},
        "training.update": {
            "kind": "alternating",
            "clip_apart": True,
            "clip_dual": False,
            "dual_steps": 5,
            "optimizer": {"kind": "adam", "lr": 1e-5},
        },
        "training.optimizer": {"kind": "adam", "lr": 8e-4},
        "training.epochs": 40,
        "training.plateau": None,
        "training.criterion": "last",  # the published code selects nothing
    },
)

RECIPES = [
    derived(
        _LONG_BASE,
        "vae-word-dropout",
        "Annealed `vae`, LSTM 1024, whose decoder sees only half of the words while it learns.",
        BOWMAN_2016,
        {"decoder.word_dropout": 0.5},
    ),
    derived(
        _LONG_BASE,
        "vae-mean-pool",
        "Annealed `vae`, LSTM 1024, whose features are the mean state of the sentence.",
        _LONG_2019,
        {"pooling.kind": "mean"},
    ),
    _MAX_POOL,
    derived(
        _MAX_POOL,
        "vae-max-pool-no-anneal",
        "`vae-max-pool` with the KL's full weight at once.",
        _LONG_2019,
        {"objective.kl_weight": 1.0},
    ),
    derived(
        _LONG_BASE,
        "vae-abs-pool",
        "Annealed `vae`, LSTM 1024, whose features are the value of largest size of each unit, with its sign.",
        _LONG_2019,
        {"pooling.kind": "abs"},
    ),
    derived(
        _LONG_BASE,
        "vae-attention-pool",
        "Annealed `vae`, LSTM 1024, whose features are a learned mean of the states.",
        _LONG_2019,
        {"pooling.kind": "attention"},
    ),
    _SKIP,
    derived(
        _SKIP,
        "skip-vae-no-anneal",
        "`skip-vae` with the KL's full weight at once.",
        _LONG_2019,
        {"objective.kl_weight": 1.0},
    ),
    _AGGRESSIVE,
    derived(
        _AGGRESSIVE,
        "vae-aggressive-no-anneal",
        "`vae-aggressive` with the KL's full weight at once.",
        _LONG_2019,
        {"objective.kl_weight": 1.0},
    ),
    _IVAE,
    derived(
        _IVAE,
        "ivae-mi",
        "`ivae` whose codes need to fill the prior only all together, which leaves the mutual information free.",
        _FANG_2019,
        {"objective.of": "aggregated"},
    ),
    derived(
        VAE,
        "wae",
        "Wasserstein autoencoder: one code for each sentence, and those of a batch must look like draws from the "
        "prior, by MMD.",
        _TOLSTIKHIN_2018,
        {"posterior.kind": "delta", "objective": {"kind": "wae"}, "training.criterion": "objective"},
    ),
]
