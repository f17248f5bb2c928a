"""Words and lengths of classes against numbers by hand and known distributions."""

import math

import numpy as np
import pytest
from helpers import small
from small_subjects import subject_on, untrained

from textspace.errors import TextspaceError
from textspace.evaluate.measures import corpus_statistics as module
from textspace.evaluate.measures.corpus_statistics import (
    class_statistics,
    length_shares,
    mean_off_diagonal,
    pairwise_kl,
    word_counts,
)
from textspace.recipes import RECIPES
from textspace.space import Space


@pytest.fixture
def space(tiny) -> Space:
    return untrained(small(RECIPES["vae"]), tiny.tokenizer)


def test_kl_by_hand_in_both_directions() -> None:
    counts_CV = np.array([[3, 0, 1], [0, 0, 0]])  # with one added: 4/7, 1/7, 2/7 and thirds
    forth = 4 / 7 * math.log(12 / 7) + 1 / 7 * math.log(3 / 7) + 2 / 7 * math.log(6 / 7)
    back = (math.log(7 / 12) + math.log(7 / 3) + math.log(7 / 6)) / 3
    np.testing.assert_allclose(pairwise_kl(counts_CV), [[0, forth], [back, 0]], atol=1e-12)
    assert mean_off_diagonal(pairwise_kl(counts_CV)) == pytest.approx((forth + back) / 2)


def test_kl_of_many_words_approaches_that_of_the_distributions() -> None:
    chance = np.random.default_rng(0)
    share_CV = chance.dirichlet(np.ones(20), size=3)
    counts_CV = np.stack([chance.multinomial(10**6, share_V) for share_V in share_CV])
    truth = [[(p * np.log(p / q)).sum() for q in share_CV] for p in share_CV]
    np.testing.assert_allclose(pairwise_kl(counts_CV), truth, atol=0.01)


def test_words_are_what_stands_between_blanks() -> None:
    counts_NV = word_counts([["a", "A", "a"], [], ["don't", ".", "a"]]).toarray()
    assert counts_NV.sum(1).tolist() == [3, 0, 3]
    assert sorted(counts_NV.sum(0).tolist()) == [1, 1, 1, 3]


def test_bins_hold_every_sentence_once(monkeypatch) -> None:
    chance = np.random.default_rng(0)
    lengths = {"a": chance.integers(3, 200, size=500), "b": chance.integers(50, 90, size=70)}
    middles, shares = length_shares(lengths)
    assert len(middles) <= module.BINS
    assert [sum(share) for share in shares.values()] == pytest.approx([1, 1])
    for name, of in lengths.items():
        assert np.dot(middles, shares[name]) == pytest.approx(of.mean(), abs=2.5)
    monkeypatch.setattr(module, "BINS", 2)
    assert length_shares({"a": np.array([1, 2, 3, 4, 5])}) == ([2.0, 5.0], {"a": [0.6, 0.4]})


def test_the_measure_by_hand(space) -> None:
    texts = ["anna anna anna cats", "bob", "anna", "bob bob cats"]
    found = class_statistics(subject_on(space, texts, labels={"test": ["x", "y", "x", "y"]}))
    truth_CC = pairwise_kl(np.array([[4, 0, 1], [0, 3, 1]]))
    assert found.estimates["class_kl"].value == pytest.approx(mean_off_diagonal(truth_CC))
    assert "KL(row || column)" in found.estimates["class_kl"].name
    assert found.estimates["class_kl"].settings["vocabulary"] == 3
    table = found.tables["class_kl"]
    assert table.columns == ("class", "x", "y")
    assert [row[0] for row in table.rows] == ["x", "y"]
    np.testing.assert_allclose([row[1:] for row in table.rows], truth_CC, atol=1e-12)
    assert found.pictures["class_kl"].series["x"][1] == pytest.approx(truth_CC[0, 1])
    assert found.tables["class_lengths"].rows == (("x", 2, 2.5, 1.5, 1, 4), ("y", 2, 2.0, 1.0, 1, 3))
    assert found.pictures["class_lengths"].x == [1, 2, 3, 4]
    assert found.pictures["class_lengths"].series == {"x": [0.5, 0, 0, 0.5], "y": [0.5, 0, 0.5, 0]}
    assert list(found.pictures["split_lengths"].series) == ["test"]


def two_topics(count: int, seed: int, mixed: bool) -> tuple[list[str], list[str]]:
    """Sentences of two classes with words of their own, or with the same words."""
    chance = np.random.default_rng(seed)
    labels = [str(label) for label in chance.integers(0, 2, size=count)]
    words = {"0": ["anna", "bob", "carl"], "1": ["bob", "carl", "dora"]}
    texts = [" ".join(chance.choice(words["0" if mixed else label], 5)) for label in labels]
    return texts, labels


def test_classes_without_words_of_their_own_are_at_the_level_of_chance(space) -> None:
    values = {}
    for mixed in (False, True):
        texts, labels = two_topics(300, 0, mixed)
        found = class_statistics(subject_on(space, texts, labels={"test": labels})).estimates
        values[mixed] = found["class_kl"].value, found["class_kl_shuffled"].value
        assert found["class_kl_shuffled"].settings["error"] == "spread over 3 shuffles"
        assert found["class_kl"].settings["error"].endswith("too large than too small where classes do not differ")
    assert values[False][0] > 1 > 0.05 > values[False][1]
    assert values[True][0] < 0.02


def test_the_error_is_the_spread_over_other_sentences(space) -> None:
    found = []
    for seed in range(40):
        texts, labels = two_topics(300, seed, False)
        found.append(class_statistics(subject_on(space, texts, labels={"test": labels})).estimates["class_kl"])
    spread = np.std([one.value for one in found])
    assert np.mean([one.stderr for one in found]) == pytest.approx(spread, rel=0.35)


def test_the_training_split_is_read_where_there_is_one(space) -> None:
    texts = {"train": ["anna", "bob"], "test": ["anna anna", "dora"]}
    labels = {"train": ["x", "y"], "test": ["x", "z"]}
    found = class_statistics(subject_on(space, texts, labels=labels))
    assert found.estimates["class_kl"].settings["split"] == "train"
    assert found.tables["class_kl"].columns == ("class", "x", "y")
    assert [row[:3] for row in found.tables["split_lengths"].rows] == [("train", 2, 1.0), ("test", 2, 1.5)]


def test_classes_are_needed(space) -> None:
    with pytest.raises(TextspaceError, match="the test split has no labels"):
        class_statistics(subject_on(space, ["anna", "bob"]))
    with pytest.raises(TextspaceError, match="all sentences are of the class 'x'"):
        class_statistics(subject_on(space, ["anna", "bob"], labels={"test": ["x", "x"]}))
