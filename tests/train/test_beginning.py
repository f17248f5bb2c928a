"""What a run notes of its start."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from textspace.errors import TextspaceError
from textspace.train.beginning import Noted


def test_a_note_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "begun.json"
    assert Noted.read(tmp_path) is None
    for make in (
        os.mkfifo,
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.write_text('{"a":' * 100_000),
        lambda path: path.write_text("[1]"),
        lambda path: path.write_text('{"data": "x", "more": 1}'),
    ):
        make(path)
        with pytest.raises(TextspaceError, match=r"begun.json is damaged: start anew in another folder"):
            Noted.read(tmp_path)
        path.unlink()
    Noted("fingerprint", mixing="all").write(tmp_path)
    assert Noted.read(tmp_path) == Noted("fingerprint", mixing="all")
