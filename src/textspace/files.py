"""Files that are written whole or not at all, folders that can be written to, and what is piped in."""

from __future__ import annotations

import errno
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from textspace.errors import TextspaceError

__all__ = ["check_writable", "piped_in", "whole_or_nothing"]


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


def check_writable(folder: Path) -> None:
    """Raises OSError where no file can be written."""
    with tempfile.TemporaryFile(dir=folder):
        pass


def piped_in() -> IO[bytes]:
    """Standard input."""
    if sys.stdin is None:
        raise TextspaceError("standard input is closed: pipe something into the command, or name a file instead of -")
    return sys.stdin.buffer
