"""Tables 1 to 3 of the VAT paper as they come out: samples of sentences, of one word, and ways between sentences.

Sentences are chosen by a rule and not by what becomes of them: of the test sentences of 6 to 10 words, five at even
distances, the first among them. The word that is varied is the longest that has letters only and occurs once; of
equals the first. Decoding is a beam of 5, as in the paper, and greedy where many paths are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from textspace.errors import TextspaceError
from textspace.evaluate.measure import Subject
from textspace.evaluate.measures.interpolation import STEPS_POINTS, smoothness
from textspace.evaluate.measures.variety import VARIANTS
from textspace.evaluate.statistics import standard_error
from textspace.generate import Beam, Greedy
from textspace.noise import seed_of
from textspace.paths import interpolated
from textspace.types import Estimate

__all__ = ["RULE", "chosen_sentences", "longest_word", "replacement", "samples", "shown", "unmarked"]

RULE = " ".join((__doc__ or "").split("\n\n")[1].split())
FEWEST_WORDS, MOST_WORDS = 6, 10
SENTENCES = 5
PATHS = 100
"""Of which it is counted how often steps repeat."""
MOST_TOKENS = 60


def chosen_sentences(texts: Sequence[str], count: int) -> list[str]:
    """So many of those that have 6 to 10 words, at even distances."""
    fitting = [text for text in texts if FEWEST_WORDS <= len(text.split()) <= MOST_WORDS]
    some = min(count, len(fitting))
    return [fitting[place * len(fitting) // some] for place in range(some)]


def longest_word(text: str) -> str | None:
    """The longest word of letters alone that occurs once, whatever its case; of equals the first.

    >>> longest_word("The cat's green tails were green , weren't they ?")
    'tails'
    """
    words = text.split()
    lower = [word.lower() for word in words]
    fitting = [word for word in words if word.isalpha() and lower.count(word.lower()) == 1]
    return max(fitting, key=len, default=None)


def replacement(text: str, word: str, variant: str) -> str | None:
    """What a variant has in the place of a word where all other words are the same, or None where they are not.

    >>> replacement("a green tail .", "green", "a very long tail ."), replacement("a tail", "tail", "the tail")
    ('very long', None)
    """
    words, others = text.split(), variant.split()
    at = words.index(word)
    after = len(words) - at - 1
    same = others[:at] == words[:at] and others[len(others) - after :] == words[at + 1 :]
    return " ".join(others[at : len(others) - after]) if same and len(others) >= len(words) else None


def unmarked(text: str) -> str:
    """A sentence whose brackets are plain ones, and mark no words.

    >>> print(unmarked("such as [ Sb"))
    such as \\[ Sb
    """
    return text.replace("[", "\\[").replace("]", "\\]")


def samples(subject: Subject) -> tuple[dict[str, Estimate], dict[str, Any]]:
    """How often steps of a path repeat, and the three tables."""
    space, seed = subject.space, seed_of(subject.seed, "tables")
    beam = Beam(width=5, max_tokens=MOST_TOKENS)
    sentences = chosen_sentences(subject.test.texts, SENTENCES)
    if len(sentences) < 2:
        raise TextspaceError("the test split has no two sentences of 6 to 10 words: give other --data")
    means = space.reconstruct(sentences, method=beam)
    tables: dict[str, Any] = {
        "rule": RULE,
        "samples": [
            {
                "sentence": text,
                "mean": mean,
                "samples": [each.text for each in space.vary(unmarked(text), VARIANTS, method=beam, seed=seed)],
            }
            for text, mean in zip(sentences, means, strict=True)
        ],
        "one_word": [],
        "paths": [space.interpolate(one, other, steps=STEPS_POINTS, method=beam) for one, other in pairwise(sentences)],
        "ends": [list(pair) for pair in pairwise(sentences)],
    }
    for text in sentences if space.is_token_level else []:
        if word := longest_word(text):
            variants = [each.text for each in space.vary(text, VARIANTS, tokens=[word], method=beam, seed=seed)]
            tables["one_word"].append({"sentence": text, "word": word, "samples": variants})
    return _repeats(subject) | _one_word(tables["one_word"]), tables


def _repeats(subject: Subject) -> dict[str, Estimate]:
    space = subject.space
    codes = space.encode(chosen_sentences(subject.test.texts, PATHS + 1))
    points = [code for one, other in pairwise(codes) for code in interpolated(one, other, STEPS_POINTS)]
    texts = space.decode(points, method=Greedy(max_tokens=MOST_TOKENS))
    found = [
        smoothness([text.split() for text in texts[start : start + STEPS_POINTS]])
        for start in range(0, len(texts), STEPS_POINTS)
    ]
    named = {
        "repeated": "share of neighbours on a path that are the same sentence",
        "distinct": f"different sentences of the {STEPS_POINTS} on a path",
    }
    estimates = {}
    for field, name in named.items():
        values_N = np.array([getattr(each, field) for each in found], np.float64)
        told = f"{name}, three steps between means of test sentences of 6 to 10 words, greedy"
        error = standard_error(values_N)
        estimates[f"path_{field}"] = Estimate(told, float(values_N.mean()), error, len(values_N), "none", None, {})
    return estimates


def _one_word(found: Sequence[dict[str, Any]]) -> dict[str, Estimate]:
    """How samples of one word's code do: whether the word alone changes."""
    if not found:
        return {}
    others = [[replacement(each["sentence"], each["word"], one) for one in each["samples"]] for each in found]
    alone = [word is not None for words in others for word in words]
    new = [
        word is not None and word != each["word"] for each, words in zip(found, others, strict=True) for word in words
    ]
    of = f"samples of one word of {len(found)} sentences"
    return {
        key: Estimate(f"share of {of} {what}", float(np.mean(values)), None, len(values), "none", None, {})
        for key, what, values in (
            ("one_word_alone", "in which all other words are as they were", alone),
            ("one_word_new", "in which this word alone is another", new),
        )
    }


def shown(tables: dict[str, Any]) -> str:
    """The three tables as Markdown, as they came out."""
    lines = [tables["rule"], "", "Table 1: a sentence, its mean decoded, and 12 samples", ""]
    for each in tables["samples"]:
        lines += [f"- **{_plain(each['sentence'])}**", f"  - mean: {_plain(each['mean'])}"]
        lines += [f"  - *{_plain(one)}*" for one in each["samples"]]
    lines += ["", "Table 2: one word sampled; whole sentences where other words changed too", ""]
    for each in tables["one_word"]:
        words = [replacement(each["sentence"], each["word"], one) for one in each["samples"]]
        told = [_plain(one) if word is None else word for one, word in zip(each["samples"], words, strict=True)]
        lines += [f"- **{_plain(each['sentence'])}**, {each['word']}: *{'; '.join(told)}*"]
    lines += ["", "Table 3: three steps between the means of two sentences", ""]
    for ends, path in zip(tables["ends"], tables["paths"], strict=True):
        lines += [f"- **{_plain(ends[0])}**", *(f"  - {_plain(one)}" for one in path), f"  - **{_plain(ends[1])}**"]
    return "\n".join(lines)


def _plain(text: str) -> str:
    """Signs that Markdown would read are escaped."""
    return "".join(f"\\{sign}" if sign in "\\`*_<>[]|#" else sign for sign in text) or "(nothing)"
