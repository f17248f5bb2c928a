"""Mutual information within minibatches, where the truth is known: counts, integrals, the whole set."""

import math

import numpy as np
import pytest
import torch
from helpers import small

from textspace.evaluate import minibatches
from textspace.evaluate.minibatches import information_within, minibatch_information
from textspace.evaluate.posterior import posterior_statistics
from textspace.model import Model
from textspace.objectives import build_objective
from textspace.recipes import RECIPES
from textspace.train.processes import Processes
from textspace.train.stream import BatchStream
from textspace.train.validation import validate


def test_posteriors_that_are_all_alike_tell_nothing() -> None:
    sample_NZ = torch.randn(32, 3, generator=torch.manual_seed(0))
    found_N = information_within(torch.zeros(32, 3), torch.ones(32, 3), sample_NZ)
    torch.testing.assert_close(found_N, torch.zeros(32, dtype=torch.float64))


@pytest.mark.parametrize("count", [1, 2, 32])
def test_posteriors_far_apart_tell_all_sentences_of_the_minibatch_apart(count: int) -> None:
    mean_NZ = 1000.0 * torch.arange(count)[:, None].expand(count, 2)
    noise_NZ = torch.randn(count, 2, generator=torch.manual_seed(0))
    found_N = information_within(mean_NZ, torch.ones(count, 2), mean_NZ + noise_NZ)
    torch.testing.assert_close(found_N, torch.full((count,), math.log(count), dtype=torch.float64))


@pytest.mark.parametrize("apart", [0.5, 1.0, 2.0])
def test_two_normals_tell_as_much_as_the_integral_says(apart: float) -> None:
    """I = E[ln N(z; m, 1) / (N(z; m, 1) / 2 + N(z; -m, 1) / 2)] = ln 2 - E[ln(1 + exp(-2 m z))], z from N(m, 1)."""
    z = np.linspace(-12, 12, 20_001)
    density = np.exp(-((z - apart) ** 2) / 2) / math.sqrt(2 * math.pi)
    truth = math.log(2) - float((density * np.log1p(np.exp(-2 * apart * z))).sum() * (z[1] - z[0]))
    generator = torch.manual_seed(1)
    mean_NZ = torch.tensor([[apart], [-apart]])
    values = [
        information_within(mean_NZ, torch.ones(2, 1), mean_NZ + torch.randn(2, 1, generator=generator)).mean().item()
        for _ in range(4000)
    ]
    assert abs(np.mean(values) - truth) < 4 * np.std(values) / math.sqrt(len(values))
    assert np.std(values) / math.sqrt(len(values)) < 0.02


def test_one_minibatch_of_all_sentences_is_the_whole_set(tiny, tiny_model) -> None:
    split = tiny.encoded.splits["train"]
    whole = posterior_statistics(tiny_model, split, seed=3).estimates()["mi"].value
    found = minibatch_information(tiny_model, split, [np.arange(len(split))], seed=3)
    assert found.value == pytest.approx(whole, abs=1e-6)


def test_it_is_the_mean_over_sentences_of_minibatches_of_any_size(tiny, tiny_model) -> None:
    split = tiny.encoded.splits["train"]
    parts = [np.arange(7), np.arange(7, 8), np.arange(8, 40)]
    alone = [minibatch_information(tiny_model, split, [rows], seed=3).value for rows in parts]
    found = minibatch_information(tiny_model, split, parts, seed=3)
    assert alone[1] == 0  # a sentence on its own has nobody to be told apart from
    assert found.value == pytest.approx((7 * alone[0] + 32 * alone[2]) / 40, abs=1e-9)
    assert found.name.endswith("within minibatches, at most ln 32 = 3.47")
    assert found.n == 40


def test_it_takes_no_more_sentences_than_are_measured_elsewhere(tiny, tiny_model, monkeypatch) -> None:
    monkeypatch.setattr(minibatches, "SENTENCES", 20)
    split = tiny.encoded.splits["train"]
    found = minibatch_information(tiny_model, split, np.arange(360).reshape(36, 10))
    assert (found.n, found.settings["of"]) == (20, 360)


@pytest.mark.parametrize(("name", "known"), [("vae", True), ("ivae", True), ("smim-ae", False), ("lstm-lm", False)])
def test_a_validation_has_it_in_batches_of_the_training_size(name: str, known: bool, tiny) -> None:
    recipe = small(RECIPES[name]).but({"training.batch.sentences": 8})
    model, split = Model(recipe, len(tiny.tokenizer)).eval(), tiny.encoded.splits["train"]
    if known:
        with torch.no_grad():  # codes that tell sentences apart
            head = model.posterior.mean if name == "vae" else model.posterior.network[0]
            head.weight[:, :16] *= 10_000
    found = validate(model, split, recipe, build_objective(recipe, model), Processes("cpu"))
    assert ("mi_minibatch" in found) == known
    if known:
        assert 0.7 * math.log(8) < found["mi_minibatch"] <= math.log(8)
        assert found["mi"] > math.log(8)  # of the whole set


@pytest.mark.parametrize(("name", "bound"), [("vae", "lower"), ("ivae", "none")])
def test_it_is_a_lower_bound_where_the_posterior_is_known(name: str, bound: str, tiny) -> None:
    model, split = Model(small(RECIPES[name]), len(tiny.tokenizer)), tiny.encoded.splits["valid"]
    found = minibatch_information(model, split, [np.arange(len(split))])
    assert found.bound == bound
    assert ("replaced by a Gaussian" in found.name) == (bound == "none")


def test_batches_are_made_by_the_rule_of_training(tiny, tiny_model) -> None:
    """Of sentences of similar length, where training makes them so: what lengths tell is then no part of it."""
    split = tiny.encoded.splits["train"]
    batch = RECIPES["vae"].training.batch
    found = {
        by_length: minibatch_information(
            tiny_model, split, BatchStream(split, batch.model_copy(update={"by_length": by_length}), seed=0).plan
        ).value
        for by_length in (True, False)
    }
    assert found[True] < found[False]
