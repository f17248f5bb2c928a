"""Whether any point of a space is the code of some sentence: what points decode to, and whether that leads back."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textspace.data.tokenizers import SPECIALS, UNKNOWN
from textspace.errors import TextspaceError
from textspace.evaluate.measure import Cells, Findings, Measure, Picture, Subject, Table
from textspace.evaluate.measures.language_models import LanguageModel, language_model_of_text
from textspace.evaluate.measures.pairwise import error_of_mean, pairs_of, partners
from textspace.evaluate.measures.reconstruction import greedy_method
from textspace.evaluate.measures.samples import Numbers
from textspace.evaluate.statistics import some_rows
from textspace.evaluate.text_metrics import written
from textspace.noise import seed_of
from textspace.paths import interpolated

__all__ = ["MEASURES", "RULES", "Near", "broken_rules", "completeness", "nearness", "others_of_equal_length"]

MOST_REPEATS = 0.5
"""Share of immediate repeats from which on a sentence counts as one word repeated."""

SHOWN = 5
"""Sentences of each kind of point that the report shows: the first."""

RULES: dict[str, str] = {
    "empty": "empty",
    "unended": "not ended where decoding stops",
    "unknown": "with an unknown word or a broken character",
    "repeated": f"{MOST_REPEATS:.0%} of the words or more repeat the word before",
    "unseen": "with a word that the training text does not have",
}
"""Rules that a well-formed sentence must keep, by what breaks them. Words are whitespace words, but for the last rule:
runs of letters, in lower case."""

Floats = NDArray[np.float64]
Matrices = Sequence[NDArray[Any]]
Rows = Iterable[int] | NDArray[np.int64]


# Well-formed


def letters(text: str) -> list[str]:
    """Runs of letters, in lower case: words as far as numbers and punctuation do not matter.

    >>> letters("The cat's 2 toys_")
    ['the', 'cat', 's', 'toys']
    """
    return re.findall(r"[^\W\d_]+", text.lower())


def broken_rules(text: str, ids: Sequence[int], most_tokens: int, seen: Collection[str]) -> set[str]:
    """Which of `RULES` a sentence breaks.

    Args:
        text: the sentence.
        ids: its tokens.
        most_tokens: where decoding stopped if it had not come to an end.
        seen: every word of the training text, see `letters`.

    >>> sorted(broken_rules("a a a b", [4, 4, 4, 5], 200, {"a"}))
    ['repeated', 'unseen']
    """
    words = text.split()
    repeats = sum(one == before for before, one in pairwise(words))
    broken = {
        "empty": not words,
        "unended": len(ids) >= most_tokens,
        "unknown": UNKNOWN in ids or "\ufffd" in text,
        "repeated": len(words) > 1 and repeats >= MOST_REPEATS * (len(words) - 1),
        "unseen": any(word not in seen for word in letters(text.replace(SPECIALS[UNKNOWN], " "))),
    }
    return {rule for rule, is_broken in broken.items() if is_broken}


# Near


class Near(NamedTuple):
    """How near codes lie to others, one by one. A sentence's code is a matrix with a row for each token, or one row."""

    distance_N: Floats
    """Euclidean, of the means over tokens."""
    cosine_N: Floats
    token_distance_N: Floats
    """Token by token, their mean; not a number where the two have not as many tokens."""
    token_cosine_N: Floats


def nearness(codes: Matrices, others: Matrices) -> Near:
    """Compare each code with the other in its place."""
    pairs = [(np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in zip(codes, others, strict=True)]
    pooled = [(a.mean(0), b.mean(0)) for a, b in pairs]
    alike = [len(a) == len(b) for a, b in pairs]
    return Near(
        distance_N=np.array([np.linalg.norm(a - b) for a, b in pooled]),
        cosine_N=np.array([_cosine(a, b) for a, b in pooled]),
        token_distance_N=np.array(
            [
                np.linalg.norm(a - b, axis=1).mean() if same else np.nan
                for (a, b), same in zip(pairs, alike, strict=True)
            ]
        ),
        token_cosine_N=np.array(
            [_cosine(a, b).mean() if same else np.nan for (a, b), same in zip(pairs, alike, strict=True)]
        ),
    )


def _some(matrices: Matrices, rows: Rows) -> list[NDArray[Any]]:
    return [matrices[int(row)] for row in rows]


def _cosine(a: Floats, b: Floats) -> Any:
    """Of the last axis; 0 where either is zero."""
    return (a * b).sum(-1) / np.maximum(np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1), 1e-24)


def others_of_equal_length(lengths: Sequence[int], random: np.random.Generator) -> NDArray[np.int64]:
    """For each place another whose length is the same, drawn at random, or -1 where there is none."""
    lengths_N = np.asarray(lengths)
    found_N = np.full(len(lengths_N), -1)
    for length in np.unique(lengths_N):
        rows = np.flatnonzero(lengths_N == length)
        if len(rows) > 1:
            found_N[rows] = rows[partners(len(rows), 1, random)[0]]
    return found_N


# The measure


class _Points(NamedTuple):
    """Points of the space, as it decodes them."""

    key: str
    what: str
    codes: Any


def _points(subject: Subject, texts: list[str], partner_N: NDArray[np.int64]) -> list[_Points]:
    """As many points of each kind as there are sentences."""
    coder, seed = subject.test.coder, subject.seed
    means = coder.encode(texts)
    between = [_halfway(code, means[other]) for code, other in zip(means, partner_N, strict=True)]
    return [
        _Points("prior", "points of the prior", coder.prior_codes(len(texts), seed=seed)),
        _Points("halfway", "points halfway between the mean codes of two test sentences", between),
        _Points("sample", "posterior samples of test sentences", coder.encode(texts, what="sample", seed=seed)),
        _Points("mean", "posterior means of test sentences", means),
    ]


def _halfway(a: Floats, b: Floats) -> Floats:
    return interpolated(a, b, 3)[1]


@dataclass(frozen=True)
class _Judge:
    """Tells what sentences are like, and keeps the numbers."""

    subject: Subject
    numbers: Numbers
    most_tokens: int
    seen: frozenset[str]
    language_model: LanguageModel

    def read(self, key: str, what: str, texts: Sequence[str]) -> Cells:
        """How well-formed and how fluent sentences are."""
        ids = self.subject.space.tokenizer.encode(list(texts))
        broken = [broken_rules(text, each, self.most_tokens, self.seen) for text, each in zip(texts, ids, strict=True)]
        numbers = self.numbers
        return (
            numbers.mean(
                f"well_formed_{key}", f"share of sentences that are well-formed, {what}", [not each for each in broken]
            ),
            *(
                numbers.mean(f"{rule}_{key}", f"share of sentences {about}, {what}", [rule in each for each in broken])
                for rule, about in RULES.items()
            ),
            numbers.perplexity(f"perplexity_{key}", what, texts, self.language_model),
            numbers.mean(f"length_{key}", f"words in a sentence, {what}", [len(text.split()) for text in texts]),
        )

    def returned(self, points: _Points, texts: Sequence[str], partner_N: NDArray[np.int64]) -> Cells:
        """How near the codes of sentences lie to the points they were decoded from."""
        key, what, numbers = points.key, points.what, self.numbers
        codes, again = self._matrices(points.codes), self._matrices(self._encoded(texts))
        own, other = nearness(codes, again), nearness(codes, _some(again, partner_N))
        of = "mean codes of tokens" if self.subject.space.model.is_token_level else "codes"
        pair = f"a point and what its sentence is encoded to, {of}, {what}"
        random_pair = f"a point and what another point's sentence is encoded to, {of}, {what}"
        nearer = f"share of points that lie nearer to the code of their own sentence than of another, {of}, {what}"
        pairs_N2 = pairs_of(partner_N[None])
        cells: list[str | None] = [
            numbers.mean(f"distance_{key}", f"Euclidean distance of {pair}", own.distance_N),
            self._mean_of_pairs(
                f"distance_other_{key}", f"Euclidean distance of {random_pair}", other.distance_N, pairs_N2
            ),
            numbers.mean(f"cosine_{key}", f"cosine of {pair}", own.cosine_N),
            self._mean_of_pairs(f"cosine_other_{key}", f"cosine of {random_pair}", other.cosine_N, pairs_N2),
            self._mean_of_pairs(f"nearer_{key}", nearer, own.distance_N < other.distance_N, pairs_N2),
        ]
        return (*cells, *(self._by_token(points, codes, again) if self.subject.space.model.is_token_level else ()))

    def _by_token(self, points: _Points, codes: Matrices, again: Matrices) -> list[str | None]:
        """The same token by token, of the sentences that have as many tokens as their point."""
        key, what, numbers = points.key, points.what, self.numbers
        random = np.random.default_rng(seed_of(self.subject.seed, "others of equal length", key))
        place_N = others_of_equal_length([len(each) for each in again], random)
        alike_N = np.array([len(a) == len(b) for a, b in zip(codes, again, strict=True)])
        rows, with_other = np.flatnonzero(alike_N), np.flatnonzero(alike_N & (place_N >= 0))
        own = nearness(_some(codes, rows), _some(again, rows))
        other = nearness(_some(codes, with_other), _some(again, place_N[with_other]))
        name = f"share of points whose sentence is encoded to as many tokens, {what}"
        cells: list[str | None] = [numbers.mean(f"same_length_{key}", name, alike_N)]
        others_P2 = np.stack([with_other, place_N[with_other]], axis=1)
        for field, shown in (("distance", "Euclidean distance"), ("cosine", "cosine")):
            name = f"{shown} of a point and what {{}} is encoded to, mean over tokens, {what}"
            own_N, other_P = (getattr(near, f"token_{field}_N") for near in (own, other))
            its_own = f"token_{field}_{key}", name.format("its sentence"), own_N
            of_others = f"token_{field}_other_{key}", name.format("another of as many tokens"), other_P
            cells.append(numbers.mean(*its_own) if len(own_N) else None)
            cells.append(self._mean_of_pairs(*of_others, others_P2) if len(other_P) else None)
        return cells

    def _mean_of_pairs(self, key: str, name: str, values_P: NDArray[Any], pairs_P2: NDArray[np.int64]) -> str:
        """Of points and sentences of other points, each of which is in two pairs."""
        return self.numbers.add(key, name, float(values_P.mean()), error_of_mean(values_P, pairs_P2), len(values_P))

    def _encoded(self, texts: Sequence[str]) -> Any:
        with warnings.catch_warnings():  # what these sentences are like is measured: no need to tell of each
            warnings.simplefilter("ignore", UserWarning)
            return self.subject.test.coder.encode(list(texts))

    def _matrices(self, codes: Any) -> Matrices:
        """A row for each token; of a sentence's one code, one row."""
        return codes if self.subject.space.model.is_token_level else [np.asarray(code)[None] for code in codes]


def completeness(subject: Subject) -> Findings:
    """Whether points of the prior, and points between sentences, decode to sentences.

    Well-formed is what breaks none of `RULES`. Fluent sentences have a perplexity near that of real text under a
    language model of the training text. A point leads back when the code of its sentence lies near it. Marks stand
    beside: real text, the codes of test sentences themselves, and another point's sentence.
    """
    count = min(len(subject.test), subject.effort.prior_samples, subject.effort.decoded)
    if count < 2:
        raise TextspaceError(f"points lie between two sentences, and there is {count}")
    texts = [subject.test.texts[row] for row in some_rows(len(subject.test), count)]
    split = subject.encoded(texts)
    method = greedy_method(split)
    partner_N = partners(count, 1, np.random.default_rng(seed_of(subject.seed, "other sentences")))[0]
    numbers = Numbers(subject, sentences=count, decoding="greedy", most_tokens=method.max_tokens)
    seen = frozenset(word for text in subject.splits["train"].all_texts() for word in letters(text))
    judge = _Judge(subject, numbers, method.max_tokens, seen, language_model_of_text(subject))
    rows: list[Cells] = []
    back: list[Cells] = []
    examples: list[Cells] = []
    for points in _points(subject, texts, partner_N):
        made = subject.space.decode(points.codes, method=method, show_progress=subject.show_progress)
        rows.append((points.what, *judge.read(points.key, points.what, made)))
        back.append((points.what, *judge.returned(points, made, partner_N)))
        examples += [(points.what, number, text) for number, text in enumerate(made[:SHOWN], 1)]
    rows.append(
        ("real test sentences", *judge.read("real", "real test sentences", written(split, subject.space.tokenizer)))
    )
    tables = {
        "completeness": Table(
            f"What {count:,} points of each kind decode to (greedy): share well-formed, shares that break a rule, and "
            f"perplexity per word (end counted) under a language model of {judge.language_model.learnt_from:,} "
            "training sentences; real sentences are the mark",
            ("points", "well-formed", *RULES, "perplexity", "words"),
            tuple(rows),
        ),
        "returning": Table(
            "Whether points lead back: the code of a point's sentence, and of another's, beside the point",
            ("points", *_RETURNING, *(_BY_TOKEN if subject.space.model.is_token_level else ())),
            tuple(back),
        ),
        "rules": Table("What breaks a rule", ("rule", "broken by sentences"), tuple(RULES.items())),
        "examples": Table(f"The first {SHOWN} of each kind", ("points", "number", "sentence"), tuple(examples)),
    }
    shares = [numbers.estimates[key].value for key in numbers.estimates if key.startswith("well_formed_")]
    picture = Picture(
        "bars",
        "Share of sentences that are well-formed",
        {"well-formed": shares},
        y_label="share",
        ticks=[str(row[0]) for row in rows],
    )
    return Findings(numbers.estimates, tables, {"well_formed": picture})


_RETURNING = ("distance", "to another", "cosine", "to another's", "nearer to its own")
_BY_TOKEN = (
    "as many tokens",
    "distance by token",
    "to another of as many",
    "cosine by token",
    "to another's of as many",
)

MEASURES: dict[str, Measure] = {
    "completeness": Measure(
        completeness,
        "Whether points of the prior and between sentences decode to well-formed sentences, and whether these lead "
        "back to the points.",
        needs=("codes", "train"),
    ),
}
