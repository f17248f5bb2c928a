"""Optional clean-ups of a sentence, by name, applied in the order given."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from functools import partial

from textspace.errors import TextspaceError, nearest

__all__ = ["NORMALISERS", "names_given", "normaliser", "one_line"]

# A single ' or ’ is left alone: it is an apostrophe far more often than a quotation mark.
_QUOTES = re.compile(r"""["“”„‟«»‹›‘‚‛「」『』＂]|`+|''+""")
# A link ends before closing punctuation, and never reaches into the HTML tag that holds it.
_LINKS = re.compile(r"""(?:https?://|\bwww\.)[^\s<>"]*[^\s<>".,;:!?)\]}'”’»]""", re.IGNORECASE)
# Only elements of HTML, so that tokens such as <unk> stay. Inline tags leave nothing behind ("<b>so</b>." is
# "so."), all others a blank ("one<br>two" is "one two").
_INLINE = (
    "a abbr acronym b bdi bdo big cite code del dfn em font i ins kbd mark q s samp small span strike strong"
    " sub sup time tt u var wbr"
)
_BLOCK = (
    "address article aside audio blockquote body br button canvas caption center col colgroup dd details div"
    " dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 head header hr html iframe img input label"
    " legend li link main meta nav object ol option p picture pre script section select source style summary"
    " svg table tbody td textarea tfoot th thead title tr ul video"
)


def _tags(elements: str) -> re.Pattern[str]:
    return re.compile(rf"</?(?:{elements.replace(' ', '|')})(?:[\s/][^<>]*)?>", re.IGNORECASE)


_INLINE_TAGS, _BLOCK_TAGS = _tags(_INLINE), _tags(_BLOCK)
_COMMENTS = re.compile(r"<!--.*?-->|<!doctype[^<>]*>", re.IGNORECASE | re.DOTALL)


def _collapsed(before: str, after: str) -> str:
    """`after`, without the whitespace runs that a removal left; whitespace stays when nothing was removed."""
    return after if after == before else " ".join(after.split())


def _drop_non_ascii(text: str) -> str:
    return _collapsed(text, text.encode("ascii", "ignore").decode("ascii"))


def _drop_quotes(text: str) -> str:
    return _collapsed(text, _QUOTES.sub("", text))


def _drop_links(text: str) -> str:
    return _collapsed(text, _LINKS.sub("", text))


def _drop_html(text: str) -> str:
    without_tags = _INLINE_TAGS.sub("", _BLOCK_TAGS.sub(" ", _COMMENTS.sub(" ", text)))
    # Entities last: an escaped "&lt;b&gt;" is text about a tag, not a tag.
    return _collapsed(text, html.unescape(without_tags))


NORMALISERS: dict[str, Callable[[str], str]] = {
    "lower": str.lower,
    "ascii": _drop_non_ascii,  # characters beyond ASCII are dropped, not transliterated
    "quotes": _drop_quotes,  # quotation marks, typographic ones and `` '' too; apostrophes stay
    "links": _drop_links,  # http://, https:// and www. addresses
    "html": _drop_html,  # tags and comments are dropped, entities such as &amp; become their characters
}


def one_line(text: str) -> str:
    r"""The text without line ends: dropped at both ends, one blank for each run inside.

    >>> one_line("two\r\nlines\n")
    'two lines'
    """
    if "\n" not in text and "\r" not in text:
        return text
    return re.sub(r"[\r\n]+", " ", text.strip("\r\n"))


def names_given(normalise: Sequence[str]) -> tuple[str, ...]:
    """The names of normalisers as given, one alone too; checked.

    >>> names_given("lower"), names_given(["html", "lower"])
    (('lower',), ('html', 'lower'))
    """
    names = (normalise,) if isinstance(normalise, str) else tuple(normalise)
    for name in names:
        if name not in NORMALISERS:
            raise TextspaceError(f"there is no normaliser {name!r}; {nearest(name, NORMALISERS)}")
    return names


def normaliser(names: Sequence[str]) -> Callable[[str], str]:
    """One function that removes line ends and then applies the named normalisers in order.

    >>> normaliser(["html", "lower"])("<p>Fish &amp; Chips</p>")
    'fish & chips'
    """
    names = names_given(names)
    return partial(_apply, tuple(NORMALISERS[name] for name in names)) if names else one_line


def _apply(steps: tuple[Callable[[str], str], ...], text: str) -> str:
    text = one_line(text)
    for step in steps:
        text = step(text)
    return one_line(text)  # an unescaped &#10; is a line end too
