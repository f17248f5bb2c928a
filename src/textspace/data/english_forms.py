"""The forms of English words, for the built-in corpus: plurals, verb forms, auxiliaries, a or an."""

from __future__ import annotations

import re

__all__ = ["be_form", "do_form", "noun_forms", "onset_of", "verb_forms"]

UNLIKE_THEIR_SPELLING = {"useful", "useless", "x-ray"}  # letter and sound differ, and a/an follows the sound


def noun_forms(listing: str) -> dict[str, list[str]]:
    """The forms of nouns; mass nouns have forms of their own, because they take other determiners.

    >>> noun_forms("daisy potato/potatoes rice*")
    {'singular': ['daisy', 'potato'], 'plural': ['daisies', 'potatoes'], 'mass': ['rice']}
    """
    count = [entry.partition("/") for entry in listing.split() if not entry.endswith("*")]
    return {
        "singular": [noun for noun, _, _ in count],
        "plural": [plural or _plural(noun) for noun, _, plural in count],
        "mass": [entry[:-1] for entry in listing.split() if entry.endswith("*")],
    }


def _plural(noun: str) -> str:
    """
    >>> [_plural(noun) for noun in ("daisy", "waltz", "tour", "day")]
    ['daisies', 'waltzes', 'tours', 'days']
    """
    if re.search("[^aeiou]y$", noun):
        return noun[:-1] + "ies"
    return noun + ("es" if re.search("(s|x|z|ch|sh)$", noun) else "s")


def verb_forms(entry: str) -> dict[str, str]:
    """The forms of a verb: base, third (person), past and ing, each with the rest of its phrase.

    >>> verb_forms("complain_about")["past"], verb_forms("stir")["ing"], verb_forms("fly/flew")["third"]
    ('complained about', 'stirring', 'flies')
    """
    phrase, *given = entry.split("/")
    base, *rest = phrase.split("_")
    stem = base
    if re.fullmatch("[^aeiou]*[^aeiou][aeiou][^aeiouwxy]", base):
        stem = base + base[-1]
    elif re.search("[^eo]e$", base):
        stem = base[:-1]
    past = base + "d" if base.endswith("e") else re.sub("([^aeiou])y$", r"\1i", stem) + "ed"
    forms = dict(zip(("past", "ing"), given, strict=False))
    forms = {"base": base, "third": _plural(base), "past": past, "ing": stem + "ing"} | forms
    return {form: " ".join([word, *rest]) for form, word in forms.items()}


def do_form(tense: str, number: str) -> str:
    """The auxiliary of questions and negations; "will" in the future."""
    return {"past": "did", "future": "will"}.get(tense) or ("does" if number == "singular" else "do")


def be_form(tense: str, number: str) -> str:
    """A form of "to be"; in the future that of the present, as in "is going to"."""
    if tense == "past":
        return "was" if number == "singular" else "were"
    return "is" if number == "singular" else "are"


def onset_of(word: str) -> str:
    """The kind of sound that a word begins with, which decides between "a" and "an"."""
    return "vowel" if (word[0] in "aeiou") != (word in UNLIKE_THEIR_SPELLING) else "consonant"
