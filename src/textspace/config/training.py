"""How a model is trained: optimiser, update rule, batches, when to stop, and a first phase."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from textspace.config.base import Config, Count, NotNegative, Positive, Seed, Share, Whole
from textspace.config.schedules import Weight
from textspace.errors import nearest

__all__ = [
    "PLATEAU_PRESETS",
    "AggressiveUpdate",
    "AlternatingUpdate",
    "Batches",
    "JointUpdate",
    "Optimizer",
    "Plateau",
    "Pretraining",
    "Training",
    "UpdateConfig",
]


def _spelled_out(precision: Any) -> Any:
    """As scoring calls it; files of the first versions say "fp32"."""
    return "float32" if precision == "fp32" else precision


def _without_mim(criterion: Any) -> Any:
    """Earlier versions named the objective of mutual-information learning."""
    return "objective" if criterion == "mim" else criterion


class Optimizer(Config):
    kind: Literal["sgd", "adam", "adamw"] = "sgd"
    lr: Positive = 0.5
    schedule: Weight = 1.0
    """Multiplies the learning rate; a linear schedule from 0 is a warm-up."""
    momentum: Share = 0.0
    """For sgd."""
    betas: tuple[Share, Share] = (0.9, 0.999)
    """For adam and adamw."""
    weight_decay: NotNegative = 0.0


class Plateau(Config):
    """Lower the learning rate when the validation criterion stalls."""

    factor: Annotated[float, Field(gt=0, lt=1)] = 0.5
    patience: Count = 2
    """Decay after this many validations without improvement; `counted` says which ones count."""
    max_decays: Count = 5
    """Training stops when the learning rate is lowered for the time of this number: with 1, at the first."""
    first_epoch: Annotated[Whole, Field(ge=0)] = 0
    """No decay before this many epochs have passed."""
    counted: Literal["in_a_row", "over_the_run"] = "in_a_row"
    """Which validations without improvement `patience` counts: those in a row, so that an improvement starts the count
    again; or all since the start of the run. A decay starts the count again either way."""
    from_last_decay: bool = False
    """After a decay, compare with what the criterion was then, and not with the best so far."""
    reload_best: bool = False
    """Go back to the best weights at each decay."""


PLATEAU_PRESETS = {
    "paper": Plateau(patience=2, max_decays=5),
    "public-code": Plateau(patience=5, max_decays=5, first_epoch=16, from_last_decay=True, reload_best=True),
}
"""What the pretrain + free-bits paper prints, and what its public code does; `training.plateau=paper` picks one."""


class JointUpdate(Config):
    """All parameters move together."""

    kind: Literal["joint"] = "joint"


class AggressiveUpdate(Config):
    """Before each step of the decoder the encoder takes many, until the mutual information stops growing."""

    kind: Literal["aggressive"] = "aggressive"
    clip_together: bool = False
    """Whether `training.clip` limits the gradient of encoder and decoder together while one side moves, and not that of
    the moving side alone: this shortens steps of the encoder where the decoder's gradient is large."""
    inner_batches: Literal["epochs", "replacement"] = "epochs"
    """Batches of the encoder's own steps: `epochs` goes through the data in an order of its own; `replacement` begins
    with the batch of the coming decoder step, and draws the others from the epoch's batches with replacement."""
    ends: Literal["growth", "fall"] = "growth"
    """When both sides begin to move together: `growth`, after the first epoch in which the mutual information of the
    validation set grows by less than 0.01 nats; `fall`, after the first epoch in which the mutual information within
    validation minibatches falls, however little."""
    window: Count = 15
    """The encoder stops when its loss per token over this many steps is above that of the window before."""
    cap: Count = 100
    """At most so many encoder steps before a decoder step."""


class AlternatingUpdate(Config):
    """Before each step of the model the dual functions of objective 'dual-kl' take some."""

    kind: Literal["alternating"] = "alternating"
    clip_apart: bool = False
    """Whether `training.clip` limits the gradients of encoder and decoder one by one, and not together."""
    clip_dual: bool = True
    """Whether `training.clip` limits the gradient of the dual functions too."""
    dual_steps: Count = 5
    optimizer: Optimizer = Optimizer(kind="adam", lr=1e-5)
    """Of the dual functions; `training.plateau` does not lower its learning rate."""


UpdateConfig = Annotated[JointUpdate | AggressiveUpdate | AlternatingUpdate, Field(discriminator="kind")]


class Batches(Config):
    sentences: Count | None = 32
    """Sentences in a batch, over all processes."""
    tokens: Count | None = None
    """Instead: padded tokens in a batch, over all processes."""
    by_length: bool = True
    """Put sentences of similar length together, so that little is padding; otherwise any. With clipped gradients a
    batch of short sentences moves weights as far as one of long ones, so that this option changes what is learnt."""
    pieces: Count = 1
    """Compute each batch in this many pieces (gradient accumulation): less memory, same result."""

    @model_validator(mode="after")
    def _one_rule(self) -> Batches:
        if (self.sentences is None) == (self.tokens is None):
            raise ValueError("give either batch.sentences or batch.tokens, and set the other to null")
        if self.tokens is not None and not self.by_length:
            raise ValueError(
                "batch.tokens makes batches of similar lengths: set batch.by_length=true, or batch.sentences"
            )
        return self


class Training(Config):
    seed: Seed = 0
    epochs: Count = 100
    """At most."""
    steps: Count | None = None
    """At most."""
    batch: Batches = Batches()
    optimizer: Optimizer = Optimizer()
    update: UpdateConfig = JointUpdate()
    average: Literal["sentences", "tokens"] = "sentences"
    """Whether the loss is the mean over sentences of their terms, which are sums over tokens, or of these sums divided
    by the sentence's number of tokens (its end counts), where short sentences weigh as much as long ones."""
    plateau: Plateau | None = Plateau()
    clip: Positive | None = 5.0
    """Largest norm of the gradient."""
    patience: Count | None = None
    """Stop after this many validations in a row without improvement."""
    criterion: Annotated[
        Literal["objective", "elbo", "iwae", "reconstruction", "last"], BeforeValidator(_without_mim)
    ] = "objective"
    """Keep the weights with the lowest validation value of this; `plateau` and `patience` watch it too. `objective`:
    the recipe's own loss at the final weights of its schedules. `elbo`: the negative ELBO at KL weight 1 (`objective`
    where the posterior has no density). `iwae`: the bound of objective 'iwae'. `reconstruction`: that alone. `last`:
    keep the last epoch's weights, and watch the objective. For a language model all but `last` are the exact NLL."""
    validate_every: Count | None = None
    """Validate after this many steps too, for curves; the rules above act on the validation that ends an epoch."""
    checkpoint_every: Count | None = None
    """Save a resumable checkpoint after this many steps and at the end of each epoch; by default every half minute."""
    precision: Annotated[Literal["float32", "tf32", "bf16"], BeforeValidator(_spelled_out)] = "float32"
    """Of products of matrices in training, and of a decoder's in validations: tf32 rounds their factors to 10 bits,
    bf16 also keeps most of what lies between them in 16 bits; both are for the GPU. In bf16 single steps that are not
    finite move nothing and training goes on; ten in a row end it, as the first one does otherwise."""
    record_steps: bool = True
    """On a GPU, record a step once for each shape of batch and replay it, which spares the host asking for every
    kernel; results are equal to rounding. Two-way and pretrained encoders and several processes go without."""

    @model_validator(mode="before")
    @classmethod
    def _preset(cls, values: Any) -> Any:
        if isinstance(values, dict) and isinstance(name := values.get("plateau"), str):
            if name not in PLATEAU_PRESETS:
                raise ValueError(f"there is no plateau preset {name!r}: {nearest(name, PLATEAU_PRESETS)}")
            values = {**values, "plateau": PLATEAU_PRESETS[name]}
        return values

    @model_validator(mode="after")
    def _keeps_the_last(self) -> Training:
        if self.criterion == "last" and self.plateau is not None and self.plateau.reload_best:
            raise ValueError(
                "training.criterion 'last' keeps the last weights, and training.plateau.reload_best returns to the "
                "best: set training.plateau.reload_best=false, or another criterion"
            )
        return self


class Pretraining(Config):
    """A first phase as an autoencoder: the same recipe with KL weight 0, selected by reconstruction.

    It is trained with the recipe's training settings to its own stop, kept in the cache and used again by every run
    whose first phase has the same parts, data and seed.
    """

    keep: Literal["encoder", "both"] = "encoder"
    """What goes into the second phase: encoder, pooling and posterior (with shared embeddings the encoder's stay), or
    the decoder as well."""
    epochs: Count | None = None
    """At most; as many as `training.epochs` when not given."""
