"""Schedules: how a number changes while training goes on."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from textspace.config.base import Config, Count, NotNegative, Positive

__all__ = ["Constant", "Cosine", "Cyclic", "InverseRoot", "Linear", "Logistic", "Weight"]

Unit = Literal["steps", "epochs", "run"]
"""What time is counted in; "run" is the share of the longest run that `training.epochs` and `training.steps` allow."""


class Constant(Config):
    kind: Literal["constant"] = "constant"
    value: NotNegative = 1.0


class Linear(Config):
    kind: Literal["linear"] = "linear"
    start: NotNegative = 0.0
    end: NotNegative = 1.0
    over: Positive = 10
    """How long the way from start to end takes; the value stays at end afterwards."""
    unit: Unit = "epochs"


class Logistic(Config):
    """start + (end - start) / (1 + exp(-slope (t - midpoint)))."""

    kind: Literal["logistic"] = "logistic"
    start: NotNegative = 0.0
    end: NotNegative = 1.0
    midpoint: NotNegative = 5
    """When half the way is done; at 0 the value starts halfway."""
    slope: Positive = 1.0
    """Steepness, per unit of time."""
    unit: Unit = "epochs"


class InverseRoot(Config):
    """Rise linearly from 0 to 1, then fall as one over the root of time [Vaswani et al. 2017]."""

    kind: Literal["inverse-root"] = "inverse-root"
    over: Positive = 1
    """How long it rises."""
    unit: Unit = "epochs"


class Cyclic(Config):
    """Rise linearly from start to end, stay there, and begin again; after the last cycle the value stays at end."""

    kind: Literal["cyclic"] = "cyclic"
    start: NotNegative = 0.0
    end: NotNegative = 1.0
    cycles: Count = 4
    rising: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Share of each cycle that is spent rising."""
    over: Positive = 40
    """How long all cycles take together."""
    unit: Unit = "epochs"


class Cosine(Config):
    """Go from start to end along half a cosine, and start over [Loshchilov and Hutter 2017]; after the last cycle the
    value stays at end."""

    kind: Literal["cosine"] = "cosine"
    start: NotNegative = 1.0
    end: NotNegative = 0.0
    cycles: Count = 1
    over: Positive = 40
    """How long all cycles take together."""
    stairs: Count | None = None
    """Divide each cycle into this many equal parts and hold the value within each, at that of the part's start. Without
    it the value changes at every training step."""
    unit: Unit = "epochs"


ScheduleConfig = Annotated[Constant | Linear | Logistic | Cyclic | Cosine | InverseRoot, Field(discriminator="kind")]
Weight = NotNegative | ScheduleConfig
"""A number from 0, or a schedule for it."""
