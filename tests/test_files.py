"""Files that are read with bounds, and written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import textspace.files
from textspace.errors import TextspaceError
from textspace.files import (
    check_no_file,
    check_writable,
    json_lines,
    open_regular,
    parse_json,
    read_json,
    whole_or_nothing,
)


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


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    pipe, loop, endless = tmp_path / "pipe", tmp_path / "loop", tmp_path / "endless"
    os.mkfifo(pipe)
    loop.symlink_to(loop)
    endless.symlink_to("/dev/zero")
    for path in (pipe, loop, endless, tmp_path, tmp_path / "none"):
        with pytest.raises(OSError, match=r"device or a pipe|too many|Too many|directory"):
            open_regular(path)
    (tmp_path / "file").write_bytes(b"content")
    with open_regular(tmp_path / "file") as file:
        assert file.read() == b"content"


def test_lists_and_objects_have_so_many_levels_and_no_more() -> None:
    """What is less deep than Python's own limit can still be too deep for code that walks through it."""
    for depth, fits in ((textspace.files.MOST_DEPTH, True), (textspace.files.MOST_DEPTH + 1, False)):
        for text in ("[" * depth + "]" * depth, '{"a": ' * depth + "1" + "}" * depth):
            if fits:
                assert parse_json(f"{text} ")
            else:
                with pytest.raises(ValueError, match="nested too deeply"):
                    parse_json(text)
    assert parse_json(f"[{'[1],' * 1000} 2]")[-1] == 2


def test_a_link_that_leads_nowhere_is_no_place_for_a_folder(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "broken").symlink_to(tmp_path / "none")
    (tmp_path / "good").symlink_to(tmp_path)
    for place in ("loop", "broken", "loop/run"):
        with pytest.raises(TextspaceError, match=r"(loop|broken) is a link that leads nowhere: choose another"):
            check_no_file(tmp_path / place, "choose another")
    check_no_file(tmp_path / "good" / "run", "choose another")


def test_json_is_read_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = '{"a":' * 100_000 + "1" + "}" * 100_000
    path = tmp_path / "it.json"
    for text, problem in {
        deep: "nested too deeply",
        "[" + "9" * 400 + "]": "400 digits",
        "nothing": "Expecting value",
    }.items():
        with pytest.raises(ValueError, match=problem):
            parse_json(text)
        path.write_text(text)
        with pytest.raises(ValueError, match=problem):
            read_json(path)
        with pytest.raises(ValueError, match=problem):
            list(json_lines(path))
    path.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(ValueError, match="utf-8"):
        read_json(path)
    path.write_text('{"a": 1}\n{"a": -2.5}\n')
    assert list(json_lines(path)) == [{"a": 1}, {"a": -2.5}]
    path.write_text('{"a": 1}\n[2]\n')
    with pytest.raises(ValueError, match="not a JSON object"):
        list(json_lines(path))
    path.write_text('\n   \n{"a": 1}\n\n')
    assert list(json_lines(path)) == [{"a": 1}]
    monkeypatch.setattr(textspace.files, "MOST_JSON_BYTES", 10)
    path.write_text('{"a": 12345}\n')
    for read in (read_json, lambda path: list(json_lines(path))):
        with pytest.raises(ValueError, match="more than 10 bytes"):
            read(path)
