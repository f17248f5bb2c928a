"""Text made ready for a recipe: its tokenizer, every split as ids, and where such things are kept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from textspace.config import PretrainedEncoder, Recipe
from textspace.data.corpus import Corpus
from textspace.data.encoded import EncodedCorpus, EncodedSplit, encode_corpus
from textspace.data.tokenizers import Tokenizer
from textspace.data.vocabularies import tokenizer_for
from textspace.errors import TextspaceError
from textspace.pretrained import EncoderFiles

__all__ = ["Prepared", "cache_folder", "needed_splits", "prepare"]


def cache_folder() -> Path:
    """Where encoded corpora, vocabularies and first phases are kept: TEXTSPACE_CACHE, else the user's cache folder."""
    chosen = os.environ.get("TEXTSPACE_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(chosen) if chosen else Path(home) / "textspace"


@dataclass(frozen=True)
class Prepared:
    """Text made ready for a recipe."""

    tokenizer: Tokenizer
    encoded: EncodedCorpus
    corpus: Corpus

    @property
    def fingerprint(self) -> str:
        """Of the splits that decide the weights."""
        return "/".join(self.encoded.splits[name].fingerprint for name in ("train", "valid"))


def prepare(corpus: Corpus, recipe: Recipe, *, tokenizer: Tokenizer | None = None, progress: bool = False) -> Prepared:
    """Train the recipe's tokenizer on the training split (unless one is given) and encode every split.

    A pretrained encoder's tokenizer stands beside it, fetched unless it was given too.
    """
    if corpus.normalise != recipe.text.normalise:
        raise TextspaceError(
            f"the corpus {corpus.name!r} was opened with normalise={list(corpus.normalise)} and the recipe has "
            f"text.normalise={list(recipe.text.normalise)}: open it with the recipe's"
        )
    files = None if tokenizer is None else tokenizer.encoder
    if isinstance(recipe.encoder, PretrainedEncoder):
        files = files or EncoderFiles.fetch(recipe.encoder)  # first: one that is not there is told before the rest
    if tokenizer is None:
        if "train" not in corpus.splits:
            raise TextspaceError(f"{corpus.name} has no training split: name a file 'train' or give a single file")

        def texts() -> Iterator[str]:
            return (record.text for record in corpus.splits["train"])

        tokenizer = tokenizer_for(recipe.text.tokenizer, texts, cache_folder(), progress=progress)
    if files is not None and tokenizer.encoder is None:
        tokenizer = tokenizer.with_encoder(files)
    encoded = encode_corpus(
        corpus,
        tokenizer,
        cache=cache_folder(),
        max_tokens=recipe.text.max_tokens,
        over_long=recipe.text.over_long,
        progress=progress,
    )
    return Prepared(tokenizer, encoded, corpus)


def needed_splits(prepared: Prepared) -> dict[str, EncodedSplit]:
    """The splits, of which training needs two."""
    for name, purpose in (("train", "train on"), ("valid", "validate on")):
        if name not in prepared.encoded.splits or not len(prepared.encoded.splits[name]):
            why = f"{prepared.corpus.name} has no sentences to {purpose}"
            if name in prepared.encoded.splits and prepared.encoded.splits[name].over_long:
                most = prepared.corpus.report.max_tokens
                raise TextspaceError(
                    f"{why} of at most {most} tokens: raise text.max_tokens, or cut them with text.over_long=truncate"
                )
            raise TextspaceError(f"{why}: give a source with more text")
    return prepared.encoded.splits
