"""The parts of a model: encoder, pooling, posterior, prior, decoder."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field, model_validator

from textspace.config.base import Config, Count, Positive, Share, Whole

__all__ = [
    "AttentionPooling",
    "BetaGatedPrior",
    "DecoderConfig",
    "DeltaPosterior",
    "EncoderConfig",
    "GaussianPosterior",
    "ImplicitPosterior",
    "Initial",
    "Latent",
    "Layers",
    "NoPooling",
    "PoolingConfig",
    "PosteriorConfig",
    "PretrainedEncoder",
    "PriorConfig",
    "PseudoInputPrior",
    "RecurrentDecoder",
    "RecurrentEncoder",
    "ScaledNormalPrior",
    "SimplePooling",
    "SpikeAndSlabPosterior",
    "SpikeAndSlabPrior",
    "StandardNormalPrior",
    "TransformerDecoder",
    "TransformerEncoder",
]


class Latent(Config):
    dim: Count = 32
    """Dimensions of a code."""
    spike: Annotated[float, Field(ge=1e-4, lt=1)] = 0.05
    """Deviation of a dimension that is off, in spike-and-slab posteriors and priors; that of one that is on is 1."""


class RecurrentEncoder(Config):
    kind: Literal["lstm", "gru"] = "lstm"
    embedding: Count = 256
    hidden: Count = 256
    layers: Count = 1
    bidirectional: bool = False
    reverse_input: bool = False
    """Feed the words in reverse order."""
    start_last: bool = False
    """Feed the start token after the words, in place of the end token, and nothing before them: with objective 'mim' an
    encoder that reads it first learns to copy far more slowly."""
    word_dropout: Share = 0.0
    """Share of the words it reads that become unknown in training; never start and end tokens, or the decoder's."""


class Layers(Config):
    """Sizes of Transformer layers, of encoder and decoder alike."""

    hidden: Count = 128
    """Units of a state, and of an embedding."""
    layers: Count = 4
    heads: Count = 8
    """Of attention; each sees hidden / heads units."""
    feed_forward: Count = 512
    """Units of the network after attention."""
    dropout: Share = 0.1
    """On embeddings and on what each layer adds to its input; attention weights have none."""
    norm: Literal["after", "before"] = "after"
    """Where a layer normalises: after adding to its input, as Vaswani et al. (2017), or before it reads its input."""

    @property
    def embedding(self) -> int:
        return self.hidden

    @model_validator(mode="after")
    def _heads_fit(self) -> Layers:
        multiple = math.lcm(self.heads, 2)  # positions are sines and cosines, in pairs
        if self.hidden % multiple:
            raise ValueError(
                f"hidden ({self.hidden}) and heads ({self.heads}) do not fit: give a multiple of {multiple} as hidden"
            )
        return self


class TransformerEncoder(Layers):
    """Self-attention over the sentence, start and end tokens included, with sinusoidal positions."""

    kind: Literal["transformer"] = "transformer"
    word_dropout: Share = 0.0
    """Share of the words it reads that become unknown in training; never start and end tokens, or the decoder's."""


class PretrainedEncoder(Config):
    """An encoder of Hugging Face, which reads the text with a tokenizer of its own; needs the `transformers` extra."""

    kind: Literal["pretrained"] = "pretrained"
    model: str = ""
    """A folder, or the name of a model of the Hugging Face hub; to be given for training."""
    frozen: bool = False
    """Keep its weights as they are, instead of training them with all others."""
    max_tokens: Annotated[Whole, Field(ge=4)] | None = None
    """It reads so many tokens of a sentence, its special ones included; as many as it can when not given."""


EncoderConfig = Annotated[RecurrentEncoder | TransformerEncoder | PretrainedEncoder, Field(discriminator="kind")]


class SimplePooling(Config):
    """Without parameters: the last state or the start token's; or over all states, the start and end tokens' included,
    their mean, their sum, their largest value in each unit, or their value of largest size with its sign."""

    kind: Literal["last", "start", "mean", "sum", "max", "abs"] = "last"


class AttentionPooling(Config):
    """A mean of the states with learned weights, softmax(u . tanh(W h + b))."""

    kind: Literal["attention"] = "attention"
    hidden: Count | None = None
    """Units of tanh(W h + b); as many as a state has when not given."""


class NoPooling(Config):
    """Every token keeps its state and has a latent of its own, the start and end tokens too."""

    kind: Literal["none"] = "none"


PoolingConfig = Annotated[SimplePooling | AttentionPooling | NoPooling, Field(discriminator="kind")]


Deviation = Literal["exp", "softplus"]
"""How a head's output a becomes a standard deviation: exp(a / 2), so that a is the log-variance, or ln(1 + exp(a))."""


class GaussianPosterior(Config):
    kind: Literal["gaussian"] = "gaussian"
    deviation: Deviation = "exp"
    """How the second head gives the standard deviation: as a log-variance (exp), or by softplus."""
    log_variance_floor: float | None = None
    """Smallest log-variance of a dimension; objectives that reward narrow posteriors, such as 'mim', need one."""


class DeltaPosterior(Config):
    kind: Literal["delta"] = "delta"


class ImplicitPosterior(Config):
    """Samples made of features and noise by a network; no density."""

    kind: Literal["implicit"] = "implicit"
    noise: Count | None = None
    """Numbers of noise for each sample; as many as latent dimensions when not given."""
    layers: Annotated[Whole, Field(ge=0)] = 1
    """Hidden layers; with none the sample is linear in features and noise."""
    hidden: Count = 128


Concentration = Annotated[float, Field(ge=0.1, le=1000)]


class SpikeAndSlabPosterior(Config):
    """Every dimension is off (near 0) with probability gamma, and else on: a slab of its own mean and deviation."""

    kind: Literal["spike-and-slab"] = "spike-and-slab"
    gates: Literal["beta", "features"] = "beta"
    """gamma drawn from a Beta distribution given the features, a latent of its own; or a function of the features."""
    slab_sees_gates: bool = True
    """Whether the slab's mean and deviation depend on gamma too, not only on the features; for gates 'beta'."""
    layers: Annotated[Whole, Field(ge=0)] = 1
    """Hidden layers of the networks of gates and slab; without any, each is one linear layer."""
    hidden: Count = 128
    deviation: Deviation = "exp"
    """How the slab's network gives its standard deviation: as a log-variance (exp), or by softplus."""
    temperature: Annotated[float, Field(ge=0.01, le=10)] = 0.5
    """Of the relaxed switches that training draws; everything else draws switches that are on or off."""
    hard: bool = True
    """Whether training's switches have the value of hard ones too, and only their gradient is relaxed. Without this
    training may find codes between on and off that make the KL's estimate negative without end."""
    concentration: tuple[Concentration, Concentration] = (0.5, 100.0)
    """Smallest and largest parameter of the Beta distributions; gradients pass as if there were no such bounds."""

    @model_validator(mode="after")
    def _bounds(self) -> SpikeAndSlabPosterior:
        if self.concentration[0] >= self.concentration[1]:
            low, high = self.concentration
            raise ValueError(f"concentration is from {low:g} to {high:g}: give the smaller bound first")
        return self


PosteriorConfig = Annotated[
    GaussianPosterior | DeltaPosterior | ImplicitPosterior | SpikeAndSlabPosterior, Field(discriminator="kind")
]


class StandardNormalPrior(Config):
    kind: Literal["standard-normal"] = "standard-normal"


class ScaledNormalPrior(Config):
    """N(0, scale^2) in every dimension."""

    kind: Literal["scaled-normal"] = "scaled-normal"
    scale: Annotated[float, Field(gt=0, le=100)] = 0.4
    """Standard deviation, or where it starts when it is learned."""
    noise: Literal["standard", "scale", "root-scale"] = "standard"
    """The noise e in codes, z = mean + deviation x e, where the KL in the loss is that of mean and deviation. Standard
    normal noise makes it the KL of the codes. With "scale" e has the standard deviation `scale`, as the VAT paper
    prints its loss; with "root-scale" e has the variance `scale`, if its diag(s) is a covariance. Both train much like
    a KL weight of scale^2 (or of scale), and the KL of the codes is then a monitor."""
    learned: bool = False
    """Whether training moves it; one number for all dimensions."""

    @property
    def noise_deviation(self) -> float:
        """The standard deviation of the noise in codes.

        >>> ScaledNormalPrior(scale=0.25, noise="scale").noise_deviation
        0.25
        """
        return {"standard": 1.0, "scale": self.scale, "root-scale": math.sqrt(self.scale)}[self.noise]

    @model_validator(mode="after")
    def _fixed_noise(self) -> ScaledNormalPrior:
        if self.learned and self.noise != "standard":
            raise ValueError(
                f"noise {self.noise!r} is drawn with a fixed scale, and learned is true: set noise=standard or "
                "learned=false"
            )
        return self


class SpikeAndSlabPrior(Config):
    """Every dimension is off with one fixed probability, and else standard normal."""

    kind: Literal["spike-and-slab"] = "spike-and-slab"
    off: Annotated[float, Field(gt=0, lt=1)] = 0.8
    """The share of dimensions that are off."""


class BetaGatedPrior(Config):
    """gamma, the probability that a dimension is off, from Beta(alpha, beta); spike-and-slab given gamma."""

    kind: Literal["beta-gated"] = "beta-gated"
    alpha: Annotated[float, Field(ge=0.01, le=1000)] = 4.0
    """Large beside beta: most dimensions are off."""
    beta: Annotated[float, Field(ge=0.01, le=1000)] = 1.0


class PseudoInputPrior(Config):
    """The mean of the posteriors of some learned features, in the place of sentences."""

    kind: Literal["pseudo-inputs"] = "pseudo-inputs"
    count: Count = 50


PriorConfig = Annotated[
    StandardNormalPrior | ScaledNormalPrior | SpikeAndSlabPrior | BetaGatedPrior | PseudoInputPrior,
    Field(discriminator="kind"),
]


class RecurrentDecoder(Config):
    kind: Literal["lstm", "gru"] = "lstm"
    embedding: Count = 256
    hidden: Count = 256
    layers: Count = 1
    first_state: Literal["code", "zero"] = "code"
    """The state before the first word: a linear map of z (of an LSTM, with the hidden state its tanh), or zero, so that
    z enters by the inputs alone."""
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
    """Use the input embeddings as output weights too; where they have another size than the states, a linear map stands
    between."""


class TransformerDecoder(Layers):
    """Self-attention over the words so far, and in every layer attention to the codes of all tokens, or the sentence's
    code added."""

    kind: Literal["transformer"] = "transformer"
    word_dropout: Share = 0.0
    """Share of the words it reads that become unknown in training; never the start token, the words it must predict,
    or the encoder's."""
    output_bias: bool = True
    """Whether each word has a bias in its logit."""
    tie_output: bool = False
    """Use the input embeddings as output weights too."""


DecoderConfig = Annotated[RecurrentDecoder | TransformerDecoder, Field(discriminator="kind")]


class Initial(Config):
    weights: Positive | None = 0.01
    """All weights but embeddings start in U(-weights, weights); PyTorch's own rule when null."""
    embeddings: Positive | None = 0.1
    """Embeddings start in U(-embeddings, embeddings); PyTorch's own rule, N(0, 1), when null."""
