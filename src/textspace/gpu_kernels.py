"""Triton kernels: keyed random bits, and for scoring logsumexp over the words without logits and recurrent cells.

Import this where a GPU is used and nowhere else: Triton is there on few machines and takes a while to load.
"""

# mypy: allow-untyped-defs

from __future__ import annotations

import importlib
import math
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import signature
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

__all__ = [
    "TILES",
    "Tile",
    "gru_cell",
    "in_tf32",
    "jit",
    "logsumexps",
    "lstm_cell",
    "random_bits",
    "switched_off",
    "target_logits",
    "tried",
]

try:
    triton: Any = importlib.import_module("triton")
    tl: Any = importlib.import_module("triton.language")
except ImportError:
    triton = tl = None


T = TypeVar("T")


class Tile(NamedTuple):
    """Rows by words of logits that one program computes, the units it reads at once, and how Triton shall do it."""

    rows: int
    words: int
    units: int
    warps: int
    stages: int


TILES: dict[torch.dtype, list[Tile]] = {
    torch.bfloat16: [Tile(128, 256, 64, 8, 3), Tile(128, 256, 64, 8, 4), Tile(128, 128, 64, 4, 4)],
    torch.float32: [Tile(128, 128, 32, 8, 3), Tile(128, 256, 32, 8, 3), Tile(128, 128, 32, 4, 3)],
}
"""The first of each is used; the others are for the benchmark."""

_ROW_BLOCKS_TOGETHER = 8
"""Row blocks whose programs run side by side, so that the words' weights are read from the cache."""
_TARGET_ROWS, _TARGET_UNITS = 16, 128

_off = {"asked": False, "broken": False}


@contextmanager
def switched_off() -> Iterator[None]:
    """Without these kernels, for comparison."""
    before, _off["asked"] = _off["asked"], True
    try:
        yield
    finally:
        _off["asked"] = before


def tried(work: Callable[[], T], device: torch.device) -> T | None:
    """What a kernel gives; None where there is no Triton or no GPU, or where Triton fails, which is told once."""
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if triton is None or any(_off.values()) or not (device.type == "cuda" or interpreted):
        return None
    try:
        return work()
    except Exception as error:  # compilers fail in many ways, and none is worth an evaluation
        _off["broken"] = True
        first = (str(error).splitlines() or [""])[0]
        told = f"Triton's kernels do not work here ({type(error).__name__}: {first}): PyTorch's own are used, slower"
        warnings.warn(told, RuntimeWarning, stacklevel=2)
        return None


def jit(kernel: Callable[..., None]) -> Any:
    """Compiled once for any number of rows, words, sentences and steps, and wherever the key of the noise is kept: a
    kernel that has yet to be compiled cannot be recorded."""
    varying = (
        "rows", "words", "excluded", "sentences", "steps", "first", "elements", "numbers", "of_sentence", "key", "bits"
    )  # fmt: skip
    vary = [name for name in varying if name in signature(kernel).parameters]
    return kernel if triton is None else triton.jit(kernel, do_not_specialize=vary)


@jit
def _tile_logsumexps(
    hidden,
    weight,
    bias,
    found,
    rows,
    words,
    excluded,
    hidden_stride,
    weight_stride,
    units: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    PRECISION: tl.constexpr,
    ROWS: tl.constexpr,
    WORDS: tl.constexpr,
    UNITS: tl.constexpr,
    TOGETHER: tl.constexpr,
) -> None:
    """found[word block, row] = logsumexp of the row's logits of a block of words."""
    program = tl.program_id(0)
    row_blocks, word_blocks = tl.cdiv(rows, ROWS), tl.cdiv(words, WORDS)
    in_group = TOGETHER * word_blocks
    first = (program // in_group) * TOGETHER
    size = tl.minimum(row_blocks - first, TOGETHER)
    row_block = first + (program % in_group) % size
    word_block = (program % in_group) // size
    row = row_block * ROWS + tl.arange(0, ROWS)
    word = word_block * WORDS + tl.arange(0, WORDS)
    unit = tl.arange(0, UNITS)
    # Beyond the edge the last row and word are read again, which is faster than a mask; what comes of it is left out.
    hidden_at = hidden + tl.minimum(row, rows - 1).to(tl.int64)[:, None] * hidden_stride + unit[None, :]
    weight_at = weight + tl.minimum(word, words - 1).to(tl.int64)[None, :] * weight_stride + unit[:, None]
    logits = tl.zeros((ROWS, WORDS), dtype=tl.float32)
    for start in range(0, units, UNITS):
        if units % UNITS == 0:
            some_hidden = tl.load(hidden_at)
            some_weight = tl.load(weight_at)
        else:
            some_hidden = tl.load(hidden_at, mask=unit[None, :] < units - start, other=0.0)
            some_weight = tl.load(weight_at, mask=unit[:, None] < units - start, other=0.0)
        logits = tl.dot(some_hidden, some_weight, logits, input_precision=PRECISION)
        hidden_at += UNITS
        weight_at += UNITS
    if HAS_BIAS:
        logits += tl.load(bias + word, mask=word < words, other=0.0).to(tl.float32)[None, :]
    counts = (word < words) & (word != excluded)
    logits = tl.where(counts[None, :], logits, -float("inf"))
    largest = tl.max(logits, axis=1)
    shift = tl.where(largest == -float("inf"), 0.0, largest)  # a block may hold nothing but the excluded word
    total = tl.sum(tl.exp(logits - shift[:, None]), axis=1)
    tl.store(found + word_block.to(tl.int64) * rows + row, shift + tl.log(total), mask=row < rows)


@jit
def _target_logits(
    hidden,
    weight,
    bias,
    targets,
    found,
    rows,
    excluded,
    hidden_stride,
    weight_stride,
    units: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    ROWS: tl.constexpr,
    UNITS: tl.constexpr,
) -> None:
    """found[row] = the logit of the row's target."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    unit = tl.arange(0, UNITS)
    real = row < rows
    target = tl.load(targets + row, mask=real, other=0).to(tl.int64)
    hidden_at = hidden + row.to(tl.int64)[:, None] * hidden_stride + unit[None, :]
    weight_at = weight + target[:, None] * weight_stride + unit[None, :]
    products = tl.zeros((ROWS, UNITS), dtype=tl.float32)
    for start in range(0, units, UNITS):
        inside = real[:, None] & (unit[None, :] < units - start)
        some_hidden = tl.load(hidden_at + start, mask=inside, other=0.0).to(tl.float32)
        products += some_hidden * tl.load(weight_at + start, mask=inside, other=0.0).to(tl.float32)
    logit = tl.sum(products, axis=1)
    if HAS_BIAS:
        logit += tl.load(bias + target, mask=real, other=0.0).to(tl.float32)
    tl.store(found + row, tl.where(target == excluded, -float("inf"), logit), mask=real)


def logsumexps(
    hidden_NH: Tensor, weight_VH: Tensor, bias_V: Tensor | None, excluded: int | None, tile: Tile | None = None
) -> Tensor:
    """Of the logits of each row, (N,), in float32; factors are bfloat16, or TF32 as `in_tf32` makes them."""
    rows, units = hidden_NH.shape
    words = len(weight_VH)
    if hidden_NH.dtype != weight_VH.dtype:
        raise TypeError(f"states are {hidden_NH.dtype} and weights {weight_VH.dtype}")
    tile = tile or TILES[hidden_NH.dtype][0]
    hidden_NH, weight_VH = _rows_together(hidden_NH), _rows_together(weight_VH)
    blocks = math.ceil(words / tile.words)
    sums_MN = torch.empty(blocks, rows, device=hidden_NH.device, dtype=torch.float32)
    _tile_logsumexps[(math.ceil(rows / tile.rows) * blocks,)](
        hidden_NH, weight_VH, _pointer(bias_V, sums_MN), sums_MN, rows, words, -1 if excluded is None else excluded,
        hidden_NH.stride(0), weight_VH.stride(0), units=units, HAS_BIAS=bias_V is not None, PRECISION="tf32",
        ROWS=tile.rows, WORDS=tile.words, UNITS=tile.units, TOGETHER=_ROW_BLOCKS_TOGETHER,
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return sums_MN.logsumexp(0)


def target_logits(
    hidden_NH: Tensor, weight_VH: Tensor, bias_V: Tensor | None, targets_N: Tensor, excluded: int | None
) -> Tensor:
    """Each row's logit of its target, (N,), in float32; factors may have any type."""
    rows, units = hidden_NH.shape
    hidden_NH, weight_VH = _rows_together(hidden_NH), _rows_together(weight_VH)
    logit_N = torch.empty(rows, device=hidden_NH.device, dtype=torch.float32)
    _target_logits[(math.ceil(rows / _TARGET_ROWS),)](
        hidden_NH, weight_VH, _pointer(bias_V, logit_N), targets_N.contiguous(), logit_N, rows,
        -1 if excluded is None else excluded, hidden_NH.stride(0), weight_VH.stride(0), units=units,
        HAS_BIAS=bias_V is not None, ROWS=_TARGET_ROWS, UNITS=_TARGET_UNITS, num_warps=4,
    )  # fmt: skip
    return logit_N


def _rows_together(x: Tensor) -> Tensor:
    return x if x.stride(1) == 1 else x.contiguous()


def _pointer(bias_V: Tensor | None, other: Tensor) -> Tensor:
    """A kernel must be given one, even where it reads nothing there."""
    return other if bias_V is None else bias_V.contiguous()


def in_tf32(x: Tensor) -> Tensor:
    """Rounded to 10 bits after the point. Tensor cores would cut the other 13 off, which makes all products smaller."""
    return x.view(torch.int32).add(1 << 12).bitwise_and_(-(1 << 13)).view(torch.float32)


# Cells. Row n is a sample of sentence n % sentences, whose share of the inputs is read for all its samples.


@jit
def _lstm(recurrent, shared, code, cell, hidden, sentences, units, shared_stride, UNITS: tl.constexpr) -> None:
    row = tl.program_id(0).to(tl.int64)
    unit = tl.program_id(1) * UNITS + tl.arange(0, UNITS)
    real = unit < units
    own = row * 4 * units + unit
    of_sentence = shared + (row % sentences) * shared_stride + unit
    i = tl.load(recurrent + own, mask=real).to(tl.float32)
    f = tl.load(recurrent + own + units, mask=real).to(tl.float32)
    g = tl.load(recurrent + own + 2 * units, mask=real).to(tl.float32)
    o = tl.load(recurrent + own + 3 * units, mask=real).to(tl.float32)
    i += tl.load(of_sentence, mask=real) + tl.load(code + own, mask=real)
    f += tl.load(of_sentence + units, mask=real) + tl.load(code + own + units, mask=real)
    g += tl.load(of_sentence + 2 * units, mask=real) + tl.load(code + own + 2 * units, mask=real)
    o += tl.load(of_sentence + 3 * units, mask=real) + tl.load(code + own + 3 * units, mask=real)
    at = row * units + unit
    before = tl.load(cell + at, mask=real)
    after = tl.sigmoid(f) * before + tl.sigmoid(i) * (2 * tl.sigmoid(2 * g) - 1)
    tl.store(cell + at, after, mask=real)
    state = tl.sigmoid(o) * (2 * tl.sigmoid(2 * after) - 1)
    tl.store(hidden + at, state, mask=real)


@jit
def _gru(recurrent, shared, code, bias, before, hidden, sentences, units, shared_stride, UNITS: tl.constexpr) -> None:
    row = tl.program_id(0).to(tl.int64)
    unit = tl.program_id(1) * UNITS + tl.arange(0, UNITS)
    real = unit < units
    own = row * 3 * units + unit
    of_sentence = shared + (row % sentences) * shared_stride + unit
    r = tl.load(recurrent + own, mask=real).to(tl.float32)
    u = tl.load(recurrent + own + units, mask=real).to(tl.float32)
    n = tl.load(recurrent + own + 2 * units, mask=real).to(tl.float32) + tl.load(bias + unit, mask=real)
    r += tl.load(of_sentence, mask=real) + tl.load(code + own, mask=real)
    u += tl.load(of_sentence + units, mask=real) + tl.load(code + own + units, mask=real)
    new = tl.load(of_sentence + 2 * units, mask=real) + tl.load(code + own + 2 * units, mask=real)
    new += tl.sigmoid(r) * n
    at = row * units + unit
    kept = tl.sigmoid(u)
    after = (1 - kept) * (2 * tl.sigmoid(2 * new) - 1) + kept * tl.load(before + at, mask=real)
    tl.store(hidden + at, after, mask=real)


def lstm_cell(recurrent_NG: Tensor, shared_BG: Tensor, code_NG: Tensor, cell_NH: Tensor, hidden_NH: Tensor) -> Tensor:
    """Overwrite the cell with the next one and write the hidden state; gates are i, f, g, o; all in float32."""
    rows, units = cell_NH.shape
    at_once, grid = _units_at_once(rows, units)
    _lstm[grid](
        recurrent_NG, shared_BG, code_NG, cell_NH, hidden_NH, len(shared_BG), units, shared_BG.stride(0),
        UNITS=at_once, num_warps=4,
    )  # fmt: skip
    return hidden_NH


def gru_cell(
    recurrent_NG: Tensor, shared_BG: Tensor, code_NG: Tensor, bias_H: Tensor, before_NH: Tensor, hidden_NH: Tensor
) -> Tensor:
    """Write the state after the one before; gates are r, u, n, and what the state gives to n has a bias."""
    rows, units = before_NH.shape
    at_once, grid = _units_at_once(rows, units)
    _gru[grid](
        recurrent_NG, shared_BG, code_NG, bias_H, before_NH, hidden_NH, len(shared_BG), units, shared_BG.stride(0),
        UNITS=at_once, num_warps=4,
    )  # fmt: skip
    return hidden_NH


def _units_at_once(rows: int, units: int) -> tuple[int, tuple[int, int]]:
    at_once = min(1024, 1 << (units - 1).bit_length())
    return at_once, (rows, math.ceil(units / at_once))


@jit
def _finalised(x, FIRST: tl.constexpr, SECOND: tl.constexpr):
    """SplitMix64's finaliser, of unsigned numbers."""
    x = (x ^ (x >> 30)) * FIRST
    x = (x ^ (x >> 27)) * SECOND
    return x ^ (x >> 31)


@jit
def _keyed_bits(
    of_sentence, key, bits, first, sentences, elements, numbers,
    GOLDEN: tl.constexpr, FIRST: tl.constexpr, SECOND: tl.constexpr, SIZE: tl.constexpr,
) -> None:  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    real = at < numbers
    drawn = at // elements  # a sample of a sentence
    sentence = tl.load(of_sentence + drawn % sentences, mask=real, other=0).to(tl.uint64, bitcast=True)
    sample = (drawn // sentences + first).to(tl.uint64)
    x = _finalised(sentence * GOLDEN + tl.load(key).to(tl.uint64, bitcast=True), FIRST, SECOND)
    x = _finalised(x + sample * GOLDEN, FIRST, SECOND)
    x = _finalised(x + (at % elements + 1).to(tl.uint64) * GOLDEN, FIRST, SECOND)
    tl.store(bits + at, x.to(tl.int64, bitcast=True), mask=real)


def random_bits(rows_B: Tensor, key: int | Tensor, first: int, samples: int, elements: int, constants: tuple) -> Tensor:
    """The bits of `noise.Noise`, (samples, B, elements), in one kernel instead of forty.

    Args:
        rows_B: of the sentences.
        key: of the stream.
        first: number of the first sample.
        samples: how many.
        elements: numbers of a sentence and sample.
        constants: SplitMix64's step and its two factors.
    """
    where = key if isinstance(key, Tensor) else torch.full((), key, dtype=torch.int64, device=rows_B.device)
    found = torch.empty(samples, len(rows_B), elements, dtype=torch.int64, device=rows_B.device)
    golden, factor, other = (each % 2**64 for each in constants)
    _keyed_bits[(triton.cdiv(found.numel(), 1024),)](
        rows_B.contiguous(), where, found, first, len(rows_B), elements, found.numel(),
        GOLDEN=golden, FIRST=factor, SECOND=other, SIZE=1024, num_warps=4,
    )  # fmt: skip
    return found
