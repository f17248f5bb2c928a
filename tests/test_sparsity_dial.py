"""The dial: a share of dimensions asked for, in the recipe, in training and in what is told and kept of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import small, tiny_sentences
from test_cli import textspace

from textspace.config import Recipe
from textspace.data.corpus import open_corpus
from textspace.data.options import ReadOptions
from textspace.errors import TextspaceError
from textspace.recipes import RECIPES, with_sparsity
from textspace.space import Space


@pytest.mark.parametrize("share", [0.05, 0.3, 0.8, 0.95])
def test_the_dial_sets_what_gates_want(share: float) -> None:
    hsvae = with_sparsity(RECIPES["hsvae"], share)
    assert hsvae.prior.alpha / (hsvae.prior.alpha + hsvae.prior.beta) == pytest.approx(share)
    assert hsvae.prior.alpha + hsvae.prior.beta == pytest.approx(5)
    surer = with_sparsity(RECIPES["hsvae"].but({"prior.alpha": 30, "prior.beta": 70}), share)
    assert (surer.prior.alpha, surer.prior.beta) == (pytest.approx(100 * share), pytest.approx(100 * (1 - share)))
    assert with_sparsity(RECIPES["mat-vae"], share).prior.off == share
    assert with_sparsity(RECIPES["ton-vae"], share).objective.gate_share.off == share
    both = with_sparsity(RECIPES["ton-vae"].but({"prior.kind": "spike-and-slab"}), share)
    assert (both.prior.off, both.objective.gate_share.off) == (share, share)


def test_the_dial_changes_nothing_else() -> None:
    for name in ("hsvae", "mat-vae", "ton-vae", "b-hsvae"):
        assert with_sparsity(RECIPES[name], 0.8) == RECIPES[name]  # what they were made with


@pytest.mark.parametrize("share", [0.0, 1.0, -0.2, 1.5, 80.0, float("nan"), float("inf"), "0.5", None, [0.5]])
def test_what_is_no_share_is_refused(share: Any) -> None:
    with pytest.raises(TextspaceError, match=r"^sparsity is \S+: give the share of dimensions that shall be off"):
        with_sparsity(RECIPES["hsvae"], share)


@pytest.mark.parametrize("share", [0.001, 0.9999])
def test_a_share_too_near_the_ends_for_the_prior_is_refused(share: float) -> None:
    with pytest.raises(TextspaceError, match=r"below 0\.01: give a share from 0\.002 to 0\.998$"):
        with_sparsity(RECIPES["hsvae"], share)
    assert with_sparsity(RECIPES["mat-vae"], share).prior.off == share


@pytest.mark.parametrize("name", ["vae", "default", "lstm-lm", "ae", "vae-l1"])
def test_recipes_without_gates_name_those_that_have_some(name: str) -> None:
    with pytest.raises(TextspaceError) as told:
        with_sparsity(RECIPES[name], 0.9999)
    assert str(told.value) == (
        f"recipe {name!r} has no gates that a sparsity could set: use recipe 'hsvae', 'hsvae-public-code', 'mat-vae', "
        "'ton-vae' or 'b-hsvae'"
    )


# In training


def share_off(space: Space, texts: list[str]) -> float:
    """By the definition: the mean gate says off, E[gamma|x] > 0.5."""
    return float((1 - space.encode(texts, what="gates") > 0.5).mean())


def test_what_was_asked_and_achieved_is_kept_and_told(tmp_path: Path) -> None:
    sentences = tiny_sentences()
    (tmp_path / "train.txt").write_text("\n".join(sentences[:300]))
    (tmp_path / "valid.txt").write_text("\n".join(sentences[300:]))
    (tmp_path / "small.json").write_text(small(RECIPES["hsvae"]).to_json())
    ended = textspace(
        *("train", ".", "--config", "small.json", "--sparsity", "0.3", "--epochs", "1", "--out", "done"), cwd=tmp_path
    )
    assert ended.returncode == 0, ended.stderr
    kept = json.loads((tmp_path / "done" / "metrics.json").read_text())["sparsity"]
    assert kept["asked"] == pytest.approx(0.3)
    space = Space.load(tmp_path / "done", "cpu")
    assert kept["achieved"] == pytest.approx(share_off(space, sentences[300:]), abs=1e-6)
    gates_NZ = 1 - space.encode(sentences[300:], what="gates")
    assert kept["mean_gate"] == pytest.approx(float(np.mean(gates_NZ)), abs=1e-5)
    told = [line for line in ended.stderr.splitlines() if line.startswith("sparsity")]
    assert told == [
        f"sparsity: of a validation sentence's dimensions {kept['achieved']:.2f} are off (E[gamma|x] > 0.5; mean gate "
        f"{kept['mean_gate']:.2f}), asked for 0.30"
    ]
    recipe = Recipe.load(tmp_path / "done" / "recipe.json")
    assert (recipe.prior.alpha, recipe.prior.beta) == (pytest.approx(1.5), pytest.approx(3.5))


def test_the_dial_of_the_library(tmp_path: Path) -> None:
    texts = tiny_sentences(200)
    space = Space.fit(texts, small(RECIPES["ton-vae"]), sparsity=0.6, epochs=1, device="cpu")
    assert space.recipe.objective.gate_share.off == 0.6
    assert space.metrics["sparsity"]["asked"] == 0.6
    assert 0 <= space.metrics["sparsity"]["achieved"] <= 1
    with pytest.raises(TextspaceError, match="recipe 'vae' has no gates that a sparsity could set"):
        Space.fit(texts, "vae", sparsity=0.6)
    fixed = Space.fit(texts, small(RECIPES["mat-vae"]), sparsity=0.6, epochs=1, device="cpu")
    assert fixed.metrics["sparsity"] == {"asked": 0.6, "achieved": None, "mean_gate": None}
    dense = Space.fit(texts, small(RECIPES["vae"]), epochs=1, device="cpu")
    assert "sparsity" not in dense.metrics


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--recipe vae --sparsity 0.8", "recipe 'vae' has no gates that a sparsity could set: use recipe 'hsvae'"),
        ("--recipe hsvae --sparsity 1.2", "sparsity is 1.2: give the share of dimensions that shall be off, between"),
        ("--recipe hsvae --sparsity much", "Invalid value for '--sparsity'"),
    ],
)
def test_mistakes_on_the_command_line_are_one_sentence(arguments: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("\n".join(tiny_sentences(50)))
    ended = textspace("train", "text.txt", *arguments.split(), cwd=tmp_path)
    assert ended.returncode != 0
    assert ended.stderr.startswith("textspace: ")
    assert sentence in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert not (tmp_path / "space").exists()


def test_alpha_larger_than_beta_makes_sparser_codes_than_the_reverse() -> None:
    """On the built-in corpus, by a wide margin: gamma is the probability of OFF."""
    changes = {
        "encoder.embedding": 32,
        "encoder.hidden": 64,
        "decoder.embedding": 32,
        "decoder.hidden": 64,
        "posterior.hidden": 32,
        "latent.dim": 16,
        "training.batch.sentences": 64,
        "training.optimizer.lr": 3e-3,
        "training.epochs": 2,
    }
    spaces = [
        Space.fit("builtin:1500", RECIPES["hsvae"].but(changes | {"prior.alpha": alpha, "prior.beta": beta}))
        for alpha, beta in ((8.0, 2.0), (2.0, 8.0))
    ]
    achieved = [space.metrics["sparsity"]["achieved"] for space in spaces]
    assert achieved[0] > achieved[1] + 0.4
    corpus = open_corpus("builtin:1500", ReadOptions(), normalise=())
    texts = [record.text for record in corpus.splits["test"]][:100]
    near_zero = [float((np.abs(space.encode(texts, what="sample")) < 0.15).mean()) for space in spaces]
    assert near_zero[0] > near_zero[1] + 0.2
