"""Encoders: token ids to hidden states."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from textspace.attention import Layer, Positions, dropper
from textspace.config import EncoderConfig
from textspace.config import PretrainedEncoder as PretrainedEncoderConfig
from textspace.config import RecurrentEncoder as RecurrentEncoderConfig
from textspace.config import TransformerEncoder as TransformerEncoderConfig
from textspace.data.tokenizers import END, PAD, START, UNKNOWN
from textspace.noise import Noise
from textspace.pretrained import EncoderFiles, network_with_weights
from textspace.recurrence import run_layer
from textspace.start_values import declared
from textspace.types import View

__all__ = ["Encoder", "PretrainedEncoder", "RecurrentEncoder", "States", "TransformerEncoder", "build_encoder"]


@dataclass(frozen=True)
class States:
    """Hidden states of a batch; `last_BH` has read the whole sentence (in both directions where there are two).

    `all_BTH` is meaningless at padding, like everything `mask_BT` hides.
    """

    all_BTH: Tensor
    last_BH: Tensor
    mask_BT: Tensor


class RecurrentEncoder(nn.Module):
    """LSTM or GRU over the sentence, start and end tokens included, or the start token last. Padding is never read."""

    def __init__(self, config: RecurrentEncoderConfig, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.embedding = declared("embedding", nn.Embedding(vocabulary, config.embedding))
        recurrent = {"lstm": nn.LSTM, "gru": nn.GRU}[config.kind](
            config.embedding,
            config.hidden,
            config.layers,
            batch_first=True,
            bidirectional=config.bidirectional,
        )
        self.recurrent = declared("recurrent", recurrent)

    @property
    def size(self) -> int:
        """Units of a state."""
        return self.config.hidden * (2 if self.config.bidirectional else 1)

    def forward(self, view: View, noise: Noise | None = None) -> States:
        """The states of sentences; `noise` chooses the words that become unknown in training."""
        view = _without_some_words(view, noise, self.config.word_dropout if self.training else 0)
        view = view.reversed() if self.config.reverse_input else view
        view = _with_start_last(view) if self.config.start_last else view
        return self.states(self.embedding(view.ids_BT), view)

    def states(self, embedded_BTE: Tensor, view: View) -> States:
        """The states of inputs that are embedded already; of the view only lengths and mask matter."""
        if self.config.bidirectional:
            return self._both_ways(embedded_BTE, view)
        # Padding comes last and the past never sees the future: no packing needed, which would make a GPU wait.
        all_BTH, _ = run_layer(self.recurrent, embedded_BTE)
        return States(all_BTH, _at_end(all_BTH, view), view.mask_BT)

    def _both_ways(self, embedded_BTE: Tensor, view: View) -> States:
        packed = pack_padded_sequence(embedded_BTE, view.lengths_B, batch_first=True, enforce_sorted=False)
        packed_states, final = self.recurrent(packed)
        all_BTH, _ = pad_packed_sequence(packed_states, batch_first=True, total_length=embedded_BTE.shape[1])
        hidden = final[0] if isinstance(final, tuple) else final  # (layers x 2, B, H)
        return States(all_BTH, torch.cat([hidden[-2], hidden[-1]], dim=1), view.mask_BT)


def _without_some_words(view: View, noise: Noise | None, share: float) -> View:
    """Some words become unknown; never start, end or padding."""
    if share == 0:
        return view
    if noise is None:
        raise ValueError("an encoder with word dropout needs noise in training")
    ids_BT = view.ids_BT
    keep_BT = noise.keep("encoder words", (ids_BT.shape[1],), share)
    special_BT = (ids_BT == START) | (ids_BT == END) | (ids_BT == PAD)
    return replace(view, ids_BT=ids_BT.where(keep_BT | special_BT, UNKNOWN))


def _with_start_last(view: View) -> View:
    """The words, and the start token where the end token was."""
    ids_BT, given_B = view.ids_BT[:, 1:], view.given_lengths_B
    return replace(
        view,
        ids_BT=ids_BT.where(ids_BT != END, START),
        lengths_B=view.lengths_B - 1,
        given_lengths_B=None if given_B is None else given_B - 1,
    )


def _at_end(all_BTH: Tensor, view: View) -> Tensor:
    """The state of each sentence's last token."""
    last_B11 = view.device_lengths_B[:, None, None] - 1
    return all_BTH.gather(1, last_B11.expand(-1, 1, all_BTH.shape[2])).squeeze(1)


class TransformerEncoder(nn.Module):
    """Self-attention over the sentence, start and end tokens included. Padding is never read."""

    def __init__(self, config: TransformerEncoderConfig, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.size = config.hidden
        """Units of a state."""
        self.embedding = declared("embedding", nn.Embedding(vocabulary, config.hidden))
        self.positions = Positions(config.hidden)
        self.layers = nn.ModuleList(declared(f"layer {index}", Layer(config)) for index in range(config.layers))
        self.norm = declared("norm", nn.LayerNorm(config.hidden)) if config.norm == "before" else nn.Identity()

    def forward(self, view: View, noise: Noise | None = None) -> States:
        """The states of sentences; training needs the noise, of dropout and of words that become unknown."""
        view = _without_some_words(view, noise, self.config.word_dropout if self.training else 0)
        shape_TH = view.ids_BT.shape[1], self.size
        drop = dropper(noise, "encoder", shape_TH, self.config.dropout if self.training else 0)
        x_BTH = drop(self.embedding(view.ids_BT) * math.sqrt(self.size) + self.positions(0, shape_TH[0]))
        for layer in self.layers:
            x_BTH, _ = layer(x_BTH, drop, mask_NT=view.mask_BT)
        x_BTH = self.norm(x_BTH)
        return States(x_BTH, _at_end(x_BTH, view), view.mask_BT)


class PretrainedEncoder(nn.Module):
    """The last layer of an encoder of Hugging Face, its special tokens' states included. Padding is never read.

    Its own dropout stays off in training: it cannot be keyed, so that codes would depend on how sentences are batched.

    Args:
        config: names the model.
        files: of an encoder whose weights will be filled in; by default the model's own, with its weights.
    """

    def __init__(self, config: PretrainedEncoderConfig, files: EncoderFiles | None = None) -> None:
        super().__init__()
        self.config = config
        on_meta = torch.empty(0).device.type == "meta"  # where only shapes are asked for
        if files is None and on_meta:
            files = EncoderFiles.fetch(config)
        network = network_with_weights(config) if files is None else files.network()
        self.network = declared("network", network, "kept")
        self.size: int = self.network.config.hidden_size
        """Units of a state."""
        if config.frozen:
            self.requires_grad_(False)
        self.train()

    def train(self, mode: bool = True) -> PretrainedEncoder:
        super().train(mode)
        self.network.eval()
        return self

    def forward(self, view: View, noise: Noise | None = None) -> States:
        if view.own:
            raise ValueError("a pretrained encoder reads the ids of its own tokenizer")
        ids_BT = view.ids_BT.where(view.mask_BT, getattr(self.network.config, "pad_token_id", None) or 0)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.config.frozen):
            read = self.network(input_ids=ids_BT, attention_mask=view.mask_BT.long())
        all_BTH = read.last_hidden_state
        return States(all_BTH, _at_end(all_BTH, view), view.mask_BT)


Encoder = RecurrentEncoder | TransformerEncoder | PretrainedEncoder


def build_encoder(config: EncoderConfig, vocabulary: int, files: EncoderFiles | None = None) -> Encoder:
    """The encoder of a recipe; `files` are those a space keeps of a pretrained one."""
    match config:
        case PretrainedEncoderConfig():
            return PretrainedEncoder(config, files)
        case TransformerEncoderConfig():
            return TransformerEncoder(config, vocabulary)
        case RecurrentEncoderConfig():
            return RecurrentEncoder(config, vocabulary)
