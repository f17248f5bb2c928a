"""What was read of a split, in a few numbers: the same text has the same, wherever it lies."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from textspace.data.options import Record
from textspace.errors import TextspaceError

if TYPE_CHECKING:
    from textspace.data.corpus import Split

__all__ = ["TRAINING_TEXT", "Content", "Sketch"]

TRAINING_TEXT = "training_text"
"""Under which name a space's metrics tell what text it was trained on: see `Content.text`."""


class Sketch:
    """The smallest hashes of a text's sentences: enough to tell how many of another text's sentences are among them.

    Of a text with more different sentences than are kept, only sentences with a hash up to the largest kept one can be
    looked up: the same random share of any text. Sketches of two texts make one of both.

    >>> a, b = Sketch(), Sketch()
    >>> for text in (b"one", b"two", b"two"):
    ...     a.add(text)
    >>> b.add(b"three")
    >>> a.met(["one", "three"]), Sketch.of(a.written, b.written).met(["one", "three", "four"])
    ((1, 2), (2, 3))
    """

    SIZE = 1024
    """Hashes that are kept."""

    def __init__(self) -> None:
        self._hashes: set[int] = set()
        self._largest = 2**64 - 1
        """Larger ones are not kept."""

    @classmethod
    def of(cls, *written: str) -> Sketch:
        """Of all the texts whose sketches are given."""
        sketch = cls()
        for each in written:
            hashes = np.frombuffer(base64.b64decode(each), "<u8").tolist()
            sketch._hashes.update(hashes)
            if len(hashes) >= cls.SIZE:
                sketch._largest = min(sketch._largest, max(hashes))
        sketch._shorten()
        return sketch

    def add(self, text: bytes) -> None:
        found = self._hash(text)
        if found <= self._largest:
            self._hashes.add(found)
            if len(self._hashes) >= 2 * self.SIZE:
                self._shorten()

    def _shorten(self) -> None:
        kept = sorted(self._hashes)[: self.SIZE]
        if len(kept) == self.SIZE:
            self._largest = min(self._largest, kept[-1])
        self._hashes = {each for each in kept if each <= self._largest}

    @staticmethod
    def _hash(text: bytes) -> int:
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")

    def met(self, texts: Iterable[str]) -> tuple[int, int]:
        """How many different sentences are among those of the sketch, and how many could be looked up."""
        self._shorten()
        hashes = {self._hash(text.encode()) for text in texts}
        known = {each for each in hashes if each <= self._largest}
        return len(known & self._hashes), len(known)

    @property
    def written(self) -> str:
        """For a file."""
        self._shorten()
        return base64.b64encode(np.array(sorted(self._hashes), "<u8").tobytes()).decode()


class Content:
    """Digest and number of the records read through it, the digest of their sentences alone, and their sketch."""

    def __init__(self, name: str, *, sketched: bool = True) -> None:
        self.count = 0
        self._name, self._sketched = name, sketched
        self._records, self._texts = hashlib.blake2b(), hashlib.blake2b(digest_size=16)
        self.sketch = Sketch()

    @classmethod
    def of(cls, split: Split) -> Content:
        """All of a split, which is read for it."""
        content = cls(split.name)
        for _ in content.reading(split):
            pass
        return content

    def reading(self, records: Iterable[Record]) -> Iterator[Record]:
        for record in records:
            try:
                text = record.text.encode()
            except UnicodeEncodeError as error:
                raise TextspaceError(
                    f"sentence {self.count + 1} of the {self._name} split is not valid Unicode "
                    f"({error.reason}); mend or drop it"
                ) from error
            self.count += 1
            self._records.update(b"%d %d %a " % (len(text), record.source, record.label))
            self._records.update(text)
            self._texts.update(b"%d " % len(text))
            self._texts.update(text)
            if self._sketched:
                self.sketch.add(text)
            yield record

    @property
    def digest(self) -> str:
        return self._records.hexdigest()

    @property
    def text(self) -> dict[str, int | str]:
        """What tells the sentences in their order from others, whatever their labels, and which they are."""
        return {"sentences": self.count, "digest": self._texts.hexdigest(), "sketch": self.sketch.written}

    def is_text(self, known: Mapping[str, Any]) -> bool:
        """Whether these are the sentences that `text` told of, in their order."""
        return (self.count, self._texts.hexdigest()) == (known.get("sentences"), known.get("digest"))
