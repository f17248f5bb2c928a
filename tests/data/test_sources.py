"""Readers: sentences come back as written, odd input is counted, and mistakes get one sentence."""

from __future__ import annotations

import csv
import gc
import gzip
import io
import json
import math
import os
import pickle
import resource
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from textspace.data import sources, streams, tables
from textspace.data.cells import Row
from textspace.data.finding import file_reader, find, find_given
from textspace.data.options import ReadOptions, ReadReport
from textspace.data.sources import Reader, ending, raw_rows, reason
from textspace.data.streams import iterable_reader, stream_reader
from textspace.data.tables import hugging_face_readers
from textspace.errors import TextspaceError


def read(reader: Reader) -> tuple[list[Row], ReadReport]:
    report = ReadReport()
    return list(reader.rows(report)), report


def write(path: Path, content: str | bytes) -> Path:
    data = content.encode("utf-8") if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def rows_of(path: Path, **options: Any) -> list[Row]:
    return read(file_reader(path, ReadOptions(**options)))[0]


def mistake(path: Path, **options: Any) -> str:
    with pytest.raises(TextspaceError) as caught:
        rows_of(path, **options)
    return str(caught.value).replace(str(path.parent), "DIR")


# --- what is written comes back ---

# Not: surrogates (not UTF-8), NUL (a binary file), line ends (another sentence), the byte order mark (dropped at
# the start of a file).
ODD = st.lists(
    st.one_of(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\n\r\ufeff"), max_size=20),
        st.sampled_from("\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\u200f\u202e\xa0 \"'`,;|\\"),
        st.sampled_from(["😀", "👩‍👩‍👧", "שלום", "مرحبا", "e\u0301", "  "]),
    ),
    max_size=6,
).map("".join)


def written(sentences: list[str], kind: str) -> str:
    if kind == ".txt":
        return "".join(f"{sentence}\n" for sentence in sentences)
    if kind == ".jsonl":
        return "".join(json.dumps({"id": 1, "words": each}) + "\n" for each in sentences)
    if kind == ".tsv":
        return "".join(f"id\t{sentence}\n" for sentence in sentences)
    file = io.StringIO()
    csv.writer(file).writerows(["id", sentence] for sentence in sentences)
    return file.getvalue()


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("kind", [".txt", ".tsv", ".csv", ".jsonl"])
@settings(max_examples=60)
@given(sentences=st.lists(ODD, min_size=1, max_size=8))
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, kind: str, packed: str, sentences: list[str]) -> None:
    if kind == ".tsv":
        sentences = [sentence.replace("\t", " ") for sentence in sentences]
    folder = tmp_path_factory.getbasetemp()
    path = write(folder / f"odd{kind}{packed}", written(sentences, kind))
    options = {} if kind == ".txt" else {"text": "words"} if kind == ".jsonl" else {"text": 2, "header": False}
    for _ in range(2):  # and again
        rows, report = read(file_reader(path, ReadOptions(**options)))
        assert [text for text, _ in rows] == sentences
        assert report == ReadReport()


@pytest.mark.parametrize("kind", [".txt", ".tsv", ".csv", ".jsonl"])
def test_very_long_lines(tmp_path: Path, kind: str) -> None:
    long = "word " * 400_000
    path = write(tmp_path / f"long{kind}", written(["short", long], kind))
    options = {} if kind == ".txt" else {"text": 2}
    assert [text for text, _ in rows_of(path, **options)] == ["short", long]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("a.txt", ".txt"),
        ("A.TXT.GZ", ".txt"),
        ("a.b.jsonl", ".jsonl"),
        ("noending", ".txt"),
        ("noending.gz", ".txt"),
        ("a.parquet", ".parquet"),
        ("a.parquet.gz", None),
        ("a.json", None),
    ],
)
def test_ending(name: str, found: str | None) -> None:
    assert ending(Path(name)) == found


# --- bytes ---


def test_line_ends_and_byte_order_mark(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"\xef\xbb\xbfone\r\ntwo\x0bthree\x85\xe2\x80\xa8four\r\n\r\n \t\nlast")
    assert [text for text, _ in rows_of(path)] == ["one", "two\x0bthree�\u2028four", "", " \t", "last"]


@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        (".txt", ["one", "two", "", "three"]),
        (".tsv", ["text\tlabel", "one\tx", "two\ty"]),
        (".csv", ["text,label", '"one, \rhalf",x', "two,y"]),
        (".jsonl", ['{"text": "one"}', '{"text": "two"}']),
    ],
)
def test_carriage_returns_end_lines_where_nothing_else_does(tmp_path: Path, kind: str, lines: list[str]) -> None:
    found = [
        [(text.replace("\n", "\r"), label) for text, label in rows_of(write(tmp_path / f"a{kind}", end.join(lines)))]
        for end in ("\n", "\r")
    ]
    assert found[0] == found[1]
    assert len(found[0]) >= 2


def test_bad_utf8_is_repaired_and_counted_by_line(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"caf\xe9 \xff\ngood\n\xe2\x82\n")
    rows, report = read(file_reader(path, ReadOptions()))
    assert [text for text, _ in rows] == ["caf� �", "good", "�"]
    assert report.bad_utf8 == 2


def test_gzip_is_known_by_its_bytes_too(tmp_path: Path) -> None:
    assert rows_of(write(tmp_path / "a.txt", gzip.compress(b"packed\n"))) == [("packed", None)]


def test_binary(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "text".encode("utf-16"))
    assert mistake(path) == ("'DIR/a.txt' looks like a binary file, not text; if it is UTF-16 text, save it as UTF-8")


@pytest.mark.parametrize("damage", ["cut", "overwritten", "not gzip"])
def test_damaged_gzip(tmp_path: Path, damage: str) -> None:
    whole = gzip.compress("".join(f"{number * 7919}\n" for number in range(50_000)).encode())
    broken = {
        "cut": whole[: len(whole) // 2],
        "overwritten": whole[:2000] + b"\xff" * 500 + whole[2500:],
        "not gzip": b"plain text\n",
    }[damage]
    path = tmp_path / "a.txt.gz"
    path.write_bytes(broken)
    sentence = mistake(path)
    assert sentence.startswith("'DIR/a.txt.gz' is damaged or cut short (")
    assert sentence.endswith("); fetch or write it again")


@pytest.mark.parametrize(
    ("said", "kept"),
    [("too short", "too short"), ("No footer. Fetch it.\nMore.", "No footer"), ("one.", "one"), ("", "ValueError")],
)
def test_reason_is_one_clause(said: str, kept: str) -> None:
    assert reason(ValueError(said)) == kept


def test_permission_denied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.txt", "x\n")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert mistake(path) == "cannot read 'DIR/a.txt': Permission denied"


def test_unknown_ending(tmp_path: Path) -> None:
    assert mistake(write(tmp_path / "a.json", "[]")) == (
        "cannot tell the format of 'DIR/a.json'; its name must end in .txt, .tsv, .csv, .jsonl, .parquet"
        " (all but .parquet also with .gz)"
    )


# --- columns ---


def test_header_is_known_by_a_usual_name(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "id\tLabel \tText\n1\tx\tone\n2\t y \ttwo\n3\t\tthree\n")
    reader = file_reader(path, ReadOptions())
    assert read(reader)[0] == [("one", "x"), ("two", "y"), ("three", None)]
    assert (reader.options.text, reader.options.label) == ("Text", "Label")
    assert str(reader.note).endswith("a.tsv': text in column 'Text' (by its name), label in column 'Label'")


def test_header_is_known_when_a_column_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'verdict,words\ngood,"one, two"\n')
    assert rows_of(path, text="words", label="verdict") == [("one, two", "good")]


def test_header_may_be_forced_either_way(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "a\tbb\ntext\tdd\n")
    assert rows_of(path, text=2, header=True) == [("dd", None)]
    path = write(tmp_path / "b.tsv", "text\nmore\n")
    assert rows_of(path, header=False) == [("text", None), ("more", None)]


def test_without_header_the_longest_column_is_text(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", '\n0\ta sentence\tid1\n1\tanother "one\tid22\n')
    reader = file_reader(path, ReadOptions(label="1"))
    assert read(reader)[0] == [("", None), ("a sentence", "0"), ('another "one', "1")]
    assert (reader.options.text, reader.options.label) == (2, 1)
    assert str(reader.note).endswith("text in column 2 (the longest on average), label in column 1")


def test_columns_asked_for_need_no_note(tmp_path: Path) -> None:
    assert file_reader(write(tmp_path / "a.tsv", "0\tone\n"), ReadOptions(text=2)).note is None


def test_a_label_named_like_text_is_not_text(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "text\twords\nx\tone\n")
    assert rows_of(path, label="text") == [("one", "x")]


def test_rows_that_do_not_fit(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "0\tone\n1\n2\ttwo\n3\tthree\tmore\n")
    rows, report = read(file_reader(path, ReadOptions(label=1)))
    assert rows == [("one", "0"), ("two", "2")]
    assert (report.read, report.bad_rows) == (2, 2)


def test_csv_quotes_and_stray_line_ends(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'text\n"a ""b""\nc"\nstray\rend\n\nlast\n')
    rows, report = read(file_reader(path, ReadOptions()))
    assert [text for text, _ in rows] == ['a "b"\nc', "", "last"]
    assert report.bad_rows == 1


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        ("text;label\none, two;x\nthree;y\n", [("one, two", "x"), ("three", "y")]),
        ('Text;Label\n"one; ""two""\nhalf";x\nragged\n', [('one; "two"\nhalf', "x")]),
        ("0;a sentence\n1;another, long\n", [("a sentence", None), ("another, long", None)]),
    ],
)
def test_csv_with_semicolons(tmp_path: Path, content: str, rows: list[Row]) -> None:
    reader = file_reader(write(tmp_path / "a.csv", content), ReadOptions())
    assert read(reader)[0] == rows
    assert "a.csv' (separated by semicolons): text in column " in str(reader.note)


@pytest.mark.parametrize(
    "lines", [["one; two"], ["one; two", "three"], ["text", "one; two"], ['one;"two', "three", "four"]]
)
def test_semicolons_may_be_text(tmp_path: Path, lines: list[str]) -> None:
    rows = rows_of(write(tmp_path / "a.csv", "\n".join(lines)))
    assert [text for text, _ in rows] == [line for line in lines if line != "text"]


def test_csv_rows_over_several_lines_are_counted(tmp_path: Path) -> None:
    lines = ["text,label", "one,x", '"a', "", 'b",y', '"c" d,z', '"e', '""f""",x', '"g', 'h",x\ry', "last,x"]
    rows, report = read(file_reader(write(tmp_path / "a.csv", "\r\n".join(lines)), ReadOptions()))
    assert [text for text, _ in rows] == ["one", "a\r\n\r\nb", "c d", 'e\r\n"f"', "last"]
    assert report.lines() == [
        "1 row not fitting the columns skipped, 3 rows with line breaks between quotation marks (7 lines)"
    ]


@pytest.mark.parametrize(
    "after", ["", "2,two\n3,three\n", '2,two\n3,"quoted, honestly"\n', '2,two\n3,say "no" to it\n']
)
@pytest.mark.parametrize("before", ["", '0,"over\ntwo lines"\n' * 150])
def test_csv_stray_quotation_mark(tmp_path: Path, before: str, after: str) -> None:
    line = 2 + before.count("\n")
    assert mistake(write(tmp_path / "a.csv", f'label,text\n{before}1,"one\n{after}')) == (
        f"the row that begins in line {line} of 'DIR/a.csv' opens a quotation mark that none closes at the end of a "
        "cell: take the mark out, or close it (inside quotes a mark is written twice)"
    )


def test_a_line_without_end_is_no_line(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "a.txt.gz", "wb", 1) as file:
        file.write(b"one\n" * 5000)
        for _ in range(2**7):
            file.write(b"a" * 2**20)
        file.write(b"a")
    assert mistake(tmp_path / "a.txt.gz") == (
        "'DIR/a.txt.gz' is not text in lines (a line has more than 134,217,728 bytes); give every sentence its own line"
    )


def test_devices_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "endless.tsv").symlink_to("/dev/zero")
    for name in ("/dev/zero", "/dev/urandom", str(tmp_path / "endless.tsv")):
        with pytest.raises(TextspaceError) as caught:
            find(name, ReadOptions())
        assert str(caught.value) == f"{name!r} is a device, not text: name a file"
        with pytest.raises(TextspaceError, match="device, not text"):
            find_given({"train": ["one"], "valid": name}, ReadOptions())
    (nothing,) = find("/dev/null", ReadOptions())
    assert read(nothing.readers[""])[0] == []
    with pytest.raises(TextspaceError, match=r"cannot read .*endless.tsv': it is a device or a pipe"):
        list(raw_rows(tmp_path / "endless.tsv", ReadReport()))


def test_pipes_and_what_is_behind_a_handle_are_text(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"one\ntwo\n")
    os.close(writing)
    with write(tmp_path / "a.txt", "one\ntwo\n").open() as file:
        for handle in (reading, file.fileno()):
            (found,) = find(f"/dev/fd/{handle}", ReadOptions())
            assert read(found.readers[""])[0] == [("one", None), ("two", None)]
    os.close(reading)


def test_links_that_lead_nowhere_are_said_to(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "broken.txt").symlink_to(tmp_path / "none.txt")
    for name in ("loop", "broken.txt"):
        with pytest.raises(TextspaceError, match=rf"'.*{name}' is a link that leads nowhere: name a file"):
            find(tmp_path / name, ReadOptions())


def test_csv_quotation_mark_that_swallows_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = csv.field_size_limit(10)
    monkeypatch.setattr(sources, "LONGEST_LINE", 10)
    try:
        assert "the row that begins in line 2 of" in mistake(
            write(tmp_path / "a.csv", 'a\n"one\ntwo three\nfour"\nb\n')
        )
    finally:
        csv.field_size_limit(before)


@pytest.mark.parametrize("kind", [".tsv", ".csv", ".jsonl"])
def test_blank_files_are_counted_not_fatal(tmp_path: Path, kind: str) -> None:
    rows, report = read(file_reader(write(tmp_path / f"a{kind}", "\n \n"), ReadOptions(text="text")))
    assert [text.strip() for text, _ in rows] == ["", ""]
    assert report.bad_rows == 0


def test_csv_with_nothing_but_broken_rows(tmp_path: Path) -> None:
    rows, report = read(file_reader(write(tmp_path / "a.csv", "a,b\rc,d\r\n"), ReadOptions()))
    assert (rows, report.bad_rows) == ([], 1)


def test_unknown_column(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "text\tlabel\none\tx\n")
    assert mistake(path, label="lable") == "there is no column 'lable' in 'DIR/a.tsv'; did you mean 'label'?"
    path = write(tmp_path / "b.tsv", f"0\t{'long sentence ' * 20}\n")
    assert mistake(path, text="zzz") == (
        "there is no column 'zzz' in 'DIR/b.tsv'; there are '0' and 'long sentence long sentence long sent...'"
    )
    path = write(tmp_path / "c.tsv", "\t".join(f"column{number}" for number in range(50)) + "\n")
    assert mistake(path, text="zzz") == "there is no column 'zzz' in 'DIR/c.tsv'; there are 50 others"


@pytest.mark.parametrize("name", ["a.tsv", "a.jsonl"])
def test_text_and_label_in_one_column(tmp_path: Path, name: str) -> None:
    content = '{"text": "one", "label": "x"}\n' if name.endswith("jsonl") else "text\tlabel\none\tx\n"
    path = write(tmp_path / name, content)
    for columns in ({"text": "text", "label": "text"}, {"text": "label", "label": 2}):
        assert mistake(path, **columns) == f"text and label of 'DIR/{name}' cannot be the same column: name two"


def test_column_number_out_of_range(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "0\tone\n")
    sentence = "there is no column 3 in 'DIR/a.tsv', which has 2 columns, counted from 1"
    assert mistake(path, text=3) == sentence
    assert mistake(path, label="0") == sentence.replace("column 3", "column 0")
    path = write(tmp_path / "b.csv", "one\n")
    assert mistake(path, text=2) == "there is no column 2 in 'DIR/b.csv', which has 1 column, counted from 1"


def test_name_without_header(tmp_path: Path) -> None:
    assert mistake(write(tmp_path / "a.tsv", "0\tone\n"), text="text", header=False) == (
        "'DIR/a.tsv' is read without a header, so give column 'text' by its number, from 1"
    )


def test_only_a_label_column(tmp_path: Path) -> None:
    assert mistake(write(tmp_path / "a.csv", "0\n1\n"), label=1) == (
        "'DIR/a.csv' has no column but the label; name the column of the sentences"
    )


# --- .jsonl ---


def test_json_rows(tmp_path: Path) -> None:
    lines = [
        '{"sentence": "one", "stars": 5}',
        '{"stars": 1, "sentence": "two", "more": [1]}',
        '{"sentence": "three", "stars": null}',
        '{"sentence": 4, "stars": true}',
        '{"sentence": "no label"}',
        '{"sentence": "not a number", "stars": NaN}',
        '{"sentence": NaN, "stars": 1}',
        '{"sentence": null, "stars": 1}',
        '{"sentence": {"nested": "x"}, "stars": 1}',
        '{"sentence": "nested label", "stars": [1]}',
        "not json",
        '["a", "list"]',
        "[" * 100_000,
        "",
    ]
    rows, report = read(file_reader(write(tmp_path / "a.jsonl", "\n".join(lines) + "\n\n"), ReadOptions()))
    assert rows == [
        ("one", "5"),
        ("two", "1"),
        ("three", None),
        ("4", "True"),
        ("no label", None),
        ("not a number", None),
        ("", None),
        ("", None),
    ]
    assert report.bad_rows == 7


@pytest.mark.parametrize("label", [None, "stars"])
def test_json_objects_without_the_labels_key_have_no_label(tmp_path: Path, label: str | None) -> None:
    path = write(
        tmp_path / "a.jsonl", '{"text": "one", "stars": 5}\n{"text": "two"}\n{"text": "three", "stars": null}\n'
    )
    rows, report = read(file_reader(path, ReadOptions(label=label)))
    assert rows == [("one", "5"), ("two", None), ("three", None)]
    assert report == ReadReport()


def test_json_column_by_number_and_late_column(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"a": "x", "b": "one"}\n' * 150 + '{"late": "two"}\n')
    assert rows_of(path, text=2, label=1)[0] == ("one", "x")
    assert rows_of(path, text="late") == [("two", None)]


def test_json_unknown_column(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"sentence": "x"}\n')
    assert mistake(path, text="sentense") == (
        "there is no column 'sentense' in 'DIR/a.jsonl'; did you mean 'sentence'?"
    )


def test_json_surrogates_are_repaired(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"text": "a\\ud800b", "label": "\\ud83d\\ude00"}\n')
    rows, report = read(file_reader(path, ReadOptions()))
    assert rows == [("a�b", "😀")]
    assert report.bad_utf8 == 1


# --- .parquet and Hugging Face datasets ---


def test_parquet(tmp_path: Path) -> None:
    parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    texts = [f"sentence {number}" for number in range(2500)]
    table = {"label": [*range(2499), None], "nested": [[1]] * 2500, "words": [*texts[:-1], None]}
    table["weight"] = [1.0, float("nan")] * 1250
    path = tmp_path / "a.parquet"
    parquet.write_table(arrow.table(table), path)
    reader = file_reader(path, ReadOptions())
    rows, report = read(reader)
    assert rows == list(zip(texts[:-1], map(str, range(2499)), strict=True))
    assert report.bad_rows == 1
    assert (reader.options.text, reader.options.label) == ("words", "label")
    assert [label for _, label in rows_of(path, label="weight")[:3]] == ["1.0", None, "1.0"]
    assert mistake(path, text="word") == "there is no column 'word' in 'DIR/a.parquet'; did you mean 'words'?"
    path.write_bytes(path.read_bytes()[:-20])
    sentence = mistake(path)
    assert sentence.startswith("'DIR/a.parquet' is damaged or cut short (")
    assert "." not in sentence.removeprefix("'DIR/a.parquet'")  # whatever pyarrow says, it is one sentence


@pytest.mark.parametrize(
    ("module", "opener", "source", "what"),
    [
        ("pyarrow.parquet", file_reader, Path("a.parquet"), "a.parquet"),
        ("datasets", hugging_face_readers, "imdb", "hf:imdb"),
    ],
)
def test_without_the_extra(monkeypatch: pytest.MonkeyPatch, module: str, opener: Any, source: Any, what: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(TextspaceError) as caught:
        opener(source, ReadOptions())
    assert str(caught.value) == f'reading {what!r} needs more packages: pip install "textspace[datasets]"'


def test_saved_dataset(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"id": datasets.Value("int64"), "sentence": datasets.Value("string")})
    features["label"] = datasets.ClassLabel(names=["bad", "good"])
    columns = {"id": [1, 2, 3], "sentence": ["one", "two", "three"], "label": [1, 0, -1]}
    train = datasets.Dataset.from_dict(columns, features=features)
    datasets.DatasetDict(train=train, validation=train.select([1])).save_to_disk(str(tmp_path / "saved"))
    readers = hugging_face_readers(str(tmp_path / "saved"), ReadOptions())
    assert readers.keys() == {"train", "validation"}
    assert read(readers["train"])[0] == [("one", "good"), ("two", "bad"), ("three", None)]
    assert read(readers["validation"])[0] == [("two", "bad")]
    assert pickle.loads(pickle.dumps(readers["train"])).options == readers["train"].options  # noqa: S301
    train.save_to_disk(str(tmp_path / "one"))
    assert hugging_face_readers(str(tmp_path / "one"), ReadOptions()).keys() == {""}
    (tmp_path / "none").mkdir()
    with pytest.raises(TextspaceError, match="was not written by save_to_disk; without 'hf:' it is read as"):
        hugging_face_readers(str(tmp_path / "none"), ReadOptions())


class FakeDatasets:
    """Stands for the `datasets` module where the network would be needed."""

    def __init__(self, answers: dict[tuple[str, str | None], Any]) -> None:
        self.answers = answers

    def load_dataset(self, name: str, config: str | None) -> Any:
        answer = self.answers.get((name, config), FileNotFoundError(f"Dataset '{name}' does not exist.\nMore."))
        if isinstance(answer, Exception):
            raise answer
        return answer


def load(monkeypatch: pytest.MonkeyPatch, name: str, answers: dict[tuple[str, str | None], Any]) -> Any:
    monkeypatch.setattr(tables, "_extra", lambda *_: FakeDatasets(answers))
    return tables._load_dataset(name)


def test_dataset_names(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(monkeypatch, "imdb", {("imdb", None): "found"}) == "found"
    assert load(monkeypatch, "org/name", {("org/name", None): "found"}) == "found"
    assert load(monkeypatch, "glue/sst2", {("glue", "sst2"): "found"}) == "found"
    assert load(monkeypatch, "org/name/config", {("org/name", "config"): "found"}) == "found"
    offline = {("glue/sst2", None): ConnectionError("no network"), ("glue", "sst2"): "in the cache"}
    assert load(monkeypatch, "glue/sst2", offline) == "in the cache"


def test_dataset_that_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TextspaceError) as caught:
        load(monkeypatch, "imbd", {})
    assert str(caught.value) == (
        "cannot load the Hugging Face dataset 'imbd' (Dataset 'imbd' does not exist); check its name and the network"
    )
    with pytest.raises(TextspaceError, match=r"\(pick a config\); check"):
        load(monkeypatch, "org/name", {("org/name", None): ValueError("pick a config.")})


# --- streams, iterables, the built-in corpus ---


def test_streams_are_copied_and_cleaned_away() -> None:
    reader = stream_reader("standard input", io.BytesIO(b"one\ntwo\n"), ReadOptions())
    assert read(reader) == read(reader) == ([("one", None), ("two", None)], ReadReport())
    assert isinstance(reader.keep, streams._Spool)
    path = reader.keep.path
    assert path.exists()
    del reader
    gc.collect()
    assert not path.exists()


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where copies of streams go."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def endless(block: bytes) -> Any:
    """A stream of the same block again and again."""

    class Endless(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            size = min(len(buffer), len(block))
            buffer[:size] = block[:size]
            return size

    return io.BufferedReader(Endless())


def repeated(sentence: str) -> Iterator[str]:
    while True:
        yield sentence


def test_a_stream_without_end_is_not_copied_without_end(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MOST_COPIED", 2**25)
    with pytest.raises(TextspaceError, match="'standard input' looks like a binary file"):
        stream_reader("standard input", endless(b"\0" * 8192), ReadOptions())
    lines = b"a line\n" * 1000
    for read_it in (
        lambda: stream_reader("standard input", endless(lines), ReadOptions()),
        lambda: stream_reader("standard input", endless(gzip.compress(lines)), ReadOptions()),
        lambda: iterable_reader("sentences", repeated("word " * 10_000), None, ReadOptions()),
    ):
        with pytest.raises(
            TextspaceError, match=r"(standard input|sentences) has more than 0.03125 GiB, or no end: write the text to"
        ):
            read_it()
        assert not list(scratch.iterdir())


def test_a_copy_leaves_room_on_the_disk(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small one is made on a full disk too, as long as it fits."""
    monkeypatch.setattr(streams, "SHARE_LEFT_FREE", 1.0)
    monkeypatch.setattr(streams, "LEFT_FREE", 2**60)
    assert len(read(stream_reader("standard input", io.BytesIO(b"one\n" * 9000), ReadOptions()))[0]) == 9000
    with pytest.raises(TextspaceError) as caught:
        stream_reader("standard input", endless(b"a line\n" * 1000), ReadOptions())
    assert str(caught.value) == (
        f"cannot copy standard input to {scratch} (the disk is nearly full): write the text to a file first, or set "
        "TMPDIR to a folder with more room"
    )
    gc.collect()
    assert not list(scratch.iterdir())


def test_a_copy_that_cannot_be_written_is_removed(scratch: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, limits[1]))
    try:
        with pytest.raises(TextspaceError, match=r"cannot copy s to .*scratch \(File too large\): write the text to a"):
            stream_reader("s", endless(b"a line\n" * 1000), ReadOptions())
        with pytest.raises(TextspaceError, match=r"cannot copy s to .*scratch \(File too large\): write the text to a"):
            iterable_reader("s", repeated("words " * 1000), None, ReadOptions())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(scratch.iterdir())


def test_what_breaks_while_sentences_are_made_is_not_blamed_on_the_copy(scratch: Path) -> None:
    def breaking() -> Iterator[str]:
        yield "one"
        raise OSError("the sentences broke")

    with pytest.raises(OSError, match="the sentences broke"):
        iterable_reader("s", breaking(), None, ReadOptions())
    assert not list(scratch.iterdir())


def test_copies_of_killed_processes_are_removed(scratch: Path) -> None:
    """Those that nobody has locked, and that are old enough to have been locked."""
    reader = stream_reader("standard input", io.BytesIO(b"one\n"), ReadOptions())
    (in_use,) = scratch.iterdir()
    stale, fresh, other = (scratch / name for name in ("textspace-input-1.txt", "textspace-input-2.txt", "mine.txt"))
    for path in (stale, fresh, other):
        path.write_text("private\n")
    os.mkfifo(scratch / "textspace-input-pipe")
    for path in (in_use, stale, other):
        os.utime(path, (0, 0))
    assert read(stream_reader("standard input", io.BytesIO(b"two\n"), ReadOptions()))[0] == [("two", None)]
    assert read(reader)[0] == [("one", None)]
    assert not stale.exists()
    assert in_use.exists()
    assert fresh.exists()
    assert other.exists()


def test_a_forked_worker_leaves_the_copy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "x")
    streams._remove(str(path), -1, -1)
    assert path.exists()


def test_streams_with_columns() -> None:
    reader = stream_reader("standard input", io.BytesIO(gzip.compress(b"x\tone\n")), ReadOptions(label=1))
    assert read(reader)[0] == [("one", "x")]
    reader = stream_reader("standard input", io.BytesIO(b"words\tmore\na sentence\tx\n"), ReadOptions(header=True))
    assert read(reader)[0] == [("a sentence", None)]


@pytest.mark.parametrize(
    ("content", "options", "told"),
    [
        (b"a\0b", {}, "'standard input' looks like a binary file, not text"),
        (b"text\tx\n", {"label": "z"}, "there is no column 'z' in 'standard input'"),
        (gzip.compress(b"one\n", mtime=0)[:-9], {}, "'standard input' is damaged or cut short"),
    ],
)
def test_streams_are_called_by_their_names(content: bytes, options: dict[str, Any], told: str) -> None:
    with pytest.raises(TextspaceError) as caught:
        read(stream_reader("standard input", io.BytesIO(content), ReadOptions(**options)))
    assert str(caught.value).startswith(told)


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize(
    ("labels", "found"),
    [
        (np.array([1.0, np.nan]), ["1.0", None]),
        (np.array([0.5, np.nan], np.float32), ["0.5", None]),
        (np.array(["x", None], object), ["x", None]),
        (torch.tensor([1, 0]), ["1", "0"]),
        (torch.tensor([1.0, float("nan")]), ["1.0", None]),
        ([np.array("x"), " nan "], ["x", "nan"]),
        ([np.datetime64("NaT"), np.array([1, 2])], [None, "[1 2]"]),
    ],
)
def test_what_stands_for_no_label(labels: Any, found: list[str | None], once: bool) -> None:
    reader = iterable_reader("s", ["one", "two"], iter(labels) if once else labels, ReadOptions())
    assert [label for _, label in read(reader)[0]] == found


def test_pandas_has_its_own_word_for_nothing() -> None:
    pandas = pytest.importorskip("pandas")
    labels = pandas.Series([1, None], dtype="Int64")
    assert read(iterable_reader("s", ["one", "two"], labels, ReadOptions()))[0] == [("one", "1"), ("two", None)]


@pytest.mark.parametrize("once", [False, True])
def test_iterables(once: bool) -> None:
    def given_as(values: list[Any]) -> Any:
        return iter(values) if once else values

    sentences, labels = ["one", "\ud800", "a\nb", ""], [1, None, "x", " "]
    reader = iterable_reader("s", given_as(sentences), given_as(labels), ReadOptions())
    for _ in range(2):
        rows, report = read(reader)
        assert rows == [("one", "1"), ("�", None), ("a\nb", "x"), ("", None)]
        assert report == ReadReport(bad_utf8=1)
    assert read(iterable_reader("s", given_as(["one"]), None, ReadOptions()))[0] == [("one", None)]


@pytest.mark.parametrize(
    ("sentences", "labels", "sentence"),
    [
        ("text", None, "sentences must be a list of strings, not one string; for a file use open_corpus(path)"),
        (None, None, "sentences cannot be of type NoneType: give a string or a list of strings"),
        (np.array("a"), None, "sentences cannot be of type ndarray: give a string or a list of strings"),
        (["a", 1], None, "sentence 2 is of type int; every sentence must be a string"),
        (["a", "b"], [1], "there must be as many labels as sentences, but one ends before number 2"),
        (["a"], [1, 2], "there must be as many labels as sentences, but one ends before number 2"),
    ],
)
def test_iterable_mistakes(sentences: Any, labels: Any, sentence: str) -> None:
    with pytest.raises(TextspaceError) as caught:
        read(iterable_reader("s", sentences, labels, ReadOptions()))
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"valid": 0.6, "test": 0.4}, "valid=0.6 and test=0.4 must be shares from 0 that leave some for training"),
        ({"valid": -0.1}, "valid=-0.1 and test=0.05 must be shares from 0 that leave some for training"),
        ({"valid": "x"}, "valid=x and test=0.05 must be shares from 0 that leave some for training"),
        ({"test": math.nan}, "valid=0.05 and test=nan must be shares from 0 that leave some for training"),
        ({"most": 0}, "most=0 is no number of sentences: give a whole number from 1"),
        ({"most": 1.5}, "most=1.5 is no number of sentences: give a whole number from 1"),
        ({"per_class": 0}, "per_class=0 is no number of sentences: give a whole number from 1"),
        ({"seed": -1}, "a seed cannot be -1: give a whole number from 0"),
        ({"seed": 1.5}, "a seed cannot be 1.5: give a whole number from 0"),
        ({"header": "yes"}, "header='yes' must be True, False or None"),
        ({"label": True}, "True is no column (its name, or its number from 1): give a whole number from 1"),
        ({"most": True}, "most=True is no number of sentences: give a whole number from 1"),
        ({"mixing": "half"}, "mixing='half' is not a mixing rule; there are 'all' and 'balanced'"),
    ],
)
def test_option_mistakes(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(TextspaceError) as caught:
        ReadOptions(**options)
    assert str(caught.value) == sentence


def test_report_lines() -> None:
    assert ReadReport(read=5, kept=5).lines() == []
    report = ReadReport(empty=1, bad_utf8=2000, bad_rows=2, over_long=1, max_tokens=8, notes=["a note"])
    assert report.lines() == [
        "1 empty line skipped, 2,000 lines with bad UTF-8 (\ufffd in its place), 2 rows not fitting the columns"
        " skipped, 1 sentence with more than 8 tokens left out (raise text.max_tokens, or cut with"
        " text.over_long=truncate)",
        "a note",
    ]
    assert ReadReport(over_long=1200, max_tokens=64, cuts=True).lines() == [
        "1,200 sentences with more than 64 tokens cut there (raise text.max_tokens)"
    ]
