"""The device, and the other processes of the run: what needs to know that there are several, and nothing else."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import reduce
from torch import Tensor

from textspace.errors import TextspaceError

__all__ = ["Processes"]


class Processes:
    """One process on CPU or GPU, or several started by torchrun.

    Data parallelism is one sum of gradients after backward, with losses already divided by global counts; the model is
    never wrapped.

    Args:
        device: "cpu", "cuda" or "cuda:1"; by default the GPU where there is one.
    """

    def __init__(self, device: str | torch.device | None = None) -> None:
        asked = None if device is None else str(device)
        if asked is not None and asked.startswith("cuda") and not torch.cuda.is_available():
            raise TextspaceError(f"device {asked!r} was asked for, but PyTorch sees no GPU here: use --device cpu")
        self._state = PartialState(cpu=asked == "cpu" or not torch.cuda.is_available())
        self.rank: int = self._state.process_index
        self.count: int = self._state.num_processes
        if self.count == 1 < int(os.environ.get("WORLD_SIZE", "1")):
            raise TextspaceError("torchrun has started several processes, but they found no way to talk to each other")
        if self.count > 1:
            atexit.unregister(_leave)
            atexit.register(_leave)
        # What accelerate says of one process is what it was first asked for, whoever asked.
        usual = "cuda" if torch.cuda.is_available() else "cpu"
        self.device = self._state.device if self.count > 1 else _usable(usual if asked is None else asked)
        if self.device.type == "cuda" and self.device.index is not None:
            torch.cuda.set_device(self.device)  # where kernels of our own are started

    @property
    def first(self) -> bool:
        """Whether this process writes files and speaks."""
        return self.rank == 0

    def check_precision(self, precision: str) -> None:
        """Say so where the device has not the precision asked for."""
        if precision != "float32" and self.device.type == "cpu":
            raise TextspaceError(
                f"training.precision={precision} is for the GPU and this run is on the CPU: use float32"
            )

    def autocast(self, precision: str) -> AbstractContextManager[None]:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=precision == "bf16")

    def sum_gradients(self, parameters: Sequence[Tensor], values: Tensor) -> Tensor:
        """Sum the gradients over processes in place, and return the sum of `values`, in one exchange."""
        if self.count == 1:
            return values
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        together = self.sum(torch.cat([values, *(gradient.flatten() for gradient in gradients)]))
        values, *parts = together.split([len(values), *(gradient.numel() for gradient in gradients)])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))
        return values

    def sum(self, tensor: Tensor) -> Tensor:
        """Over processes, on their device: those of several GPUs exchange nothing else."""
        return tensor if self.count == 1 else reduce(tensor.to(self.device), "sum")

    def each(self, value: Any) -> list[Any]:
        """What each process has, in their order; small things, since they travel as Python objects."""
        values = [value] * self.count
        if self.count > 1:
            torch.distributed.all_gather_object(values, value)
        return values

    def any(self, flag: bool) -> bool:
        """Whether it is true in any process; all must ask."""
        return bool(self.sum(torch.tensor(float(flag), device=self.device)) > 0)

    def wait(self) -> None:
        self._state.wait_for_everyone()


def _usable(name: str) -> torch.device:
    """The device of a name, if there is one and a tensor can be made there and fetched."""
    try:
        device = torch.device(name)
        if device.type == "cuda":  # trying would take memory of the GPU from whoever computes there
            there = device.index is None or device.index < torch.cuda.device_count()
        else:
            there = torch.zeros(1, device=device).tolist() == [0.0]
    except Exception:  # what is not built into PyTorch raises almost anything
        there = False
    if not there:
        raise TextspaceError(f"there is no device {name!r}: use cpu, cuda or cuda:1")
    return device


def _leave() -> None:
    """At the end of a process. Threads of the group may still hold tensors of the last exchange and take the
    interpreter's lock to let go of them: too late, that aborts a process with all its work done."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    time.sleep(0.1)  # the group, and its threads, may live on: modules of PyTorch keep it as a default argument
