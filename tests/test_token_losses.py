"""Losses that keep no logits against plain ones: values, gradients, and what is kept."""

import os
import warnings

import pytest
import torch
from helpers import small
from torch import Tensor
from torch.nn import functional as F

from textspace import token_losses
from textspace.data.batching import batch_of
from textspace.errors import TextspaceError
from textspace.model import Model
from textspace.noise import _FIRST, _GOLDEN, _SECOND, Noise
from textspace.objectives import build_objective
from textspace.recipes import RECIPES
from textspace.schedules import Progress
from textspace.token_losses import computing_in, is_lean, log_probabilities, product, rounded

CPU = torch.device("cpu")
SIZES = [(7, 5, 11), (1, 3, 2), (23, 16, 97), (12, 4, 6)]
"""Rows, units, words; chunks of 40 logits divide none of the first three evenly."""


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(token_losses.LOGITS_AT_ONCE, "cpu", 40)


@pytest.fixture
def always_lean(monkeypatch: pytest.MonkeyPatch, small_chunks: None) -> None:
    monkeypatch.setitem(token_losses.LOGITS_KEPT, "cpu", 0)
    monkeypatch.setattr(token_losses, "LOGITS_KEPT_SCORING", 0)


def numbers(rows: int, units: int, words: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(rows)
    hidden_NH, weight_VH, bias_V = (
        torch.randn(shape, generator=generator, dtype=dtype) for shape in ((rows, units), (words, units), (words,))
    )
    return hidden_NH, weight_VH, bias_V, torch.randint(words, (rows,), generator=generator)


def plain(hidden: Tensor, weight_VH: Tensor, bias_V: Tensor | None, targets: Tensor, excluded: int | None) -> Tensor:
    logits = F.linear(hidden, weight_VH, bias_V)
    if excluded is not None:
        logits = logits.index_fill(-1, torch.tensor(excluded), -torch.inf)
    return logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0]


@pytest.fixture
def even(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of a multiple of eight words, some of which are none, as on a GPU."""
    monkeypatch.setitem(token_losses.EVEN, "cpu", 8)


@pytest.mark.parametrize("way", ["small_chunks", "even"])
@pytest.mark.parametrize("excluded", [None, 1])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("sizes", SIZES)
def test_values_and_gradients_are_those_of_plain_losses(
    sizes, biased: bool, excluded: int | None, way: str, request
) -> None:
    request.getfixturevalue(way)
    hidden, weight, bias, targets = numbers(*sizes)
    targets = targets if excluded is None else targets.where(targets != excluded, 0)
    weights_N = torch.randn(sizes[0], dtype=torch.float64)  # of the sum whose gradient is asked for
    found = []
    for function in (log_probabilities, plain):
        leaves = [x.clone().requires_grad_() for x in ((hidden, weight, bias) if biased else (hidden, weight))]
        values_N = function(leaves[0], leaves[1], leaves[2] if biased else None, targets, excluded)
        found.append([values_N, *torch.autograd.grad((values_N * weights_N).sum(), leaves)])
    for lean, truth in zip(*found, strict=True):
        torch.testing.assert_close(lean, truth, atol=1e-12, rtol=0)
    with torch.no_grad():
        scored = log_probabilities(hidden, weight, bias if biased else None, targets, excluded)
    torch.testing.assert_close(scored, found[1][0], atol=1e-12, rtol=0)


def test_gradients_are_those_of_differences(small_chunks) -> None:
    hidden, weight, bias, targets = numbers(9, 4, 13)
    leaves = [x.requires_grad_() for x in (hidden, weight, bias)]
    assert torch.autograd.gradcheck(lambda h, w, b: log_probabilities(h, w, b, targets, 2), leaves)
    assert torch.autograd.gradcheck(lambda w: log_probabilities(hidden.detach(), w, None, targets), [weight])


def test_states_may_have_any_axes_and_strides(small_chunks) -> None:
    hidden, weight, bias, targets = numbers(24, 5, 7)
    shaped = hidden.view(2, 3, 4, 5).transpose(0, 2)
    targets = targets.view(4, 3, 2)
    torch.testing.assert_close(
        log_probabilities(shaped, weight, bias, targets), plain(shaped, weight, bias, targets, None)
    )
    shared = targets[:1].expand(4, 3, 2)
    torch.testing.assert_close(
        log_probabilities(shaped, weight, bias, shared), plain(shaped, weight, bias, shared, None)
    )


def test_a_target_without_probability_has_none_and_passes_no_gradient_on(small_chunks) -> None:
    hidden, weight, _, targets = numbers(6, 3, 5)
    targets[2] = 4
    hidden.requires_grad_()
    values_N = log_probabilities(hidden, weight, None, targets, 4)
    assert values_N[2] == -torch.inf
    values_N.where(targets != 4, 0.0).sum().backward()  # as passes leave out what is no word
    assert (hidden.grad[2] == 0).all()
    assert hidden.grad.isfinite().all()


def test_nothing_as_large_as_the_logits_is_kept_for_the_gradient() -> None:
    hidden, weight, bias, targets = numbers(50, 4, 60)
    hidden.requires_grad_()
    kept: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):
        log_probabilities(hidden, weight, bias, targets)
    assert 0 < max(kept) <= 60 * 4
    kept.clear()
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):
        plain(hidden, weight, bias, targets, None)
    assert max(kept) == 50 * 60


def test_under_autocast_factors_are_rounded_and_sums_are_not(small_chunks) -> None:
    hidden, weight, bias, targets = numbers(40, 64, 97, torch.float32)
    leaves = [x.requires_grad_() for x in (hidden, weight, bias)]
    with torch.autocast("cpu", torch.bfloat16):
        values_N = log_probabilities(*leaves, targets)
    assert values_N.dtype == torch.float32
    short = [x.detach().bfloat16().double() for x in (hidden, weight)]
    torch.testing.assert_close(values_N.double(), plain(*short, bias.double(), targets, None), atol=1e-4, rtol=0)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        scored_N = log_probabilities(*leaves, targets)
    exact_N = plain(*leaves, targets, None)
    assert 0 < (scored_N - exact_N).norm() < 0.7 * (values_N - exact_N).norm()  # with the target's logit unrounded
    gradients = torch.autograd.grad(values_N.sum(), leaves)
    truth = torch.autograd.grad(plain(*leaves, targets, None).sum(), leaves)
    for lean, exact in zip(gradients, truth, strict=True):
        assert lean.dtype == torch.float32
        assert (lean - exact).norm() < 0.02 * exact.norm()
        assert not torch.equal(lean, exact)


def test_few_logits_are_kept_and_many_are_not() -> None:
    assert not is_lean(2**28, CPU)
    assert is_lean(2**28 + 1, CPU)
    assert not is_lean(2**27, torch.device("cuda"))
    assert is_lean(2**27 + 1, torch.device("cuda"))
    with torch.no_grad():
        assert not is_lean(2**24, CPU)
        assert is_lean(2**24 + 1, CPU)
        with torch.autocast("cpu", torch.bfloat16):
            assert is_lean(1, CPU)


def test_precisions_hold_while_computing_and_no_longer() -> None:
    x, y = torch.randn(2, 8, 8, generator=torch.Generator().manual_seed(0))
    with computing_in("float32", CPU):
        assert rounded(x) is x
    with computing_in("bf16", CPU):
        short = [each.bfloat16().float() for each in (x, y)]
        found = product(rounded(x), rounded(y))
        assert torch.equal(rounded(x), short[0])
    torch.testing.assert_close(found, short[0] @ short[1])
    assert not torch.is_autocast_enabled("cpu")
    assert rounded(x) is x
    for wrong, told in (("half", "precision is 'half': use 'float32', 'tf32' or 'bf16'"), ("tf32", "is for a GPU")):
        with pytest.raises(TextspaceError, match=told), computing_in(wrong, CPU):
            pass


MODELS = {
    "vae": ("vae", {}),
    "tied, with bias": ("vae", {"decoder.embedding": 16, "decoder.tie_output": True, "decoder.output_bias": True}),
    "tied, another size": ("vae", {"decoder.embedding": 12, "decoder.tie_output": True}),
    "skip": ("skip-vae", {}),
    "language model": ("lstm-lm", {}),
    "codes of tokens": ("vat-small", {}),
}


def loss_and_gradients(model: Model, has_end: bool) -> tuple[Tensor, list[Tensor]]:
    batch = batch_of([[5, 9, 4, 6], [7], [], [8, 8, 12]])
    noise = Noise(1, 0, batch.rows_B)
    if not has_end:
        features_BH = model.features(batch.encoder, noise)
        sites = model.sites(features_BH, noise, 2, batch.encoder)
        loss = -model.decode(batch, features_BH, sites, noise, has_end=False).log_px_SB.mean()
    else:
        terms = build_objective(model.recipe, model)(model(batch, noise, 2), Progress(0, 0.5))
        loss = terms.loss(terms.means(len(batch)))
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    gradients = torch.autograd.grad(loss, learning, allow_unused=True)
    return loss.detach(), [each for each in gradients if each is not None]


@pytest.mark.parametrize("has_end", [True, False])
@pytest.mark.parametrize("ways", [["always_lean"], ["even"], ["always_lean", "even"]])
@pytest.mark.parametrize("name", MODELS)
def test_models_learn_the_same_without_logits_and_with_even_words(
    name: str, ways: list[str], has_end: bool, float64, request
) -> None:
    recipe, changes = MODELS[name]
    model = Model(small(RECIPES[recipe]).but(changes), 30).double().train()  # with dropout
    loss, gradients = loss_and_gradients(model, has_end)
    for way in ways:
        request.getfixturevalue(way)
    found_loss, found_gradients = loss_and_gradients(model, has_end)
    torch.testing.assert_close(found_loss, loss, atol=1e-11, rtol=0)
    assert len(found_gradients) == len(gradients) > 5
    for found, truth in zip(found_gradients, gradients, strict=True):
        torch.testing.assert_close(found, truth, atol=1e-11, rtol=0)


# Kernels, interpreted


@pytest.fixture
def kernels():
    """Triton decides when it is imported whether it interprets."""
    pytest.importorskip("triton")
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("without a GPU only with TRITON_INTERPRET=1; those on a GPU are tested with likelihoods")
    from textspace import gpu_kernels

    return gpu_kernels


@pytest.mark.parametrize("excluded", [None, 1, 128])
@pytest.mark.parametrize(("rows", "units", "words"), [(65, 64, 129), (37, 50, 200), (1, 16, 300)])
def test_the_kernels_of_losses_give_plain_sums_and_logits(kernels, rows: int, units: int, words: int, excluded) -> None:
    hidden, weight, bias, targets = numbers(rows, units, words, torch.float32)
    short = [kernels.in_tf32(x) for x in (hidden, weight)]
    assert 0 < (short[0] - hidden).abs().max() <= 2**-11 * hidden.abs().max()
    for some_bias in (bias, None):
        logits = F.linear(*(x.double() for x in short), None if some_bias is None else some_bias.double())
        if excluded is not None:
            logits[:, excluded] = -torch.inf
        sum_N = kernels.logsumexps(*short, some_bias, excluded, kernels.Tile(32, 64, 32, 4, 2))
        torch.testing.assert_close(sum_N.double(), logits.logsumexp(1), atol=1e-5, rtol=0)
        logit_N = kernels.target_logits(*short, some_bias, targets, excluded)
        torch.testing.assert_close(logit_N.double(), logits.gather(1, targets[:, None])[:, 0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_the_kernels_of_cells_give_what_torch_gives(kernels, kind: str) -> None:
    """Of 3 samples of 2 sentences, with as many units as no block has."""
    samples, sentences, units = 3, 2, 37
    gates = {"lstm": 4, "gru": 3}[kind] * units
    generator = torch.Generator().manual_seed(0)
    recurrent, code = torch.randn(2, samples * sentences, gates, generator=generator)
    shared = torch.randn(sentences, gates, generator=generator)
    before, hidden = torch.randn(2, samples * sentences, units, generator=generator)
    whole = recurrent + code + shared.repeat(samples, 1)
    if kind == "lstm":
        i, f, g, o = whole.chunk(4, 1)
        cell = f.sigmoid() * before + i.sigmoid() * g.tanh()
        truth = o.sigmoid() * cell.tanh()
        kernels.lstm_cell(recurrent, shared, code, before, hidden)
        torch.testing.assert_close(before, cell, atol=1e-6, rtol=0)
    else:
        bias = torch.randn(units, generator=generator)
        reset, update = whole[:, : 2 * units].sigmoid().chunk(2, 1)
        new = (whole - recurrent)[:, 2 * units :] + reset * (recurrent[:, 2 * units :] + bias)
        truth = (1 - update) * new.tanh() + update * before
        kernels.gru_cell(recurrent, shared, code, bias, before, hidden)
    torch.testing.assert_close(hidden, truth, atol=1e-6, rtol=0)


@pytest.mark.parametrize(("samples", "elements"), [(1, 1), (3, 700)])
def test_the_kernel_of_noise_gives_its_bits(kernels, samples: int, elements: int) -> None:
    noise = Noise(3, 8, torch.tensor([5, 0, 2**40]))
    truth = noise._bits("z", (elements,), 2, samples)
    for key in (noise._key("z"), torch.tensor(noise._key("z"))):
        found = kernels.random_bits(noise.rows_B, key, 2, samples, elements, (_GOLDEN, _FIRST, _SECOND))
        assert torch.equal(found, truth)


def test_a_kernel_that_fails_is_told_once_and_replaced() -> None:
    from textspace import gpu_kernels

    def failing() -> Tensor:
        raise RuntimeError("no compiler\nand more")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_kernels, "triton", object())
        patch.setattr(gpu_kernels, "_off", {"asked": False, "broken": False})
        with gpu_kernels.switched_off():
            assert gpu_kernels.tried(failing, torch.device("cuda")) is None
        with pytest.warns(RuntimeWarning, match=r"do not work here \(RuntimeError: no compiler\)"):
            assert gpu_kernels.tried(failing, torch.device("cuda")) is None
        with warnings.catch_warnings(action="error"):
            assert gpu_kernels.tried(failing, torch.device("cuda")) is None
