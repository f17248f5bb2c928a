"""How codes lie: their distances against those of the words, and how far posteriors overlap."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from textspace.data.batching import batches_by_length, make_batch
from textspace.digits import number, plus_minus
from textspace.errors import TextspaceError
from textspace.evaluate.code_statistics import Mean
from textspace.evaluate.measure import Cells, Findings, Measure, Picture, Sentences, Subject, Table
from textspace.evaluate.measures.pairwise import (
    code_distances,
    error_of_mean,
    error_of_pairs,
    nearest,
    of_few,
    pair_correlation,
    pairs_of,
    partners,
    random_pairs,
    ratio_of_nearest,
)
from textspace.evaluate.statistics import SAFE_SIDE, Ratio, some_rows
from textspace.evaluate.text_metrics import word_edit_distance
from textspace.noise import Noise, seed_of
from textspace.progress import track
from textspace.types import Estimate, Settings

if TYPE_CHECKING:
    from textspace.data.encoded import EncodedSplit
    from textspace.model import Model

__all__ = [
    "MEASURES",
    "code_kinds",
    "code_overlap",
    "distance_correlation",
    "distinct_rows",
    "histogram_overlap",
    "share_above",
    "share_above_own",
]

LENGTH_PAIRS = 30
"""Pairs of sentences of one length that make it count for the correlation at fixed length."""

PARTNERS = 4
"""Other sentences that each sentence is compared with."""

OVERLAP_BINS = 10
"""Of the two histograms whose overlap is told: even, so that sets that lie apart share none."""

DRAWN_VALUES = 2_000
"""The most values of a histogram that are kept for its picture."""

LOGITS_AT_ONCE = 2**26
"""Numbers of the largest tensor held in memory together."""

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


# Overlap


def share_above(own_N: Floats, others_KN: Floats, partners_KN: Integers) -> Mean:
    """Probability that a value of some pair of different sentences is above that of some sentence with itself.

    One less the area under the ROC curve: 0 for histograms that do not overlap, 1/2 for equal ones (or reversed, 1).
    """
    others_P = others_KN.ravel()
    above_N = 1 - _rank_share(own_N, others_P)
    below_P = _rank_share(others_P, own_N)
    value = float(above_N.mean())
    terms_N, terms_P = (above_N - value) / len(above_N), (below_P - value) / len(below_P)
    return Mean(value, error_of_pairs(terms_N, terms_P, pairs_of(partners_KN)))


def _rank_share(values: Floats, among: Floats) -> Floats:
    """Share of `among` that lies below each value; equal ones count half."""
    among = np.sort(among)
    return (np.searchsorted(among, values, "left") + np.searchsorted(among, values, "right")) / (2 * len(among))


def share_above_own(own_KN: Floats, others_KN: Floats, partners_KN: Integers) -> Mean:
    """Share of pairs whose value is above the own one it is held against; equal ones count half."""
    return _mean_of_pairs((others_KN > own_KN) + 0.5 * (others_KN == own_KN), partners_KN)


def _mean_of_pairs(values_KN: Floats, partners_KN: Integers) -> Mean:
    return Mean(float(values_KN.mean()), error_of_mean(values_KN.ravel(), pairs_of(partners_KN)))


def histogram_overlap(own_N: Floats, others_KN: Floats, partners_KN: Integers) -> Mean:
    """Share that two histograms have in common, the sum over bins of the smaller share: 0 disjoint, 1 equal.

    The ends of the bins are quantiles of both sets together, each with half of the weight, so that long tails cost no
    detail and sets that lie apart share exactly nothing. It lies below 1 also where both come from one distribution,
    since no two histograms are quite equal: what `code_overlap` finds for values dealt out anew tells how far.
    The standard error takes for given which of two shares is the smaller, and is about 1.6 times too large where
    chance decides that.
    """
    others_P = others_KN.ravel()
    both = np.concatenate([own_N, others_P])
    weights = np.concatenate([np.full(len(each), 0.5 / len(each)) for each in (own_N, others_P)])
    order = np.argsort(both, kind="stable")
    # The first value at which so much of the weight is reached; rounding of the sums must not move it on.
    wanted = np.arange(1, OVERLAP_BINS) / OVERLAP_BINS - 1e-9
    last = np.searchsorted(weights[order].cumsum(), wanted)
    edges = np.unique((both[order][last] + both[order][np.minimum(last + 1, len(both) - 1)]) / 2)
    bin_N, bin_P = (np.searchsorted(edges, each) for each in (own_N, others_P))
    own_shares, other_shares = (np.bincount(each, minlength=len(edges) + 1) / len(each) for each in (bin_N, bin_P))
    # The sum is made of own shares in some bins and of the others' in the rest: its error is that of these two shares.
    own_smaller = own_shares < other_shares
    terms_N, terms_P = own_smaller[bin_N].astype(np.float64), (~own_smaller)[bin_P].astype(np.float64)
    terms_N, terms_P = ((terms - terms.mean()) / len(terms) for terms in (terms_N, terms_P))
    value = float(np.minimum(own_shares, other_shares).sum())
    return Mean(value, error_of_pairs(terms_N, terms_P, pairs_of(partners_KN)))


@torch.no_grad()
def _scores(
    model: Model,
    split: EncodedSplit,
    rows_N: Integers,
    codes_NZ: Floats,
    places_SN: Integers,
    seed: int = 0,
    progress: bool = False,
) -> tuple[Floats, Floats]:
    """log p(x | z) and log q(z | x) of the sentences at some rows, each with the codes at S places: two of (S, N)."""
    at_once = max(64, LOGITS_AT_ONCE // (model.vocabulary * len(places_SN)))
    plan = batches_by_length(split.lengths[rows_N], tokens=min(at_once, 2**14))
    log_p_SN, log_q_SN = np.empty((2, *places_SN.shape))
    weight = next(model.parameters())
    for places in track(plan, "scoring codes of others", progress, len(plan)):
        batch = make_batch(split, rows_N[places]).to(weight.device)
        noise = Noise(seed, 0, batch.rows_B)
        features_BH = model.features(batch.encoder)
        site = model.sites(features_BH, noise, 1, batch.encoder)["z"]
        site = replace(site, value_SBZ=torch.from_numpy(codes_NZ[places_SN[:, places]]).to(weight))
        log_p_SN[:, places] = model.decode(batch, features_BH, {"z": site}, noise).log_px_SB.double().cpu().numpy()
        log_q_SN[:, places] = site.log_q_SB.double().cpu().numpy()
    return log_p_SN, log_q_SN


# Measures


def distinct_rows(sentences: Sentences) -> Integers:
    """Rows of the sentences that no earlier one equals in its tokens."""
    split = sentences.split
    first = {split.ids(row).tobytes(): row for row in reversed(range(len(split)))}
    return np.array(sorted(first.values()), np.int64)


def _needs_two(count: int) -> None:
    if count < 2:
        raise TextspaceError(f"sentences are compared with each other, which needs 2 that differ, and there is {count}")


def code_kinds(sentences: Sentences) -> dict[str, Floats]:
    """Posterior means, and samples where they differ from the means."""
    kinds = {"means": sentences.means_NZ}
    return kinds | ({"samples": sentences.samples_NZ} if sentences.has_spread else {})


def distance_correlation(subject: Subject) -> Findings:
    """Whether sentences of similar words have codes nearby [Li et al. 2019, table 5], also at fixed sentence length."""
    test = subject.test
    _needs_two(len(test))
    lengths_N = np.array([len(words) for words in test.words], np.int64)
    estimates: dict[str, Estimate] = {}
    tables: dict[str, Table] = {}
    pictures: dict[str, Picture] = {}
    for key, which, groups_N in (
        ("distance_correlation", "", np.zeros(len(test), np.int64)),
        ("distance_correlation_equal_length", " of equal length, within each length", lengths_N),
    ):
        random = np.random.default_rng(seed_of(subject.seed, "pairs", key))
        pairs_P2 = random_pairs(groups_N, subject.effort.pairs, random)
        groups_P = groups_N[pairs_P2[:, 0]]
        if which:
            often = np.bincount(groups_P, minlength=lengths_N.max() + 1)[groups_P] >= LENGTH_PAIRS
            pairs_P2, groups_P = pairs_P2[often], groups_P[often]
        if not len(pairs_P2):
            continue
        shown = track(pairs_P2, "edit distances", subject.show_progress, len(pairs_P2))
        edits_P = np.array([word_edit_distance(test.words[i], test.words[j]) for i, j in shown], np.float64)
        settings: Settings = {
            "pairs": len(pairs_P2),
            "seed": subject.seed,
            "error": "standard error; pairs that share a sentence count as dependent",
        }
        distances = {kind: code_distances(codes_NZ, pairs_P2) for kind, codes_NZ in code_kinds(test).items()}
        for kind, distances_P in distances.items():
            found = pair_correlation(distances_P, edits_P, pairs_P2, len(test), groups_P)
            name = f"Pearson correlation of code distance (posterior {kind}) and word edit distance"
            name = f"{name} over {len(pairs_P2):,} pairs of sentences{which}"
            estimate = Estimate(name, found.value, found.stderr, len(test), "none", "higher", settings)
            estimates[key if kind == "means" else f"{key}_{kind}"] = estimate
        if which:
            tables[key] = _by_length(groups_P, distances["means"], edits_P, pairs_P2, lengths_N)
        else:
            pictures[key] = _by_edits(edits_P, distances)
    return Findings(estimates, tables, pictures)


def _by_length(groups_P: Integers, x_P: Floats, y_P: Floats, pairs_P2: Integers, lengths_N: Integers) -> Table:
    rows = []
    for length in np.unique(groups_P):
        of = groups_P == length
        found = pair_correlation(x_P[of], y_P[of], pairs_P2[of], len(lengths_N))
        rows.append((int(length), int((lengths_N == length).sum()), int(of.sum()), found.value, found.stderr))
    title = "Correlation of code distance (posterior means) and word edit distance at fixed length"
    return Table(title, ("words", "sentences", "pairs", "correlation", "standard error"), tuple(rows))


def _by_edits(edits_P: Floats, distances: dict[str, Floats]) -> Picture:
    values, number_P, counts = np.unique(edits_P, return_inverse=True, return_counts=True)
    often = counts >= min(LENGTH_PAIRS, counts.max())
    series = {f"posterior {kind}": np.bincount(number_P, d_P) / counts for kind, d_P in distances.items()}
    return Picture(
        "lines",
        "Mean distance of codes against edit distance of sentences",
        {name: means[often].tolist() for name, means in series.items()},
        x=values[often].tolist(),
        x_label="word edit distance",
        y_label="Euclidean distance of codes",
    )


def code_overlap(subject: Subject) -> Findings:
    """Whether a code could be that of another sentence [Livne et al. 2020, figure 3]."""
    test, seed = subject.test, subject.seed
    posterior = subject.space.model.posterior
    if posterior is not None and "gate" in posterior.distributions:
        raise TextspaceError("the density of a code, its gates integrated out, has no formula: use another measure")
    rows_N = distinct_rows(test)
    count = len(rows_N)
    _needs_two(count)
    partners_KN = partners(count, PARTNERS, np.random.default_rng(seed_of(seed, "partners")))
    places_SN = np.concatenate([np.arange(count)[None], partners_KN])
    codes_NZ, model = test.samples_NZ[rows_N], subject.space.model
    log_p_SN, log_q_SN = _scores(model, test.split, rows_N, codes_NZ, places_SN, seed, subject.show_progress)
    settings: Settings = {
        "pairs": partners_KN.size,
        "seed": seed,
        "sentences": count,
        "of": len(test),
        "error": "standard error; pairs that share a sentence count as dependent",
    }
    estimates: dict[str, Estimate] = {}
    pictures: dict[str, Picture] = {}
    rows: list[Cells] = []
    # The own value that a pair's is held against: of the same sentence for p, of the same code for q.
    for key, symbol, values_SN, own_KN, holder in (
        ("p", "log p(x_i | z_j)", log_p_SN, np.broadcast_to(log_p_SN[0], partners_KN.shape), "sentence"),
        ("q", "log q(z_i | x_j)", log_q_SN, log_q_SN[0][partners_KN], "code"),
    ):
        own_N, others_KN = values_SN[0], values_SN[1:]
        random = np.random.default_rng(seed_of(seed, "dealt out anew", key))
        anew = random.permutation(values_SN.ravel()).reshape(values_SN.shape)
        equal = histogram_overlap(anew[0], anew[1:], partners_KN).value
        found: dict[str, tuple[str, Mean, Settings]] = {
            f"overlap_{key}_histograms": (
                f"share that the histograms of {symbol} for i = j and i != j have in common, the sum over "
                f"{OVERLAP_BINS} bins, quantiles of both, of the smaller share (0 disjoint, here {equal:.2f} equal)",
                histogram_overlap(own_N, others_KN, partners_KN),
                {"error": f"{settings['error']}; {SAFE_SIDE} where the histograms are nearly equal"},
            ),
            f"overlap_{key}": (
                f"probability that {symbol} of a random i != j exceeds that of a random i = j (0 disjoint, 0.5 equal)",
                share_above(own_N, others_KN, partners_KN),
                {},
            ),
            f"overlap_{key}_paired": (
                f"share of pairs i != j whose {symbol} exceeds that of i = j for the same {holder}",
                share_above_own(own_KN, others_KN, partners_KN),
                {},
            ),
        }
        for name, (words, share, more) in found.items():
            text = f"{words}, {partners_KN.size:,} pairs, one posterior sample each"
            estimates[name] = Estimate(text, share.value, share.stderr, count, "none", None, settings | more)
        series = {"i = j": own_N, "i != j": others_KN.ravel()}
        means = [plus_minus(*mean) for mean in (Mean.of(own_N), _mean_of_pairs(others_KN, partners_KN))]
        shares = [plus_minus(*share) for _, share, _ in found.values()]
        rows.append((symbol, *means, shares[0], round(equal, 3), *shares[1:]))
        shown = {
            name: values[some_rows(len(values), DRAWN_VALUES)].round(3).tolist() for name, values in series.items()
        }
        title = (
            f"{symbol} for the same and for other sentences, {number(next(iter(found.values()))[1].value, 2)} in common"
        )
        pictures[f"overlap_{key}"] = Picture("histogram", title, shown, x_label=f"{symbol}, nats", y_label="share")
    apart = _in_deviations(test, rows_N, partners_KN, settings)
    columns = ("of", "mean i = j", "mean i != j", "in common", "if equal", "i != j above i = j", "paired")
    tables = {
        "overlap": Table(
            f"Histograms for the same (i = j) and for other sentences (i != j): the share they have in common in "
            f"{OVERLAP_BINS} bins, also with values dealt out anew (equal distributions); how often another is above",
            columns,
            tuple(rows),
        )
    }
    return Findings(estimates | apart.estimates, tables | apart.tables, pictures)


def _in_deviations(test: Sentences, rows_N: Integers, partners_KN: Integers, settings: Settings) -> Findings:
    """Distances between means in units of the posteriors' deviations, which keeps them finite in a collapse."""
    means_NZ = test.means_NZ[rows_N]
    deviation_N = np.linalg.norm(test.deviations_NZ[rows_N], axis=1)
    random_KN = code_distances(means_NZ, pairs_of(partners_KN)).reshape(partners_KN.shape)
    found = {}
    rows: list[Cells] = [("length of a posterior's deviation", plus_minus(*Mean.of(deviation_N)), None)]
    jackknife: Settings = {"error": "standard error over sentences, jackknife" if len(rows_N) > 2 else None}
    for key, which, ratio_to, error in (
        ("nearest_mean", "the nearest other mean", partial(ratio_of_nearest, *nearest(means_NZ, 2)), jackknife),
        ("random_mean", "a random other mean", partial(_ratio_of_pairs, random_KN, partners_KN), {}),
    ):
        mean, ratio = ratio_to(np.ones(len(rows_N))), ratio_to(deviation_N)
        name = f"mean distance of a posterior mean to {which} / mean length of the posterior deviation"
        found[f"{key}_in_deviations"] = Estimate(name, *ratio, len(rows_N), "none", None, settings | error)
        rows.append((f"distance of a mean to {which}", plus_minus(*mean), plus_minus(*ratio)))
    title = "Posterior deviation against the distance between posterior means, mean over sentences"
    table = Table(title, ("", "mean", "in deviations"), tuple(rows))
    return Findings(found, {"deviations": table})


def _ratio_of_pairs(values_KN: Floats, partners_KN: Integers, below_N: Floats) -> Ratio:
    """Mean over pairs / mean over sentences; pairs that share a sentence count as dependent."""
    value = Ratio.of(values_KN.mean(0), below_N).value
    below = max(float(below_N.sum()), 1e-12)
    terms_N = -value * (below_N - below_N.mean()) / below
    terms_P = (values_KN - values_KN.mean()).ravel() / (len(values_KN) * below)
    pairs_P2 = pairs_of(partners_KN)
    return Ratio(value, of_few(error_of_pairs(terms_N, terms_P, pairs_P2), pairs_P2))


MEASURES: dict[str, Measure] = {
    "distance_correlation": Measure(
        distance_correlation,
        "Whether sentences of similar words have codes nearby.",
        ("codes",),
        ("quick", "standard", "full"),
    ),
    "code_overlap": Measure(
        code_overlap,
        "Whether a code could as well be that of another sentence.",
        ("codes", "sentence_codes", "density"),
    ),
}
