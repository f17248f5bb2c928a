"""How much of a sentence its code holds: reconstructions, and what becomes of them when the encoder reads noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textspace.data.encoded import EncodedSplit
from textspace.evaluate.likelihood import likelihood
from textspace.evaluate.measure import Findings, Measure, Picture, Subject, Table
from textspace.evaluate.text_metrics import (
    BLOCKS,
    Ratio,
    Scores,
    plus_minus,
    score_reconstructions,
    spread_rows,
    standard_error,
    written,
)
from textspace.generate import Beam, Greedy, Method
from textspace.noise import seed_of
from textspace.types import Bound, Estimate

__all__ = [
    "MEASURES",
    "SWAPS",
    "reconstruction",
    "reconstruction_variants",
    "shuffled_input",
    "swap_words",
    "word_swaps",
]

Floats = NDArray[np.float64]
Settings = dict[str, str | int | float | bool | None]
Code = Literal["mean", "sample"]

BIN_ENDS = (5, 10, 15, 20, 30, 50, 100)
"""The most words of a sentence in each bin of lengths but the last, which has no end."""

BEAM_WIDTH = 5
MOST_TOKENS = 200
"""Where decoding stops, unless an original is longer."""

SWAPS = 4
"""The most swaps of two words [Li et al. 2019, table 6]."""

PERMUTATIONS = 3
"""The most permutations of each sentence."""

_OVER_SENTENCES = "standard error over sentences"


# Reconstructions


class _Originals(NamedTuple):
    """The test sentences that are reconstructed."""

    rows_N: NDArray[np.int64]
    split: EncodedSplit
    texts: list[str]
    """As the tokenizer can write them."""


def _originals(subject: Subject) -> _Originals:
    space = subject.space
    rows_N = spread_rows(len(subject.test), subject.effort.decoded)
    texts = [subject.test.texts[row] for row in rows_N]
    split = EncodedSplit.of(texts, space.tokenizer, space.recipe.text.max_tokens)
    return _Originals(rows_N, split, written(split, space.tokenizer))


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
        most = max(MOST_TOKENS, int(split.lengths.max(initial=2)) - 2)
        return Greedy(max_tokens=most) if self.decoding == "greedy" else Beam(width=BEAM_WIDTH, max_tokens=most)

    def made(self, subject: Subject, originals: _Originals) -> list[str]:
        """The sentences that came back."""
        codes_NZ = (subject.test.means_NZ if self.code == "mean" else subject.test.samples_NZ)[originals.rows_N]
        method = self.method(originals.split)
        return subject.space.decode(codes_NZ, method=method, show_progress=subject.show_progress)

    def estimates(self, subject: Subject, scores: Scores) -> dict[str, Estimate]:
        count = len(scores.exact_N)
        settings: Settings = {
            "decoding": self.decoding,
            "code": self.code,
            "seed": subject.test.seed if self.code == "sample" else None,
            "references": "test sentences, words unknown to the tokenizer written <unk>",
            "of": len(subject.test),
            "error": _OVER_SENTENCES,
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
        # Matches over the mean length: so that their mean, too, is the share of all words.
        matches_N = scores.matches_N / max(float(scores.words_N.mean()), 1e-12)
        values = {"sentence_bleu1": scores.sentence_bleu1_N, "exact_match": scores.exact_N, "token_accuracy": matches_N}
        return {f"{key}_{self.key}": values_N.tolist() for key, values_N in values.items()}


_QUICK = _Way("greedy", "mean")
_WAYS = (_QUICK, _Way("greedy", "sample"), _Way("beam", "mean"), _Way("beam", "sample"))


def reconstruction(subject: Subject) -> Findings:
    """Test sentences encoded and decoded again, greedily from their means."""
    originals = _originals(subject)
    scores = score_reconstructions(_QUICK.made(subject, originals), originals.texts)
    return Findings(_QUICK.estimates(subject, scores), per_sentence=_QUICK.per_sentence(scores))


def reconstruction_variants(subject: Subject) -> Findings:
    """The same, greedy and by beam search, from means and from posterior samples; and by sentence length.

    Greedy decoding from samples is the BLEU of Li et al. 2019. What `reconstruction` tells is in the table only.
    """
    originals = _originals(subject)
    estimates: dict[str, Estimate] = {}
    per_sentence: dict[str, list[float]] = {}
    rows: list[tuple[str | float | None, ...]] = []
    greedy: dict[_Way, list[str]] = {}
    for way in _WAYS:
        made = way.made(subject, originals)
        if way.decoding == "greedy":
            greedy[way] = made
        scores = score_reconstructions(made, originals.texts)
        found = way.estimates(subject, scores)
        rows.append((way.decoding, way.code, *map(_shown, found.values())))
        if way != _QUICK:
            estimates |= found
            per_sentence |= way.per_sentence(scores)
    columns = ("decoding", "code", "BLEU-4", "BLEU-1", "sentence BLEU-1", "exact match", "token accuracy")
    tables = {"variants": Table("Reconstruction (BLEU 0-100, shares 0-1)", columns, tuple(rows))}
    measured = likelihood(subject.space.model, originals.split, seed=subject.seed, progress=subject.show_progress)
    by_length = _by_length(greedy, originals.texts, measured.reconstruction_N, measured.counts_N["word"])
    return Findings(estimates, tables | by_length.tables, by_length.pictures, per_sentence)


def _by_length(
    made: dict[_Way, list[str]], originals: list[str], loss_N: Floats, counts_N: NDArray[np.int64]
) -> Findings:
    """Scores and losses in bins of sentence length."""
    words_N = np.array([len(text.split()) for text in originals])
    bin_N = np.searchsorted(BIN_ENDS, words_N)
    rows: list[tuple[str | float | None, ...]] = []
    losses: list[tuple[str | float | None, ...]] = []
    lengths: list[float] = []
    series: dict[str, list[float]] = {}
    for number in np.unique(bin_N):
        at = np.flatnonzero(bin_N == number)
        label = _bin_label(int(number))
        lengths.append(float(words_N[at].mean()))
        for way, texts in made.items():
            scores = score_reconstructions([texts[row] for row in at], [originals[row] for row in at])
            bleus = [plus_minus(bleu.score, bleu.stderr) for bleu in (scores.bleu4, scores.bleu1)]
            rows.append((way.code, label, len(at), *bleus, _of_values(scores.exact_N), plus_minus(*scores.accuracy)))
            series.setdefault(f"BLEU-4, {way.code} codes", []).append(scores.bleu4.score)
            series.setdefault(f"token accuracy, {way.code} codes", []).append(100 * scores.accuracy.value)
        per_word = Ratio.of(loss_N[at], counts_N[at])
        losses.append((label, len(at), _of_values(loss_N[at]), plus_minus(*per_word)))
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


def _bin_label(number: int) -> str:
    """
    >>> [_bin_label(number) for number in (0, 1, 7)]
    ['up to 5', '6-10', 'above 100']
    """
    if number == len(BIN_ENDS):
        return f"above {BIN_ENDS[-1]}"
    return f"{BIN_ENDS[number - 1] + 1}-{BIN_ENDS[number]}" if number else f"up to {BIN_ENDS[0]}"


def _shown(estimate: Estimate) -> str:
    return plus_minus(estimate.value, estimate.stderr)


def _of_values(values_N: Floats) -> str:
    return plus_minus(float(values_N.mean()), standard_error(values_N))


# What the encoder reads changes, what is to be said stays


def swap_words(words: Sequence[str], swaps: int, random: np.random.Generator) -> list[list[str]]:
    """The sentence after each of `swaps` swaps of two words at random positions, one after the other.

    >>> swap_words(["a", "b"], 2, np.random.default_rng(0))
    [['b', 'a'], ['a', 'b']]
    >>> swap_words(["alone"], 2, np.random.default_rng(0))
    [['alone'], ['alone']]
    """
    moved = list(words)
    after = []
    for _ in range(swaps):
        if len(moved) > 1:
            one, other = random.choice(len(moved), 2, replace=False)
            moved[one], moved[other] = moved[other], moved[one]
        after.append(list(moved))
    return after


def _random(subject: Subject, what: str, row: int) -> np.random.Generator:
    """Each sentence has its own, so that it does not matter which others there are."""
    return np.random.default_rng(seed_of(subject.seed, what, row))


def word_swaps(subject: Subject) -> Findings:
    """Reconstruction loss when the encoder reads a sentence with k random swaps of two words [Li et al. 2019, table 6].

    The sentence to say is the original; only the encoder's input changes, and the noise of the posterior sample is
    the same for every k.
    """
    split = subject.test.split
    originals = [split.text(row).split() for row in range(len(split))]
    swapped = [swap_words(words, SWAPS, _random(subject, "word swaps", row)) for row, words in enumerate(originals)]
    estimates: dict[str, Estimate] = {}
    per_sentence: dict[str, list[float]] = {}
    rows: list[tuple[str | float | None, ...]] = []
    plain_N = np.zeros(0)
    for swaps in range(SWAPS + 1):
        read = _reordered(subject, [each[swaps - 1] for each in swapped]) if swaps else None
        measured = likelihood(
            subject.space.model, split, seed=subject.seed, encoder_split=read, progress=subject.show_progress
        )
        loss_N = measured.reconstruction_N
        plain_N = loss_N if not swaps else plain_N
        settings: Settings = {"seed": subject.seed, "swaps": swaps, "samples": 1, "error": _OVER_SENTENCES}
        name = f"reconstruction loss -log p(x|z), nats per sentence, one posterior sample, {_swaps(swaps)}"
        estimates[f"swaps_{swaps}"] = _mean(name, loss_N, "lower", settings)
        per_sentence[f"swaps_{swaps}"] = loss_N.tolist()
        more_N = loss_N - plain_N
        more = plus_minus(float(more_N.mean()), standard_error(more_N)) if swaps else None
        rows.append((swaps, _shown(estimates[f"swaps_{swaps}"]), more))
    table = Table(
        "Reconstruction loss under word swaps in the encoder's input, nats per sentence",
        ("swaps", "loss", "more than without swaps (paired)"),
        tuple(rows),
    )
    picture = Picture(
        "lines",
        "Reconstruction loss under word swaps",
        {"-log p(x|z)": [estimate.value for estimate in estimates.values()]},
        x=[float(swaps) for swaps in range(SWAPS + 1)],
        x_label="swaps of two words in what the encoder reads",
        y_label="nats per sentence",
    )
    return Findings(estimates, {"word_swaps": table}, {"word_swaps": picture}, per_sentence)


def _swaps(count: int) -> str:
    return f"encoder reads {count} random word {'swap' if count == 1 else 'swaps'}" if count else "no swaps"


def _reordered(subject: Subject, sentences: Sequence[Sequence[str]]) -> EncodedSplit:
    """No sentence is cut: whatever its order, the encoder shall read all its words."""
    return EncodedSplit.of([" ".join(words) for words in sentences], subject.space.tokenizer, None)


def shuffled_input(subject: Subject) -> Findings:
    """Importance-weighted NLL when the encoder reads the words in random order [Long et al. 2019, table 4].

    The proposal then comes from the shuffled sentence, and the sentence that is scored is the original. Both numbers
    are upper bounds on the same NLL, so their difference tells how much the encoder's view of word order is worth.
    """
    effort = subject.effort
    rows_N, split, _ = _originals(subject)
    words = [split.text(row).split() for row in range(len(split))]
    permutations = min(PERMUTATIONS, effort.repeats)

    def measured(read: EncodedSplit | None) -> tuple[str, Floats]:
        found = likelihood(
            subject.space.model,
            split,
            samples=effort.importance_samples,
            seed=subject.seed,
            encoder_split=read,
            progress=subject.show_progress,
        )
        if found.nll_N is None:
            raise AssertionError("samples were asked for")
        return found.estimates()["nll"].name, found.nll_N

    plain_name, plain_N = measured(None)
    difference_N = np.zeros_like(plain_N)
    shuffled_name = plain_name
    rows: list[tuple[str | float | None, ...]] = [("unshuffled", _of_values(plain_N), None)]
    for number in range(permutations):
        generators = (_random(subject, f"shuffle {number}", int(row)) for row in rows_N)
        order = [g.permutation(len(each)) for g, each in zip(generators, words, strict=True)]
        read = _reordered(subject, [[each[i] for i in o] for each, o in zip(words, order, strict=True)])
        shuffled_name, nll_N = measured(read)
        difference_N += (nll_N - plain_N) / permutations
        rows.append((f"permutation {number + 1}", _of_values(nll_N), _of_values(nll_N - plain_N)))
    settings: Settings = {
        "seed": subject.seed,
        "samples": effort.importance_samples,
        "permutations": permutations,
        "of": len(subject.test),
        "error": _OVER_SENTENCES,
    }
    shuffled = f"encoder's input shuffled, mean of {permutations} permutations"
    shuffled_N = plain_N + difference_N
    difference = "importance-weighted NLL, shuffled less unshuffled encoder input, nats per sentence, paired"
    return Findings(
        {
            "nll_unshuffled": _mean(f"{plain_name}, nats per sentence", plain_N, "lower", settings, "upper"),
            "nll_shuffled": _mean(
                f"{shuffled_name}, nats per sentence, {shuffled}", shuffled_N, None, settings, "upper"
            ),
            "shuffling_costs": _mean(difference, difference_N, None, settings),
        },
        {
            "shuffled_input": Table(
                "Importance-weighted NLL with the encoder's input shuffled, nats per sentence",
                ("encoder reads", "NLL", "more than unshuffled (paired)"),
                tuple(rows),
            )
        },
        per_sentence={"nll_shuffled": shuffled_N.tolist(), "shuffling_costs": difference_N.tolist()},
    )


def _mean(
    name: str,
    values_N: Floats,
    better: Literal["lower", "higher"] | None,
    settings: Settings,
    bound: Bound = "none",
) -> Estimate:
    return Estimate(name, float(values_N.mean()), standard_error(values_N), len(values_N), bound, better, settings)


MEASURES: dict[str, Measure] = {
    "reconstruction": Measure(
        reconstruction,
        "How much of a sentence comes back when its mean code is decoded greedily.",
        needs=("codes",),
        suites=("quick", "standard", "full"),
    ),
    "reconstruction_variants": Measure(
        reconstruction_variants,
        "Reconstruction by greedy decoding and beam search, from means and from posterior samples, and by sentence "
        "length.",
        needs=("codes",),
    ),
    "word_swaps": Measure(
        word_swaps,
        "Reconstruction loss when the encoder reads a sentence with one to four random swaps of two words.",
        needs=("codes",),
    ),
    "shuffled_input": Measure(
        shuffled_input,
        "What it costs in likelihood when the encoder reads the words in random order.",
        needs=("codes",),
        suites=("full",),
    ),
}
