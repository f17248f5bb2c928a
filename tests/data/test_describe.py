"""Statistics against figures worked out by hand, and their rendering."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from textspace.data.corpus import Corpus, ReadOptions, corpus_of, open_corpus
from textspace.data.describe import Description, describe, render


@pytest.fixture
def small(tmp_path: Path) -> Corpus:
    (tmp_path / "train.tsv").write_text("x\ta b c\ny\ta b\nx\ta b c\n\ta b c\n\n", encoding="utf-8")
    (tmp_path / "test.tsv").write_text("y\ta b c\nx\tnew b\nz[/b]\tb\ny\ta b c\n", encoding="utf-8")
    return open_corpus(tmp_path, ReadOptions(text=2, label=1, valid=0))


def test_figures(small: Corpus) -> None:
    found = describe(small)
    train, test = found.splits["train"], found.splits["test"]
    assert (train.sentences, train.words, train.types, train.unseen) == (4, 11, 3, None)
    assert (train.shortest, train.longest, train.duplicates) == (2, 3, 2)
    assert train.mean == pytest.approx(11 / 4)
    assert train.deviation == pytest.approx((3 / 16) ** 0.5)
    assert train.characters == pytest.approx((5 + 3 + 5 + 5) / 4)
    assert (train.classes, train.unlabelled) == ({"x": 2, "y": 1}, 1)
    assert test.unseen == pytest.approx(1 / 9)
    assert (test.duplicates, test.classes) == (1, {"x": 1, "y": 2, "z[/b]": 1})
    assert found.shared == {"test in train": 2}
    assert found.bins == [1, 2, 3]
    assert (train.histogram, test.histogram) == ([0, 1, 3], [1, 1, 2])
    assert found.notes == ["1 empty line skipped"]


def test_is_json(small: Corpus) -> None:
    again = json.loads(json.dumps(describe(small).to_dict()))
    assert again["splits"]["test"]["classes"] == {"x": 1, "y": 2, "z[/b]": 1}
    assert again["shared"] == {"test in train": 2}


def _printed(description: Description) -> str:
    screen = io.StringIO()
    Console(width=100, file=screen, color_system=None).print(render(description))
    return screen.getvalue()


def test_rendering(small: Corpus) -> None:
    text = _printed(describe(small))
    assert "z[/b]" in text  # a label is text, not rich markup
    assert "11.11%" in text
    assert "Shared sentences: 2 of test in train" in text
    assert "no class" in text
    assert [line.split()[:2] for line in text.splitlines() if "█" in line] == [["2", "1"], ["3+", "3"]]


def test_rendering_without_labels_or_train() -> None:
    text = _printed(describe(open_corpus({"test": ["one two", "three"]})))
    assert "Sentences per class" not in text
    assert "Words per sentence in test" in text


def test_many_classes_are_cut_short() -> None:
    sentences = [f"sentence {number}" for number in range(30)]
    text = _printed(describe(corpus_of(sentences, labels=range(30), options=ReadOptions(valid=0, test=0))))
    assert "and 10 more" in text


@pytest.mark.parametrize(("longest", "width"), [(11, 1), (12, 2), (23, 2), (24, 5), (59, 5), (60, 10), (500, 50)])
def test_bins_are_round_and_few(longest: int, width: int) -> None:
    sentences = [" ".join("w" * length) for length in range(1, longest + 1)]
    corpus = open_corpus({"train": [*sentences, *[sentences[-1]] * longest]}, ReadOptions(valid=0))
    found = describe(corpus)
    assert found.bins[1] - found.bins[0] == width
    assert len(found.bins) <= 12
    assert sum(found.splits["train"].histogram) == len(corpus.splits["train"])


def test_rare_long_sentences_share_the_last_bin() -> None:
    found = describe(open_corpus({"train": ["a b"] * 999 + ["w " * 5000]}, ReadOptions(valid=0)))
    assert found.bins == [2]
    assert found.splits["train"].histogram == [1000]
    assert found.splits["train"].longest == 5000
