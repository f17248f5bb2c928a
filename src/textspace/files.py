"""Files that are written whole or not at all, folders that can be written to, and what is piped in."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from textspace.errors import TextspaceError

__all__ = [
    "check_no_file",
    "check_writable",
    "piped_in",
    "sync_folder",
    "whole_or_nothing",
    "write_and_sync",
    "write_file",
]


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
    """Refuse a place for a folder where there is a file, or a file where one above it would be."""
    for each in (folder, *folder.parents):
        if os.path.isfile(each):
            raise TextspaceError(f"{each} is a file, where a folder is needed: {advice}")


def piped_in() -> IO[bytes]:
    """Standard input."""
    if sys.stdin is None:
        raise TextspaceError("standard input is closed: pipe something into the command, or name a file instead of -")
    return sys.stdin.buffer
