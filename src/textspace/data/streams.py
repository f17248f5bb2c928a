"""Readers of streams and of Python iterables, which need a copy where they can be read only once."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any

from textspace.data.cells import Row, label_of, row_of
from textspace.data.options import ReadOptions, ReadReport
from textspace.data.sources import Reader, TextFile, delimited_reader, json_rows, text_reader
from textspace.data.tables import check_iterable
from textspace.errors import TextspaceError

__all__ = ["iterable_reader", "stream_reader"]


class _Spool:
    """A temporary file that lasts as long as this object, in the process that made it."""

    def __init__(self, suffix: str) -> None:
        handle, name = tempfile.mkstemp(prefix="textspace-", suffix=suffix)
        os.close(handle)
        self.path = Path(name)
        weakref.finalize(self, _remove, name, os.getpid())


def _remove(name: str, owner: int) -> None:
    if os.getpid() == owner:  # a forked worker must not take the file away from its parent
        Path(name).unlink(missing_ok=True)


def stream_reader(name: str, stream: IO[bytes], options: ReadOptions) -> Reader:
    """A stream that can be read only once, copied to a temporary file.

    Without a name to tell, it is .txt; or .tsv when a text or label column or a header is asked for.
    """
    with_columns = options.text is not None or options.label is not None or bool(options.header)
    spool = _Spool(".tsv" if with_columns else ".txt")
    with spool.path.open("wb") as copy:
        shutil.copyfileobj(stream, copy)
    reader = (delimited_reader if with_columns else text_reader)(spool.path, options, name)
    return replace(reader, keep=spool)


def iterable_reader(name: str, sentences: Iterable[str], labels: Iterable[Any] | None, options: ReadOptions) -> Reader:
    """Sentences from Python: read again where they can be, else copied to a temporary file."""
    settled = replace(options, text=None, label=None, header=None)
    if isinstance(sentences, str):
        raise TextspaceError("sentences must be a list of strings, not one string; for a file use open_corpus(path)")
    check_iterable(sentences)
    if all(iter(values) is not values for values in (sentences, () if labels is None else labels)):
        return Reader(name, partial(_iterable_rows, sentences, labels), settled)
    spool = _Spool(".jsonl")
    with spool.path.open("w", encoding="utf-8") as copy:
        for text, label in _checked(sentences, labels):
            print(json.dumps({"text": text, "label": label}), file=copy)
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
