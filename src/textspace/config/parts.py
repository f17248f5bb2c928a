"""The parts of a model: encoder, pooling, posterior, prior, decoder."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from textspace.config.base import Config, Count, Positive, Share

__all__ = [
    "AttentionPooling",
    "DeltaPosterior",
    "GaussianPosterior",
    "ImplicitPosterior",
    "Initial",
    "Latent",
    "PoolingConfig",
    "PosteriorConfig",
    "RecurrentDecoder",
    "RecurrentEncoder",
    "SimplePooling",
    "StandardNormalPrior",
]


class Latent(Config):
    dim: Count = 32
    """Dimensions of a code."""


class RecurrentEncoder(Config):
    kind: Literal["lstm", "gru"] = "lstm"
    embedding: Count = 256
    hidden: Count = 256
    layers: Count = 1
    bidirectional: bool = False
    reverse_input: bool = False
    """Feed the words in reverse order."""
    word_dropout: Share = 0.0
    """Share of the words it reads that become unknown in training; never start and end tokens, or the decoder's."""


class SimplePooling(Config):
    """Without parameters: the last state; or over all states, the start and end tokens' included, their mean, their
    largest value in each unit, or their value of largest size with its sign."""

    kind: Literal["last", "mean", "max", "abs"] = "last"


class AttentionPooling(Config):
    """A mean of the states with learned weights, softmax(u . tanh(W h + b))."""

    kind: Literal["attention"] = "attention"
    hidden: Count | None = None
    """Units of tanh(W h + b); as many as a state has when not given."""


PoolingConfig = Annotated[SimplePooling | AttentionPooling, Field(discriminator="kind")]


class GaussianPosterior(Config):
    kind: Literal["gaussian"] = "gaussian"
    log_variance_floor: float | None = None
    """Smallest log-variance of a dimension; objectives that reward narrow posteriors, such as 'mim', need one."""


class DeltaPosterior(Config):
    kind: Literal["delta"] = "delta"


class ImplicitPosterior(Config):
    """Samples made of features and noise by a network; no density."""

    kind: Literal["implicit"] = "implicit"
    noise: Count | None = None
    """Numbers of noise for each sample; as many as latent dimensions when not given."""
    layers: Annotated[int, Field(ge=0)] = 1
    """Hidden layers; with none the sample is linear in features and noise."""
    hidden: Count = 128


PosteriorConfig = Annotated[GaussianPosterior | DeltaPosterior | ImplicitPosterior, Field(discriminator="kind")]


class StandardNormalPrior(Config):
    kind: Literal["standard-normal"] = "standard-normal"


class RecurrentDecoder(Config):
    kind: Literal["lstm", "gru"] = "lstm"
    embedding: Count = 256
    hidden: Count = 256
    layers: Count = 1
    skip: bool = False
    """Let z join the input of every layer and the logits too, not only the first layer's input."""
    word_dropout: Share = 0.0
    """Share of the words it reads that become unknown in training; never the start token, the words it must predict,
    or the encoder's."""
    input_dropout: Share = 0.5
    """On the input embeddings."""
    output_dropout: Share = 0.5
    """Before the logits."""
    output_bias: bool = False
    """Whether each word has a bias in its logit."""
    tie_output: bool = False
    """Use the input embeddings as output weights too (needs embedding = hidden)."""


class Initial(Config):
    weights: Positive | None = 0.01
    """All weights but embeddings start in U(-weights, weights); PyTorch's own rule when null."""
    embeddings: Positive | None = 0.1
    """Embeddings start in U(-embeddings, embeddings); PyTorch's own rule, N(0, 1), when null."""
