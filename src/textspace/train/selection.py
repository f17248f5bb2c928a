"""What a validation decides: keep these weights, lower the learning rate, stop."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from textspace.config import IwaeObjective, Recipe, Training
from textspace.posteriors import POSTERIORS
from textspace.schedules import FINAL, schedule

__all__ = ["Criterion", "Kept", "Selection", "Verdict", "notes_on_criterion"]

_CRITERIA = {
    "objective": "validation objective",
    "elbo": "validation negative ELBO at KL weight 1",
    "nll": "validation NLL (exact)",
    "iwae": "validation NLL bound of as many samples as training takes",
    "reconstruction": "validation reconstruction",
}


class Criterion(NamedTuple):
    """What weights are kept by.

    Args:
        name: a key of `_CRITERIA`.
        number: the number of a validation that it is.
        keeps_last: whether the last epoch's weights are kept whatever their number; the plateau rule follows it.
    """

    name: str
    number: str
    keeps_last: bool = False

    @classmethod
    def of(cls, recipe: Recipe) -> Criterion:
        """The criterion that the recipe names; the objective in place of an ELBO that the model does not have."""
        asked = recipe.training.criterion
        if recipe.posterior is None:
            return cls("nll", "nll", asked == "last")
        has_density = POSTERIORS[recipe.posterior.kind].has_log_prob
        if asked == "reconstruction" or (asked == "elbo" and has_density):
            return cls(asked, asked)
        if isinstance(recipe.objective, IwaeObjective):
            return cls("iwae", "nll", asked == "last")
        return cls("objective", "objective", asked == "last")

    @classmethod
    def of_first_versions(cls, recipe: Recipe) -> str:
        """The key of the criterion of a run whose checkpoints do not name it: without a density it was none of ours."""
        criterion = cls.of(recipe)
        has_density = recipe.posterior is None or POSTERIORS[recipe.posterior.kind].has_log_prob
        return criterion.key if has_density or criterion.name == "reconstruction" else "another"

    @property
    def key(self) -> str:
        """What two runs compare to learn whether their values are on one scale."""
        return f"{self.name}, last kept" if self.keeps_last else self.name

    def words(self, training: Training, weights: Mapping[str, float]) -> str:
        """A sentence's part that says what a value is.

        >>> criterion = Criterion("objective", "objective")
        >>> criterion.words(Training(), {"reconstruction": 1.0, "kl": 0.7})
        'validation objective (reconstruction + 0.7 kl), nats per sentence (lower is better)'
        """
        summed = " + ".join(name if weight == 1 else f"{weight:.4g} {name}" for name, weight in weights.items())
        how = f" ({summed})" if self.name == "objective" and summed else ""
        unit = "token" if self.name == "objective" and training.average == "tokens" else "sentence"
        kept = "the last epoch's weights; their " if self.keeps_last else ""
        return f"{kept}{_CRITERIA[self.name]}{how}, nats per {unit} (lower is better)"


def notes_on_criterion(recipe: Recipe) -> list[str]:
    """A warning where weights are kept by the ELBO, and the recipe is trained with another weight of the KL.

    >>> notes_on_criterion(Recipe().but({"objective.kl_weight": 0.1}))
    []
    >>> notes_on_criterion(Recipe().but({"objective.kl_weight": 0.1, "training.criterion": "elbo"}))
    ['training weighs the KL by 0.1, but weights are kept by the ELBO, which weighs it by 1: set \
training.criterion=objective to keep them by the training loss']
    """
    weight = getattr(recipe.objective, "kl_weight", None)
    final = 1.0 if weight is None else schedule(weight)(FINAL)
    if Criterion.of(recipe).name != "elbo" or math.isclose(final, 1.0, abs_tol=1e-3):
        return []
    return [
        f"training weighs the KL by {final:.4g}, but weights are kept by the ELBO, which weighs it by 1: set "
        "training.criterion=objective to keep them by the training loss"
    ]


class Verdict(NamedTuple):
    improved: bool = False
    reload_best: bool = False
    stop: str | None = None
    """Why training ends here."""


class Kept(NamedTuple):
    """Which weights a space has: when training reached them, and their value by a criterion."""

    step: int
    epoch: float
    criterion: str
    value: float
    validation: dict[str, Any]
    """The line of the log that measured them."""


@dataclass
class Selection:
    """The rules of `training.plateau` and `training.patience`; its fields are all its state.

    >>> rules = Selection()
    >>> training = Training(patience=2, plateau=None)
    >>> [rules.judge(value, epoch, training).stop for epoch, value in enumerate([5.0, 4.0, 4.5, 4.2], start=1)]
    [None, None, None, 'no improvement in 2 validations']
    """

    best: float = math.inf
    """The lowest value so far."""
    kept: float = math.inf
    """The value of the weights that are kept."""
    best_step: int = 0
    """The step of the weights that are kept."""
    best_epoch: float = 0.0
    last: float = math.inf
    """The value of the last validation."""
    since_best: int = 0
    reference: float = math.inf
    """What the criterion must fall below, or the rate decays: the best so far, or with `from_last_decay` what it was at
    the last decay."""
    since_decay: int = 0
    """Validations without improvement on that since the last decay: in a row, or all of them (`Plateau.counted`)."""
    decays: int = 0

    def judge(self, value: float, epoch: int, training: Training) -> Verdict:
        """The verdict on the validation that ended epoch number `epoch` (from 1)."""
        plateau = training.plateau
        self.last = value
        if value < self.reference:
            self.reference = value
            if plateau is None or plateau.counted == "in_a_row":
                self.since_decay = 0
        else:
            self.since_decay += 1
        if value < self.best:
            self.best, self.since_best = value, 0
            return Verdict(improved=True)
        self.since_best += 1
        decayed = plateau is not None and self.since_decay >= plateau.patience and epoch >= plateau.first_epoch
        if decayed:
            self.decays += 1
            self.since_decay = 0
            if plateau is not None and plateau.from_last_decay:
                self.reference = max(self.reference, value)  # which it stays where the value is not a number
        if training.patience is not None and self.since_best >= training.patience:
            return Verdict(stop=f"no improvement in {training.patience} validations")
        if plateau is not None and self.decays >= plateau.max_decays:
            return Verdict(stop=f"the learning rate was lowered {plateau.max_decays} times")
        return Verdict(reload_best=decayed and plateau is not None and plateau.reload_best)

    @classmethod
    def of(cls, stored: Mapping[str, float]) -> Selection:
        """From `to_dict`, in which the first versions have fewer fields."""
        best: Any = stored["best"]
        missing: dict[str, Any] = {"reference": best, "kept": best, "last": best}
        return cls(**missing | dict(stored))

    def keep(self, value: float, step: int, epoch: float) -> None:
        """Note which weights are kept."""
        self.kept, self.best_step, self.best_epoch = value, step, epoch

    def rescale(self, value: float) -> None:
        """Go on with another criterion, by which the kept weights have this value."""
        self.best = self.kept = self.reference = value

    def rate(self, training: Training) -> float:
        """What the learning rate is multiplied by."""
        return training.plateau.factor**self.decays if training.plateau else 1.0

    def to_dict(self) -> dict[str, float]:
        return asdict(self)
