"""Classifiers without codes: each reads what only it can read, and its size is counted."""

from __future__ import annotations

import random

import numpy as np
import pytest
from helpers import small, tiny_sentences
from small_subjects import subject_on, untrained

from textspace.config import RecurrentEncoder as RecurrentEncoderConfig
from textspace.data.encoded import EncodedSplit
from textspace.encoders import RecurrentEncoder
from textspace.evaluate.measure import Effort, Subject
from textspace.evaluate.measures.baselines import (
    bag_of_words_predictions,
    end_to_end_baselines,
    equal_size,
    length_predictions,
    probe_baselines,
    recurrent_predictions,
)
from textspace.recipes import RECIPES
from textspace.space import Space


@pytest.fixture
def space(small_vae, tiny) -> Space:
    return untrained(small_vae, tiny.tokenizer)


def labelled_subject(space: Space, repeats: int = 2) -> Subject:
    texts = {"train": tiny_sentences(200), "valid": tiny_sentences(260)[200:], "test": tiny_sentences(360)[260:]}
    labels = {name: ["cats" if "cats" in text else "none" for text in own] for name, own in texts.items()}
    return subject_on(space, texts, labels, effort=Effort(repeats=repeats, language_model_epochs=2))


def test_words_tell_a_class_of_words_and_length_a_class_of_length() -> None:
    texts = tiny_sentences(400)
    train, test = texts[:300], texts[300:]
    words_N = np.array([len(text.split()) for text in texts])
    by_word_N = np.array([int(text.startswith("anna")) for text in texts])
    by_length_N = np.array([int(count % 3 == 0) for count in words_N])

    def of_words(classes_N: np.ndarray) -> float:
        return float((bag_of_words_predictions(train, classes_N[:300], test, 0) == classes_N[300:]).mean())

    def of_length(classes_N: np.ndarray) -> float:
        found = length_predictions(words_N[:300], classes_N[:300], words_N[300:], 0)
        return float((found == classes_N[300:]).mean())

    assert of_words(by_word_N) == 1
    assert of_length(by_length_N) == 1
    assert of_length(by_word_N) == pytest.approx(max(by_word_N[300:].mean(), 1 - by_word_N[300:].mean()), abs=0.05)


def test_words_are_what_stands_between_blanks() -> None:
    train, classes_N = ["n't ok", "ok .", "n't .", ". ."] * 5, np.array([1, 0, 1, 0] * 5)
    assert bag_of_words_predictions(train, classes_N, ["n't", "N'T", "zzz"], 0).tolist()[0] == 1
    unseen = bag_of_words_predictions(train, classes_N, ["N'T", "zzz"], 0)
    assert unseen[0] == unseen[1]


def test_lengths_beyond_those_of_training_fall_into_the_outer_bins() -> None:
    words_N = np.repeat([3, 9], 20)
    found = length_predictions(words_N, (words_N > 5).astype(int), np.array([0, 1, 100]), 0)
    assert found.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    "config",
    [
        RecurrentEncoderConfig(),
        RecurrentEncoderConfig(kind="gru", hidden=512, embedding=128),
        RecurrentEncoderConfig(layers=2, bidirectional=True, hidden=64, embedding=32),
    ],
)
def test_the_bidirectional_lstm_is_about_as_large_as_the_encoder(config: RecurrentEncoderConfig) -> None:
    def size(of: RecurrentEncoderConfig) -> int:
        return sum(parameter.numel() for parameter in RecurrentEncoder(of, 5).recurrent.parameters())

    ours = equal_size(config)
    assert (ours.kind, ours.bidirectional, ours.layers) == ("lstm", True, 1)
    assert size(ours) == pytest.approx(size(config), rel=0.02)


@pytest.mark.parametrize(
    "config",
    [
        RecurrentEncoderConfig(kind="gru", embedding=8, hidden=16),
        RecurrentEncoderConfig(kind="lstm", embedding=8, hidden=12, bidirectional=True),
    ],
)
def test_recurrent_classifiers_read_the_order_of_words(tiny, config) -> None:
    chance = random.Random(1)
    order_N = np.array([chance.randint(0, 1) for _ in range(420)])
    subjects = [chance.choice(["anna", "bob", "carl"]) for _ in order_N]
    texts = [f"{who} sees {'cats dogs' if o else 'dogs cats'}" for who, o in zip(subjects, order_N, strict=True)]
    splits = [EncodedSplit.of(texts[a:b], tiny.tokenizer, None) for a, b in ((0, 300), (300, 360), (360, 420))]
    data = (splits[0], order_N[:300]), (splits[1], order_N[300:360]), splits[2]
    predicted, parameters = recurrent_predictions(config, len(tiny.tokenizer), *data, hidden=16, epochs=40, seed=0)
    assert (predicted == order_N[360:]).mean() == 1
    assert (bag_of_words_predictions(texts[:300], order_N[:300], texts[360:], 0) == order_N[360:]).mean() < 0.75
    directions, gates = (2, 4) if config.bidirectional else (1, 3)
    recurrent = directions * gates * config.hidden * (8 + config.hidden + 2)
    head = (directions * config.hidden + 1) * 16 + 17 * 16 + 17 * 2
    assert parameters == len(tiny.tokenizer) * 8 + recurrent + head


def test_the_same_seed_trains_the_same_classifier(tiny) -> None:
    texts = tiny_sentences(100)
    split, classes_N = EncodedSplit.of(texts, tiny.tokenizer, None), np.array(["cats" in text for text in texts]) * 1
    config = RecurrentEncoderConfig(kind="gru", embedding=8, hidden=8)
    arguments = config, len(tiny.tokenizer), (split, classes_N), (split, classes_N), split
    first, again, other = (recurrent_predictions(*arguments, hidden=8, epochs=20, seed=seed)[0] for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_baselines_stand_side_by_side(space) -> None:
    found = probe_baselines(labelled_subject(space))
    assert found.estimates["bag_of_words"].value == 100
    assert found.estimates["bag_of_words"].value > found.estimates["length"].value
    assert [row[1] for row in found.tables["probe_baselines"].rows] == [e.value for e in found.estimates.values()]
    assert np.mean(found.per_sentence["length"]) == pytest.approx(found.estimates["length"].value)


def test_end_to_end_baselines_name_their_size_and_their_spread(space) -> None:
    subject = labelled_subject(space)
    found = end_to_end_baselines(subject)
    for key in ("bi_lstm", "simple_classifier"):
        estimate = found.estimates[key]
        assert f"{estimate.settings['parameters']:,} parameters" in estimate.name
        assert estimate.settings["spread"] >= 0
        assert np.mean(found.per_sentence[key]) == pytest.approx(estimate.value)
    assert found.estimates["simple_classifier"].settings["units"] == 16


def test_a_language_model_has_baselines_too(tiny) -> None:
    space = untrained(small(RECIPES["lstm-lm"]), tiny.tokenizer)
    assert probe_baselines(labelled_subject(space)).estimates["bag_of_words"].value == 100
