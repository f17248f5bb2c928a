"""Pooling: the hidden states of a sentence to one feature vector."""

from __future__ import annotations

from torch import Tensor, nn

from textspace.config import LastPooling as LastPoolingConfig
from textspace.encoders import States

__all__ = ["POOLINGS", "LastPooling"]


class LastPooling(nn.Module):
    """The state that has read the whole sentence."""

    def __init__(self, config: LastPoolingConfig) -> None:
        super().__init__()

    def forward(self, states: States) -> Tensor:
        return states.last_BH


POOLINGS = {"last": LastPooling}
