"""Decoders: a code and the tokens so far to the log-probability of each next token."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textspace.attention import Attention, Layer, Memory, OneVector, Positions, dropper
from textspace.config import DecoderConfig
from textspace.config import RecurrentDecoder as RecurrentDecoderConfig
from textspace.config import TransformerDecoder as TransformerDecoderConfig
from textspace.data.tokenizers import END, FIRST_PREDICTED, START, UNKNOWN
from textspace.noise import Noise
from textspace.recurrence import run_layer, states
from textspace.start_values import declared
from textspace.token_losses import even_words, is_lean, log_probabilities
from textspace.types import PaddedCodes, View

__all__ = ["Decoder", "RecurrentDecoder", "TransformerDecoder", "build_decoder"]

State = tuple[Tensor, ...]
"""What a decoder keeps of N sentences between tokens, the sentences along axis 1. Recurrent: (hidden,) or (hidden,
cell), each (layers, N, H)."""

SAMPLES_TO_SHARE = 4
"""With fewer samples a GPU is faster with its own kernel of a whole layer."""
STATES_AT_ONCE = {"cpu": 2**13, "cuda": 2**17}
"""Hidden states kept until their log-probabilities are computed."""


class _TokenDecoder(nn.Module):
    """What all decoders share: they read words and give the next one's log-probability.

    Padding and start tokens have no logit: they are never predicted.
    """

    of_tokens: bool = False
    """Whether they read a code of every token, and not one of the sentence."""

    def __init__(
        self, config: RecurrentDecoderConfig | TransformerDecoderConfig, vocabulary: int, dim: int | None
    ) -> None:
        super().__init__()
        self.config = config
        self.dim = dim
        self.embedding = declared("embedding", nn.Embedding(vocabulary, config.embedding))
        predicted = vocabulary - FIRST_PREDICTED
        self.output = None if config.tie_output else _bare("output weight", predicted, config.hidden)
        self.output_bias = _bare("output bias", predicted) if config.output_bias else None
        self.to_embedding: nn.Linear | None = None
        """From a state to as many numbers as an embedding has, where the output's weights are embeddings."""
        if config.tie_output and config.hidden != config.embedding:
            to_embedding = nn.Linear(config.hidden, config.embedding, bias=False)
            self.to_embedding = declared("to embedding", to_embedding)

    def logits(self, hidden: Tensor) -> Tensor:
        """Entry i belongs to token id i + FIRST_PREDICTED."""
        return F.linear(self._read_out(hidden), self._output_weight(), self.output_bias)

    def _read_out(self, hidden: Tensor) -> Tensor:
        """What is multiplied with the output's weights."""
        return hidden if self.to_embedding is None else self.to_embedding(hidden)

    def _output_weight(self) -> Tensor:
        return self.embedding.weight[FIRST_PREDICTED:] if self.output is None else self.output

    def _log_probabilities(
        self, hidden_SBTH: Tensor, targets_BT: Tensor, has_end: bool, skip: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        """Of the targets, (S, B, T); `skip` has codes (S, B, 1, Z) and the weights of a term of the logits."""
        targets_SBT = _targets(targets_BT).expand(hidden_SBTH.shape[:3])
        weight_VH, end = self._output_weight(), END - FIRST_PREDICTED
        if is_lean(targets_SBT.numel() * len(weight_VH), hidden_SBTH.device):
            hidden_SBTH = self._read_out(hidden_SBTH)
            if skip is not None:
                z_SBTZ = skip[0].expand(*hidden_SBTH.shape[:3], -1)
                hidden_SBTH, weight_VH = torch.cat([hidden_SBTH, z_SBTZ], 3), torch.cat([weight_VH, skip[1]], 1)
            return log_probabilities(hidden_SBTH, weight_VH, self.output_bias, targets_SBT, None if has_end else end)
        logits_NP = F.linear(self._read_out(hidden_SBTH).flatten(0, 2), *even_words(weight_VH, self.output_bias))
        if skip is not None:
            skip_SBTP = F.linear(skip[0], even_words(skip[1])[0])
            logits_NP = (logits_NP.view(*targets_SBT.shape, -1) + skip_SBTP).flatten(0, 2)
        if not has_end:
            logits_NP[:, end] = -torch.inf
        losses = F.cross_entropy(logits_NP, targets_SBT.flatten(), reduction="none")
        return -losses.view(targets_SBT.shape)

    def shares_words(self, samples: int) -> bool:
        """Whether scoring so many samples computes what depends on the words once for all of them, and keeps no
        logits."""
        return False

    def _without_some_words(self, ids_BT: Tensor, noise: Noise) -> Tensor:
        """In training some words become unknown; the start token stays."""
        if not self.training or self.config.word_dropout == 0:
            return ids_BT
        keep_BT = noise.keep("decoder words", (ids_BT.shape[1],), self.config.word_dropout)
        return ids_BT.where(keep_BT | (ids_BT == START), UNKNOWN)


def _bare(name: str, *shape: int) -> nn.Parameter:
    """Weights of no module, whose start values the model draws."""
    return declared(name, nn.Parameter(torch.empty(*shape)), "uniform")


def _targets(ids: Tensor) -> Tensor:
    """As numbers of logits; padding gets any."""
    return (ids - FIRST_PREDICTED).clamp(min=0)


class RecurrentDecoder(_TokenDecoder):
    """LSTM or GRU that reads the previous token and z at every step; z also sets its first state, unless that is zero.

    The first cell state is linear in z and the first hidden state its tanh (a GRU's hidden state is linear). Without
    a latent (`dim` is None) it is a language model.

    With `skip` (after the generative skip model of Dieng et al. 2019) z is also an input of every further layer, and
    the logits have a term linear in z: W h + V z.
    """

    config: RecurrentDecoderConfig

    def __init__(self, config: RecurrentDecoderConfig, vocabulary: int, dim: int | None) -> None:
        super().__init__(config, vocabulary, dim)
        kind = {"lstm": nn.LSTM, "gru": nn.GRU}[config.kind]
        together = 1 if config.skip else config.layers  # layers with an input of their own cannot run as one
        recurrent = kind(config.embedding + (dim or 0), config.hidden, together, batch_first=True)
        self.recurrent = declared("recurrent", recurrent)
        self.further = nn.ModuleList(
            declared(f"layer {index}", kind(config.hidden + (dim or 0), config.hidden, batch_first=True))
            for index in range(together, config.layers)
        )
        self.first_state: nn.Linear | None = None
        self.output_skip: nn.Parameter | None = None
        if dim is not None and config.first_state == "code":
            self.first_state = declared("first state", nn.Linear(dim, config.layers * config.hidden))
        if dim is not None and config.skip:
            self.output_skip = _bare("output skip", vocabulary - FIRST_PREDICTED, dim)

    def forward(self, z_SBZ: Tensor | None, view: View, noise: Noise, *, has_end: bool = True) -> Tensor:
        """log p(x_t | x_<t, z) of the tokens after the start token, (S, B, T - 1); meaningless at padding.

        Without `has_end` the end token has no probability and all others share it.
        """
        inputs_BT, targets_BT = view.ids_BT[:, :-1], view.ids_BT[:, 1:]
        if z_SBZ is not None and self.shares_words(len(z_SBZ)):
            return self._of_many_samples(z_SBZ, inputs_BT, targets_BT, has_end)
        samples = 1 if z_SBZ is None else len(z_SBZ)
        embedded_BTE = self.embedding(self._without_some_words(inputs_BT, noise))
        embedded_BTE = self._dropped(embedded_BTE, self.config.input_dropout, "decoder input", noise)
        z_NZ = None if z_SBZ is None else z_SBZ.flatten(0, 1)
        inputs_NTE = embedded_BTE.expand(samples, -1, -1, -1).flatten(0, 1)
        hidden_NTH, _ = self._run(inputs_NTE, z_NZ, self.start(z_NZ))
        hidden_SBTH = hidden_NTH.unflatten(0, (samples, -1))
        hidden_SBTH = self._dropped(hidden_SBTH, self.config.output_dropout, "decoder output", noise)
        skip = None if self.output_skip is None or z_SBZ is None else (z_SBZ[:, :, None], self.output_skip)
        return self._log_probabilities(hidden_SBTH, targets_BT, has_end, skip)

    def shares_words(self, samples: int) -> bool:
        """With one layer. On a GPU it pays for several samples: for few, one kernel of the whole layer is faster than
        kernels of every step. On a CPU, whose kernels of whole layers are as fast, it is the way to score in bf16."""
        if torch.is_grad_enabled() or self.training or self.config.layers > 1:
            return False
        device = self.embedding.weight.device
        return samples >= SAMPLES_TO_SHARE if device.type == "cuda" else torch.is_autocast_enabled(device.type)

    def _of_many_samples(self, z_SBZ: Tensor, inputs_BT: Tensor, targets_BT: Tensor, has_end: bool) -> Tensor:
        """Like `forward`, without gradients and dropout."""
        samples, sentences, _ = z_SBZ.shape
        z_SBZ = z_SBZ.to(self.embedding.weight.dtype)  # from an encoder that computed in bf16 too, perhaps
        codes_NZ = z_SBZ.flatten(0, 1)
        with torch.autocast(z_SBZ.device.type, enabled=False):
            first = self.start(codes_NZ) or self._zeros(codes_NZ)
        targets_TN = _targets(targets_BT).T.repeat(1, samples)
        rows = STATES_AT_ONCE["cuda" if z_SBZ.is_cuda else "cpu"]
        embedded_BTE = self.embedding(inputs_BT)
        excluded = None if has_end else END - FIRST_PREDICTED
        weight_VH = self._output_weight()
        if self.output_skip is not None:
            weight_VH = torch.cat([weight_VH, self.output_skip], 1)
        found, done = [], 0
        for hidden_UNH in states(self.recurrent, embedded_BTE, z_SBZ, first, rows):
            targets_UN = targets_TN[done : done + len(hidden_UNH)]
            with torch.autocast(z_SBZ.device.type, enabled=False):
                read_UNE = self._read_out(hidden_UNH)
            if self.output_skip is not None:
                read_UNE = torch.cat([read_UNE, codes_NZ.expand(len(read_UNE), -1, -1)], 2)
            found.append(log_probabilities(read_UNE, weight_VH, self.output_bias, targets_UN, excluded))
            done += len(hidden_UNH)
        return torch.cat(found).unflatten(1, (samples, sentences)).permute(1, 2, 0)

    def start(self, z_NZ: Tensor | None) -> State | None:
        """The state before the first token; None stands for zeros."""
        if self.first_state is None or z_NZ is None:
            return None
        first = self.first_state(z_NZ).unflatten(1, (self.config.layers, -1)).transpose(0, 1).contiguous()
        return (first.tanh(), first) if self.config.kind == "lstm" else (first,)

    def _zeros(self, z_NZ: Tensor) -> State:
        zeros_LNH = z_NZ.new_zeros(self.config.layers, len(z_NZ), self.config.hidden)
        return (zeros_LNH, zeros_LNH) if self.config.kind == "lstm" else (zeros_LNH,)

    def step(self, ids_N: Tensor, z_NZ: Tensor | None, state: State | None) -> tuple[Tensor, State]:
        """Logits (N, V - FIRST_PREDICTED) of the next token after one more token, and the new state."""
        hidden_N1H, state = self._run(self.embedding(ids_N[:, None]), z_NZ, state)
        logits_NV = self.logits(hidden_N1H[:, 0])
        if self.output_skip is not None and z_NZ is not None:
            logits_NV = logits_NV + F.linear(z_NZ, self.output_skip)
        return logits_NV, state

    def _run(self, inputs_NTE: Tensor, z_NZ: Tensor | None, state: State | None) -> tuple[Tensor, State]:
        layers = [self.recurrent, *self.further]
        after: list[State] = []
        first = 0
        for layer in layers:
            if z_NZ is not None:
                inputs_NTE = torch.cat([inputs_NTE, z_NZ[:, None].expand(-1, inputs_NTE.shape[1], -1)], dim=2)
            own = None if state is None else tuple(part[first : first + layer.num_layers] for part in state)
            inputs_NTE, left = run_layer(layer, inputs_NTE, own)
            after.append(left)
            first += layer.num_layers
        return inputs_NTE, tuple(torch.cat(parts) if len(after) > 1 else parts[0] for parts in zip(*after, strict=True))

    def _dropped(self, x: Tensor, share: float, stream: str, noise: Noise) -> Tensor:
        """x is (B, T, E), or (S, B, T, E)."""
        if not self.training or share == 0:
            return x
        return x * noise.keep(stream, tuple(x.shape[-2:]), share) / (1 - share)


class TransformerDecoder(_TokenDecoder):
    """Self-attention over the words so far, and reading of the code in every layer.

    Codes of tokens are the memory of an attention, as many vectors as the encoder read tokens. They are read as they
    are: what a vector's place in the sentence was, only the vector itself can tell. A sentence's code is one vector,
    which every position reads. Without a latent (`dim` is None) it is a language model.

    In generation a state holds, layer by layer, the keys and values of the words so far, and then what the layers read
    of the code.

    Args:
        config: sizes and dropout.
        vocabulary: number of tokens, the special ones included.
        dim: numbers of a code.
        of_tokens: whether every token has a code.
    """

    config: TransformerDecoderConfig

    def __init__(
        self, config: TransformerDecoderConfig, vocabulary: int, dim: int | None, of_tokens: bool = False
    ) -> None:
        super().__init__(config, vocabulary, dim)
        self.of_tokens = of_tokens
        self.positions = Positions(config.hidden)
        self.layers = nn.ModuleList(
            declared(f"layer {index}", Layer(config, self._reader())) for index in range(config.layers)
        )
        self.norm = declared("norm", nn.LayerNorm(config.hidden)) if config.norm == "before" else nn.Identity()

    def _reader(self) -> Attention | OneVector | None:
        """Of a code, for one layer."""
        if self.dim is None:
            return None
        width = self.config.hidden
        return Attention(width, self.config.heads, self.dim) if self.of_tokens else OneVector(width, self.dim)

    def forward(
        self, z: Tensor | None, view: View, noise: Noise, *, has_end: bool = True, mask_BU: Tensor | None = None
    ) -> Tensor:
        """log p(x_t | x_<t, z) of the tokens after the start token, (S, B, T - 1); meaningless at padding.

        z is (S, B, Z), or (S, B, U, Z) with a mask that is True at real tokens. Without `has_end` the end token has no
        probability and all others share it.
        """
        inputs_BT, targets_BT = view.ids_BT[:, :-1], view.ids_BT[:, 1:]
        samples = 1 if z is None else len(z)
        shape_TH = inputs_BT.shape[1], self.config.hidden
        drop = dropper(noise, "decoder", shape_TH, self.config.dropout if self.training else 0)
        embedded_BTH = drop(self._embedded(self._without_some_words(inputs_BT, noise), 0))
        x_NTH = embedded_BTH.expand(samples, -1, -1, -1).flatten(0, 1)
        mask_NU = None if mask_BU is None else mask_BU.expand(samples, -1, -1).flatten(0, 1)
        codes = self._memories(None if z is None else z.flatten(0, 1), mask_NU)
        for layer, code in zip(self.layers, codes, strict=True):
            x_NTH, _ = layer(x_NTH, drop, causal=True, code=code)  # padding comes last: nobody reads it
        return self._log_probabilities(self.norm(x_NTH).unflatten(0, (samples, -1)), targets_BT, has_end)

    def start(self, z: Tensor | PaddedCodes | None) -> State | None:
        """The state before the first token; None stands for that of a language model."""
        if z is None:
            return None
        codes = self._memories(z.values_NTZ, z.mask_NT) if isinstance(z, PaddedCodes) else self._memories(z)
        return (*self._no_words(len(z)), *map(torch.stack, zip(*codes, strict=True)))

    def step(self, ids_N: Tensor, z: Tensor | PaddedCodes | None, state: State | None) -> tuple[Tensor, State]:
        """Logits (N, V - FIRST_PREDICTED) of the next token after one more token, and the new state."""
        keys, values, *codes = self._no_words(len(ids_N)) if state is None else state
        x_N1H = self._embedded(ids_N[:, None], keys.shape[3])
        words: list[Memory] = []
        for index, layer in enumerate(self.layers):
            code = tuple(part[index] for part in codes)
            x_N1H, read = layer(x_N1H, past=(keys[index], values[index]), code=code)
            words.append(read)
        return self.logits(self.norm(x_N1H)[:, 0]), (*map(torch.stack, zip(*words, strict=True)), *codes)

    def _embedded(self, ids: Tensor, first: int) -> Tensor:
        return self.embedding(ids) * math.sqrt(self.config.hidden) + self.positions(first, ids.shape[-1])

    def _no_words(self, count: int) -> State:
        """Keys and values of no words of so many sentences."""
        size = self.config.layers, count, self.config.heads, 0, self.config.hidden // self.config.heads
        return (self.embedding.weight.new_empty(size),) * 2

    def _memories(self, z: Tensor | None, mask_NU: Tensor | None = None) -> list[Memory]:
        """What each layer reads of codes, (N, Z), or (N, U, Z) with a mask; nothing where there are none."""
        if z is None:
            return [() for _ in self.layers]
        masks = () if mask_NU is None else (mask_NU,)
        return [layer.code.memory(z, *masks) for layer in self.layers]  # type: ignore[union-attr, operator]


Decoder = RecurrentDecoder | TransformerDecoder


def build_decoder(config: DecoderConfig, vocabulary: int, dim: int | None, of_tokens: bool = False) -> Decoder:
    """The decoder of a recipe; `dim` is None for a language model, and `of_tokens` says whose codes it reads."""
    match config:
        case TransformerDecoderConfig():
            return TransformerDecoder(config, vocabulary, dim, of_tokens)
        case RecurrentDecoderConfig():
            return RecurrentDecoder(config, vocabulary, dim)
