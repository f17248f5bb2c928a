"""Small networks that several parts share."""

from __future__ import annotations

from torch import nn

__all__ = ["perceptron"]


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
    for _ in range(layers):
        made += [nn.Linear(inputs, hidden), nn.LeakyReLU()]
        inputs = hidden
    return nn.Sequential(*made, nn.Linear(inputs, outputs))
