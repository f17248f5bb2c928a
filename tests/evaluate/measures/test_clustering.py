"""Clusters as classes, against brute force and where the answer is known."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from helpers import tiny_sentences
from small_subjects import subject_on, untrained

from textspace.errors import TextspaceError
from textspace.evaluate.measure import Effort, Subject
from textspace.evaluate.measures import clustering
from textspace.evaluate.measures.clustering import (
    chance_rate,
    clusters,
    fit_mixtures,
    most_probable_names,
    one_to_one_names,
)
from textspace.space import Space

SIZES = {"train": 240, "valid": 90, "test": 120}


@pytest.fixture
def chance() -> np.random.Generator:
    return np.random.default_rng(5)


@pytest.fixture
def space(small_vae, tiny) -> Space:
    return untrained(small_vae, tiny.tokenizer)


def subject_with(space: Space, labels: Any, codes: Any, **more: Any) -> Subject:
    """Sentences whose labels and codes are made up: `labels(n)` gives numbers, `codes(numbers)` the means."""
    numbers = {name: labels(size) for name, size in SIZES.items()}
    texts = {name: tiny_sentences(size) for name, size in SIZES.items()}
    named = {name: [f"class {number}" for number in own] for name, own in numbers.items()}
    subject = subject_on(space, texts, named, **{"effort": Effort(repeats=3)} | more)
    for name, sentences in subject.splits.items():
        means_NZ = codes(numbers[name])
        sentences.__dict__["_parameters"] = means_NZ, np.ones_like(means_NZ)
    return subject


CORNERS = 10 * np.array([[0.0, 0], [0, 1], [1, 0], [1, 1]])


# Naming components


def test_names_are_those_of_the_best_permutation(chance) -> None:
    for _ in range(20):
        component_N, classes_N = chance.integers(4, size=(2, 30))
        names_C = one_to_one_names(component_N, classes_N, 4, 4)
        best = max((np.array(p)[component_N] == classes_N).sum() for p in permutations(range(4)))
        assert sorted(names_C) == [0, 1, 2, 3]
        assert (names_C[component_N] == classes_N).sum() == best


def test_a_component_without_a_class_and_a_class_without_a_component_are_wrong() -> None:
    more_components = one_to_one_names(np.array([0, 0, 1, 2]), np.array([0, 0, 1, 1]), 3, 2)
    assert more_components[0] == 0
    assert sorted(more_components) == [-1, 0, 1]
    assert one_to_one_names(np.array([0, 1, 1]), np.array([2, 1, -1]), 2, 3).tolist() == [2, 1]


@pytest.mark.parametrize("unseen", [0, 1, 2])
def test_a_component_is_named_after_a_class_that_naming_never_saw(unseen: int) -> None:
    seen_N = np.array([each for each in [0, 1, 2, 0, 1, 2] if each != unseen])
    names_C = one_to_one_names(seen_N, seen_N, 3, 3)
    assert names_C.tolist() == [0, 1, 2]


def test_test_sentences_of_classes_that_training_lacks_are_wrong(space, chance) -> None:
    """Though some clusters are named after validation sentences of those."""

    def labels(size: int) -> np.ndarray:
        return np.arange(size) % (2 if size == SIZES["train"] else 3)

    def codes(numbers: np.ndarray) -> np.ndarray:
        spread = chance.normal(size=(len(numbers), 2))
        if len(numbers) == SIZES["train"]:  # some of which lie where the third class will
            numbers = np.where(np.arange(len(numbers)) < 60, 2, numbers)
        return CORNERS[numbers] + spread

    found = clusters(subject_with(space, labels, codes))
    assert found.estimates["most_probable"].value == pytest.approx(200 / 3, abs=2)
    assert np.sum(found.per_sentence["most_probable"][2::3]) == 0


def test_validation_sentences_of_classes_that_training_lacks_name_nothing(space, chance) -> None:
    subject = subject_with(
        space,
        lambda size: np.arange(size) % 2 + 2 * (size == SIZES["valid"]),
        lambda numbers: chance.normal(size=(len(numbers), 2)),
    )
    with pytest.raises(TextspaceError, match="no validation sentence has a label that training knows: cut the text"):
        clusters(subject)


def test_a_component_is_named_by_its_most_probable_sentence() -> None:
    responsibility_NC = np.array([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [0.2, 0.8, 0.0], [0.45, 0.05, 0.5]])
    assert most_probable_names(responsibility_NC, np.array([4, 1, 1, 2])).tolist() == [4, 1, 1]


def test_the_rate_without_relation_is_the_mean_over_shuffled_classes(chance) -> None:
    names_C, component_N = np.array([1, 0, 1]), chance.integers(3, size=60)
    classes_N = chance.choice(3, size=60, p=[0.6, 0.3, 0.1])
    shuffled = [(names_C[component_N] == chance.permutation(classes_N)).mean() for _ in range(2000)]
    assert chance_rate(names_C, component_N, classes_N) == pytest.approx(np.mean(shuffled), abs=0.01)


# Mixtures


def test_mixtures_come_with_the_best_training_likelihood_first(chance) -> None:
    codes_NZ = np.concatenate([chance.normal(at, 0.3, size=(60, 2)) for at in ([0, 0], [4, 0], [0, 4], [9, 9])])
    found = fit_mixtures(codes_NZ, 4, runs=6, seed=1)
    scores = [mixture.score(codes_NZ) for mixture in found]
    assert scores == sorted(scores, reverse=True)
    np.testing.assert_array_equal(found[0].means_, fit_mixtures(codes_NZ, 4, runs=6, seed=1)[0].means_)


def test_too_few_sentences_for_so_many_clusters_say_so(chance) -> None:
    with pytest.raises(TextspaceError, match="5 training sentences cannot make 6 clusters"):
        fit_mixtures(chance.normal(size=(5, 2)), 6, runs=1, seed=0)


# The measure


def test_separate_classes_are_found_whatever_they_are_called(space, chance) -> None:
    def blobs(numbers: np.ndarray) -> np.ndarray:
        return CORNERS[numbers] + chance.normal(size=(len(numbers), 2))

    subject = subject_with(space, lambda n: chance.integers(3, size=n), blobs)
    found = clusters(subject)
    assert found.estimates["one_to_one"].value == 100
    assert found.estimates["most_probable"].value == 100
    assert found.per_sentence["one_to_one"] == [100.0] * 120
    renamed = {"class 0": "x", "class 1": "class 0", "class 2": "b"}
    for sentences in subject.splits.values():
        assert sentences.labels is not None
        sentences.labels = [renamed[label] for label in sentences.labels]
    again = clusters(subject)
    assert {key: e.value for key, e in again.estimates.items()} == {key: e.value for key, e in found.estimates.items()}


def test_of_many_training_sentences_some_are_enough(space, chance, monkeypatch) -> None:
    monkeypatch.setattr(clustering, "FITTED", 60)
    subject = subject_with(
        space, lambda n: chance.integers(3, size=n), lambda k: CORNERS[k] + chance.normal(size=(len(k), 2))
    )
    found = clusters(subject).estimates["one_to_one"]
    assert len(subject.splits["train"]) > 60
    assert found.settings["fitted_to"] == 60
    assert found.value == 100


def test_the_accuracy_of_imperfect_clusters_does_not_depend_on_the_names_of_classes(space, chance) -> None:
    subject = subject_with(
        space,
        lambda n: chance.integers(3, size=n),
        lambda numbers: 0.2 * CORNERS[numbers] + chance.normal(size=(len(numbers), 2)),
    )
    values = []
    for names in ("xyz", "yxz", "zxy"):
        for sentences in subject.splits.values():
            assert sentences.labels is not None
            codes = dict(zip(sorted(set(sentences.labels)), names, strict=True))
            sentences.labels = [codes[label] for label in sentences.labels]
        values.append([e.value for e in clusters(subject).estimates.values()])
    assert 50 < values[0][0] < 95
    assert all(own == values[0] for own in values)


def test_classes_at_random_are_found_no_better_than_by_the_majority(space, chance) -> None:
    def noise(numbers: np.ndarray) -> np.ndarray:
        return chance.normal(size=(len(numbers), 3))

    for shares in ([1 / 3, 1 / 3, 1 / 3], [0.7, 0.2, 0.1]):
        subject = subject_with(space, lambda n, shares=shares: chance.choice(3, size=n, p=shares), noise)
        found = clusters(subject).estimates
        for rule in ("one_to_one", "most_probable"):
            error = 100 * np.sqrt(0.25 / 120)
            assert found[rule].value == pytest.approx(found[rule].settings["without_relation"], abs=3 * error)
            assert found[rule].value < found["majority"].value + 3 * error
        assert found["one_to_one_mean"].settings["highest"] <= found["majority"].value + 3 * error


def test_more_components_than_classes_find_classes_of_several_clusters(space, chance) -> None:
    def corners(numbers: np.ndarray) -> np.ndarray:
        """Class 0 in two opposite corners, class 1 in the other two."""
        which = chance.integers(2, size=len(numbers))
        at = np.where(numbers == 0, 3 * which, 1 + which)
        return CORNERS[at] + chance.normal(size=(len(numbers), 2))

    found = clusters(subject_with(space, lambda n: chance.integers(2, size=n), corners)).estimates
    assert found["most_probable"].value == 100
    assert found["one_to_one"].value < 70
    assert "10 Gaussian clusters" in found["most_probable"].name


def test_a_collapsed_space_is_at_the_majority(space, chance) -> None:
    with torch.no_grad():
        space.model.posterior.mean.weight.zero_()
    texts = {name: tiny_sentences(size) for name, size in SIZES.items()}
    labels = {name: ["cats" if "cats" in text else "none" for text in own] for name, own in texts.items()}
    found = clusters(subject_on(space, texts, labels)).estimates
    assert found["one_to_one"].value == found["majority"].value
    assert found["one_to_one_mean"].settings["spread"] == 0
