"""How much of a sentence its code holds: reconstructions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textspace.data.encoded import EncodedSplit
from textspace.digits import plus_minus
from textspace.evaluate.measure import PERTURBATION, Cells, CodeKind, Findings, Measure, Picture, Subject, Table
from textspace.evaluate.sources import rows_by_source
from textspace.evaluate.statistics import BLOCKS, OVER_SENTENCES, Ratio, some_rows, standard_error
from textspace.evaluate.text_metrics import Scores, score_reconstructions, written
from textspace.generate import Beam, Greedy, Method
from textspace.types import Estimate, Settings

__all__ = [
    "MEASURES",
    "Originals",
    "bands_of",
    "greedy_method",
    "mean_shown",
    "originals_of",
    "reconstruction",
    "reconstruction_examples",
    "reconstruction_variants",
    "shown",
]

Floats = NDArray[np.float64]
Code = Literal["mean", "sample"]

BIN_ENDS = (5, 10, 15, 20, 30, 50, 100)
"""The most words of a sentence in each bin of lengths but the last, which has no end."""

BEAM_WIDTH = 5
MOST_TOKENS = 200
"""Where decoding stops, unless an original is longer."""


# Reconstructions


class Originals(NamedTuple):
    """The test sentences that are reconstructed."""

    rows_N: NDArray[np.int64]
    split: EncodedSplit
    texts: list[str]
    """As the tokenizer can write them."""


def originals_of(subject: Subject) -> Originals:
    space = subject.space
    rows_N = some_rows(len(subject.test), subject.effort.decoded)
    texts = [subject.test.texts[row] for row in rows_N]
    split = subject.encoded(texts)
    return Originals(rows_N, split, written(split, space.tokenizer))


def greedy_method(split: EncodedSplit) -> Greedy:
    """Greedy decoding that lets the longest of some sentences come back whole."""
    return Greedy(max_tokens=max(MOST_TOKENS, int(split.lengths.max(initial=2)) - 2))


class _Way(NamedTuple):
    """One way to reconstruct: how words are chosen, and from which code."""

    decoding: Literal["greedy", "beam"]
    code: Code

    @property
    def words(self) -> str:
        decoding = "greedy decoding" if self.decoding == "greedy" else f"beam search of width {BEAM_WIDTH}"
        return f"{decoding} from posterior {self.code}s"

    @property
    def key(self) -> str:
        return f"{self.decoding}_{self.code}"

    def method(self, split: EncodedSplit) -> Method:
        greedy = greedy_method(split)
        return greedy if self.decoding == "greedy" else Beam(width=BEAM_WIDTH, max_tokens=greedy.max_tokens)

    def made(self, subject: Subject, originals: Originals) -> list[str]:
        """The sentences that came back."""
        codes = subject.test.codes(self.code, originals.rows_N)
        method = self.method(originals.split)
        return subject.space.decode(codes, method=method, show_progress=subject.show_progress)

    def estimates(self, subject: Subject, scores: Scores) -> dict[str, Estimate]:
        count = len(scores.exact_N)
        settings: Settings = {
            "decoding": self.decoding,
            "code": self.code,
            "seed": subject.test.seed if self.code == "sample" else None,
            "references": "test sentences, words unknown to the tokenizer written <unk>",
            "of": len(subject.test),
            "error": OVER_SENTENCES,
        }
        if self.decoding == "beam":
            settings |= {"width": BEAM_WIDTH, "length_penalty": 0.0}
        paper = ", as in Li et al. 2019" if self == _Way("greedy", "sample") else ""
        jackknife = f"standard error by a jackknife over {min(BLOCKS, count)} blocks of sentences"
        found: dict[str, Estimate] = {}

        def add(key: str, name: str, value: float, error: float | None, more: Settings | None = None) -> None:
            told = f"{name}, {self.words}"
            found[f"{key}_{self.key}"] = Estimate(told, value, error, count, "none", "higher", settings | (more or {}))

        for order, bleu in ((4, scores.bleu4), (1, scores.bleu1)):
            name = f"corpus BLEU-{order} (0-100{paper if order == 4 else ''})"
            add(f"bleu{order}", name, bleu.score, bleu.stderr, {"signature": bleu.signature, "error": jackknife})
        for key, name, values_N in (
            ("sentence_bleu1", "mean sentence BLEU-1 (0-100)", scores.sentence_bleu1_N),
            ("exact_match", "share of sentences reconstructed word for word", scores.exact_N),
        ):
            add(key, name, float(values_N.mean()), standard_error(values_N))
        add("token_accuracy", "share of words at their position (whitespace words, end not counted)", *scores.accuracy)
        return found

    def per_sentence(self, scores: Scores) -> dict[str, list[float]]:
        matches_N = scores.accuracy.each_sentence(scores.matches_N, scores.words_N)
        values = {"sentence_bleu1": scores.sentence_bleu1_N, "exact_match": scores.exact_N, "token_accuracy": matches_N}
        return {f"{key}_{self.key}": values_N.tolist() for key, values_N in values.items()}


_QUICK = _Way("greedy", "mean")
_WAYS = (_QUICK, _Way("greedy", "sample"), _Way("beam", "mean"), _Way("beam", "sample"))


def reconstruction(subject: Subject) -> Findings:
    """Test sentences encoded and decoded again, greedily from their means."""
    originals = originals_of(subject)
    made = _QUICK.made(subject, originals)
    scores = score_reconstructions(made, originals.texts)
    tables = _by_source(subject, originals, made)
    return Findings(_QUICK.estimates(subject, scores), tables, per_sentence=_QUICK.per_sentence(scores))


def _by_source(subject: Subject, originals: Originals, made: list[str]) -> dict[str, Table]:
    """The same of each source, where there are several."""
    sources = subject.test.sources
    by_source = rows_by_source(None if sources is None else [sources[row] for row in originals.rows_N])
    rows: list[Cells] = []
    for name, rows_N in by_source.items():
        scores = score_reconstructions([made[row] for row in rows_N], [originals.texts[row] for row in rows_N])
        bleus = [plus_minus(bleu.score, bleu.stderr) for bleu in (scores.bleu4, scores.bleu1)]
        rows.append((name, len(rows_N), *bleus, mean_shown(scores.exact_N), plus_minus(*scores.accuracy)))
    columns = ("source", "sentences", "BLEU-4", "BLEU-1", "exact match", "token accuracy")
    title = "Greedy reconstruction from posterior means by source (BLEU 0-100, shares 0-1)"
    return {"by_source": Table(title, columns, tuple(rows))} if rows else {}


# Examples


def reconstruction_examples(subject: Subject) -> Findings:
    """A table of reconstructions as sentenceMIM's [Livne et al. 2020, tables 11 to 14], of sentences that a rule picks.

    Below each sentence (D) what came back from the posterior's mean (M), from a sample (R), and from a sample with ten
    times the deviation (P); a posterior without spread has one code, an autoencoder's (AE).
    """
    test = subject.test
    chosen: dict[str, int] = {}
    by_source = rows_by_source(test.sources)
    for source, rows_N in (by_source or {"": np.arange(len(test))}).items():
        for band, places_M in bands_of(test.words[row] for row in rows_N).items():
            chosen[f"{source}, {band} words" if source else f"{band} words"] = int(rows_N[places_M[0]])
    at_N = list(chosen.values())
    kinds: dict[str, CodeKind] = {"(AE)": "mean"}
    if test.has_spread:
        kinds = {"(M)": "mean", "(R)": "sample", "(P)": "perturbed"}
    split = EncodedSplit.of([test.texts[row] for row in at_N], subject.space.tokenizer, None)
    made = {
        row: subject.space.decode(
            test.codes(kind, at_N), method=greedy_method(split), show_progress=subject.show_progress
        )
        for row, kind in kinds.items()
    }
    rows: list[tuple[str, str, str]] = []
    for place, (label, row) in enumerate(chosen.items()):
        rows.append((label, "(D)", test.texts[row]))
        rows += [(label, kind, texts[place]) for kind, texts in made.items()]
    title = (
        f"Reconstructions of the first test sentence of each length{' and source' if by_source else ''}, in "
        f"the order of the text, greedy: (D) data, (M) from the posterior's mean, (R) from a sample, (P) from a sample "
        f"with {PERTURBATION:.0f} times the deviation, (AE) from the one code of a posterior without spread"
    )
    table = Table(title, ("sentence", "row", "text"), tuple(rows), grouped=True)
    return Findings(tables={"examples": table})


def reconstruction_variants(subject: Subject) -> Findings:
    """The same, greedy and by beam search, from means and from posterior samples; and by sentence length.

    Greedy decoding from samples is the BLEU of Li et al. 2019. What `reconstruction` tells is in the table only.
    """
    originals = originals_of(subject)
    estimates: dict[str, Estimate] = {}
    per_sentence: dict[str, list[float]] = {}
    rows: list[Cells] = []
    greedy: dict[_Way, list[str]] = {}
    for way in _WAYS:
        made = way.made(subject, originals)
        if way.decoding == "greedy":
            greedy[way] = made
        scores = score_reconstructions(made, originals.texts)
        found = way.estimates(subject, scores)
        rows.append((way.decoding, way.code, *map(shown, found.values())))
        if way != _QUICK:
            estimates |= found
            per_sentence |= way.per_sentence(scores)
    columns = ("decoding", "code", "BLEU-4", "BLEU-1", "sentence BLEU-1", "exact match", "token accuracy")
    tables = {"variants": Table("Reconstruction (BLEU 0-100, shares 0-1)", columns, tuple(rows))}
    measured = subject.test.likelihood(0, progress=subject.show_progress).of_rows(originals.rows_N)
    by_length = _by_length(greedy, originals.texts, measured.reconstruction_N, measured.counts_N["word"])
    return Findings(estimates, tables | by_length.tables, by_length.pictures, per_sentence)


def _by_length(
    made: dict[_Way, list[str]], originals: list[str], loss_N: Floats, counts_N: NDArray[np.int64]
) -> Findings:
    """Scores and losses in bins of sentence length."""
    rows: list[Cells] = []
    losses: list[Cells] = []
    lengths: list[float] = []
    series: dict[str, list[float]] = {}
    for label, at in bands_of(text.split() for text in originals).items():
        lengths.append(float(np.mean([len(originals[row].split()) for row in at])))
        for way, texts in made.items():
            scores = score_reconstructions([texts[row] for row in at], [originals[row] for row in at])
            bleus = [plus_minus(bleu.score, bleu.stderr) for bleu in (scores.bleu4, scores.bleu1)]
            rows.append((way.code, label, len(at), *bleus, mean_shown(scores.exact_N), plus_minus(*scores.accuracy)))
            series.setdefault(f"BLEU-4, {way.code} codes", []).append(scores.bleu4.score)
            series.setdefault(f"token accuracy, {way.code} codes", []).append(100 * scores.accuracy.value)
        per_word = Ratio.of(loss_N[at], counts_N[at])
        losses.append((label, len(at), mean_shown(loss_N[at]), plus_minus(*per_word)))
    columns = ("code", "words", "sentences", "BLEU-4", "BLEU-1", "exact match", "token accuracy")
    return Findings(
        tables={
            "by_length": Table(
                "Greedy reconstruction by words of the original (BLEU 0-100, shares 0-1)", columns, tuple(rows)
            ),
            "loss_by_length": Table(
                "Reconstruction loss -log p(x|z) by words of the original, one posterior sample a sentence",
                ("words", "sentences", "nats per sentence", "nats per word, end counted"),
                tuple(losses),
            ),
        },
        pictures={
            "by_length": Picture(
                "lines",
                "Greedy reconstruction by sentence length",
                series,
                x=lengths,
                x_label="words of the original (mean of each bin)",
                y_label="BLEU-4, token accuracy (0-100)",
            )
        },
    )


def bands_of(sentences: Iterable[Sequence[str]]) -> dict[str, NDArray[np.int64]]:
    """Rows of the sentences in each band of lengths, short ones first; bands without any are left out.

    >>> {band: rows.tolist() for band, rows in bands_of(["a b".split(), ["a"] * 9, []]).items()}
    {'up to 5': [0, 2], '6-10': [1]}
    """
    bin_N = np.searchsorted(BIN_ENDS, [len(words) for words in sentences])
    return {_bin_label(int(number)): np.flatnonzero(bin_N == number) for number in np.unique(bin_N)}


def _bin_label(number: int) -> str:
    """
    >>> [_bin_label(number) for number in (0, 1, 7)]
    ['up to 5', '6-10', 'above 100']
    """
    if number == len(BIN_ENDS):
        return f"above {BIN_ENDS[-1]}"
    return f"{BIN_ENDS[number - 1] + 1}-{BIN_ENDS[number]}" if number else f"up to {BIN_ENDS[0]}"


def shown(estimate: Estimate) -> str:
    return plus_minus(estimate.value, estimate.stderr)


def mean_shown(values_N: Floats) -> str:
    return plus_minus(float(values_N.mean()), standard_error(values_N))


MEASURES: dict[str, Measure] = {
    "reconstruction": Measure(
        reconstruction,
        "How much of a sentence comes back when its mean code is decoded greedily.",
        needs=("codes",),
        suites=("quick", "standard", "full"),
    ),
    "reconstruction_examples": Measure(
        reconstruction_examples,
        "Sentences beside what comes back of them, picked by a rule.",
        needs=("codes",),
        suites=("quick", "standard", "full"),
    ),
    "reconstruction_variants": Measure(
        reconstruction_variants,
        "Reconstruction by greedy decoding and beam search, from means and from posterior samples, and by sentence "
        "length.",
        needs=("codes",),
    ),
}
