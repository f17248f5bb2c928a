"""Plans of batches and padding."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from textspace.data.batching import Mixing, Plan, batch_of, batches_by_length, make_batch, pad, plan_batches
from textspace.data.encoded import EncodedSplit, encode_corpus
from textspace.data.tokenizers import END, START, UNKNOWN_ALIASES, train_tokenizer
from textspace.errors import TextspaceError
from textspace.types import Batch

LENGTHS = np.random.default_rng(0).integers(2, 60, 5_000)


def as_lists(plan: Plan) -> list[list[int]]:
    return [rows.tolist() for rows in plan]


def padded_tokens(lengths: np.ndarray, plan: Plan) -> int:
    return sum(int(lengths[rows].max()) * len(rows) for rows in plan)


# --- plans


@given(
    lengths=st.lists(st.integers(2, 50), max_size=60),
    by_tokens=st.booleans(),
    limit=st.integers(1, 120),
    seed=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 100),
    shuffle=st.booleans(),
)
def test_every_row_once_within_the_limit(
    lengths: list[int], by_tokens: bool, limit: int, seed: int, epoch: int, shuffle: bool
) -> None:
    sizes = np.array(lengths, np.int32)
    size, tokens = (None, limit) if by_tokens else (limit, None)
    how = {"size": size, "tokens": tokens}
    plan = plan_batches(sizes, **how, seed=seed, epoch=epoch) if shuffle else batches_by_length(sizes, **how)
    assert sorted(row for rows in plan for row in rows.tolist()) == list(range(len(lengths)))
    for rows in plan:
        assert len(rows) >= 1
        if by_tokens:
            assert len(rows) == 1 or sizes[rows].max() * len(rows) <= limit
        else:
            assert len(rows) <= limit
    if not by_tokens:
        assert len(plan) == -(-len(lengths) // limit)


def test_batches_of_any_lengths_are_as_mixed_as_the_corpus() -> None:
    by_length, any_length = (
        [LENGTHS[rows].std() for rows in plan_batches(LENGTHS, size=32, seed=0, epoch=0, by_length=sorted_)][:-1]
        for sorted_ in (True, False)
    )
    assert np.mean(by_length) < LENGTHS.std() / 4
    assert abs(np.mean(any_length) / LENGTHS.std() - 1) < 0.1
    plan = plan_batches(LENGTHS, size=32, seed=0, epoch=0, by_length=False)
    assert sorted(row for rows in plan for row in rows) == list(range(len(LENGTHS)))


@pytest.mark.parametrize("limit", [{"size": 32}, {"tokens": 1_000}])
def test_the_plan_is_a_pure_function_of_seed_and_epoch(limit: dict[str, int]) -> None:
    def plan(seed: int, epoch: int) -> list[list[int]]:
        return as_lists(plan_batches(LENGTHS, seed=seed, epoch=epoch, **limit))

    np.random.seed(1)
    first = plan(3, 4)
    np.random.seed(2)
    assert plan(3, 4) == first
    different = [first, plan(3, 5), plan(4, 4), plan(4, 3)]
    assert all(a != b for i, a in enumerate(different) for b in different[:i])
    # Not the same batches in another order, either.
    assert not {tuple(sorted(rows)) for rows in first} & {tuple(sorted(rows)) for rows in plan(3, 5)}


def test_the_order_is_the_same_on_every_machine() -> None:
    # Runs are repeated by seed and epoch alone, so another order here breaks every saved run's continuation.
    plan = plan_batches(np.full(7, 4), size=3, seed=1, epoch=2)
    assert as_lists(plan) == [[5, 2, 3], [1], [6, 0, 4]]


@pytest.mark.parametrize("limit", [{"size": 32}, {"tokens": 1_000}])
def test_little_of_a_batch_is_padding(limit: dict[str, int]) -> None:
    plan = plan_batches(LENGTHS, seed=0, epoch=0, **limit)
    assert padded_tokens(LENGTHS, plan) < 1.05 * LENGTHS.sum()


def test_token_budgets_are_used() -> None:
    plan = plan_batches(LENGTHS, tokens=1_000, seed=0, epoch=0)
    assert padded_tokens(LENGTHS, plan) / len(plan) > 900


def test_short_and_long_batches_are_mixed() -> None:
    means = [LENGTHS[rows].mean() for rows in plan_batches(LENGTHS, size=32, seed=0, epoch=0)]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.3


def test_a_sentence_over_the_budget_is_alone() -> None:
    plan = batches_by_length(np.array([2, 100, 3, 2]), tokens=10)
    assert as_lists(plan) == [[0, 3, 2], [1]]


def test_batches_by_length_are_sorted_and_stable() -> None:
    assert as_lists(batches_by_length(np.array([4, 2, 4, 3, 2]), size=2)) == [[1, 4], [3, 0], [2]]


def test_plans_index_like_sequences() -> None:
    plan = plan_batches(LENGTHS[:10], size=4, seed=0, epoch=0)
    assert len(plan) == 3
    assert plan[-1].tolist() == plan[2].tolist()
    with pytest.raises(IndexError):
        plan[3]


def test_balanced_draws_the_smallest_number_from_each_source_anew() -> None:
    sources = np.array([0] * 100 + [1] * 7 + [5] * 30, np.int16)
    lengths = np.full(len(sources), 4)

    def drawn(epoch: int) -> list[int]:
        plan = plan_batches(lengths, size=4, seed=0, epoch=epoch, sources=sources, mixing="balanced")
        return [row for rows in plan for row in rows.tolist()]

    rows = drawn(0)
    assert len(set(rows)) == len(rows) == 3 * 7
    assert np.bincount(sources[rows]).tolist() == [7, 7, 0, 0, 0, 7]
    assert sorted(drawn(0)) == sorted(rows) != sorted(drawn(1))
    seen = {row for epoch in range(60) for row in drawn(epoch)}
    assert len(seen) > 0.9 * len(sources)
    assert len({int(sources[row]) for row in rows[:4]}) > 1  # sources are mixed within batches


@pytest.mark.parametrize("mixing", ["all", "balanced"])
def test_no_sentences_no_batches(mixing: Mixing) -> None:
    nothing = np.zeros(0, np.int64)
    assert len(plan_batches(nothing, size=4, seed=0, epoch=0, sources=nothing, mixing=mixing)) == 0
    assert len(batches_by_length(nothing, tokens=4)) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give one"),
        ({"size": 2, "tokens": 2}, "give one"),
        ({"size": 0}, "0 sentences"),
        ({"tokens": -1}, "-1 tokens"),
        ({"size": 2, "mixing": "balanced"}, "source of each sentence"),
    ],
)
def test_impossible_plans_are_explained(arguments: dict, message: str) -> None:
    with pytest.raises(TextspaceError, match=message):
        plan_batches(LENGTHS, seed=0, epoch=0, **arguments)


# --- batches


class Record(NamedTuple):
    text: str
    label: str | None = None
    source: int = 0


@pytest.fixture
def split(tmp_path: Path) -> EncodedSplit:
    records = [Record(text) for text in ("a b c d", "b", "", "d c b a b", "a a")]
    config = SimpleNamespace(kind="words", size=None, min_count=1, unknown_aliases=UNKNOWN_ALIASES)
    tokenizer = train_tokenizer(config, [record.text for record in records])
    corpus = SimpleNamespace(splits={"train": records}, labels=(), report=SimpleNamespace(over_long=0))
    return encode_corpus(corpus, tokenizer, cache=tmp_path, max_tokens=None).splits["train"]


def same(one: Batch, other: Batch) -> bool:
    return (
        torch.equal(one.encoder.ids_BT, other.encoder.ids_BT)
        and torch.equal(one.encoder.lengths_B, other.encoder.lengths_B)
        and torch.equal(one.rows_B, other.rows_B)
    )


def test_a_batch_has_start_end_padding_and_mask() -> None:
    batch = batch_of([[7, 8, 9], [], [5]])
    view = batch.encoder
    assert view.ids_BT.tolist() == [[1, 7, 8, 9, 3], [1, 3, 0, 0, 0], [1, 5, 3, 0, 0]]
    assert view.lengths_B.tolist() == [5, 2, 3]
    assert view.mask_BT.tolist() == [[True] * 5, [True] * 2 + [False] * 3, [True] * 3 + [False] * 2]
    assert batch.decoder is view
    assert batch.rows_B.tolist() == [0, 1, 2]
    assert view.ids_BT.dtype == view.lengths_B.dtype == batch.rows_B.dtype == torch.int64


def test_cached_and_given_sentences_make_the_same_batch(split: EncodedSplit) -> None:
    for rows in ([0, 1, 2, 3, 4], [3, 0], [2], [4, 2, 1]):
        positions = np.array(rows)
        from_cache = make_batch(split, positions)
        given_ids = batch_of([split.ids(row).tolist() for row in rows], positions)
        assert same(from_cache, given_ids)
        assert from_cache.rows_B.tolist() == rows
        assert from_cache.decoder is from_cache.encoder


def test_a_batch_does_not_share_memory_with_the_plan(split: EncodedSplit) -> None:
    plan = plan_batches(split.lengths, size=5, seed=0, epoch=0)
    before = plan[0].tolist()
    make_batch(split, plan[0]).rows_B.zero_()
    assert plan[0].tolist() == before


@given(st.lists(st.lists(st.integers(4, 99), max_size=9), max_size=9))
def test_padding_undone_gives_the_sentences_back(sentences: list[list[int]]) -> None:
    view = batch_of(sentences).encoder
    assert view.ids_BT.shape == (len(sentences), max(map(len, sentences), default=0) + 2)
    assert [row[mask].tolist() for row, mask in zip(view.ids_BT, view.mask_BT, strict=True)] == [
        [START, *sentence, END] for sentence in sentences
    ]
    assert not view.ids_BT[~view.mask_BT].any()


def test_pad_refuses_counts_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="cannot assign"):
        pad(np.array([5, 6, 7]), np.array([1, 1]))
