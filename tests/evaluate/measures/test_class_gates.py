"""Class-averaged gates on gates that we plant: distances by hand, chance by its formula, ranks by brute force."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pytest
from helpers import tiny_sentences
from scipy.stats import spearmanr
from small_subjects import gated, subject_on, untrained

from textspace.errors import TextspaceError
from textspace.evaluate.measure import Subject
from textspace.evaluate.measures import class_gates as module
from textspace.evaluate.measures.class_gates import class_gates, class_vectors, distances, mantel, shuffled_labels
from textspace.evaluate.measures.corpus_statistics import mean_off_diagonal, pairwise_kl
from textspace.evaluate.statistics import jackknife_error
from textspace.space import Space


@pytest.fixture(scope="module")
def space(tiny) -> Space:
    return gated(tiny.tokenizer)


@pytest.fixture
def chance() -> np.random.Generator:
    return np.random.default_rng(11)


def planted(share_CZ: np.ndarray, each: int, chance: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Which dimensions are off in sentences of classes that switch them off so often, and the classes."""
    label_N = np.repeat(np.arange(len(share_CZ)), each)
    return (chance.random((len(label_N), share_CZ.shape[1])) < share_CZ[label_N]).astype(np.float32), label_N


# The mathematics


def test_vectors_and_distances_by_hand() -> None:
    off_NZ = np.array([[1, 0, 1, 1], [0, 0, 1, 1], [0, 1, 0, 0]], np.float32)
    vectors_CZ = class_vectors(off_NZ, np.array([0, 0, 1]), 2)
    assert vectors_CZ.tolist() == [[0.5, 0, 1, 1], [0, 1, 0, 0]]
    assert distances(vectors_CZ)[0, 1] == pytest.approx(math.sqrt((0.25 + 1 + 1 + 1) / 4))
    assert distances(np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])).tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]


def test_chance_is_what_its_formula_says(chance) -> None:
    """Of random classes of n and m sentences the squared distance is p (1 - p) (1/n + 1/m), if there are many."""
    share = chance.uniform(0.1, 0.9, size=400)
    off_NZ, _ = planted(share[None], 500, chance)
    label_N = (np.arange(500) < 100).astype(int)
    found = shuffled_labels(off_NZ, label_N, 2, shuffles=40, seed=0)
    p_Z = off_NZ.mean(0)
    exact = math.sqrt((p_Z * (1 - p_Z)).mean() * (1 / 100 + 1 / 400) * 500 / 499)
    assert found.mean == pytest.approx(exact, rel=0.01)


def test_classes_without_gates_of_their_own_are_at_the_level_of_chance(chance) -> None:
    share_CZ = np.tile(chance.uniform(size=6), (3, 1))
    found = [
        shuffled_labels(*planted(share_CZ, 40, chance), 3, shuffles=99, seed=seed)  # 10 of 100 is then 10 percent
        for seed in range(100)
    ]
    p = np.array([one.p for one in found])
    assert p.min() >= 1 / 100
    assert np.mean(p <= 0.1) == pytest.approx(0.1, abs=0.09)
    assert p.mean() == pytest.approx(0.5, abs=0.12)
    assert np.mean([one.z for one in found]) == pytest.approx(0, abs=0.35)


def test_the_error_of_distances_of_classes_that_do_not_differ_is_on_the_safe_side(chance) -> None:
    share_CZ = np.tile(chance.uniform(size=6), (3, 1))
    drawn = [planted(share_CZ, 40, chance) for _ in range(150)]

    def found(off_NZ: np.ndarray, label_N: np.ndarray) -> float:
        return mean_off_diagonal(distances(class_vectors(off_NZ, label_N, 3)))

    errors = [
        jackknife_error(lambda rows, off_NZ=off_NZ, label_N=label_N: found(off_NZ[rows], label_N[rows]), 120, 20)
        for off_NZ, label_N in drawn
    ]
    ratio = math.sqrt(np.mean(np.square(errors))) / np.std([found(*each) for each in drawn])
    assert 1 < ratio < 2


def test_classes_with_gates_of_their_own_are_far_beyond_it(chance) -> None:
    share_CZ = np.array([[0.9, 0.1, 0.5], [0.1, 0.9, 0.5]])
    found = shuffled_labels(*planted(share_CZ, 2_000, chance), 2, shuffles=99, seed=0)
    assert found.value == pytest.approx(math.sqrt(2 * 0.64 / 3), abs=0.02)
    assert found.p == 1 / 100
    assert found.z > 20
    alike = shuffled_labels(np.ones((10, 3), np.float32), np.arange(10) % 2, 2, shuffles=9, seed=0)
    assert (alike.value, alike.z, alike.p) == (0, 0, 1)


def symmetric(chance: np.random.Generator, size: int) -> np.ndarray:
    matrix = chance.normal(size=(size, size))
    return matrix + matrix.T


def test_the_rank_correlation_and_its_chance_by_brute_force(chance) -> None:
    one_CC, other_CC = symmetric(chance, 5), symmetric(chance, 5)
    other_CC[0, 1] = other_CC[1, 0] = other_CC[2, 3] = other_CC[3, 2]  # a tie
    above = np.triu_indices(5, 1)
    exact = spearmanr(one_CC[above], other_CC[above]).statistic
    every = [spearmanr(one_CC[above], other_CC[np.ix_(o, o)][above]).statistic for o in permutations(range(5))]
    found = mantel(one_CC, other_CC, orders=120, seed=0)
    assert found is not None
    assert found.value == pytest.approx(exact)
    assert found.p == pytest.approx(np.mean(np.abs(every) >= abs(exact) - 1e-12))
    assert found.orders == 120
    drawn = mantel(one_CC, other_CC, orders=119, seed=0)  # fewer than there are: random ones
    assert drawn is not None
    assert drawn.p == pytest.approx(found.p, abs=0.15)


def test_equal_matrices_are_ranked_alike(chance) -> None:
    one_CC = symmetric(chance, 8)
    found = mantel(one_CC, np.exp(one_CC), orders=999, seed=0)
    assert found is not None
    assert (found.value, found.p, found.orders) == (pytest.approx(1), 1 / 1000, 999)
    assert found.stderr == pytest.approx(0, abs=1e-9)
    reversed_ = mantel(one_CC, -one_CC, orders=999, seed=0)
    assert reversed_ is not None
    assert (reversed_.value, reversed_.p) == (pytest.approx(-1), 1 / 1000)


def test_two_classes_or_equal_values_cannot_be_ranked(chance) -> None:
    assert mantel(symmetric(chance, 2), symmetric(chance, 2), orders=9, seed=0) is None
    assert mantel(np.ones((4, 4)), symmetric(chance, 4), orders=9, seed=0) is None


def test_the_chance_of_unrelated_matrices_is_even(chance) -> None:
    found = [mantel(symmetric(chance, 5), symmetric(chance, 5), orders=120, seed=0) for _ in range(120)]
    p = np.array([one.p for one in found if one is not None])
    assert p.mean() == pytest.approx(0.5, abs=0.1)
    assert np.mean(p <= 0.2) == pytest.approx(0.2, abs=0.11)


# The measure


def with_gates(space: Space, off_NZ: np.ndarray, label_N: np.ndarray, texts: Sequence[str] | None = None) -> Subject:
    names = [f"class {number}" for number in label_N]
    subject = subject_on(space, list(texts or tiny_sentences(len(names))), {"test": names})
    subject.test.__dict__["gates_NZ"] = 0.9 - 0.7 * off_NZ  # on with 0.9 or 0.2
    return subject


def test_the_picture_has_32_neighbours_and_the_number_all(space: Space, chance, monkeypatch) -> None:
    monkeypatch.setattr(module, "SHUFFLES", 19)
    share_CZ = chance.uniform(size=(3, 40))
    off_NZ, label_N = planted(share_CZ, 60, chance)
    found = class_gates(with_gates(space, off_NZ, label_N))
    vectors_CZ = np.stack([off_NZ[label_N == number].mean(0) for number in range(3)])
    pairs = [np.linalg.norm(vectors_CZ[i] - vectors_CZ[j]) / math.sqrt(40) for i, j in ((0, 1), (0, 2), (1, 2))]
    assert found.estimates["gate_distance"].value == pytest.approx(np.mean(pairs))
    beyond = found.estimates["gate_distance_beyond_chance"]
    assert beyond.value == pytest.approx(np.mean(pairs) - found.estimates["gate_distance_shuffled"].value)
    assert found.estimates["gate_distance_p"].value == 1 / 20
    picture = found.pictures["class_gates"]
    assert "dimensions 1 to 32 of 40" in picture.title
    assert (len(picture.ticks or []), list(picture.series)) == (32, ["class 0", "class 1", "class 2"])
    np.testing.assert_allclose(picture.series["class 1"], vectors_CZ[1, :32])
    whole = class_gates(with_gates(space, off_NZ[:, :32], label_N))
    assert "dimensions 1 to" not in whole.pictures["class_gates"].title


def test_a_gate_of_exactly_one_half_is_off_as_in_the_paper(space: Space, monkeypatch) -> None:
    monkeypatch.setattr(module, "SHUFFLES", 9)
    subject = with_gates(space, np.zeros((4, 1)), np.array([0, 0, 1, 1]))
    subject.test.__dict__["gates_NZ"] = np.array([[0.5], [0.5], [0.51], [0.51]])
    assert class_gates(subject).pictures["class_gates"].series == {"class 0": [1.0], "class 1": [0.0]}


def test_the_error_is_the_spread_over_other_sentences(space: Space, chance, monkeypatch) -> None:
    monkeypatch.setattr(module, "SHUFFLES", 2)
    share_CZ = chance.uniform(size=(3, 12))
    found = [
        class_gates(with_gates(space, *planted(share_CZ, 100, chance))).estimates["gate_distance"] for _ in range(60)
    ]
    spread = np.std([one.value for one in found])
    assert np.mean([one.stderr for one in found if one.stderr is not None]) == pytest.approx(spread, rel=0.3)


WORDS = (("anna", "bob"), ("anna", "carl"), ("anna", "dora"), ("cats", "dogs"), ("cats", "birds"))


def test_gates_that_follow_words_are_related_to_them(space: Space, monkeypatch) -> None:
    """Classes of the first words share gates, and so do those of the last."""
    monkeypatch.setattr(module, "SHUFFLES", 9)
    texts = [" ".join(words) for words in WORDS for _ in range(20)]
    label_N = np.repeat(np.arange(5), 20)
    far_CZ = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]], np.float32)
    found = class_gates(with_gates(space, far_CZ[label_N], label_N, texts))
    counts_CV = np.zeros((5, 7))
    vocabulary = sorted({word for words in WORDS for word in words})
    for number, words in enumerate(WORDS):
        for word in words:
            counts_CV[number, vocabulary.index(word)] = 20
    kl_CC = pairwise_kl(counts_CV[:, : len(vocabulary)])
    above = np.triu_indices(5, 1)
    exact = spearmanr(distances(far_CZ.astype(float))[above], ((kl_CC + kl_CC.T) / 2)[above]).statistic
    related = found.estimates["gates_and_words"]
    assert related.value == pytest.approx(exact)
    assert related.settings["pairs"] == 10
    assert "mean of KL(row || column) and KL(column || row), test split" in related.name
    assert found.estimates["gates_and_words_p"].settings["orders"] == 120
    assert len(found.pictures["gates_and_words"].series["pair of classes"]) == 20


def test_classes_that_training_does_not_have_are_left_out_of_the_relation(space: Space, monkeypatch) -> None:
    monkeypatch.setattr(module, "SHUFFLES", 9)
    texts = {"train": ["anna", "bob", "carl", "dora"], "test": ["anna", "bob", "carl", "dora", "cats"]}
    labels = {"train": ["a", "b", "c", "z"], "test": ["a", "b", "c", "d", "e"]}
    subject = subject_on(space, texts, labels)
    subject.test.__dict__["gates_NZ"] = np.array([[0.1, 0.1], [0.1, 0.9], [0.9, 0.9], [0.1, 0.1], [0.9, 0.1]])
    found = class_gates(subject)
    assert "gates_and_words" not in found.estimates  # words of all three differ alike, so nothing can be ranked
    assert len(found.pictures["gates_and_words"].series["pair of classes"]) == 6
    texts["train"][1] = "anna bob"
    subject = subject_on(space, texts, labels)
    subject.test.__dict__["gates_NZ"] = np.array([[0.1, 0.1], [0.1, 0.9], [0.9, 0.9], [0.1, 0.1], [0.9, 0.1]])
    assert class_gates(subject).estimates["gates_and_words"].settings["classes"] == 3
    two = class_gates(subject_on(space, ["anna", "bob"], {"test": ["a", "b"]}))
    assert "gates_and_words" not in two.estimates | two.pictures


def test_gates_and_classes_are_needed(space: Space, tiny, small_vae) -> None:
    with pytest.raises(TextspaceError, match="the space has no gates"):
        class_gates(subject_on(untrained(small_vae, tiny.tokenizer), ["anna"], {"test": ["a"]}))
    with pytest.raises(TextspaceError, match="the test split has no labels"):
        class_gates(subject_on(space, ["anna", "bob"]))
    with pytest.raises(TextspaceError, match="all sentences are of the class 'a'"):
        class_gates(subject_on(space, ["anna", "bob"], {"test": ["a", "a"]}))
