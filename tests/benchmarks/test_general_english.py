from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from benchmarks import general_english
from benchmarks.general_english import SOURCES, chosen, cut, evaluated, splits
from textspace.data.corpus import open_corpus
from textspace.errors import TextspaceError

TASKS = {
    "sts/STS12": "subset\t3.2\tA man's dog barks.\tthe cat sleeps",
    "stsb/test": "genre\tfile\tyear\t2.0\tbirds sing\tthey fly",
    "sick/test": "1\t4.5\tNEUTRAL\tA boy runs\tA girl runs",
    "mrpc/test": "1\tshares fell\tshares rose",
    "cls/CR.all": "0\tnever again !",
}


def _write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))


@pytest.fixture
def corpora(tmp_path) -> Path:
    for name, line in TASKS.items():
        _write(tmp_path / f"{name}.tsv.gz", [line])
    for number, (source, files) in enumerate(SOURCES.items()):
        for name in files:
            lines = [f"{source} {name.partition('.')[0]} says {row}" for row in range(10 + number)]
            if name.endswith(".tsv"):
                lines = [f"1\t{line}" for line in lines]
            _write(tmp_path / source / f"{name}.gz", lines)
    return tmp_path


def test_reviews_are_cut_into_sentences() -> None:
    review = 'I went at 5 p.m. sharp. "So good!" She said (really?) Then 2.50 dollars... were paid. OK'
    assert cut(review) == [
        "I went at 5 p.m. sharp.",
        '"So good!"',
        "She said (really?)",
        "Then 2.50 dollars... were paid.",
        "OK",
    ]


def test_each_sentence_meets_its_fate() -> None:
    first = ["A man 's dog , barks", "", "...", "fine words", "fine words", "word " * 101, "word " * 99 + "word"]
    kept, fates = chosen({"one": first, "two": ["fine words", "Fine words!"]}, frozenset({"a man s dog barks"}))
    assert kept == [("one", "fine words"), ("one", "word " * 99 + "word"), ("two", "Fine words!")]
    assert fates == {
        ("one", "evaluated"): 1,
        ("one", "no words"): 2,
        ("one", "duplicate"): 1,
        ("one", "too long"): 1,
        ("one", "kept"): 2,
        ("two", "duplicate"): 1,
        ("two", "kept"): 1,
    }


def test_all_columns_with_sentences_are_left_out(corpora) -> None:
    said = {"a man s dog barks", "the cat sleeps", "birds sing", "they fly", "a boy runs", "a girl runs"}
    assert evaluated(corpora) == said | {"shares fell", "shares rose", "never again"}


def test_without_files_of_tasks_nothing_is_written(corpora) -> None:
    (corpora / "mrpc" / "test.tsv.gz").unlink()
    with pytest.raises(TextspaceError, match=r"there is no file of tasks in .*mrpc"):
        evaluated(corpora)


def test_splits_are_apart_and_a_subset_is_even() -> None:
    whole = splits(1000, seed=0, held_out=50)
    assert sorted(row for rows in whole.values() for row in rows) == list(range(1000))
    assert len(whole["valid"]) == len(whole["test"]) == 50
    assert splits(1000, seed=1, held_out=50)["valid"] != whole["valid"]
    thin = splits(1000, seed=0, sentences=90, held_out=50)
    assert (thin["valid"], thin["test"]) == (whole["valid"], whole["test"])
    assert len(thin["train"]) == 90
    assert set(thin["train"]) < set(whole["train"])
    steps = {
        whole["train"].index(b) - whole["train"].index(a)
        for a, b in zip(thin["train"], thin["train"][1:], strict=False)
    }
    assert steps == {10}


def test_the_folder_is_a_corpus_and_the_same_every_time(corpora, monkeypatch, capsys) -> None:
    outs = [corpora / "first", corpora / "second"]
    for out in outs:
        monkeypatch.setattr("sys.argv", ["", str(corpora), str(out), "--held-out", "7"])
        general_english.main()
    assert all(
        (outs[0] / f"{name}.txt.gz").read_bytes() == (outs[1] / f"{name}.txt.gz").read_bytes()
        for name in ("train", "valid", "test")
    )
    corpus = open_corpus(str(outs[0]))
    texts = {name: [record.text for record in split] for name, split in corpus.splits.items()}
    assert {name: len(found) for name, found in texts.items()} == {"train": 75, "valid": 7, "test": 7}
    assert "yelp_short extra_train says 3" in texts["train"] + texts["valid"] + texts["test"]
    assert "train: 75 sentences, 300 words" in capsys.readouterr().out
