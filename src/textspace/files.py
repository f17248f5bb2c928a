"""Read files with bounds, write them atomically, check folders, and open standard input."""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

from textspace.errors import TextspaceError

__all__ = [
    "LONGEST_LINE",
    "MOST_JSON_BYTES",
    "bounded_lines",
    "check_no_file",
    "check_writable",
    "json_lines",
    "open_regular",
    "parse_json",
    "piped_in",
    "read_json",
    "read_text",
    "sync_folder",
    "whole_or_nothing",
    "write_and_sync",
    "write_file",
]

MOST_JSON_BYTES = 2**28
"""Largest JSON file, or line of a log, that is read: a tenth of this is a very large one."""
LONGEST_LINE = 2**27
"""Bytes of a line of text: a longer one is not text, or comes from a stream without end."""
MOST_DEPTH = 100
"""Deepest nesting of JSON: ours has a dozen levels, and code that walks through it cannot go on for ever."""
MOST_DIGITS = 30
"""Longest whole number in JSON: longer ones have no use here and overflow where they become floats."""


def open_regular(path: Path) -> IO[bytes]:
    """Open a regular file for reading; OSError for anything else.

    A device or a pipe in a file's place would never end, or never begin.
    """
    # Without O_NONBLOCK, opening a pipe waits for a writer.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        kind = os.fstat(handle).st_mode
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(kind):
            raise OSError(errno.EINVAL, "it is a device or a pipe, not a file", str(path))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_json(path: Path) -> Any:
    """The content of one of our JSON files.

    Raises:
        OSError: the file cannot be read or is not a regular file.
        ValueError: the file is too large, is not UTF-8, or is not JSON as we write it (see `parse_json`).
    """
    return parse_json(read_text(path))


def read_text(path: Path, *, from_pipe: bool = False) -> str:
    """The text of a small file, such as one of our JSON files; errors are those of `read_json`.

    With `from_pipe` the file may also be a pipe or a device, which a user named.
    """
    with path.open("rb") if from_pipe else open_regular(path) as file:
        content = file.read(MOST_JSON_BYTES + 1)
    if len(content) > MOST_JSON_BYTES:
        raise ValueError(f"it has more than {MOST_JSON_BYTES:,} bytes")
    return content.decode("utf-8")


def parse_json(text: str, most_digits: int = MOST_DIGITS) -> Any:
    """A value from JSON; ValueError where it is no JSON, is nested too deeply, or has a number of too many digits.

    >>> parse_json('{"a": [1, 2.5]}')
    {'a': [1, 2.5]}
    """
    try:
        value = json.loads(text, parse_int=partial(_whole_number, most_digits))
        if text.count("{") + text.count("[") > MOST_DEPTH:  # else it cannot be deep
            _check_depth(value)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value


def _check_depth(value: Any) -> None:
    """Raise RecursionError for more than `MOST_DEPTH` levels of lists and objects."""
    level = [value]
    for _ in range(MOST_DEPTH):
        inside = (each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list))
        level = [each for part in inside for each in part if isinstance(each, dict | list)]
    if level:
        raise RecursionError


def _whole_number(most_digits: int, digits: str) -> int:
    if len(digits) > most_digits:
        raise ValueError(f"a number has {len(digits):,} digits")
    return int(digits)


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects in a log of one JSON object a line, blank lines skipped; errors are those of `read_json`."""
    with open_regular(path) as file:
        for line in bounded_lines(file, MOST_JSON_BYTES):
            if line.isspace():
                continue
            record = parse_json(line.decode("utf-8"))
            if not isinstance(record, dict):
                raise ValueError("a line is not a JSON object")
            yield record


def bounded_lines(stream: IO[bytes], longest: int = LONGEST_LINE) -> Iterator[bytes]:
    """The lines of a stream with their ends; ValueError for one of more than so many bytes, which may never end."""
    for line in iter(partial(stream.readline, longest + 1), b""):
        if len(line) > longest:
            raise ValueError(f"a line has more than {longest:,} bytes")
        yield line


@contextmanager
def whole_or_nothing(path: Path) -> Iterator[Path]:
    """Where to write what becomes `path` once all of it is there; OSError where nothing can be written."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    # In a folder of its own, because a file made by tempfile could be read by its owner alone for ever.
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".unfinished-") as folder:
        unfinished = Path(folder, path.name)
        yield unfinished
        unfinished.replace(path)


def write_file(path: Path, content: bytes) -> None:
    """Replace a file, whole or not at all, its folder made where there is none; one sentence where that fails.

    It is on the disk when this returns, so that neither a killed process nor a lost machine leaves half of it.
    """
    partial = path.with_name(f".writing-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_and_sync(partial, content)
        os.replace(partial, path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise TextspaceError(f"could not write {path}: {error.strerror or error}") from None


def write_and_sync(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_writable(folder: Path) -> None:
    """Raises OSError where no file can be written."""
    with tempfile.TemporaryFile(dir=folder):
        pass


def check_no_file(folder: Path, advice: str) -> None:
    """Refuse a place for a folder where there is a file or a broken link, or where one above it would be."""
    for each in (folder, *folder.parents):
        if os.path.isfile(each):
            raise TextspaceError(f"{each} is a file, where a folder is needed: {advice}")
        if os.path.islink(each) and not os.path.exists(each):
            raise TextspaceError(f"{each} is a link that leads nowhere: {advice}")


def piped_in() -> IO[bytes]:
    """Standard input."""
    if sys.stdin is None:
        raise TextspaceError("standard input is closed: pipe something into the command, or name a file instead of -")
    return sys.stdin.buffer
