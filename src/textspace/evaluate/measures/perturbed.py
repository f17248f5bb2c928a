"""Reconstruction from the mean, from a sample and from further away; of short and long, of seen and unseen sentences.

What sentenceMIM [Livne et al. 2020] tells of its codes: BLEU-1 from 0 to 1 (table 7), whether a sample reconstructs
better than the mean, whether codes ten deviations away still say much the same, and whether a space reconstructs its
training sentences better than others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textspace.data.tokenizers import END, SPECIALS
from textspace.digits import plus_minus
from textspace.evaluate.bounds import per_unit
from textspace.evaluate.likelihood import likelihood
from textspace.evaluate.measure import (
    PERTURBATION,
    Cells,
    CodeKind,
    Findings,
    Measure,
    Picture,
    Sentences,
    Subject,
    Table,
)
from textspace.evaluate.measures.pairwise import error_of_mean, pairs_of, partners
from textspace.evaluate.measures.reconstruction import Originals, bands_of, greedy_method, originals_of, shown
from textspace.evaluate.statistics import BLOCKS, OVER_SENTENCES, Ratio, some_rows, standard_error
from textspace.evaluate.text_metrics import corpus_bleu, sentence_bleu, word_edit_distance, written
from textspace.noise import seed_of
from textspace.types import Estimate, Settings

__all__ = ["MEASURES", "overfitting", "reconstruction_by_code"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_KINDS = {
    "mean": "posterior means",
    "sample": "posterior samples",
    "perturbed": f"samples with {PERTURBATION:.0f} times the posterior's deviation",
}


def _kinds(sentences: Sentences) -> tuple[CodeKind, ...]:
    """Kinds of codes; a posterior without spread has its points alone."""
    return ("mean", "sample", "perturbed") if sentences.has_spread else ("mean",)


class _Compared(NamedTuple):
    """Sentences against sentences, one by one."""

    bleu1_N: Floats
    """BLEU-1 of each, 0 to 1."""
    edits_N: Floats
    """Words to insert, delete or replace."""
    words_N: Floats
    """Of the second."""

    @classmethod
    def of(cls, made: Sequence[str], others: Sequence[str]) -> _Compared:
        pairs = [(one.split(), other.split()) for one, other in zip(made, others, strict=True)]
        return cls(
            sentence_bleu(made, others, 1) / 100,
            np.array([word_edit_distance(*pair) for pair in pairs], np.float64),
            np.array([len(other) for _, other in pairs], np.float64),
        )


class _Numbers:
    """Estimates over the same sentences, and the values of each sentence."""

    def __init__(self, settings: Settings) -> None:
        self.estimates: dict[str, Estimate] = {}
        self.per_sentence: dict[str, list[float]] = {}
        self._settings = settings

    def add(
        self,
        key: str,
        name: str,
        value: float,
        error: float | None,
        n: int,
        better: bool | None,
        more: Settings | None = None,
    ) -> None:
        """`better` says whether more is; None where neither is."""
        way: Literal["higher", "lower"] | None = None if better is None else "higher" if better else "lower"
        self.estimates[key] = Estimate(name, value, error, n, "none", way, self._settings | (more or {}))

    def mean(self, key: str, name: str, values_N: Floats, better: bool | None) -> None:
        self.add(key, name, float(values_N.mean()), standard_error(values_N), len(values_N), better)
        self.per_sentence[key] = values_N.tolist()

    def mean_of_pairs(self, key: str, name: str, values_P: Floats, pairs_P2: Integers) -> None:
        """Of sentences and others, each of which is in several pairs: no values per sentence."""
        more: Settings = {"error": "standard error; pairs that share a sentence count as dependent"}
        self.add(key, name, float(values_P.mean()), error_of_mean(values_P, pairs_P2), len(values_P), None, more)

    def ratio(self, key: str, name: str, above_N: Floats, below_N: NDArray[np.number], better: bool | None) -> None:
        """Of sums; sentences' values have the ratio as their mean, and scatter as it does."""
        found = Ratio.of(above_N, below_N)
        self.add(key, name, *found, len(above_N), better)
        self.per_sentence[key] = found.each_sentence(above_N, below_N).tolist()

    def bleu1(self, key: str, words: str, made: Sequence[str], originals: Sequence[str]) -> None:
        """Of the corpus, and the mean over sentences, of words alone and with the end as one more."""
        found = corpus_bleu(made, originals, 1)
        jackknife = f"standard error by a jackknife over {min(BLOCKS, len(made))} blocks of sentences"
        error = None if found.stderr is None else found.stderr / 100
        name = f"corpus BLEU-1 (0-1), {words}"
        more: Settings = {"signature": found.signature, "error": jackknife}
        self.add(f"bleu1_{key}", name, found.score / 100, error, len(made), True, more)
        name = f"mean sentence BLEU-1 (0-1), {words}"
        self.mean(f"sentence_bleu1_{key}", name, sentence_bleu(made, originals, 1) / 100, True)
        name = f"mean sentence BLEU-1, the end counted as a word that matches (0-1), {words}"
        with_end = sentence_bleu(_ended(made), _ended(originals), 1)
        self.mean(f"sentence_bleu1_end_{key}", name, with_end / 100, True)


def _ended(texts: Sequence[str]) -> list[str]:
    return [f"{text} {SPECIALS[END]}" for text in texts]


def reconstruction_by_code(subject: Subject) -> Findings:
    """BLEU-1 of greedy reconstructions from means, samples and perturbed codes, how these differ, and all by length."""
    test, originals = subject.test, originals_of(subject)
    method = greedy_method(originals.split)
    made: dict[str, list[str]] = {
        kind: subject.space.decode(
            test.codes(kind, originals.rows_N), method=method, show_progress=subject.show_progress
        )
        for kind in _kinds(test)
    }
    settings: Settings = {
        "decoding": "greedy",
        "perturbation": PERTURBATION,
        "seed": test.seed,
        "references": "test sentences, words unknown to the tokenizer written <unk>",
        "of": len(test),
        "error": OVER_SENTENCES,
    }
    numbers = _Numbers(settings)
    rows: list[Cells] = []
    against = {kind: _Compared.of(texts, originals.texts) for kind, texts in made.items()}
    for kind, texts in made.items():
        numbers.bleu1(kind, f"greedy decoding from {_KINDS[kind]}", texts, originals.texts)
        found = against[kind]
        name = f"word edit distance to the original / words of the original, greedy decoding from {_KINDS[kind]}"
        numbers.ratio(f"edits_{kind}", name, found.edits_N, found.words_N, False)
        keys = (f"{key}_{kind}" for key in ("bleu1", "sentence_bleu1", "sentence_bleu1_end", "edits"))
        rows.append((_KINDS[kind], *(shown(numbers.estimates[key]) for key in keys)))
    tables = {
        "by_code": Table(
            f"Greedy reconstruction of {len(originals.texts):,} test sentences from each kind of code",
            ("code", "BLEU-1 (0-1)", "mean sentence BLEU-1 (0-1)", "with the end as a word", "edits per word"),
            tuple(rows),
        )
    }
    if test.has_spread:
        _sample_against_mean(numbers, against["sample"], against["mean"])
        tables["similarity"] = _similarity(subject, numbers, originals, made)
    by_length = _by_length(subject, numbers, originals, made)
    return Findings(
        numbers.estimates | by_length.estimates,
        tables | by_length.tables,
        by_length.pictures,
        numbers.per_sentence | by_length.per_sentence,
    )


def _sample_against_mean(numbers: _Numbers, sample: _Compared, mean: _Compared) -> None:
    """Which of the two reconstructs a sentence better; where both do it alike, neither."""
    gains = {
        "bleu1": ("sentence BLEU-1", sample.bleu1_N - mean.bleu1_N),
        "edits": ("word edit distance to the original", mean.edits_N - sample.edits_N),
    }
    for key, (by, gain_N) in gains.items():
        for winner, loser, sign in (("sample", "mean", 1), ("mean", "sample", -1)):
            name = f"share of sentences that a posterior {winner} reconstructs better than the {loser}, by {by}, greedy"
            better_N = (sign * gain_N > 1e-9).astype(np.float64)  # beyond rounding
            numbers.mean(f"{winner}_better_{key}", name, better_N, None)
    name = "mean sentence BLEU-1 (0-1) from posterior samples less that from means, paired, greedy"
    numbers.mean("sample_less_mean_bleu1", name, gains["bleu1"][1], None)


def _similarity(subject: Subject, numbers: _Numbers, originals: Originals, made: dict[str, list[str]]) -> Table:
    """How like the sampled reconstruction the perturbed one is; a second sample and another sentence are the marks."""
    texts = [subject.test.texts[row] for row in originals.rows_N]
    seed = seed_of(subject.seed, "second sample")
    second_NZ = subject.test.coder.encode(texts, what="sample", seed=seed)
    method = greedy_method(originals.split)
    second = subject.space.decode(second_NZ, method=method, show_progress=subject.show_progress)
    kinds = {
        "perturbed": (f"that from {_KINDS['perturbed']}", made["perturbed"]),
        "second": ("that from a second posterior sample (the most to be had)", second),
    }
    other_KN = partners(len(texts), 1, np.random.default_rng(seed_of(subject.seed, "other sentence")))
    if len(texts) > 1:
        others = [made["sample"][row] for row in other_KN[0]]
        kinds["other"] = "the sampled reconstruction of another sentence (the least)", others
    rows: list[Cells] = []
    for key, (words, candidates) in kinds.items():
        found = _Compared.of(candidates, made["sample"])
        equal_N = (found.edits_N == 0).astype(np.float64)
        name = f"similarity to the sampled reconstruction of {words}"
        bleu1, edits, equal = keys = [f"like_sample_{each}_{key}" for each in ("bleu1", "edits", "equal")]
        names = [f"{name}: {of}" for of in ("mean sentence BLEU-1 (0-1)", "edits per word", "share that are the same")]
        if key == "other":
            ratio_N = Ratio.of(found.edits_N, found.words_N).each_sentence(found.edits_N, found.words_N)
            for each, told, values_N in zip(keys, names, (found.bleu1_N, ratio_N, equal_N), strict=True):
                numbers.mean_of_pairs(each, told, values_N, pairs_of(other_KN))
        else:
            numbers.mean(bleu1, names[0], found.bleu1_N, None)
            numbers.ratio(edits, names[1], found.edits_N, found.words_N, None)
            numbers.mean(equal, names[2], equal_N, None)
        rows.append((words, *(shown(numbers.estimates[each]) for each in keys)))
    return Table(
        "How like the reconstruction from a posterior sample others are, greedy",
        ("", "mean sentence BLEU-1 (0-1)", "edits per word", "share the same"),
        tuple(rows),
    )


def _by_length(subject: Subject, numbers: _Numbers, originals: Originals, made: dict[str, list[str]]) -> Findings:
    """BLEU-1 of what was decoded, and nats of all test sentences, in bands of length."""
    test = subject.test
    scored = test.likelihood(0, progress=subject.show_progress)
    tokens_N = scored.counts_N["token"]
    name = "reconstruction, -E_q log p(x|z), nats per token (end counted), one posterior sample"
    losses = _Numbers(scored.settings | {"samples": 1, "error": OVER_SENTENCES})
    losses.ratio("nats_per_token", name, scored.reconstruction_N, tokens_N, False)
    decoded = bands_of(text.split() for text in originals.texts)
    rows: list[Cells] = []
    series: dict[str, list[float]] = {}
    nats: list[float] = []
    lengths: list[float] = []
    for band, at_N in bands_of(test.words).items():
        key = f"nats_per_token/{band}"
        losses.ratio(key, f"{name}, {band} words", scored.reconstruction_N[at_N], tokens_N[at_N], False)
        some = decoded.get(band, np.zeros(0, np.int64))
        cells: list[str | None] = []
        for kind, texts in made.items():
            made_N, originals_N = [texts[row] for row in some], [originals.texts[row] for row in some]
            if len(some):
                how = f"greedy decoding from {_KINDS[kind]}, {band} words"
                numbers.bleu1(f"{kind}/{band}", how, made_N, originals_N)
            found = numbers.estimates.get(f"bleu1_{kind}/{band}")
            cells.append(None if found is None else shown(found))
            series.setdefault(_KINDS[kind], []).append(math.nan if found is None else found.value)
        rows.append((band, len(at_N), shown(losses.estimates[key]), len(some), *cells))
        nats.append(losses.estimates[key].value)
        lengths.append(float(np.mean([len(test.words[row]) for row in at_N])))
    columns = ("words", "sentences", "nats per token", "decoded", *(f"BLEU-1, {_KINDS[kind]}" for kind in made))
    title = "By words of the sentence: -log p(x|z) per token (end counted, one posterior sample), corpus BLEU-1 (0-1)"

    def lines(title: str, series: dict[str, list[float]], y_label: str) -> Picture:
        x_label = "words of the sentence (mean of each band)"
        return Picture("lines", title, series, x=lengths, x_label=x_label, y_label=y_label)

    return Findings(
        losses.estimates,
        per_sentence=losses.per_sentence,
        tables={"by_length": Table(title, columns, tuple(rows))},
        pictures={
            "bleu1_by_length": lines("BLEU-1 of greedy reconstructions by length", series, "BLEU-1 (0-1)"),
            "nats_by_length": lines("Reconstruction loss by length", {"-log p(x|z)": nats}, "nats per token"),
        },
    )


# Seen and unseen sentences


def overfitting(subject: Subject) -> Findings:
    """Reconstruction of as many training sentences as there are test sentences, beside those.

    A space that has learnt its training sentences by heart reconstructs them better than others.
    """
    space, train, test = subject.space, subject.splits["train"], subject.test
    rows_N = some_rows(len(train), len(test))
    sets = {"train": [train.texts[row] for row in rows_N], "test": test.texts}
    learnt = likelihood(
        space.model,
        subject.encoded(sets["train"]),
        seed=subject.seed,
        precision=subject.effort.precision,
        progress=subject.show_progress,
    )
    scored = {"train": learnt, "test": test.likelihood(0, progress=subject.show_progress)}
    tested = set(test.texts)
    seen = {text for text in train.all_texts() if text in tested}
    settings: Settings = {
        "seed": subject.seed,
        "samples": 1,
        "end_token": "included",
        "error": OVER_SENTENCES,
        "share_of_test_in_training": float(np.mean([text in seen for text in test.texts])),
    }
    estimates: dict[str, Estimate] = {}
    rows: list[Cells] = []
    for key, texts in sets.items():
        what = f"{len(texts):,} {'training' if key == 'train' else 'test'} sentences"
        name = f"reconstruction, -E_q log p(x|z), nats per token (end counted), one posterior sample, {what}"
        nats_N, counts_N = scored[key].reconstruction_N, scored[key].counts_N["token"]
        estimates[f"nats_per_token_{key}"] = per_unit(name, nats_N, counts_N, "none", settings)
        few = some_rows(len(texts), subject.effort.decoded)
        some = subject.encoded([texts[row] for row in few])
        made = subject.test.coder.reconstruct(
            [texts[row] for row in few], method=greedy_method(some), show_progress=subject.show_progress
        )
        numbers = _Numbers(settings | {"decoding": "greedy"})
        of = f"greedy decoding from posterior means, {len(few):,} of {what}"
        numbers.bleu1(key, of, list(made), written(some, space.tokenizer))
        estimates |= numbers.estimates
        keys = (f"nats_per_token_{key}", f"bleu1_{key}", f"sentence_bleu1_{key}")
        rows.append((what, *(shown(estimates[each]) for each in keys)))
    cells = []
    for key, name in (
        ("nats_per_token", "reconstruction, nats per token (end counted)"),
        ("bleu1", "corpus BLEU-1 (0-1) from posterior means, greedy"),
        ("sentence_bleu1", "mean sentence BLEU-1 (0-1) from posterior means, greedy"),
    ):
        seen_one, unseen = (estimates[f"{key}_{which}"] for which in ("train", "test"))
        error = None
        if seen_one.stderr is not None and unseen.stderr is not None:
            error = math.hypot(seen_one.stderr, unseen.stderr)
        told = f"over-fitting: {name}, of test sentences less that of training sentences"
        gap = unseen.value - seen_one.value
        estimates[f"{key}_gap"] = Estimate(told, gap, error, unseen.n, "none", None, settings)
        cells.append(plus_minus(gap, error))
    rows.append(("test less training", *cells))
    title = "Training sentences beside as many test sentences: a space that over-fits reconstructs the former better"
    columns = ("", "nats per token (end counted)", "BLEU-1 (0-1)", "mean sentence BLEU-1 (0-1)")
    return Findings(estimates, {"overfitting": Table(title, columns, tuple(rows))})


MEASURES: dict[str, Measure] = {
    "reconstruction_by_code": Measure(
        reconstruction_by_code,
        "BLEU-1 from 0 to 1 of reconstructions from means, from samples and from ten deviations away, which of them "
        "are better or alike, and all by length.",
        needs=("codes",),
    ),
    "overfitting": Measure(
        overfitting,
        "Whether training sentences are reconstructed better than test sentences.",
        needs=("codes", "own_train"),
    ),
}
