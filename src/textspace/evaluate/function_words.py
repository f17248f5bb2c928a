"""English function words, and the tokens that stand for one of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = ["FUNCTION_WORDS", "function_word_ids"]

_WORDS = """
a an the this that these those some any no every each either neither both all half such another other
i me my mine myself you your yours yourself he him his himself she her hers herself it its itself we us our ours
ourselves they them their theirs themselves who whom whose which what
of in to for with on at from by about as into like through after over between out against during without before
under around among within along across behind beyond up down off above below near since until upon toward towards
and or but nor so yet if than because while although though whether unless when where why how
is am are was were be been being do does did doing done have has had having can could may might must shall should
will would ought
not n't 's 'm 're 've 'll 'd there here then too very just also only more most much many few less least own same
again once ever never
"""
FUNCTION_WORDS = frozenset(_WORDS.split())
"""Articles, pronouns, prepositions, conjunctions, auxiliaries and particles, in lower case."""

_WORD_BEGINS = ("Ġ", "▁")
"""What subword vocabularies write before the first piece of a word."""


def function_word_ids(tokens: Mapping[int, str] | Iterable[tuple[int, str]]) -> set[int]:
    """Ids of the tokens that are a function word as a whole.

    In a vocabulary that marks where words begin, pieces without the mark are mostly insides of words and do not count.

    >>> sorted(function_word_ids({0: "The", 1: "cat", 2: "##the"})), sorted(function_word_ids({0: "Ġthe", 1: "a"}))
    ([0], [0])
    """
    known = dict(tokens)
    marks = any(token.startswith(_WORD_BEGINS) for token in known.values())

    def word(token: str) -> str:
        return token[1:] if token.startswith(_WORD_BEGINS) else "" if marks else token

    return {number for number, token in known.items() if word(token).lower() in FUNCTION_WORDS}
