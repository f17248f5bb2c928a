"""What was read of a split, in a few numbers: the same text has the same, wherever it lies."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from textspace.data.options import Record
from textspace.errors import TextspaceError

if TYPE_CHECKING:
    from textspace.data.corpus import Split

__all__ = ["TRAINING_TEXT", "Content"]

TRAINING_TEXT = "training_text"
"""Under which name a space's metrics tell what text it was trained on: see `Content.text`."""


class Content:
    """Digest and number of the records read through it, and the digest of their sentences alone."""

    def __init__(self, name: str) -> None:
        self.count = 0
        self._name = name
        self._records, self._texts = hashlib.blake2b(), hashlib.blake2b(digest_size=16)

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
            yield record

    @property
    def digest(self) -> str:
        return self._records.hexdigest()

    @property
    def text(self) -> dict[str, int | str]:
        """What tells the sentences in their order from others, whatever their labels."""
        return {"sentences": self.count, "digest": self._texts.hexdigest()}
