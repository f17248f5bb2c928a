"""Files that are written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from textspace.files import check_writable, whole_or_nothing


def test_a_file_is_there_once_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "it.txt"
    path.write_text("before")

    def interrupted() -> None:
        with whole_or_nothing(path) as unfinished:
            unfinished.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "before"
    with whole_or_nothing(path) as unfinished:
        unfinished.write_text("whole")
        assert path.read_text() == "before"
    assert [each.name for each in tmp_path.iterdir()] == ["it.txt"]
    assert path.read_text() == "whole"


def test_folders_that_take_no_file_are_refused(tmp_path: Path) -> None:
    check_writable(tmp_path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(OSError, match="No such file"):
        check_writable(tmp_path / "none")
    with pytest.raises(IsADirectoryError), whole_or_nothing(tmp_path):
        pass
