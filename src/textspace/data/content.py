"""What was read of a split, in a few numbers: the same text has the same, wherever it lies."""

from __future__ import annotations

import base64
import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from textspace.data.options import Record
from textspace.errors import TextspaceError

if TYPE_CHECKING:
    from textspace.data.corpus import Split

__all__ = ["TRAINING_TEXT", "Content", "Met", "Sketch", "canonical"]

TRAINING_TEXT = "training_text"
"""Under which name a space's metrics tell what text it was trained on: see `Content.text`."""


RAW, CANONICAL = "", "2:"
"""How stored digests and sketches begin: those of earlier versions hash sentences as they are and have no prefix, those
of today hash the canonical form."""

_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufe00-\ufe0f\ufeff]")


_PUNCTUATION = str.maketrans(dict.fromkeys(".,;:!?\"'`()[]\u2018\u2019\u201c\u201d\u2013\u2014", " "))


def canonical(text: str) -> str:
    r"""The form in which sentences are compared: without differences of case, spacing, punctuation, invisible
    characters and Unicode encoding.

    >>> canonical("  A\u00a0dog  BARKS ."), canonical("cafe\u0301\u200b") == canonical("CAF\u00c9"), canonical("?!")
    ('a dog barks', True, '?!')
    """
    if not text.isascii():
        text = _INVISIBLE.sub("", unicodedata.normalize("NFKC", text))
    words = text.casefold()
    return " ".join(words.translate(_PUNCTUATION).split()) or " ".join(words.split())


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest(), "little")


class _Smallest:
    """The smallest of the hashes that are added."""

    SIZE = 1024

    def __init__(self) -> None:
        self.hashes: set[int] = set()
        self.largest = 2**64 - 1
        """Larger ones are not kept."""

    def add(self, found: int) -> None:
        if found <= self.largest:
            self.hashes.add(found)
            if len(self.hashes) >= 2 * self.SIZE:
                self.shorten()

    def shorten(self) -> None:
        kept = sorted(self.hashes)[: self.SIZE]
        if len(kept) == self.SIZE:
            self.largest = min(self.largest, kept[-1])
        self.hashes = {each for each in kept if each <= self.largest}

    def join(self, stored: str) -> None:
        """Add the hashes that `stored` gave for another text."""
        hashes = np.frombuffer(base64.b64decode(stored), "<u8").tolist()
        self.hashes.update(hashes)
        if len(hashes) >= self.SIZE:
            self.largest = min(self.largest, max(hashes))
        self.shorten()

    @property
    def stored(self) -> str:
        self.shorten()
        return base64.b64encode(np.array(sorted(self.hashes), "<u8").tobytes()).decode()


class Met(NamedTuple):
    """How many different sentences of a text are among those of a sketch, of how many that the sketch can decide."""

    met: int
    looked_up: int
    different: int
    """All different sentences of the text."""


class Sketch:
    """The smallest hashes of a text's sentences: enough to tell how many of another text's sentences are among them.

    Of a text with more different sentences than are kept, only sentences with a hash up to the largest kept one can be
    looked up: the same random share of any text. Sketches of two texts make one of both. Sentences are compared in
    their canonical form, but as they are with a sketch of an earlier version.

    >>> a, b = Sketch(), Sketch()
    >>> for text in ("one", "two", "Two "):
    ...     a.add(text)
    >>> b.add("three")
    >>> a.met(["one", "three"])
    Met(met=1, looked_up=2, different=2)
    >>> Sketch.of(a.written, b.written).met(["ONE", "three", "four"])
    Met(met=2, looked_up=3, different=3)
    """

    def __init__(self) -> None:
        self._kept = {CANONICAL: _Smallest()}

    @classmethod
    def of(cls, *written: str) -> Sketch:
        """Of all the texts whose sketches are given."""
        sketch = cls()
        sketch._kept = {}
        for each in " ".join(written).split():
            form = CANONICAL if each.startswith(CANONICAL) else RAW
            sketch._kept.setdefault(form, _Smallest()).join(each.removeprefix(form))
        return sketch

    def add(self, text: str) -> None:
        self._kept[CANONICAL].add(_hash(canonical(text)))

    def met(self, texts: Iterable[str]) -> Met:
        for kept in self._kept.values():
            kept.shorten()
        met, looked_up, different = set(), set(), set()
        for text in texts:
            sentence = _hash(canonical(text))
            different.add(sentence)
            for form, kept in self._kept.items():
                found = sentence if form == CANONICAL else _hash(text)
                if found <= kept.largest:
                    looked_up.add(sentence)
                    if found in kept.hashes:
                        met.add(sentence)
        return Met(len(met), len(looked_up), len(different))

    @property
    def written(self) -> str:
        """For a file."""
        return " ".join(form + kept.stored for form, kept in self._kept.items())


class Content:
    """Digest and number of the records read through it, the digest of their sentences alone, and their sketch."""

    def __init__(self, name: str, *, sketched: bool = True) -> None:
        self.count = 0
        self._name, self._sketched = name, sketched
        self._records = hashlib.blake2b()
        self._texts = {form: hashlib.blake2b(digest_size=16) for form in (RAW, CANONICAL)}
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
            if self._sketched:
                for form, each in ((RAW, text), (CANONICAL, canonical(record.text).encode())):
                    self._texts[form].update(b"%d %b" % (len(each), each))
                self.sketch.add(record.text)
            yield record

    @property
    def digest(self) -> str:
        return self._records.hexdigest()

    @property
    def text(self) -> dict[str, int | str]:
        """What tells the sentences in their order from others, whatever their labels, and which they are."""
        digest = CANONICAL + self._texts[CANONICAL].hexdigest()
        return {"sentences": self.count, "digest": digest, "sketch": self.sketch.written}

    def is_text(self, known: Mapping[str, Any]) -> bool:
        """Whether these are the sentences of a stored `text`, in their order; an earlier version may have stored it."""
        digests = [form + each.hexdigest() for form, each in self._texts.items()]
        return self.count == known.get("sentences") and known.get("digest") in digests
