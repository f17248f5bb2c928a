"""Update rules: how one step moves the parameters.

A rule pulls batches through `next_batch`, owns its state, and never asks the device for a number: what a step measured
stays there until somebody fetches it. A step whose loss or gradient is not finite moves nothing, nor do those after it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from textspace.config import Optimizer, Training
from textspace.model import Model
from textspace.noise import Noise
from textspace.objectives import Objective
from textspace.schedules import Progress
from textspace.train.processes import Processes
from textspace.train.stream import Shard

__all__ = ["OPTIMIZERS", "JointUpdate", "Step", "build_optimizer"]


@dataclass(frozen=True)
class Step:
    """What one step measured: `values` on the device, one for each of `names`."""

    names: tuple[str, ...]
    values: Tensor
    weights: dict[str, float]
    sentences: int
    tokens: int


OPTIMIZERS: dict[str, Callable[[list[Tensor], Optimizer], torch.optim.Optimizer]] = {
    # Fused optimisers can be told on the device to skip a step (found_inf), and are the fastest on CPU and GPU alike.
    "sgd": lambda parameters, config: torch.optim.SGD(
        parameters, config.lr, config.momentum, weight_decay=config.weight_decay, fused=True
    ),
    "adam": lambda parameters, config: torch.optim.Adam(
        parameters, config.lr, config.betas, weight_decay=config.weight_decay, fused=True
    ),
    "adamw": lambda parameters, config: torch.optim.AdamW(
        parameters, config.lr, config.betas, weight_decay=config.weight_decay, fused=True
    ),
}


def build_optimizer(config: Optimizer, model: Model) -> torch.optim.Optimizer:
    return OPTIMIZERS[config.kind](list(model.parameters()), config)


class JointUpdate:
    """Encoder and decoder move together along one gradient."""

    def __init__(
        self,
        model: Model,
        objective: Objective,
        optimizer: torch.optim.Optimizer,
        training: Training,
        processes: Processes,
    ) -> None:
        self.model, self.objective, self.optimizer = model, objective, optimizer
        self.training, self.processes = training, processes
        self.parameters = list(model.parameters())
        self.poisoned = torch.zeros((), device=processes.device)
        """1 once a step was not finite."""

    def __call__(self, next_batch: Callable[[], Shard], progress: Progress, rate: float) -> Step:
        shard = next_batch()
        names: tuple[str, ...] = ()
        values = torch.zeros((), device=self.processes.device)
        weights: dict[str, float] = {}
        for piece in shard.pieces:
            piece = piece.to(self.processes.device)
            noise = Noise(self.training.seed, progress.step, piece.rows_B)
            with self.processes.autocast(self.training.precision):
                passed = self.model(piece, noise, self.objective.samples)
                terms = self.objective(passed, progress)
                means = terms.means(shard.sentences)
                loss = terms.loss(means) * shard.counts
            loss.backward()
            names, weights = ("loss", *means), terms.weights
            values = values + torch.stack([loss, *means.values()]).detach().float() * shard.counts
        values = self.processes.sum_gradients(self.parameters, values)
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.training.clip or float("inf"))
        finite = values.isfinite().all() & norm.isfinite()
        self.poisoned = torch.maximum(self.poisoned, (~finite).float())
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.grad_scale, self.optimizer.found_inf = None, self.poisoned  # type: ignore[attr-defined]
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return Step(
            (*names, "gradient"),
            torch.cat([values, norm.float()[None]]),
            weights,
            shard.sentences,
            shard.tokens,
        )
