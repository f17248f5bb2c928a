"""Sparse codes with Beta gates, the rivals that paper compares them with, and the dial that says how sparse.

GRU 512 on both sides, embeddings of 256 that both share, Adam, and weights far below 1 on each KL, the plain VAE's too.
The weights, alpha and beta, batches of 256 and 15 epochs are the published code's, and so are the last epoch's weights,
no dropout, standard deviations by softplus, and a code that joins every input of the decoder and nothing else: its
first state is 0. The paper prints none of them. The dense models' code is not public: here they have the same parts.
The decoder's first word is a start token of its own; the published code's is the end token.

The paper makes gates and slab with networks of the features, the slab's of gamma too, and gives no sizes: `hsvae` has
one hidden layer as wide as the GRU. The published code has one linear layer each, and a slab that does not see gamma:
`hsvae-public-code`.

`mat-vae` adds up the MMD of each dimension, as Mathieu et al. (2019) do. Its weight is below 1 in the paper, which
prints no value; docs/sparse.md shows what 0.5 does.

`ton-vae` is described there and never trained. Its price is printed as one on the gates of pseudo-inputs, which with
these weights moves those of sentences little: ours is on sentences, and objective.gate_share.of=pseudo-inputs on what
is printed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from textspace.checks import is_within
from textspace.config import BetaGatedPrior, ElboObjective, Recipe, SpikeAndSlabPrior
from textspace.errors import TextspaceError
from textspace.recipes.base import VAE, derived

__all__ = ["RECIPES", "Asked", "asked_share", "with_sparsity"]

SMALLEST = 0.01
"""Of alpha and beta of a prior."""

_PROKHOROV_2021 = (
    "Prokhorov, Li, Shareghi and Collier. Learning Sparse Sentence Encoding without Supervision: An Exploration of "
    "Sparsity in Variational Autoencoders. RepL4NLP 2021"
)
_MATHIEU_2019 = (
    "Mathieu, Rainforth, Siddharth and Teh. Disentangling Disentanglement in Variational Autoencoders. ICML 2019"
)
_TONOLINI_2019 = "Tonolini, Jensen and Murray-Smith. Variational Sparse Coding. UAI 2019"

_GRU = {"kind": "gru", "embedding": 256, "hidden": 512}
_GATED = {"kind": "spike-and-slab", "hidden": 512, "deviation": "softplus"}

_DENSE = derived(
    VAE,
    "vae-dense",
    "Variational autoencoder, GRU 512, with a hundredth of the KL's weight: the dense rival of `hsvae`.",
    _PROKHOROV_2021,
    {
        "encoder": _GRU,
        "decoder": _GRU | {"first_state": "zero", "input_dropout": 0.0, "output_dropout": 0.0},
        "share_embeddings": True,
        "posterior.deviation": "softplus",
        "initial.weights": None,
        "objective.kl_weight": 0.01,
        "training.batch.sentences": 256,
        "training.optimizer": {"kind": "adam", "lr": 8e-4},
        "training.plateau": None,
        "training.epochs": 15,
        "training.criterion": "last",
    },
)

_HSVAE = derived(
    _DENSE,
    "hsvae",
    "Sparse codes: each dimension has a Beta gate that can switch it off, with a prior of 80 percent off; "
    "prior.alpha and prior.beta, or --sparsity, set how much.",
    _PROKHOROV_2021,
    {
        "posterior": _GATED,
        "prior": {"kind": "beta-gated", "alpha": 4.0, "beta": 1.0},
        "objective.gate_kl_weight": 0.01,
    },
)

RECIPES = [
    _HSVAE,
    derived(
        _HSVAE,
        "hsvae-public-code",
        "`hsvae` with gates and slab as in its published code: one linear layer each, and a slab that does not see the "
        "gates.",
        _PROKHOROV_2021,
        {"posterior.layers": 0, "posterior.slab_sees_gates": False},
    ),
    derived(
        _DENSE,
        "mat-vae",
        "Gaussian posterior, spike-and-slab prior that is off in 80 percent, and MMD to it; codes of text stay dense.",
        _MATHIEU_2019,
        {
            "prior": {"kind": "spike-and-slab", "off": 0.8},
            "objective": {
                "kind": "wae",
                "kl_weight": 0.01,
                "mmd_weight": 0.5,
                "per": "dimension",
                "scales": (0.1, 0.2, 0.5, 1.0, 2.0, 5.0),
            },
        },
    ),
    derived(
        _DENSE,
        "ton-vae",
        "Spike-and-slab posterior without a latent for its gates, a prior of learned features, and a price on gates "
        "that are not off in 80 percent.",
        _TONOLINI_2019,
        {
            "posterior": _GATED | {"gates": "features"},
            "prior": {"kind": "pseudo-inputs"},
            "objective.gate_share": {"off": 0.8},
        },
    ),
    derived(
        _DENSE,
        "vae-l1",
        "`vae-dense` with a price on the size of its posterior's means and deviations.",
        _PROKHOROV_2021,
        {"objective.activity": {"norm": "l1"}},
    ),
    derived(
        _DENSE,
        "vae-l2",
        "`vae-dense` with a price on the squares of its posterior's means and deviations.",
        _PROKHOROV_2021,
        {"objective.activity": {"norm": "l2"}},
    ),
    _DENSE,
]

_PRETRAINED = {
    "encoder": {"kind": "pretrained"},
    "pooling.kind": "mean",
    "share_embeddings": False,
    "training.optimizer.lr": 8e-5,
}

RECIPES += [
    derived(
        _DENSE,
        "b-vae",
        "`vae-dense` with a pretrained encoder of Hugging Face, fine-tuned: name it with encoder.model.",
        _PROKHOROV_2021,
        _PRETRAINED,
    ),
    derived(
        _HSVAE,
        "b-hsvae",
        "`hsvae` with a pretrained encoder of Hugging Face, fine-tuned: name it with encoder.model.",
        _PROKHOROV_2021,
        _PRETRAINED,
    ),
]


def with_sparsity(recipe: Recipe, share: float) -> Recipe:
    """The recipe with gates that want this share of the dimensions off, as sure of it as they were.

    >>> sparse = with_sparsity(next(each for each in RECIPES if each.name == "hsvae"), 0.6)
    >>> sparse.prior.alpha, sparse.prior.beta
    (3.0, 2.0)
    """
    if not is_within(share, 0, 1) or share in (0, 1):
        shown = f"{share:g}" if isinstance(share, float | int) else repr(share)
        raise TextspaceError(
            f"sparsity is {shown}: give the share of dimensions that shall be off, between 0 and 1, such as 0.8"
        )
    changes = _dialled(recipe, share)
    if not changes:
        *names, last = (repr(each.name) for each in RECIPES if _dialled(each, 0.5))
        raise TextspaceError(
            f"recipe {recipe.name!r} has no gates that a sparsity could set: use recipe {', '.join(names)} or {last}"
        )
    return recipe.but(changes)


def _dialled(recipe: Recipe, share: float) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if isinstance(prior := recipe.prior, BetaGatedPrior):
        total = prior.alpha + prior.beta
        changes = {"prior.alpha": share * total, "prior.beta": total - share * total}
        if (smaller := min(changes.values())) < SMALLEST:
            raise TextspaceError(
                f"sparsity {share:g} of gates with prior.alpha + prior.beta = {total:g} leaves {smaller:.2g} for one "
                f"of them, below {SMALLEST:g}: give a share from {SMALLEST / total:.2g} to {1 - SMALLEST / total:.4g}"
            )
    elif isinstance(prior, SpikeAndSlabPrior):
        changes["prior.off"] = share
    if isinstance(recipe.objective, ElboObjective) and recipe.objective.gate_share is not None:
        changes["objective.gate_share.off"] = share
    return changes


class Asked(NamedTuple):
    """The share of dimensions that a recipe wants off, and where it says so."""

    off: float
    where: str


def asked_share(recipe: Recipe) -> Asked | None:
    """None for a recipe that wants nothing of the kind."""
    match recipe.prior, recipe.objective:
        case BetaGatedPrior(alpha=alpha, beta=beta), _:
            return Asked(alpha / (alpha + beta), f"the prior Beta({alpha:g}, {beta:g}) of gates")
        case SpikeAndSlabPrior(off=off), _:
            return Asked(off, "the spike-and-slab prior")
        case _, ElboObjective(gate_share=share) if share is not None:
            return Asked(share.off, "the price on the share of gates")
    return None
