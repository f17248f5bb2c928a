"""Several sources: an easy corpus beside a hard one, whose numbers are those of each alone."""

from __future__ import annotations

import contextlib
import io
import json
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from helpers import small
from small_subjects import subject_on

from textspace.cli import main
from textspace.data.corpus import open_corpus
from textspace.data.encoded import EncodedSplit
from textspace.data.options import ReadOptions
from textspace.digits import plus_minus
from textspace.evaluate.bounds import Weighted
from textspace.evaluate.likelihood import likelihood
from textspace.evaluate.measures.language_modelling import likelihood as measure
from textspace.evaluate.sources import estimates_by_source, rows_by_source, source_names
from textspace.evaluate.suite import fingerprint, subject_of
from textspace.folder import card
from textspace.noise import seed_of
from textspace.recipes import RECIPES
from textspace.space import Space
from textspace.train.fit import train

WORDS = ["cats", "dogs", "trees", "birds", "rivers", "songs", "stones", "roads"]


def easy(count: int) -> list[str]:
    """One sentence, over and over."""
    return ["anna sees cats"] * count


def hard(count: int, seed: int = 5) -> list[str]:
    """Any words in any order: as many nats as there are."""
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=chance.randint(3, 6))) for _ in range(count)]


@pytest.fixture(scope="module")
def place(_own_cache: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("union")
    for name, made in {"easy": easy, "hard": hard}.items():
        (where / name).mkdir()
        for split, count in {"train": 300, "valid": 30, "test": 40}.items():
            (where / name / f"{split}.txt").write_text("\n".join(made(count)) + "\n")
    recipe = small(RECIPES["vae"]).but({"training.epochs": 12})
    sources: list[Any] = [str(where / "easy"), str(where / "hard")]
    train(sources, recipe, where / "space", device="cpu", silent=True, curves=False)
    return where


@pytest.fixture(scope="module")
def space(place: Path) -> Space:
    return Space.load(place / "space", "cpu")


def alone(space: Space, texts: list[str], **options: Any) -> Any:
    split = EncodedSplit.of(texts, space.tokenizer, space.recipe.text.max_tokens)
    return likelihood(space.model, split, **options)


# Training


def test_metrics_tell_each_source_apart(space: Space) -> None:
    metrics = space.metrics
    assert (metrics["sources"], metrics["mixing"]) == (["easy", "hard"], "all")
    for split, count in {"valid": 30, "test": 40}.items():
        found = metrics["by_source"][split]
        assert list(found) == ["easy", "hard"]
        assert all(each.keys() == metrics[split].keys() for each in found.values())
        assert [each["elbo"]["n"] for each in found.values()] == [count, count]
        # one sentence costs next to nothing, words at random what there is of them
        assert found["easy"]["elbo_ppl_word"]["value"] < 2 < 4 < found["hard"]["elbo_ppl_word"]["value"]
        for key in ("elbo", "reconstruction", "kl"):
            both = [each[key]["value"] for each in found.values()]
            assert np.mean(both) == pytest.approx(metrics[split][key]["value"], rel=1e-6)
        assert found["hard"]["elbo"]["name"].endswith("sentences of hard")
    seed = seed_of(space.recipe.training.seed, "validation")
    first = alone(space, easy(40), seed=seed).estimates()["elbo"]  # the first rows: the same noise
    assert metrics["by_source"]["test"]["easy"]["elbo"]["value"] == pytest.approx(first.value, rel=1e-4)


def test_the_card_shows_each_source_and_the_mixing_rule(space: Space, place: Path) -> None:
    text = (place / "space" / "README.md").read_text()
    assert text == card(space.recipe, space.tokenizer, space.model, space.metrics)
    assert "- Mixed by: all (every sentence of every source once an epoch" in text
    (easy_row,) = (line for line in text.splitlines() if line.startswith("| easy |"))
    elbo = space.metrics["by_source"]["test"]["easy"]["elbo"]
    assert f"| {plus_minus(elbo['value'], elbo['stderr'])} |" in easy_row
    assert "| 40 |" in easy_row


def test_one_source_has_no_table(tiny, tmp_path: Path) -> None:
    Space.fit(hard(60), small(RECIPES["vae"]).but({"training.epochs": 1}), out=tmp_path, device="cpu")
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert not metrics.keys() & {"by_source", "sources", "mixing"}
    assert "By source" not in (tmp_path / "README.md").read_text()


# Names and rows


def test_sources_are_called_by_short_names_unless_these_are_the_same(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "my.txt").write_text("\n".join(hard(9)))
    mine, yours = (str(tmp_path / folder / "my.txt") for folder in ("a", "b"))
    assert source_names(open_corpus([mine, "builtin:20"])) == ("my", "builtin:20")
    assert source_names(open_corpus([mine, yours])) == (mine, yours)
    assert source_names(open_corpus([mine, mine])) == (f"{mine} (1)", f"{mine} (2)")


def test_rows_of_a_likelihood_are_those_of_the_sentences_alone(space: Space) -> None:
    texts = [*hard(7), *easy(2), *hard(6, seed=8)]
    whole = alone(space, texts, samples=3, keep_tokens=True)
    rows = rows_by_source(["h"] * 7 + ["e"] * 2 + ["h"] * 6)["h"]
    some = whole.of_rows(rows)
    assert len(some) == 13
    np.testing.assert_array_equal(some.nll_N, np.delete(whole.nll_N, [7, 8]))
    np.testing.assert_array_equal(some.counts_N["token"], np.delete(whole.counts_N["token"], [7, 8]))
    first = alone(space, texts[:7], samples=3, keep_tokens=True)
    for one, other in zip(first.rows(), some.rows(), strict=False):
        for key in one:
            np.testing.assert_allclose(one[key], other[key], rtol=1e-4, atol=1e-5)
    weighted = Weighted(whole.nll_N + 1, whole.effective_samples_N, {"prior": "another"})
    also = replace(whole, under={"other": weighted}).of_rows(rows).estimates()
    assert also["nll_other"].value == pytest.approx(some.estimates()["nll"].value + 1)
    assert also["nll_other"].n == 13
    numbers_N = np.array([1] * 7 + [0] * 2 + [1] * 6)
    found = estimates_by_source(whole, numbers_N, ("e", "h"))
    assert list(found) == ["h", "e"]
    assert found["h"]["nll"].value == pytest.approx(np.delete(whole.nll_N, [7, 8]).mean())
    assert estimates_by_source(whole, np.zeros(15, int), ("e", "h")) == {}


# Evaluation


def test_the_likelihood_measure_has_a_table_by_source(space: Space, place: Path) -> None:
    subject = subject_of(space, [str(place / "easy"), str(place / "hard")], effort=subject_on(space, []).effort)
    assert subject.test.sources == ["easy"] * 40 + ["hard"] * 40
    found = measure(subject)
    table = found.tables["by_source"]
    assert [row[:2] for row in table.rows] == [("easy", 40), ("hard", 40), ("all", 80)]
    assert "importance-weighted NLL" in table.title
    assert table.columns[3:] == ("reconstruction", "KL", "negative ELBO", "NLL", "perplexity per word")
    nll_N = subject.test.likelihood(subject.effort.importance_samples).nll_N
    for name, values_N in (("easy", nll_N[:40]), ("hard", nll_N[40:])):
        estimate = found.estimates[f"nll/{name}"]
        assert estimate.value == pytest.approx(values_N.mean())
        assert estimate.stderr == pytest.approx(values_N.std(ddof=1) / np.sqrt(40))
        assert estimate.name.endswith(f"sentences of {name}")
        np.testing.assert_array_equal(found.per_sentence[f"nll/{name}"], values_N)
    words = sum(len(text.split()) + 1 for text in hard(40))
    assert found.estimates["nll_ppl_word/hard"].value == pytest.approx(np.exp(nll_N[40:].sum() / words))
    assert found.estimates["nll_ppl_word/easy"].value < 2 < 4 < found.estimates["nll_ppl_word/hard"].value
    assert table.rows[1][2] == pytest.approx(words / 40)
    single = measure(subject_of(space, str(place / "hard"), effort=subject.effort))
    assert "by_source" not in single.tables
    assert not any("/" in key for key in single.estimates)


def test_a_union_of_cut_and_given_splits_is_cut_as_for_training(place: Path, tmp_path: Path) -> None:
    """One file without splits beside a folder that has them: what was held out in training is tested on."""
    (tmp_path / "mine.txt").write_text("\n".join(hard(100, seed=9)))
    sources: list[Any] = [str(tmp_path / "mine.txt"), str(place / "easy")]
    recipe = small(RECIPES["vae"]).but({"training.epochs": 1})
    train(sources, recipe, tmp_path / "space", device="cpu", silent=True, curves=False)
    trained = Space.load(tmp_path / "space", "cpu")
    subject = subject_of(trained, sources)
    assert subject.test.sources == ["mine"] * 5 + ["easy"] * 40
    assert trained.metrics["by_source"]["test"]["mine"]["elbo"]["n"] == 5
    assert not set(subject.test.texts[:5]) & set(subject.splits["train"].texts)
    # by a space that was not trained on it, a file without splits is tested on alone
    other = subject_of(Space.load(place / "space", "cpu"), sources)
    assert set(other.test.sources) == {"easy"}
    assert any(note.startswith("test: no sentence of mine") for note in other.notes)


def test_few_sentences_keep_their_sources_and_these_are_part_of_the_fingerprint(space: Space, place: Path) -> None:
    effort = subject_on(space, []).effort
    few = subject_of(
        space, [str(place / "easy"), str(place / "hard")], effort=type(effort)(sentences=10), options=ReadOptions()
    )
    assert set(few.test.sources) == {"easy", "hard"}
    assert [text in easy(1) for text in few.test.texts] == [source == "easy" for source in few.test.sources]
    before = fingerprint(few)
    few.test.sources = few.test.sources[::-1]
    assert fingerprint(few) != before


def test_a_language_model_has_neither_kl_nor_elbo_by_source(place: Path, tiny) -> None:
    recipe = small(RECIPES["lstm-lm"]).but({"training.epochs": 1})
    sources: list[Any] = [str(place / "easy"), str(place / "hard")]
    train(sources, recipe, place / "language-model", device="cpu", silent=True, curves=False)
    model = Space.load(place / "language-model", "cpu")
    assert list(model.metrics["by_source"]["test"]) == ["easy", "hard"]
    found = measure(subject_of(model, sources))
    assert found.tables["by_source"].columns[3:] == ("reconstruction", "NLL", "perplexity per word")


def test_the_commands_print_each_source(place: Path, tmp_path: Path) -> None:
    def command(*arguments: str) -> str:
        out = io.StringIO()
        with (
            mock.patch.object(sys, "argv", ["textspace", *arguments]),
            mock.patch.dict("os.environ", {"COLUMNS": "200"}),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(io.StringIO()),
            contextlib.suppress(SystemExit),
        ):
            main()
        return out.getvalue()

    data = f"{place / 'easy'},{place / 'hard'}"
    asked = ["evaluate", str(place / "space"), "--data", data, "--measure", "likelihood", "--out", str(tmp_path)]
    told = command(*asked)
    assert "By source, in nats a sentence" in told
    assert {"easy", "hard", "all"} <= {line.partition(" ")[0] for line in told.splitlines()}
    assert "By source" in (tmp_path / "report.html").read_text()
    assert "By source" in command("info", str(place / "space"))
