"""Pooling: the hidden states of a sentence to one feature vector, or to one for each token.

All real positions count, those of the start and end tokens included; padding never does.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from textspace.config import AttentionPooling as AttentionPoolingConfig
from textspace.config import NoPooling as NoPoolingConfig
from textspace.config import SimplePooling as SimplePoolingConfig
from textspace.encoders import States
from textspace.start_values import declared

__all__ = ["POOLINGS", "AttentionPooling", "NoPooling", "SimplePooling"]


def _last(states: States) -> Tensor:
    """The state that has read the whole sentence; of two directions, each one's own last."""
    return states.last_BH


def _start(states: States) -> Tensor:
    return states.all_BTH[:, 0]


def _sum(states: States) -> Tensor:
    return states.all_BTH.where(states.mask_BT[:, :, None], 0.0).sum(1)


def _mean(states: States) -> Tensor:
    return _sum(states) / states.mask_BT.sum(1, keepdim=True)


def _max(states: States) -> Tensor:
    return states.all_BTH.masked_fill(~states.mask_BT[:, :, None], -torch.inf).amax(1)


def _abs(states: States) -> Tensor:
    """In each unit the value of largest size, with its sign."""
    at_B1H = states.all_BTH.detach().abs().masked_fill(~states.mask_BT[:, :, None], -torch.inf).argmax(1, keepdim=True)
    return states.all_BTH.gather(1, at_B1H).squeeze(1)


class SimplePooling(nn.Module):
    """Pooling without parameters."""

    def __init__(self, config: SimplePoolingConfig, size: int) -> None:
        super().__init__()
        kinds = {"last": _last, "start": _start, "mean": _mean, "sum": _sum, "max": _max, "abs": _abs}
        self.pool = kinds[config.kind]

    def forward(self, states: States) -> Tensor:
        return self.pool(states)


class AttentionPooling(nn.Module):
    """sum_t softmax_t(u . tanh(W h_t + b)) h_t [Yang et al. 2016]."""

    def __init__(self, config: AttentionPoolingConfig, size: int) -> None:
        super().__init__()
        hidden = config.hidden or size
        self.project = declared("project", nn.Linear(size, hidden))
        self.score = declared("score", nn.Linear(hidden, 1, bias=False))

    def forward(self, states: States) -> Tensor:
        score_BT = self.score(self.project(states.all_BTH).tanh()).squeeze(2)
        weight_BT = score_BT.masked_fill(~states.mask_BT, -torch.inf).softmax(1)
        return (weight_BT[:, :, None] * states.all_BTH.where(states.mask_BT[:, :, None], 0.0)).sum(1)


class NoPooling(nn.Module):
    """Every token keeps its state, (B, T, H); those of padding are zeros."""

    def __init__(self, config: NoPoolingConfig, size: int) -> None:
        super().__init__()

    def forward(self, states: States) -> Tensor:
        return states.all_BTH.where(states.mask_BT[:, :, None], 0.0)


POOLINGS = {
    **dict.fromkeys(("last", "start", "mean", "sum", "max", "abs"), SimplePooling),
    "attention": AttentionPooling,
    "none": NoPooling,
}
