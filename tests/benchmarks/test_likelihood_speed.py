"""The benchmark of likelihoods at a size that takes a moment."""

import json
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch

from benchmarks.likelihood_speed import WAYS, Way, counted, going, made_model, made_split, main, measured
from textspace.evaluate.likelihood import likelihood


@pytest.fixture(scope="module")
def model():
    return made_model(hidden=24, embedding=12, vocabulary=200, dim=4)


@pytest.fixture(scope="module")
def split(model):
    return made_split(model, sentences=10, tokens=8)


def test_sentences_are_about_as_long_as_asked_and_drawn_from_the_model(model, split) -> None:
    assert len(split) == 10
    assert 6 < split.lengths.mean() - 2 < 10
    assert split.tokens.min() >= 4  # no special tokens
    scored = likelihood(model, split, samples=20)
    guessed = np.log(200) * (split.lengths - 1).mean()
    assert scored.nll_N.mean() < 0.9 * guessed  # which sentences of other words would not be


def test_every_way_goes_where_it_says(model, split) -> None:
    for shared in (True, False):
        with (
            going(Way(shared=shared)),
            mock.patch.object(model.decoder, "_of_many_samples", side_effect=ZeroDivisionError),
        ):
            if shared:
                with pytest.raises(ZeroDivisionError):
                    likelihood(model, split, samples=2)
            else:
                assert np.isfinite(likelihood(model, split, samples=2).nll_N).all()


def test_ways_agree_and_have_speeds(model, split) -> None:
    found = measured(model, split, samples=6, rounds=1)
    assert list(found) == ["plain float32", "float32", "bf16"]  # the others are for a GPU
    assert all(each["token_samples_per_second"] > 0 for each in found.values())
    assert found["float32"]["nats_from_float32"]["largest"] == 0
    assert 0 < found["bf16"]["nats_from_float32"]["mean_absolute"] < 0.02
    with going(WAYS["plain float32"]):
        plain = likelihood(model, split, samples=6)
    with going(WAYS["float32"]):
        np.testing.assert_allclose(likelihood(model, split, samples=6).nll_N, plain.nll_N, atol=1e-3)


def test_operations_are_those_of_the_two_products(model) -> None:
    counts = counted(model)
    assert counts["recurrent_operations"] == 2 * model.decoder.recurrent.weight_hh_l0.numel()
    assert counts["logit_operations"] == 2 * model.decoder.output.numel()


def test_a_result_is_left(tmp_path: Path, capsys) -> None:
    arguments = "--device cpu --hidden 16 --embedding 8 --vocabulary 50 --dim 2 --sentences 6 --tokens 5 --samples 3"
    with mock.patch("sys.argv", ["likelihood_speed", *arguments.split(), "--rounds", "1", "--out", str(tmp_path)]):
        main()
    left = json.loads((tmp_path / "likelihood_speed.json").read_text())
    assert left["sizes"]["vocabulary"] == 50
    assert left["command"].endswith("--rounds 1 --out FOLDER")
    assert left["aim"].endswith("reached: False")
    assert left["parts"] == {}
    assert torch.__version__ == left["machine"]["torch"]
