"""Tokenizers: vocabularies, exact decoding, odd text, files."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import tokenizers as library
from hypothesis import example, given
from hypothesis import strategies as st

from textspace.data.tokenizers import (
    END,
    PAD,
    SPECIALS,
    START,
    UNKNOWN,
    UNKNOWN_ALIASES,
    Tokenizer,
    train_tokenizer,
)
from textspace.errors import TextspaceError

TEXTS = [f"the cat number {i % 7} didn't sit on the mat of naïve café {i % 11} 😀" for i in range(60)]
# Everything that UTF-8 can write: all of Unicode but halves of surrogate pairs.
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
ODD_TEXTS = [
    "",
    " \t\n\r ",
    "שלום עולם ‏مرحبا",
    "\x00\x01\x1c\x1f\x7f\x85\u200b\ufeff",
    "👩‍👩‍👧‍👦 e\u0301",
    "</s> <s> <pad> <unk>",
    "a" * 100_000,
    "\ufffd",
]


def words_config(
    size: int | None = None, min_count: int = 1, unknown_aliases: tuple[str, ...] = UNKNOWN_ALIASES
) -> SimpleNamespace:
    return SimpleNamespace(kind="words", size=size, min_count=min_count, unknown_aliases=unknown_aliases)


def subword_config(kind: str, size: int | None = 400) -> SimpleNamespace:
    return SimpleNamespace(kind=kind, size=size)


WORDS = train_tokenizer(words_config(), TEXTS)
SUBWORDS = {kind: train_tokenizer(subword_config(kind), TEXTS) for kind in ("bpe", "unigram")}
ALL = {"words": WORDS, **SUBWORDS}

subwords = pytest.mark.parametrize("kind", ["bpe", "unigram"])


@pytest.mark.parametrize("kind", ["words", "bpe", "unigram"])
def test_tokens_are_shown_as_text(kind: str) -> None:
    tokenizer = train_tokenizer(subword_config(kind) if kind != "words" else words_config(), ["李明 喜欢 苹果"] * 30)
    shown = [tokenizer.shown(token) for token in tokenizer.encode(["李明 喜欢 苹果"])[0]]
    assert ("" if kind == "words" else " ") in shown[1]
    assert "".join(shown).replace(" ", "") == "李明喜欢苹果"


every_kind = pytest.mark.parametrize("kind", ["words", "bpe", "unigram"])


def odd_examples(test):
    for text in ODD_TEXTS:
        test = example(text=text)(test)
    return test


# --- vocabularies


@every_kind
def test_the_four_specials_come_first(kind: str) -> None:
    tokenizer = ALL[kind]
    assert tuple(tokenizer.token(i) for i in range(4)) == SPECIALS
    assert (tokenizer.pad_id, tokenizer.start_id, tokenizer.unk_id, tokenizer.end_id) == (0, 1, 2, 3)
    tokens = [tokenizer.token(i) for i in range(len(tokenizer))]
    assert len(set(tokens)) == len(tokens)
    assert [tokenizer.id(token) for token in tokens] == list(range(len(tokens)))


def test_words_are_ordered_by_count_then_spelling() -> None:
    tokenizer = train_tokenizer(words_config(), ["b a c c", "d b a"])
    assert [tokenizer.token(i) for i in range(4, len(tokenizer))] == ["a", "b", "c", "d"]


def test_size_counts_words_without_specials_and_min_count_is_inclusive() -> None:
    texts = ["a a a b b c"]
    assert len(train_tokenizer(words_config(size=2), texts)) == 4 + 2
    assert train_tokenizer(words_config(min_count=2), texts).encode(["a b c"]) == [[4, 5, UNKNOWN]]


def test_aliases_and_literal_specials_are_the_unknown_word() -> None:
    text = "<unk> <UNK> _UNK [UNK] <s> </s> <pad> word UNK"
    tokenizer = train_tokenizer(words_config(), [text] * 3)
    assert [tokenizer.token(i) for i in range(4, len(tokenizer))] == ["UNK", "word"]
    assert tokenizer.encode([text]) == [[UNKNOWN] * 7 + [5, 4]]
    # Not an alias unless it is said to be one; `<unk>` itself is never a word.
    plain = train_tokenizer(words_config(unknown_aliases=("word",)), [text])
    assert plain.encode(["_UNK <unk> word"])[0] == [plain.id("_UNK"), UNKNOWN, UNKNOWN]


def test_a_file_like_penn_treebank_has_no_duplicate_special() -> None:
    texts = ["the <unk> sat on N mats", "a <unk> <unk> N times"]
    types = {word for text in texts for word in text.split()}
    tokenizer = train_tokenizer(words_config(), texts)
    assert len(tokenizer) == len(types) - 1 + len(SPECIALS)
    assert tokenizer.encode(["the <unk> N"])[0][1] == tokenizer.unk_id


@pytest.mark.corpora
def test_penn_treebank_has_9999_types() -> None:
    folder = os.environ.get("TEXTSPACE_CORPORA")
    if not folder:
        pytest.skip("TEXTSPACE_CORPORA does not name the folder of the real corpora")
    with gzip.open(Path(folder, "ptb", "train.txt.gz"), "rt", encoding="utf-8") as file:
        texts = list(file)
    types = {word for text in texts for word in text.split()}
    assert len(types) == 9_999
    assert "<unk>" in types
    tokenizer = train_tokenizer(words_config(), texts)
    assert len(tokenizer) == 9_998 + len(SPECIALS)
    unknown = sum(ids.count(tokenizer.unk_id) for ids in tokenizer.encode(texts))
    assert unknown == sum(text.split().count("<unk>") for text in texts) > 0


@subwords
def test_size_of_subword_vocabularies_is_a_limit(kind: str) -> None:
    assert len(train_tokenizer(subword_config(kind, 270), TEXTS)) == 270
    assert len(train_tokenizer(subword_config(kind, 260), TEXTS)) == 260


@subwords
def test_frequent_words_become_single_subwords(kind: str) -> None:
    tokenizer = train_tokenizer(subword_config(kind, 500), ["zebra quickly jumps", "my zebra jumps quickly"] * 20)
    assert [len(ids) for ids in tokenizer.encode([" zebra", " quickly", " jumps"])] == [1, 1, 1]


@every_kind
def test_training_is_deterministic_across_processes(kind: str) -> None:
    code = f"""
from types import SimpleNamespace
from textspace.data.tokenizers import UNKNOWN_ALIASES, train_tokenizer
config = SimpleNamespace(
    kind={kind!r}, size={None if kind == "words" else 400}, min_count=1, unknown_aliases=UNKNOWN_ALIASES)
print(train_tokenizer(config, {TEXTS!r}).fingerprint)
import sys
assert "torch" not in sys.modules
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    fingerprint = subprocess.check_output([sys.executable, "-c", code], text=True, env=environment).strip()
    assert fingerprint == ALL[kind].fingerprint


@subwords
def test_very_long_lines_train_in_reasonable_time(kind: str) -> None:
    tokenizer = train_tokenizer(subword_config(kind, 300), ["ab" * 200_000])  # uncut: half a minute
    assert len(tokenizer.encode(["ab" * 100])[0]) < 100


def test_training_takes_any_iterable_once() -> None:
    assert train_tokenizer(words_config(), iter(TEXTS)).fingerprint == WORDS.fingerprint


def test_progress_changes_nothing() -> None:
    assert train_tokenizer(words_config(), TEXTS, progress=True).fingerprint == WORDS.fingerprint


@pytest.mark.parametrize(
    ("config", "texts", "message"),
    [
        (words_config(), [], "no text"),
        (subword_config("bpe"), [], "no text"),
        (subword_config("unigram"), [], "no text"),
        (words_config(), [" ", "<unk>"], "no words"),
        (words_config(min_count=3), ["a a b"], "lower min_count"),
        (subword_config("bpee"), ["a"], "did you mean 'bpe'"),
        (words_config(), ["\ud800"], "surrogate"),
        (subword_config("bpe"), ["\ud800"], "surrogate"),
        (subword_config("unigram"), ["\ud800 a"], "surrogate"),
    ],
)
def test_training_mistakes_are_explained(config: SimpleNamespace, texts: list[str], message: str) -> None:
    with pytest.raises(TextspaceError, match=message):
        train_tokenizer(config, texts)


# --- encoding and decoding


@subwords
@odd_examples
@given(text=ANY_TEXT)
def test_subwords_give_any_text_back(kind: str, text: str) -> None:
    tokenizer = SUBWORDS[kind]
    [ids] = tokenizer.encode([text])
    assert min(ids, default=4) > tokenizer.end_id  # neither special nor unknown
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode([tokenizer.start_id, *ids, tokenizer.end_id, tokenizer.pad_id]) == text


@odd_examples
@given(text=ANY_TEXT)
def test_words_are_those_of_split(text: str) -> None:
    words = text.split()
    tokenizer = train_tokenizer(words_config(), [text, "the"])
    [ids] = tokenizer.encode([text])
    assert len(ids) == len(words)
    known = [word if word not in UNKNOWN_ALIASES + SPECIALS else "<unk>" for word in words]
    assert tokenizer.decode(ids) == " ".join(known)
    assert not {tokenizer.pad_id, tokenizer.start_id, tokenizer.end_id} & set(ids)


@given(text=st.text(st.sampled_from("the cat\t\n\x0b\x1c\x1d\x1e\x1f\x85\xa0\u2003\u2028\u3000\u200b.")))
def test_other_readers_of_the_file_split_words_alike(text: str) -> None:
    other = library.Tokenizer.from_str(WORDS._json)
    assert other.encode(text).ids == WORDS.encode([text])[0]


@subwords
@given(text=ANY_TEXT, count=st.integers(0, 20))
def test_covered_is_the_longest_prefix_within_the_tokens(kind: str, text: str, count: int) -> None:
    tokenizer = SUBWORDS[kind]
    [ids] = tokenizer.encode([text])
    covered = tokenizer.covered(text, ids[:count])
    assert text.startswith(covered)
    cut = len(b"".join(bytes_of(tokenizer, token) for token in ids[:count]))
    assert len(covered.encode()) <= cut
    assert len(text[: len(covered) + 1].encode()) > cut or covered == text


def bytes_of(tokenizer: Tokenizer, token_id: int) -> bytes:
    """The bytes of a subword, by the published table of byte-level BPE."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}
    return bytes(table[character] for character in tokenizer.token(token_id))


def test_covered_words() -> None:
    assert WORDS.covered("  the  zebra sat", [4, UNKNOWN]) == "the zebra"


@every_kind
def test_decode_stops_at_end_and_shows_unknown(kind: str) -> None:
    tokenizer = ALL[kind]
    [ids] = tokenizer.encode(["the cat"])
    assert tokenizer.decode([START, *ids, END, *ids, END]) == "the cat"
    assert tokenizer.decode([PAD, START, PAD, UNKNOWN, END]) == "<unk>"
    assert tokenizer.decode([END]) == tokenizer.decode([]) == ""


@every_kind
def test_ids_and_tokens_outside_the_vocabulary(kind: str) -> None:
    tokenizer = ALL[kind]
    for wrong in (-1, len(tokenizer)):
        with pytest.raises(TextspaceError, match="ids go from 0"):
            tokenizer.token(wrong)
        with pytest.raises(TextspaceError, match="ids go from 0"):
            tokenizer.decode([wrong])
    with pytest.raises(TextspaceError, match="'catt' is not in the vocabulary"):
        tokenizer.id("catt")


@subwords
def test_broken_unicode_is_an_error(kind: str) -> None:
    with pytest.raises(TextspaceError, match="surrogate"):
        SUBWORDS[kind].encode(["fine", "\udc00"])


# --- files


@every_kind
def test_saved_and_loaded_tokenizers_are_equal(kind: str, tmp_path: Path) -> None:
    tokenizer = ALL[kind]
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.kind == tokenizer.kind == kind
    assert loaded.fingerprint == tokenizer.fingerprint
    texts = [*TEXTS, *ODD_TEXTS]
    assert loaded.encode(texts) == tokenizer.encode(texts)
    assert library.Tokenizer.from_file(str(tmp_path / "tokenizer.json")).get_vocab_size() == len(tokenizer)


def test_fingerprints_tell_tokenizers_apart_but_not_layouts() -> None:
    assert len({tokenizer.fingerprint for tokenizer in ALL.values()}) == 3
    assert train_tokenizer(words_config(size=3), TEXTS).fingerprint != WORDS.fingerprint
    assert Tokenizer(json.dumps(json.loads(WORDS._json))).fingerprint == WORDS.fingerprint


def foreign_tokenizer() -> str:
    return library.Tokenizer(library.models.WordLevel({"[PAD]": 0, "a": 1}, unk_token="[PAD]")).to_str()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        "[]",
        "null",
        WORDS._json[:-20],
        SUBWORDS["bpe"]._json.replace('"ByteLevel"', '"Whitespace"'),
        WORDS._json.replace('"the": 4', '"the": 4000'),
        foreign_tokenizer(),
    ],
    ids=["empty", "object", "list", "null", "cut", "other splitting", "gap", "foreign"],
)
def test_damaged_and_foreign_files_are_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(TextspaceError, match="damaged or is not a Textspace tokenizer"):
        Tokenizer.load(path)


def test_missing_and_binary_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TextspaceError, match="cannot be read"):
        Tokenizer.load(tmp_path / "none.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TextspaceError, match="damaged"):
        Tokenizer.load(tmp_path / "binary.json")


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    """A pipe would be waited for, and a device has no end."""
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "endless.json").symlink_to("/dev/zero")
    for name in ("pipe", "endless"):
        with pytest.raises(TextspaceError, match=rf"{name}.json cannot be read: it is a device or a pipe"):
            Tokenizer.load(tmp_path / f"{name}.json")
