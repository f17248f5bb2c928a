r"""Words marked in a sentence, as in `the [food] was great`, and which of its tokens they are.

Brackets are no part of the sentence; plain ones are written \[ and \].
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from textspace.data.encoded import EncodedSplit
from textspace.data.tokenizers import Tokenizer
from textspace.errors import TextspaceError

__all__ = ["Marked", "cleaned", "marked", "marks_in", "token_positions", "words_marked"]

Span = tuple[int, int]
"""Where characters begin and end."""

_BRACKETS = re.compile(r"\\?[\[\]]")
_SIGNS = [chr(code) for code in (*range(1, 9), *range(14, 28))]  # control characters, blank ones apart
_PLAIN = r"or write \[ and \] for plain brackets"


class Marked(NamedTuple):
    """A sentence, and which of its characters are marked."""

    text: str
    spans: list[Span]


def marks_in(written: str, words: str | Sequence[str] | None, normalise: Callable[[str], str]) -> tuple[str, Marked]:
    """The sentence without its marks, and its normalised form with the marked spans.

    With `words` these are marked instead, and brackets are plain text.
    """
    if words is not None:
        return written, words_marked(written, words, normalise)
    given = marked(written)
    return given.text, cleaned(given, normalise)


def marked(written: str) -> Marked:
    r"""A sentence without its brackets; blanks at the edges of a mark are not marked.

    >>> marked(r"the [food] \[sic\] was [ great ]")
    Marked(text='the food [sic] was  great ', spans=[(4, 8), (20, 25)])
    """
    text, opened, end = "", -1, 0
    spans: list[Span] = []
    for bracket in _BRACKETS.finditer(written):
        text += written[end : bracket.start()]
        end = bracket.end()
        if bracket[0].startswith("\\"):
            text += bracket[0][1]
        elif (bracket[0] == "[") != (opened < 0):
            wrong = "opens inside of another" if bracket[0] == "[" else "is closed that was never opened"
            raise TextspaceError(f"a mark {wrong} in {written!r}: put each word to vary between [ and ], {_PLAIN}")
        elif bracket[0] == "[":
            opened = len(text)
        else:
            spans.append(_without_blanks(text, opened))
            opened = -1
    if opened >= 0:
        raise TextspaceError(f"a mark is never closed in {written!r}: put a ] after the word to vary, {_PLAIN}")
    return Marked(text + written[end:], spans)


def _without_blanks(text: str, start: int) -> Span:
    """The marked end of a text."""
    inside = text[start:]
    if not inside.strip():
        raise TextspaceError(f"a mark is empty: put a word to vary between [ and ], {_PLAIN}")
    return start + len(inside) - len(inside.lstrip()), start + len(inside.rstrip())


def cleaned(given: Marked, normalise: Callable[[str], str]) -> Marked:
    """The marked sentence after a space's clean-up of text, the marks in their new places."""
    text = normalise(given.text)
    if text == given.text or not given.spans:
        return Marked(text, given.spans)
    # The clean-up sees control characters in the place of brackets: no rule of it is about them.
    opening, closing = [sign for sign in _SIGNS if sign not in given.text][:2]
    pieces, end = [], 0
    for start, stop in given.spans:
        pieces += [given.text[end:start], opening, given.text[start:stop], closing]
        end = stop
    parts = re.split(f"([{opening}{closing}])", normalise("".join([*pieces, given.text[end:]])))
    lengths = [len(part) for part in parts[::2]]
    ends = [sum(lengths[: number + 1]) for number in range(len(lengths))]
    spans = list(zip(ends[:-1:2], ends[1::2], strict=False))
    whole = parts[1::2] == [opening, closing] * len(given.spans) and "".join(parts[::2]) == text
    if not whole or any(start == stop for start, stop in spans):
        raise TextspaceError(
            f"the clean-up of this space changes or drops what is marked: mark words of what it reads, {text!r}"
        )
    return Marked(text, spans)


def words_marked(text: str, words: str | Sequence[str], normalise: Callable[[str], str]) -> Marked:
    """A sentence after a space's clean-up with all places of some words marked, as whole words.

    >>> words_marked("The food was seafood", ["food"], str.lower).spans
    [(4, 8)]
    """
    text = normalise(text)
    spans: list[Span] = []
    for word in [words] if isinstance(words, str) else words:
        if not isinstance(word, str) or not (clean := normalise(word).strip()):
            raise TextspaceError(f"{word!r} is no word to vary: give words of the sentence")
        before, after = (r"(?<!\w)" if clean[0].isalnum() else "", r"(?!\w)" if clean[-1].isalnum() else "")
        places = [place.span() for place in re.finditer(before + re.escape(clean) + after, text)]
        if not places:
            raise TextspaceError(f"there is no {word!r} in {text!r}: give words of the sentence")
        spans += places
    if not spans:
        raise TextspaceError("there is no word to vary: give at least one, or leave tokens out to vary all")
    return Marked(text, spans)


def token_positions(given: Marked, split: EncodedSplit, tokenizer: Tokenizer) -> list[int]:
    """Which positions of the code of a split's one sentence stand for what is marked, also in part; its first is 0."""
    if tokenizer.encoder is None:
        token_spans = [(0, 0), *tokenizer.spans(given.text)[: len(split.ids(0))]]  # the start has no characters
    else:
        read = split.text(0)
        token_spans = tokenizer.encoder.spans(read) if given.text.startswith(read) else []
    end = max((last for _, last in token_spans), default=0)
    limit, reader = (split.encoder_limit, "the encoder") if split.encoder_cut else (len(split.ids(0)), "this space")
    positions: set[int] = set()
    for start, stop in given.spans:
        word = given.text[start:stop]
        if stop > end and (split.over_long or split.encoder_cut):
            raise TextspaceError(
                f"{word!r} lies behind the {limit} tokens that {reader} reads of the sentence: shorten it"
            )
        own = [at for at, (first, last) in enumerate(token_spans) if first < stop and last > start]
        if not own:
            raise TextspaceError(f"the encoder reads no token in {word!r}: mark a whole word")
        positions.update(own)
    return sorted(positions)
