"""What a validation decides: keep these weights, lower the learning rate, stop."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import NamedTuple

from textspace.config import Training

__all__ = ["CRITERIA", "Selection", "Verdict"]

CRITERIA = {
    "elbo": "validation negative ELBO at KL weight 1, nats per sentence (lower is better)",
    "dual_elbo": "validation reconstruction + dual form of the KL, below the negative ELBO (lower is better)",
    "nll": "validation NLL (exact), nats per sentence (lower is better)",
    "iwae": "validation NLL bound of as many samples as training takes, nats per sentence (lower is better)",
    "mim": "validation A-MIM loss without its constant, nats per sentence (lower is better)",
    "reconstruction": "validation reconstruction, nats per sentence (lower is better)",
}


class Verdict(NamedTuple):
    improved: bool = False
    reload_best: bool = False
    stop: str | None = None
    """Why training ends here."""


@dataclass
class Selection:
    """The rules of `training.plateau` and `training.patience`; its fields are all its state.

    >>> rules = Selection()
    >>> training = Training(patience=2, plateau=None)
    >>> [rules.judge(value, epoch, training).stop for epoch, value in enumerate([5.0, 4.0, 4.5, 4.2], start=1)]
    [None, None, None, 'no improvement in 2 validations']
    """

    best: float = math.inf
    best_step: int = 0
    since_best: int = 0
    reference: float = math.inf
    """What the criterion must fall below, or the rate decays: the best so far, or with `from_last_decay` what it was at
    the last decay."""
    since_decay: int = 0
    """Validations without improvement on that, counted anew after each decay."""
    decays: int = 0

    def judge(self, value: float, epoch: int, training: Training) -> Verdict:
        """The verdict on the validation that ended epoch number `epoch` (from 1)."""
        plateau = training.plateau
        if value < self.reference:
            self.reference, self.since_decay = value, 0
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

    def rate(self, training: Training) -> float:
        """What the learning rate is multiplied by."""
        return training.plateau.factor**self.decays if training.plateau else 1.0

    def to_dict(self) -> dict[str, float]:
        return asdict(self)
