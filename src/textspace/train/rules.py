"""Which update rule the settings name."""

from __future__ import annotations

from textspace.config import AggressiveUpdate as AggressiveConfig
from textspace.config import AlternatingUpdate as AlternatingConfig
from textspace.config import Training
from textspace.model import Model
from textspace.objectives import DualKl, Objective
from textspace.train.aggressive import AggressiveUpdate
from textspace.train.alternating import AlternatingUpdate
from textspace.train.processes import Processes
from textspace.train.stream import BatchStream
from textspace.train.updates import JointUpdate

__all__ = ["build_update"]


def build_update(
    model: Model,
    objective: Objective,
    training: Training,
    processes: Processes,
    stream: BatchStream,
    own_stream: BatchStream,
) -> JointUpdate:
    """The rule of the settings.

    Args:
        model: whose parameters it moves.
        objective: what a step makes small.
        training: with the settings of the rule.
        processes: the device, and the other processes.
        stream: batches of the epoch, which a rule may look at before they are due.
        own_stream: batches besides those of the epoch, for a rule that wants some.
    """
    match training.update:
        case AggressiveConfig():
            return AggressiveUpdate(model, objective, training, processes, training.update, stream, own_stream)
        case AlternatingConfig():
            assert isinstance(objective, DualKl)  # the recipe has seen to it
            return AlternatingUpdate(model, objective, training, processes, training.update)
        case _:
            return JointUpdate(model, objective, training, processes)
