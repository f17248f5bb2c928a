"""Decoders: a code and the tokens so far to the log-probability of each next token."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textspace.config import RecurrentDecoder as RecurrentDecoderConfig
from textspace.data.tokenizers import FIRST_PREDICTED
from textspace.noise import Noise
from textspace.types import View

__all__ = ["DECODERS", "RecurrentDecoder"]

State = tuple[Tensor, ...]
"""Recurrent state of N sentences: (hidden,) or (hidden, cell), each (layers, N, H)."""


class RecurrentDecoder(nn.Module):
    """LSTM or GRU that reads the previous token and z at every step; z also sets its first state.

    The first cell state is linear in z and the first hidden state its tanh (a GRU's hidden state is linear). Without
    a latent (`dim` is None) it is a language model. Padding and start tokens have no logit: they are never predicted.
    """

    def __init__(self, config: RecurrentDecoderConfig, vocabulary: int, dim: int | None) -> None:
        super().__init__()
        self.config = config
        self.dim = dim
        self.embedding = nn.Embedding(vocabulary, config.embedding)
        self.recurrent = {"lstm": nn.LSTM, "gru": nn.GRU}[config.kind](
            config.embedding + (dim or 0), config.hidden, config.layers, batch_first=True
        )
        self.first_state = nn.Linear(dim, config.layers * config.hidden) if dim is not None else None
        predicted = vocabulary - FIRST_PREDICTED
        self.output = None if config.tie_output else nn.Parameter(torch.empty(predicted, config.hidden))
        self.output_bias = nn.Parameter(torch.empty(predicted)) if config.output_bias else None

    def forward(self, z_SBZ: Tensor | None, view: View, noise: Noise) -> Tensor:
        """log p(x_t | x_<t, z) of the tokens after the start token, (S, B, T - 1); meaningless at padding."""
        inputs_BT, targets_BT = view.ids_BT[:, :-1], view.ids_BT[:, 1:]
        samples = 1 if z_SBZ is None else len(z_SBZ)
        embedded_SBTE = self.embedding(inputs_BT).expand(samples, -1, -1, -1)
        embedded_SBTE = self._dropped(embedded_SBTE, self.config.input_dropout, "decoder input", noise)
        z_NZ = None if z_SBZ is None else z_SBZ.flatten(0, 1)
        hidden_NTH, _ = self._run(embedded_SBTE.flatten(0, 1), z_NZ, self.start(z_NZ))
        hidden_SBTH = hidden_NTH.unflatten(0, (samples, -1))
        hidden_SBTH = self._dropped(hidden_SBTH, self.config.output_dropout, "decoder output", noise)
        targets_SBT = (targets_BT - FIRST_PREDICTED).clamp(min=0).expand(samples, -1, -1)
        losses = F.cross_entropy(self.logits(hidden_SBTH).flatten(0, 2), targets_SBT.flatten(), reduction="none")
        return -losses.view(targets_SBT.shape)

    def start(self, z_NZ: Tensor | None) -> State | None:
        """The state before the first token; None stands for zeros."""
        if self.first_state is None or z_NZ is None:
            return None
        first = self.first_state(z_NZ).unflatten(1, (self.config.layers, -1)).transpose(0, 1).contiguous()
        return (first.tanh(), first) if self.config.kind == "lstm" else (first,)

    def step(self, ids_N: Tensor, z_NZ: Tensor | None, state: State | None) -> tuple[Tensor, State]:
        """Logits (N, V - FIRST_PREDICTED) of the next token after one more token, and the new state."""
        hidden_N1H, state = self._run(self.embedding(ids_N[:, None]), z_NZ, state)
        return self.logits(hidden_N1H[:, 0]), state

    def logits(self, hidden: Tensor) -> Tensor:
        """Entry i belongs to token id i + FIRST_PREDICTED."""
        weight = self.embedding.weight[FIRST_PREDICTED:] if self.output is None else self.output
        return F.linear(hidden, weight, self.output_bias)

    def _run(self, embedded_NTE: Tensor, z_NZ: Tensor | None, state: State | None) -> tuple[Tensor, State]:
        if z_NZ is not None:
            z_NTZ = z_NZ[:, None].expand(-1, embedded_NTE.shape[1], -1)
            embedded_NTE = torch.cat([embedded_NTE, z_NTZ], dim=2)
        packed_state = state if state is None or len(state) == 2 else state[0]
        hidden_NTH, after = self.recurrent(embedded_NTE, packed_state)
        return hidden_NTH, after if isinstance(after, tuple) else (after,)

    def _dropped(self, x_SBTE: Tensor, share: float, stream: str, noise: Noise) -> Tensor:
        if not self.training or share == 0:
            return x_SBTE
        keep = noise.keep(stream, tuple(x_SBTE.shape[2:]), len(x_SBTE), share)
        return x_SBTE * keep / (1 - share)


DECODERS = {"lstm": RecurrentDecoder, "gru": RecurrentDecoder}
