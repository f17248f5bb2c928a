"""The cache of encoded corpora: contents, keys, damage, processes at once, memory."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from helpers import one_warning

from textspace.data.content import Content
from textspace.data.encoded import EncodedCorpus, EncodedSplit, OverLong, _Recipe, encode_corpus
from textspace.data.tokenizers import UNKNOWN_ALIASES, Tokenizer, train_tokenizer
from textspace.errors import TextspaceError


class Record(NamedTuple):
    text: str
    label: str | None = None
    source: int = 0


class Corpus:
    """Stands in for textspace.data.corpus.Corpus."""

    def __init__(self, splits: dict[str, Iterable[Record]], labels: tuple[str, ...] = ()) -> None:
        self.splits, self.labels = splits, labels
        self.report = SimpleNamespace(over_long=0)


RECORDS = [
    Record("the cat sat on the mat", "news", 0),
    Record("  a dog\tslept 😀 ", None, 1),
    Record("", "sport", 2),
    Record("naïve café שלום", "news", 1),
]
LABELS = ("news", "sport")
WORDS_CONFIG = SimpleNamespace(kind="words", size=None, min_count=1, unknown_aliases=UNKNOWN_ALIASES)
WORDS = train_tokenizer(WORDS_CONFIG, [record.text for record in RECORDS])
BYTES = train_tokenizer(SimpleNamespace(kind="bpe", size=260), ["a"])


def small_corpus() -> Corpus:
    return Corpus({"train": RECORDS, "valid": RECORDS[:1]}, LABELS)


def encode(
    corpus: Corpus,
    cache: Path,
    tokenizer: Tokenizer = WORDS,
    max_tokens: int | None = None,
    over_long: OverLong = "drop",
) -> EncodedCorpus:
    return encode_corpus(corpus, tokenizer, cache=cache, max_tokens=max_tokens, over_long=over_long)


def folders(cache: Path) -> set[str]:
    return {path.name for path in cache.iterdir()}


@pytest.mark.parametrize("tokenizer", [WORDS, BYTES], ids=["words", "bytes"])
def test_everything_comes_back(tokenizer: Tokenizer, tmp_path: Path) -> None:
    encoded = encode(small_corpus(), tmp_path, tokenizer)
    assert set(encoded.splits) == {"train", "valid"}
    assert encoded.labels == LABELS
    split = encoded.splits["train"]
    assert len(split) == 4
    assert [split.text(i) for i in range(4)] == [record.text for record in RECORDS]
    ids = tokenizer.encode([record.text for record in RECORDS])
    assert [split.ids(i).tolist() for i in range(4)] == ids
    assert split.lengths.tolist() == [len(own) + 2 for own in ids]
    assert split.words.tolist() == [6, 4, 0, 3]
    assert split.chars.tolist() == [len(record.text) for record in RECORDS]
    assert split.labels.tolist() == [0, -1, 1, 0]
    assert split.sources.tolist() == [0, 1, 2, 1]
    assert split.tokens.dtype == np.uint16
    for outside in (-1, 4):
        with pytest.raises(IndexError):
            split.ids(outside)
        with pytest.raises(IndexError):
            split.text(outside)


def test_arrays_stay_on_disk(tmp_path: Path) -> None:
    split = encode(small_corpus(), tmp_path).splits["train"]
    for array in (split.tokens, split.offsets, split.words, split.chars, split.labels, split.sources):
        assert isinstance(array.base, np.memmap)
        assert not array.flags.writeable


def test_gather_is_the_sentences_end_to_end(tmp_path: Path) -> None:
    split = encode(small_corpus(), tmp_path).splits["train"]
    for rows in ([0, 1, 2, 3], [3, 2, 0], [2], [2, 2, 1, 1], []):
        tokens, counts = split.gather(np.array(rows, np.int64))
        assert tokens.tolist() == [token for row in rows for token in split.ids(row).tolist()]
        assert counts.tolist() == [len(split.ids(row)) for row in rows]


def test_chunks_leave_no_seams(tmp_path: Path) -> None:
    texts = ["w " * (i % 5) + f"{i % 13}" for i in range(20_000)]  # more than two chunks
    tokenizer = train_tokenizer(WORDS_CONFIG, texts)
    split = encode(Corpus({"train": [Record(text) for text in texts]}), tmp_path, tokenizer).splits["train"]
    assert [split.text(i) for i in range(len(split))] == texts
    assert [split.ids(i).tolist() for i in range(len(split))] == tokenizer.encode(texts)


def test_large_vocabularies_need_wider_ids(tmp_path: Path) -> None:
    text = " ".join(str(i) for i in range(70_000))
    tokenizer = train_tokenizer(WORDS_CONFIG, [text])
    split = encode(Corpus({"train": [Record(text)]}), tmp_path, tokenizer).splits["train"]
    assert split.ids(0).tolist() == tokenizer.encode([text])[0]


def test_empty_split(tmp_path: Path) -> None:
    for _ in range(2):  # written, then opened
        split = encode(Corpus({"train": []}), tmp_path).splits["train"]
        assert len(split) == len(split.lengths) == len(split.tokens) == 0


def test_progress_changes_nothing(tmp_path: Path) -> None:
    shown = encode_corpus(small_corpus(), WORDS, cache=tmp_path / "a", max_tokens=None, progress=True)
    quiet = encode(small_corpus(), tmp_path / "b")
    assert shown.splits["train"].tokens.tolist() == quiet.splits["train"].tokens.tolist()


# --- over-long sentences


def test_over_long_sentences_are_dropped_and_counted(tmp_path: Path) -> None:
    corpus = small_corpus()
    for _ in range(2):  # the second time from the cache: still set, not added
        encoded = encode(corpus, tmp_path, max_tokens=4)
        assert corpus.report.over_long == 2  # one in train, one in valid
        split = encoded.splits["train"]
        assert [split.text(i) for i in range(len(split))] == [record.text for record in RECORDS[1:]]
        assert split.labels.tolist() == [-1, 1, 0]
        assert split.sources.tolist() == [1, 2, 1]
        assert len(encoded.splits["valid"]) == 0


def test_truncated_sentences_count_what_is_left(tmp_path: Path) -> None:
    corpus = small_corpus()
    split = encode(corpus, tmp_path, max_tokens=4, over_long="truncate").splits["train"]
    assert corpus.report.over_long == 2
    assert split.ids(0).tolist() == WORDS.encode(["the cat sat on"])[0]
    assert split.text(0) == "the cat sat on"
    assert (split.words[0], split.chars[0], split.lengths[0]) == (4, 14, 6)
    assert split.text(1) == RECORDS[1].text


def test_truncating_inside_a_character_leaves_it_out(tmp_path: Path) -> None:
    corpus = Corpus({"train": [Record("ab😀")]})
    split = encode(corpus, tmp_path, BYTES, max_tokens=4, over_long="truncate").splits["train"]
    assert len(split.ids(0)) == 4
    assert split.text(0) == "ab"
    assert split.chars.tolist() == [2]


# --- keys


def test_the_second_time_nothing_is_encoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = encode(small_corpus(), tmp_path)
    names = folders(tmp_path)
    monkeypatch.setattr(Tokenizer, "encode", lambda *_: pytest.fail("encoded again"))
    second = encode(small_corpus(), tmp_path)
    assert second.splits["train"].fingerprint == first.splits["train"].fingerprint
    assert second.splits["train"].tokens.tolist() == first.splits["train"].tokens.tolist()
    assert folders(tmp_path) == names


def test_whatever_matters_is_in_the_key(tmp_path: Path) -> None:
    base = [Record("a b", "x", 0), Record("c", "y", 1)]
    labels = ("x", "y", "None")

    def key(
        records: list[Record] = base,
        labels: tuple[str, ...] = labels,
        tokenizer: Tokenizer = WORDS,
        max_tokens: int | None = 9,
        over_long: OverLong = "drop",
    ) -> str:
        corpus = Corpus({"train": records}, labels)
        return encode(corpus, tmp_path, tokenizer, max_tokens, over_long).splits["train"].fingerprint

    keys = [
        key(),
        key([Record("a b", "x", 0), Record("d", "y", 1)]),
        key([Record("a bc", "x", 0), Record("", "y", 1)]),
        key([Record("a b", "x", 0), Record("c", "x", 1)]),
        key([Record("a b", "x", 0), Record("c", None, 1)]),
        key([Record("a b", "x", 0), Record("c", "None", 1)]),
        key([Record("a b", "x", 0), Record("c", "y", 2)]),
        key(base[::-1]),
        key(base[:1]),
        key(labels=("y", "x", "None")),
        key(tokenizer=BYTES),
        key(max_tokens=8),
        key(max_tokens=None),
        key(over_long="truncate"),
    ]
    assert len(set(keys)) == len(keys)
    assert key() == keys[0]


# --- damage and accidents


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def lengthen(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\0\0")


def garble(path: Path) -> None:
    path.write_bytes(b"\x93NUMPY garbage {]")


def nest(path: Path) -> None:
    path.write_text('{"a":' * 100_000 + "1" + "}" * 100_000)


def make_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def files(cache: Path) -> dict[str, bytes]:
    return {str(path.relative_to(cache)): path.read_bytes() for path in cache.rglob("*.*") if path.is_file()}


def check_that_damage_is_repaired(corpus: Corpus, cache: Path, whole: dict[str, bytes]) -> None:
    """One line says so, and everything is as it was."""
    with one_warning(f"the cached text in {cache} was damaged (train) and has been encoded again"):
        split = encode(corpus, cache).splits["train"]
    assert [split.text(i) for i in range(4)] == [record.text for record in RECORDS]
    assert files(cache) == whole
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encode(corpus, cache)


@pytest.mark.parametrize("damage", [truncate, empty, lengthen, garble, nest, make_pipe, Path.unlink])
@pytest.mark.parametrize("name", ["tokens.npy", "offsets.npy", "text.npy", "facts.json"])
def test_a_damaged_cache_is_written_again(damage: Callable[[Path], None], name: str, tmp_path: Path) -> None:
    corpus = Corpus({"train": RECORDS}, LABELS)
    encode(corpus, tmp_path)
    whole = files(tmp_path)
    [folder] = tmp_path.iterdir()
    damage(folder / name)
    check_that_damage_is_repaired(corpus, tmp_path, whole)
    assert len(EncodedSplit.open(folder)) == 4


ARRAYS = ["tokens", "offsets", "text", "text_offsets", "words", "chars", "labels", "sources"]
STORED = ["facts.json", *(f"{name}.npy" for name in ARRAYS)]


@pytest.mark.parametrize("name", STORED)
def test_every_flipped_bit_of_the_cache_is_noticed(name: str, tmp_path: Path) -> None:
    corpus = Corpus({"train": RECORDS}, LABELS)
    encode(corpus, tmp_path)
    whole = files(tmp_path)
    [folder] = tmp_path.iterdir()
    assert {path.name for path in folder.iterdir()} == set(STORED)
    content = (folder / name).read_bytes()
    chance = random.Random(name)
    for place in [0, len(content) - 1, *chance.choices(range(len(content)), k=15)]:
        damaged = bytearray(content)
        damaged[place] ^= 1 << chance.randrange(8)
        (folder / name).write_bytes(damaged)
        check_that_damage_is_repaired(corpus, tmp_path, whole)


def test_the_cache_of_another_text_is_not_taken(tmp_path: Path) -> None:
    corpus = Corpus({"train": RECORDS}, LABELS)
    encode(corpus, tmp_path)
    whole = files(tmp_path)
    [folder] = tmp_path.iterdir()
    encode(Corpus({"train": RECORDS[::-1]}, LABELS), tmp_path)
    [other] = set(tmp_path.iterdir()) - {folder}
    shutil.rmtree(folder)
    other.rename(folder)
    check_that_damage_is_repaired(corpus, tmp_path, whole)


def test_several_damaged_splits_are_one_line(tmp_path: Path) -> None:
    encode(small_corpus(), tmp_path)
    for path in tmp_path.glob("*/words.npy"):
        empty(path)
    with one_warning(f"the cached text in {tmp_path} was damaged (train, valid) and has been encoded again"):
        encode(small_corpus(), tmp_path)


def test_fingerprints_are_those_of_earlier_versions() -> None:
    """Run folders store them, and a run is resumed only on text with the same."""
    content = Content("train")
    for _ in content.reading(RECORDS):
        pass
    tokenizer: Any = SimpleNamespace(fingerprint="of the tokenizer")
    fingerprint = _Recipe(tokenizer, 9, "drop", LABELS).fingerprint(content)
    assert fingerprint == "bad32552008a573a61a33fe263cb51107d91d79cde7347738bc9cbc2e78c7006"


class SecondPass:
    """Records that call `act` half-way through the second time they are read."""

    def __init__(self, act: Callable[[], None], records: list[Record] = RECORDS) -> None:
        self.act, self.records, self.reads = act, records, 0

    def __iter__(self) -> Iterator[Record]:
        self.reads += 1
        for number, record in enumerate(self.records):
            if self.reads == 2 and number == len(self.records) // 2:
                self.act()
            yield record


def test_an_interrupted_run_leaves_nothing(tmp_path: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encode(Corpus({"train": SecondPass(interrupt)}, LABELS), tmp_path)
    assert folders(tmp_path) == set()


def test_another_process_may_be_faster(tmp_path: Path) -> None:
    def other() -> None:
        encode(Corpus({"train": RECORDS}, LABELS), tmp_path)

    split = encode(Corpus({"train": SecondPass(other)}, LABELS), tmp_path).splits["train"]
    assert [split.text(i) for i in range(4)] == [record.text for record in RECORDS]
    assert len(folders(tmp_path)) == 1


def test_a_cache_damaged_or_deleted_meanwhile_does_no_harm(tmp_path: Path) -> None:
    opened = []

    def other() -> None:
        opened.append(encode(Corpus({"train": RECORDS}, LABELS), tmp_path).splits["train"])
        empty(next(path for path in tmp_path.glob("*/tokens.npy")).with_name("facts.json"))

    split = encode(Corpus({"train": SecondPass(other)}, LABELS), tmp_path).splits["train"]
    for path in tmp_path.iterdir():
        shutil.rmtree(path)
    for each in (split, *opened):
        assert [each.text(i) for i in range(4)] == [record.text for record in RECORDS]


def test_a_corpus_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    records = list(RECORDS)

    def change() -> None:
        records[-1] = Record("other")

    with pytest.raises(TextspaceError, match="train split changed while"):
        encode(Corpus({"train": SecondPass(change, records)}, LABELS), tmp_path)
    assert folders(tmp_path) == set()


def test_broken_unicode_is_explained(tmp_path: Path) -> None:
    with pytest.raises(TextspaceError, match="sentence 2 of the valid split"):
        encode(Corpus({"valid": [Record("a"), Record("\ud800")]}), tmp_path)


def test_a_cache_that_cannot_be_written_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(TextspaceError, match="cannot be written"):
        encode(small_corpus(), tmp_path / "file")


def test_old_leftovers_of_killed_processes_are_swept(tmp_path: Path) -> None:
    for name, age in (("unfinished-old", 30 * 24 * 3600), ("unfinished-new", 60)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("half")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    encode(small_corpus(), tmp_path)
    assert {name for name in folders(tmp_path) if name.startswith("unfinished")} == {"unfinished-new"}


# --- processes

PROGRAM = """
import os, resource, signal, sys
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple
from textspace.data.encoded import encode_corpus
from textspace.data.tokenizers import UNKNOWN_ALIASES, train_tokenizer

class Record(NamedTuple):
    text: str
    label: str | None = None
    source: int = 0

class Records:
    def __init__(self, count, killed):
        self.count, self.killed, self.reads = count, killed, 0
    def __iter__(self):
        self.reads += 1
        for number in range(self.count):
            if self.killed and self.reads == 2 and number == 20_000:
                os.kill(os.getpid(), signal.SIGKILL)
            yield Record(f"sentence {number} " + "has a good many words in it so that keeping it would show " * 3)

cache, count, killed = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "killed"
config = SimpleNamespace(kind="words", size=50, min_count=1, unknown_aliases=UNKNOWN_ALIASES)
tokenizer = train_tokenizer(config, ["sentence has a good many words in it so that keeping it would show"])
corpus = SimpleNamespace(
    splits={"train": Records(count, killed)}, labels=(), report=SimpleNamespace(over_long=0))
split = encode_corpus(corpus, tokenizer, cache=cache, max_tokens=None).splits["train"]
# In KiB, of this process alone (ru_maxrss would count what the parent had), and before mapped files are read.
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]
print(len(split), int(split.tokens.sum(dtype="int64")), split.fingerprint)
print(peak)
"""


def start(cache: Path, count: int, how: str = "whole") -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", PROGRAM, str(cache), str(count), how]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def finish(process: subprocess.Popen[str]) -> list[str]:
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return output.splitlines()


def test_a_killed_process_leaves_nothing_that_is_trusted(tmp_path: Path) -> None:
    killed = start(tmp_path, 25_000, "killed")
    killed.communicate(timeout=120)
    assert killed.returncode == -signal.SIGKILL
    [leftover] = folders(tmp_path)
    assert leftover.startswith("unfinished-")
    contents, _ = finish(start(tmp_path, 25_000))
    assert contents.startswith("25000 ")
    assert finish(start(tmp_path, 25_000))[0] == contents  # now from the cache


def test_two_processes_at_once_both_succeed(tmp_path: Path) -> None:
    both = [start(tmp_path, 10_000) for _ in range(2)]
    first, second = [finish(process)[0] for process in both]
    assert first == second
    assert len(folders(tmp_path)) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak memory of a process as Linux counts it")
def test_memory_is_flat_in_the_size_of_the_corpus(tmp_path: Path) -> None:
    peaks = [int(finish(start(tmp_path, count))[1]) for count in (20_000, 200_000)]
    # The larger corpus has 32 MiB more text and 20 MiB more arrays.
    assert peaks[1] - peaks[0] < 12 * 1024
