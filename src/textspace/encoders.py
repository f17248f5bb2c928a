"""Encoders: token ids to hidden states."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from textspace.config import RecurrentEncoder as RecurrentEncoderConfig
from textspace.data.tokenizers import END, PAD, START, UNKNOWN
from textspace.noise import Noise
from textspace.types import View

__all__ = ["ENCODERS", "RecurrentEncoder", "States"]


@dataclass(frozen=True)
class States:
    """Hidden states of a batch; `last_BH` has read the whole sentence (in both directions where there are two).

    `all_BTH` is meaningless at padding, like everything `mask_BT` hides.
    """

    all_BTH: Tensor
    last_BH: Tensor
    mask_BT: Tensor


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

    def forward(self, view: View, noise: Noise | None = None) -> States:
        """The states of sentences; `noise` chooses the words that become unknown in training."""
        view = self._without_some_words(view, noise)
        view = view.reversed() if self.config.reverse_input else view
        return self.states(self.embedding(view.ids_BT), view)

    def _without_some_words(self, view: View, noise: Noise | None) -> View:
        if not self.training or self.config.word_dropout == 0:
            return view
        if noise is None:
            raise ValueError("an encoder with word dropout needs noise in training")
        ids_BT = view.ids_BT
        keep_BT = noise.keep("encoder words", (ids_BT.shape[1],), 1, self.config.word_dropout)[0]
        special_BT = (ids_BT == START) | (ids_BT == END) | (ids_BT == PAD)
        return replace(view, ids_BT=ids_BT.where(keep_BT | special_BT, UNKNOWN))

    def states(self, embedded_BTE: Tensor, view: View) -> States:
        """The states of inputs that are embedded already; of the view only lengths and mask matter."""
        if self.config.bidirectional:
            return self._both_ways(embedded_BTE, view)
        # Padding comes last and the past never sees the future: no packing needed, which would make a GPU wait.
        all_BTH, _ = self.recurrent(embedded_BTE)
        last_B11 = view.device_lengths_B[:, None, None] - 1
        last_BH = all_BTH.gather(1, last_B11.expand(-1, 1, all_BTH.shape[2])).squeeze(1)
        return States(all_BTH, last_BH, view.mask_BT)

    def _both_ways(self, embedded_BTE: Tensor, view: View) -> States:
        packed = pack_padded_sequence(embedded_BTE, view.lengths_B, batch_first=True, enforce_sorted=False)
        packed_states, final = self.recurrent(packed)
        all_BTH, _ = pad_packed_sequence(packed_states, batch_first=True, total_length=embedded_BTE.shape[1])
        hidden = final[0] if isinstance(final, tuple) else final  # (layers x 2, B, H)
        return States(all_BTH, torch.cat([hidden[-2], hidden[-1]], dim=1), view.mask_BT)


ENCODERS = {"lstm": RecurrentEncoder, "gru": RecurrentEncoder}
