"""What a user's source becomes: train, valid and test splits that stream, and a report of what was met."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from textspace.data.finding import SPLITS, Found, find, find_given, short_name
from textspace.data.normalise import names_given, normaliser
from textspace.data.options import ReadOptions, ReadReport, Record, check_options
from textspace.data.sources import Reader
from textspace.data.streams import iterable_reader
from textspace.errors import TextspaceError

__all__ = ["SPLITS", "Corpus", "ReadOptions", "ReadReport", "Record", "Split", "corpus_of", "open_corpus"]

KEPT = 100_000
"""Held-out sentences that are kept in memory, so that the source need not be read again for them."""
_DEFAULTS = ReadOptions()

Source = str | Path | Sequence[str | Path] | Mapping[str, Any]


@dataclass
class _HeldOut:
    """Rows of a source that were cut off for valid and test, kept from the first time that it is read to its end."""

    rows: frozenset[int] = frozenset()
    records: dict[int, Record] | None = None


@dataclass(frozen=True)
class _Part:
    """The rows of one source that belong to one split, numbered from 0: of those in `only` (None: all) the ones that
    are not held out, or some that are."""

    reader: Reader
    source: int
    clean: Callable[[str], str]
    count: int = 0
    only: frozenset[int] | None = None
    held_out: _HeldOut = field(default_factory=_HeldOut)
    is_held_out: bool = False

    def records(self, report: ReadReport) -> Iterator[Record]:
        """All records of the source, whatever the rows of this part, counted into the report."""
        for text, label in self.reader.rows(report):
            report.read += 1
            text = self.clean(text)
            if not text or text.isspace():
                report.empty += 1
            else:
                yield Record(text, label, self.source)

    def __iter__(self) -> Iterator[Record]:
        if self.is_held_out and self.only is not None and self.held_out.records is not None:
            yield from (record for row, record in self.held_out.records.items() if row in self.only)
            return
        kept, keeps = {}, len(self.held_out.rows) <= KEPT
        for row, record in enumerate(self.records(ReadReport())):
            is_held_out = row in self.held_out.rows
            if is_held_out and keeps:
                kept[row] = record
            if is_held_out == self.is_held_out and (self.only is None or row in self.only):
                yield record
        if keeps:
            self.held_out.records = kept


class Split:
    """The sentences of one split, read from the source anew by every iteration."""

    def __init__(self, name: str, parts: Sequence[_Part]) -> None:
        self.name = name
        self._parts = tuple(parts)

    def __iter__(self) -> Iterator[Record]:
        for part in self._parts:
            yield from part

    def __len__(self) -> int:
        return sum(part.count for part in self._parts)

    @property
    def source_counts(self) -> dict[int, int]:
        """Sentences by source number."""
        return {part.source: part.count for part in self._parts}

    def __repr__(self) -> str:
        return f"Split({self.name!r}, {len(self):,} sentences)"


@dataclass(frozen=True)
class Corpus:
    """Splits in the order train, valid, test (a source may have only some), and what reading them met.

    `labels` are all classes of all splits, in numerical order where all are numbers; `sources` are the names
    behind the source numbers of the records; `mixing` is the rule for drawing from several sources, where one was
    asked for; `normalise` are the names of the normalisers that have been applied, in order.
    """

    name: str
    splits: Mapping[str, Split]
    labels: tuple[str, ...]
    report: ReadReport
    sources: tuple[str, ...]
    mixing: Literal["all", "balanced"] | None = None
    normalise: tuple[str, ...] = ()


def open_corpus(source: Source, options: ReadOptions = _DEFAULTS, *, normalise: Sequence[str] = ()) -> Corpus:
    """Open a source, count it in one pass and cut it into splits where it has none.

    Args:
        source: a file (.txt, .tsv, .csv, .jsonl, also .gz; .parquet), "-" for standard input, a folder or glob
            with train, valid and test files, "builtin" or "builtin:N", "hf:NAME" or "hf:NAME/CONFIG"; a list of
            these, mixed by `options.mixing`; or a mapping from split to one of these or to sentences.
        options: columns, cut and mixing.
        normalise: names of normalisers, applied in order.

    Which file is which split: its whole name before the endings says so ("train", "valid", "val", "dev",
    "validation", "test"), else its last part between dots ("SST2.train"), else its last part between dots,
    dashes and underscores ("my_train"). The first of these rules that any file meets holds for all; files left
    over are listed in the report. Of several files in a glob that name no split each is a source.

    What is cut: a source without splits, or with nothing but a train file, into all three; from a source with other
    splits but no valid, or a mapping without one, only valid from train, since training needs it.
    """
    check_options(options)
    normalise = names_given(normalise)
    if isinstance(source, Mapping):
        return _build("given splits", [find_given(source, options)], options, normalise)
    if isinstance(source, str | Path):
        found = find(source, options)
        return _build(short_name(source), found, options, normalise)
    if not isinstance(source, list | tuple) or not all(isinstance(one, str | Path) for one in source):
        raise TextspaceError("a source is a name or a list of names; for sentences themselves use corpus_of")
    if not source:
        raise TextspaceError("the list of sources is empty; give at least one")
    found = [one for each in source for one in find(each, options)]
    return _build("+".join(map(short_name, source)), found, options, normalise)


def corpus_of(
    sentences: Iterable[str],
    labels: Iterable[Any] | None = None,
    options: ReadOptions = _DEFAULTS,
    *,
    normalise: Sequence[str] = (),
) -> Corpus:
    """A corpus of sentences from Python, cut into splits.

    >>> corpus = corpus_of(["a cat", "", "a dog", "two birds"], labels=["x", "x", "y", "y"])
    >>> {name: len(split) for name, split in corpus.splits.items()}, corpus.labels
    ({'train': 1, 'valid': 1, 'test': 1}, ('x', 'y'))
    >>> corpus.report.lines()[0]
    '1 empty line skipped'
    """
    check_options(options)
    reader = iterable_reader("sentences", sentences, labels, options)
    return _build("sentences", [Found("sentences", {"": reader})], options, names_given(normalise))


# --- counting and cutting ---


def _build(name: str, found: list[Found], options: ReadOptions, normalise: tuple[str, ...]) -> Corpus:
    _check_columns(name, found, options)
    clean = normaliser(normalise)
    report = ReadReport()
    labels: set[str] = set()
    parts: dict[str, list[_Part]] = {split: [] for split in SPLITS}
    cut_at_random: list[tuple[str, dict[str, int]]] = []
    for number, source in enumerate(found):
        report.notes += [*(reader.note for reader in source.readers.values() if reader.note), *source.notes]
        for split, reader in source.readers.items():
            whole = _Part(reader, number, clean)
            per_class = options.per_class if split in ("", "train") else None
            count, rows = _count(whole, report, labels, per_class, options.seed)
            cut = _cut(whole, count, rows, split, _shares(split, source.readers, options), options)
            if split == "train" and "valid" in cut:
                sentences = "1 sentence" if cut["valid"].count == 1 else f"{cut['valid'].count:,} sentences"
                where = f"{source.name!r}: " if len(found) > 1 else ""
                report.notes.append(
                    f"{where}no validation split given: cut {sentences} from train with seed {options.seed}"
                )
            if not split and sum(part.count > 0 for part in cut.values()) > 1:
                cut_at_random.append((source.name, {piece: part.count for piece, part in cut.items()}))
            for piece, part in cut.items():
                if split or part.count:
                    parts[piece].append(part)
    if cut_at_random:
        sizes = ", ".join(
            f"{piece} {count:,}" for piece in SPLITS if (count := sum(each.get(piece, 0) for _, each in cut_at_random))
        )
        where = "" if len(cut_at_random) == len(found) else f"{_some_names([name for name, _ in cut_at_random])}: "
        report.notes.append(f"{where}no splits given: cut at random with seed {options.seed} into {sizes}")
    given = {split: Split(split, parts[split]) for split in SPLITS if parts[split]}
    splits = {name: split for name, split in given.items() if len(split)}
    report.notes += [f"the {split} split has no sentences" for split in given if split not in splits]
    report.kept = sum(map(len, splits.values()))
    if not report.kept:
        met = report.lines()[0] if report.read else "it is empty"
        raise TextspaceError(f"nothing is left of {name!r} ({met}); give a source with at least one sentence")
    sources = tuple(one.name for one in found)
    return Corpus(name, splits, _in_order(labels), report, sources, options.mixing, normalise)


def _some_names(names: list[str], most: int = 3) -> str:
    shown = ", ".join(map(repr, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} others"


def _check_columns(name: str, found: list[Found], options: ReadOptions) -> None:
    """Refuse columns, and a header that names them, where no reader has any."""
    settled = [reader.options for one in found for reader in one.readers.values()]
    if any(one.text is not None or one.label is not None or one.header for one in settled):
        return
    if options.text is not None or options.label is not None:
        raise TextspaceError(f"{name!r} has no columns, so none can be asked for; use a .tsv, .csv or .jsonl file")
    if options.header:
        raise TextspaceError(f"{name!r} has no columns, so no header names them; use a .tsv or .csv file, or no header")


def _in_order(labels: set[str]) -> tuple[str, ...]:
    numbers = all(label.isdecimal() for label in labels)

    def size(label: str) -> tuple[int, str]:
        """Of a number, which may have more digits than Python converts."""
        digits = label.lstrip("0")
        return len(digits), digits

    return tuple(sorted(labels, key=lambda label: (size(label) if numbers else (0, ""), label)))


def _count(
    whole: _Part, report: ReadReport, labels: set[str], per_class: int | None, seed: int
) -> tuple[int, list[int] | None]:
    """The counting pass: how many rows there are and, with `per_class`, which of them stay."""
    draw = random.Random(f"{seed} {whole.source}").random
    seen: Counter[str] = Counter()
    reservoirs: dict[str, list[int]] = {}
    count = 0
    for row, record in enumerate(whole.records(report)):
        count = row + 1
        if record.label is None:
            continue
        labels.add(record.label)
        if per_class is not None:  # a reservoir for each class: every row of it is equally likely to stay
            seen[record.label] += 1
            reservoir = reservoirs.setdefault(record.label, [])
            if len(reservoir) < per_class:
                reservoir.append(row)
            elif (place := int(draw() * seen[record.label])) < per_class:
                reservoir[place] = row
    if per_class is None:
        return count, None
    if count and not reservoirs:
        raise TextspaceError(
            f"per_class={per_class} needs classes, and {whole.reader.name!r} has none; name its label column"
        )
    rows = sorted(row for reservoir in reservoirs.values() for row in reservoir)
    report.notes.append(f"per_class={per_class} keeps {len(rows):,} of {count:,} sentences")
    return len(rows), rows


def _shares(split: str, given: Mapping[str, Reader], options: ReadOptions) -> tuple[float, float]:
    """What to cut off for valid and test: both where no split is given, valid alone from a train without one."""
    if not split:
        return options.valid, options.test
    return (options.valid if split == "train" and "valid" not in given else 0.0), 0.0


def _cut(
    whole: _Part, count: int, rows: list[int] | None, split: str, shares: tuple[float, float], options: ReadOptions
) -> dict[str, _Part]:
    """The split (train, where none is given), and the parts that the shares of valid and test cut from it at random."""
    valid_size = _held_out(shares[0], count, count - 2, options.most)
    test_size = _held_out(shares[1], count, count - 1 - valid_size, options.most)
    # numpy needs memory only for the rows it picks, at most 2 x `most`, once there are many more than those.
    picks = np.random.default_rng([options.seed, whole.source]).choice(count, valid_size + test_size, replace=False)
    picked = picks.tolist() if rows is None else [rows[pick] for pick in picks]
    valid, test = frozenset(picked[:valid_size]), frozenset(picked[valid_size:])
    only = None if rows is None else frozenset(rows)
    cut = replace(whole, held_out=_HeldOut(valid | test))
    parts = {split or "train": replace(cut, count=count - len(picked), only=only)}
    for name, held_out in (("valid", valid), ("test", test)):
        if held_out:
            parts[name] = replace(cut, count=len(held_out), only=held_out, is_held_out=True)
    return parts


def _held_out(share: float, count: int, room: int, most: int) -> int:
    """How many sentences a share cuts off: at least one where there are three, and never the last to train."""
    return min(max(1, int(share * count)), most, room) if share and count >= 3 else 0
