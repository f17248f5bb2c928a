"""Encoders: token ids to hidden states."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from textspace.config import RecurrentEncoder as RecurrentEncoderConfig
from textspace.types import View

__all__ = ["ENCODERS", "RecurrentEncoder", "States"]


@dataclass(frozen=True)
class States:
    """Hidden states of a batch; `last_BH` has read the whole sentence (in both directions where there are two)."""

    packed: PackedSequence
    last_BH: Tensor
    mask_BT: Tensor

    @cached_property
    def all_BTH(self) -> Tensor:
        """Every position's state, zero at padding."""
        return pad_packed_sequence(self.packed, batch_first=True, total_length=self.mask_BT.shape[1])[0]


class RecurrentEncoder(nn.Module):
    """LSTM or GRU over the sentence, start and end tokens included. Padding is never read."""

    def __init__(self, config: RecurrentEncoderConfig, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(vocabulary, config.embedding)
        self.recurrent = {"lstm": nn.LSTM, "gru": nn.GRU}[config.kind](
            config.embedding,
            config.hidden,
            config.layers,
            batch_first=True,
            bidirectional=config.bidirectional,
        )

    @property
    def size(self) -> int:
        """Units of a state."""
        return self.config.hidden * (2 if self.config.bidirectional else 1)

    def forward(self, view: View) -> States:
        view = view.reversed() if self.config.reverse_input else view
        return self.states(self.embedding(view.ids_BT), view)

    def states(self, embedded_BTE: Tensor, view: View) -> States:
        """The states of inputs that are embedded already; of the view only lengths and mask matter."""
        packed = pack_padded_sequence(embedded_BTE, view.lengths_B, batch_first=True, enforce_sorted=False)
        states, final = self.recurrent(packed)
        hidden = final[0] if isinstance(final, tuple) else final  # (layers x directions, B, H)
        directions = 2 if self.config.bidirectional else 1
        return States(states, torch.cat(tuple(hidden[-directions:]), dim=1), view.mask_BT)


ENCODERS = {"lstm": RecurrentEncoder, "gru": RecurrentEncoder}
