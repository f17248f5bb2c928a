"""Likelihoods of many samples on a GPU; skipped where there is none."""

import warnings

import numpy as np
import pytest
import torch
from helpers import small
from torch import Tensor
from torch.nn import functional as F

from textspace import decoders
from textspace.evaluate.likelihood import Likelihood, likelihood
from textspace.model import Model
from textspace.recipes import RECIPES
from textspace.token_losses import Precision, computing_in, log_probabilities

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

GPU = torch.device("cuda")
ATOL: dict[Precision, float] = {"float32": 2e-5, "tf32": 5e-3, "bf16": 5e-2}
WIDER = {"decoder.hidden": 96, "initial.weights": 0.3, "initial.embeddings": 0.5}


def model_of(tiny, name: str, changes: dict | None = None) -> Model:
    return Model(small(RECIPES[name]).but(WIDER | (changes or {})), len(tiny.tokenizer)).eval()


def exact(hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, excluded: int | None) -> Tensor:
    logits = F.linear(hidden.double(), weight.double(), None if bias is None else bias.double())
    if excluded is not None:
        logits[:, excluded] = -torch.inf
    return logits.log_softmax(1).gather(1, targets[:, None])[:, 0]


@pytest.mark.parametrize("precision", ATOL)
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(
    ("rows", "units", "words"), [(1, 16, 5), (300, 100, 777), (1000, 512, 4097), (129, 1024, 16500)]
)
@torch.no_grad()
def test_fused_losses_are_the_plain_ones(rows: int, units: int, words: int, biased: bool, precision: Precision) -> None:
    generator = torch.Generator(GPU).manual_seed(rows)
    hidden = torch.rand(rows, units, device=GPU, generator=generator) * 2 - 1
    weight = torch.randn(words, units, device=GPU, generator=generator) / units**0.5 * 4
    bias = torch.randn(words, device=GPU, generator=generator) if biased else None
    targets = torch.randint(words, (rows,), device=GPU, generator=generator)
    for excluded in (None, 1):
        truth_N = exact(hidden, weight, bias, targets, excluded)
        with computing_in(precision, GPU), warnings.catch_warnings(action="error"):
            found_N = log_probabilities(hidden, weight, bias, targets, excluded)
        finite_N = truth_N.isfinite()
        assert torch.equal(found_N.isfinite(), finite_N)
        torch.testing.assert_close(found_N[finite_N].double(), truth_N[finite_N], atol=ATOL[precision], rtol=1e-5)


@pytest.mark.parametrize(
    "changes", [{}, {"decoder.kind": "gru"}, {"decoder.output_bias": True}, {"decoder.skip": True}]
)
def test_many_samples_on_the_gpu_have_the_likelihoods_of_the_cpu(tiny, changes: dict) -> None:
    split = tiny.encoded.splits["test"]
    model = model_of(tiny, "vae", changes)
    options = {"samples": 30, "keep_tokens": True}
    cpu = likelihood(model, split, **options)
    model.to(GPU)
    for precision, apart in (("float32", 1e-3), ("tf32", 0.01), ("bf16", 0.05)):
        with warnings.catch_warnings(action="error"):  # of kernels that do not work
            gpu = likelihood(model, split, precision=precision, **options)
        np.testing.assert_allclose(gpu.nll_N, cpu.nll_N, atol=apart)
        np.testing.assert_allclose(gpu.kl_N["z"], cpu.kl_N["z"], atol=1e-3)
        for one, other in zip(gpu.tokens, cpu.tokens, strict=True):
            np.testing.assert_allclose(one, other, atol=apart)


def test_sharing_and_chunks_do_not_change_the_estimate(tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    split = tiny.encoded.splits["test"]
    model = model_of(tiny, "vae").to(GPU)

    def measured(**more: object) -> Likelihood:
        return likelihood(model, split, samples=30, **more)

    shared, chunks = measured(), measured(chunk=7, batch_tokens=100)
    monkeypatch.setattr(decoders, "SAMPLES_TO_SHARE", 10**9)
    plain = measured()
    for other in (chunks, plain):
        np.testing.assert_allclose(other.nll_N, shared.nll_N, atol=2e-3)  # the GPU's own LSTM computes in TF32
        np.testing.assert_allclose(other.effective_samples_N, shared.effective_samples_N, rtol=0.01)


@torch.no_grad()
def test_few_samples_are_scored_with_whole_layers(tiny) -> None:
    """Validations take one: step by step they took a third of an epoch beside other runs."""
    split = tiny.encoded.splits["test"]
    model = model_of(tiny, "vae").to(GPU)
    plain, short = (likelihood(model, split, precision=each) for each in ("float32", "bf16"))
    np.testing.assert_allclose(short.reconstruction_N, plain.reconstruction_N, atol=0.1)
    with computing_in("bf16", GPU):
        assert [model.decoder.shares_words(samples) for samples in (1, 100)] == [False, True]


def test_losses_without_logits_can_be_captured_in_a_graph() -> None:
    hidden, weight = (torch.randn(shape, device=GPU, requires_grad=True) for shape in ((64, 32), (100, 32)))
    targets = torch.randint(100, (64,), device=GPU)

    def gradients() -> tuple[Tensor, ...]:
        return torch.autograd.grad(log_probabilities(hidden, weight, None, targets).sum(), [hidden, weight])

    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        expected = gradients()
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = gradients()
    graph.replay()
    for one, other in zip(captured, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_scoring_waits_only_at_the_end(tiny) -> None:
    """Until all batches are under way the host asks the GPU for nothing."""
    from textspace.evaluate import likelihood as module

    split = tiny.encoded.splits["test"]
    model = model_of(tiny, "vae").to(GPU)
    likelihood(model, split, samples=8, batch_tokens=100)
    score = module._score

    def watched(*given: object) -> object:
        torch.cuda.set_sync_debug_mode("error")
        try:
            return score(*given)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_score", watched)
        assert np.isfinite(likelihood(model, split, samples=8, batch_tokens=100).nll_N).all()
