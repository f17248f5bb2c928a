"""What tells classes of text apart on the surface: their words and their lengths."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textspace.errors import TextspaceError
from textspace.evaluate.measure import Findings, Measure, Picture, Sentences, Subject, Table
from textspace.evaluate.statistics import SAFE_SIDE, jackknife_error
from textspace.noise import seed_of
from textspace.types import Estimate, Settings

__all__ = [
    "MEASURES",
    "class_counts",
    "class_statistics",
    "length_shares",
    "mean_off_diagonal",
    "pairwise_kl",
    "word_counts",
]

GROUPS = 20
"""Parts of the text that are left out in turn for the error of a number of all of it."""

BINS = 40
"""The most bins of a histogram of lengths."""

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


# The mathematics, on arrays


def word_counts(sentences: Sequence[Sequence[str]]) -> Any:
    """How often each word is in each sentence: a sparse matrix (N, V), whose columns have no order to rely on."""
    from sklearn.feature_extraction.text import CountVectorizer

    return CountVectorizer(analyzer=list, dtype=np.int64).fit_transform(sentences)


def pairwise_kl(counts_CV: NDArray[Any]) -> Floats:
    """KL(row || column), nats, of classes' word distributions with one added to every count [Laplace].

    >>> pairwise_kl(np.array([[1, 0], [0, 1]])).round(4).tolist()  # 2/3 and 1/3: (2/3 - 1/3) log 2
    [[0.0, 0.231], [0.231, 0.0]]
    """
    added_CV = np.asarray(counts_CV, np.float64) + 1
    share_CV = added_CV / added_CV.sum(1, keepdims=True)
    log_CV = np.log(share_CV)
    kl_CC = (share_CV * log_CV).sum(1, keepdims=True) - share_CV @ log_CV.T
    np.fill_diagonal(kl_CC, 0)  # not off by a rounding
    return kl_CC


def mean_off_diagonal(matrix_CC: Floats) -> float:
    """Mean of what is not on the diagonal; two classes or more."""
    classes = len(matrix_CC)
    return float((matrix_CC.sum() - np.trace(matrix_CC)) / (classes * (classes - 1)))


def length_shares(lengths: Mapping[str, Integers]) -> tuple[list[float], dict[str, list[float]]]:
    """Middles of common bins of whole numbers, and each group's share of sentences in every bin.

    >>> length_shares({"a": np.array([1, 1, 3]), "b": np.array([2])})
    ([1.0, 2.0, 3.0], {'a': [0.6666666666666666, 0.0, 0.3333333333333333], 'b': [0.0, 1.0, 0.0]})
    """
    least, most = (int(pick([pick(of) for of in lengths.values()])) for pick in (min, max))
    width = math.ceil((most - least + 1) / BINS)
    bins = math.ceil((most - least + 1) / width)
    shares = {name: np.bincount((of - least) // width, minlength=bins) / len(of) for name, of in lengths.items()}
    middles = [least + width * place + (width - 1) / 2 for place in range(bins)]
    return middles, {name: share.tolist() for name, share in shares.items()}


def class_counts(counts_NV: Any, label_N: Integers, classes: int) -> NDArray[Any]:
    """Words of each class (C, V)."""
    return np.stack([np.asarray(counts_NV[label_N == each].sum(0)).ravel() for each in range(classes)])


def _mean_kl(counts_NV: Any, label_N: Integers, classes: int) -> float:
    return mean_off_diagonal(pairwise_kl(class_counts(counts_NV, label_N, classes)))


# The measure


def class_statistics(subject: Subject) -> Findings:
    """Pairwise KL of the classes' word distributions [Prokhorov et al. 2021, figure 5], and lengths of sentences."""
    read = subject.splits.get("train", subject.test)
    if read.labels is None:
        raise TextspaceError(f"the {read.name} split has no labels, so there are no classes to compare")
    names, label_N = np.unique(np.array(read.labels), return_inverse=True)
    if len(names) < 2:
        raise TextspaceError(f"all sentences are of the class {str(names[0])!r}, so there are no classes to compare")
    counts_NV = word_counts(read.words)
    kl_CC = pairwise_kl(class_counts(counts_NV, label_N, len(names)))
    random = np.random.default_rng(seed_of(subject.seed, "class statistics"))
    error = jackknife_error(
        lambda rows: _mean_kl(counts_NV[rows], label_N[rows], len(names)), len(label_N), blocks=GROUPS
    )
    shuffles = max(2, subject.effort.repeats)
    shuffled = [_mean_kl(counts_NV, random.permutation(label_N), len(names)) for _ in range(shuffles)]

    settings: Settings = {
        "split": read.name,
        "classes": len(names),
        "vocabulary": int(counts_NV.shape[1]),
        "seed": subject.seed,
    }
    about = f"mean KL(row || column) over ordered pairs of {len(names)} classes, add-one word distributions"
    estimates = {
        "class_kl": Estimate(
            f"{about}, {read.name} split, nats per word",
            mean_off_diagonal(kl_CC),
            error,
            len(label_N),
            "none",
            None,
            settings
            | {"error": f"jackknife over {GROUPS} groups of sentences, {SAFE_SIDE} where classes do not differ"},
        ),
        "class_kl_shuffled": Estimate(
            f"{about}, {read.name} split with its labels shuffled, nats per word: what chance alone gives",
            float(np.mean(shuffled)),
            float(np.std(shuffled, ddof=1)),
            len(label_N),
            "none",
            None,
            settings | {"error": f"spread over {shuffles} shuffles"},
        ),
    }
    title = f"KL(row || column) of the classes' add-one word distributions, {read.name} split, nats per word"
    classes = [str(name) for name in names]
    heat: dict[str, list[float]] = {name: row.tolist() for name, row in zip(classes, kl_CC, strict=True)}
    lengths_N = _lengths(read)
    of_class = {name: lengths_N[label_N == each] for each, name in enumerate(classes)}
    of_split = {name: _lengths(split) for name, split in subject.splits.items() if len(split)}
    return Findings(
        estimates,
        tables={
            "class_kl": Table(title, ("class", *classes), tuple((name, *row) for name, row in heat.items())),
            "class_lengths": _length_table(of_class, f"Words a sentence, by class, {read.name} split"),
            "split_lengths": _length_table(of_split, "Words a sentence, by split"),
        },
        pictures={
            "class_kl": Picture("heat", title, heat, x_label="column", y_label="row", ticks=classes),
            "class_lengths": _length_picture(of_class, f"Sentence lengths by class, {read.name} split"),
            "split_lengths": _length_picture(of_split, "Sentence lengths by split"),
        },
    )


def _lengths(sentences: Sentences) -> Integers:
    return np.array([len(words) for words in sentences.words], np.int64)


def _length_table(lengths: Mapping[str, Integers], title: str) -> Table:
    rows = tuple(
        (name, len(of), float(of.mean()), float(of.std()), int(of.min()), int(of.max())) for name, of in lengths.items()
    )
    return Table(title, ("of", "sentences", "mean", "deviation", "shortest", "longest"), rows)


def _length_picture(lengths: Mapping[str, Integers], title: str) -> Picture:
    middles, series = length_shares(lengths)
    return Picture("lines", title, series, x=middles, x_label="words", y_label="share of sentences")


MEASURES: dict[str, Measure] = {
    "class_statistics": Measure(
        class_statistics,
        "How much words and lengths alone tell classes apart.",
        ("labels",),
        ("quick", "standard", "full"),
    ),
}
