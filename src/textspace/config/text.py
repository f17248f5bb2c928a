"""How raw text becomes token ids."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from textspace.config.base import Config, Count, Whole
from textspace.data.tokenizers import UNKNOWN_ALIASES

__all__ = ["BPETokenizer", "Text", "TokenizerConfig", "UnigramTokenizer", "WordTokenizer"]


class WordTokenizer(Config):
    kind: Literal["words"] = "words"
    size: Count | None = None
    """Keep this many of the most frequent words; all of them when not given."""
    min_count: Count = 1
    """Keep words that occur at least this often in the training split."""
    unknown_aliases: tuple[str, ...] = UNKNOWN_ALIASES
    """How corpora write an unknown word; all become the one unknown token."""


class BPETokenizer(Config):
    kind: Literal["bpe"] = "bpe"
    size: Annotated[Whole, Field(ge=260)] = 8000
    """Vocabulary size, the 256 bytes and 4 special tokens included."""


class UnigramTokenizer(Config):
    kind: Literal["unigram"] = "unigram"
    size: Annotated[Whole, Field(ge=260)] = 8000
    """Vocabulary size, the 256 bytes and 4 special tokens included."""


TokenizerConfig = Annotated[WordTokenizer | BPETokenizer | UnigramTokenizer, Field(discriminator="kind")]


class Text(Config):
    """How raw text becomes token ids: for training, and for every sentence the space meets later."""

    normalise: Annotated[
        tuple[Literal["lower", "ascii", "quotes", "links", "html"], ...],
        BeforeValidator(lambda given: (given,) if isinstance(given, str) else given),
    ] = ()
    """Applied in this order; one alone may be written without brackets."""
    tokenizer: TokenizerConfig = WordTokenizer()
    max_tokens: Count | None = 512
    """Sentences with more tokens are over-long."""
    over_long: Literal["drop", "truncate"] = "drop"
    """What happens to over-long sentences in training and evaluation; either way they are counted."""
