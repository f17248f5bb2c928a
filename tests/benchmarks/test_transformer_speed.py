from __future__ import annotations

import pytest
import torch
from helpers import TOKEN_RECIPE, short_sentences

from benchmarks.transformer_speed import bare_loss, generation, training
from textspace.data.batching import make_batch
from textspace.data.corpus import corpus_of
from textspace.data.preparing import Prepared, prepare
from textspace.model import Model
from textspace.noise import Noise
from textspace.objectives import build_objective
from textspace.schedules import Progress
from textspace.train.processes import Processes


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    return prepare(corpus_of(short_sentences(300)), TOKEN_RECIPE)


def test_the_bare_loop_has_the_loss_of_the_model(prepared) -> None:
    model = Model(TOKEN_RECIPE, len(prepared.tokenizer))  # without dropout
    split = prepared.encoded.splits["train"]
    batch = make_batch(split, split.lengths.argsort()[::20])  # of several lengths
    noise = Noise(0, 0, batch.rows_B)
    normal_BTZ = noise.normal("z", (batch.encoder.ids_BT.shape[1], TOKEN_RECIPE.latent.dim), 1)[0]
    terms = build_objective(TOKEN_RECIPE, model)(model(batch, noise), Progress(0, 0.0))
    per_token = terms.scaled(1 / (batch.decoder.device_lengths_B - 1))
    expected = per_token.loss(per_token.means(len(batch.rows_B), 1))
    found = bare_loss(model, batch, terms.weights["kl"], normal_BTZ, 0.0)
    torch.testing.assert_close(found, expected)
    other = bare_loss(model, batch, terms.weights["kl"], -normal_BTZ, 0.0)
    assert not torch.isclose(other, expected, rtol=1e-4)


def test_training_is_measured_three_times(prepared) -> None:
    found = training(TOKEN_RECIPE.but({"encoder.dropout": 0.1}), prepared, Processes("cpu"), steps=2, rounds=1)
    assert found["tokens_per_second"].keys() == {"bare", "keyed", "trainer"}
    assert all(rate > 0 for rate in found["tokens_per_second"].values())
    assert found["trainer_to_bare"] == pytest.approx(found["keyed_to_bare"] * found["trainer_to_keyed"], rel=0.02)


def test_generation_is_the_same_without_the_cache(prepared) -> None:
    model = Model(TOKEN_RECIPE, len(prepared.tokenizer))
    found = generation(model, [3, 9], sentences=4, rounds=1)
    assert [(each["tokens"], each["method"]) for each in found] == [
        (3, "greedy"),
        (3, "beam_5"),
        (9, "greedy"),
        (9, "beam_5"),
    ]
    assert all(each["same_sentences"] == 1 for each in found)
    assert all(each["log_probabilities_apart"] < 1e-3 for each in found)
