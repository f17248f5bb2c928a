"""Schedules: training progress to a number. Any weight in any objective, and the learning rate, can take one."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from textspace.config import Constant, Linear, Weight

__all__ = ["Progress", "Schedule", "schedule"]


class Progress(NamedTuple):
    """How far training has come: steps taken, and epochs as a fraction (2.5: halfway through the third)."""

    step: int
    epoch: float


Schedule = Callable[[Progress], float]


def schedule(config: Weight) -> Schedule:
    """
    >>> warm_up = schedule(Linear(start=0, end=1, over=10, unit="epochs"))
    >>> warm_up(Progress(step=7, epoch=2.5)), warm_up(Progress(step=99, epoch=12.0))
    (0.25, 1.0)
    >>> schedule(0.5)(Progress(step=7, epoch=2.5))
    0.5
    """
    match config:
        case Linear():
            return lambda progress: _linear(config, progress)
        case Constant():
            return lambda progress: config.value
        case _:
            return lambda progress: config


def _linear(config: Linear, progress: Progress) -> float:
    done = progress.step if config.unit == "steps" else progress.epoch
    share = min(done / config.over, 1.0)
    return config.start + share * (config.end - config.start)
