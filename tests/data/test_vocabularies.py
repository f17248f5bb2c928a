"""Vocabularies that are kept."""

import random
from pathlib import Path

import pytest
from helpers import one_warning

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


def flipped(whole: bytes, bit: int) -> bytes:
    damaged = bytearray(whole)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def test_a_damaged_one_is_learned_again(tmp_path: Path) -> None:
    first = tokenizer_for(BPE, lambda: TEXTS, tmp_path)
    (kept,) = tmp_path.glob("vocabulary-*.json")
    whole = kept.read_bytes()
    bits = random.Random(0).choices(range(8 * len(whole)), k=12)
    for damaged in (b"{", b"{}", b'{"a":' * 100_000, *(flipped(whole, bit) for bit in bits)):
        kept.write_bytes(damaged)
        with one_warning(f"the cached vocabulary {kept} was damaged and has been learned again"):
            assert tokenizer_for(BPE, lambda: TEXTS, tmp_path).to_json() == first.to_json()
        assert kept.read_bytes() == whole


def test_words_are_counted_each_time(tmp_path: Path) -> None:
    assert tokenizer_for(WordTokenizer(), lambda: TEXTS, tmp_path).id("cat") > 0
    assert not list(tmp_path.iterdir())
