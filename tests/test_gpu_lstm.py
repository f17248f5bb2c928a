"""The LSTM layer of one kernel: with Triton's interpreter in float32, and on a GPU in bf16."""

import os

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textspace import gpu_lstm, recurrence
from textspace.recurrence import run_layer


def problem(sentences: int, steps: int, units: int, device: str = "cpu") -> tuple[nn.LSTM, Tensor, Tensor, Tensor]:
    """A layer, its inputs, the first hidden state and cell (2, 1, N, H), and weights of what it gives."""
    torch.manual_seed(0)
    layer = nn.LSTM(24, units, batch_first=True).to(device)
    inputs = torch.randn(sentences, steps, 24, device=device, requires_grad=True)
    first = (torch.randn(2, 1, sentences, units, device=device) / 2).requires_grad_()
    return layer, inputs, first, torch.randn(sentences, steps, units, device=device)


def gradients(hidden: Tensor, weights: Tensor, layer: nn.LSTM, *inputs: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad((hidden.float() * weights).sum(), [*inputs, *layer.parameters()])


@pytest.mark.parametrize(("sentences", "steps"), [(5, 3), (20, 4), (1, 1)])
def test_interpreted_it_is_the_layer_of_torch(monkeypatch, sentences: int, steps: int) -> None:
    pytest.importorskip("triton")
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("without a GPU only with TRITON_INTERPRET=1")
    monkeypatch.setattr(gpu_lstm, "product", lambda a, b: a @ b)
    layer, inputs, first, weights = problem(sentences, steps, 32)
    given = F.linear(inputs, layer.weight_ih_l0, layer.bias_ih_l0 + layer.bias_hh_l0)
    # One program has all units: interpreted programs run one after the other and cannot wait for each other.
    hidden, cell = gpu_lstm.lstm_layer(given, layer.weight_hh_l0, (first[0, 0], first[1, 0]), own=32)
    truth, (_, last) = layer(inputs, (first[0], first[1]))
    torch.testing.assert_close(hidden, truth, atol=1e-6, rtol=0)
    torch.testing.assert_close(cell, last[0], atol=1e-6, rtol=0)
    ours, theirs = (gradients(found, weights, layer, inputs, first) for found in (hidden, truth))
    for our, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our, their, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("units", sorted(gpu_lstm.OWN_UNITS))
@pytest.mark.parametrize(("sentences", "steps"), [(32, 30), (20, 7)])
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_it_is_the_layer_of_torch_to_bf16(
    monkeypatch: pytest.MonkeyPatch, units: int, sentences: int, steps: int
) -> None:
    monkeypatch.delenv(recurrence.SIDE_BY_SIDE, raising=False)
    layer, inputs, first, weights = problem(sentences, steps, units, "cuda")
    with torch.autocast("cuda", torch.bfloat16):
        hidden, (_, cell) = run_layer(layer, inputs, (first[0], first[1]))
    assert hidden.dtype == torch.bfloat16  # torch's own would be float16
    truth, (_, last) = layer(inputs, (first[0], first[1]))
    torch.testing.assert_close(hidden.float(), truth, atol=0.02, rtol=0)
    torch.testing.assert_close(cell, last, atol=0.04, rtol=0)
    ours, theirs = (gradients(found, weights, layer, inputs, first) for found in (hidden, truth))
    for our, their in zip(ours, theirs, strict=True):
        assert (our - their).abs().max() < 0.03 * their.abs().max()


@pytest.mark.parametrize("given", [True, False])
def test_a_layer_that_reads_zeros_beside_its_inputs_is_the_same(monkeypatch, given: bool) -> None:
    """As a GPU has it where inputs are not even."""
    monkeypatch.setattr(recurrence, "_gains_from_even_inputs", lambda *_: True)
    layer, inputs, first, weights = (each.double() for each in problem(5, 7, 16))
    state = (first[0], first[1]) if given else None
    hidden, last = run_layer(layer, inputs, state)
    truth, theirs = layer(inputs, state)
    for found, true in zip((hidden, *last), (truth, *theirs), strict=True):
        torch.testing.assert_close(found, true, atol=1e-12, rtol=0)
    for our, their in zip(*(gradients(each, weights, layer, inputs) for each in (hidden, truth)), strict=True):
        torch.testing.assert_close(our, their, atol=1e-6, rtol=1e-6)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("units", [512, 1024])
def test_on_a_gpu_zeros_beside_the_inputs_change_nothing(units: int) -> None:
    layer, inputs, first, weights = problem(32, 9, units, "cuda")
    with torch.autocast("cuda", torch.bfloat16):
        hidden, (_, cell) = run_layer(layer, inputs, (first[0], first[1]))
    truth, (_, last) = layer(inputs, (first[0], first[1]))
    torch.testing.assert_close(hidden.float(), truth, atol=0.01, rtol=0)
    torch.testing.assert_close(cell.float(), last, atol=0.02, rtol=0)
    for our, their in zip(*(gradients(each, weights, layer, inputs, first) for each in (hidden, truth)), strict=True):
        assert (our - their).abs().max() < 0.03 * their.abs().max()


@pytest.mark.parametrize(
    ("processes", "sentences", "fit"),
    [(None, 32, True), (None, 33, False), ("8", 32, True), ("9", 32, False), ("16", 16, True), ("16", 17, False)],
)
def test_there_are_kernels_where_eight_processes_find_room_or_more(
    processes: str | None, sentences: int, fit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(recurrence.SIDE_BY_SIDE, raising=False)
    if processes:
        monkeypatch.setenv(recurrence.SIDE_BY_SIDE, processes)
    assert gpu_lstm.suits(256, sentences, recurrence._own(132)) == fit
    assert not gpu_lstm.suits(200, 1, recurrence._own(132))
    monkeypatch.setenv(recurrence.SIDE_BY_SIDE, "0")
    assert not gpu_lstm.suits(256, 1, recurrence._own(132))


def test_without_a_gpu_a_layer_is_that_of_torch() -> None:
    for kind in (nn.LSTM, nn.GRU):
        torch.manual_seed(0)
        layer = kind(6, 128, batch_first=True)
        inputs = torch.randn(3, 5, 6)
        first = tuple(torch.randn(2 if kind is nn.LSTM else 1, 1, 3, 128))
        hidden, last = run_layer(layer, inputs, first)
        truth, left = layer(inputs, first if kind is nn.LSTM else first[0])
        assert torch.equal(hidden, truth)
        assert all(map(torch.equal, last, left if kind is nn.LSTM else (left,)))


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_on_a_processor_without_16_bits_a_layer_in_them_is_that_of_32(monkeypatch, kind: type, given: bool) -> None:
    """As near as a processor that has them comes, whatever this one has; and gradients flow."""
    torch.manual_seed(0)
    layer, inputs = kind(6, 16, batch_first=True), torch.randn(3, 5, 6, requires_grad=True)
    first = tuple(torch.randn(2 if kind is nn.LSTM else 1, 1, 3, 16)) if given else None
    truth, true_last = run_layer(layer, inputs, first)
    state = torch.get_rng_state()
    with torch.autocast("cpu", torch.bfloat16):
        hidden, _ = run_layer(layer, inputs, first)
        monkeypatch.setattr(recurrence, "_cpu_has_16_bits", lambda: False)
        halves = None if first is None else tuple(each.bfloat16() for each in first)
        without, last = run_layer(layer, inputs, first if kind is nn.GRU else halves)
    assert torch.equal(torch.get_rng_state(), state)
    torch.testing.assert_close(hidden.float(), truth, atol=0.02, rtol=0)
    for found, true in zip((without, *last), (truth, *true_last), strict=True):
        torch.testing.assert_close(found.float(), true, atol=0.02, rtol=0)
    without.float().sum().backward()
    assert inputs.grad is not None
