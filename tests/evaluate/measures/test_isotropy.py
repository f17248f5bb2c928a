"""The measure of isotropy: of a space whose codes are known, on test sentences and on STS12, beside other encoders."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers import read_for, small, tiny_sentences
from small_subjects import subject_on, untrained
from tiny_encoder import VOCABULARY, tiny_encoder

from textspace.data.encoded import EncodedSplit
from textspace.data.tokenizers import train_tokenizer
from textspace.errors import TextspaceError
from textspace.evaluate.function_words import function_word_ids
from textspace.evaluate.isotropy import isotropy_of
from textspace.evaluate.layers import layers_of
from textspace.evaluate.measure import Effort
from textspace.evaluate.measures.isotropy import MEASURES, MOST_CONTEXTUAL, NUMBERS, _Read, isotropy
from textspace.evaluate.reports.pictures import draw
from textspace.evaluate.suite import evaluate, missing
from textspace.recipes import RECIPES
from textspace.space import Space

TEXTS = tiny_sentences(80)


class Table(Space):
    """A space whose token codes are those of a table and, for samples, noise; start and end are far from everything."""

    def table(self) -> np.ndarray:
        return np.random.default_rng(0).normal(size=(len(self.tokenizer), 20))

    def encode(self, texts: Any, what: str = "mean", seed: int = 0, **more: Any) -> Any:
        chance, table_WZ = np.random.default_rng(seed), self.table()
        found = []
        for ids in self.tokenizer.encode(list(texts)):
            code_TZ = table_WZ[[1, *ids, 3]] + (what == "sample") * chance.normal(size=(len(ids) + 2, 20))
            code_TZ[[0, -1]] = 1e6
            found.append(code_TZ.astype(np.float32))
        return found


@pytest.fixture
def table_space(tiny) -> Table:
    made = untrained(small(RECIPES["vae"]), tiny.tokenizer)
    return Table(made.recipe, made.tokenizer, made.model)


def test_numbers_are_those_of_the_codes_without_start_and_end(table_space) -> None:
    found = isotropy(subject_on(table_space, TEXTS))
    ids = table_space.tokenizer.encode(TEXTS)
    for suffix, what in (("", "mean"), ("_samples", "sample")):
        expected = isotropy_of([each[1:-1] for each in table_space.encode(TEXTS, what)], ids, unranked={2})
        for field, number in NUMBERS.items():
            if "dealt" in field or "marked" in field:
                continue
            estimate = found.estimates[number.key + suffix]
            assert (estimate.value, estimate.stderr) == pytest.approx(getattr(expected, field), abs=1e-9)
            assert estimate.n == len(TEXTS)
            assert "80 test sentences" in estimate.name
            assert "start and end tokens left out" in estimate.name
    assert found.estimates["self_similarity"].value == pytest.approx(1)
    assert found.estimates["self_similarity_samples"].value < 0.8
    assert found.estimates["random_cosine"].better == "lower"
    lengths = np.linalg.norm(np.concatenate([each[1:-1] for each in table_space.encode(TEXTS)]), axis=1)
    assert found.estimates["length"].value == pytest.approx(lengths.mean() / 2)  # N(0, I) in 4 dimensions has sqrt(4)
    assert len(found.tables["isotropy"].rows) == 2
    assert "self" in found.pictures["isotropy"].series
    draw(found.pictures["isotropy"])


def test_the_ranking_has_counts_and_function_words(table_space) -> None:
    texts = [text.replace("cats", "of") for text in TEXTS]  # which the tokenizer does not know
    table = isotropy(subject_on(table_space, texts)).tables["contextual"]
    words = [row[1] for row in table.rows]
    assert "<unk>" not in words
    assert len(words) <= MOST_CONTEXTUAL
    row = next(row for row in table.rows if row[1] == "dogs")
    assert row[2] == sum(text.split().count("dogs") for text in texts)
    assert row[3] == sum("dogs" in text.split() for text in texts)
    assert {row[5] for row in table.rows} == {"no"}
    similarities = [row[4] for row in table.rows]
    assert similarities == sorted(similarities)


def test_function_words_are_counted(table_space, monkeypatch) -> None:
    from textspace.evaluate import function_words

    monkeypatch.setattr(function_words, "FUNCTION_WORDS", frozenset({"sees", "likes", "hears", "cats"}))
    found = isotropy(subject_on(table_space, TEXTS)).estimates
    ranked = len({word for text in TEXTS for word in text.split()})
    assert found["function_words_all"].value == 4 / ranked
    assert found["function_words_most_contextual"].n == ranked
    assert found["function_words_self_similarity"].value == pytest.approx(1)
    assert found["function_words_less_others"].value == pytest.approx(0)


def test_sentences_of_sts12_are_taken_where_they_are_at_hand(table_space, tmp_path: Path) -> None:
    (tmp_path / "sts").mkdir()
    pairs = [(TEXTS[row].upper(), TEXTS[row + 1].upper()) for row in range(0, 40, 2)]
    rows = [f"news\t{row % 6}\t{one}\t{other}" for row, (one, other) in enumerate(pairs)]
    (tmp_path / "sts" / "STS12.tsv").write_text("\n".join(rows))
    found = isotropy(subject_on(table_space, TEXTS[60:], task_files=tmp_path))
    unique = len({text for pair in pairs for text in pair})
    assert f"{unique} sentences of STS12 (lower case)" in found.tables["isotropy"].title
    assert found.estimates["random_cosine"].n == unique
    assert found.estimates["random_cosine"].value == pytest.approx(
        isotropy_of(
            [each[1:-1] for each in table_space.encode(list(dict.fromkeys(TEXTS[0:40:2] + TEXTS[1:40:2])))],
            table_space.tokenizer.encode(list(dict.fromkeys(TEXTS[0:40:2] + TEXTS[1:40:2]))),
        ).random.value
    )
    (tmp_path / "sts" / "STS12.tsv").unlink()
    assert (
        "20 test sentences"
        in isotropy(subject_on(table_space, TEXTS[60:], task_files=tmp_path)).tables["isotropy"].title
    )


def test_every_layer_of_a_baseline_stands_beside(table_space) -> None:
    model = str(tiny_encoder())
    found = isotropy(subject_on(table_space, TEXTS, baselines=(model,)))
    layers = layers_of(model, TEXTS)
    key = next(name for name in found.estimates if name.endswith("_layer_1")).removeprefix("random_cosine")
    for number, suffix in enumerate((key.removesuffix("1") + "0", key)):
        expected = isotropy_of(layers.vectors[number], layers.ids, unranked={1})
        assert found.estimates[f"random_cosine{suffix}"].value == pytest.approx(expected.random.value)
        assert found.estimates[f"self_similarity{suffix}"].value == pytest.approx(expected.self_tokens.value)
    assert [str(row[0]).rpartition(", ")[2] for row in found.tables["isotropy"].rows[2:]] == ["embeddings", "layer 1"]
    assert MEASURES["isotropy"].has_baselines
    with pytest.raises(TextspaceError, match="two baselines are called"):
        isotropy(subject_on(table_space, TEXTS, baselines=(model, model)))


@pytest.mark.filterwarnings("ignore:1 of 87 sentences are longer")
def test_codes_of_a_pretrained_encoders_tokens_are_named_by_its_tokenizer(tiny, token_space) -> None:
    changes = {"encoder": {"kind": "pretrained", "model": str(tiny_encoder())}}
    recipe = token_space.recipe.but(changes)
    space = untrained(recipe, read_for(tiny, recipe).tokenizer)
    texts = [*TEXTS, "", *["anna hears zebras é"] * 5, "anna " * 40]  # an unknown word, and more than is read
    found = isotropy(subject_on(space, texts))
    layers = layers_of(str(tiny_encoder()), texts)  # by the same tokenizer
    codes = [each[1:-1] for each in space.encode(texts)]
    expected = isotropy_of(codes, layers.ids, unranked={1})
    for field in ("random", "self_tokens", "intra"):
        estimate = found.estimates[NUMBERS[field].key]
        assert (estimate.value, estimate.stderr) == pytest.approx(getattr(expected, field), abs=1e-6)
    assert {row[1] for row in found.tables["contextual"].rows} == {VOCABULARY[each.token] for each in expected.ranked}
    assert {"an", "##na"} <= {row[1] for row in found.tables["contextual"].rows}


def test_subwords_are_named_as_their_tokenizer_has_them_so_that_function_words_are_known() -> None:
    tokenizer = train_tokenizer(SimpleNamespace(kind="bpe", size=300), ["the dog of the man"] * 50)
    names = _Read.by(tokenizer, EncodedSplit.of(["in the house of the dog"], tokenizer, None)).names
    marked = function_word_ids(names)
    assert {names[each] for each in marked} >= {"\u0120the", "\u0120of"}


def test_less_effort_takes_sentences_spread_evenly(table_space) -> None:
    found = isotropy(subject_on(table_space, TEXTS, effort=Effort(sentences=40)))
    assert found.estimates["random_cosine"].n == 40
    assert "40 test sentences" in found.tables["isotropy"].title


def test_a_space_with_one_code_a_sentence_is_skipped_and_told_why(space) -> None:
    subject = subject_on(space, TEXTS)
    assert "one code for a sentence" in (missing(MEASURES["isotropy"], subject) or "")
    report = evaluate(subject, MEASURES)
    assert report.entries == {}
    assert "one code for a sentence and none for its tokens" in report.skipped["isotropy"]


def test_a_space_with_a_code_for_every_token_is_measured(token_space) -> None:
    report = evaluate(subject_on(token_space, TEXTS), MEASURES)
    assert report.skipped == {}
    found = report.entries["isotropy"].findings
    expected = isotropy_of([each[1:-1] for each in token_space.encode(TEXTS)], token_space.tokenizer.encode(TEXTS))
    assert found.estimates["random_cosine"].value == pytest.approx(expected.random.value, abs=1e-6)
    assert found.estimates["intra_sentence"].value == pytest.approx(expected.intra.value, abs=1e-6)
    assert found.estimates["self_similarity_samples"].n == len(TEXTS)
