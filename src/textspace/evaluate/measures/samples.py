"""Sentences from the prior: how varied they are, how they read to a language model, and whether they are copies."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textspace.data.encoded import EncodedSplit
from textspace.evaluate.likelihood import likelihood
from textspace.evaluate.measure import Findings, Measure, Picture, Sentences, Subject, Table
from textspace.evaluate.statistics import spread_rows, standard_error
from textspace.evaluate.text_metrics import (
    Ratio,
    distinct_ngrams,
    jackknife_error,
    nearest_sentences,
    plus_minus,
    self_bleu,
    unknown_share,
    written,
)
from textspace.generate import Greedy, Method, Sampling
from textspace.model import Model
from textspace.noise import seed_of
from textspace.recipes import RECIPES
from textspace.train.loop import Interrupted, Trainer
from textspace.train.processes import Processes
from textspace.types import Bound, Estimate

__all__ = ["MEASURES", "LanguageModel", "copying", "prior_samples", "sample_language_model", "train_language_model"]

Floats = NDArray[np.float64]
Settings = dict[str, str | int | float | bool | None]
Cells = tuple[str | float | None, ...]

COPIES = 300
"""Samples whose nearest training sentences are looked for [Li et al. 2019, appendix B]."""

BLOCKS = 20
"""Parts that the jackknife of self-BLEU and distinct n-grams leaves out in turn."""

MOST_TOKENS = Sampling().max_tokens
"""Where a sample is cut if it has not come to its end."""

MOST_TRAINING = 50_000
"""Sentences that a language model learns from at most."""

UNITS = (128, 192)
"""Embedding and hidden units of a language model."""

STEPS = 100
"""A language model makes at least so many steps for each epoch it is granted: over little text it goes more often."""

STEPS_BETWEEN = 25
"""Steps at least between two looks at the sentences that select its weights."""

HELD_OUT = 10
"""Every so-manieth sentence of a language model's text selects its weights instead of being learnt from."""

_OVER_SENTENCES = "standard error over sentences"


def _samples(subject: Subject, count: int, method: Method | None = None) -> list[str]:
    """The first `count` of the subject's samples: the same codes whatever the measure and the method."""
    seed = seed_of(subject.seed, "samples from the prior")
    return subject.space.sample(count, method=method, seed=seed, show_progress=subject.show_progress)


def _encoded(subject: Subject, texts: Sequence[str]) -> EncodedSplit:
    return EncodedSplit.of(texts, subject.space.tokenizer, subject.space.recipe.text.max_tokens)


def _written(subject: Subject, sentences: Sentences, limit: int | None = None) -> list[str]:
    """Real sentences as the space could write them, at most `limit` of them, spread evenly."""
    rows = spread_rows(len(sentences), len(sentences) if limit is None else limit)
    return written(_encoded(subject, [sentences.texts[row] for row in rows]), subject.space.tokenizer)


class _Compared(NamedTuple):
    """Sentences that are measured beside others."""

    key: str
    what: str
    texts: list[str]

    @property
    def words(self) -> list[list[str]]:
        return [text.split() for text in self.texts]


class _Numbers:
    """Estimates of samples and of real sentences side by side."""

    def __init__(self, subject: Subject, **settings: str | int | float) -> None:
        self.estimates: dict[str, Estimate] = {}
        self._settings: Settings = {"seed": subject.seed, "error": _OVER_SENTENCES, **settings}

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

    def mean(self, key: str, name: str, values: Sequence[float]) -> str:
        values_N = np.array(values, np.float64)
        return self.add(key, name, float(values_N.mean()), standard_error(values_N), len(values_N))


# Variety


def prior_samples(subject: Subject) -> Findings:
    """Self-BLEU and distinct n-grams of samples, beside those of as many real sentences, which are the mark.

    Both depend on the number of sentences: they compare with numbers for the same n only, and names tell it.
    """
    count = min(subject.effort.prior_samples, len(subject.test))
    numbers = _Numbers(subject, sentences=count, words="sampled at temperature 1")
    compared = (
        _Compared("samples", f"{count:,} prior samples", _samples(subject, count)),
        _Compared("real", f"{count:,} real test sentences", _written(subject, subject.test, count)),
    )
    headings = ("", "self-BLEU-4", "distinct 1-grams", "distinct 2-grams", "distinct 3-grams", "distinct sentences")
    table = Table(
        "Variety of samples from the prior (self-BLEU 0-100, shares 0-1)",
        (*headings, "words", "empty", "over-long", "unknown"),
        tuple((each.what, *_variety(numbers, subject, each)) for each in compared),
    )
    picture = Picture(
        "histogram",
        "Length of samples and of real sentences",
        {each.what: [float(len(words)) for words in each.words] for each in compared},
        x_label="words",
        y_label="sentences",
    )
    return Findings(numbers.estimates, {"prior_samples": table}, {"lengths": picture})


def _variety(numbers: _Numbers, subject: Subject, group: _Compared) -> Cells:
    key, what, texts = group
    words, count = group.words, len(texts)
    jackknife: Settings = {"error": f"standard error by a jackknife over {min(BLOCKS, count)} blocks of sentences"}

    def alike(rows: NDArray[np.int64]) -> float:
        return float(self_bleu([texts[row] for row in rows]).mean())

    def distinct(rows: NDArray[np.int64], n: int) -> float:
        return distinct_ngrams([words[row] for row in rows], n).share

    rows = np.arange(count)
    name = f"self-BLEU-4 (0-100), mean sentence BLEU-4 with all others as references, {what}"
    error = jackknife_error(alike, count, BLOCKS)
    cells = [numbers.add(f"self_bleu4_{key}", name, alike(rows), error, count, more=jackknife)]
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
    return unknown_share(_encoded(subject, texts))


# To a language model


class LanguageModel(NamedTuple):
    model: Model
    learnt_from: int
    """Sentences; those that selected its weights are not counted."""


def train_language_model(texts: Sequence[str], subject: Subject, purpose: str) -> LanguageModel:
    """A small GRU language model with the space's tokenizer, trained for as long as the effort allows.

    It learns from nine tenths of the sentences, and the rest selects its weights.

    Args:
        texts: to learn from.
        subject: gives tokenizer, device, effort and seed.
        purpose: models for one purpose start from the same weights.
    """
    space = subject.space
    granted = subject.effort.language_model_epochs
    selecting = [text for row, text in enumerate(texts) if row % HELD_OUT == HELD_OUT - 1] or list(texts)
    learnt = [text for row, text in enumerate(texts) if row % HELD_OUT != HELD_OUT - 1]
    base = RECIPES["gru-lm"]
    batch = base.training.batch.sentences or 1
    often = math.ceil(STEPS_BETWEEN * batch / len(learnt))
    steps = math.ceil(len(learnt) * often / batch)
    recipe = base.but(
        {
            "decoder.embedding": UNITS[0],
            "decoder.hidden": UNITS[1],
            "decoder.input_dropout": 0.2,
            "decoder.output_dropout": 0.2,
            "initial.weights": None,
            "training.seed": seed_of(subject.seed, "language model", purpose),
            "training.epochs": granted * math.ceil(STEPS / steps),
            "training.optimizer.lr": 2e-3,
            "training.plateau": None,
            "training.patience": 3,
            "training.checkpoint_every": None,
        }
    )
    model = Model(recipe, len(space.tokenizer))
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            recipe,
            model,
            _encoded(subject, learnt * often),
            _encoded(subject, selecting),
            Path(folder),
            processes=Processes(str(space.device)),
            silent=not subject.show_progress,
        )
        try:
            trainer.run()
        except Interrupted:
            # What it saved goes with the folder: to the caller this is an interrupt like any other.
            raise KeyboardInterrupt from None
    return LanguageModel(model.eval(), len(learnt))


def sample_language_model(subject: Subject) -> Findings:
    """How samples read to a language model of real text, and real text to one of samples.

    The first is low for fluent samples, and also for dull ones: the perplexity of real text beside it is the mark, not
    0. The second, "reverse" perplexity [Zhao et al. 2018], is high where samples lack words or turns of real text. Its
    mark is a language model of as many real sentences. All have the space's tokenizer and the same settings.
    """
    train = subject.splits["train"]
    count = min(subject.effort.prior_samples, len(train))
    drawn = _samples(subject, count)
    real = [train.texts[row] for row in spread_rows(len(train), MOST_TRAINING)]
    as_many = [train.texts[row] for row in spread_rows(len(train), count)]
    judged = {
        "samples": (f"{count:,} prior samples", _encoded(subject, drawn)),
        "test": ("real test sentences", _encoded(subject, subject.test.texts)),
        "train": ("real training sentences", _encoded(subject, as_many)),
    }
    numbers = _Numbers(
        subject, language_model=f"GRU, {UNITS[0]} embedding and {UNITS[1]} hidden units", tokenizer="the space's"
    )
    unknown = {
        key: numbers.add(f"unknown_{key}", f"share of unknown tokens, {who}", *unknown_share(split), len(split))
        for key, (who, split) in judged.items()
    }
    rows: list[Cells] = []
    for key, texts, what, purpose, judges in (
        ("real", real, "real training sentences", "all real", ("samples", "test")),
        ("samples", drawn, "prior samples", "as many", ("test",)),
        ("as_many_real", as_many, "real training sentences", "as many", ("test",)),
    ):
        model, learnt_from = train_language_model(texts, subject, purpose)
        about = f"{learnt_from:,} {what}"
        for judge in judges:
            who, split = judged[judge]
            found = likelihood(model, split, progress=subject.show_progress).estimates()["nll_ppl_word"]
            shown = numbers.add(
                f"{judge}_under_{key}",
                f"perplexity per word (end counted) of {who} under a language model of {about}",
                found.value,
                found.stderr,
                found.n,
                better="lower" if key == "samples" else None,
                bound=found.bound,
                more={"normalisation": "word", "end_token": "included", "learnt_from": learnt_from},
            )
            rows.append((about, who, shown, unknown[judge]))
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
    corpus = [text.split() for text in _written(subject, train)]
    count = min(COPIES, subject.effort.prior_samples)
    real = _written(subject, subject.test, count)
    compared = (
        _Compared("sampled", f"{count:,} prior samples, words sampled", _samples(subject, count)),
        _Compared("greedy", f"{count:,} prior samples, words greedy", _samples(subject, count, Greedy())),
        _Compared("test", f"{len(real):,} real test sentences", real),
    )
    numbers = _Numbers(subject, training_sentences=len(train))
    rows: list[Cells] = []
    for group in compared:
        key, what, texts = group
        words = group.words
        distances = [each.distance for each in nearest_sentences(words, corpus, subject.show_progress)]
        copies = [distance == 0 for distance in distances]
        name = f"word edit distance to the nearest training sentence, {what}"
        rows.append(
            (
                what,
                len(texts),
                numbers.mean(f"distance_{key}", name, distances),
                numbers.mean(f"copies_{key}", f"share that are training sentences word for word, {what}", copies),
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
