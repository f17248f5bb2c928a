"""Recurrent layers: whole ones, and many samples of few sentences for scoring, where words are read once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textspace.token_losses import product, rounded

__all__ = ["PROCESSES", "SIDE_BY_SIDE", "run_layer", "states"]

SIDE_BY_SIDE = "TEXTSPACE_SIDE_BY_SIDE"
"""Environment variable: how many processes share this GPU and run kernels whose programs wait for each other; 0 forbids
this process to run any."""
PROCESSES = 8
"""Programs that wait for each other must run at once: those of so many processes find room on one GPU."""

EVEN = 128
"""Where inputs and units are multiples of this, PyTorch's LSTM in 16 bits can be one kernel for all steps."""


def run_layer(
    layer: nn.LSTM | nn.GRU, inputs_NTE: Tensor, first: tuple[Tensor, ...] | None = None
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The hidden states of all steps, (N, T, H), and the state after the last one, which is not for gradients.

    The first state is zeros, or hidden and for an LSTM cell, each (layers, N, H).
    """
    fused = _fused(layer, inputs_NTE, first)
    if fused is not None:
        return fused
    missing = -inputs_NTE.shape[2] % EVEN
    if missing and _gains_from_even_inputs(layer, inputs_NTE):
        return _with_more_inputs(layer, inputs_NTE, first, missing)
    state = first if first is None or len(first) == 2 else first[0]
    if isinstance(layer, nn.LSTM) and inputs_NTE.is_cpu and torch.is_autocast_enabled("cpu") and not _cpu_has_16_bits():
        with torch.autocast("cpu", enabled=False):
            hidden_NTH, last = layer(inputs_NTE.float(), state and tuple(each.float() for each in state))
    else:
        hidden_NTH, last = layer(inputs_NTE, state)
    return hidden_NTH, last if isinstance(last, tuple) else (last,)


@cache
def _cpu_has_16_bits() -> bool:
    """Whether PyTorch computes an LSTM in 16 bits on this processor: where instructions for it are missing, it refuses.

    A GRU, and sentences packed by their lengths, it computes everywhere.
    """
    try:
        with torch.random.fork_rng([]), torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            nn.LSTM(1, 1)(torch.zeros(1, 1, 1))
    except RuntimeError:
        return False
    return True


def _gains_from_even_inputs(layer: nn.LSTM | nn.GRU, inputs_NTE: Tensor) -> bool:
    """Whether PyTorch would compute the layer in 16 bits and with one kernel for all steps, were its inputs even."""
    return (
        inputs_NTE.is_cuda
        and torch.is_autocast_enabled("cuda")
        and isinstance(layer, nn.LSTM)
        and layer.num_layers == 1
        and not layer.bidirectional
        and layer.hidden_size % EVEN == 0
        and layer.hidden_size <= 1024
    )


def _with_more_inputs(
    layer: nn.LSTM | nn.GRU, inputs_NTE: Tensor, first: tuple[Tensor, ...] | None, missing: int
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The same layer, reading zeros beside its inputs."""
    to_inputs, *others = layer.all_weights[0]
    hidden_NTH, *last = torch.lstm(
        F.pad(inputs_NTE, (0, missing)),
        first or _zeros(layer, inputs_NTE),
        [F.pad(to_inputs, (0, missing)), *others],
        has_biases=True,
        num_layers=1,
        dropout=0.0,
        train=layer.training,
        bidirectional=False,
        batch_first=True,
    )
    return hidden_NTH, tuple(last)


def _zeros(layer: nn.LSTM | nn.GRU, inputs_NTE: Tensor) -> tuple[Tensor, Tensor]:
    """The first state and cell where none are given."""
    zeros_1NH = inputs_NTE.new_zeros(1, len(inputs_NTE), layer.hidden_size)
    return zeros_1NH, zeros_1NH


def _own(processors: int) -> int:
    """This process's share of a GPU's multiprocessors for kernels whose programs wait for each other."""
    processes = int(os.environ.get(SIDE_BY_SIDE, 1))
    return processors // max(processes, PROCESSES) if processes else 0


def _fused(
    layer: nn.LSTM | nn.GRU, inputs_NTE: Tensor, first: tuple[Tensor, ...] | None
) -> tuple[Tensor, tuple[Tensor, ...]] | None:
    """By kernels of our own for all steps, in bf16 on a GPU; None where there are none."""
    sentences, steps, _ = inputs_NTE.shape
    in_bf16 = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") == torch.bfloat16
    if not (inputs_NTE.is_cuda and in_bf16 and steps > 1 and isinstance(layer, nn.LSTM) and layer.num_layers == 1):
        return None
    from textspace import gpu_kernels, gpu_lstm

    processors = torch.cuda.get_device_properties(inputs_NTE.device).multi_processor_count
    if layer.bidirectional or not gpu_lstm.suits(layer.hidden_size, sentences, _own(processors)):
        return None
    to_inputs, to_state, *biases = layer.all_weights[0]
    hidden_1NH, cell_1NH = first or _zeros(layer, inputs_NTE)

    def work() -> tuple[Tensor, Tensor]:
        given_NTG = F.linear(inputs_NTE, to_inputs, biases[0] + biases[1])
        return gpu_lstm.lstm_layer(given_NTG, to_state, (hidden_1NH[0], cell_1NH[0]))

    found = gpu_kernels.tried(work, inputs_NTE.device)
    return None if found is None else (found[0], (found[0][:, -1].detach()[None], found[1][None]))


def states(
    layer: nn.LSTM | nn.GRU, embedded_BTE: Tensor, z_SBZ: Tensor, first: tuple[Tensor, ...], rows: int
) -> Iterator[Tensor]:
    """Hidden states of some time steps after the other, (t, S x B, H), about `rows` of them at once; no gradients.

    The gates are a sum of three parts: what the words give, once for all samples of a sentence; what the code gives,
    once for all time steps; and what the state gives, the only one that each step computes. What is given is
    overwritten when the next is asked for.

    Args:
        layer: of one layer, whose input is words and code.
        embedded_BTE: the words.
        z_SBZ: the codes.
        first: the state before the first word, hidden and for an LSTM cell, each (1, S x B, H).
        rows: states at once.
    """
    samples, sentences, _ = z_SBZ.shape
    steps, embedding = embedded_BTE.shape[1:]
    count, units = samples * sentences, layer.hidden_size
    biases_G, bias_H = _biases(layer)
    to_words, to_code = layer.all_weights[0][0].split([embedding, z_SBZ.shape[2]], dim=1)
    with torch.autocast(z_SBZ.device.type, enabled=False):  # computed once: no reason to round
        shared_TBG = F.linear(embedded_BTE.transpose(0, 1), to_words, biases_G)
        code_NG = F.linear(z_SBZ.flatten(0, 1), to_code)
    to_state = rounded(layer.all_weights[0][1]).T
    cell_NH = first[1][0].clone() if len(first) > 1 else None
    size = min(steps, max(1, rows // count))
    hidden_UNH = code_NG.new_empty(size + 1, count, units)
    hidden_UNH[0] = first[0][0]
    for start in range(0, steps, size):
        at_once = min(size, steps - start)
        for t in range(at_once):
            recurrent_NG = product(rounded(hidden_UNH[t]), to_state)
            before_NH = hidden_UNH[t] if cell_NH is None else cell_NH
            _step(recurrent_NG, shared_TBG[start + t], code_NG, bias_H, before_NH, hidden_UNH[t + 1])
        yield hidden_UNH[1 : at_once + 1]
        hidden_UNH[0] = hidden_UNH[at_once]


def _biases(layer: nn.LSTM | nn.GRU) -> tuple[Tensor, Tensor | None]:
    """Of the gates, and of what a GRU's reset gate multiplies."""
    _, _, from_input_G, from_state_G = layer.all_weights[0]
    if isinstance(layer, nn.LSTM):
        return from_input_G + from_state_G, None
    others_G, new_H = from_state_G.split([2 * layer.hidden_size, layer.hidden_size])
    return from_input_G + F.pad(others_G, (0, layer.hidden_size)), new_H


def _step(
    recurrent_NG: Tensor,
    shared_BG: Tensor,
    code_NG: Tensor,
    bias_H: Tensor | None,
    before_NH: Tensor,
    hidden_NH: Tensor,
) -> None:
    """Write the hidden state after one more word; before is an LSTM's cell, overwritten by the next, or a GRU's state,
    which alone has the bias."""
    if hidden_NH.is_cuda and hidden_NH.dtype == torch.float32:
        from textspace import gpu_kernels

        def work() -> Tensor:
            if bias_H is None:
                return gpu_kernels.lstm_cell(recurrent_NG, shared_BG, code_NG, before_NH, hidden_NH)
            return gpu_kernels.gru_cell(recurrent_NG, shared_BG, code_NG, bias_H, before_NH, hidden_NH)

        if gpu_kernels.tried(work, hidden_NH.device) is not None:
            return
    inputs_NG = (code_NG.unflatten(0, (-1, len(shared_BG))) + shared_BG).flatten(0, 1)
    if bias_H is None:
        i, f, g, o = inputs_NG.add_(recurrent_NG).chunk(4, dim=1)
        before_NH.mul_(f.sigmoid_()).add_(i.sigmoid_().mul_(g.tanh_()))
        torch.mul(before_NH.tanh(), o.sigmoid_(), out=hidden_NH)
    else:
        units = hidden_NH.shape[1]
        gates = inputs_NG[:, : 2 * units].add_(recurrent_NG[:, : 2 * units]).sigmoid_()
        reset, update = gates.chunk(2, dim=1)
        new = (inputs_NG[:, 2 * units :] + reset * (recurrent_NG[:, 2 * units :] + bias_H)).tanh_()
        torch.lerp(new, before_NH, update, out=hidden_NH)
