"""Vocabularies that are kept."""

from pathlib import Path

import pytest

from textspace.config import BPETokenizer, WordTokenizer
from textspace.data import vocabularies
from textspace.data.tokenizers import train_tokenizer
from textspace.data.vocabularies import tokenizer_for

TEXTS = ["the cat sat on the mat", "the dog sat on the log"] * 5
BPE = BPETokenizer(size=300)


def test_a_vocabulary_is_learned_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = tokenizer_for(BPE, lambda: TEXTS, tmp_path)
    assert first.to_json() == train_tokenizer(BPE, TEXTS).to_json()
    monkeypatch.setattr(vocabularies, "train_tokenizer", lambda *_, **__: pytest.fail("learned again"))
    assert tokenizer_for(BPE, lambda: TEXTS, tmp_path).to_json() == first.to_json()


@pytest.mark.parametrize(("config", "texts"), [(BPETokenizer(size=280), TEXTS), (BPE, [*TEXTS, "a bird"])])
def test_other_settings_or_text_have_a_vocabulary_of_their_own(config, texts, tmp_path: Path) -> None:
    tokenizer_for(BPE, lambda: TEXTS, tmp_path)
    assert tokenizer_for(config, lambda: texts, tmp_path).to_json() == train_tokenizer(config, texts).to_json()


def test_a_damaged_one_is_learned_again(tmp_path: Path) -> None:
    first = tokenizer_for(BPE, lambda: TEXTS, tmp_path)
    (kept,) = tmp_path.glob("vocabulary-*.json")
    kept.write_text("{")
    assert tokenizer_for(BPE, lambda: TEXTS, tmp_path).to_json() == first.to_json()


def test_words_are_counted_each_time(tmp_path: Path) -> None:
    assert tokenizer_for(WordTokenizer(), lambda: TEXTS, tmp_path).id("cat") > 0
    assert not list(tmp_path.iterdir())
