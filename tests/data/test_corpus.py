"""Sources become splits: which files, which rows, what is counted, and one sentence for every mistake."""

from __future__ import annotations

import gzip
import io
import os
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from textspace.config import Recipe
from textspace.data.corpus import Corpus, ReadOptions, Record, corpus_of, open_corpus
from textspace.data.preparing import prepare
from textspace.errors import TextspaceError


def write(folder: Path, **files: str) -> Path:
    """Files by name, with "__" for a dot."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content, encoding="utf-8")
    return folder


def numbered(count: int, word: str = "sentence") -> str:
    return "".join(f"{word} {number}\n" for number in range(count))


def sizes(corpus: Corpus) -> dict[str, int]:
    return {name: len(split) for name, split in corpus.splits.items()}


def texts(corpus: Corpus, split: str = "train") -> list[str]:
    return [record.text for record in corpus.splits[split]]


def mistake(source: Any, options: ReadOptions | None = None, **more: Any) -> str:
    with pytest.raises(TextspaceError) as caught:
        open_corpus(source, options or ReadOptions(), **more)
    return str(caught.value)


# --- cutting ---


@settings(max_examples=60)
@given(
    count=st.integers(1, 300),
    valid=st.floats(0, 0.9),
    test=st.floats(0, 0.09),
    most=st.integers(1, 50),
    seed=st.integers(0, 5),
)
def test_a_cut_is_a_partition(count: int, valid: float, test: float, most: int, seed: int) -> None:
    sentences = [f"{number}" for number in range(count)]
    options = ReadOptions(valid=valid, test=test, most=most, seed=seed)
    corpus = corpus_of(sentences, options=options)
    parts = {name: texts(corpus, name) for name in corpus.splits}
    assert sorted(chain.from_iterable(parts.values())) == sorted(sentences)
    assert {name: len(part) for name, part in parts.items()} == sizes(corpus)
    assert all(part == sorted(part, key=int) for part in parts.values())
    for name, share in (("valid", valid), ("test", test)):
        held_out = len(parts.get(name, []))
        assert held_out <= min(most, max(1, share * count))
        assert (held_out >= 1) == (share > 0 and count >= 3)
    assert parts["train"]
    assert {name: texts(corpus_of(sentences, options=options), name) for name in parts} == parts


def test_seeds_differ_and_sizes_are_shares() -> None:
    sentences = [f"{number}" for number in range(1000)]
    first, second = (corpus_of(sentences, options=ReadOptions(seed=seed)) for seed in (0, 1))
    assert sizes(first) == {"train": 900, "valid": 50, "test": 50}
    assert texts(first, "valid") != texts(second, "valid")


def test_cut_counts_kept_rows_only(tmp_path: Path) -> None:
    source = write(tmp_path, a__txt="\n" * 50 + numbered(10).replace("\n", "\n \t \n"), b__txt=numbered(10))
    corpus = open_corpus(source / "a.txt")
    assert {name: texts(corpus, name) for name in corpus.splits} == {
        name: [record.text for record in split] for name, split in open_corpus(source / "b.txt").splits.items()
    }
    assert (corpus.report.read, corpus.report.kept, corpus.report.empty) == (70, 10, 60)


def test_report_counts_once_however_often_read(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes(b"x\tone\n\nx\tcaf\xe9\nbad\nx\t\nx\tthree\n")
    corpus = open_corpus(path, ReadOptions(label=1))
    for _ in range(3):
        assert sum(1 for split in corpus.splits.values() for _ in split) == 3
    report = corpus.report
    assert (report.read, report.kept, report.empty, report.bad_utf8, report.bad_rows) == (6, 3, 2, 1, 1)
    assert report.lines() == [
        "2 empty lines skipped, 1 line with bad UTF-8 (\ufffd in its place), 1 row not fitting the columns skipped",
        "no splits given: cut at random with seed 0 into train 1, valid 1, test 1",
    ]


def test_a_cut_is_told_of_what_was_cut(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n".join(f"sentence {number}" for number in range(40)))
    (tmp_path / "given").mkdir()
    for split in ("train", "valid", "test"):
        (tmp_path / "given" / f"{split}.txt").write_text(f"a {split} sentence\n")
    both = [tmp_path / "a.txt", tmp_path / "given"]
    cut = f"{str(both[0])!r}: no splits given: cut at random with seed 0 into train 36, valid 2, test 2"
    assert open_corpus(both).report.notes == [cut]
    assert open_corpus(both, ReadOptions(valid=0.0, test=0.0)).report.notes == []
    for number in range(4):
        (tmp_path / f"b{number}.txt").write_text("\n".join(f"another {row}" for row in range(20)))
    several = open_corpus([*both, *(tmp_path / f"b{number}.txt" for number in range(4))]).report.notes
    assert len(several) == 1
    assert several[0].endswith(
        " and 2 others: no splits given: cut at random with seed 0 into train 108, valid 6, test 6"
    )


def test_classes_may_be_numbers_of_any_length() -> None:
    longest = "9" * 5000
    corpus = corpus_of(["a", "b", "c", "d"], labels=[longest, "10", "9", "010"])
    assert corpus.labels == ("9", "010", "10", longest)


@pytest.mark.parametrize("first", ["train", "valid", "test"])
def test_held_out_sentences_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str) -> None:
    """While whatever split is read first to its end; and again and again where they are too many to keep."""
    path = tmp_path / "a.txt"
    path.write_text(numbered(100))
    truth = open_corpus(path)
    monkeypatch.setattr("textspace.data.corpus.KEPT", 0)
    apart = {name: texts(truth, name) for name in truth.splits}
    assert sorted(chain.from_iterable(apart.values())) == sorted(numbered(100).splitlines())
    monkeypatch.undo()
    corpus = open_corpus(path)
    next(iter(corpus.splits["train"]))  # not to its end
    assert texts(corpus, first) == apart[first]
    path.write_text("something else\n")
    assert all(texts(corpus, name) == apart[name] for name in ("valid", "test"))
    assert texts(corpus) == ["something else"]
    assert texts(truth, "valid") == []


def test_iterations_may_overlap() -> None:
    split = open_corpus({"train": iter(["one", "two"])}).splits["train"]
    assert [(a.text, b.text) for a, b in zip(split, split, strict=True)] == [("one", "one"), ("two", "two")]


# --- given splits without valid ---


@settings(max_examples=60)
@given(
    count=st.integers(1, 300),
    valid=st.floats(0, 0.9),
    most=st.integers(1, 50),
    seed=st.integers(0, 5),
    with_test=st.booleans(),
)
def test_valid_is_cut_from_train(count: int, valid: float, most: int, seed: int, with_test: bool) -> None:
    sentences = [f"{number}" for number in range(count)]
    source = {"train": sentences, **({"test": ["given", "as it is"]} if with_test else {})}
    options = ReadOptions(valid=valid, most=most, seed=seed)
    corpus = open_corpus(source, options)
    parts = {name: texts(corpus, name) for name in corpus.splits}
    assert parts.pop("test", None) == source.get("test")
    assert sorted(chain.from_iterable(parts.values())) == sorted(sentences)  # so none is in both
    assert {name: len(part) for name, part in parts.items()} == {
        name: size for name, size in sizes(corpus).items() if name != "test"
    }
    held_out = len(parts.get("valid", []))
    assert held_out <= min(most, max(1, valid * count))
    assert (held_out >= 1) == (valid > 0 and count >= 3)
    assert parts["train"]
    assert parts == {
        name: [record.text for record in split]
        for name, split in open_corpus({"train": sentences}, options).splits.items()
    }
    whole = corpus_of(sentences, options=ReadOptions(valid=valid, test=0, most=most, seed=seed))
    assert parts == {name: texts(whole, name) for name in whole.splits}  # the rule of a source without splits
    assert len(corpus.report.notes) == (held_out > 0)


def test_valid_cut_from_train_is_noted(tmp_path: Path) -> None:
    write(tmp_path, train__txt=numbered(100), test__txt=numbered(50, "test"))
    corpus = open_corpus(tmp_path)
    assert sizes(corpus) == {"train": 95, "valid": 5, "test": 50}
    assert list(corpus.splits) == ["train", "valid", "test"]
    assert corpus.report.lines() == ["no validation split given: cut 5 sentences from train with seed 0"]
    assert corpus.report.kept == 150
    other = open_corpus(tmp_path, ReadOptions(seed=7, most=1))
    assert sizes(other) == {"train": 99, "valid": 1, "test": 50}
    assert other.report.lines() == ["no validation split given: cut 1 sentence from train with seed 7"]
    assert set(texts(other, "test")) == set(texts(corpus, "test")) == {f"test {number}" for number in range(50)}


def test_valid_of_zero_cuts_nothing(tmp_path: Path) -> None:
    write(tmp_path, train__txt=numbered(100), test__txt=numbered(50))
    corpus = open_corpus(tmp_path, ReadOptions(valid=0))
    assert (sizes(corpus), corpus.report.lines()) == ({"train": 100, "test": 50}, [])


def test_no_split_is_invented_but_valid(tmp_path: Path) -> None:
    write(tmp_path / "a", train__txt=numbered(100), valid__txt=numbered(10))
    write(tmp_path / "b", valid__txt=numbered(10), test__txt=numbered(10))
    write(tmp_path / "c", train__txt="\n", test__txt=numbered(10))
    write(tmp_path / "d", train__txt=numbered(100), valid__txt="\n")
    found = {name: open_corpus(tmp_path / name) for name in "abcd"}
    assert (sizes(found["a"]), found["a"].report.lines()) == ({"train": 100, "valid": 10}, [])
    assert (sizes(found["b"]), found["b"].report.lines()) == ({"valid": 10, "test": 10}, [])
    assert sizes(found["c"]) == {"test": 10}
    assert found["c"].report.lines() == ["1 empty line skipped", "the train split has no sentences"]
    assert sizes(found["d"]) == {"train": 100}  # a valid split was given, and it is for the user to mend
    assert found["d"].report.lines() == ["1 empty line skipped", "the valid split has no sentences"]


def test_each_source_is_cut_by_what_it_gives(tmp_path: Path) -> None:
    write(tmp_path / "a", train__txt=numbered(100, "a"), valid__txt=numbered(10, "a valid"))
    write(tmp_path / "b", train__txt=numbered(100, "b"), test__txt=numbered(10, "b test"))
    corpus = open_corpus([tmp_path / "a", tmp_path / "b"])
    assert {name: split.source_counts for name, split in corpus.splits.items()} == {
        "train": {0: 100, 1: 95},
        "valid": {0: 10, 1: 5},
        "test": {1: 10},
    }
    assert corpus.report.lines() == [
        f"'{tmp_path / 'b'}': no validation split given: cut 5 sentences from train with seed 0"
    ]


# --- per class ---


def test_per_class_before_the_cut() -> None:
    sentences = [f"{number}" for number in range(400)]
    labels = ["rare" if number % 100 == 0 else "often" for number in range(398)] + [None, None]
    corpus = corpus_of(sentences, labels, ReadOptions(per_class=20))
    found = [record for split in corpus.splits.values() for record in split]
    assert Counter(record.label for record in found) == {"often": 20, "rare": 4}
    assert len({record.text for record in found}) == 24 == corpus.report.kept
    assert corpus.labels == ("often", "rare")
    assert sizes(corpus) == {"train": 22, "valid": 1, "test": 1}
    assert "per_class=20 keeps 24 of 400 sentences" in corpus.report.lines()
    again, other = (corpus_of(sentences, labels, ReadOptions(per_class=20, seed=seed)) for seed in (0, 1))
    assert texts(again) == texts(corpus) != texts(other)


def test_per_class_choice_is_fair() -> None:
    hits: Counter[str] = Counter()
    for seed in range(300):
        options = ReadOptions(per_class=2, seed=seed, valid=0, test=0)
        hits.update(texts(corpus_of(["a", "b", "c", "d", "e"], "xxxxx", options)))
    # Each is kept with chance 2/5: 120 of 300 expected, deviation 8.5.
    assert all(80 < hits[text] < 160 for text in "abcde")


def test_per_class_leaves_given_valid_and_test_whole(tmp_path: Path) -> None:
    rows = "".join(f"{number % 2}\tsentence {number}\n" for number in range(10))
    corpus = open_corpus(write(tmp_path, train__tsv=rows, test__tsv=rows), ReadOptions(label=1, per_class=2))
    assert sizes(corpus) == {"train": 3, "valid": 1, "test": 10}
    assert Counter(record.label for name in ("train", "valid") for record in corpus.splits[name]) == {"0": 2, "1": 2}
    corpus = open_corpus(write(tmp_path, valid__tsv=rows), ReadOptions(label=1, per_class=2))
    assert sizes(corpus) == {"train": 4, "valid": 10, "test": 10}


def test_per_class_without_classes() -> None:
    with pytest.raises(
        TextspaceError, match=r"^per_class=2 needs classes, and 'sentences' has none; name its label column$"
    ):
        corpus_of(["a", "b"], options=ReadOptions(per_class=2))


# --- which file is which split ---


def test_folder(tmp_path: Path) -> None:
    write(tmp_path, train__txt="a\n", dev__txt="b\n", test__txt="c\n", extra_train__txt="d\n", README__md="e")
    (tmp_path / "train.d").mkdir()
    corpus = open_corpus(tmp_path)
    assert {name: texts(corpus, name) for name in corpus.splits} == {"train": ["a"], "valid": ["b"], "test": ["c"]}
    assert list(corpus.splits) == ["train", "valid", "test"]
    assert corpus.name == tmp_path.name
    assert corpus.report.lines() == ["files ignored: README.md, extra_train.txt"]
    assert corpus.splits["valid"].name == "valid"
    assert repr(corpus.splits["valid"]) == "Split('valid', 1 sentences)"


@pytest.mark.parametrize("name", ["valid", "val", "dev", "validation", "VALID"])
def test_names_of_valid(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.jsonl.gz").write_bytes(gzip.compress(b'{"text": "b"}\n'))
    assert texts(open_corpus(write(tmp_path, train__txt="a\n")), "valid") == ["b"]


def test_folder_with_names_before_the_split(tmp_path: Path) -> None:
    write(tmp_path, ptb__train__txt="a\n", ptb__valid__txt="b\n")
    assert sizes(open_corpus(tmp_path)) == {"train": 1, "valid": 1}


def test_folder_with_one_file(tmp_path: Path) -> None:
    corpus = open_corpus(write(tmp_path, all__txt=numbered(20), PROVENANCE__txt="notes", __hidden__txt="x"))
    assert sizes(corpus) == {"train": 18, "valid": 1, "test": 1}
    assert corpus.report.lines()[0] == "files ignored: .hidden.txt, PROVENANCE.txt"


def test_logs_of_training_are_no_text(tmp_path: Path) -> None:
    logs = {"steps__jsonl": '{"event": "step"}\n', "pretraining__jsonl": '{"event": "step"}\n'}
    folder = write(tmp_path, all__txt=numbered(20), **logs)
    for source in (folder, str(folder / "*")):
        corpus = open_corpus(source)
        assert (sizes(corpus), len(corpus.sources)) == ({"train": 18, "valid": 1, "test": 1}, 1)


def test_a_lone_train_file_is_cut(tmp_path: Path) -> None:
    corpus = open_corpus(write(tmp_path, train__txt=numbered(20)))
    assert sizes(corpus) == {"train": 18, "valid": 1, "test": 1}
    assert corpus.report.lines() == ["no splits given: cut at random with seed 0 into train 18, valid 1, test 1"]


def test_many_ignored_files_are_cut_short(tmp_path: Path) -> None:
    write(tmp_path, train__txt="a\n", test__txt="b\n", **{f"n{number}": "x" for number in range(8)})
    assert open_corpus(tmp_path).report.lines() == ["files ignored: n0, n1, n2, n3, n4 and 3 more"]


def test_glob(tmp_path: Path) -> None:
    write(tmp_path, SST2__train__txt="a\n", SST2__test__txt="b\n", SST2__train_phrases__txt="c\n")
    write(tmp_path, SST2_extra_valid__txt="d\n", SST5__train__txt="e\n")
    corpus = open_corpus(str(tmp_path / "SST2*"))
    assert (texts(corpus), texts(corpus, "test"), sizes(corpus)) == (["a"], ["b"], {"train": 1, "test": 1})
    assert corpus.report.lines() == ["files ignored: SST2.train_phrases.txt, SST2_extra_valid.txt"]


def test_glob_with_only_partial_names(tmp_path: Path) -> None:
    write(tmp_path, my_train__txt="a\n", **{"my-test__txt": "b\n"})
    assert sizes(open_corpus(str(tmp_path / "my*"))) == {"train": 1, "test": 1}


def test_glob_without_split_names_is_several_sources(tmp_path: Path) -> None:
    write(tmp_path, a__txt=numbered(40, "a"), b__txt=numbered(20, "b"), LICENSE__txt="no")
    corpus = open_corpus(str(tmp_path / "*.txt"), ReadOptions(mixing="balanced"))
    assert sizes(corpus) == {"train": 54, "valid": 3, "test": 3}
    assert [Path(name).name for name in corpus.sources] == ["a.txt", "b.txt"]
    assert corpus.splits["train"].source_counts == {0: 36, 1: 18}
    assert {record.source for record in corpus.splits["train"] if record.text[0] == "b"} == {1}
    assert corpus.mixing == "balanced"


def test_columns_of_the_first_file_hold_for_all(tmp_path: Path) -> None:
    write(tmp_path, train__tsv="short\ta long sentence\n", test__tsv="a long sentence\tshort\n")
    assert texts(open_corpus(tmp_path), "test") == ["short"]
    write(tmp_path / "glob", a__tsv="short\ta long sentence\n", b__tsv="a long sentence\tshort\n")
    assert texts(open_corpus(str(tmp_path / "glob" / "*"))) == ["a long sentence", "short"]
    given = {"test": tmp_path / "test.tsv", "train": tmp_path / "train.tsv"}  # in whatever order
    assert texts(open_corpus(given), "test") == ["short"]


def test_a_class_that_reads_like_a_column_is_none_where_the_first_file_has_no_header(tmp_path: Path) -> None:
    write(tmp_path, train__tsv="it is so\tstatement\n" * 9, test__tsv="is it so ?\tquestion\nit is\tstatement\n")
    corpus = open_corpus(tmp_path, ReadOptions(text=1, label=2))
    assert texts(corpus, "test") == ["is it so ?", "it is"]
    assert corpus.labels == ("question", "statement")


@pytest.mark.parametrize("source", ["", " ", ["builtin:9", ""]])
def test_a_source_without_a_name_is_not_the_folder_one_is_in(source: Any, tmp_path: Path, monkeypatch) -> None:
    write(tmp_path, train__txt="a secret\n")
    monkeypatch.chdir(tmp_path)
    assert mistake(source) == "a source has no name: give a file, a folder or builtin"


def test_labels_may_be_an_array() -> None:
    corpus = corpus_of(["a b", "c d", "e f"], labels=np.array([0, 1, 0]))
    assert corpus.labels == ("0", "1")
    assert corpus_of(["a b", "c d", "e f"], labels=np.array([0.0, np.nan, 1.0])).labels == ("0.0", "1.0")


# --- several sources, mappings, standard input ---


def test_list_of_sources(tmp_path: Path) -> None:
    write(tmp_path / "given", train__txt="a\n", valid__txt="b\n")
    write(tmp_path, cut__tsv="x\tlong text\n" * 20)
    corpus = open_corpus([str(tmp_path / "given"), tmp_path / "cut.tsv"], ReadOptions(label=1))
    assert sizes(corpus) == {"train": 19, "valid": 2, "test": 1}
    assert list(corpus.splits["valid"]) == [Record("b", None, 0), Record("long text", "x", 1)]
    assert corpus.name == "given+cut"


def test_mapping(tmp_path: Path) -> None:
    write(tmp_path, a__txt="a\nb\n", train__txt="c\n", test__txt="d\n")
    source: Mapping[str, Any] = {
        "test": tmp_path,
        "train": tmp_path / "a.txt",
        "valid": (word for word in ["x", "y"]),
    }
    corpus = open_corpus(source)
    assert {name: texts(corpus, name) for name in corpus.splits} == {
        "train": ["a", "b"],
        "valid": ["x", "y"],
        "test": ["d"],
    }


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(numbered(10).encode())))
    corpus = open_corpus("-")
    assert corpus.name == "standard input"
    assert len(texts(corpus)) == len(texts(corpus)) == 8
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"a\0b")))
    assert mistake("-").startswith("'standard input' looks like a binary file")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_named_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("one\ntwo\n",))
    writer.start()
    corpus = open_corpus(pipe)
    writer.join()
    assert texts(corpus) == texts(corpus) == ["one", "two"]


def test_a_corpus_that_was_normalised_otherwise_than_the_recipe_says_is_refused(tmp_path: Path) -> None:
    write(tmp_path, a__txt="Anna Sees\n" * 5)
    recipe = Recipe().but({"text.normalise": ["lower", "html"]})
    opened: list[Callable[..., Corpus]] = [
        partial(open_corpus, tmp_path / "a.txt"),
        partial(open_corpus, {"train": ["Anna"]}),
        partial(open_corpus, [tmp_path / "a.txt", "builtin:5"]),
        partial(corpus_of, ["Anna"] * 5),
    ]
    for corpus in opened:
        assert prepare(corpus(normalise=["lower", "html"]), recipe).corpus.normalise == ("lower", "html")
        assert prepare(corpus(normalise="lower"), Recipe().but({"text.normalise": ["lower"]}))
        for names in ([], ["html", "lower"]):
            told = re.escape(
                f"was opened with normalise={names} and the recipe has text.normalise=['lower', 'html']: open it with"
            )
            with pytest.raises(TextspaceError, match=told):
                prepare(corpus(normalise=names), recipe)
    with pytest.raises(TextspaceError, match="there is no normaliser 'lowr'; did you mean 'lower'"):
        open_corpus("builtin:5", normalise=["lowr"])


def test_null_and_nan_are_words_where_all_cells_are_words(tmp_path: Path) -> None:
    write(
        tmp_path,
        a__csv="text,label\nno,NaN\nfew,null\nmany,\n",
        a__tsv="text\tlabel\nno\tNaN\nfew\tnull\nmany\t\n",
        a__jsonl='{"text": "no", "label": NaN}\n{"text": "few", "label": null}\n{"text": "many"}\n',
    )
    found = {name: open_corpus(tmp_path / f"a.{name}").labels for name in ("csv", "tsv", "jsonl")}
    assert found == {"csv": ("NaN", "null"), "tsv": ("NaN", "null"), "jsonl": ()}


def test_normalisers_come_before_counting(tmp_path: Path) -> None:
    corpus = open_corpus({"train": ["<br>", "A <b>Cat</b>", "a\r\nb"]}, normalise=["html", "lower"])
    assert texts(corpus) == ["a cat", "a b"]
    assert corpus.report.empty == 1


def test_labels_are_in_order() -> None:
    assert corpus_of(["a", "b", "c"], [10, 9, 1]).labels == ("1", "9", "10")
    assert corpus_of(["a", "b", "c"], ["x10", "x9", None]).labels == ("x10", "x9")


# --- the built-in corpus and Hugging Face datasets ---


@pytest.fixture
def fake_english(monkeypatch: pytest.MonkeyPatch) -> None:
    def sample(count: int, seed: int) -> Iterator[SimpleNamespace]:
        for number in range(count):
            factors = {"topic": "food", "tense": f"tense {seed}"}
            yield SimpleNamespace(text=f"{seed} {number}", factors=factors)

    module = ModuleType("textspace.data.english")
    module.english = lambda: SimpleNamespace(sample=sample)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)


@pytest.mark.usefixtures("fake_english")
def test_builtin() -> None:
    assert sizes(open_corpus("builtin")) == {"train": 20_000, "valid": 2_000, "test": 2_000}
    corpus = open_corpus("builtin:15")
    assert sizes(corpus) == {"train": 15, "valid": 1, "test": 1}
    assert (corpus.name, corpus.labels) == ("builtin:15", ("food",))
    seeds = {record.text.split()[0] for split in corpus.splits.values() for record in split}
    assert len(seeds) == 3
    assert len(open_corpus("builtin:9", ReadOptions(label="tense")).labels) == 3


@pytest.mark.usefixtures("fake_english")
def test_builtin_mistakes() -> None:
    for name in ("builtin:", "builtin:0", "builtin:many", "builtin:" + "9" * 5000):
        assert mistake(name) == (
            f"{name!r} must be 'builtin' or 'builtin:N' with N training sentences, from 1 to 999999999"
        )
    assert mistake("builtin:9", ReadOptions(label="tens")) == (
        "the built-in corpus has no label 'tens'; did you mean 'tense'?"
    )


def test_saved_dataset(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_dict({"text": [f"{number}" for number in range(20)]})
    data.save_to_disk(str(tmp_path / "one"))
    assert sizes(open_corpus(f"hf:{tmp_path / 'one'}")) == {"train": 18, "valid": 1, "test": 1}
    splits = {"train": data, "validation": data.select([1]), "unsupervised": data}
    datasets.DatasetDict(splits).save_to_disk(str(tmp_path / "some"))
    corpus = open_corpus(tmp_path / "some")  # known without the "hf:"
    assert sizes(corpus) == {"train": 20, "valid": 1}
    assert corpus.report.lines()[-1] == "other splits ignored: unsupervised"
    datasets.DatasetDict(a=data, b=data).save_to_disk(str(tmp_path / "odd"))
    assert mistake(f"hf:{tmp_path / 'odd'}") == (
        f"'hf:{tmp_path / 'odd'}' has no split named train, validation or test but a, b; rename one"
    )


# --- mistakes ---


def test_missing_file(tmp_path: Path) -> None:
    write(tmp_path, train__txt="a\n", other__txt="b\n")
    assert mistake(tmp_path / "trian.txt") == (
        f"there is no file '{tmp_path / 'trian.txt'}'; did you mean 'train.txt'?"
    )
    assert mistake(tmp_path / "none" / "a.txt") == (
        f"there is no file '{tmp_path / 'none' / 'a.txt'}', nor a folder '{tmp_path / 'none'}'; check the path"
    )


def test_unreadable_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "none", picture__png="x", README__txt="x")
    assert mistake(tmp_path / "none") == (
        f"the folder '{tmp_path / 'none'}' holds no file that can be read; name another or a file"
    )
    write(tmp_path / "many", a__txt="x\n", b__txt="y\n")
    assert mistake(tmp_path / "many") == (
        f"the folder '{tmp_path / 'many'}' holds no train, valid or test file but 2 others; name one of them,"
        f" or mix all with '{tmp_path / 'many' / '*'}'"
    )
    write(tmp_path / "twice", **{"A.train__txt": "x\n", "B.train__tsv": "y\n"})
    assert mistake(tmp_path / "twice") == (
        f"'{tmp_path / 'twice'}' has 2 files for the train split (A.train.txt, B.train.tsv);"
        " narrow it down with a glob, or name one file"
    )
    monkeypatch.setattr(Path, "iterdir", lambda _: (_ for _ in ()).throw(PermissionError(13, "Permission denied")))
    assert mistake(tmp_path / "many") == f"cannot read '{tmp_path / 'many'}': Permission denied"


def test_empty_glob(tmp_path: Path) -> None:
    pattern = str(tmp_path / "*.txt")
    assert mistake(pattern) == f"no file that can be read matches {pattern!r}; check the pattern"


def test_nothing_left(tmp_path: Path) -> None:
    write(tmp_path, a__txt="", b__txt=" \n\n", c__tsv="x\ty\nz\n")
    advice = "; give a source with at least one sentence"
    assert mistake(tmp_path / "a.txt") == f"nothing is left of 'a' (it is empty){advice}"
    assert mistake(tmp_path / "b.txt") == f"nothing is left of 'b' (2 empty lines skipped){advice}"
    assert mistake(tmp_path / "c.tsv", ReadOptions(text=2, header=True)) == (
        f"nothing is left of 'c' (1 row not fitting the columns skipped){advice}"
    )
    with pytest.raises(TextspaceError, match=r"^nothing is left of 'sentences'"):
        corpus_of([])


def test_an_empty_given_split_is_noted(tmp_path: Path) -> None:
    corpus = open_corpus(write(tmp_path, train__txt="a\n", valid__txt="\n"))
    assert sizes(corpus) == {"train": 1}
    assert corpus.report.lines() == ["1 empty line skipped", "the valid split has no sentences"]


def test_columns_where_there_are_none(tmp_path: Path) -> None:
    write(tmp_path, a__txt="a\n")
    assert mistake(tmp_path / "a.txt", ReadOptions(label=1)) == (
        "'a' has no columns, so none can be asked for; use a .tsv, .csv or .jsonl file"
    )
    assert mistake(tmp_path / "a.txt", ReadOptions(header=True)) == (
        "'a' has no columns, so no header names them; use a .tsv or .csv file, or no header"
    )
    assert texts(open_corpus(tmp_path / "a.txt", ReadOptions(header=False))) == ["a"]
    write(tmp_path, b__tsv="\n")
    assert mistake(tmp_path / "b.tsv", ReadOptions(header=True)).startswith("nothing is left of 'b'")


def test_options_that_are_none(tmp_path: Path) -> None:
    write(tmp_path, a__txt="a\n")
    told = "options are of type dict: give those of textspace.data.options, such as ReadOptions(valid=0.1)"
    assert mistake(tmp_path / "a.txt", {"valid": 0.1}) == told
    with pytest.raises(TextspaceError, match="options are of type dict"):
        corpus_of(["a"], options={"valid": 0.1})  # type: ignore[arg-type]


def test_wrong_kinds_of_source(tmp_path: Path) -> None:
    assert mistake({"train": None}) == "sentences cannot be of type NoneType: give a string or a list of strings"
    for source in ((word for word in "ab"), [["a"]], 3):
        assert mistake(source) == "a source is a name or a list of names; for sentences themselves use corpus_of"
    assert mistake("a sentence, not a path. " * 50).endswith(": File name too long")
    assert mistake([]) == "the list of sources is empty; give at least one"
    assert mistake({"training": ["a"]}) == "there is no split 'training'; did you mean 'train'?"
    write(tmp_path, train__txt="a\n", test__txt="b\n")
    assert mistake({"valid": tmp_path}) == (f"'{tmp_path}' is not one stream for the split 'valid'; name a single file")


def test_mistakes_in_a_later_file_come_out_whole(tmp_path: Path) -> None:
    write(tmp_path, train__tsv="text\tlabel\na\tx\n", test__tsv="sentence\tlabel\na\tx\n")
    assert mistake(tmp_path) == (
        f"there is no column 'text' in '{tmp_path / 'test.tsv'}'; there are 'sentence' and 'label'"
    )


# --- weight ---


def test_import_is_light() -> None:
    code = "import sys, textspace.data.corpus; print({'torch', 'datasets', 'pyarrow'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_memory_does_not_grow_with_the_source() -> None:
    import tracemalloc

    class Many:
        """Re-iterable sentences that are never all in memory."""

        def __iter__(self) -> Iterator[str]:
            return (f"sentence number {number}" for number in range(50_000))

    tracemalloc.start()
    corpus = corpus_of(Many(), options=ReadOptions(most=100))
    total = sum(1 for _ in corpus.splits["train"])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total == 49_800
    assert peak < 1_000_000


# --- real corpora ---


@pytest.mark.corpora
@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("ptb", {"train": 42_068, "valid": 3_370, "test": 3_761}),
        ("yelp_short", {"train": 100_000, "valid": 10_000, "test": 10_000}),
        ("flickr30k", {"train": 145_000, "valid": 5_070, "test": 5_000}),
        ("brown", {"train": 51_606, "valid": 2_867, "test": 2_867}),
        ("cls/SST2.*", {"train": 6_920, "valid": 872, "test": 1_821}),
        ("cls/TREC.*", {"train": 5_180, "valid": 272, "test": 500}),
        ("semeval15_cqa", {"valid": 1_645, "test": 1_976}),
        ("sts/*", {"train": 11_292, "valid": 626, "test": 626}),
    ],
)
def test_real_corpora(source: str, expected: dict[str, int]) -> None:
    folder = os.environ.get("TEXTSPACE_CORPORA")
    if not folder:
        pytest.skip("TEXTSPACE_CORPORA does not name the folder of the real corpora")
    corpus = open_corpus(str(Path(folder) / source))
    assert sizes(corpus) == expected
    assert {name: sum(1 for _ in split) for name, split in corpus.splits.items()} == expected
