"""Codes to token sequences: greedy decoding, sampling and beam search, a batch at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from textspace.checks import whole_number
from textspace.data.tokenizers import END, FIRST_PREDICTED, PAD, START
from textspace.errors import TextspaceError, nearest
from textspace.networks import Trained, evaluating
from textspace.noise import Noise
from textspace.types import PaddedCodes

__all__ = ["METHODS", "Beam", "Generated", "Greedy", "Method", "Sampling", "StepDecoder", "generate", "method_named"]


class StepDecoder(Trained, Protocol):
    """What a decoder must offer to be decoded from.

    Codes are vectors (N, Z), or `PaddedCodes` where every token has one (`of_tokens`). The state of N sentences is None
    or a tuple of tensors with the sentences along axis 1. A decoder that keeps another kind of state brings
    `reorder(state, index_M)`, which gives the state of the sentences `index_M`: some may be missing and some may occur
    more than once.
    """

    dim: int | None
    of_tokens: bool
    embedding: nn.Embedding

    def start(self, z_NZ: Any) -> Any: ...

    def step(self, ids_N: Tensor, z_NZ: Any, state: Any) -> tuple[Tensor, Any]: ...


@dataclass(frozen=True, kw_only=True)
class Method:
    """What all ways of decoding share.

    Args:
        max_tokens: the most words of a sentence; its end comes on top.
        forbidden: ids that are never produced, such as `UNKNOWN`.
    """

    max_tokens: int = 200
    forbidden: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        whole_number(self.max_tokens, 1, f"max_tokens cannot be {self.max_tokens!r}")


@dataclass(frozen=True, kw_only=True)
class Greedy(Method):
    """The most probable token at each step; of equally probable ones that with the lowest id."""


@dataclass(frozen=True, kw_only=True)
class Sampling(Method):
    """A draw at each step, from the probabilities to the power of 1 / temperature.

    Args:
        temperature: below 1 favours probable tokens; 1 draws from the model itself.
        top_k: draw among the k most probable tokens only.
        top_p: draw among the fewest most probable tokens whose mass reaches p, and at least one. The mass is that
            after temperature and `top_k`. Equally probable tokens are taken in the order of their ids.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _demand(0 < self.temperature < math.inf, f"temperature must be above 0 and finite, not {self.temperature}")
        if self.top_k is not None:
            whole_number(self.top_k, 1, f"top_k cannot be {self.top_k!r}")
        _demand(self.top_p is None or 0 < self.top_p <= 1, f"top_p must be above 0 and up to 1, not {self.top_p}")


@dataclass(frozen=True, kw_only=True)
class Beam(Method):
    """The best sentence found with the `width` most probable beginnings of each length in view.

    The score of a sentence is log p / length ** length_penalty, where log p is the model's, end token included, and
    length counts the words and the end token. So 0, the default, looks for the most probable sentence, which favours
    short ones, and 1 for that with the highest mean log p per token.

    At each step, every beginning is extended by every token. Those among the `width` best extensions that end a
    sentence are candidates for the answer, and the `width` best of those that do not end go on. The search of a
    sentence stops when nothing open can beat the best candidate any more: log p only falls, so an open beginning
    scores at most its log p / (max_tokens + 1) ** length_penalty. Beginnings of `max_tokens` words can only end: the
    answer is a whole sentence unless the end token is forbidden. Among equal scores the shorter sentence wins, then
    the one with the better beginning, then lower ids.

    Args:
        width: 1 gives greedy decoding, if length_penalty is 0 and the greedy sentence ends within max_tokens.
        length_penalty: a power from 0 to 10.
    """

    width: int = 5
    length_penalty: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number(self.width, 1, f"width cannot be {self.width!r}")
        _demand(0 <= self.length_penalty <= 10, f"length_penalty must be from 0 to 10, not {self.length_penalty}")


METHODS: dict[str, type[Method]] = {"greedy": Greedy, "sampling": Sampling, "beam": Beam}


def method_named(kind: str, **options: Any) -> Method:
    """A method by its name and options.

    >>> method_named("sampling", temperature=0.7)
    Sampling(max_tokens=200, forbidden=(), temperature=0.7, top_k=None, top_p=None)
    """
    if kind not in METHODS:
        raise TextspaceError(f"there is no decoding method {kind!r}; {nearest(kind, METHODS)}")
    known = [field.name for field in fields(METHODS[kind])]
    for name in options:
        _demand(name in known, f"{kind} decoding has no option {name!r}; {nearest(name, known)}")
    return METHODS[kind](**options)


@dataclass(frozen=True)
class Generated:
    """Sentences made from codes; the tensors are on the CPU.

    Args:
        ids: of each sentence, without start and end.
        log_prob_N: the model's log p of each, whatever the method's temperature or bans and whether its length was
            given, in float64. It counts the end token if there is one; otherwise it is the log p of all sentences
            that begin so.
        ended_N: whether the sentence came to its end; otherwise it was cut after `max_tokens` words.
    """

    ids: list[list[int]]
    log_prob_N: Tensor
    ended_N: Tensor


@torch.no_grad()
def generate(
    decoder: StepDecoder,
    z_NZ: Tensor | PaddedCodes | None,
    method: Method | str,
    *,
    rows_N: Tensor,
    seed: int = 0,
    lengths_N: Tensor | None = None,
) -> Generated:
    """One sentence for each code, decoded together.

    A sentence does not depend on the others of its batch, save through rounding: a network's float32 numbers differ in
    their last digits with the size of the batch, which can turn a choice between all but equal tokens.

    Args:
        decoder: of a model; used without dropout.
        z_NZ: codes; None for a language model.
        method: how to choose the tokens, or the name of it.
        rows_N: a number for each sentence, which keys its draws: with the same number, seed and code, sampling gives
            the same sentence in any batch. Several samples of one code need different numbers.
        seed: of sampling.
        lengths_N: how many words each sentence has: its end is forbidden before, and the only choice then, whatever
            `max_tokens` and `forbidden` say of it. Sampling so draws from the words' probabilities renormalised
            without the end, p_seq of equation 2 of sentenceMIM [Livne et al. 2020]; `log_prob_N` is still that of the
            model with its end token, and holds no probability of the length.

    >>> from textspace.model import Model
    >>> from textspace.recipes import RECIPES
    >>> decoder = Model(RECIPES["lstm-lm"].but({"decoder.hidden": 8, "initial.weights": 1.0}), 9).decoder
    >>> drawn = generate(decoder, None, Sampling(max_tokens=6), rows_N=torch.arange(4))
    >>> again = generate(decoder, None, Sampling(max_tokens=6), rows_N=torch.tensor([2]))
    >>> len(drawn.ids), drawn.ids[2] == again.ids[0]
    (4, True)
    """
    method = method_named(method) if isinstance(method, str) else method
    if not isinstance(method, Method):
        given = f"the class {method.__name__}" if isinstance(method, type) else repr(method)
        raise TextspaceError(f"method is {given}: give one such as Sampling() or Beam(width=5), or the name of one")
    vocabulary, weight = decoder.embedding.num_embeddings, decoder.embedding.weight
    count = len(rows_N)
    if z_NZ is None:
        _demand(decoder.dim is None, f"the decoder needs codes of {decoder.dim} numbers and got none")
    else:
        _demand(decoder.dim is not None, "a language model takes no codes")
        padded = isinstance(z_NZ, PaddedCodes)
        wanted, given = ("tokens" if of_tokens else "sentences" for of_tokens in (decoder.of_tokens, padded))
        _demand(wanted == given, f"the decoder reads codes of {wanted}, and these are of {given}")
        values = z_NZ.values_NTZ if isinstance(z_NZ, PaddedCodes) else z_NZ
        shape = (count, *values.shape[1:2], decoder.dim) if padded else (count, decoder.dim)
        _demand(values.shape == shape, f"the codes must have shape {shape}, not {tuple(values.shape)}")
        _demand(bool(values.isfinite().all()), "a code holds a number that is not finite")
        z_NZ = z_NZ.to(weight.device, weight.dtype)
    for token in method.forbidden:
        _demand(0 <= token < vocabulary, f"there is no token {token} to forbid: ids go from 0 to {vocabulary - 1}")
    allowed = set(range(FIRST_PREDICTED, vocabulary)) - set(method.forbidden)
    _demand(bool(allowed), "every token is forbidden, so nothing can be produced")
    if lengths_N is not None:
        _demand(lengths_N.shape == (count,), f"{count} sentences need as many lengths, not {lengths_N.numel()}")
        _demand(bool((lengths_N >= 0).all()), "a length is below 0")
        words = bool(allowed - {END}) or not lengths_N.any()
        _demand(words, "every word is forbidden, so no sentence can be made as long as asked")
        longest = int(lengths_N.max()) if count else 0
        forbidden = tuple(token for token in method.forbidden if token != END)
        method = replace(method, max_tokens=max(longest, 1), forbidden=forbidden)
        lengths_N = lengths_N.to(weight.device)

    with evaluating(decoder):
        if isinstance(method, Beam):
            return _searched(decoder, z_NZ, method, count, lengths_N)
        return _stepped(decoder, z_NZ, method, rows_N.to(weight.device), seed, lengths_N)


def _stepped(
    decoder: StepDecoder,
    z_AZ: Tensor | PaddedCodes | None,
    method: Method,
    rows_A: Tensor,
    seed: int,
    lengths_N: Tensor | None,
) -> Generated:
    """Greedy decoding and sampling. A counts the sentences that are still open: the others leave the batch."""
    open_A = torch.arange(len(rows_A), device=rows_A.device)
    log_prob_N = torch.zeros_like(open_A, dtype=torch.float64)
    ended_N = torch.zeros_like(open_A, dtype=torch.bool)
    ids_TN: list[Tensor] = []
    last_A = torch.full_like(open_A, START)
    state = decoder.start(z_AZ)
    for position in range(method.max_tokens + 1):
        logits_AV, state = decoder.step(last_A, z_AZ, state)
        log_p_AV = logits_AV.double().log_softmax(1)
        allowed_AV = _without(log_p_AV, method.forbidden)
        if lengths_N is not None:
            allowed_AV = _ending(allowed_AV, lengths_N[open_A] == position)
        if isinstance(method, Sampling):
            uniform_A = Noise(seed, position, rows_A).uniform("next token", (), samples=1)[0]
            chosen_A = _drawn(allowed_AV, method, uniform_A)
        else:
            chosen_A = allowed_AV.argmax(1)
        last_A = chosen_A + FIRST_PREDICTED
        ends_A = last_A == END
        # After the last word only the end still counts: any other choice is dropped.
        counts_A = ends_A | (position < method.max_tokens)
        log_prob_N[open_A] += log_p_AV.gather(1, chosen_A[:, None])[:, 0].where(counts_A, 0.0)
        ended_N[open_A] = ends_A
        going = (~ends_A).nonzero()[:, 0]
        if position == method.max_tokens or not len(going):
            break
        if len(going) < len(open_A):
            open_A, rows_A, last_A = open_A[going], rows_A[going], last_A[going]
            z_AZ = None if z_AZ is None else z_AZ[going]
            state = _reordered(decoder, state, going)
        ids_TN.append(torch.full_like(ended_N, PAD, dtype=torch.long).index_copy(0, open_A, last_A))
    ids_NT = torch.stack(ids_TN, dim=1).tolist() if ids_TN else [[] for _ in ended_N]
    ids = [[token for token in sentence if token != PAD] for sentence in ids_NT]
    return Generated(ids, log_prob_N.cpu(), ended_N.cpu())


def _drawn(log_p_NV: Tensor, method: Sampling, uniform_N: Tensor) -> Tensor:
    """Positions drawn by inverting the distribution function; tokens in the order of their ids."""
    # The largest becomes 0 first, so that even a tiny temperature gives no NaN.
    p_NV = ((log_p_NV - log_p_NV.amax(1, keepdim=True)) / method.temperature).softmax(1)
    if method.top_k is not None or method.top_p is not None:
        # K = V without top_k
        sorted_NK, token_NK = _top(p_NV, method.top_k or p_NV.shape[1])
        if method.top_p is not None and method.top_p < 1:  # 1 keeps all, whatever the rounding of sums
            mass_NK = sorted_NK.cumsum(1)
            before_NK = F.pad(mass_NK[:, :-1], (1, 0))
            sorted_NK[before_NK >= method.top_p * mass_NK[:, -1:]] = 0
        p_NV = torch.zeros_like(p_NV).scatter(1, token_NK, sorted_NK)
    mass_NV = p_NV.cumsum(1)
    # The first position whose mass reaches a number above 0: never one of probability 0.
    return torch.searchsorted(mass_NV, uniform_N[:, None] * mass_NV[:, -1:])[:, 0]


def _searched(
    decoder: StepDecoder, z_AZ: Tensor | PaddedCodes | None, method: Beam, count: int, lengths_N: Tensor | None
) -> Generated:
    """Beam search. A counts the sentences still searched, W beginnings of each, C candidates to follow; M = A x W."""
    device, width = decoder.embedding.weight.device, method.width
    open_A = torch.arange(count, device=device)
    ids: list[list[int]] = [[] for _ in range(count)]
    score_N = torch.full((count,), -math.inf, dtype=torch.float64, device=device)
    log_prob_N, ended_N = score_N.clone(), torch.zeros_like(score_N, dtype=torch.bool)
    log_p_AW = torch.full((count, width), -math.inf, dtype=torch.float64, device=device)
    log_p_AW[:, 0] = 0.0  # all beginnings are the same at first: -inf marks those that do not exist
    words_AWT = torch.empty(count, width, 0, dtype=torch.long, device=device)
    last_AW = torch.full((count, width), START, device=device)
    z_MZ = None if z_AZ is None else z_AZ.repeat_interleave(width, 0)
    state = decoder.start(z_MZ)
    for position in range(method.max_tokens + 1):
        logits_MV, state = decoder.step(last_AW.flatten(), z_MZ, state)
        allowed_MV = _without(logits_MV, method.forbidden)
        if lengths_N is not None:
            allowed_MV = _ending(allowed_MV, (lengths_N[open_A] == position).repeat_interleave(width))
        elif position == method.max_tokens:
            allowed_MV = _ending(allowed_MV, torch.ones_like(allowed_MV[:, 0], dtype=torch.bool))
        # Each beginning ends in one way, so 2 W candidates hold W that go on.
        top_MC, token_MC = _top(allowed_MV, 2 * width)
        log_p_MC = top_MC.double() - logits_MV.double().logsumexp(1, keepdim=True)
        log_p_AWC = log_p_AW[:, :, None] + log_p_MC.unflatten(0, (-1, width))
        log_p_AC, candidate_AC = _top(log_p_AWC.flatten(1), 2 * width)
        parent_AC = candidate_AC // token_MC.shape[1]
        token_AC = token_MC.unflatten(0, (-1, width)).flatten(1).gather(1, candidate_AC) + FIRST_PREDICTED
        ends_AC = token_AC == END

        whole_A, at_A = log_p_AC[:, :width].where(ends_AC[:, :width], -math.inf).max(1)
        whole_score_A = whole_A / (position + 1) ** method.length_penalty
        better_B = (whole_score_A > score_N[open_A]).nonzero()[:, 0]
        score_N[open_A[better_B]] = whole_score_A[better_B]
        log_prob_N[open_A[better_B]] = whole_A[better_B]
        ended_N[open_A[better_B]] = True
        _put(ids, open_A[better_B], words_AWT[better_B, parent_AC[better_B, at_A[better_B]]])
        if position == method.max_tokens:
            break
        on_AW = ends_AC.int().sort(dim=1, stable=True).indices[:, :width]
        bound_A = log_p_AC.gather(1, on_AW[:, :1])[:, 0] / (method.max_tokens + 1) ** method.length_penalty
        going = (score_N[open_A] < bound_A).nonzero()[:, 0]
        if not len(going):
            break
        open_A, on_AW = open_A[going], on_AW[going]
        log_p_AW, last_AW = log_p_AC[going].gather(1, on_AW), token_AC[going].gather(1, on_AW)
        parent_AW = parent_AC[going].gather(1, on_AW)
        words_AWT = torch.cat([words_AWT[going[:, None], parent_AW], last_AW[:, :, None]], dim=2)
        parent_M = (going[:, None] * width + parent_AW).flatten()
        z_MZ = None if z_MZ is None else z_MZ[parent_M]
        state = _reordered(decoder, state, parent_M)
    # Where no end could be produced at all, the best beginning is the answer.
    cut_B = (~ended_N[open_A]).nonzero()[:, 0]
    log_prob_N[open_A[cut_B]] = log_p_AW[cut_B, 0]
    _put(ids, open_A[cut_B], words_AWT[cut_B, 0])
    return Generated(ids, log_prob_N.cpu(), ended_N.cpu())


def _put(ids: list[list[int]], sentence_B: Tensor, words_BT: Tensor) -> None:
    for sentence, words in zip(sentence_B.tolist(), words_BT.tolist(), strict=True):
        ids[sentence] = words


def _top(values_NV: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row (or all) and their positions, sorted; equal ones in the order of their positions.

    torch.topk picks any of equal numbers, and not the same ones in every batch.
    """
    if k >= values_NV.shape[1]:
        return values_NV.sort(dim=1, descending=True, stable=True)
    some = values_NV.topk(k + 1, dim=1)
    position_NK = some.indices[:, :k].sort(dim=1).values
    least_N1, next_N1 = some.values[:, k - 1 : k], some.values[:, k:]
    if (least_N1 == next_N1).any():  # rare, and ten times slower
        above_NV, equal_NV = values_NV > least_N1, values_NV == least_N1
        kept_NV = above_NV | (equal_NV & (equal_NV.cumsum(1) <= k - above_NV.sum(1, keepdim=True)))
        position_NK = kept_NV.nonzero()[:, 1].view(-1, k)
    top_NK, order_NK = values_NV.gather(1, position_NK).sort(dim=1, descending=True, stable=True)
    return top_NK, position_NK.gather(1, order_NK)


def _without(scores_NV: Tensor, forbidden: Sequence[int]) -> Tensor:
    """Scores with -inf for the forbidden tokens."""
    banned = [token - FIRST_PREDICTED for token in forbidden if token >= FIRST_PREDICTED]
    return scores_NV.index_fill(1, torch.tensor(banned, dtype=torch.long, device=scores_NV.device), -math.inf)


def _ending(scores_NV: Tensor, ends_N: Tensor) -> Tensor:
    """Scores with -inf for all but the end token in the sentences that end, and for the end token in the others."""
    is_end_V = torch.arange(scores_NV.shape[1], device=scores_NV.device) == END - FIRST_PREDICTED
    return scores_NV.where(ends_N[:, None] == is_end_V, -math.inf)


def _reordered(decoder: StepDecoder, state: Any, index_M: Tensor) -> Any:
    """The state of the sentences `index_M`."""
    if hasattr(decoder, "reorder"):
        return decoder.reorder(state, index_M)
    return None if state is None else tuple(part.index_select(1, index_M) for part in state)


def _demand(holds: bool, otherwise: str) -> None:
    if not holds:
        raise TextspaceError(otherwise)
