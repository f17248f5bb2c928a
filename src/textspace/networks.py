"""What several parts do with networks: small ones made, and any of them evaluated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from torch import nn

from textspace.start_values import declared

__all__ = ["evaluating", "perceptron"]


class Trained(Protocol):
    """What has a mode for training, as every module of PyTorch."""

    training: bool

    def train(self, mode: bool = True) -> Any: ...


@contextmanager
def evaluating(network: Trained) -> Iterator[None]:
    """Without dropout inside; afterwards as before, whatever happened."""
    was_training = network.training
    network.train(False)
    try:
        yield
    finally:
        network.train(was_training)


def perceptron(inputs: int, hidden: int, layers: int, outputs: int) -> nn.Sequential:
    """`layers` hidden layers with leaky ReLU; linear when there are none.

    >>> perceptron(5, 8, 1, 2)
    Sequential(
      (0): Linear(in_features=5, out_features=8, bias=True)
      (1): LeakyReLU(negative_slope=0.01)
      (2): Linear(in_features=8, out_features=2, bias=True)
    )
    """
    made: list[nn.Module] = []
    for index in range(layers):
        made += [declared(f"hidden {index}", nn.Linear(inputs, hidden)), nn.LeakyReLU()]
        inputs = hidden
    return nn.Sequential(*made, declared("output", nn.Linear(inputs, outputs)))
