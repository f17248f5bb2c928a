"""Every named recipe, derived from a base by replacing parts, with its citation."""

from __future__ import annotations

from typing import Any

from textspace.config import Recipe
from textspace.errors import TextspaceError, nearest

__all__ = ["RECIPES", "SIZES", "recipe", "sized"]

SIZES = {"ptb": (256, 256), "captions": (128, 512), "yahoo": (512, 1024)}
"""Embedding and hidden units, of encoder and decoder alike, that the papers use on each corpus."""

_BOWMAN_2016 = "Bowman et al. Generating Sentences from a Continuous Space. CoNLL 2016"
_BURDA_2016 = "Burda, Grosse and Salakhutdinov. Importance Weighted Autoencoders. ICLR 2016"
_DIENG_2019 = "Dieng, Kim, Rush and Blei. Avoiding Latent Variable Collapse with Generative Skip Models. AISTATS 2019"
_FANG_2019 = "Fang, Li, Gao, Dong and Chen. Implicit Deep Latent Variable Models for Text Generation. EMNLP 2019"
_HE_2019 = (
    "He, Spokoyny, Neubig and Berg-Kirkpatrick. Lagging Inference Networks and Posterior Collapse in Variational "
    "Autoencoders. ICLR 2019"
)
_HIGGINS_2017 = (
    "Higgins et al. beta-VAE: Learning Basic Visual Concepts with a Constrained Variational Framework. ICLR 2017"
)
_KINGMA_2016 = "Kingma et al. Improved Variational Inference with Inverse Autoregressive Flow. NeurIPS 2016"
_LI_2019 = (
    "Li, He, Neubig, Berg-Kirkpatrick and Yang. A Surprisingly Effective Fix for Deep Latent Variable Modeling of "
    "Text. EMNLP 2019"
)
_LIU_2019 = (
    "Fu, Li, Liu, Gao, Celikyilmaz and Carin. Cyclical Annealing Schedule: A Simple Approach to Mitigating KL "
    "Vanishing. NAACL 2019"
)
_LONG_2019 = "Long, Cao and Cheung. Preventing Posterior Collapse in Sequence VAEs with Pooling. 2019"
_PELSMAEKER_2019 = "Pelsmaeker and Aziz. Effective Estimation of Deep Generative Language Models. 2019"
_TOLSTIKHIN_2018 = "Tolstikhin, Bousquet, Gelly and Schoelkopf. Wasserstein Auto-Encoders. ICLR 2018"

_WARM_UP = {"kind": "linear", "start": 0.0, "end": 1.0, "over": 10, "unit": "epochs"}
"""The KL's weight in most recipes that anneal it."""


def sized(recipe: Recipe, corpus: str) -> Recipe:
    """The recipe with the encoder and decoder sizes that the papers use on a corpus.

    >>> sized(RECIPES["vae"], "yahoo").decoder.hidden
    1024
    """
    if corpus not in SIZES:
        raise TextspaceError(f"there are no sizes {corpus!r}; {nearest(corpus, SIZES)}")
    embedding, hidden = SIZES[corpus]
    parts = ("encoder", "decoder") if recipe.encoder else ("decoder",)
    return recipe.but({f"{part}.embedding": embedding for part in parts} | {f"{part}.hidden": hidden for part in parts})


def _derived(base: Recipe, name: str, about: str, citation: str, changes: dict[str, Any]) -> Recipe:
    return base.but({"name": name, "about": about, "citation": citation} | changes)


# Pretraining and free bits, and what that paper compares. Penn Treebank settings: see the defaults in config/.

_VAE = Recipe(
    name="vae",
    about="Variational autoencoder of sentences, LSTM 256 on both sides, 32 latent dimensions: the baseline, which "
    "collapses on most corpora.",
    citation=_LI_2019,
)

_LSTM_LM = _derived(
    _VAE,
    "lstm-lm",
    "LSTM language model: the decoder of `vae` without a latent.",
    _LI_2019,
    {"encoder": None, "pooling": None, "posterior": None, "prior": None, "objective.kind": "reconstruction"},
)

_CYCLIC = _derived(
    _VAE,
    "vae-cyclic",
    "`vae` with a KL weight that rises from 0 to 1 four times in 40 epochs, trained with Adam.",
    _LIU_2019,
    {
        "objective.kl_weight": {"kind": "cyclic", "cycles": 4, "rising": 0.5, "over": 40, "unit": "epochs"},
        "training.optimizer": {"kind": "adam", "lr": 1e-3},
        "training.epochs": 40,
        "training.plateau": None,
    },
)

_PRETRAIN = _derived(
    _VAE,
    "vae-pretrain",
    "`vae` that starts from the encoder of a converged autoencoder, with the KL's full weight at once.",
    _LI_2019,
    {"pretrain": {"keep": "encoder"}},
)

_PRETRAIN_FREE_BITS = _derived(
    _PRETRAIN,
    "pretrain-free-bits",
    "`vae` that starts from the encoder of a converged autoencoder and keeps 4 nats free, an equal share in each "
    "dimension, the KL's weight rising over 10 epochs.",
    _LI_2019,
    {"objective.kl_weight": _WARM_UP, "objective.free_bits": {"target": 4.0}},
)

_IWAE = _derived(
    _VAE,
    "iwae",
    "`vae` trained on the importance-weighted bound with 10 samples.",
    _BURDA_2016,
    {"objective.kind": "iwae", "objective.samples": 10},
)

_PRETRAIN_RECIPES = [
    _LSTM_LM,
    _derived(
        _LSTM_LM,
        "gru-lm",
        "GRU language model, trained with Adam.",
        "",
        {"decoder.kind": "gru", "training.optimizer.kind": "adam", "training.optimizer.lr": 1e-3},
    ),
    _derived(
        _VAE,
        "ae",
        "Autoencoder: `vae` with the KL's weight at 0, selected by reconstruction. It copies well and its codes do not "
        "fill the prior.",
        _LI_2019,
        {"objective.kl_weight": 0.0, "training.criterion": "reconstruction"},
    ),
    _VAE,
    _derived(
        _VAE,
        "vae-anneal",
        "`vae` with a KL weight that rises from 0 to 1 over 10 epochs.",
        _BOWMAN_2016,
        {"objective.kl_weight": _WARM_UP},
    ),
    _CYCLIC,
    _derived(
        _CYCLIC,
        "vae-cyclic-sgd",
        "`vae-cyclic` trained with SGD, as the other recipes.",
        _LI_2019,
        {"training.optimizer": {"kind": "sgd", "lr": 0.5}, "training.plateau": "public-code"},
    ),
    _derived(
        _VAE,
        "beta-vae",
        "`vae` with half the KL's weight throughout: fuller codes at a worse likelihood.",
        _HIGGINS_2017,
        {"objective.kl_weight": 0.5},
    ),
    _derived(
        _VAE,
        "vae-free-bits",
        "`vae` with 3 nats of the KL free, an equal share in each dimension.",
        _KINGMA_2016,
        {"objective.free_bits": {"target": 3.0}},
    ),
    _derived(
        _VAE,
        "vae-free-bits-total",
        "`vae` with 3 nats of the KL free, however the dimensions share them.",
        _PELSMAEKER_2019,
        {"objective.free_bits": {"target": 3.0, "per": "total"}},
    ),
    _PRETRAIN,
    _derived(
        _PRETRAIN,
        "vae-pretrain-anneal",
        "`vae-pretrain` with a KL weight that rises from 0 to 1 over 10 epochs.",
        _LI_2019,
        {"objective.kl_weight": _WARM_UP},
    ),
    _derived(
        _PRETRAIN_FREE_BITS,
        "vae-pretrain-both",
        "`pretrain-free-bits` that keeps the autoencoder's decoder too.",
        _LI_2019,
        {"pretrain.keep": "both"},
    ),
    _PRETRAIN_FREE_BITS,
    _derived(
        _PRETRAIN_FREE_BITS,
        "pretrain-free-bits-no-anneal",
        "`pretrain-free-bits` with the KL's full weight at once.",
        _LI_2019,
        {"objective.kl_weight": 1.0},
    ),
    _IWAE,
    _derived(
        _IWAE,
        "iwae-pretrain",
        "`iwae` that starts from the encoder of a converged autoencoder.",
        _LI_2019,
        {"pretrain": {"keep": "encoder"}},
    ),
]


# Pooling, and what that paper compares: LSTM 1024, annealed, SGD with the early stopping of the code it builds on.

_LONG_BASE = sized(_VAE, "yahoo").but({"objective.kl_weight": _WARM_UP, "training.plateau": "public-code"})

_MAX_POOL = _derived(
    _LONG_BASE,
    "vae-max-pool",
    "Annealed `vae`, LSTM 1024, whose features are the largest value of each unit over the sentence.",
    _LONG_2019,
    {"pooling.kind": "max"},
)

_SKIP = _derived(
    _LONG_BASE,
    "skip-vae",
    "Annealed `vae`, LSTM 1024, whose code joins every layer of the decoder and the logits.",
    _DIENG_2019,
    {"decoder.skip": True},
)

_AGGRESSIVE = _derived(
    _LONG_BASE,
    "vae-aggressive",
    "Annealed `vae`, LSTM 1024, whose encoder catches up before each step of the decoder.",
    _HE_2019,
    {"training.update.kind": "aggressive"},
)

_IVAE = _derived(
    _LONG_BASE,
    "ivae",
    "Sample-only posterior, LSTM 1024, trained with the dual form of the KL: its own number is a lower bound.",
    _FANG_2019,
    {
        "posterior": {"kind": "implicit", "layers": 0},
        "objective": {"kind": "dual-kl", "kl_weight": _WARM_UP | {"start": 0.1}},
        "training.update": {"kind": "alternating", "dual_steps": 5, "optimizer": {"kind": "adam", "lr": 1e-5}},
        "training.optimizer": {"kind": "adam", "lr": 8e-4},
        "training.epochs": 40,
        "training.plateau": None,
    },
)

_POOLING_RECIPES = [
    _derived(
        _LONG_BASE,
        "vae-word-dropout",
        "Annealed `vae`, LSTM 1024, whose decoder sees only half of the words while it learns.",
        _BOWMAN_2016,
        {"decoder.word_dropout": 0.5},
    ),
    _derived(
        _LONG_BASE,
        "vae-mean-pool",
        "Annealed `vae`, LSTM 1024, whose features are the mean state of the sentence.",
        _LONG_2019,
        {"pooling.kind": "mean"},
    ),
    _MAX_POOL,
    _derived(
        _MAX_POOL,
        "vae-max-pool-no-anneal",
        "`vae-max-pool` with the KL's full weight at once.",
        _LONG_2019,
        {"objective.kl_weight": 1.0},
    ),
    _derived(
        _LONG_BASE,
        "vae-abs-pool",
        "Annealed `vae`, LSTM 1024, whose features are the value of largest size of each unit, with its sign.",
        _LONG_2019,
        {"pooling.kind": "abs"},
    ),
    _derived(
        _LONG_BASE,
        "vae-attention-pool",
        "Annealed `vae`, LSTM 1024, whose features are a learned mean of the states.",
        _LONG_2019,
        {"pooling.kind": "attention"},
    ),
    _SKIP,
    _derived(
        _SKIP,
        "skip-vae-no-anneal",
        "`skip-vae` with the KL's full weight at once.",
        _LONG_2019,
        {"objective.kl_weight": 1.0},
    ),
    _AGGRESSIVE,
    _derived(
        _AGGRESSIVE,
        "vae-aggressive-no-anneal",
        "`vae-aggressive` with the KL's full weight at once.",
        _LONG_2019,
        {"objective.kl_weight": 1.0},
    ),
    _IVAE,
    _derived(
        _IVAE,
        "ivae-mi",
        "`ivae` whose codes need to fill the prior only all together, which leaves the mutual information free.",
        _FANG_2019,
        {"objective.of": "aggregated"},
    ),
    _derived(
        _VAE,
        "wae",
        "Wasserstein autoencoder: one code for each sentence, and those of a batch must look like draws from the "
        "prior, by MMD.",
        _TOLSTIKHIN_2018,
        {"posterior.kind": "delta", "objective": {"kind": "wae"}, "training.criterion": "reconstruction"},
    ),
]

_DEFAULT = _derived(
    _VAE,
    "default",
    "What you get without asking: a GRU variational autoencoder that reads both ways, with half the KL's weight so "
    "that codes hold what decoding needs.",
    "",
    {
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
    },
)

RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in [_DEFAULT, *_PRETRAIN_RECIPES, *_POOLING_RECIPES]}


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
