"""What recipes are derived from, and how."""

from __future__ import annotations

from typing import Any

from textspace.config import Recipe, RecurrentEncoder, Training, TransformerDecoder, TransformerEncoder
from textspace.errors import TextspaceError, nearest

__all__ = ["BOWMAN_2016", "LI_2019", "SIZES", "VAE", "WARM_UP", "derived", "sized"]

SIZES = {"ptb": (256, 256), "captions": (128, 512), "yahoo": (512, 1024)}
"""Embedding and hidden units, of encoder and decoder alike, that the papers use on each corpus."""

LI_2019 = (
    "Li, He, Neubig, Berg-Kirkpatrick and Yang. A Surprisingly Effective Fix for Deep Latent Variable Modeling of "
    "Text. EMNLP 2019"
)
BOWMAN_2016 = "Bowman et al. Generating Sentences from a Continuous Space. CoNLL 2016"

WARM_UP = {"kind": "linear", "start": 0.0, "end": 1.0, "over": 10, "unit": "epochs"}
"""The KL's weight in most recipes that anneal it."""


VAE = Recipe(
    name="vae",
    about="Variational autoencoder of sentences, LSTM 256 on both sides, 32 latent dimensions: the baseline, which "
    "collapses on most corpora.",
    citation=LI_2019,
    training=Training(criterion="elbo"),  # the published code validates at KL weight 1, free bits or not
)


def sized(recipe: Recipe, corpus: str) -> Recipe:
    """The recipe with the encoder and decoder sizes that the papers use on a corpus.

    >>> sized(VAE, "yahoo").decoder.hidden
    1024
    """
    if corpus not in SIZES:
        raise TextspaceError(f"there are no sizes {corpus!r}; {nearest(corpus, SIZES)}")
    if isinstance(recipe.decoder, TransformerDecoder) or isinstance(recipe.encoder, TransformerEncoder):
        raise TextspaceError(
            f"the sizes {corpus!r} are of recurrent networks, and recipe {recipe.name!r} has Transformers: set hidden, "
            "layers, heads and feed_forward of encoder and decoder instead"
        )
    embedding, hidden = SIZES[corpus]
    parts = ("encoder", "decoder") if isinstance(recipe.encoder, RecurrentEncoder) else ("decoder",)
    return recipe.but({f"{part}.embedding": embedding for part in parts} | {f"{part}.hidden": hidden for part in parts})


def derived(base: Recipe, name: str, about: str, citation: str, changes: dict[str, Any]) -> Recipe:
    return base.but({"name": name, "about": about, "citation": citation} | changes)
