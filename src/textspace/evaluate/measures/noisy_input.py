"""What becomes of sentences when the encoder reads their words in another order and the decoder keeps to theirs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from textspace.data.encoded import EncodedSplit
from textspace.evaluate.likelihood import likelihood
from textspace.evaluate.measure import Cells, Findings, Measure, Picture, Subject, Table
from textspace.evaluate.measures.reconstruction import mean_shown, originals_of, shown
from textspace.evaluate.statistics import OVER_SENTENCES, standard_error
from textspace.noise import seed_of
from textspace.types import Bound, Estimate, Settings

__all__ = ["MEASURES", "SWAPS", "shuffled_input", "swap_words", "word_swaps"]

Floats = NDArray[np.float64]

SWAPS = 4
"""The most swaps of two words [Li et al. 2019, table 6]."""


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
    effort, split = subject.effort, subject.test.split
    originals = [split.text(row).split() for row in range(len(split))]
    swapped = [swap_words(words, SWAPS, _random(subject, "word swaps", row)) for row, words in enumerate(originals)]
    estimates: dict[str, Estimate] = {}
    per_sentence: dict[str, list[float]] = {}
    rows: list[Cells] = []
    plain_N = np.zeros(0)
    for swaps in range(SWAPS + 1):
        if swaps:
            measured = likelihood(
                subject.space.model,
                split,
                seed=subject.seed,
                encoder_split=_reordered(subject, [each[swaps - 1] for each in swapped]),
                precision=effort.precision,
                progress=subject.show_progress,
            )
        else:
            measured = subject.test.likelihood(0, progress=subject.show_progress)
        loss_N = measured.reconstruction_N
        plain_N = loss_N if not swaps else plain_N
        settings: Settings = {"seed": subject.seed, "swaps": swaps, "samples": 1, "error": OVER_SENTENCES}
        name = f"reconstruction loss -log p(x|z), nats per sentence, one posterior sample, {_swaps(swaps)}"
        estimates[f"swaps_{swaps}"] = _mean(name, loss_N, "lower", settings)
        per_sentence[f"swaps_{swaps}"] = loss_N.tolist()
        more_N = loss_N - plain_N
        more = mean_shown(more_N) if swaps else None
        rows.append((swaps, shown(estimates[f"swaps_{swaps}"]), more))
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
    Every sentence has one permutation of its own: the error over sentences is that of permutations too.
    """
    effort = subject.effort
    rows_N, split, _ = originals_of(subject)
    words = [split.text(row).split() for row in range(len(split))]

    def measured(read: EncodedSplit | None) -> tuple[str, Floats]:
        if read is None and len(split) == len(subject.test):  # which other measures score, too
            found = subject.test.likelihood(effort.importance_samples, progress=subject.show_progress)
        else:
            found = likelihood(
                subject.space.model,
                split,
                samples=effort.importance_samples,
                seed=subject.seed,
                encoder_split=read,
                precision=effort.precision,
                progress=subject.show_progress,
            )
        if found.nll_N is None:
            raise AssertionError("samples were asked for")
        return found.estimates()["nll"].name, found.nll_N

    plain_name, plain_N = measured(None)
    order = [
        _random(subject, "shuffle", int(row)).permutation(len(each)) for row, each in zip(rows_N, words, strict=True)
    ]
    read = _reordered(subject, [[each[i] for i in o] for each, o in zip(words, order, strict=True)])
    shuffled_name, shuffled_N = measured(read)
    difference_N = shuffled_N - plain_N
    settings: Settings = {
        "seed": subject.seed,
        "samples": effort.importance_samples,
        "of": len(subject.test),
        "error": OVER_SENTENCES,
    }
    difference = "importance-weighted NLL, shuffled less unshuffled encoder input, nats per sentence, paired"
    return Findings(
        {
            "nll_unshuffled": _mean(f"{plain_name}, nats per sentence", plain_N, "lower", settings, "upper"),
            "nll_shuffled": _mean(
                f"{shuffled_name}, nats per sentence, encoder's input shuffled", shuffled_N, None, settings, "upper"
            ),
            "shuffling_costs": _mean(difference, difference_N, None, settings),
        },
        {
            "shuffled_input": Table(
                "Importance-weighted NLL with the encoder's input shuffled, nats per sentence",
                ("encoder reads", "NLL", "more than unshuffled (paired)"),
                (
                    ("words in order", mean_shown(plain_N), None),
                    ("words shuffled", mean_shown(shuffled_N), mean_shown(difference_N)),
                ),
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
