"""Transformer layers: attention over tokens, positions, and dropout from keyed noise [Vaswani et al. 2017].

Shape suffixes here: N sentences (or samples of them), T positions that read, U positions that are read, H units of a
state, R units of what is read, A attention heads, D units of a head.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textspace.config.parts import Layers as LayersConfig
from textspace.noise import Noise
from textspace.start_values import declared

__all__ = ["Attention", "Drop", "Layer", "Memory", "OneVector", "Positions", "dropper"]

Memory = tuple[Tensor, ...]
"""What is read, ready for it, the sentences along axis 0. Of attention: keys and values, each (N, A, U, D), and the
mask (N, U) where some positions are never read."""

Drop = Callable[[Tensor], Tensor]
"""Dropout of a tensor (N, T, H)."""


def dropper(noise: Noise | None, stream: str, shape_TH: tuple[int, int], share: float) -> Drop:
    """Dropout of tensors (samples x sentences, T, H), at each call with other numbers, the same for all samples."""
    if share == 0:
        return lambda x_NTH: x_NTH
    if noise is None:
        raise ValueError(f"dropout in the {stream} needs noise in training")
    masks = noise.keeps(stream, shape_TH, share)
    return lambda x_NTH: (x_NTH.unflatten(0, (-1, len(noise.rows_B))) * next(masks) / (1 - share)).flatten(0, 1)


class Positions(nn.Module):
    """Sines and cosines of wavelengths from 2 pi to 10,000 times that, interleaved; there is no last position."""

    table_TH: Tensor

    def __init__(self, width: int, length: int = 512) -> None:
        super().__init__()
        self.width = width
        self.register_buffer("table_TH", self._table(length), persistent=False)

    def _table(self, length: int, device: torch.device | None = None) -> Tensor:
        position_T1 = torch.arange(length, device=device, dtype=torch.float64)[:, None]
        even_W = torch.arange(0, self.width, 2, device=device, dtype=torch.float64)
        angle_TW = position_T1 * torch.exp(even_W * (-math.log(10_000) / self.width))
        return torch.stack([angle_TW.sin(), angle_TW.cos()], dim=2).flatten(1).to(torch.get_default_dtype())

    def forward(self, first: int, count: int) -> Tensor:
        """Of the positions from `first` on, (count, H)."""
        if first + count > len(self.table_TH):
            self.table_TH = self._table(2 * (first + count), self.table_TH.device).to(self.table_TH.dtype)
        return self.table_TH[first : first + count]


class Attention(nn.Module):
    """Each position reads a mixture of others.

    Args:
        width: units of a state.
        heads: that read side by side.
        read: units of what is read, when these are not states.
    """

    def __init__(self, width: int, heads: int, read: int | None = None) -> None:
        super().__init__()
        self.heads = heads
        self.query = declared("query", nn.Linear(width, width))
        self.key_value = declared("key and value", nn.Linear(read or width, 2 * width))
        self.output = declared("output", nn.Linear(width, width))

    def memory(self, read_NUR: Tensor, mask_NU: Tensor | None = None) -> Memory:
        """Keys and values; positions where the mask is False will never be read."""
        keys, values = self.key_value(read_NUR).chunk(2, dim=2)
        found = self._by_head(keys), self._by_head(values)
        return found if mask_NU is None else (*found, mask_NU)

    def forward(self, x_NTH: Tensor, memory: Memory, causal: bool = False) -> Tensor:
        """With `causal` no position reads later ones."""
        query_NATD, (keys, values, *masks) = self._by_head(self.query(x_NTH)), memory
        mask = masks[0][:, None, None] if masks else None
        read_NATD = F.scaled_dot_product_attention(query_NATD, keys, values, attn_mask=mask, is_causal=causal)
        return self.output(read_NATD.transpose(1, 2).flatten(2))

    def _by_head(self, x_NTH: Tensor) -> Tensor:
        return x_NTH.unflatten(2, (self.heads, -1)).transpose(1, 2)


class OneVector(nn.Module):
    """Attention over a single vector: its weight is always 1, so that every position simply adds the vector's value.

    Args:
        width: units of a state.
        read: units of the vector.
    """

    def __init__(self, width: int, read: int) -> None:
        super().__init__()
        self.value = declared("value", nn.Linear(read, width))

    def memory(self, read_NR: Tensor) -> Memory:
        return (self.value(read_NR)[:, None],)


class Layer(nn.Module):
    """Self-attention, attention to a code, and a small network; each adds to its input.

    A code that is one vector is added to what self-attention finds.

    Args:
        config: sizes.
        code: what reads the code; None where there is none.
    """

    def __init__(self, config: LayersConfig, code: Attention | OneVector | None = None) -> None:
        super().__init__()
        self.before = config.norm == "before"
        self.own = declared("attention", Attention(config.hidden, config.heads))
        self.code = code if code is None else declared("code", code)
        self.feed = nn.Sequential(
            declared("feed in", nn.Linear(config.hidden, config.feed_forward)),
            nn.ReLU(),
            declared("feed out", nn.Linear(config.feed_forward, config.hidden)),
        )
        normed = ("attention", "code", "feed") if isinstance(code, Attention) else ("attention", "feed")
        self.norms = nn.ModuleList(declared(f"{part} norm", nn.LayerNorm(config.hidden)) for part in normed)

    def forward(
        self,
        x_NTH: Tensor,
        drop: Drop = lambda x_NTH: x_NTH,
        *,
        mask_NT: Tensor | None = None,
        causal: bool = False,
        past: Memory | None = None,
        code: Memory = (),
    ) -> tuple[Tensor, Memory]:
        """The next layer's input, and what self-attention read.

        Args:
            x_NTH: the input.
            drop: dropout of what is added to it.
            mask_NT: True at positions that may be read.
            causal: whether no position reads later ones.
            past: what self-attention read before; the input then follows after it.
            code: what the code's reader made of it.
        """
        read: list[Memory] = []

        def own(x_NTH: Tensor) -> Tensor:
            memory = self.own.memory(x_NTH, mask_NT)
            if past is not None:
                memory = tuple(torch.cat(both, dim=2) for both in zip(past, memory, strict=True))
            read.append(memory)
            found_NTH = self.own(x_NTH, memory, causal)
            return found_NTH + code[0] if isinstance(self.code, OneVector) else found_NTH

        parts: list[Callable[[Tensor], Tensor]] = [own, self.feed]
        if isinstance(reader := self.code, Attention):
            parts.insert(1, lambda x_NTH: reader(x_NTH, code))
        for part, norm in zip(parts, self.norms, strict=True):
            x_NTH = x_NTH + drop(part(norm(x_NTH))) if self.before else norm(x_NTH + drop(part(x_NTH)))
        return x_NTH, read[0]
