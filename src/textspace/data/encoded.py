"""Corpora as token ids in memory-mapped files, encoded once for each content and tokenizer."""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from textspace.data.array_file import ArrayFile
from textspace.data.content import Content
from textspace.data.options import Record
from textspace.data.ragged import end_to_end, gathered
from textspace.data.tokenizers import UNKNOWN, Tokenizer
from textspace.digests import check_record, digest_of_file, with_digest
from textspace.errors import TextspaceError, warn
from textspace.files import read_json
from textspace.progress import track

if TYPE_CHECKING:
    from textspace.data.corpus import Corpus

__all__ = ["EncodedCorpus", "EncodedSplit", "OverLong", "encode_corpus"]

OverLong = Literal["drop", "truncate"]

_FORMAT = 2  # part of the fingerprint, which run folders store: raise when the meaning of an array changes
_LAYOUT = 1  # part of the folder's name alone: raise when the files change; older caches are then left alone
_CHUNK_SENTENCES = 8_192
_CHUNK_CHARACTERS = 4_000_000  # keeps memory flat when sentences are very long
_STALE_SECONDS = 7 * 24 * 3600
_FACTS = "facts.json"
# One value for each sentence, but for the two arrays of contents and their offsets (one value more).
_DTYPES: dict[str, DTypeLike] = {
    "tokens": np.uint16,  # uint32 when the vocabulary needs it
    "offsets": np.int64,
    "text": np.uint8,
    "text_offsets": np.int64,
    "words": np.int32,
    "chars": np.int32,
    "labels": np.int32,
    "sources": np.int32,
}
_ENCODER_DTYPES: dict[str, DTypeLike] = {"encoder_tokens": np.uint32, "encoder_offsets": np.int64}
"""Where a pretrained encoder reads the text too: as `tokens` and `offsets`, its special tokens included."""


class EncodedSplit:
    """The sentences of one split. Arrays of a cached one stay on disk and are read as they are used.

    Attributes:
        offsets: sentence `i` is `tokens[offsets[i]:offsets[i + 1]]`, without start and end.
        words, chars: whitespace words and characters of each sentence.
        labels: position of each sentence's label in `EncodedCorpus.labels`, -1 for none.
        sources: number of the source each sentence came from.
        over_long: how many sentences were dropped or truncated for having too many tokens.
        encoder_cut: how many of these sentences a pretrained encoder reads only the beginning of.
        fingerprint: of the content, the tokenizer and the options that made it.
    """

    def __init__(
        self, arrays: Mapping[str, NDArray[Any]], fingerprint: str, over_long: int, encoder_cut: int = 0
    ) -> None:
        self.fingerprint = fingerprint
        self.over_long, self.encoder_cut = over_long, encoder_cut
        self.tokens, self.offsets = arrays["tokens"], arrays["offsets"]
        self.words, self.chars = arrays["words"], arrays["chars"]
        self.labels, self.sources = arrays["labels"], arrays["sources"]
        self._text, self._text_offsets = arrays["text"], arrays["text_offsets"]
        self._encoder_tokens, self._encoder_offsets = (arrays.get(name) for name in _ENCODER_DTYPES)

    @classmethod
    def open(cls, folder: Path) -> EncodedSplit:
        """The split that `encode_corpus` cached in a folder, every bit of it checked."""
        facts = check_record(read_json(folder / _FACTS))
        for name, digest in facts["digests"].items():
            if digest_of_file(folder / f"{name}.npy") != digest:
                raise ValueError(f"{name}.npy is not the file that was stored")
        return cls._of_files(folder, facts)

    @classmethod
    def _of_files(cls, folder: Path, facts: Mapping[str, Any]) -> EncodedSplit:
        """The same, of files that are known to be intact."""
        arrays = {name: _mapped(folder / f"{name}.npy") for name in facts["digests"]}
        return cls(arrays, facts["fingerprint"], facts["over_long"], facts["encoder_cut"])

    @classmethod
    def of(cls, texts: Sequence[str], tokenizer: Tokenizer, max_tokens: int | None) -> EncodedSplit:
        """Sentences in memory, over-long ones cut."""
        recipe = _Recipe(tokenizer, max_tokens, "truncate", labels=())
        arrays, over_long, encoder_cut = recipe.arrays([Record(text, None) for text in texts])
        for offsets in (name for name in arrays if name.endswith("offsets")):
            arrays[offsets] = np.concatenate([[0], arrays[offsets]])
        return cls(arrays, fingerprint="", over_long=over_long, encoder_cut=encoder_cut)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def lengths(self) -> NDArray[np.int32]:
        """Tokens of each sentence, start and end included."""
        return np.diff(self.offsets).astype(np.int32) + 2

    @cached_property
    def encoder_lengths(self) -> NDArray[np.int32]:
        """Tokens of each sentence as the encoder reads it, with all that stands before and after its words."""
        return self.lengths if self._encoder_offsets is None else np.diff(self._encoder_offsets).astype(np.int32)

    @property
    def unknown_share(self) -> float:
        """Of the tokens, those that the tokenizer does not know."""
        return float((self.tokens == UNKNOWN).mean()) if len(self.tokens) else 0.0

    @property
    def unknown_N(self) -> NDArray[np.int64]:
        """How many tokens of each sentence those are."""
        return np.diff(np.concatenate([[0], (self.tokens == UNKNOWN).cumsum()])[self.offsets])

    @property
    def encoder_limit(self) -> int | None:
        """The most tokens that a pretrained encoder reads, where a sentence has more; its special ones included."""
        return int(self.encoder_lengths.max()) if self.encoder_cut else None

    def ids(self, row: int) -> NDArray[np.unsignedinteger]:
        """Token ids of one sentence, without start and end."""
        row = self._row(row)
        return self.tokens[self.offsets[row] : self.offsets[row + 1]]

    def text(self, row: int) -> str:
        """One sentence as it was read (of a truncated one: the part that its tokens stand for)."""
        row = self._row(row)
        return self._text[self._text_offsets[row] : self._text_offsets[row + 1]].tobytes().decode()

    def gather(self, rows: NDArray[np.integer]) -> tuple[NDArray[np.unsignedinteger], NDArray[np.int64]]:
        """Token ids of many sentences end to end, and how many each one has."""
        return gathered(self.tokens, self.offsets, rows)

    @property
    def has_encoder_tokens(self) -> bool:
        """Whether a pretrained encoder reads these sentences with a tokenizer of its own."""
        return self._encoder_tokens is not None

    def gather_for_encoder(
        self, rows: NDArray[np.integer]
    ) -> tuple[NDArray[np.unsignedinteger], NDArray[np.int64]] | None:
        """The same in a pretrained encoder's own ids, special tokens included; None where there is no such encoder."""
        if self._encoder_tokens is None or self._encoder_offsets is None:
            return None
        return gathered(self._encoder_tokens, self._encoder_offsets, rows)

    def _row(self, row: int) -> int:
        if not 0 <= row < len(self):
            raise IndexError(f"sentence {row} of {len(self)}")
        return int(row)


@dataclass(frozen=True)
class EncodedCorpus:
    """The encoded splits of a corpus and the names of its labels."""

    splits: dict[str, EncodedSplit]
    labels: tuple[str, ...]
    contents: dict[str, Content]
    """What was read of each split."""


def encode_corpus(
    corpus: Corpus,
    tokenizer: Tokenizer,
    *,
    cache: Path,
    max_tokens: int | None,
    over_long: OverLong = "drop",
    progress: bool = False,
) -> EncodedCorpus:
    """Encode every split of `corpus`, or open it where that was done before; a damaged cache is encoded again.

    Args:
        corpus: read twice when it is new, else once; its report gets what was too long.
        tokenizer: trained on the training split.
        cache: folder of caches, one subfolder for each content, tokenizer and choice of options.
        max_tokens: the most tokens of a sentence, start and end not counted; None for any number.
        over_long: what happens to sentences with more.
        progress: show progress bars.
    """
    recipe = _Recipe(tokenizer, max_tokens, over_long, tuple(corpus.labels))
    splits, contents, damaged = {}, {}, []
    for name, records in corpus.splits.items():
        content = contents[name] = Content(name)
        for _ in content.reading(track(records, f"reading {name}", progress)):
            pass
        fingerprint = recipe.fingerprint(content)
        folder = cache / f"{fingerprint[:32]}-{_LAYOUT}"
        exists = os.path.exists(folder)
        split = _opened(folder, fingerprint) if exists else None
        if split is None:
            if exists:
                damaged.append(name)
            again = Content(name, sketched=False)
            reading = again.reading(track(records, f"encoding {name}", progress, content.count))
            try:
                cache.mkdir(parents=True, exist_ok=True)
                _sweep(cache)
                # Only a finished cache gets its name, so what a killed process leaves behind is never read.
                with tempfile.TemporaryDirectory(dir=cache, prefix="unfinished-") as temporary:
                    unfinished = Path(temporary, "split")
                    facts = _write(unfinished, fingerprint, reading, recipe)
                    if again.digest != content.digest:
                        raise TextspaceError(f"the {name} split changed while it was read; start again")
                    split = _installed(unfinished, folder, facts)
            except OSError as error:
                raise TextspaceError(
                    f"the cache folder {cache} cannot be written ({error.strerror or error}): name another in the "
                    "environment variable TEXTSPACE_CACHE"
                ) from error
        splits[name] = split
    if damaged:
        warn(f"the cached text in {cache} was damaged ({', '.join(damaged)}) and has been encoded again")
    corpus.report.over_long = sum(split.over_long for split in splits.values())
    corpus.report.max_tokens, corpus.report.cuts = max_tokens, over_long == "truncate"
    corpus.report.encoder_cut = sum(split.encoder_cut for split in splits.values())
    corpus.report.encoder_limit = max((split.encoder_limit or 0 for split in splits.values()), default=0)
    return EncodedCorpus(splits, recipe.labels, contents)


def _sweep(cache: Path) -> None:
    """Remove what killed processes left behind, but nothing that may still be written."""
    for leftover in cache.glob("unfinished-*"):
        with suppress(OSError):
            if time.time() - leftover.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(leftover)


@dataclass(frozen=True)
class _Recipe:
    """All that decides what is written for some records."""

    tokenizer: Tokenizer
    max_tokens: int | None
    over_long: OverLong
    labels: tuple[str, ...]

    def fingerprint(self, content: Content) -> str:
        facts = [
            _FORMAT,
            content.digest,
            self.tokenizer.fingerprint,
            self.max_tokens,
            self.over_long,
            self.labels,
        ]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    @property
    def token_dtype(self) -> DTypeLike:
        return np.uint16 if len(self.tokenizer) <= 2**16 else np.uint32

    def arrays(self, records: list[Record]) -> tuple[dict[str, NDArray[Any]], int, int]:
        """What to append to each file, how many sentences were over-long, and how many were cut for the encoder.

        The offsets start at 0 here: `_write` moves them to where the files end.
        """
        ids = self.tokenizer.encode([record.text for record in records])
        sentences = [(record, record.text, own) for record, own in zip(records, ids, strict=True)]
        too_many = 0
        if self.max_tokens is not None:
            too_many = sum(len(own) > self.max_tokens for own in ids)
            if too_many:
                sentences = list(self._shortened(sentences, self.max_tokens))
        texts = [text.encode() for _, text, _ in sentences]
        numbers = {label: number for number, label in enumerate(self.labels)}
        counts = np.array([len(own) for *_, own in sentences], np.int64)
        columns = {
            "tokens": np.fromiter(
                itertools.chain.from_iterable(own for *_, own in sentences), self.token_dtype, counts.sum()
            ),
            "offsets": counts.cumsum(),
            "text": np.frombuffer(b"".join(texts), np.uint8),
            "text_offsets": np.array([len(text) for text in texts], np.int64).cumsum(),
            "words": np.array([len(text.split()) for _, text, _ in sentences], np.int32),
            "chars": np.array([len(text) for _, text, _ in sentences], np.int32),
            "labels": np.array(
                [-1 if record.label is None else numbers[record.label] for record, *_ in sentences], np.int32
            ),
            "sources": np.array([record.source for record, *_ in sentences], np.int32),
        }
        encoder_cut = 0
        if self.tokenizer.encoder is not None:
            read, encoder_cut = self.tokenizer.encoder.encode_counting([text for _, text, _ in sentences])
            columns |= dict(zip(_ENCODER_DTYPES, end_to_end(read, np.uint32), strict=True))
        return columns, too_many, encoder_cut

    def _shortened(
        self, sentences: list[tuple[Record, str, list[int]]], most: int
    ) -> Iterator[tuple[Record, str, list[int]]]:
        for record, text, ids in sentences:
            if len(ids) <= most:
                yield record, text, ids
            elif self.over_long == "truncate":
                # Words and characters are counted on the part that is left, to go with its tokens.
                yield record, self.tokenizer.covered(text, ids[:most]), ids[:most]


def _chunks(records: Iterable[Record]) -> Iterator[list[Record]]:
    chunk: list[Record] = []
    characters = 0
    for record in records:
        chunk.append(record)
        characters += len(record.text)
        if len(chunk) == _CHUNK_SENTENCES or characters >= _CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def _write(folder: Path, fingerprint: str, records: Iterable[Record], recipe: _Recipe) -> dict[str, Any]:
    """Write the arrays and the facts about them; returns the facts."""
    folder.mkdir()
    dtypes = _DTYPES | {"tokens": recipe.token_dtype} | (_ENCODER_DTYPES if recipe.tokenizer.encoder else {})
    with ExitStack() as stack:
        files = {name: stack.enter_context(ArrayFile(folder / f"{name}.npy", dtype)) for name, dtype in dtypes.items()}
        starts = {name: 0 for name in dtypes if name.endswith("offsets")}
        for name in starts:
            files[name].append(np.zeros(1, np.int64))
        over_long = encoder_cut = 0
        for chunk in _chunks(records):
            arrays, too_many, cut = recipe.arrays(chunk)
            over_long, encoder_cut = over_long + too_many, encoder_cut + cut
            for name, start in starts.items():
                arrays[name] += start
                starts[name] = int(arrays[name][-1]) if len(arrays[name]) else start
            for name, array in arrays.items():
                files[name].append(array)
    facts = {
        "fingerprint": fingerprint,
        "over_long": over_long,
        "encoder_cut": encoder_cut,
        "digests": {name: digest_of_file(folder / f"{name}.npy") for name in files},
    }
    (folder / _FACTS).write_text(json.dumps(with_digest(facts), indent=1), encoding="utf-8")
    return facts


def _mapped(path: Path) -> NDArray[Any]:
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    return array.view(np.ndarray)  # a memmap makes a slow Python object of every slice


def _opened(folder: Path, fingerprint: str) -> EncodedSplit | None:
    """The split cached in `folder`, or None if there is none, it is damaged, or it is another one."""
    try:
        split = EncodedSplit.open(folder)
    except (OSError, EOFError, ValueError, KeyError):
        return None
    return split if split.fingerprint == fingerprint else None


def _installed(unfinished: Path, folder: Path, facts: Mapping[str, Any]) -> EncodedSplit:
    """Give a finished cache its name, unless another process has been faster."""
    # Open files stay readable wherever they are moved, even when deleted.
    split = EncodedSplit._of_files(unfinished, facts)
    while True:
        try:
            unfinished.rename(folder)
            return split
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
        other = _opened(folder, split.fingerprint)
        if other is not None:
            return other
        shutil.rmtree(folder, ignore_errors=True)  # damaged
