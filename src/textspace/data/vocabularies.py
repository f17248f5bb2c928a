"""Subword vocabularies kept in the cache: to learn one takes minutes, and runs on the same text share it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path

from textspace.config import TokenizerConfig
from textspace.data.tokenizers import Tokenizer, train_tokenizer
from textspace.digests import check_record, with_digest
from textspace.errors import TextspaceError, warn
from textspace.files import read_json, whole_or_nothing

__all__ = ["tokenizer_for"]

_LAYOUT = 1  # raise when the files change: older ones are then left alone


def tokenizer_for(
    config: TokenizerConfig, texts: Callable[[], Iterable[str]], cache: Path, *, progress: bool = False
) -> Tokenizer:
    """The tokenizer that a text gives, learned unless the cache has it; a damaged one is learned again.

    Args:
        config: its kind and size.
        texts: gives the text anew at each call.
        cache: the folder of caches.
        progress: show a bar.
    """
    if config.kind == "words":  # learned in the one pass that looking for it would take
        return train_tokenizer(config, texts(), progress=progress)
    kept = cache / f"vocabulary-{_fingerprint(config, texts())}.json"
    exists = kept.exists()
    if exists and (stored := _stored(kept)) is not None:
        return stored
    tokenizer = train_tokenizer(config, texts(), progress=progress)
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with whole_or_nothing(kept) as unfinished:  # others may learn the same at the same time
            unfinished.write_text(json.dumps(with_digest({"tokenizer": tokenizer.to_json()})), encoding="utf-8")
    except OSError as error:
        raise TextspaceError(f"the cache folder {cache} cannot be written: {error}") from error
    if exists:
        warn(f"the cached vocabulary {kept} was damaged and has been learned again")
    return tokenizer


def _stored(path: Path) -> Tokenizer | None:
    """The tokenizer in a file of the cache; None where the file is damaged."""
    try:
        return Tokenizer(check_record(read_json(path))["tokenizer"])
    except Exception:  # the library of tokenizers raises bare Exception
        return None


def _fingerprint(config: TokenizerConfig, texts: Iterable[str]) -> str:
    """Of all that decides a vocabulary."""
    digest = hashlib.blake2b(json.dumps([_LAYOUT, config.model_dump(mode="json")]).encode(), digest_size=16)
    for text in texts:
        coded = text.encode(errors="surrogatepass")  # training says what is wrong with such text
        digest.update(b"%d " % len(coded))
        digest.update(coded)
    return digest.hexdigest()
