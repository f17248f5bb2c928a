"""What is said of a text before one learns from it, and that nobody's files are written over."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import command, small, tiny_sentences
from tiny_encoder import tiny_encoder

from textspace.errors import TextspaceError
from textspace.recipes import RECIPES
from textspace.space import Space
from textspace.train.fit import train
from textspace.train.log import records
from textspace.train.rehearsal import rehearse

RECIPE = small(RECIPES["vae"]).but({"training.epochs": 1})
KNOWN = tiny_sentences(40)
NEW = ["anna hears a zebra", "bob likes two lynxes"]


@pytest.fixture
def source(tmp_path: Path) -> Callable[..., str]:
    def written(name: str = "text", **splits: list[str]) -> str:
        (tmp_path / name).mkdir()
        for split, texts in splits.items():
            (tmp_path / name / f"{split}.txt").write_text("\n".join(texts) + "\n")
        return str(tmp_path / name)

    return written


@pytest.fixture
def trained(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    def metrics_of(source: str, name: str = "space", recipe: Any = RECIPE, **more: Any) -> dict[str, Any]:
        train(source, recipe, tmp_path / name, device="cpu", silent=True, curves=False, **more)
        return json.loads((tmp_path / name / "metrics.json").read_text())

    return metrics_of


def test_unknown_tokens_and_sentences_of_the_training_text_are_told(source, trained, tmp_path: Path) -> None:
    told: list[str] = []
    text = source(train=KNOWN, valid=[*NEW, KNOWN[0]], test=KNOWN[1:4])
    metrics = trained(text, say=told.append)
    words = [line.split() for line in (*NEW, KNOWN[0])]
    known = {word for line in KNOWN for word in line.split()}
    share = sum(word not in known for line in words for word in line) / sum(len(line) for line in words)
    assert metrics["unknown"] == {"train": 0, "valid": pytest.approx(share), "test": 0}
    unknown, valid, test = (line for line in told if "flatters" in line)
    assert metrics["report"] == [unknown, valid, test]
    assert f"{metrics['unknown']['valid']:.1%} of the validation" in unknown
    assert "text.tokenizer.kind=bpe" in unknown
    assert valid.startswith("valid: 1 of 3 different sentences is in the training text too")
    assert test.startswith("test: 3 of 3 different sentences are in the training text too")
    card = (tmp_path / "space" / "README.md").read_text()
    assert f"Unknown tokens: train 0.0%, valid {metrics['unknown']['valid']:.1%}" in card.replace("*", "")
    rehearsal = rehearse(text, RECIPE, device="cpu", steps=1)
    assert [note for note in rehearsal.notes if "flatters" in note] == [unknown, valid, test]


def test_what_a_space_had_learnt_before_counts_as_training_text(source, trained, tmp_path: Path) -> None:
    trained(source("first", train=KNOWN, valid=KNOWN[:2]), "first")
    other = source("second", train=[f"{text} again" for text in KNOWN], valid=KNOWN[2:5])
    tokenizer = {"text.tokenizer.min_count": 2}
    told: list[str] = []
    metrics = trained(other, "more", RECIPE.but(tokenizer), init=tmp_path / "first", say=told.append)
    assert [line for line in told if "valid: 3 of 3 different sentences are in the training text too" in line]
    assert metrics["started_from"] == str(tmp_path / "first")
    assert f"Started from: {tmp_path / 'first'}" in (tmp_path / "more" / "README.md").read_text().replace("*", "")
    space = Space.load(tmp_path / "more", "cpu")
    assert space.recipe.text.tokenizer == RECIPE.text.tokenizer  # the one that it has, not the one asked for
    assert not [line for line in rehearse(other, RECIPE, device="cpu", steps=1).notes if "valid:" in line]


def test_where_all_sentences_are_too_long_it_is_said(source, trained) -> None:
    text = source(train=KNOWN, valid=KNOWN[:3])
    with pytest.raises(TextspaceError, match=r"no sentences to train on of at most 1 tokens: raise text\.max_tokens"):
        trained(text, recipe=RECIPE.but({"text.max_tokens": 1}))


@pytest.mark.parametrize("name", ["README.md", "metrics.json", "tokenizer.json"])
def test_nobodys_files_are_written_over(name: str, source, trained, tmp_path: Path) -> None:
    text = source(train=KNOWN, valid=KNOWN[:3])
    for folder in ("mine", "saved"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text("my own")
    with pytest.raises(TextspaceError, match="choose another folder"):
        trained(text, "mine")
    trained(text)
    space = Space.load(tmp_path / "space", "cpu")
    with pytest.raises(TextspaceError, match=f"saved has a file {name}, which saving would write over"):
        space.save(tmp_path / "saved")
    for folder in ("mine", "saved"):
        assert [path.name for path in (tmp_path / folder).iterdir() if path.name[0] != "."] == [name]
        assert (tmp_path / folder / name).read_text() == "my own"


def test_a_space_is_saved_over_itself_and_not_over_the_run_of_another(source, trained, tmp_path: Path) -> None:
    text = source(train=KNOWN, valid=KNOWN[:3])
    for name, seed in (("space", 0), ("other", 1)):
        trained(text, name, RECIPE.but({"training.seed": seed}))
    space, other = (Space.load(tmp_path / name, "cpu") for name in ("space", "other"))
    space.save(tmp_path / "space")
    weights = (tmp_path / "other" / "model.safetensors").read_bytes()
    with pytest.raises(TextspaceError, match="other holds the run of another space, which saving would break"):
        space.save(tmp_path / "other")
    assert (tmp_path / "other" / "model.safetensors").read_bytes() == weights
    for each in (space, other, space):  # a folder without a run
        each.save(tmp_path / "kept")
    assert Space.load(tmp_path / "kept", "cpu").metrics == space.metrics


def test_a_tokenizer_beside_a_space_to_start_from_is_refused(source, trained, tmp_path: Path) -> None:
    text = source(train=KNOWN, valid=KNOWN[:3])
    trained(text)
    chosen = ("--init", str(tmp_path / "space"), "--set", "text.tokenizer.kind=bpe")
    code, _, errors = command("train", text, "--out", str(tmp_path / "new"), *chosen)
    assert code != 0
    assert "brings its own tokenizer: leave out --set text.tokenizer or --init" in errors
    assert not (tmp_path / "new").exists()


def test_what_is_told_of_codes_at_the_end_is_what_the_validation_of_their_weights_told(
    source, trained, tmp_path: Path
) -> None:
    told: list[str] = []
    recipe = RECIPE.but({"training.epochs": 2})
    metrics = trained(source(train=KNOWN, valid=KNOWN[:12]), recipe=recipe, say=told.append)
    validations = records(tmp_path / "space" / "steps.jsonl", "validation")
    (kept,) = (line for line in validations if line["step"] == metrics["trained"]["best_step"])
    numbers = metrics["examination"]["numbers"]
    assert {"mi", "kl", "active_units"} <= numbers.keys()
    assert numbers == pytest.approx({name: kept.get(name, number) for name, number in numbers.items()}, abs=1e-6)
    assert not [line for line in told if line.startswith("The codes are")]  # which the end of the epoch has told


def test_a_limit_of_tokens_that_no_sentence_comes_near_costs_nothing(source, trained, tmp_path: Path) -> None:
    metrics = trained(source(train=KNOWN, valid=KNOWN[:5]), recipe=RECIPE.but({"text.max_tokens": 2 * 10**9}))
    counts = np.bincount([len(text.split()) for text in KNOWN]).tolist()
    assert metrics["train_lengths"] == {"counts": counts, "longest": 2 * 10**9}
    assert Space.load(tmp_path / "space", "cpu").score(KNOWN[:2], end_token="length").log_length_N.shape == (2,)


def test_nobodys_encoder_is_written_over(source, trained, tmp_path: Path) -> None:
    text = source(train=KNOWN, valid=KNOWN[:3])
    (tmp_path / "mine").mkdir()
    encoder = Path(shutil.copytree(tiny_encoder(), tmp_path / "mine" / "encoder"))
    mine = {path.name: path.read_bytes() for path in encoder.iterdir()}
    recipe = small(RECIPES["vae"].but({"encoder": {"kind": "pretrained"}})).but({"training.epochs": 1})
    recipe = recipe.but({"encoder.model": str(encoder)})
    would = r"mine has a file encoder/config\.json, which {} would write over: choose another folder"
    with pytest.raises(TextspaceError, match=would.format("training")):
        trained(text, "mine", recipe)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["encoder"]

    trained(text, recipe=recipe)
    space = Space.load(tmp_path / "space", "cpu")
    with pytest.raises(TextspaceError, match=would.format("saving")):
        space.save(tmp_path / "mine")
    trained(text, "mine")  # without an encoder of that kind nothing is written there
    for name in ("metrics.json", "model.safetensors"):
        (tmp_path / "mine" / name).unlink()
    shutil.rmtree(tmp_path / "mine" / "checkpoints")  # as if it were killed early: the folder is ours, the encoder not
    with pytest.raises(TextspaceError, match=would.format("training")):
        trained(text, "mine", recipe)
    with pytest.raises(TextspaceError, match=would.format("saving")):
        space.save(tmp_path / "mine")
    assert {path.name: path.read_bytes() for path in encoder.iterdir()} == mine

    space.save(tmp_path / "space")
    for _ in range(2):
        space.save(tmp_path / "copy")
    assert Space.load(tmp_path / "copy", "cpu").tokenizer.fingerprint == space.tokenizer.fingerprint
