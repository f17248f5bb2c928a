"""Encoders: what word dropout hides from them, and from nobody else; and in which order they read."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import small
from torch import Tensor

from textspace.data.batching import batch_of, make_batch
from textspace.data.tokenizers import END, PAD, START, UNKNOWN
from textspace.model import Model
from textspace.noise import Noise
from textspace.recipes import RECIPES
from textspace.types import Batch, View

DROP = 0.3


def model_of(tiny, name: str = "vae", **more: object) -> Model:
    recipe = small(RECIPES[name]).but({"encoder.word_dropout": DROP, **more})
    return Model(recipe, len(tiny.tokenizer)).train()


@pytest.fixture
def batch(tiny) -> Batch:
    return make_batch(tiny.encoded.splits["train"], np.arange(300))


def ids_read(module: torch.nn.Module, model: Model, batch: Batch, step: int = 0) -> Tensor:
    read: list[Tensor] = []
    hook = module.embedding.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    model(batch, Noise(3, step, batch.rows_B))
    hook.remove()
    return read[0]


@pytest.mark.parametrize("name", ["vae", "vat"])
def test_some_words_become_unknown_and_specials_stay(tiny, batch: Batch, name: str) -> None:
    model, given_BT = model_of(tiny, name), batch.encoder.ids_BT
    read_BT = ids_read(model.encoder, model, batch)
    special_BT = (given_BT == START) | (given_BT == END) | (given_BT == PAD)
    assert torch.equal(read_BT[special_BT], given_BT[special_BT])
    hidden = (read_BT == UNKNOWN)[~special_BT].double()
    assert abs(hidden.mean().item() - DROP) < 5 * math.sqrt(DROP * (1 - DROP) / hidden.numel())
    changed_BT = read_BT != given_BT
    assert (read_BT[changed_BT] == UNKNOWN).all()
    assert not torch.equal(read_BT, ids_read(model.encoder, model, batch, step=1))


def test_the_decoder_reads_all_words(tiny, batch: Batch) -> None:
    model = model_of(tiny)
    assert torch.equal(ids_read(model.decoder, model, batch).squeeze(0), batch.decoder.ids_BT[:, :-1])


@pytest.mark.parametrize("reverse", [False, True])
def test_the_start_token_may_come_last_and_takes_the_place_of_the_end(tiny, batch: Batch, reverse: bool) -> None:
    options = {"encoder.reverse_input": reverse, "encoder.start_last": True, "encoder.word_dropout": 0.0}
    model = model_of(tiny, **options)
    read_BT = ids_read(model.encoder, model, batch)
    lengths = batch.encoder.lengths_B.tolist()
    for ids_T, given_T, length in zip(read_BT.tolist(), batch.encoder.ids_BT.tolist(), lengths, strict=True):
        words = given_T[1 : length - 1]
        expected = [*(words[::-1] if reverse else words), START]
        assert ids_T == expected + [PAD] * (len(ids_T) - len(expected))


def test_what_comes_after_the_start_token_at_the_end_is_not_read(tiny, batch: Batch) -> None:
    """States and mask end where it stands; so do they where lengths are kept on the device for recorded steps."""
    model = model_of(tiny, **{"encoder.start_last": True, "encoder.word_dropout": 0.0}).eval()
    view = batch.encoder
    kept = replace(view, lengths_B=torch.zeros(0), given_lengths_B=view.lengths_B.clone())
    for each in (view, kept):
        states = model.encoder(each)
        assert torch.equal(states.mask_BT.sum(1), view.lengths_B - 1)
        for row in (0, 5, 9):
            length = int(view.lengths_B[row])
            alone = model.encoder(View(view.ids_BT[row : row + 1, :length], view.lengths_B[row : row + 1]))
            assert torch.allclose(states.last_BH[row], alone.last_BH[0], atol=1e-6)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_sentence_loses_the_same_words_in_any_batch(tiny, batch: Batch, reverse: bool) -> None:
    model = model_of(tiny, **{"encoder.reverse_input": reverse})
    few = make_batch(tiny.encoded.splits["train"], np.arange(7, 20))
    few_BT, all_BT = ids_read(model.encoder, model, few), ids_read(model.encoder, model, batch)
    assert (few_BT == UNKNOWN).any()
    assert few_BT.shape[1] < all_BT.shape[1] or len(few_BT) < len(all_BT)
    for row, ids_T in zip(few.rows_B, few_BT, strict=True):
        assert torch.equal(all_BT[row, : len(ids_T)], ids_T)


def test_nothing_is_hidden_outside_training(tiny, batch: Batch) -> None:
    model = model_of(tiny).eval()
    assert torch.equal(ids_read(model.encoder, model, batch), batch.encoder.ids_BT)
    assert model.features(batch.encoder) is not None


def test_training_without_noise_is_a_mistake(tiny, batch: Batch) -> None:
    with pytest.raises(ValueError, match="needs noise in training"):
        model_of(tiny).features(batch.encoder)
    with pytest.raises(ValueError, match="dropout in the encoder needs noise in training"):
        model_of(tiny, "vat", **{"encoder.word_dropout": 0.0}).features(batch.encoder)


@torch.no_grad()
def test_a_transformer_knows_places_and_reads_both_ways(tiny) -> None:
    """The state of a word changes with the order of the others, with those before it and with those after it."""
    encoder = model_of(tiny, "vat").eval().encoder
    states = {
        words: encoder(batch_of([list(words)]).encoder).all_BTH[0]
        for words in ((5, 6, 7, 8), (5, 7, 6, 8), (9, 6, 7, 8), (5, 6, 7, 9))
    }
    plain = states.pop((5, 6, 7, 8))
    assert (plain[4] - states[5, 7, 6, 8][4]).abs().max() > 1e-3  # of the last word
    assert (plain[4] - states[9, 6, 7, 8][4]).abs().max() > 1e-3
    assert (plain[1] - states[5, 6, 7, 9][1]).abs().max() > 1e-3  # of the first
