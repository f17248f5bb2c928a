"""An LSTM layer whose steps along the sentence are one Triton kernel forward and one backward, in bf16.

A layer of PyTorch asks for several kernels at every step, and for small networks a GPU spends more time on starting
them than on running them. Here every program keeps its share of the recurrent weights and goes through the whole
sentence; after each step programs of the same sentences wait for each other.

Import this where a GPU is used and nowhere else.
"""

# mypy: allow-untyped-defs

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from textspace.gpu_kernels import jit, tl
from textspace.token_losses import product

__all__ = ["OWN_UNITS", "lstm_layer", "suits"]

ROWS = 16
"""Sentences of a program."""
OWN_UNITS = {128: 32, 256: 32}
"""Units of a program, by the units of the layer: their weights fit its memory. Larger layers would have more programs
than find room."""
WARPS = 8


def suits(units: int, sentences: int, processors: int) -> bool:
    """Whether there are kernels for a layer of so many units, and its programs, which wait for each other, find room on
    so many processors of a GPU."""
    return units in OWN_UNITS and _programs(sentences, units, OWN_UNITS[units]) <= processors


def _programs(sentences: int, units: int, own: int) -> int:
    return -(-sentences // ROWS) * (units // own)


@jit
def _arrive(arrived) -> None:
    """What this program stored is there for all who see that it arrived."""
    tl.debug_barrier()
    tl.atomic_add(arrived, 1, sem="release", scope="gpu")


@jit
def _wait_for(arrived, count) -> None:
    seen = tl.atomic_add(arrived, 0, sem="acquire", scope="gpu")
    while seen < count:
        seen = tl.atomic_add(arrived, 0, sem="acquire", scope="gpu")


@jit
def _gates(at, real, UNITS: tl.constexpr):
    """What lies there of the gates i, f, g, o."""
    i = tl.load(at, mask=real, other=0.0).to(tl.float32)
    f = tl.load(at + UNITS, mask=real, other=0.0).to(tl.float32)
    g = tl.load(at + 2 * UNITS, mask=real, other=0.0).to(tl.float32)
    o = tl.load(at + 3 * UNITS, mask=real, other=0.0).to(tl.float32)
    return i, f, g, o


@jit
def _forward(
    given, weight, hidden, cells, gates, arrived, sentences, steps,
    UNITS: tl.constexpr, OWN: tl.constexpr, SENTENCES: tl.constexpr,
) -> None:  # fmt: skip
    """Hidden states, cells and gates (i, f, g, o) of all steps.

    given is (N, T, 4 UNITS); hidden and cells are (N, T + 1, UNITS), the first step given; gates are (N, T, 4 UNITS).
    """
    PROGRAMS: tl.constexpr = UNITS // OWN
    part, block = tl.program_id(0) % PROGRAMS, tl.program_id(0) // PROGRAMS
    arrived += block
    row = block * SENTENCES + tl.arange(0, SENTENCES)
    real = (row < sentences)[:, None]
    row = row.to(tl.int64)
    unit, own = tl.arange(0, UNITS), part * OWN + tl.arange(0, OWN)
    # The four gates of a unit lie side by side, so that they can be taken apart again.
    column = tl.arange(0, 4 * OWN)
    of_column = (column % 4) * UNITS + part * OWN + column // 4
    weights = tl.load(weight + of_column[None, :] * UNITS + unit[:, None]).to(gates.dtype.element_ty)
    given_at = given + (row * steps * 4 * UNITS)[:, None] + own[None, :]
    gates_at = gates + (row * steps * 4 * UNITS)[:, None] + own[None, :]
    hidden_at = hidden + (row * (steps + 1) * UNITS)[:, None]
    cells_at = cells + (row * (steps + 1) * UNITS)[:, None] + own[None, :]
    cell = tl.load(cells_at, mask=real, other=0.0)
    for step in range(steps):
        i, f, g, o = _gates(given_at, real, UNITS)
        if PROGRAMS > 1:
            _wait_for(arrived, step * PROGRAMS)
        before = tl.load(hidden_at + unit[None, :], mask=real, other=0.0, cache_modifier=".cg")
        products = tl.reshape(tl.dot(before, weights), (SENTENCES, OWN, 2, 2))
        for_i_and_g, for_f_and_o = tl.split(products)
        for_i, for_g = tl.split(for_i_and_g)
        for_f, for_o = tl.split(for_f_and_o)
        i, f, o = tl.sigmoid(i + for_i), tl.sigmoid(f + for_f), tl.sigmoid(o + for_o)
        g = 2 * tl.sigmoid(2 * (g + for_g)) - 1
        cell = f * cell + i * g
        hidden_at += UNITS
        cells_at += UNITS
        state = o * (2 * tl.sigmoid(2 * cell) - 1)
        tl.store(hidden_at + own[None, :], state.to(gates.dtype.element_ty), mask=real)
        _arrive(arrived)
        tl.store(cells_at, cell, mask=real)
        tl.store(gates_at, i.to(gates.dtype.element_ty), mask=real)
        tl.store(gates_at + UNITS, f.to(gates.dtype.element_ty), mask=real)
        tl.store(gates_at + 2 * UNITS, g.to(gates.dtype.element_ty), mask=real)
        tl.store(gates_at + 3 * UNITS, o.to(gates.dtype.element_ty), mask=real)
        given_at += 4 * UNITS
        gates_at += 4 * UNITS


@jit
def _backward(
    hidden_grad, weight, cells, gates, given_grad, first_hidden_grad, first_cell_grad, arrived, sentences, steps,
    UNITS: tl.constexpr, OWN: tl.constexpr, SENTENCES: tl.constexpr,
) -> None:  # fmt: skip
    """Gradients of what was given at all steps, and of the first state; shapes as forward."""
    PROGRAMS: tl.constexpr = UNITS // OWN
    part, block = tl.program_id(0) % PROGRAMS, tl.program_id(0) // PROGRAMS
    arrived += block
    row = block * SENTENCES + tl.arange(0, SENTENCES)
    real = (row < sentences)[:, None]
    row = row.to(tl.int64)
    HALF: tl.constexpr = UNITS // 2
    unit, own, gate = tl.arange(0, HALF), part * OWN + tl.arange(0, OWN), tl.arange(0, 4)
    # One product for each gate, so that warps share them, and of half the units, so that their factors fit.
    weights_at = weight + (gate[:, None, None] * UNITS + unit[None, :, None]) * UNITS + own[None, None, :]
    weights = tl.load(weights_at).to(gates.dtype.element_ty)
    other_weights = tl.load(weights_at + HALF * UNITS).to(gates.dtype.element_ty)
    last = (row * steps + steps - 1)[:, None]
    gates_at = gates + last * 4 * UNITS + own[None, :]
    grads_at = given_grad + last * 4 * UNITS
    hidden_grad_at = hidden_grad + last * UNITS + own[None, :]
    cells_at = cells + (row * (steps + 1) + steps)[:, None] * UNITS + own[None, :]
    all_at = given_grad + ((row * steps + steps - 1) * 4 * UNITS)[None, :, None]
    all_at += gate[:, None, None] * UNITS + unit[None, None, :]
    all_real = (row < sentences)[None, :, None]
    hidden_change = tl.zeros((SENTENCES, OWN), dtype=tl.float32)
    cell_change = tl.zeros((SENTENCES, OWN), dtype=tl.float32)
    cell = tl.load(cells_at, mask=real, other=0.0)
    cells_at -= UNITS
    i, f, g, o = _gates(gates_at, real, UNITS)
    before = tl.load(cells_at, mask=real, other=0.0)
    given_change = tl.load(hidden_grad_at, mask=real, other=0.0).to(tl.float32)
    last = tl.full([1, 1], steps - 1, tl.int32)  # as a tensor, since a plain bool would make numbers of a mask
    for step in range(steps):
        hidden_change += given_change
        squashed = 2 * tl.sigmoid(2 * cell) - 1
        cell_change += hidden_change * o * (1 - squashed * squashed)
        for_o = hidden_change * squashed * o * (1 - o)
        for_i = cell_change * g * i * (1 - i)
        for_f = cell_change * before * f * (1 - f)
        for_g = cell_change * i * (1 - g * g)
        cell_change *= f
        cell = before
        tl.store(grads_at + own[None, :], for_i.to(gates.dtype.element_ty), mask=real)
        tl.store(grads_at + UNITS + own[None, :], for_f.to(gates.dtype.element_ty), mask=real)
        tl.store(grads_at + 2 * UNITS + own[None, :], for_g.to(gates.dtype.element_ty), mask=real)
        tl.store(grads_at + 3 * UNITS + own[None, :], for_o.to(gates.dtype.element_ty), mask=real)
        _arrive(arrived)
        # What the next step reads is asked for while the others are waited for.
        cells_at -= UNITS
        gates_at -= 4 * UNITS
        grads_at -= 4 * UNITS
        hidden_grad_at -= UNITS
        goes_on = real & (step < last)
        i, f, g, o = _gates(gates_at, goes_on, UNITS)
        before = tl.load(cells_at, mask=goes_on, other=0.0)
        given_change = tl.load(hidden_grad_at, mask=goes_on, other=0.0).to(tl.float32)
        if PROGRAMS > 1:
            _wait_for(arrived, (step + 1) * PROGRAMS)
        changes = tl.dot(tl.load(all_at, mask=all_real, other=0.0, cache_modifier=".cg"), weights)
        others = tl.load(all_at + HALF, mask=all_real, other=0.0, cache_modifier=".cg")
        hidden_change = tl.sum(tl.dot(others, other_weights, changes), axis=0)
        all_at -= 4 * UNITS
    first = row[:, None] * UNITS + own[None, :]
    tl.store(first_hidden_grad + first, hidden_change, mask=real)
    tl.store(first_cell_grad + first, cell_change, mask=real)


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, given_NTG: Tensor, weight_GH: Tensor, first_hidden_NH: Tensor, first_cell_NH: Tensor, own: int
    ) -> tuple[Tensor, Tensor]:
        sentences, steps, _ = given_NTG.shape
        units = weight_GH.shape[1]
        given_NTG, weight_GH = given_NTG.contiguous(), weight_GH.contiguous()
        hidden_NUH = given_NTG.new_empty(sentences, steps + 1, units)
        cells_NUH = torch.empty_like(hidden_NUH, dtype=torch.float32)
        hidden_NUH[:, 0], cells_NUH[:, 0] = first_hidden_NH, first_cell_NH
        gates_NTG = torch.empty_like(given_NTG)
        programs = _programs(sentences, units, own)
        arrived_P = torch.zeros(programs, dtype=torch.int32, device=given_NTG.device)
        _forward[(programs,)](
            given_NTG, weight_GH, hidden_NUH, cells_NUH, gates_NTG, arrived_P, sentences, steps,
            UNITS=units, OWN=own, SENTENCES=ROWS, num_warps=WARPS, num_stages=1,
        )  # fmt: skip
        ctx.own, ctx.kinds = own, (first_hidden_NH.dtype, first_cell_NH.dtype)
        ctx.save_for_backward(weight_GH, hidden_NUH, cells_NUH, gates_NTG)
        last_cell_NH = cells_NUH[:, -1]
        ctx.mark_non_differentiable(last_cell_NH)
        return hidden_NUH[:, 1:], last_cell_NH

    @staticmethod
    def backward(ctx: Any, hidden_grad_NTH: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        weight_GH, hidden_NUH, cells_NUH, gates_NTG = ctx.saved_tensors
        sentences, steps, _ = gates_NTG.shape
        units = weight_GH.shape[1]
        given_grad_NTG = torch.empty_like(gates_NTG)
        first_grads_2NH = weight_GH.new_empty(2, sentences, units)
        programs = _programs(sentences, units, ctx.own)
        arrived_P = torch.zeros(programs, dtype=torch.int32, device=weight_GH.device)
        _backward[(programs,)](
            hidden_grad_NTH.contiguous(), weight_GH, cells_NUH, gates_NTG, given_grad_NTG, *first_grads_2NH, arrived_P,
            sentences, steps, UNITS=units, OWN=ctx.own, SENTENCES=ROWS, num_warps=WARPS, num_stages=1,
        )  # fmt: skip
        weight_grad_GH = None
        if ctx.needs_input_grad[1]:
            before_MH = hidden_NUH[:, :-1].reshape(-1, units)
            weight_grad_GH = product(given_grad_NTG.flatten(0, 1).T, before_MH)
        first_hidden_grad, first_cell_grad = (x.to(kind) for x, kind in zip(first_grads_2NH, ctx.kinds, strict=True))
        return given_grad_NTG, weight_grad_GH, first_hidden_grad, first_cell_grad, None


def lstm_layer(
    given_NTG: Tensor, weight_GH: Tensor, first: tuple[Tensor, Tensor], own: int | None = None
) -> tuple[Tensor, Tensor]:
    """Hidden states of all steps (N, T, H) in bf16, and the last cell, which has no gradient.

    Args:
        given_NTG: what inputs and biases give to the gates i, f, g, o, in bf16.
        weight_GH: of the state, (4 H, H).
        first: the first hidden state and cell, each (N, H).
        own: units of a program.
    """
    return _Layer.apply(given_NTG, weight_GH, *first, own or OWN_UNITS[weight_GH.shape[1]])
