"""Files of codes: round trips, streaming, files written whole or not at all, and a sentence for every bad file."""

from __future__ import annotations

import io
import json
import os
import pickle
import subprocess
import sys
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse

from textspace.codes import FORMATS, CodeWriter, read_codes
from textspace.errors import TextspaceError

ENDINGS = sorted(FORMATS)
TEXTS = ["naïve café שלום 😀", 'she said "no", twice\r', "two\nlines \u2028 and\ttabs", ""]
LABELS = ["news", None, "a,b", "ünïcode"]
LIMITS = np.finfo(np.float32)
EXTREMES = np.array(
    [
        [LIMITS.max, LIMITS.min, LIMITS.tiny],
        [LIMITS.smallest_subnormal, -LIMITS.smallest_subnormal, LIMITS.eps],
        [0.0, -0.0, 1 / 3],
        [16777215, 0.1, np.nextafter(np.float32(1), np.float32(2))],
    ],
    np.float32,
)


def same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def written(path: Path, codes: np.ndarray, *columns: Any) -> Path:
    with CodeWriter(path, codes.shape[1]) as writer:
        writer.write(codes, *columns)
    return path


def sentence(path: Path | str, dim: int | None = None) -> str:
    """The error of reading, which must be one lower-case sentence without its full stop."""
    with pytest.raises(TextspaceError) as caught:
        read_codes(path, dim=dim)
    said = str(caught.value)
    name = "standard input" if path == "-" else str(path)
    assert "\n" not in said
    assert not said.endswith(".")
    assert name in said
    assert said.startswith(name) or said[0].islower()
    return said.replace(str(path), Path(path).name)


# --- round trips ---


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_float32_comes_back_bit_for_bit(tmp_path: Path, ending: str) -> None:
    bits = np.random.default_rng(0).integers(0, 2**32, (2000, 8), np.uint32).view(np.float32)
    bits[~np.isfinite(bits)] = 0
    path = written(tmp_path / f"codes{ending}", bits)
    assert same_bits(read_codes(path, dim=8), bits)
    path = written(tmp_path / f"extremes{ending.upper()}", EXTREMES, TEXTS, LABELS)
    assert same_bits(read_codes(str(path)), EXTREMES)


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("chunks", [[], [0], [1], [3, 0, 1]])
def test_chunks_are_appended(tmp_path: Path, ending: str, chunks: list[int]) -> None:
    path, row = tmp_path / f"codes{ending}", 0
    with CodeWriter(path, 3) as writer:
        for size in chunks:
            reused = EXTREMES[row : row + size].copy()
            writer.write(reused, TEXTS[row : row + size], LABELS[row : row + size])
            reused[:] = 7  # what is written does not change with the caller's array
            row += size
    assert same_bits(read_codes(path, dim=3), EXTREMES[:row])
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("dtype", ["float16", "float64"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_other_dtypes(tmp_path: Path, ending: str, dtype: str) -> None:
    codes = np.random.default_rng(1).normal(size=(50, 2)).astype(dtype)
    with CodeWriter(tmp_path / f"codes{ending}", 2, dtype=dtype) as writer:
        writer.write(codes)
    assert same_bits(read_codes(tmp_path / f"codes{ending}"), codes.astype(np.float32))


def test_other_programs_find_codes_texts_and_labels(tmp_path: Path) -> None:
    import csv

    paths = {ending: written(tmp_path / f"codes{ending}", EXTREMES, TEXTS, LABELS) for ending in ENDINGS}
    assert same_bits(np.load(paths[".npy"], allow_pickle=False), EXTREMES)
    with np.load(paths[".npz"], allow_pickle=False) as members:
        assert list(members) == ["codes"]
        assert same_bits(members["codes"], EXTREMES)
    with paths[".csv"].open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == ["z0", "z1", "z2", "text", "label"]
    assert [row["text"] for row in rows] == TEXTS
    assert [row["label"] or None for row in rows] == LABELS
    objects = [json.loads(line) for line in paths[".jsonl"].read_bytes().splitlines()]
    assert [list(value) for value in objects] == [["text", "label", "code"]] * 4
    assert [value["text"] for value in objects] == TEXTS
    assert [value["label"] for value in objects] == LABELS
    assert "שלום" in paths[".jsonl"].read_text(encoding="utf-8")
    table = pq.read_table(paths[".parquet"])
    assert table.schema.field("code").type == pa.list_(pa.float32(), 3)
    assert table["text"].to_pylist() == TEXTS
    assert table["label"].to_pylist() == LABELS


def test_without_texts_there_are_no_columns_for_them(tmp_path: Path) -> None:
    assert written(tmp_path / "codes.csv", np.ones((1, 2))).read_text() == "z0,z1\n1,1\n"
    assert written(tmp_path / "codes.jsonl", np.ones((1, 2))).read_text() == '{"code": [1,1]}\n'


def test_small_chunks_share_a_row_group(tmp_path: Path) -> None:
    with CodeWriter(tmp_path / "codes.parquet", 4) as writer:
        for start in range(0, 40_000, 100):
            writer.write(np.full((100, 4), start))
    assert pq.ParquetFile(tmp_path / "codes.parquet").num_row_groups == 3
    assert (read_codes(tmp_path / "codes.parquet")[:, 0] == np.arange(40_000) // 100 * 100).all()


def test_npy_is_mapped(tmp_path: Path) -> None:
    codes = read_codes(written(tmp_path / "codes.npy", EXTREMES))
    assert isinstance(codes.base, np.memmap)


def test_files_of_other_programs(tmp_path: Path) -> None:
    ints = np.arange(6).reshape(3, 2)
    np.save(tmp_path / "ints.npy", np.asfortranarray(ints.astype(">i8")))
    np.savez_compressed(tmp_path / "one.npz", ints)
    np.savez(tmp_path / "two.npz", other=np.ones(3), codes=ints)
    pq.write_table(pa.table({"id": [1, 2, 3], "code": ints.tolist()}), tmp_path / "lists.parquet")
    (tmp_path / "bom.csv").write_bytes(b'\xef\xbb\xbfid,z1,z0\r\n"a",1,0\r\n\r\nb,3,2\r\nc,5,4\n')
    (tmp_path / "spaced.jsonl").write_text('{"code": [0, 1]}\n\n{"x": {}, "code": [2, 3.0]}\r\n{"code": [4, 5]}')
    for name in ("ints.npy", "one.npz", "two.npz", "lists.parquet", "bom.csv", "spaced.jsonl"):
        assert same_bits(read_codes(tmp_path / name, dim=2), ints.astype(np.float32)), name


def test_a_vector_is_one_code(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.ones(5))
    assert read_codes(tmp_path / "one.npy", dim=5).shape == (1, 5)
    assert (
        sentence(tmp_path / "one.npy", 4)
        == "one.npy has 5 columns and this space has 4 dimensions: give codes that this space made"
    )


def test_long_texts(tmp_path: Path) -> None:
    for ending in (".csv", ".jsonl", ".parquet"):
        assert len(read_codes(written(tmp_path / f"long{ending}", np.ones((1, 1)), ["ab" * 200_000]))) == 1


# --- standard input and output ---


def feed(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))


@pytest.mark.parametrize("path", ["-", None])
def test_standard_output_to_standard_input(
    path: str | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with CodeWriter(path, 3) as writer:
        writer.write(EXTREMES[:1], TEXTS[:1], LABELS[:1])
        writer.write(EXTREMES[1:], TEXTS[1:], LABELS[1:])
    output = capsys.readouterr().out
    assert [json.loads(line)["text"] for line in output.split("\n")[:-1]] == TEXTS
    feed(monkeypatch, output.encode())
    assert same_bits(read_codes("-", dim=3), EXTREMES)


def test_standard_output_that_is_not_utf8(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(buffer, encoding="cp1252"))
    with CodeWriter("-", 1) as writer:
        writer.write(np.ones((1, 1)), TEXTS[:1])
    assert json.loads(buffer.getvalue())["text"] == TEXTS[0]


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    feed(monkeypatch, b"z0,z1,text\n1,2,a\n")
    assert read_codes("-").tolist() == [[1, 2]]
    feed(monkeypatch, b"")
    assert read_codes("-", dim=4).shape == (0, 4)
    feed(monkeypatch, b'\n{"code": [1, 2]}\n')
    assert read_codes("-").tolist() == [[1, 2]]
    feed(monkeypatch, b'{"code": [1]}\n')
    assert (
        sentence("-", 2)
        == "standard input has 1 column and this space has 2 dimensions: give codes that this space made"
    )
    feed(monkeypatch, b"the cat sat\n")
    assert sentence("-") == "standard input must name columns z0, z1 and so on without a gap in its first line"


# --- whole or not at all ---


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_exception_leaves_what_was_there(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"codes{ending}"

    def interrupted() -> None:
        with CodeWriter(path, 3) as writer:
            writer.write(EXTREMES)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert os.listdir(tmp_path) == []
    written(path, EXTREMES[:2])
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert os.listdir(tmp_path) == [path.name]
    assert same_bits(read_codes(path), EXTREMES[:2])
    written(path, EXTREMES)  # and a complete one takes its place
    assert len(read_codes(path)) == 4


def test_an_error_of_the_caller_is_not_about_writing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="corpus"), CodeWriter(tmp_path / "codes.npy", 1):
        raise FileNotFoundError("corpus")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("ending", [".npy", ".npz", ".csv", ".jsonl"])
def test_a_full_disk_is_one_sentence(tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    true_open = Path.open
    monkeypatch.setattr(Path, "open", lambda path, *a, **k: true_open(Path("/dev/full"), *a, **k))
    path = tmp_path / f"codes{ending}"
    with pytest.raises(TextspaceError, match=r"^cannot write .*: No space left on device$"):
        written(path, np.ones((100_000, 3)))
    assert os.listdir(tmp_path) == []


def test_permissions_are_the_usual_ones(tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    path = written(tmp_path / "codes.npy", EXTREMES)
    assert path.stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_what_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(TextspaceError, match=r"^cannot write .*folder\.npy: it is a folder$"):
        CodeWriter(tmp_path / "folder.npy", 2).__enter__()
    with pytest.raises(TextspaceError, match=r"^cannot write .*nowhere/codes\.npy: No such file or directory$"):
        CodeWriter(tmp_path / "nowhere" / "codes.npy", 2).__enter__()
    with pytest.raises(TextspaceError, match=r"^the ending of codes\.nyp is not .*; did you mean '\.npy'"):
        CodeWriter("codes.nyp", 2)


def test_codes_that_cannot_be_written(tmp_path: Path) -> None:
    bad = np.concatenate([EXTREMES, [[1, 2, 3], [1, np.nan, 3]]])
    with pytest.raises(TextspaceError, match=r"^the code of sentence 6 has a number that is NaN, .* float32$"):
        written(tmp_path / "codes.npy", bad)
    with (
        pytest.raises(TextspaceError, match="too large for float16"),
        CodeWriter(tmp_path / "codes.npy", 3, dtype="float16") as writer,
    ):
        writer.write(EXTREMES)
    assert os.listdir(tmp_path) == []


def test_wrong_calls(tmp_path: Path) -> None:
    path = tmp_path / "codes.csv"
    for arguments in ({"dim": 0}, {"dim": 2, "dtype": "int32"}):
        with pytest.raises(ValueError, match="dim="):
            CodeWriter(path, **arguments)
    with CodeWriter(path, 3) as writer:
        with pytest.raises(ValueError, match="shape"):
            writer.write(np.ones((2, 4)))
        with pytest.raises(ValueError, match="as many"):
            writer.write(EXTREMES, TEXTS[:2])
        writer.write(EXTREMES, TEXTS)
        with pytest.raises(ValueError, match="every chunk"):
            writer.write(EXTREMES)
    assert len(read_codes(path)) == 4


# --- bad files ---


@pytest.mark.parametrize("ending", ENDINGS)
def test_bad_files_of_every_ending(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"codes{ending}"
    name = path.name
    assert sentence(path) == f"there is no file {name}"
    written(path, EXTREMES)
    assert (
        sentence(path, 32) == f"{name} has 3 columns and this space has 32 dimensions: give codes that this space made"
    )
    path.write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0 and so on\xff")
    assert name in sentence(path)
    path.unlink()
    path.mkdir()
    assert "directory" in sentence(path)
    path.rmdir()
    os.mkfifo(path)
    assert sentence(path) == f"cannot read {name}: it is a device or a pipe, not a file"
    path.unlink()
    path.symlink_to("/dev/zero")
    assert sentence(path) == f"cannot read {name}: it is a device or a pipe, not a file"


@pytest.mark.parametrize("ending", ENDINGS)
def test_files_cut_short(tmp_path: Path, ending: str) -> None:
    path = written(tmp_path / f"codes{ending}", EXTREMES, TEXTS, LABELS)
    content = path.read_bytes()
    whole = set()  # sizes that leave a whole, shorter file
    if ending in (".csv", ".jsonl"):
        whole = {size for size in range(len(content)) if content[:size].endswith(b"\n")}
    if ending == ".jsonl":
        whole |= {0} | {size - 1 for size in whole}
    for size in {*range(len(content) - 1)} - whole:
        path.write_bytes(content[:size])
        sentence(path)


@pytest.mark.parametrize("ending", ENDINGS)
def test_damaged_bytes_raise_nothing_else(tmp_path: Path, ending: str) -> None:
    path = written(tmp_path / f"codes{ending}", EXTREMES, TEXTS, LABELS)
    content, random = path.read_bytes(), np.random.default_rng(2)
    for _ in range(300):
        damaged = bytearray(content)
        damaged[random.integers(len(content))] = random.integers(256)
        path.write_bytes(damaged)
        with suppress(TextspaceError):
            assert read_codes(path).dtype == np.float32


def test_unknown_endings() -> None:
    assert sentence("codes.jsnl").endswith("is not one of a file of codes; did you mean '.jsonl'?")
    assert "there are '.npy', '.npz', '.csv', '.jsonl' and '.parquet'" in sentence("codes")


def test_empty_files(tmp_path: Path) -> None:
    for ending in ENDINGS:
        path = tmp_path / f"codes{ending}"
        path.touch()
        if ending == ".jsonl":  # which says what it holds: no lines
            assert read_codes(path, dim=6).shape == (0, 6)
            assert read_codes(path).shape == (0, 0)
        else:
            sentence(path)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("ending", ENDINGS)
def test_numbers_that_are_not_finite(tmp_path: Path, ending: str, value: float) -> None:
    codes = np.ones((40_000, 2), np.float32)
    codes[39_990:, 1] = value
    path = tmp_path / f"codes{ending}"
    if ending == ".npy":
        np.save(path, codes)
    elif ending == ".npz":
        np.savez(path, codes=codes)
    elif ending == ".csv":
        np.savetxt(path, codes, delimiter=",", header="z0,z1", comments="")
    elif ending == ".jsonl":
        path.write_text("".join(json.dumps({"code": code}) + "\n" for code in codes.tolist()))
    else:
        pq.write_table(pa.table({"code": codes.tolist()}), path)
    said = sentence(path)
    assert said == f"row 39991 of codes{ending} has a number that is NaN, infinite or too large for float32"


def test_arrays_that_are_not_codes(tmp_path: Path) -> None:
    path = tmp_path / "codes.npy"
    for bad, said in (
        (np.ones((2, 3, 4)), "codes.npy has shape (2, 3, 4), but codes are a table of sentences and dimensions"),
        (np.float32(1), "codes.npy has shape (), but codes are a table of sentences and dimensions"),
        (np.array([["a", "b"]]), "codes.npy holds values of type <U1, which are not numbers"),
        (np.ones((2, 2), bool), "codes.npy holds values of type bool, which are not numbers"),
        (np.ones((2, 2), complex), "codes.npy holds values of type complex128, which are not numbers"),
        (np.full((2, 2), 1e300), "row 1 of codes.npy has a number that is NaN, infinite or too large for float32"),
    ):
        np.save(path, bad)
        assert sentence(path) == said
    np.save(path, np.ones((2, 2)))
    path.write_bytes(path.read_bytes() * 2)
    assert "longer than its header says" in sentence(path)
    np.savez(tmp_path / "codes.npz", a=np.ones(2), b=np.ones(2))
    assert "it has 2 arrays and none is called codes" in sentence(tmp_path / "codes.npz")


class Trap:
    """Makes a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return open, (str(self.path), "w")


@pytest.mark.parametrize("ending", [".npy", ".npz"])
def test_pickles_are_refused_and_not_executed(tmp_path: Path, ending: str) -> None:
    path, sprung = tmp_path / f"codes{ending}", tmp_path / "sprung"
    objects = np.array([[Trap(sprung)]], object)
    (np.save if ending == ".npy" else np.savez)(path, objects)
    assert "bject" in sentence(path)
    path.write_bytes(pickle.dumps(Trap(sprung)))
    sentence(path)
    if ending == ".npz":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("codes.npy", pickle.dumps(Trap(sprung)))
        sentence(path)
    assert not sprung.exists()
    np.load(io.BytesIO(_saved(objects)), allow_pickle=True)  # the trap itself works
    assert sprung.exists()


def _saved(values: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, values)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("1,2\n3,4\n", "codes.csv must name columns z0, z1 and so on without a gap in its first line"),
        ("z0,z2\n3,4\n", "codes.csv must name columns z0, z1 and so on without a gap in its first line"),
        ("z0,z1\n1,2\n3\n", "row 2 of codes.csv does not have 2 cells with numbers in every z column"),
        ("z0,z1\n1,0.2", "codes.csv is damaged, cut short or not a file of codes (its last line has no end)"),
        ("z0,z1\n1,\n", "row 1 of codes.csv does not have 2 cells with numbers in every z column"),
        ("z0,text\n1,a\ntwo,b\n", "row 2 of codes.csv does not have 2 cells with numbers in every z column"),
        ('z0,text\n1,"a\n', "codes.csv is damaged, cut short or not a file of codes (unexpected end of data)"),
    ],
)
def test_bad_csv(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "codes.csv").write_text(content)
    assert sentence(tmp_path / "codes.csv") == said


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"code": [1, 2, 3]}', "row 2 of codes.jsonl has 3 numbers where 2 were expected"),
        *(
            (line, "row 2 of codes.jsonl does not have a list of numbers called code")
            for line in (
                '{"text": "a"}',
                "[1, 2]",
                '{"code": "12"}',
                '{"code": [1, true]}',
                '{"code": [1, 2',
                "[" * 99999,
            )
        ),
    ],
)
def test_bad_jsonl(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "codes.jsonl").write_text('{"code": [1, 2]}\n' + line)
    assert sentence(tmp_path / "codes.jsonl") == said


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ({"text": ["a"]}, "codes.parquet has no column of lists called code"),
        ({"code": [1.0]}, "codes.parquet has no column of lists called code"),
        ({"code": [["a"]]}, "codes.parquet holds values of type object, which are not numbers"),
        ({"code": [[1.0, None]]}, "row 1 of codes.parquet has a number that is NaN, infinite or too large for float32"),
        ({"code": [[1.0], None]}, "(its lists of numbers differ in length)"),
        ({"code": [[1.0], [1.0, 2.0, 3.0]]}, "(its lists of numbers differ in length)"),
    ],
)
def test_bad_parquet(tmp_path: Path, column: dict[str, list[Any]], said: str) -> None:
    pq.write_table(pa.table(column), tmp_path / "codes.parquet")
    assert sentence(tmp_path / "codes.parquet").endswith(said)


def test_parquet_without_its_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "codes.parquet", EXTREMES)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for action in (lambda: read_codes(path), CodeWriter(path, 2).__enter__):
        with pytest.raises(TextspaceError, match=r'need more packages: pip install "textspace\[datasets\]"$'):
            action()


# --- sparse codes ---


def mostly_zeros(rows: int = 40, dim: int = 6) -> sparse.csr_matrix:
    random = np.random.default_rng(3)
    values = random.normal(size=(rows, dim)).astype(np.float32) * (random.uniform(size=(rows, dim)) < 0.3)
    values[2] = 0  # a sentence with every dimension off
    return sparse.csr_matrix(values)


def written_sparse(path: Path, codes: sparse.csr_matrix, sizes: tuple[int, ...] = (7, 0, 1)) -> Path:
    with CodeWriter(path, codes.shape[1], form="sparse") as writer:
        start = 0
        for size in (*sizes, codes.shape[0] - sum(sizes)):
            writer.write(codes[start : start + size], texts=["text"] * size)
            start += size
    return path


def test_sparse_codes_come_back_and_scipy_reads_them(tmp_path: Path) -> None:
    codes = mostly_zeros()
    path = written_sparse(tmp_path / "codes.npz", codes)
    for found in (read_codes(path, dim=6), sparse.load_npz(path)):
        assert found.format == "csr"
        assert found.nnz == codes.nnz
        assert same_bits(found.toarray(), codes.toarray())
    with CodeWriter(tmp_path / "none.NPZ", 6, form="sparse"):
        pass
    assert read_codes(tmp_path / "none.NPZ", dim=6).shape == (0, 6)
    with CodeWriter(tmp_path / "wide.npz", 6, dtype="float64", form="sparse") as writer:
        writer.write(codes.astype(np.float64) / 3)
    assert sparse.load_npz(tmp_path / "wide.npz").dtype == np.float64
    assert same_bits(read_codes(tmp_path / "wide.npz").toarray(), (codes.astype(np.float64) / 3).toarray().astype("f4"))


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
@pytest.mark.parametrize("kind", ["matrix", "array"])
def test_sparse_files_of_other_programs(tmp_path: Path, form: str, kind: str, compressed: bool) -> None:
    codes = mostly_zeros()
    sparse.save_npz(tmp_path / "codes.npz", getattr(sparse, f"{form}_{kind}")(codes), compressed=compressed)
    found = read_codes(tmp_path / "codes.npz", dim=6)
    assert sparse.isspmatrix_csr(found)
    assert same_bits(found.toarray(), codes.toarray())


def test_what_no_sparse_file_can_be(tmp_path: Path) -> None:
    for name in (*(f"codes{ending}" for ending in ENDINGS if ending != ".npz"), "-"):
        with pytest.raises(TextspaceError, match=r"sparse codes go into \.npz files and not into .*: give a name"):
            CodeWriter(name if name == "-" else tmp_path / name, 6, form="sparse")
    with pytest.raises(ValueError, match="float16"):
        CodeWriter(tmp_path / "codes.npz", 6, dtype="float16", form="sparse")
    codes = mostly_zeros()
    for form, chunk in (("sparse", codes.toarray()), ("dense", codes), ("tokens", codes), ("dense", [codes.toarray()])):
        with (
            pytest.raises(ValueError, match=f"a writer of {form} codes writes no others"),
            CodeWriter(tmp_path / "a.npz", 6, form=form) as writer,  # type: ignore[arg-type]
        ):
            writer.write(chunk)
    codes.data[codes.indptr[3]] = np.inf
    wrong = r"code of sentence 4 has a number that is NaN"
    with pytest.raises(TextspaceError, match=wrong), CodeWriter(tmp_path / "a.npz", 6, form="sparse") as writer:
        writer.write(codes)
    assert not any(tmp_path.iterdir())


def test_damaged_sparse_files_are_one_sentence(tmp_path: Path) -> None:
    path = written_sparse(tmp_path / "codes.npz", mostly_zeros())
    content, random = path.read_bytes(), np.random.default_rng(2)
    for size in range(0, len(content) - 1, 7):
        path.write_bytes(content[:size])
        sentence(path)
    told = 0
    for _ in range(300):
        damaged = bytearray(content)
        damaged[random.integers(len(content))] ^= random.integers(1, 256)
        path.write_bytes(damaged)
        try:
            assert read_codes(path).dtype == np.float32
        except TextspaceError:
            told += 1
    assert told > 200


def with_arrays(path: Path, codes: sparse.csr_matrix, **changed: Any) -> Path:
    arrays = {"data": codes.data, "indices": codes.indices, "indptr": codes.indptr}
    arrays |= {"shape": codes.shape, "format": b"csr"} | changed
    np.savez(path, **{name: value for name, value in arrays.items() if value is not None})
    return path


def test_sparse_files_whose_parts_do_not_fit(tmp_path: Path) -> None:
    codes, path = mostly_zeros(), tmp_path / "codes.npz"
    last = codes.indptr.copy()
    last[-1] += 50
    falling = codes.indptr.copy()
    falling[5] = falling[7] + 1
    for changed in (
        {"indices": codes.indices + 6},
        {"indices": codes.indices - 6},
        {"indices": codes.indices[:-1]},
        {"indptr": last},
        {"indptr": falling},
        {"indptr": codes.indptr[:-1]},
        {"shape": (41, 6)},
        {"shape": (40, -6)},
        {"format": b"dia"},
        {"format": b"surprise"},
        {"data": None},
        {"data": np.array(["a"] * codes.nnz)},
        {"data": np.array([Trap(tmp_path / "trapped")] * codes.nnz)},
        {"format": np.array(Trap(tmp_path / "trapped"), object)},
    ):
        sentence(with_arrays(path, codes, **changed))
    assert not (tmp_path / "trapped").exists()
    sparse.save_npz(path, sparse.dia_matrix(codes))
    assert "its matrix is dia and not one of csr, csc, coo" in sentence(path)
    assert (
        sentence(written_sparse(path, codes), dim=7)
        == "codes.npz has 6 columns and this space has 7 dimensions: give codes that this space made"
    )
    codes.data[codes.indptr[3]] = np.nan
    assert sentence(with_arrays(path, codes)).startswith("row 4 of codes.npz has a number that is NaN")


# --- cost ---


def run(program: str, *arguments: str) -> str:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=True, timeout=60).stdout


def test_import_is_light() -> None:
    assert run("import sys, textspace.codes\nprint({'torch', 'pandas', 'pyarrow'} & set(sys.modules))") == "set()\n"


PROGRAM = """
import re, sys
import numpy as np
from scipy import sparse
from textspace.codes import CodeWriter

def peak():  # not ru_maxrss, which a process inherits from the one that started it
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024

chunk, hoard = np.random.default_rng(0).normal(size=(2000, 32)).astype(np.float32), []
of_zeros = sys.argv[2] == "sparse"
with CodeWriter(sys.argv[1], 32, form="sparse" if of_zeros else "dense") as writer:
    for number in range(150):
        writer.write(sparse.csr_matrix(chunk) if of_zeros else chunk)
        if sys.argv[2] == "hoard":
            hoard.append(chunk + number)
        if number == 19:  # every buffer has been full once
            before = peak()
print(peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.parametrize("ending", [*ENDINGS, "hoard", "sparse"])
def test_memory_does_not_grow_with_the_codes(tmp_path: Path, ending: str) -> None:
    size = 300_000 * 32 * 4
    if ending == "hoard":  # so that the figure is known to show what it should
        assert int(run(PROGRAM, str(tmp_path / "codes.npy"), "hoard")) > 0.8 * size
        return
    path = tmp_path / ("codes.npz" if ending == "sparse" else f"codes{ending}")
    assert int(run(PROGRAM, str(path), ending)) < 0.2 * size
    if ending in (".npy", ".npz", ".parquet", "sparse"):
        assert read_codes(path, dim=32).shape == (300_000, 32)
