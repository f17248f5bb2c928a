"""The alternating rule: dual functions learn between the steps of the model."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from textspace.config import AlternatingUpdate as AlternatingConfig
from textspace.config import Training
from textspace.model import Model
from textspace.noise import Noise
from textspace.objectives import DualKl
from textspace.schedules import schedule
from textspace.train.processes import Processes
from textspace.train.updates import JointUpdate, NextBatch, Step, Turn

__all__ = ["AlternatingUpdate"]


class AlternatingUpdate(JointUpdate):
    """The dual functions take some steps up their bounds, then the model takes one down its loss [Fang et al. 2019].

    Two dual functions share no weight, so that one step along the sum of their bounds is a step of each.
    """

    objective: DualKl

    def __init__(
        self, model: Model, objective: DualKl, training: Training, processes: Processes, config: AlternatingConfig
    ) -> None:
        super().__init__(model, objective, training, processes)
        if model.dual is None:
            raise ValueError("the model has no dual function")
        self.config = config
        self.sides = [model.inference_parameters(), model.generative_parameters()]
        self.dual_parameters = list(model.dual.parameters())
        self.dual_optimizer = self.mover.optimizer(self.dual_parameters, config.optimizer)
        self.optimizers["dual_optimizer"] = self.dual_optimizer
        self.dual_schedule = schedule(config.optimizer.schedule)

    def clipped(self, moving: list[nn.Parameter]) -> list[list[nn.Parameter]]:
        return self.sides if self.config.clip_apart else [moving]

    def take(self, next_batch: NextBatch, turn: Turn) -> Step:
        shard = next_batch()
        encoded = []
        with torch.no_grad():
            for piece in shard.pieces:
                piece = piece.to(self.processes.device)
                noise = Noise(self.training.seed, turn.number, piece.rows_B)
                with self.processes.autocast(self.training.precision):
                    features_BH = self.model.features(piece.encoder, noise)
                    sites = self.model.sites(features_BH, noise, self.objective.samples, piece.encoder)
                encoded.append((features_BH, sites["z"], noise))
        rate = self.config.optimizer.lr * self.dual_schedule(turn.progress)
        norms = []
        for index in range(self.config.dual_steps):
            for features_BH, site, noise in encoded:
                with self.processes.autocast(self.training.precision):
                    bounds = self.objective.dual(features_BH, site, noise, f"prior draws of dual step {index}")
                    bound_B = torch.stack(list(bounds.values())).sum(0)
                (-bound_B.sum() / shard.sentences * shard.counts).backward(inputs=self.dual_parameters)
            nothing = torch.zeros(1, device=self.processes.device)
            moved = self.mover(self.dual_optimizer, self.dual_parameters, nothing, rate, clip=self.config.clip_dual)
            norms.append(moved[-1])
        step = self._step(shard, turn, self.parameters)
        largest = torch.stack(norms).max()[None]  # not a number where any is not, so that the log finds it
        return replace(step, names=("dual_gradient", *step.names), values=torch.cat([largest, step.values]))
