"""Log-probabilities of tokens from states and output weights, without keeping the logits of all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from textspace.errors import TextspaceError

__all__ = [
    "Precision",
    "computing_in",
    "even_words",
    "is_lean",
    "log_probabilities",
    "precision_named",
    "product",
    "rounded",
    "tf32_products",
]

Precision = Literal["float32", "tf32", "bf16"]
"""Of the factors of a decoder's matrix products; sums are float32 always."""

LOGITS_KEPT = {"cpu": 2**28, "cuda": 2**27}
"""Logits that training keeps; of more it keeps none and computes them a second time for the gradient."""
LOGITS_KEPT_SCORING = 2**24
"""Logits made at once without gradients, where leaving them out costs nothing."""
EVEN = {"cpu": 1, "cuda": 8}
"""Vocabularies whose size is a multiple of this are multiplied fast; others take a GPU several times as long."""
LOGITS_AT_ONCE = {"cpu": 2**22, "cuda": 2**25}
"""Logits of a chunk of rows: they fit a cache where they are few, and keep a GPU busy where they are many."""


def precision_named(name: str) -> Precision:
    """What a user calls a precision, if there is one of that name."""
    if name not in get_args(Precision):
        raise TextspaceError(f"precision is {name!r}: use 'float32', 'tf32' or 'bf16'")
    return cast("Precision", name)


@contextmanager
def computing_in(precision: Precision, device: torch.device) -> Iterator[None]:
    """Matrix products with factors of a precision; "tf32" is for GPUs."""
    precision = precision_named(precision)
    if precision == "tf32" and device.type != "cuda":
        raise TextspaceError("precision 'tf32' is for a GPU: use 'float32' on the CPU")
    with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"), tf32_products(precision == "tf32"):
        yield


@contextmanager
def tf32_products(on: bool) -> Iterator[None]:
    """Products of float32 matrices with factors rounded to 10 bits, which a GPU computes much faster."""
    before = torch.get_float32_matmul_precision()
    try:
        if on:
            torch.set_float32_matmul_precision("high")
        yield
    finally:
        if on:
            torch.set_float32_matmul_precision(before)


def rounded(x: Tensor) -> Tensor:
    """As a factor of `product`: to the type of autocast where that is on.

    On the CPU rounded numbers stay float32: their products are then those of a GPU, which adds them up in float32.
    """
    kind = x.device.type
    if not torch.is_autocast_enabled(kind):
        return x
    short = x.to(torch.get_autocast_dtype(kind))
    return short.float() if kind == "cpu" else short


def product(a: Tensor, b: Tensor) -> Tensor:
    """The matrix product of factors that are `rounded`, in float32 or better; not for autograd."""
    with torch.autocast(a.device.type, enabled=False):
        is_short = a.dtype in (torch.bfloat16, torch.float16)
        return torch.mm(a, b, out_dtype=torch.float32) if is_short else torch.mm(a, b)


def even_words(weight_VH: Tensor, bias_V: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
    """Weights and biases padded with words of probability 0, up to a size of the vocabulary that is multiplied fast."""
    weight_PH = _even(weight_VH)
    missing = len(weight_PH) - len(weight_VH)
    if not missing:
        return weight_VH, bias_V
    bias_V = weight_VH.new_zeros(len(weight_VH)) if bias_V is None else bias_V
    return weight_PH, F.pad(bias_V, (0, missing), value=-torch.inf)


def _even(weight_VH: Tensor) -> Tensor:
    missing = -len(weight_VH) % EVEN["cuda" if weight_VH.is_cuda else "cpu"]
    return F.pad(rounded(weight_VH), (0, 0, 0, missing)) if missing else weight_VH


def is_lean(logits: int, device: torch.device) -> bool:
    """Whether so many logits shall not be kept."""
    if not torch.is_grad_enabled():
        return logits > LOGITS_KEPT_SCORING or torch.is_autocast_enabled(device.type)
    return logits > LOGITS_KEPT["cuda" if device.type == "cuda" else "cpu"]


def log_probabilities(
    hidden: Tensor, weight_VH: Tensor, bias_V: Tensor | None, targets: Tensor, excluded: int | None = None
) -> Tensor:
    """log softmax(W h + b) at the targets, of the shape of the targets; in float32, or float64 if states are.

    Args:
        hidden: states, (..., H).
        weight_VH: of the words.
        bias_V: of the words.
        targets: numbers of words, (...).
        excluded: a word without probability.
    """
    hidden_NH, targets_N = hidden.flatten(0, -2), targets.flatten()
    learning = [x for x in (hidden, weight_VH, bias_V) if x is not None and x.requires_grad]
    if torch.is_grad_enabled() and learning:
        found_N = _LogProbabilities.apply(hidden_NH, weight_VH, bias_V, targets_N, excluded)
    else:
        found_N = _scored(hidden_NH, weight_VH, bias_V, targets_N, excluded)
    return found_N.view(targets.shape)


def _scored(
    hidden_NH: Tensor, weight_VH: Tensor, bias_V: Tensor | None, targets_N: Tensor, excluded: int | None
) -> Tensor:
    """Without gradients. Where factors are rounded, the target's logit is also computed exactly, and replaces the
    rounded one in the logsumexp too; the error that is left is an average over all other words."""
    fused = _fused(hidden_NH, weight_VH, bias_V, targets_N, excluded)
    if fused is not None:
        return _with_exact_target(*fused.unbind())
    factors = rounded(hidden_NH), rounded(_even(weight_VH))
    logit_N, sum_N = _in_chunks(*factors, bias_V, targets_N, excluded, len(weight_VH))
    if factors[0] is hidden_NH:
        return logit_N - sum_N
    exact_N = (weight_VH[targets_N] * hidden_NH).sum(1)
    if bias_V is not None:
        exact_N += bias_V[targets_N]
    return _with_exact_target(exact_N.where(logit_N > -torch.inf, -torch.inf), logit_N, sum_N)


def _with_exact_target(exact_N: Tensor, rounded_N: Tensor, sum_N: Tensor) -> Tensor:
    """log p from the target's logit, that of rounded factors, and the logsumexp with the latter."""
    return exact_N - sum_N - torch.log1p((exact_N - sum_N).exp() - (rounded_N - sum_N).exp())


def _in_chunks(
    hidden_NH: Tensor, weight_PH: Tensor, bias_V: Tensor | None, targets_N: Tensor, excluded: int | None, words: int
) -> tuple[Tensor, Tensor]:
    """Logits of the targets, and logsumexps."""
    kind = torch.float64 if hidden_NH.dtype == torch.float64 else torch.float32
    logit_N, sum_N = hidden_NH.new_empty(2, len(hidden_NH), dtype=kind)
    for rows in _chunks(len(hidden_NH), len(weight_PH), hidden_NH.device):
        logits_CP = _logits(hidden_NH[rows], weight_PH, bias_V, excluded, words)
        torch.logsumexp(logits_CP, 1, out=sum_N[rows])
        logit_N[rows] = logits_CP.gather(1, targets_N[rows, None])[:, 0]
    return logit_N, sum_N


class _LogProbabilities(torch.autograd.Function):
    """Keeps logsumexps and no logits; the gradient computes those of one chunk of rows after the other again."""

    @staticmethod
    def forward(
        ctx: Any, hidden_NH: Tensor, weight_VH: Tensor, bias_V: Tensor | None, targets_N: Tensor, excluded: int | None
    ) -> Tensor:
        factors = rounded(hidden_NH), rounded(_even(weight_VH))
        logit_N, sum_N = _in_chunks(*factors, bias_V, targets_N, excluded, len(weight_VH))
        ctx.excluded, ctx.words, ctx.kinds = excluded, len(weight_VH), (hidden_NH.dtype, weight_VH.dtype)
        ctx.save_for_backward(*factors, bias_V, targets_N, sum_N)
        return logit_N - sum_N

    @staticmethod
    def backward(ctx: Any, gradient_N: Tensor) -> tuple[Tensor | None, ...]:
        hidden_NH, weight_PH, bias_V, targets_N, sum_N = ctx.saved_tensors
        for_hidden, for_weight, for_bias = ctx.needs_input_grad[:3]
        hidden_grad_NH = torch.empty_like(hidden_NH, dtype=ctx.kinds[0]) if for_hidden else None
        weight_grad_PH = torch.zeros_like(weight_PH, dtype=ctx.kinds[1]) if for_weight else None
        bias_grad_V = torch.zeros_like(bias_V) if for_bias else None
        for rows in _chunks(len(hidden_NH), len(weight_PH), hidden_NH.device):
            logits_CP = _logits(hidden_NH[rows], weight_PH, bias_V, ctx.excluded, ctx.words)
            change_CP = logits_CP.sub_(sum_N[rows, None]).exp_().neg_()  # - softmax
            change_CP.scatter_add_(1, targets_N[rows, None], torch.ones_like(change_CP[:, :1]))
            change_CP *= gradient_N[rows, None]
            if bias_grad_V is not None:
                bias_grad_V += change_CP[:, : ctx.words].sum(0)
            change_CP = change_CP.to(hidden_NH.dtype)
            if hidden_grad_NH is not None:
                hidden_grad_NH[rows] = product(change_CP, weight_PH)
            if weight_grad_PH is not None:
                weight_grad_PH += product(change_CP.T, hidden_NH[rows])
        weight_grad_VH = None if weight_grad_PH is None else weight_grad_PH[: ctx.words]
        return hidden_grad_NH, weight_grad_VH, bias_grad_V, None, None


def _chunks(rows: int, words: int, device: torch.device) -> Iterator[slice]:
    size = max(1, LOGITS_AT_ONCE["cuda" if device.type == "cuda" else "cpu"] // words)
    return (slice(first, first + size) for first in range(0, rows, size))


def _logits(hidden_CH: Tensor, weight_PH: Tensor, bias_V: Tensor | None, excluded: int | None, words: int) -> Tensor:
    """Of words and of those that are none."""
    logits_CP = product(hidden_CH, weight_PH.T)
    if bias_V is not None:
        logits_CP[:, :words] += bias_V
    if excluded is not None:
        logits_CP[:, excluded] = -torch.inf
    logits_CP[:, words:] = -torch.inf
    return logits_CP


def _fused(
    hidden_NH: Tensor, weight_VH: Tensor, bias_V: Tensor | None, targets_N: Tensor, excluded: int | None
) -> Tensor | None:
    """Logits of the targets, exact and of rounded factors, and logsumexps, (3, N), by kernels that keep no logits; None
    where there are none for such numbers."""
    if not hidden_NH.is_cuda or not len(hidden_NH):
        return None
    hidden, weight = rounded(hidden_NH), rounded(weight_VH)
    in_tf32 = hidden.dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest"
    if not in_tf32 and hidden.dtype != torch.bfloat16:
        return None
    from textspace import gpu_kernels as kernels

    def work() -> Tensor:
        factors = (kernels.in_tf32(hidden), kernels.in_tf32(weight)) if in_tf32 else (hidden, weight)
        exact_N = kernels.target_logits(hidden_NH, weight_VH, bias_V, targets_N, excluded)
        rounded_N = kernels.target_logits(*factors, bias_V, targets_N, excluded)
        return torch.stack([exact_N, rounded_N, kernels.logsumexps(*factors, bias_V, excluded)])

    return kernels.tried(work, hidden.device)
