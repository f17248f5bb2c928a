"""Ways to sample beside each other: where codes come from, how varied the sentences are and how well they read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from textspace.evaluate.measure import Cells, Findings, Measure, Picture, Subject, Table
from textspace.evaluate.measures.language_models import language_model_of_text
from textspace.evaluate.measures.samples import VARIETY, Compared, Numbers, real_sentences, variety
from textspace.noise import seed_of

__all__ = ["MEASURES", "WAYS", "Way", "sampling_ways"]

CHAIN = 5
"""Rounds of encoding and decoding of a chain."""

SHOWN = 5
"""Samples of each way that are shown: the first."""


@dataclass(frozen=True)
class Way:
    """A way to sample: what it is, whose it is, and its option of `Space.sample`."""

    key: str
    what: str
    whose: str = ""
    option: tuple[str, Any] | None = None

    @property
    def options(self) -> dict[str, Any]:
        return {} if self.option is None else dict([self.option])


PAPER, ADDITION = "sentenceMIM's", "addition"

AGGREGATED = Way("aggregated", "codes from the aggregated posterior of training sentences", ADDITION)
WAYS = (
    Way("prior", "codes from the prior", "the model's own"),
    Way("tenth", "codes with 0.1 of the prior's deviation", PAPER, ("deviation", 0.1)),
    Way("dim", "codes with 1 / sqrt(dimensions) of the prior's deviation", ADDITION, ("deviation", "dim")),
    AGGREGATED,
    Way("chain", f"codes from the prior, then encoded and decoded {CHAIN} times", ADDITION, ("chain", CHAIN)),
)
"""Those compared; Livne et al. 2020 sample with deviation 0.1 (appendix D.3)."""
REAL = Way("real", "real test sentences")


def sampling_ways(subject: Subject) -> Findings:
    """Variety of samples, and their perplexity under a language model of the training text, by where codes come from.

    The marks are real sentences: samples that are more likely to the language model than these are dull, not good.
    """
    train = subject.splits["train"]
    count = min(subject.effort.prior_samples, len(subject.test))
    judge = language_model_of_text(subject)
    numbers = Numbers(subject, sentences=count, words="sampled at temperature 1")
    seed = seed_of(subject.seed, "samples from the prior")
    made: dict[Way, list[str]] = {}
    for way in WAYS:
        options = {"of": train.texts} if way == AGGREGATED else way.options
        made[way] = subject.test.coder.sample(count, seed=seed, show_progress=subject.show_progress, **options)
    made[REAL] = real_sentences(subject, subject.test, count)
    rows: list[Cells] = []
    perplexities: list[float] = []
    for way, texts in made.items():
        whose = f" ({way.whose})" if way.whose else ""
        group = Compared(way.key, f"{count:,} sentences, {way.what}{whose}", texts)
        shown = numbers.perplexity(f"perplexity_{way.key}", group.what, texts, judge)
        rows.append((way.what, way.whose, shown, *variety(numbers, subject, group)))
        perplexities.append(numbers.estimates[f"perplexity_{way.key}"].value)
    examples = [(way.what, number, text) for way in WAYS for number, text in enumerate(made[way][:SHOWN], 1)]
    title = (
        f"Ways to sample, {count:,} sentences each: perplexity per word (end counted) under a language model of "
        f"{judge.learnt_from:,} training sentences, and variety (self-BLEU 0-100, shares 0-1); real sentences are the "
        "mark"
    )
    table = Table(title, ("", "whose", "perplexity", *VARIETY), tuple(rows))
    first = Table(f"The first {SHOWN} samples of each way", ("way", "number", "sentence"), tuple(examples))
    picture = Picture(
        "bars",
        "Perplexity of samples under a language model of the training text",
        {"perplexity per word": perplexities},
        y_label="perplexity per word",
        ticks=[way.what for way in made],
    )
    return Findings(numbers.estimates, {"ways": table, "examples": first}, {"perplexity": picture})


MEASURES: dict[str, Measure] = {
    "sampling_ways": Measure(
        sampling_ways,
        "Samples with codes from the prior, from nearer its middle, from the aggregated posterior and by a chain of "
        "encoding and decoding: how varied they are, and how they read to a language model of the text.",
        needs=("codes", "train"),
    ),
}
