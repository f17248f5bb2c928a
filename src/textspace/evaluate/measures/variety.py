"""Variants of a sentence, samples of its posterior decoded again: how they differ from it and from each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from textspace.digits import plus_minus
from textspace.errors import TextspaceError
from textspace.evaluate.measure import Cells, Findings, Measure, Picture, Subject, Table
from textspace.evaluate.measures.reconstruction import greedy_method
from textspace.evaluate.statistics import OVER_SENTENCES, some_rows, standard_error
from textspace.evaluate.text_metrics import self_bleu, sentence_bleu, word_edit_distance, written
from textspace.noise import seed_of
from textspace.types import Estimate, Settings

__all__ = ["MEASURES", "STRENGTHS", "VARIANTS", "Varied", "varied", "variety"]

VARIANTS = 12
"""Of each sentence [VAT paper, table 1]."""

STRENGTHS = (0.5, 1.0, 1.5, 2.0)
"""Of the samples: times the posterior's deviation. The second is a sample as it is, and the headline."""

FEWEST = 20
"""Sentences that are varied at least, if there are so many."""

SHOWN = 5
"""Sentences whose variants the report shows."""


class Varied(NamedTuple):
    """What became of one sentence; not a number where nothing could be compared."""

    distinct: float
    """Different variants."""
    copies: float
    """Share of the variants that are the sentence itself."""
    self_bleu4: float
    """Mean BLEU-4 of a variant that is not empty with all others as references, 0 to 100."""
    bleu4: float
    """Mean BLEU-4 of a variant with the sentence as its reference, 0 to 100."""
    changed: float
    """Words to insert, delete or replace, in words of the sentence; mean over variants."""
    same_length: float
    """Share of the variants that have as many words as the sentence."""
    replaced: float
    """Share of the words that are others at their place, in variants that have as many words."""
    places: float
    """Share of the sentence's places where some such variant has another word."""


def varied(variants: Sequence[str], source: str) -> Varied:
    """How the variants of a sentence of one word or more differ from it and from each other.

    >>> varied(["a b c", "a b d", "a b", "a b c"], "a b c")._asdict()["distinct"]
    3.0
    """
    words, ways = source.split(), [each.split() for each in variants]
    alike = [way for way in ways if len(way) == len(words)]
    other_VT = np.array([[one != own for one, own in zip(way, words, strict=True)] for way in alike], bool)
    return Varied(
        distinct=float(len({tuple(way) for way in ways})),
        copies=float(np.mean([way == words for way in ways])),
        self_bleu4=float(np.mean(known)) if (known := _known_self_bleu(variants)) else np.nan,
        bleu4=float(sentence_bleu(variants, [source] * len(variants), 4).mean()),
        changed=float(np.mean([word_edit_distance(way, words) for way in ways])) / len(words),
        same_length=len(alike) / len(ways),
        replaced=float(other_VT.mean()) if alike else np.nan,
        places=float(other_VT.any(0).mean()) if alike else np.nan,
    )


def _known_self_bleu(variants: Sequence[str]) -> list[float]:
    """Of those that are not empty, where there are others."""
    return [each for each in self_bleu(variants).tolist() if not np.isnan(each)] if len(variants) > 1 else []


class _Told(NamedTuple):
    """How a number is shown."""

    name: str
    column: str
    scale: float = 1.0
    """Of the number in the picture, whose numbers go from 0 to 1."""


_TOLD: dict[str, _Told] = {
    "distinct": _Told(f"different sentences among {VARIANTS} variants", f"distinct of {VARIANTS}", 1 / VARIANTS),
    "copies": _Told("share of variants that are the sentence itself", "copies"),
    "self_bleu4": _Told(
        f"self-BLEU-4 (0-100), mean sentence BLEU-4 with the other {VARIANTS - 1} variants as references",
        "self-BLEU-4",
        1 / 100,
    ),
    "bleu4": _Told(
        "mean sentence BLEU-4 (0-100) with the sentence as the reference", "BLEU-4 to the sentence", 1 / 100
    ),
    "changed": _Told("words to insert, delete or replace / words of the sentence", "words changed"),
    "same_length": _Told("share of variants with as many words as the sentence", "as many words"),
    "replaced": _Told("share of words that are others, in variants with as many words", "words replaced"),
    "places": _Told(
        "share of the places of a sentence where some variant with as many words has another word", "places varied"
    ),
}


def variety(subject: Subject) -> Findings:
    """Variants of test sentences by how far they stray [VAT paper, section 5], also whether they keep its structure.

    The words of a variant are those that the decoder finds most probable, so that all differences come from the code.
    """
    space, test = subject.space, subject.test
    wanted = min(len(test), max(FEWEST, subject.effort.decoded // VARIANTS))
    texts = [test.texts[row] for row in some_rows(len(test), wanted)]
    pairs = [
        pair for pair in zip(texts, written(subject.encoded(texts), space.tokenizer), strict=True) if pair[1].split()
    ]
    if not pairs:
        raise TextspaceError("no test sentence has a word that could vary: measure on other text")
    texts, sources = [text for text, _ in pairs], [source for _, source in pairs]
    is_point = space.recipe.posterior is not None and space.recipe.posterior.kind == "delta"
    unit = "the prior's deviation, since the posterior is a point" if is_point else "the posterior's deviation"
    made = {0.0: _made(subject, texts, 0.0, 1)} | {each: _made(subject, texts, each, VARIANTS) for each in STRENGTHS}
    found = {
        strength: [varied(each, source) for each, source in zip(variants, sources, strict=True)]
        for strength, variants in made.items()
    }
    told = {strength: _told(subject, strength, unit, of) for strength, of in found.items()}
    estimates = {key: one for each in told.values() for key, one in each.items()}
    rows = [
        (f"{strength:g}" if strength else "0 (the mean)", *(_cell(of.get(_key(field, strength))) for field in _TOLD))
        for strength, of in told.items()
    ]
    title = (
        f"{VARIANTS} variants of each of {len(sources):,} test sentences by strength, in times {unit}, decoded "
        "greedily: means over sentences"
    )
    tables = {
        "variety": Table(title, ("strength", *(each.column for each in _TOLD.values())), tuple(rows)),
        "variants": _examples(sources, made),
    }
    per_sentence = {
        key: [getattr(one, field) for one in found[strength]]
        for strength in found
        for field in _TOLD
        if (key := _key(field, strength)) in estimates
    }
    return Findings(estimates, tables, {"variety": _picture(estimates, unit)}, per_sentence)


def _told(subject: Subject, strength: float, unit: str, found: list[Varied]) -> dict[str, Estimate]:
    """Means over the sentences for which there is a number."""
    how = f"samples with {strength:g} times {unit}" if strength else "the posterior's mean"
    estimates = {}
    for field, told in _TOLD.items():
        values_N = np.array([getattr(one, field) for one in found], np.float64)
        known_N = values_N[~np.isnan(values_N)]
        if not len(known_N) or (not strength and field in ("distinct", "places")):  # one sentence has no variety
            continue
        settings: Settings = {
            "strength": strength,
            "variants": VARIANTS if strength else 1,
            "without_number": len(values_N) - len(known_N),
            "decoding": "greedy",
            "seed": subject.seed,
            "error": OVER_SENTENCES,
        }
        name = f"{told.name}, mean over test sentences, {how}, decoded greedily"
        mean, error = float(known_N.mean()), standard_error(known_N)
        estimates[_key(field, strength)] = Estimate(name, mean, error, len(known_N), "none", None, settings)
    return estimates


def _cell(estimate: Estimate | None) -> str | None:
    return None if estimate is None else plus_minus(estimate.value, estimate.stderr)


def _picture(estimates: dict[str, Estimate], unit: str) -> Picture:
    def line(field: str) -> list[float]:
        found = [estimates.get(_key(field, strength)) for strength in STRENGTHS]
        return [np.nan if each is None else each.value * _TOLD[field].scale for each in found]

    return Picture(
        "lines",
        f"Variants by how far samples stray (BLEU / 100, distinct / {VARIANTS})",
        {told.column: line(field) for field, told in _TOLD.items()},
        x=list(STRENGTHS),
        x_label=f"times {unit}",
        y_label="share",
    )


def _made(subject: Subject, texts: Sequence[str], strength: float, count: int) -> list[list[str]]:
    """So many variants of each sentence; noise is the same whatever the strength, so that strengths compare."""
    space, seed = subject.test.coder, seed_of(subject.seed, "variants")
    repeated = [text for text in texts for _ in range(count)]
    codes = space.encode(repeated, what="sample", strength=strength, seed=seed)
    method = greedy_method(subject.encoded(texts))
    made = space.decode(codes, method=method, show_progress=subject.show_progress)
    return [made[start : start + count] for start in range(0, len(made), count)]


def _key(field: str, strength: float) -> str:
    """
    >>> _key("copies", 0.0), _key("copies", 0.5), _key("copies", 1.0)
    ('copies_mean', 'copies_strength_0_5', 'copies_strength_1')
    """
    return f"{field}_strength_{strength:g}".replace(".", "_") if strength else f"{field}_mean"


def _examples(sources: Sequence[str], made: dict[float, list[list[str]]]) -> Table:
    """The first sentences with their mean and the samples as they are."""
    rows: list[Cells] = []
    for number, source in enumerate(sources[:SHOWN], 1):
        rows.append((number, "sentence", source))
        rows.append((number, "mean", made[0.0][number - 1][0]))
        rows += [(number, f"sample {which}", text) for which, text in enumerate(made[1.0][number - 1], 1)]
    title = f"Variants of the first {min(SHOWN, len(sources))} of these sentences: the mean, and {VARIANTS} samples"
    return Table(title, ("number", "code", "sentence"), tuple(rows), grouped=True)


MEASURES: dict[str, Measure] = {
    "variety": Measure(
        variety,
        "Samples of a sentence's posterior, decoded: how they differ from it and from each other, and whether they "
        "keep its structure.",
        ("codes",),
    ),
}
