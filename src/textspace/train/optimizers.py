"""Optimisers, and their steps.

A step whose loss or gradient is not finite changes nothing, nor does any later one; in 16 bits only ten in a row do
that. Nothing here waits for the device: whoever fetches what steps measured finds out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from textspace.config import Optimizer, Training
from textspace.train.processes import Processes

__all__ = ["OPTIMIZERS", "Mover"]

OVERFLOWS = 10
"""Steps in a row that are not finite end a run in 16 bits. Fewer are passed over: a gradient that clipping would have
made short overflows there, since PyTorch computes recurrent layers in float16 where bf16 is asked for."""

OPTIMIZERS: dict[str, Callable[[list[nn.Parameter], Optimizer], torch.optim.Optimizer]] = {
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


class Mover:
    """Moves parameters along the gradients of all processes, by the optimisers that it makes."""

    def __init__(self, training: Training, processes: Processes) -> None:
        self.clip, self.processes = training.clip or float("inf"), processes
        self.bad_steps = OVERFLOWS if training.precision == "bf16" else 1
        """So many in a row that are not finite end the run."""
        self.poisoned = torch.zeros((), device=processes.device)
        """1 once there were: nothing moves any more."""
        self._in_a_row: dict[torch.optim.Optimizer, Tensor] = {}
        """Steps of each optimiser up to now that were not finite, one after the other."""

    def optimizer(self, parameters: list[nn.Parameter], config: Optimizer) -> torch.optim.Optimizer:
        made = OPTIMIZERS[config.kind](parameters, config)
        if config.kind == "sgd" and config.momentum:  # else the first step makes it, unfilled where that moves nothing
            for parameter in parameters:
                made.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        self._in_a_row[made] = torch.zeros((), device=self.processes.device)
        return made

    def __call__(
        self,
        optimizer: torch.optim.Optimizer,
        moving: list[nn.Parameter],
        values: Tensor,
        rate: float | Tensor,
        groups: Sequence[list[nn.Parameter]] | None = None,
        clip: bool = True,
    ) -> Tensor:
        """One step of an optimiser; the sum of `values` over processes, and after it the gradient's norm.

        Args:
            optimizer: takes the step.
            moving: parameters that it may move.
            values: numbers of this process.
            rate: the learning rate.
            groups: parameters that have gradients; the norm of each group is limited on its own. By default one group,
                of those that move.
            clip: whether norms are limited at all.
        """
        groups = groups or [moving]
        values = self.processes.sum_gradients([parameter for group in groups for parameter in group], values)
        limit = self.clip if clip else float("inf")
        norms = [torch.nn.utils.clip_grad_norm_(group, limit) for group in groups]
        norm = norms[0] if len(norms) == 1 else torch.stack(norms).norm()
        self._rest(moving, groups)
        bad = (~(values.isfinite().all() & norm.isfinite())).float()
        in_a_row = self._in_a_row[optimizer].add_(1).mul_(bad)
        torch.maximum(self.poisoned, (in_a_row >= self.bad_steps).float(), out=self.poisoned)
        for group in optimizer.param_groups:
            group["lr"] = rate
            group["capturable"] = isinstance(rate, Tensor)
        optimizer.grad_scale, optimizer.found_inf = None, torch.maximum(self.poisoned, bad)  # type: ignore[attr-defined]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        told = torch.where(self.poisoned > 0, torch.nan, norm.float())  # the log must find out that all has stopped
        return torch.cat([values, told[None]])

    @staticmethod
    def _rest(moving: list[nn.Parameter], groups: Sequence[list[nn.Parameter]]) -> None:
        """Drop the gradients of parameters that do not move."""
        moved = set(map(id, moving))
        for group in groups:
            for parameter in group:
                if id(parameter) not in moved:
                    parameter.grad = None
