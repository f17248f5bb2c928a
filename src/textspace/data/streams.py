"""Readers of streams and of Python iterables, which need a copy where they can be read only once."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any

from textspace.data.cells import Row, label_of, row_of
from textspace.data.options import ReadOptions, ReadReport
from textspace.data.sources import (
    BINARY_PROBE,
    PACKED,
    Reader,
    TextFile,
    delimited_reader,
    json_rows,
    reason,
    refuse_binary,
    text_reader,
)
from textspace.data.tables import check_iterable
from textspace.errors import TextspaceError
from textspace.files import open_regular

try:
    import fcntl
except ImportError:  # not on Windows, where copies of killed processes stay
    fcntl = None  # type: ignore[assignment]

__all__ = ["iterable_reader", "stream_reader"]

MOST_COPIED = 2**33
"""Bytes of a stream that are copied: a longer one may have no end."""
LEFT_FREE, SHARE_LEFT_FREE = 2**30, 0.05
"""Bytes that a large copy leaves free on its disk, or the share of the disk, whichever is less."""
BLOCK, CHECK_EVERY = 2**20, 2**24
"""Bytes read at once, and bytes copied between two looks at the disk."""
PREFIX = "textspace-input-"
FRESH = 60.0
"""Seconds in which a copy may not be locked yet."""


class _Spool:
    """A copy of text in a temporary file, which lasts as long as this object in the process that made it.

    It is removed when the process ends; the command line ends in order on SIGTERM and SIGHUP too. What a killed process
    leaves behind is removed before the next copy is made: a lock shows which copies are in use.
    """

    def __init__(self, name: str, suffix: str) -> None:
        _remove_stale()
        handle, path = tempfile.mkstemp(prefix=PREFIX, suffix=suffix)
        self.path, self._name, self._size, self._looked = Path(path), name, 0, 0
        self._remove = weakref.finalize(self, _remove, path, handle, os.getpid())
        _lock(handle)

    def fill(self, parts: Iterable[bytes]) -> None:
        """Write the parts. Where they cannot be written, or are too many, nothing is left."""
        copy = self.path.open("wb")
        try:
            for part in parts:
                self._check_size(len(part))
                with self._sentence_for_failure():
                    copy.write(part)
            with self._sentence_for_failure():
                copy.close()
        except BaseException:
            with suppress(OSError):
                copy.close()
            self._remove()
            raise

    def _check_size(self, more: int) -> None:
        self._size += more
        if self._size > MOST_COPIED:
            raise TextspaceError(
                f"{self._name} has more than {MOST_COPIED / 2**30:g} GiB, or no end: write the text to a file first"
            )
        if self._size - self._looked > CHECK_EVERY:
            self._looked = self._size
            disk = shutil.disk_usage(self.path.parent)
            if disk.free < min(LEFT_FREE, SHARE_LEFT_FREE * disk.total):
                raise self._no_room("the disk is nearly full")

    @contextmanager
    def _sentence_for_failure(self) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            raise self._no_room(problem.strerror or reason(problem)) from None

    def _no_room(self, why: str) -> TextspaceError:
        return TextspaceError(
            f"cannot copy {self._name} to {self.path.parent} ({why}): write the text to a file first, or set TMPDIR to "
            "a folder with more room"
        )


def _remove(path: str, handle: int, owner: int) -> None:
    if os.getpid() == owner:  # a forked worker must not take the file away from its parent
        Path(path).unlink(missing_ok=True)
        os.close(handle)


def _lock(handle: int) -> bool:
    """Lock a file until all processes that have it open end; False where another holds the lock or there are none."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _remove_stale() -> None:
    """Remove the copies of killed processes: those that nobody has locked."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError), open_regular(path) as file:
            is_fresh = time.time() - os.fstat(file.fileno()).st_mtime < FRESH
            if not is_fresh and _lock(file.fileno()):
                path.unlink()


def stream_reader(name: str, stream: IO[bytes], options: ReadOptions) -> Reader:
    """A stream that can be read only once, copied to a temporary file.

    Without a name to tell, it is .txt; or .tsv when a text or label column or a header is asked for.
    """
    with_columns = options.text is not None or options.label is not None or bool(options.header)
    spool = _Spool(name, ".tsv" if with_columns else ".txt")
    spool.fill(_blocks(name, stream))
    reader = (delimited_reader if with_columns else text_reader)(spool.path, options, name)
    return replace(reader, keep=spool)


def _blocks(name: str, stream: IO[bytes]) -> Iterator[bytes]:
    """The bytes of a stream, which must begin like text or like packed text."""
    block = stream.read(BINARY_PROBE)
    if not block.startswith(PACKED):
        refuse_binary(name, block)
    while block:
        yield block
        block = stream.read(BLOCK)


def iterable_reader(name: str, sentences: Iterable[str], labels: Iterable[Any] | None, options: ReadOptions) -> Reader:
    """Sentences from Python: read again where they can be, else copied to a temporary file."""
    settled = replace(options, text=None, label=None, header=None)
    if isinstance(sentences, str):
        raise TextspaceError("sentences must be a list of strings, not one string; for a file use open_corpus(path)")
    check_iterable(sentences)
    if all(iter(values) is not values for values in (sentences, () if labels is None else labels)):
        return Reader(name, partial(_iterable_rows, sentences, labels), settled)
    spool = _Spool(name, ".jsonl")
    rows = ({"text": text, "label": label} for text, label in _checked(sentences, labels))
    spool.fill(f"{json.dumps(row)}\n".encode() for row in rows)
    return Reader(name, partial(json_rows, TextFile.at(spool.path), "text", "label"), settled, keep=spool)


def _iterable_rows(sentences: Iterable[str], labels: Iterable[Any] | None, report: ReadReport) -> Iterator[Row]:
    for text, label in _checked(sentences, labels):
        yield from row_of(text, label, report)


def _checked(sentences: Iterable[str], labels: Iterable[Any] | None) -> Iterator[Row]:
    if labels is None:
        pairs: Iterable[tuple[Any, Any]] = ((text, None) for text in sentences)
    else:
        pairs = zip_longest(sentences, labels, fillvalue=_checked)
    for number, (text, label) in enumerate(pairs, start=1):
        if text is _checked or label is _checked:
            raise TextspaceError(f"there must be as many labels as sentences, but one ends before number {number}")
        if not isinstance(text, str):
            raise TextspaceError(f"sentence {number} is of type {type(text).__name__}; every sentence must be a string")
        yield text, label_of(label)
