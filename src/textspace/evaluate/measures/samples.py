"""Sentences from the prior: how varied they are, how they read to a language model, and whether they are copies."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textspace.data.encoded import EncodedSplit
from textspace.digits import plus_minus
from textspace.errors import TextspaceError
from textspace.evaluate.likelihood import likelihood
from textspace.evaluate.measure import Cells, Findings, Measure, Picture, Sentences, Subject, Table
from textspace.evaluate.measures.language_models import (
    UNITS,
    LanguageModel,
    language_model_of_text,
    train_language_model,
)
from textspace.evaluate.statistics import (
    OVER_SENTENCES,
    SAFE_SIDE,
    Ratio,
    jackknife_error,
    some_rows,
    standard_error,
)
from textspace.evaluate.text_metrics import distinct_ngrams, nearest_sentences, self_bleu, unknown_share, written
from textspace.generate import Greedy, Method, Sampling
from textspace.noise import seed_of
from textspace.types import Bound, Estimate, Settings

__all__ = [
    "MEASURES",
    "VARIETY",
    "Compared",
    "Numbers",
    "copying",
    "prior_samples",
    "real_sentences",
    "sample_language_model",
    "variety",
]

Floats = NDArray[np.float64]

COPIES = 300
"""Samples whose nearest training sentences are looked for [Li et al. 2019, appendix B]."""

BLOCKS = 20
"""Parts that the jackknife of self-BLEU and distinct n-grams leaves out in turn."""

MOST_TOKENS = Sampling().max_tokens
"""Where a sample is cut if it has not come to its end."""


def _samples(subject: Subject, count: int, method: Method | None = None) -> list[str]:
    """The first `count` of the subject's samples: the same codes whatever the measure and the method."""
    seed = seed_of(subject.seed, "samples from the prior")
    return subject.space.sample(count, method=method, seed=seed, show_progress=subject.show_progress)


def real_sentences(subject: Subject, sentences: Sentences, limit: int | None = None) -> list[str]:
    """Real sentences as the space could write them, at most `limit` of them, drawn at random."""
    rows = some_rows(len(sentences), len(sentences) if limit is None else limit)
    return written(subject.encoded([sentences.texts[row] for row in rows]), subject.space.tokenizer)


class Compared(NamedTuple):
    """Sentences that are measured beside others."""

    key: str
    what: str
    texts: list[str]

    @property
    def words(self) -> list[list[str]]:
        return [text.split() for text in self.texts]


class Numbers:
    """Estimates of samples and of real sentences side by side."""

    def __init__(self, subject: Subject, **settings: str | int | float) -> None:
        self.subject = subject
        self.estimates: dict[str, Estimate] = {}
        self._settings: Settings = {"seed": subject.seed, "error": OVER_SENTENCES, **settings}

    def add(
        self,
        key: str,
        name: str,
        value: float,
        error: float | None,
        n: int,
        *,
        better: Literal["lower", "higher"] | None = None,
        bound: Bound = "none",
        more: Settings | None = None,
    ) -> str:
        """Keep an estimate; what a table shows of it."""
        self.estimates[key] = Estimate(name, value, error, n, bound, better, self._settings | (more or {}))
        return plus_minus(value, error)

    def mean(self, key: str, name: str, values: Sequence[float] | NDArray[Any]) -> str:
        values_N = np.array(values, np.float64)
        return self.add(key, name, float(values_N.mean()), standard_error(values_N), len(values_N))

    def perplexity(
        self,
        key: str,
        who: str,
        texts: Sequence[str],
        judge: LanguageModel,
        kind: str = "training sentences",
        better: Literal["lower"] | None = None,
    ) -> str:
        """Of whole sentences, however long, under a language model of sentences of some kind."""
        split = EncodedSplit.of(texts, self.subject.space.tokenizer, None)
        found = likelihood(judge.model, split, progress=self.subject.show_progress).estimates()["nll_ppl_word"]
        return self.add(
            key,
            f"perplexity per word (end counted) of {who} under a language model of {judge.learnt_from:,} {kind}",
            found.value,
            found.stderr,
            found.n,
            better=better,
            bound=found.bound,
            more={"normalisation": "word", "end_token": "included", "learnt_from": judge.learnt_from},
        )


# Variety


def prior_samples(subject: Subject) -> Findings:
    """Self-BLEU and distinct n-grams of samples, beside those of as many real sentences, which are the mark.

    Both depend on the number of sentences: they compare with numbers for the same n only, and names tell it.
    """
    count = min(subject.effort.prior_samples, len(subject.test))
    numbers = Numbers(subject, sentences=count, words="sampled at temperature 1")
    compared = (
        Compared("samples", f"{count:,} prior samples", _samples(subject, count)),
        Compared("real", f"{count:,} real test sentences", real_sentences(subject, subject.test, count)),
    )
    table = Table(
        "Variety of samples from the prior (self-BLEU 0-100, shares 0-1)",
        ("", *VARIETY),
        tuple((each.what, *variety(numbers, subject, each)) for each in compared),
    )
    picture = Picture(
        "histogram",
        "Length of samples and of real sentences",
        {each.what: [float(len(words)) for words in each.words] for each in compared},
        x_label="words",
        y_label="sentences",
    )
    return Findings(numbers.estimates, {"prior_samples": table}, {"lengths": picture})


VARIETY = (
    "self-BLEU-4",
    "distinct 1-grams",
    "distinct 2-grams",
    "distinct 3-grams",
    "distinct sentences",
    "words",
    "empty",
    "over-long",
    "unknown",
)
"""What `variety` tells of sentences."""


def variety(numbers: Numbers, subject: Subject, group: Compared) -> Cells:
    """How much sentences differ from each other, how long they are, and what ails them; as estimates and as cells."""
    key, what, texts = group
    words, count = group.words, len(texts)
    safe = f"standard error by a jackknife over {min(BLOCKS, count)} blocks of sentences, {SAFE_SIDE}"
    jackknife: Settings = {"error": safe}

    def alike(rows: NDArray[np.int64]) -> float:
        scores_N = self_bleu([texts[row] for row in rows])
        if np.isnan(scores_N).all():
            raise TextspaceError("all sentences are empty: they have no self-BLEU")
        return float(np.nanmean(scores_N))

    def distinct(rows: NDArray[np.int64], n: int) -> float:
        return distinct_ngrams([words[row] for row in rows], n).share

    rows = np.arange(count)
    name = f"self-BLEU-4 (0-100), mean sentence BLEU-4 with all others as references, {what}"
    cells: list[str | None] = [None]
    if there := sum(bool(each) for each in words):
        name += f", {count - there:,} empty ones left out" if there < count else ""
        error = jackknife_error(alike, count, BLOCKS)
        cells = [numbers.add(f"self_bleu4_{key}", name, alike(rows), error, there, more=jackknife)]
    for n in (1, 2, 3):
        name = f"share of {n}-grams that are distinct, {what}"
        error = jackknife_error(partial(distinct, n=n), count, BLOCKS)
        more = jackknife | {"ngrams": distinct_ngrams(words, n).total}
        cells.append(numbers.add(f"distinct{n}_{key}", name, distinct(rows, n), error, count, more=more))
    ids = subject.space.tokenizer.encode(texts)
    name = f"share of sentences that are distinct, {what}"
    return (
        *cells,
        numbers.add(f"distinct_sentences_{key}", name, len(set(texts)) / count, None, count),
        numbers.mean(f"length_{key}", f"words in a sentence, {what}", [len(each) for each in words]),
        numbers.mean(f"empty_{key}", f"share of empty sentences, {what}", [not each for each in words]),
        numbers.mean(
            f"over_long_{key}",
            f"share of sentences of {MOST_TOKENS} tokens or more (sampling stops there), {what}",
            [len(each) >= MOST_TOKENS for each in ids],
        ),
        numbers.add(f"unknown_{key}", f"share of unknown tokens, {what}", *_unknown(subject, texts), count),
    )


def _unknown(subject: Subject, texts: Sequence[str]) -> Ratio:
    return unknown_share(subject.encoded(texts))


# To a language model


def sample_language_model(subject: Subject) -> Findings:
    """How samples read to a language model of real text, and real text to one of samples.

    The first is low for fluent samples, and also for dull ones: the perplexity of real text beside it is the mark, not
    0. The second, "reverse" perplexity [Zhao et al. 2018], is high where samples lack words or turns of real text. Its
    mark is a language model of as many real sentences. All have the space's tokenizer and the same settings.
    """
    train = subject.splits["train"]
    count = min(subject.effort.prior_samples, len(train))
    drawn = _samples(subject, count)
    as_many = [train.texts[row] for row in some_rows(len(train), count)]
    judged = {
        "samples": (f"{count:,} prior samples", drawn),
        "test": ("real test sentences", subject.test.texts),
        "train": ("real training sentences", as_many),
    }
    numbers = Numbers(
        subject, language_model=f"GRU, {UNITS[0]} embedding and {UNITS[1]} hidden units", tokenizer="the space's"
    )
    unknown = {
        key: numbers.add(f"unknown_{key}", f"share of unknown tokens, {who}", *_unknown(subject, texts), len(texts))
        for key, (who, texts) in judged.items()
    }
    rows: list[Cells] = []
    for key, texts, what, judges in (
        ("real", None, "real training sentences", ("samples", "test")),
        ("samples", drawn, "prior samples", ("test",)),
        ("as_many_real", as_many, "real training sentences", ("test",)),
    ):
        judge = language_model_of_text(subject) if texts is None else train_language_model(texts, subject, "as many")
        for whose in judges:
            who, read = judged[whose]
            better: Literal["lower"] | None = "lower" if key == "samples" else None
            shown = numbers.perplexity(f"{whose}_under_{key}", who, read, judge, what, better)
            rows.append((f"{judge.learnt_from:,} {what}", who, shown, unknown[whose]))
    table = Table(
        "Perplexity per word under small language models (end counted)",
        ("language model of", "judges", "perplexity", "of it unknown (share)"),
        tuple(rows),
    )
    return Findings(numbers.estimates, {"sample_language_model": table})


# Copies


def copying(subject: Subject) -> Findings:
    """Word edit distance from samples to the nearest training sentence [Li et al. 2019, appendix B].

    A space that copies lies nearer to its training sentences than real sentences it has not seen do.
    """
    train = subject.splits["train"]
    corpus = [text.split() for text in real_sentences(subject, train)]
    count = min(COPIES, subject.effort.prior_samples)
    real = real_sentences(subject, subject.test, count)
    compared = (
        Compared("sampled", f"{count:,} prior samples, words sampled", _samples(subject, count)),
        Compared("greedy", f"{count:,} prior samples, words greedy", _samples(subject, count, Greedy())),
        Compared("test", f"{len(real):,} real test sentences", real),
    )
    numbers = Numbers(subject, training_sentences=train.how_many)
    rows: list[Cells] = []
    for group in compared:
        key, what, texts = group
        words = group.words
        distances = [each.distance for each in nearest_sentences(words, corpus, subject.show_progress)]
        copies = [distance == 0 for distance in distances]
        name = f"word edit distance to the nearest of {train.how_many} training sentences, {what}"
        rows.append(
            (
                what,
                len(texts),
                numbers.mean(f"distance_{key}", name, distances),
                numbers.mean(
                    f"copies_{key}", f"share that are one of {train.how_many} training sentences, {what}", copies
                ),
                numbers.mean(f"length_{key}", f"words in a sentence, {what}", [len(each) for each in words]),
            )
        )
    length = numbers.mean("length_train", "words in a sentence, training", [len(each) for each in corpus])
    rows.append(("training sentences", len(corpus), None, None, length))
    columns = ("", "sentences", "distance to the nearest training sentence", "copies", "words")
    return Findings(numbers.estimates, {"copying": Table("Copies of training sentences", columns, tuple(rows))})


MEASURES: dict[str, Measure] = {
    "prior_samples": Measure(
        prior_samples,
        "How varied samples from the prior are, beside as many real sentences.",
    ),
    "sample_language_model": Measure(
        sample_language_model,
        "How samples read to a language model of real text, and real text to one of samples.",
        needs=("train",),
    ),
    "copying": Measure(
        copying,
        "How far samples lie from the nearest training sentence, beside real sentences.",
        needs=("train",),
    ),
}
