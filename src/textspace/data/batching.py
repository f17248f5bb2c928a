"""Which sentences go together, and how they are padded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from textspace.checks import whole_number
from textspace.data.encoded import EncodedSplit
from textspace.data.tokenizers import END, PAD, START
from textspace.errors import TextspaceError
from textspace.types import Batch, View

__all__ = ["Mixing", "Plan", "batch_of", "batches_by_length", "make_batch", "pad", "plan_batches"]

Mixing = Literal["all", "balanced"]

# Sentences are sorted by length among this many batches' worth of random ones: enough that little is padding,
# few enough that the sentences of a batch differ from epoch to epoch.
_WINDOW_BATCHES = 100


class Plan(Sequence[NDArray[np.int64]]):
    """The batches of an epoch, each an array of rows; one array holds them all."""

    def __init__(self, rows: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        self._rows, self._starts, self._ends = rows, starts, ends

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, batch: int) -> NDArray[np.int64]:  # type: ignore[override]  # no slices
        return self._rows[self._starts[batch] : self._ends[batch]]


def plan_batches(
    lengths: NDArray[np.integer],
    *,
    size: int | None = None,
    tokens: int | None = None,
    seed: int,
    epoch: int,
    sources: NDArray[np.integer] | None = None,
    mixing: Mixing = "all",
    by_length: bool = True,
) -> Plan:
    """An epoch in random order, by default with sentences of similar length together; a pure function of the arguments.

    Args:
        lengths: tokens of each sentence, start and end included.
        size: sentences in a batch; give this or `tokens`.
        tokens: the most tokens in a batch, padding included; a longer sentence is a batch of its own.
        seed: of the order.
        epoch: every epoch has another order.
        sources: where each sentence comes from; only "balanced" needs it.
        mixing: "all" has every sentence once; "balanced" draws as many from each source as the smallest has.
        by_length: False puts any sentences together.

    >>> lengths = np.array([5, 3, 9, 4, 3])
    >>> [rows.tolist() for rows in plan_batches(lengths, size=2, seed=0, epoch=0)]
    [[4, 1], [2], [3, 0]]
    """
    limit = _limit(size, tokens)
    random = np.random.Generator(np.random.Philox(key=np.array([seed, epoch], np.uint64)))
    if mixing == "balanced":
        if sources is None:
            raise TextspaceError("balanced mixing needs the source of each sentence")
        rows = _balanced(sources, random)
    else:
        rows = np.arange(len(lengths))
    random.shuffle(rows)
    at_once = limit if tokens is None or not len(rows) else max(1, int(tokens / lengths.mean()))
    window = _WINDOW_BATCHES * at_once
    bounds: list[int] = []
    for start in range(0, len(rows), window):
        part = rows[start : start + window]  # a view: sorted in place
        if by_length:
            part[:] = part[np.argsort(lengths[part], kind="stable")]
        bounds.extend(start + cut for cut in _cuts(lengths[part], limit, tokens is not None))
    bounds.append(len(rows))
    starts, ends = np.array(bounds[:-1], np.int64), np.array(bounds[1:], np.int64)
    order = random.permutation(len(starts))
    return Plan(rows, starts[order], ends[order])


def batches_by_length(lengths: NDArray[np.integer], *, size: int | None = None, tokens: int | None = None) -> Plan:
    """Every sentence once, the shortest first: for all that is not training. Arguments as in `plan_batches`.

    >>> lengths = np.array([5, 3, 9, 4])
    >>> [rows.tolist() for rows in batches_by_length(lengths, size=2)]
    [[1, 3], [0, 2]]
    >>> [rows.tolist() for rows in batches_by_length(lengths, tokens=8)]
    [[1, 3], [0], [2]]
    """
    limit = _limit(size, tokens)
    rows = np.argsort(lengths, kind="stable")
    bounds = np.array([*_cuts(lengths[rows], limit, tokens is not None), len(rows)], np.int64)
    return Plan(rows, bounds[:-1], bounds[1:])


def _limit(size: int | None, tokens: int | None) -> int:
    given = size if tokens is None else tokens
    if given is None or (size is not None and tokens is not None):
        raise TextspaceError("batches are made by a number of sentences or by a number of tokens: give one")
    return whole_number(given, 1, f"a batch cannot hold {given!r} {'sentences' if tokens is None else 'tokens'}")


def make_batch(split: EncodedSplit, rows: NDArray[np.integer]) -> Batch:
    """The sentences of a split at `rows`; a pretrained encoder's view has the ids of its own tokenizer."""
    view = pad(*split.gather(rows))
    read = split.gather_for_encoder(rows)
    encoder = view if read is None else _pad_as_given(*read)
    return Batch(encoder=encoder, decoder=view, rows_B=torch.from_numpy(rows.astype(np.int64)))


def batch_of(sequences: Sequence[Sequence[int]], rows: NDArray[np.integer] | None = None) -> Batch:
    """Sentences given as token ids without start and end; `rows` count from 0 unless given.

    >>> batch_of([[7, 8], [9]]).encoder.ids_BT.tolist()
    [[1, 7, 8, 3], [1, 9, 3, 0]]
    """
    counts_B = np.array([len(sequence) for sequence in sequences], np.int64)
    tokens = np.array([token for sequence in sequences for token in sequence], np.int64)
    rows_B = np.arange(len(sequences)) if rows is None else rows.astype(np.int64)
    view = pad(tokens, counts_B)
    return Batch(encoder=view, decoder=view, rows_B=torch.from_numpy(rows_B))


def pad(tokens: NDArray[np.integer], counts_B: NDArray[np.int64]) -> View:
    """Start, tokens, end and padding of sentences that lie end to end in `tokens`, `counts_B` tokens each."""
    longest = int(counts_B.max(initial=0))
    ids_BT = np.full((len(counts_B), longest + 2), PAD, np.int64)
    ids_BT[:, 0] = START
    positions_T = np.arange(longest + 2)
    ids_BT[(positions_T >= 1) & (positions_T <= counts_B[:, None])] = tokens
    ids_BT[np.arange(len(counts_B)), counts_B + 1] = END
    return View(torch.from_numpy(ids_BT), torch.from_numpy(counts_B + 2))


def _pad_as_given(tokens: NDArray[np.integer], counts_B: NDArray[np.int64]) -> View:
    """Sentences that have all their tokens already, with padding."""
    is_token_BT = np.arange(counts_B.max(initial=0)) < counts_B[:, None]
    ids_BT = np.zeros(is_token_BT.shape, np.int64)
    ids_BT[is_token_BT] = tokens
    return View(torch.from_numpy(ids_BT), torch.from_numpy(counts_B), own=False)


def _balanced(sources: NDArray[np.integer], random: np.random.Generator) -> NDArray[np.int64]:
    """As many rows of each source as the smallest source has, in order of source."""
    order = np.argsort(sources, kind="stable")
    counts = np.unique(sources, return_counts=True)[1]
    smallest = int(counts.min(initial=len(sources)))
    groups = np.split(order, np.cumsum(counts)[:-1])
    return np.concatenate([random.choice(group, smallest, replace=False) for group in groups])


def _cuts(lengths: NDArray[np.integer], limit: int, by_tokens: bool) -> Sequence[int]:
    """Where batches start among some sentences."""
    return _token_cuts(lengths, limit) if by_tokens else range(0, len(lengths), limit)


def _token_cuts(lengths: NDArray[np.integer], tokens: int) -> list[int]:
    """Where batches of at most `tokens` tokens start among ascending `lengths`."""
    starts = []
    start = 0
    while start < len(lengths):
        starts.append(start)
        most = max(1, tokens // int(lengths[start]))  # sentences: none is shorter than the first
        candidates = lengths[start : start + most].astype(np.int64)
        padded = candidates * np.arange(1, len(candidates) + 1)  # tokens of the batch ending there; ascending
        start += max(1, int(np.searchsorted(padded, tokens, side="right")))
    return starts
