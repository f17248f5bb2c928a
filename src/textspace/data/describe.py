"""Statistics of a corpus as papers print them, gathered in one streaming pass over each split."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import asdict, dataclass
from hashlib import blake2b
from itertools import combinations
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from textspace.data.corpus import Corpus, Split

__all__ = ["Description", "SplitDescription", "describe", "render"]

_BINS = 12
_BAR = 30  # characters of the longest bar
_SHOWN_CLASSES = 20


@dataclass(frozen=True)
class SplitDescription:
    """Figures of one split. Words are what stands between whitespace; lengths are words per sentence.

    Attributes:
        unseen: share of the words that do not occur in train; None for train itself or where there is no train.
        deviation: of the length, over all sentences (divided by n, not n - 1).
        characters: mean number of characters per sentence.
        duplicates: sentences that repeat an earlier one of the same split.
        histogram: sentences by length, in the bins of the description.
        classes: sentences per class, in the order of the corpus's labels.
        unlabelled: sentences without a class.
    """

    sentences: int
    words: int
    types: int
    unseen: float | None
    shortest: int
    mean: float
    deviation: float
    longest: int
    characters: float
    duplicates: int
    histogram: list[int]
    classes: dict[str, int]
    unlabelled: int


@dataclass(frozen=True)
class Description:
    """Figures of all splits.

    `bins` are the least lengths of the histogram's bins, the last one open; `shared` counts, for a key such as
    "test in train", the sentences of the one split that also occur in the other.
    """

    name: str
    splits: dict[str, SplitDescription]
    bins: list[int]
    shared: dict[str, int]
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)


class _Tally:
    """What one pass over a split gathers: 8 bytes a sentence, besides its vocabulary, lengths and classes."""

    def __init__(self, split: Split, known: set[str] | None) -> None:
        self.words: set[str] = set()
        self.lengths: Counter[int] = Counter()
        self.classes: Counter[str | None] = Counter()
        self.characters = 0
        self.unseen = 0
        hashes = array("Q")
        for record in split:
            words = record.text.split()
            self.words.update(words)
            self.lengths[len(words)] += 1
            self.classes[record.label] += 1
            self.characters += len(record.text)
            if known is not None:
                self.unseen += sum(word not in known for word in words)
            digest = blake2b(record.text.encode("utf-8"), digest_size=8).digest()
            hashes.append(int.from_bytes(digest, "little"))
        self.hashes: NDArray[np.uint64] = np.frombuffer(hashes, dtype=np.uint64)
        self.hashes.sort()

    def duplicates(self) -> int:
        return int((self.hashes[1:] == self.hashes[:-1]).sum())

    def also_in(self, other: _Tally) -> int:
        places = np.searchsorted(other.hashes, self.hashes).clip(max=len(other.hashes) - 1)
        return int((other.hashes[places] == self.hashes).sum())

    def describe(self, bins: list[int], labels: tuple[str, ...], compared: bool) -> SplitDescription:
        sentences = self.lengths.total()
        words = sum(length * count for length, count in self.lengths.items())
        mean = words / sentences
        variance = sum(count * (length - mean) ** 2 for length, count in self.lengths.items()) / sentences
        histogram = [0] * len(bins)
        for length, count in self.lengths.items():
            histogram[int(np.searchsorted(bins, length, side="right")) - 1] += count
        return SplitDescription(
            sentences=sentences,
            words=words,
            types=len(self.words),
            unseen=self.unseen / words if compared else None,
            shortest=min(self.lengths),
            mean=mean,
            deviation=sqrt(variance),
            longest=max(self.lengths),
            characters=self.characters / sentences,
            duplicates=self.duplicates(),
            histogram=histogram,
            classes={label: self.classes[label] for label in labels if label in self.classes},
            unlabelled=self.classes[None],
        )


def describe(corpus: Corpus) -> Description:
    """Describe every split of a corpus.

    >>> from textspace.data.corpus import corpus_of
    >>> found = describe(corpus_of(["a cat sat", "a dog", "a cat sat", "birds"]))
    >>> found.splits["train"].sentences, found.bins
    (2, [1, 2, 3])
    """
    tallies: dict[str, _Tally] = {}
    for name, split in corpus.splits.items():  # train comes first
        tallies[name] = _Tally(split, tallies["train"].words if "train" in tallies else None)
    bins = _bins(sum((tally.lengths for tally in tallies.values()), Counter()))
    splits = {
        name: tally.describe(bins, corpus.labels, compared=name != "train" and "train" in tallies)
        for name, tally in tallies.items()
    }
    shared = {
        f"{later} in {earlier}": tallies[later].also_in(tallies[earlier]) for earlier, later in combinations(tallies, 2)
    }
    return Description(corpus.name, splits, bins, shared, corpus.report.lines())


def _bins(lengths: Counter[int]) -> list[int]:
    """Bins of one round width; those beyond the 99th percentile share the last bin, which is open."""
    below, enough, length = 0, 0.99 * lengths.total(), 0
    for length in sorted(lengths):
        below += lengths[length]
        if below >= enough:
            break
    width = next(
        step for power in range(20) for step in (10**power, 2 * 10**power, 5 * 10**power) if length < step * _BINS
    )
    return [width * number for number in range(min(lengths) // width, length // width + 1)]


def render(description: Description) -> RenderableType:
    """Tables and a small histogram for a terminal."""
    splits = description.splits
    figures = Table(title=Text(description.name), title_justify="left")
    figures.add_column("")
    for name in splits:
        figures.add_column(name, justify="right")
    rows = {
        "sentences": [f"{split.sentences:,}" for split in splits.values()],
        "words": [f"{split.words:,}" for split in splits.values()],
        "word types": [f"{split.types:,}" for split in splits.values()],
        "words not in train": ["" if s.unseen is None else f"{s.unseen:.2%}" for s in splits.values()],
        "shortest (words)": [f"{split.shortest:,}" for split in splits.values()],
        "mean": [f"{split.mean:.1f} ± {split.deviation:.1f}" for split in splits.values()],
        "longest": [f"{split.longest:,}" for split in splits.values()],
        "characters, mean": [f"{split.characters:.1f}" for split in splits.values()],
        "duplicates": [f"{split.duplicates:,}" for split in splits.values()],
        "classes": [f"{len(split.classes):,}" for split in splits.values()],
    }
    for name, cells in rows.items():
        figures.add_row(name, *cells)
    parts: list[RenderableType] = [figures]
    if shared := [f"{count:,} of {pair}" for pair, count in description.shared.items() if count]:
        parts.append(Text(f"Shared sentences: {', '.join(shared)}"))
    parts.append(_histogram(description))
    if any(split.classes for split in splits.values()):
        parts.append(_classes(splits))
    parts += [Text(note) for note in description.notes]
    return Group(*parts)


def _histogram(description: Description) -> Table:
    """Lengths of the first split (train, where there is one)."""
    name, split = next(iter(description.splits.items()))
    table = Table(title=f"Words per sentence in {name}", title_justify="left", box=None, show_header=False)
    table.add_column(justify="right")
    table.add_column(justify="right")
    table.add_column()
    most = max(split.histogram)
    for number, (least, count) in enumerate(zip(description.bins, split.histogram, strict=True)):
        is_last = number + 1 == len(description.bins)
        end = least if is_last else description.bins[number + 1] - 1
        lengths = f"{least}+" if is_last else str(least) if end == least else f"{least}-{end}"
        table.add_row(lengths, f"{count:,}", "█" * round(_BAR * count / most))
    return table


def _classes(splits: dict[str, SplitDescription]) -> Table:
    """Sentences per class, for the first few classes."""
    table = Table(title="Sentences per class", title_justify="left")
    table.add_column("class")
    for name in splits:
        table.add_column(name, justify="right")
    labels = list(dict.fromkeys(label for split in splits.values() for label in split.classes))
    for label in labels[:_SHOWN_CLASSES]:
        table.add_row(Text(label), *(f"{split.classes.get(label, 0):,}" for split in splits.values()))
    if len(labels) > _SHOWN_CLASSES:
        table.add_row(f"and {len(labels) - _SHOWN_CLASSES:,} more")
    if any(split.unlabelled for split in splits.values()):
        table.add_row("no class", *(f"{split.unlabelled:,}" for split in splits.values()))
    return table
