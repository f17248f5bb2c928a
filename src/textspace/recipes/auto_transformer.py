"""Transformers whose every token has a latent, under a prior whose width is chosen; and their relatives.

Warm-up and annealing of the paper take 50,000 steps, which on a smaller corpus never end: here they are shares of the
run. The learning rate rises over the first tenth and falls as one over the root of time. The KL's weight follows a
logistic curve that is half-way after 40 percent of the run: before, the decoder learns to read codes, which takes it
many hundred steps. The paper does not say whether encoder, decoder and output share their embeddings: here all three
do, as in Vaswani et al. (2017).

The KL's weight ends at 0.1 and not at the paper's 1, at which codes of tokens collapse whatever the prior's deviation
s: codes and s can be scaled together, and nothing else changes. The paper prints another loss, that of `vat-printed`:
codes are mean + deviation x e with e from N(0, s^2), and the KL is that of the deviation, with weight 1. In units of s
that is a standard normal prior whose noise is s times as small, and trains much like an ELBO with KL weight s^2 (.16
at s = 0.4). Its dependence on s can come from nowhere else (docs/tokens.md measures both). s is a standard deviation,
as in the paper's equation 6; prior.noise=root-scale reads its diag(s) as a covariance, with a KL weight of about s.
"""

from __future__ import annotations

from textspace.recipes.base import VAE, derived

__all__ = ["RECIPES"]

_VAT_2021 = (
    "Anonymous. Isotropic Contextual Representations through Variational Regularization. Under review, ICLR 2022"
)
_VASWANI_2017 = "Vaswani et al. Attention Is All You Need. NeurIPS 2017"

_LAYERS = {"kind": "transformer", "hidden": 128, "layers": 4, "heads": 8, "feed_forward": 512, "dropout": 0.1}
_ANNEALED = {"kind": "logistic", "start": 0.00025, "end": 0.1, "midpoint": 0.4, "slope": 20.0, "unit": "run"}

_TRANSFORMER_VAE = derived(
    VAE,
    "transformer-vae",
    "Variational autoencoder of sentences with Transformers, 4 layers of 128 on both sides, and one code each.",
    _VASWANI_2017,
    {
        "text.tokenizer": {"kind": "bpe", "size": 2**15},
        "encoder": _LAYERS,
        "pooling.kind": "mean",
        "decoder": _LAYERS | {"tie_output": True},
        "share_embeddings": True,
        "latent.dim": 128,
        "initial.weights": None,
        "initial.embeddings": 0.15,
        "objective.kl_weight": _ANNEALED,
        "training.batch.sentences": 128,
        "training.optimizer": {
            "kind": "adam",
            "lr": 1e-3,
            "betas": (0.9, 0.98),
            "schedule": {"kind": "inverse-root", "over": 0.1, "unit": "run"},
        },
        "training.plateau": None,
        "training.criterion": "objective",
        "training.epochs": 3,
    },
)

_VAT = derived(
    _TRANSFORMER_VAE,
    "vat",
    "Transformer autoencoder with a latent for every token under a narrow prior, N(0, 0.4^2): variants of a sentence "
    "or of one word.",
    _VAT_2021,
    {
        "pooling.kind": "none",
        "prior": {"kind": "scaled-normal", "scale": 0.4},
        "training.average": "tokens",
    },
)

RECIPES = [
    _VAT,
    derived(
        _VAT,
        "vat-printed",
        "`vat` with the loss that its paper prints: noise from N(0, 0.4^2), the KL without it, and a KL weight of 1.",
        _VAT_2021,
        {"prior.noise": "scale", "objective.kl_weight.end": 1.0},
    ),
    derived(
        _VAT,
        "vat-small",
        "`vat` with 2 layers of 64 and at most 4,000 subwords: trains on a CPU in minutes.",
        _VAT_2021,
        {
            "text.tokenizer.size": 4000,
            **{
                f"{part}.{option}": value
                for part in ("encoder", "decoder")
                for option, value in {"hidden": 64, "layers": 2, "heads": 4, "feed_forward": 256}.items()
            },
            "latent.dim": 64,
            "initial.embeddings": 0.2,
            "training.optimizer.lr": 3e-3,
            "training.epochs": 10,
        },
    ),
    _TRANSFORMER_VAE,
    derived(
        _TRANSFORMER_VAE,
        "transformer-lm",
        "Language model with 4 Transformer layers of 128: the likelihood without a latent.",
        _VASWANI_2017,
        {
            "encoder": None,
            "pooling": None,
            "posterior": None,
            "prior": None,
            "share_embeddings": False,
            "objective": {"kind": "reconstruction"},
        },
    ),
]
