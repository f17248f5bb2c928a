"""Decoders: a code and the tokens so far to the log-probability of each next token."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textspace.config import RecurrentDecoder as RecurrentDecoderConfig
from textspace.data.tokenizers import END, FIRST_PREDICTED, START, UNKNOWN
from textspace.noise import Noise
from textspace.types import View

__all__ = ["DECODERS", "RecurrentDecoder"]

State = tuple[Tensor, ...]
"""Recurrent state of N sentences: (hidden,) or (hidden, cell), each (layers, N, H)."""


class RecurrentDecoder(nn.Module):
    """LSTM or GRU that reads the previous token and z at every step; z also sets its first state.

    The first cell state is linear in z and the first hidden state its tanh (a GRU's hidden state is linear). Without
    a latent (`dim` is None) it is a language model. Padding and start tokens have no logit: they are never predicted.

    With `skip` (after the generative skip model of Dieng et al. 2019) z is also an input of every further layer, and
    the logits have a term linear in z: W h + V z.
    """

    def __init__(self, config: RecurrentDecoderConfig, vocabulary: int, dim: int | None) -> None:
        super().__init__()
        self.config = config
        self.dim = dim
        self.embedding = nn.Embedding(vocabulary, config.embedding)
        kind = {"lstm": nn.LSTM, "gru": nn.GRU}[config.kind]
        together = 1 if config.skip else config.layers  # layers with an input of their own cannot run as one
        self.recurrent = kind(config.embedding + (dim or 0), config.hidden, together, batch_first=True)
        self.further = nn.ModuleList(
            kind(config.hidden + (dim or 0), config.hidden, batch_first=True) for _ in range(config.layers - together)
        )
        self.first_state = nn.Linear(dim, config.layers * config.hidden) if dim is not None else None
        predicted = vocabulary - FIRST_PREDICTED
        self.output = None if config.tie_output else nn.Parameter(torch.empty(predicted, config.hidden))
        self.output_bias = nn.Parameter(torch.empty(predicted)) if config.output_bias else None
        self.output_skip = nn.Parameter(torch.empty(predicted, dim)) if config.skip and dim is not None else None

    def forward(self, z_SBZ: Tensor | None, view: View, noise: Noise, *, has_end: bool = True) -> Tensor:
        """log p(x_t | x_<t, z) of the tokens after the start token, (S, B, T - 1); meaningless at padding.

        Without `has_end` the end token has no probability and all others share it.
        """
        inputs_BT, targets_BT = view.ids_BT[:, :-1], view.ids_BT[:, 1:]
        samples = 1 if z_SBZ is None else len(z_SBZ)
        embedded_SBTE = self.embedding(self._without_some_words(inputs_BT, samples, noise)).expand(samples, -1, -1, -1)
        embedded_SBTE = self._dropped(embedded_SBTE, self.config.input_dropout, "decoder input", noise)
        z_NZ = None if z_SBZ is None else z_SBZ.flatten(0, 1)
        hidden_NTH, _ = self._run(embedded_SBTE.flatten(0, 1), z_NZ, self.start(z_NZ))
        hidden_SBTH = hidden_NTH.unflatten(0, (samples, -1))
        hidden_SBTH = self._dropped(hidden_SBTH, self.config.output_dropout, "decoder output", noise)
        targets_SBT = (targets_BT - FIRST_PREDICTED).clamp(min=0).expand(samples, -1, -1)
        logits_SBTV = self.logits(hidden_SBTH, None if z_SBZ is None else z_SBZ[:, :, None])
        if not has_end:
            logits_SBTV[..., END - FIRST_PREDICTED] = -torch.inf
        losses = F.cross_entropy(logits_SBTV.flatten(0, 2), targets_SBT.flatten(), reduction="none")
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
        return self.logits(hidden_N1H[:, 0], z_NZ), state

    def logits(self, hidden: Tensor, z: Tensor | None) -> Tensor:
        """Entry i belongs to token id i + FIRST_PREDICTED; z broadcasts against the hidden states."""
        weight = self.embedding.weight[FIRST_PREDICTED:] if self.output is None else self.output
        logits = F.linear(hidden, weight, self.output_bias)
        return logits if self.output_skip is None or z is None else logits + F.linear(z, self.output_skip)

    def _run(self, inputs_NTE: Tensor, z_NZ: Tensor | None, state: State | None) -> tuple[Tensor, State]:
        layers = [self.recurrent, *self.further]
        after: list[State] = []
        first = 0
        for layer in layers:
            if z_NZ is not None:
                inputs_NTE = torch.cat([inputs_NTE, z_NZ[:, None].expand(-1, inputs_NTE.shape[1], -1)], dim=2)
            own = None if state is None else tuple(part[first : first + layer.num_layers] for part in state)
            inputs_NTE, left = layer(inputs_NTE, own if own is None or len(own) == 2 else own[0])
            after.append(left if isinstance(left, tuple) else (left,))
            first += layer.num_layers
        return inputs_NTE, tuple(torch.cat(parts) if len(after) > 1 else parts[0] for parts in zip(*after, strict=True))

    def _without_some_words(self, ids_BT: Tensor, samples: int, noise: Noise) -> Tensor:
        """In training some words become unknown, for each sample others (S, B, T); the start token stays."""
        if not self.training or self.config.word_dropout == 0:
            return ids_BT[None]
        keep_SBT = noise.keep("decoder words", (ids_BT.shape[1],), samples, self.config.word_dropout)
        return ids_BT.where(keep_SBT | (ids_BT == START), UNKNOWN)

    def _dropped(self, x_SBTE: Tensor, share: float, stream: str, noise: Noise) -> Tensor:
        if not self.training or share == 0:
            return x_SBTE
        keep = noise.keep(stream, tuple(x_SBTE.shape[2:]), len(x_SBTE), share)
        return x_SBTE * keep / (1 - share)


DECODERS = {"lstm": RecurrentDecoder, "gru": RecurrentDecoder}
