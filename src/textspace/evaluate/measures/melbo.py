"""MELBO [Livne et al. 2020] of the test sentences, beside likelihoods whose prior does not know them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
from torch.distributions import Normal

from textspace.evaluate.aggregated import AggregatedPosterior, nearest_bound
from textspace.evaluate.bounds import Floats, Likelihood, Weighted
from textspace.evaluate.likelihood import likelihood
from textspace.evaluate.measure import Cells, Findings, Measure, Picture, Subject, Table
from textspace.evaluate.melbo import STEADY_FROM, Melbo, SizeCurve
from textspace.evaluate.statistics import some_rows
from textspace.types import EndToken, Estimate

__all__ = ["MEASURES", "melbo"]

SCALES = (1.0, 3.0, 10.0, 30.0, 100.0)
"""Multiples of the posterior's deviation that proposals are tried with: a narrow posterior misses most of p(z|x)."""

TUNED_ON = 100
"""Sentences at most that proposals are chosen on."""

MIXTURE_SAMPLES = 100
"""Importance samples at most where each needs the density of a mixture of many components."""

MIXTURE_TIMES = 10
"""Training sentences of the mixture at most, in multiples of `effort.prior_samples`."""

POLICIES: dict[EndToken, str] = {"dropped": "", "included": "_with_end"}
"""How sentences end, the paper's way first, and what the keys of estimates then end with."""

WHY = (
    "MELBO compares with none of the others: its prior is made of the very sentences that are scored, so it pays log N "
    "to point at one of N known sentences, where the others pay for the sentence itself"
)


def melbo(subject: Subject) -> Findings:
    """MELBO with and without the end token, by set size and by sentence; ELBO and proper likelihoods beside it."""
    prior = _mixture(subject)
    chosen, tried = _proposals(subject, prior)
    test, samples = subject.test, subject.effort.importance_samples
    estimates: dict[str, Estimate] = {}
    per_sentence: dict[str, list[float]] = {}
    bounds: dict[EndToken, Melbo] = {}
    for end_token, ending in POLICIES.items():
        plain = test.likelihood(samples, end_token, subject.show_progress)
        under = _weighted(subject, plain, chosen, prior)
        measured = replace(plain, nll_N=None, effective_samples_N=None, under=under)
        bounds[end_token] = bound = Melbo.of(plain, test.split)
        proper = measured.estimates()
        tightest = min(under, key=lambda key: _mean(under[key].nll_N))
        found = bound.estimates(nll=proper[f"nll_{tightest}"], nll_N=under[tightest].nll_N)
        found |= {key: each for key, each in proper.items() if _beside(key)}
        estimates |= {key + ending: _told(each, chosen) for key, each in found.items()}
        columns = {"melbo": bound.melbo_N, "reconstruction": plain.reconstruction_N}
        columns |= {"elbo": plain.elbo_N} if plain.elbo_N is not None else {}
        columns |= {f"nll_{key}": each.nll_N for key, each in under.items()}
        per_sentence |= {key + ending: values_N.tolist() for key, values_N in columns.items()}
    headline = bounds["dropped"]
    curve = headline.curve(subject.seed)
    if curve.largest_percent is not None:
        estimates["melbo_deviation"] = _deviation(headline, curve, subject.seed)
    pictures = {"sentences": _histogram(per_sentence), "sizes": _sizes(curve)}
    if (larger := estimates["melbo_meets"].value) > math.log10(len(headline)):
        pictures["larger_sets"] = _larger(headline, larger)
    return Findings(estimates, {"bounds": _table(estimates), "proposals": tried}, pictures, per_sentence)


# The proper likelihoods


class _Proposals(NamedTuple):
    """Those with the lowest bounds, and what they were chosen on.

    A proposal is the posterior with its deviation times a number; None stands for the nearest components of the
    mixture.
    """

    own_prior: float
    mixture: float | None
    chosen_on: str


def _mixture(subject: Subject) -> AggregatedPosterior | None:
    model = subject.space.model
    if "train" not in subject.splits:
        warnings.warn("no likelihood under the aggregated posterior: the text has no training split", stacklevel=2)
        return None
    if model.posterior is None or model.posterior.distributions["z"] is not Normal:
        warnings.warn("no likelihood under the aggregated posterior: the posterior has no density", stacklevel=2)
        return None
    if model.is_token_level:
        warnings.warn("no likelihood under the aggregated posterior: every token of the space has a code", stacklevel=2)
        return None
    limit, split = MIXTURE_TIMES * subject.effort.prior_samples, subject.splits["train"].split
    return AggregatedPosterior.of(model, split, limit=limit, progress=subject.show_progress)


def _proposals(subject: Subject, prior: AggregatedPosterior | None) -> tuple[_Proposals, Table]:
    """The best of all that are tried on validation sentences, or on test sentences where there are no others."""
    space, samples = subject.space, subject.effort.importance_samples
    source = subject.splits.get("valid", subject.test)
    half = len(source) if source is not subject.test else (len(source) + 1) // 2
    texts = [source.texts[int(row)] for row in some_rows(len(source), min(TUNED_ON, half))]
    split = subject.encoded(texts)
    own: dict[float | None, float] = {}
    mixed: dict[float | None, float] = {}
    for scale in SCALES:
        tried = likelihood(
            space.model,
            split,
            samples=min(samples, MIXTURE_SAMPLES),
            priors={} if prior is None else {"aggregated": prior},
            proposal_scale=scale,
            seed=subject.seed,
            precision=subject.effort.precision,
            progress=subject.show_progress,
        )
        if tried.nll_N is not None:
            own[scale] = _mean(tried.nll_N)
        if "aggregated" in tried.under:
            mixed[scale] = _mean(tried.under["aggregated"].nll_N)
    if prior is not None:
        near = nearest_bound(space.model, split, prior, samples=samples, seed=subject.seed)
        mixed[None] = _mean(near.nll_N)
    chosen_on = f"{len(texts):,} {source.name} sentences"
    title = f"Upper bounds on NLL with other proposals, on {chosen_on} with their end token: the lowest is chosen"
    table = Table(
        title,
        ("proposals from", "prior: the model's own", "prior: the aggregated posterior"),
        tuple((_proposal(each), own.get(each), mixed.get(each)) for each in (own | mixed)),
    )
    best = min(own, key=own.__getitem__) or 1.0
    return _Proposals(best, min(mixed, key=mixed.__getitem__) if mixed else None, chosen_on), table


def _mean(values_N: Floats) -> float:
    return float(values_N.mean())


def _proposal(scale: float | None) -> str:
    if scale is None:
        return "the mixture's nearest components"
    return "the posterior" if scale == 1 else f"the posterior, {scale:g} times as wide"


def _weighted(
    subject: Subject, plain: Likelihood, chosen: _Proposals, prior: AggregatedPosterior | None
) -> dict[str, Weighted]:
    """The importance-weighted bounds of the test sentences with the chosen proposals."""
    space, samples = subject.space, subject.effort.importance_samples
    end_token: Literal["included", "dropped"] = "dropped" if plain.settings["end_token"] == "dropped" else "included"

    def measured(scale: float, samples: int, priors: Mapping[str, AggregatedPosterior]) -> Likelihood:
        return likelihood(
            space.model,
            subject.test.split,
            samples=samples,
            end_token=end_token,
            priors=priors,
            proposal_scale=scale,
            seed=subject.seed,
            precision=subject.effort.precision,
            progress=subject.show_progress,
        )

    own = plain if chosen.own_prior == 1 else measured(chosen.own_prior, samples, {})
    found = {}
    if own.nll_N is not None and own.effective_samples_N is not None and space.recipe.prior is not None:
        name = f"the {space.recipe.prior.kind.replace('-', ' ')} prior"
        found["own_prior"] = Weighted(own.nll_N, own.effective_samples_N, own.settings | {"prior": name})
    if prior is not None and chosen.mixture is not None:
        mixed = measured(chosen.mixture, min(samples, MIXTURE_SAMPLES), {"aggregated": prior})
        weighted = mixed.under["aggregated"]
        found["aggregated"] = weighted._replace(settings=mixed.settings | weighted.settings)
    elif prior is not None:
        found["aggregated"] = nearest_bound(
            space.model,
            subject.test.split,
            prior,
            samples=samples,
            end_token=end_token,
            seed=subject.seed,
            progress=subject.show_progress,
        )
    return found


# What is shown


def _beside(key: str) -> bool:
    """Whether an estimate of likelihoods is shown beside MELBO."""
    return not key.startswith(("kl", "mim", "dual")) and not key.endswith("_ppl_character")


def _told(estimate: Estimate, chosen: _Proposals) -> Estimate:
    """With where its proposals were chosen, if it has some."""
    if "proposal" not in estimate.settings:
        return estimate
    return replace(estimate, settings=estimate.settings | {"proposal_chosen_on": chosen.chosen_on})


def _deviation(bound: Melbo, curve: SizeCurve, seed: int) -> Estimate:
    name = f"largest deviation over random parts of {STEADY_FROM:,} or more sentences, in percent of MELBO"
    trials = int(curve.trials_K[curve.sizes_K >= STEADY_FROM].min())
    settings = bound.settings | {"trials_at_least": trials, "seed": seed}
    name += f" ({bound.words}){bound.end_words}"
    return Estimate(name, float(curve.largest_percent or 0), None, len(bound), "none", "lower", settings)


def _histogram(per_sentence: Mapping[str, list[float]]) -> Picture:
    names = {"melbo": "MELBO, prior: the evaluated set", "elbo": "negative ELBO"}
    series = {name: per_sentence[key] for key, name in names.items() if key in per_sentence}
    title = "Cost of a sentence without its end token; MELBO is no likelihood of a sentence on its own"
    return Picture("histogram", title, series, x_label="nats per sentence")


def _sizes(curve: SizeCurve) -> Picture:
    return Picture(
        "lines",
        "MELBO of random parts of the test sentences, without end tokens: it grows with the size of the set",
        {
            "mean over trials": curve.mean_K.tolist(),
            "one deviation above": (curve.mean_K + curve.deviation_K).tolist(),
            "one deviation below": (curve.mean_K - curve.deviation_K).tolist(),
            "constant reconstruction": curve.extrapolated_K.tolist(),
        },
        x=np.log10(curve.sizes_K).tolist(),
        x_label="log10 of the set size",
        y_label="nats per sentence",
    )


def _larger(bound: Melbo, meets_log10: float) -> Picture:
    x = np.linspace(math.log10(len(bound)), meets_log10, 20)
    melbo = _mean(bound.reconstruction_N) + x * math.log(10)
    return Picture(
        "lines",
        "MELBO of larger sets, were the reconstruction the same, up to where it meets the likelihood",
        {"MELBO, extrapolated": melbo.tolist(), "importance-weighted NLL": [float(melbo[-1])] * len(x)},
        x=x.tolist(),
        x_label="log10 of the set size",
        y_label="nats per sentence",
    )


def _table(estimates: Mapping[str, Estimate]) -> Table:
    names = {
        "melbo": "MELBO, prior: the evaluated set itself",
        "elbo": "negative ELBO",
        "nll_own_prior": "importance-weighted NLL, prior: the model's own",
        "nll_aggregated": "importance-weighted NLL, prior: aggregated posterior of training sentences",
    }
    units = {"": "nats a sentence", "_ppl_word": "PPL a word"}
    ends = {"": "without end token", "_with_end": "with end token"}
    kinds = [(unit + end, f"{units[unit]}, {ends[end]}") for end in POLICIES.values() for unit in units]
    rows: list[Cells] = [
        (name, *(estimates[key + kind].value for kind, _ in kinds)) for key, name in names.items() if key in estimates
    ]
    return Table(f"Upper bounds side by side. {WHY}", ("", *(title for _, title in kinds)), tuple(rows))


MEASURES: dict[str, Measure] = {
    "melbo": Measure(
        melbo,
        "MELBO, whose prior is the evaluated set itself, by set size; ELBO and proper likelihoods beside it.",
        needs=("codes",),
        suites=("full",),
    ),
}
