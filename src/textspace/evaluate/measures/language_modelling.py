"""Measures of a space as a model of language, of its posterior, and of the run that made it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textspace.evaluate.code_statistics import Mean
from textspace.evaluate.doctor import known_numbers
from textspace.evaluate.examination import (
    Examination,
    History,
    courses,
    examine,
    validations,
)
from textspace.evaluate.likelihood import Likelihood
from textspace.evaluate.measure import Findings, Measure, Picture, Subject, Table
from textspace.evaluate.posterior import ACTIVE_ABOVE
from textspace.evaluate.sources import with_sources
from textspace.evaluate.subjects import folder_of
from textspace.recipes.sparse import asked_share
from textspace.types import EndToken, Estimate

__all__ = [
    "MEASURES",
    "likelihood",
    "likelihood_with_length_prior",
    "likelihood_without_end",
    "posterior",
    "training_curves",
]

Floats = NDArray[np.float64]

ERROR = "standard error over sentences"

SHOWN_SENTENCES = 5
"""Of the hardest and of the easiest ones."""

SHOWN_STEPS = 150
"""Points of a training curve: each is the mean of the steps since the one before."""


# Likelihood


def likelihood(subject: Subject) -> Findings:
    """The ELBO, its parts, the importance-weighted bound and the gap between the two, of every test sentence."""
    return _likelihood(subject, "included")


def likelihood_without_end(subject: Subject) -> Findings:
    """The same with the end token's term left out of every likelihood and count."""
    return _likelihood(subject, "dropped")


def likelihood_with_length_prior(subject: Subject) -> Findings:
    """The same as p_seq(x|z) p(length): the end token without probability, lengths as in the training sentences."""
    return _likelihood(subject, "length")


def _likelihood(subject: Subject, end_token: EndToken) -> Findings:
    measured = subject.test.likelihood(subject.effort.importance_samples, end_token, subject.show_progress)
    found = likelihood_findings(measured, subject.test.texts)
    return with_sources(found, measured, subject.test.sources)


def likelihood_findings(measured: Likelihood, texts: Sequence[str]) -> Findings:
    """What likelihoods of sentences say, summed up; `texts` are the sentences."""
    estimates = measured.estimates()
    columns: dict[str, Floats | None] = {
        "reconstruction": measured.reconstruction_N,
        "elbo": measured.elbo_N,
        "nll": measured.nll_N,
        "effective_samples": measured.effective_samples_N,
        "dual_kl": measured.dual_kl_N,
        "dual_marginal_kl": measured.dual_marginal_kl_N,
        "mim": measured.mim_N,
    }
    columns |= {"kl" if len(measured.kl_N) == 1 else f"kl_{name}": kl_N for name, kl_N in measured.kl_N.items()}
    if measured.elbo_N is not None and measured.nll_N is not None and measured.effective_samples_N is not None:
        gap_N = columns["gap"] = measured.elbo_N - measured.nll_N
        estimates["gap"] = _gap(gap_N, measured)
    estimates = {key: replace(each, settings=each.settings | {"error": ERROR}) for key, each in estimates.items()}
    per_sentence = {key: column.tolist() for key, column in columns.items() if column is not None}
    # Nats of a sentence with the tightest bound there is; a posterior without density and samples has none.
    nats_N = next((each for each in (measured.nll_N, measured.elbo_N) if each is not None), None)
    if nats_N is None:
        return Findings(estimates, per_sentence=per_sentence)
    shown = {key: per_sentence[key] for key in ("elbo", "nll") if key in per_sentence}
    picture = Picture(
        "histogram",
        "Cost of a sentence",
        {estimates[key].name.partition(",")[0]: values for key, values in shown.items()},
        x_label="nats per sentence",
    )
    words_N = measured.counts_N["word"]
    tables = {"sentences": _extremes(nats_N, words_N, texts)}
    return Findings(estimates, tables, {"nats": picture}, per_sentence)


def _gap(gap_N: Floats, measured: Likelihood) -> Estimate:
    """In expectation KL(q(z|x) || p(z|x)) less what the importance-weighted bound still lacks [Cremer et al. 2018]."""
    name = (
        f"gap between negative ELBO and importance-weighted NLL of {measured.settings['samples']} samples, paired; "
        f"lower bound on KL(q(z|x) || p(z|x)){measured.end_words}"
    )
    error = Mean.of(gap_N).stderr if len(gap_N) > 1 else None
    return Estimate(name, float(gap_N.mean()), error, len(gap_N), "lower", "lower", measured.settings)


def _extremes(nats_N: Floats, words_N: NDArray[np.int64], texts: Sequence[str]) -> Table:
    each_N = nats_N / np.maximum(words_N, 1)
    order = np.argsort(-each_N, kind="stable")
    count = min(SHOWN_SENTENCES, len(order) // 2)
    chosen = [("hardest", row) for row in order[:count]] + [("easiest", row) for row in order[len(order) - count :]]
    rows = tuple((kind, texts[row], float(each_N[row]), float(nats_N[row])) for kind, row in chosen)
    return Table("Sentences that surprise it most and least", ("", "sentence", "nats per word", "nats"), rows)


# The posterior, and the doctor


def posterior(subject: Subject) -> Findings:
    """What a code tells about its sentence, how many dimensions it uses, how codes lie; and the doctor's diagnosis."""
    space, folder = subject.space, folder_of(subject)
    history = History([], None) if folder is None else History.of(folder, space.metrics)
    found = examine(
        space.model,
        subject.test.split,
        space.recipe,
        seed=subject.seed,
        scored=subject.test.likelihood(0, progress=subject.show_progress),
        history=history.earlier,
        epochs=history.epochs,
        progress=subject.show_progress,
    )
    sparse = space.model.has_gates or asked_share(space.recipe) is not None
    return posterior_findings(found, sparse)


def posterior_findings(found: Examination, sparse: bool) -> Findings:
    """What an examination found; Hoyer of a space that is to be sparse alone."""
    told = found.diagnosis
    rows = [("state", told.state), ("in words", told.sentence)]
    rows += [("to try" if number == 0 else "or", advice) for number, advice in enumerate(told.advice)]
    tables = {"doctor": Table("The doctor's diagnosis", ("", "diagnosis"), tuple(rows))}
    statistics = found.statistics
    if statistics is None:
        return Findings(tables=tables)
    estimates = {
        key: replace(each, settings=each.settings | {"error": None if each.stderr is None else ERROR})
        for key, each in statistics.estimates().items()
        if sparse or not key.startswith("hoyer")
    }
    by_Z = statistics.mean_variance_Z if statistics.kl_Z is None else statistics.kl_Z
    order = np.argsort(-by_Z, kind="stable")
    ticks = [str(dimension) for dimension in order]
    label = f"dimensions (from 0), sorted by {'variance' if statistics.kl_Z is None else 'KL'}"
    pictures = {}
    if statistics.kl_Z is not None:
        pictures["kl"] = Picture(
            "bars",
            "What each dimension costs",
            {"KL": statistics.kl_Z[order].tolist()},
            x_label=label,
            y_label=f"KL in nats, mean over {statistics.unit}s",
            ticks=ticks,
        )
    share_Z = statistics.mean_variance_Z / statistics.prior_variance_Z
    pictures["activity"] = Picture(
        "bars",
        f"Activity of dimensions: {statistics.active_units} of {len(order)} active (above {ACTIVE_ABOVE})",
        {"variance of the means": share_Z[order].tolist()},
        x_label=label,
        y_label="variance of E[z|x], in prior variances",
        ticks=ticks,
    )
    return Findings(estimates, tables, pictures)


# The run


def training_curves(subject: Subject) -> Findings:
    """The course of the run that made the space, from its log, where there is one."""
    folder = folder_of(subject)
    if folder is None:
        return Findings()
    from textspace.train.log import records

    steps: list[dict[str, Any]] = []
    with suppress(OSError, ValueError, LookupError, TypeError):  # no log, or one that ends in the middle of a line
        for line in records(folder / "steps.jsonl", "step"):
            steps.append(line)
    return course(steps, validations(folder), "token" if subject.space.is_token_level else "sentence")


_VALIDATED = ("elbo", "mi", "active_units")
"""What a validation measures and a step does not."""

_TITLES = {"kl": "KL", "elbo": "Negative ELBO", "mi": "Mutual information"}
"""Of pictures whose name does not say it."""


def course(steps: Sequence[dict[str, Any]], validated: Sequence[dict[str, Any]], unit: str = "sentence") -> Findings:
    """Pictures of a log: each term of the loss in training and in validation, and what only a validation measures.

    The unit is what has a code, a sentence or a token.
    """
    weights = steps[0].get("weights") if steps else None
    weights = weights if isinstance(weights, Mapping) else {}
    terms = [name for name in ("reconstruction", "kl", *weights) if steps and name in known_numbers(steps[0])]
    pictures, named = {}, courses(unit)
    for name in dict.fromkeys([*terms, *_VALIDATED]):
        series = {"training": _thinned(steps, name), "validation": _points(validated, name)}
        series = {which: points for which, points in series.items() if points}
        if series:
            x = sorted({at for points in series.values() for at, _ in points})
            found = {which: dict(points) for which, points in series.items()}
            title = _TITLES.get(name, name.replace("_", " ").capitalize())
            pictures[name] = Picture(
                "lines",
                title if "training" in series else f"{title} in validation",
                {which: [at_x.get(at, math.nan) for at in x] for which, at_x in found.items()},
                x=x,
                x_label="epoch",
                y_label=named[name][1] if name in named else "nats per sentence",
            )
    return Findings(pictures=pictures)


def _points(lines: Sequence[dict[str, Any]], name: str) -> list[tuple[float, float]]:
    """A number over epochs; of equal epochs the last counts."""
    return [(line["epoch"], line[name]) for line in map(known_numbers, lines) if "epoch" in line and name in line]


def _thinned(steps: Sequence[dict[str, Any]], name: str) -> list[tuple[float, float]]:
    points = _points(steps, name)
    parts = np.array_split(np.array(points), min(len(points), SHOWN_STEPS)) if points else []
    return [(float(part[-1, 0]), float(part[:, 1].mean())) for part in parts]


MEASURES: dict[str, Measure] = {
    "likelihood": Measure(
        likelihood,
        "How likely the test sentences are: negative ELBO and its parts, the importance-weighted bound, the gap.",
        suites=("quick", "standard", "full"),
    ),
    "likelihood_without_end": Measure(
        likelihood_without_end,
        "The same without the end token, as some papers count.",
        suites=("full",),
    ),
    "likelihood_with_length_prior": Measure(
        likelihood_with_length_prior,
        "The same as p_seq(x|z) p(length): words from the decoder, the length from the training sentences' lengths.",
        suites=("full",),
    ),
    "posterior": Measure(
        posterior,
        "What a code tells about its sentence, how many dimensions are in use, and whether all is well.",
        needs=("codes",),
        suites=("quick", "standard", "full"),
    ),
    "training_curves": Measure(
        training_curves,
        "How the run went that made the space.",
        suites=("quick", "standard", "full"),
    ),
}
