"""Schedules: training progress to a number. Any weight in any objective, and the learning rate, can take one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from textspace.config import Constant, Cosine, Cyclic, InverseRoot, Linear, Logistic, Weight

__all__ = ["FINAL", "Progress", "Schedule", "schedule"]


class Progress(NamedTuple):
    """How far training has come.

    `step` counts the steps of the decoder (extra steps of the encoder do not move schedules), `epoch` is a fraction
    (2.5: halfway through the third), and `run` the share of the longest run that the settings allow.
    """

    step: int
    epoch: float
    run: float = 0.0


FINAL = Progress(step=2**62, epoch=math.inf, run=1.0)
"""After every schedule has ended."""

Schedule = Callable[[Progress], float]


def schedule(config: Weight) -> Schedule:
    """
    >>> warm_up = schedule(Linear(start=0, end=1, over=10, unit="epochs"))
    >>> warm_up(Progress(step=7, epoch=2.5)), warm_up(Progress(step=99, epoch=12.0))
    (0.25, 1.0)
    >>> schedule(Cyclic(cycles=4, rising=0.5, over=40))(Progress(step=7, epoch=12.5))
    0.5
    >>> schedule(Logistic(midpoint=1000, slope=0.01, unit="steps"))(Progress(step=1000, epoch=2.5))
    0.5
    >>> schedule(Cosine(cycles=4, over=40))(Progress(step=7, epoch=15.0))
    0.5
    >>> schedule(InverseRoot(over=0.1, unit="run"))(Progress(step=7, epoch=2.5, run=0.4))
    0.5
    >>> schedule(0.5)(Progress(step=7, epoch=2.5))
    0.5
    >>> warm_up(FINAL), schedule(Cyclic(end=0.5))(FINAL), schedule(Logistic(end=0.5, unit="steps"))(FINAL)
    (1.0, 0.5, 0.5)
    """
    match config:
        case Constant():
            return lambda progress: config.value
        case Linear() | Logistic() | Cyclic() | Cosine():
            return lambda progress: config.start + _share(config, progress) * (config.end - config.start)
        case InverseRoot():
            return lambda progress: _risen_and_fallen(_time(config.unit, progress) / config.over)
        case _:
            return lambda progress: config


def _time(unit: str, progress: Progress) -> float:
    return {"steps": progress.step, "epochs": progress.epoch, "run": progress.run}[unit]


def _risen_and_fallen(time: float) -> float:
    return time if time < 1 else 1 / math.sqrt(time)


def _share(config: Linear | Logistic | Cyclic | Cosine, progress: Progress) -> float:
    """How much of the way from start to end is done."""
    time = _time(config.unit, progress)
    match config:
        case Linear():
            return min(time / config.over, 1.0)
        case Logistic():
            return 0.5 * (1 + math.tanh(0.5 * config.slope * (time - config.midpoint)))  # never overflows
        case Cyclic():
            cycles = time * config.cycles / config.over  # not time % (over / cycles), which rounding makes late
            return 1.0 if time >= config.over else min(cycles % 1 / config.rising, 1.0)
        case Cosine():
            return 1.0 if time >= config.over else 0.5 * (1 - math.cos(math.pi * _share_of_cycle(config, time)))


def _share_of_cycle(config: Cosine, time: float) -> float:
    """How much of the present cycle has passed: whole stairs only, where there are some."""
    if config.stairs is None:
        return time * config.cycles / config.over % 1
    stair = math.floor(time * config.cycles * config.stairs / config.over + 1e-9)  # no stair late through rounding
    return stair % config.stairs / config.stairs
