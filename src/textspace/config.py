"""One validated config per part, the recipe they make up, and its JSON. Needs no torch."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from textspace import settings
from textspace.data.tokenizers import UNKNOWN_ALIASES
from textspace.errors import TextspaceError, nearest

__all__ = ["PLATEAU_PRESETS", "Recipe"]

FORMAT: Literal[1] = 1
"""Version of recipe.json; raised when an older version could no longer be read as it was meant."""

Share = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


class Config(BaseModel):
    """Base of every config: unknown options are errors, values are checked, objects do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


# Text


class WordTokenizer(Config):
    kind: Literal["words"] = "words"
    size: Count | None = None
    """Keep this many of the most frequent words; all of them when not given."""
    min_count: Count = 1
    """Keep words that occur at least this often in the training split."""
    unknown_aliases: tuple[str, ...] = UNKNOWN_ALIASES
    """How corpora write an unknown word; all become the one unknown token."""


class BPETokenizer(Config):
    kind: Literal["bpe"] = "bpe"
    size: Annotated[int, Field(ge=260)] = 8000
    """Vocabulary size, the 256 bytes and 4 special tokens included."""


class UnigramTokenizer(Config):
    kind: Literal["unigram"] = "unigram"
    size: Annotated[int, Field(ge=260)] = 8000
    """Vocabulary size, the 256 bytes and 4 special tokens included."""


TokenizerConfig = Annotated[WordTokenizer | BPETokenizer | UnigramTokenizer, Field(discriminator="kind")]


class Text(Config):
    """How raw text becomes token ids: for training, and for every sentence the space meets later."""

    normalise: tuple[Literal["lower", "ascii", "quotes", "links", "html"], ...] = ()
    """Applied in this order."""
    tokenizer: TokenizerConfig = WordTokenizer()
    max_tokens: Count | None = 512
    """Sentences with more tokens are over-long."""
    over_long: Literal["drop", "truncate"] = "drop"
    """What happens to over-long sentences in training and evaluation; either way they are counted."""


# Parts


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


class LastPooling(Config):
    kind: Literal["last"] = "last"


class GaussianPosterior(Config):
    kind: Literal["gaussian"] = "gaussian"


class DeltaPosterior(Config):
    kind: Literal["delta"] = "delta"


PosteriorConfig = Annotated[GaussianPosterior | DeltaPosterior, Field(discriminator="kind")]


class StandardNormalPrior(Config):
    kind: Literal["standard-normal"] = "standard-normal"


class RecurrentDecoder(Config):
    kind: Literal["lstm", "gru"] = "lstm"
    embedding: Count = 256
    hidden: Count = 256
    layers: Count = 1
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
    embeddings: Positive = 0.1
    """Embeddings start in U(-embeddings, embeddings)."""


# Objectives and schedules


class Constant(Config):
    kind: Literal["constant"] = "constant"
    value: float = 1.0


class Linear(Config):
    kind: Literal["linear"] = "linear"
    start: float = 0.0
    end: float = 1.0
    over: Positive = 10
    """How long the way from start to end takes; the value stays at end afterwards."""
    unit: Literal["steps", "epochs"] = "epochs"


ScheduleConfig = Annotated[Constant | Linear, Field(discriminator="kind")]
Weight = float | ScheduleConfig
"""A number, or a schedule for it."""


class ElboObjective(Config):
    kind: Literal["elbo"] = "elbo"
    kl_weight: Weight = 1.0


class ReconstructionObjective(Config):
    kind: Literal["reconstruction"] = "reconstruction"


ObjectiveConfig = Annotated[ElboObjective | ReconstructionObjective, Field(discriminator="kind")]


# Training


class Optimizer(Config):
    kind: Literal["sgd", "adam", "adamw"] = "sgd"
    lr: Positive = 0.5
    schedule: Weight = 1.0
    """Multiplies the learning rate; a linear schedule from 0 is a warm-up."""
    momentum: Share = 0.0
    """For sgd."""
    betas: tuple[Share, Share] = (0.9, 0.999)
    """For adam and adamw."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0


class Plateau(Config):
    """Lower the learning rate when the validation criterion stalls."""

    factor: Annotated[float, Field(gt=0, lt=1)] = 0.5
    patience: Count = 2
    """Decay after this many validations in a row without improvement."""
    max_decays: Count = 5
    """Training stops when the learning rate would be lowered for the so-manieth time."""
    first_epoch: Annotated[int, Field(ge=0)] = 0
    """No decay before this many epochs have passed."""
    reload_best: bool = False
    """Go back to the best weights at each decay."""


PLATEAU_PRESETS = {
    "paper": Plateau(patience=2, max_decays=5),
    "public-code": Plateau(patience=5, max_decays=5, first_epoch=15, reload_best=True),
}
"""What the pretrain + free-bits paper prints, and what its public code does; `training.plateau=paper` picks one."""


class Batches(Config):
    sentences: Count | None = 32
    """Sentences in a batch, over all processes."""
    tokens: Count | None = None
    """Instead: padded tokens in a batch, over all processes."""
    pieces: Count = 1
    """Compute each batch in this many pieces (gradient accumulation): less memory, same result."""

    @model_validator(mode="after")
    def _one_rule(self) -> Batches:
        if (self.sentences is None) == (self.tokens is None):
            raise ValueError("give either batch.sentences or batch.tokens, and set the other to null")
        return self


class Training(Config):
    seed: Annotated[int, Field(ge=0)] = 0
    epochs: Count = 100
    """At most."""
    steps: Count | None = None
    """At most."""
    batch: Batches = Batches()
    optimizer: Optimizer = Optimizer()
    plateau: Plateau | None = Plateau()
    clip: Positive | None = 5.0
    """Largest norm of the gradient."""
    patience: Count | None = None
    """Stop after this many validations in a row without improvement."""
    criterion: Literal["elbo", "reconstruction"] = "elbo"
    """Best weights have the lowest validation value of: the negative ELBO at KL weight 1 (a language model's exact
    negative log-likelihood), or the reconstruction alone."""
    validate_every: Count | None = None
    """Validate after this many steps too, for curves; the rules above act on the validation that ends an epoch."""
    checkpoint_every: Count | None = 500
    """Save a resumable checkpoint after this many steps, besides the one that ends each epoch."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """bf16 is for the GPU."""

    @model_validator(mode="before")
    @classmethod
    def _preset(cls, values: Any) -> Any:
        if isinstance(values, dict) and isinstance(name := values.get("plateau"), str):
            if name not in PLATEAU_PRESETS:
                raise ValueError(f"there is no plateau preset {name!r}: {nearest(name, PLATEAU_PRESETS)}")
            values = {**values, "plateau": PLATEAU_PRESETS[name]}
        return values


# The recipe


class Recipe(Config):
    """Which parts make a model, and with what numbers. A language model has no encoder, posterior or prior."""

    format: Literal[1] = FORMAT
    name: str = "custom"
    about: str = ""
    """What it is, in one sentence."""
    citation: str = ""
    text: Text = Text()
    latent: Latent = Latent()
    encoder: RecurrentEncoder | None = RecurrentEncoder()
    pooling: LastPooling | None = LastPooling()
    posterior: PosteriorConfig | None = GaussianPosterior()
    prior: StandardNormalPrior | None = StandardNormalPrior()
    decoder: RecurrentDecoder = RecurrentDecoder()
    share_embeddings: bool = False
    """Encoder and decoder read one embedding table (needs equal sizes)."""
    initial: Initial = Initial()
    objective: ObjectiveConfig = ElboObjective()
    training: Training = Training()

    @model_validator(mode="after")
    def _parts_fit(self) -> Recipe:
        inference = {part: getattr(self, part) for part in ("encoder", "pooling", "posterior", "prior")}
        missing = [name for name, part in inference.items() if part is None]
        if missing and len(missing) < len(inference):
            raise ValueError(
                f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing: give encoder, pooling, "
                "posterior and prior, or none of them for a language model"
            )
        if self.decoder.tie_output and self.decoder.embedding != self.decoder.hidden:
            raise ValueError(
                f"decoder.tie_output needs decoder.embedding ({self.decoder.embedding}) to equal "
                f"decoder.hidden ({self.decoder.hidden})"
            )
        if self.share_embeddings:
            if self.encoder is None:
                raise ValueError("share_embeddings needs an encoder, and a language model has none")
            if self.encoder.embedding != self.decoder.embedding:
                raise ValueError(
                    f"share_embeddings needs encoder.embedding ({self.encoder.embedding}) to equal "
                    f"decoder.embedding ({self.decoder.embedding})"
                )
        return self

    def but(self, changes: dict[str, Any]) -> Recipe:
        """This recipe with some fields changed, named by their path.

        Changing a part's `kind` keeps the options that the new kind has too.

        >>> recipe = Recipe().but({"latent.dim": 64, "encoder.kind": "gru"})
        >>> recipe.latent.dim, recipe.encoder.kind
        (64, 'gru')
        >>> Recipe().but({"latent.dmi": 64})
        Traceback (most recent call last):
        textspace.errors.TextspaceError: recipe has no option 'latent.dmi'; did you mean 'latent.dim'?
        """
        return Recipe.parse(settings.changed(self, changes))

    def with_settings(self, written: Iterable[str]) -> Recipe:
        """This recipe with settings written `path=value`, the value in JSON or plain text.

        >>> Recipe().with_settings(["training.plateau=public-code"]).training.plateau.patience
        5
        """
        return self.but(settings.parsed(written))

    @classmethod
    def parse(cls, data: Any) -> Recipe:
        """A recipe from plain data; a mistake is one sentence that names the option."""
        if isinstance(data, dict) and isinstance(written := data.get("format"), int) and written > FORMAT:
            raise TextspaceError(
                f"the recipe has format {written} and this version of textspace reads up to {FORMAT}: update textspace"
            )
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise TextspaceError(settings.sentence(error, cls)) from None

    @classmethod
    def from_json(cls, text: str) -> Recipe:
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:  # also numbers with too many digits, and bottomless nesting
            raise TextspaceError(f"the recipe is not JSON: {error}") from None
        return cls.parse(data)

    @classmethod
    def load(cls, path: Path | str) -> Recipe:
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise TextspaceError(f"cannot read the recipe {str(path)!r}: {error}") from None
        return cls.from_json(text)

    def to_json(self) -> str:
        return self.model_dump_json(indent=2) + "\n"
