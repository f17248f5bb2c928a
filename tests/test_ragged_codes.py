"""Files of codes of tokens: what goes in comes out, and what is no such file is one sentence."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from textspace.codes import CodeWriter, read_codes
from textspace.errors import TextspaceError


def codes_of(lengths: list[int], dim: int = 3) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.normal(size=(length, dim)).astype(np.float32) for length in lengths]


def written(path: Path, codes: list[np.ndarray], sizes: tuple[int, ...] = (2, 0, 1)) -> Path:
    """In chunks of the sizes given, and the rest in one."""
    with CodeWriter(path, 3, form="tokens") as writer:
        for size in sizes:
            writer.write(codes[:size], ["text"] * len(codes[:size]))
            codes = codes[size:]
        writer.write(codes, ["text"] * len(codes))
    return path


def sentence(path: Path, **options: Any) -> str:
    with pytest.raises(TextspaceError) as caught:
        read_codes(path, **options)
    return str(caught.value).replace(str(path), "FILE")


def test_codes_come_back_bit_for_bit_whatever_the_chunks(tmp_path: Path) -> None:
    codes = codes_of([4, 1, 7, 2, 3])
    for sizes in ((), (2, 0, 1), (1, 1, 1, 1)):
        found = read_codes(written(tmp_path / "codes.npz", codes, sizes), dim=3, of_tokens=True)
        assert [code.shape for code in found] == [code.shape for code in codes]
        for one, other in zip(found, codes, strict=True):
            np.testing.assert_array_equal(one, other)
            assert one.dtype == np.float32
    assert read_codes(written(tmp_path / "none.NPZ", [], ())) == []


def test_other_programs_find_codes_and_lengths(tmp_path: Path) -> None:
    codes = codes_of([2, 5])
    with np.load(written(tmp_path / "codes.npz", codes), allow_pickle=False) as found:
        assert sorted(found.files) == ["codes", "lengths"]
        np.testing.assert_array_equal(found["codes"], np.concatenate(codes))
        assert found["lengths"].tolist() == [2, 5]
    np.savez_compressed(tmp_path / "theirs.npz", codes=np.concatenate(codes), lengths=np.array([2, 5], np.uint8))
    np.testing.assert_array_equal(read_codes(tmp_path / "theirs.npz")[1], codes[1])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_other_dtypes(tmp_path: Path, dtype: str) -> None:
    codes = codes_of([2])
    with CodeWriter(tmp_path / "codes.npz", 3, dtype=dtype, form="tokens") as writer:
        writer.write(codes)
    with np.load(tmp_path / "codes.npz") as found:
        assert found["codes"].dtype == dtype
    np.testing.assert_allclose(read_codes(tmp_path / "codes.npz")[0], codes[0], atol=1e-2 if dtype == "float16" else 0)


def test_what_cannot_be_written(tmp_path: Path) -> None:
    wanted = "codes of tokens go into .npz files and not into {}: give a name that ends in .npz, or pool them into one "
    for name, told in (("a.npy", tmp_path / "a.npy"), ("a.csv", tmp_path / "a.csv"), ("-", "standard output")):
        with pytest.raises(TextspaceError) as caught:
            CodeWriter(name if name == "-" else tmp_path / name, 3, form="tokens")
        assert str(caught.value) == wanted.format(told) + "for each sentence with --pool"
    codes = codes_of([2, 3])
    codes[1][2, 0] = np.nan
    for chunk, error, said in (
        (codes, TextspaceError, "the code of sentence 2 has a number that is NaN"),
        ([np.zeros((2, 4))], ValueError, "shape"),
        ([np.zeros(3)], ValueError, "shape"),
        ([np.zeros((0, 3))], ValueError, "shape"),
    ):
        with pytest.raises(error, match=said), CodeWriter(tmp_path / "a.npz", 3, form="tokens") as writer:
            writer.write(chunk)
    with pytest.raises(ValueError, match="as many"), CodeWriter(tmp_path / "a.npz", 3, form="tokens") as writer:
        writer.write(codes_of([2, 3]), ["one text"])
    assert not any(tmp_path.iterdir())


def test_files_of_one_kind_are_no_files_of_the_other(tmp_path: Path) -> None:
    tokens = written(tmp_path / "tokens.npz", codes_of([2, 3]))
    with CodeWriter(tmp_path / "sentences.npz", 3) as writer:
        writer.write(np.zeros((2, 3)))
    assert sentence(tmp_path / "sentences.npz", of_tokens=True) == (
        "FILE has a code for each sentence, and this space one for each token: encode without --pool, into an .npz file"
    )
    assert sentence(tokens, of_tokens=False) == (
        "FILE has a code for each token, and this space one for each sentence: give the codes that it encodes itself"
    )
    assert (
        sentence(tokens, dim=4) == "FILE has 3 columns and this space has 4 dimensions: give codes that this space made"
    )


BAD_ARRAYS: dict[str, tuple[dict[str, Any], str]] = {
    "too few lengths": ({"lengths": np.array([2])}, "its lengths do not add up to 5 tokens"),
    "too many tokens": ({"lengths": np.array([2, 4])}, "its lengths do not add up to 5 tokens"),
    "no token": ({"lengths": np.array([5, 0])}, "at least one for each sentence"),
    "fewer than none": ({"lengths": np.array([6, -1])}, "at least one for each sentence"),
    "overflowing": ({"lengths": np.array([2**62, 2**62, 2**62, 2**62, 5])}, "its lengths do not add up"),
    "lengths of floats": ({"lengths": np.array([2.0, 3.0])}, "not a row of whole numbers"),
    "a table of lengths": ({"lengths": np.array([[2, 3]])}, "not a row of whole numbers"),
    "a vector": ({"codes": np.zeros(5)}, "its codes are not a table"),
    "text": ({"codes": np.full((5, 3), "a")}, "holds values of type <U1, which are not numbers"),
    "NaN": ({"codes": np.full((5, 3), np.nan)}, "row 1 of FILE has a number that is NaN"),
    "objects": ({"lengths": np.array([2, 3], object)}, "Object arrays cannot be loaded"),
}


@pytest.mark.parametrize("mistake", BAD_ARRAYS)
def test_arrays_that_do_not_fit(tmp_path: Path, mistake: str) -> None:
    arrays, told = BAD_ARRAYS[mistake]
    np.savez(tmp_path / "a.npz", **({"codes": np.zeros((5, 3)), "lengths": np.array([2, 3])} | arrays))
    assert told in sentence(tmp_path / "a.npz")


def test_damage_is_one_sentence(tmp_path: Path) -> None:
    whole = written(tmp_path / "codes.npz", codes_of([4, 1, 7])).read_bytes()
    for length in range(0, len(whole), 37):
        (tmp_path / "cut.npz").write_bytes(whole[:length])
        assert "damaged, cut short or not a file of codes" in sentence(tmp_path / "cut.npz")
    with zipfile.ZipFile(tmp_path / "codes.npz") as archive:
        place = archive.getinfo("codes.npy").header_offset + 200  # inside of the numbers
    bent = bytearray(whole)
    bent[place] ^= 1
    (tmp_path / "bent.npz").write_bytes(bent)
    assert "damaged" in sentence(tmp_path / "bent.npz")
