"""Pairs of sentences: drawing them, their distances, and errors that know that pairs share sentences."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textspace.evaluate.statistics import ROUNDING, Ratio

__all__ = [
    "Correlation",
    "code_distances",
    "error_of_mean",
    "error_of_pairs",
    "nearest",
    "of_few",
    "pair_correlation",
    "pairs_of",
    "partners",
    "random_pairs",
    "ratio_of_nearest",
]

FEW = 100
"""Sentences below which the error of a correlation is a jackknife: to first order alone it is then too small."""

PAIRS_AT_ONCE = 2**13
"""Pairs of codes whose differences are held in memory together."""

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


# Drawing pairs


def random_pairs(groups_N: Integers, wanted: int, random: np.random.Generator) -> Integers:
    """Different pairs (P, 2) of two sentences of the same group, all alike probable; all there are if not more.

    >>> random_pairs(np.array([5, 7, 5, 7, 7]), 100, np.random.default_rng(0)).tolist()
    [[0, 2], [1, 3], [1, 4], [3, 4]]
    """
    order_N = np.argsort(groups_N, kind="stable")
    sizes_G = np.unique(groups_N, return_counts=True)[1]
    first_G = sizes_G.cumsum() - sizes_G
    ends_G = (sizes_G * (sizes_G - 1) // 2).cumsum()
    total = int(ends_G[-1]) if len(ends_G) else 0
    number_P = np.arange(total) if wanted >= total else random.choice(total, wanted, replace=False, shuffle=False)
    group_P = np.searchsorted(ends_G, number_P, side="right")
    number_P = number_P - np.concatenate([[0], ends_G])[group_P]
    # Number k stands for the places (k - j (j - 1) / 2, j), j the largest that leaves no less than 0.
    later_P = ((1 + np.sqrt(1 + 8 * number_P.astype(np.float64))) / 2).astype(np.int64)
    later_P -= later_P * (later_P - 1) // 2 > number_P  # where the root was rounded up
    earlier_P = number_P - later_P * (later_P - 1) // 2
    return order_N[first_G[group_P][:, None] + np.stack([earlier_P, later_P], axis=1)]


def partners(count: int, wanted: int, random: np.random.Generator) -> Integers:
    """Up to `wanted` different partners for each sentence, (K, N); it is a partner as often as it has some."""
    order_N = random.permutation(count)
    found_KN = np.empty((min(wanted, count - 1), count), np.int64)
    for shift, found_N in enumerate(found_KN, 1):
        found_N[order_N] = np.roll(order_N, -shift)
    return found_KN


def pairs_of(partners_KN: Integers) -> Integers:
    """The same as (K * N, 2): a sentence and its partner."""
    rows_KN = np.broadcast_to(np.arange(partners_KN.shape[1]), partners_KN.shape)
    return np.stack([rows_KN.ravel(), partners_KN.ravel()], axis=1)


def error_of_pairs(terms_N: Floats, terms_P: Floats, pairs_P2: Integers) -> float:
    """Standard error of a sum of terms of mean 0, of single sentences and of pairs, which often share a sentence.

    Two terms may depend on each other where they have a sentence in common; the variance is the sum of the products of
    all such two [Aronow, Samii and Assenova 2015]. To take pairs as independent gives far too small an error, which is
    used only where the estimated variance is negative.
    """
    count = len(terms_N)
    through_N = terms_N + sum(np.bincount(end_P, terms_P, count) for end_P in pairs_P2.T)
    # Of the same two sentences there may be several terms, (i, j) and (j, i): they count as one pair.
    _, same_P = np.unique(pairs_P2.min(1) * count + pairs_P2.max(1), return_inverse=True)
    apart = float((np.bincount(same_P, terms_P) ** 2).sum())
    variance = float((through_N**2).sum()) - apart  # each pair's square is in there for both of its sentences
    return math.sqrt(variance if variance > 0 else apart + float((terms_N**2).sum()))


def error_of_mean(values_P: NDArray[Any], pairs_P2: Integers) -> float | None:
    """Standard error of the mean over pairs; None of a single one, and of three sentences or fewer."""
    if len(values_P) < 2:
        return None
    terms_P = (values_P - values_P.mean()) / len(values_P)
    return of_few(error_of_pairs(np.zeros(int(pairs_P2.max()) + 1), terms_P, pairs_P2), pairs_P2)


def of_few(error: float, pairs_P2: Integers) -> float | None:
    """The error of a mean over pairs of few sentences, corrected; None of three or fewer.

    Deviations from an estimated mean are too small: the root of n / (n - 3) makes up for it where both sentences add to
    a pair's value, and is rather too much where they do not.
    """
    sentences = len(np.unique(pairs_P2))
    return error * math.sqrt(sentences / (sentences - 3)) if sentences > 3 else None


# Distances


def code_distances(codes_NZ: Floats, pairs_P2: Integers) -> Floats:
    """Euclidean distances of pairs of codes; 0 where it is no more than rounding."""
    distances_P = np.empty(len(pairs_P2))
    for start in range(0, len(pairs_P2), PAIRS_AT_ONCE):
        one, other = pairs_P2[start : start + PAIRS_AT_ONCE].T
        distances_P[start : start + PAIRS_AT_ONCE] = np.linalg.norm(codes_NZ[one] - codes_NZ[other], axis=1)
    return np.where(distances_P > ROUNDING * np.linalg.norm(codes_NZ, axis=1).max(), distances_P, 0)


class Correlation(NamedTuple):
    """A Pearson correlation over pairs of sentences."""

    value: float
    stderr: float | None


def pair_correlation(
    x_P: Floats, y_P: Floats, pairs_P2: Integers, sentences: int, groups_P: Integers | None = None
) -> Correlation:
    """Pearson correlation of two distances over pairs; 0 where one of them does not vary.

    With groups, both are taken relative to the mean of their group, so that what differs between groups counts for
    nothing. The error comes from the correlation's influence function, see `error_of_pairs`; of fewer than `FEW`
    sentences from a jackknife over them, and None where one of these few cannot be left out.
    """
    found = _correlated(x_P, y_P, groups_P)
    if found is None:
        return Correlation(0.0, None)
    value, influence_P = found
    few_N = np.unique(pairs_P2)
    if len(few_N) >= FEW:
        return Correlation(value, error_of_pairs(np.zeros(sentences), influence_P / len(x_P), pairs_P2))
    left_N = []
    for row in few_N:
        kept_P = (pairs_P2 != row).all(1)
        left = _correlated(x_P[kept_P], y_P[kept_P], None if groups_P is None else groups_P[kept_P])
        if left is None:
            return Correlation(value, None)
        left_N.append(left[0])
    whole = float((len(few_N) - 1) * np.var(left_N))
    # Every pair goes with both of its sentences: what it has for itself is in there twice.
    once = whole - float((influence_P**2).sum()) / len(x_P) ** 2
    return Correlation(value, math.sqrt(once if once > 0 else whole))


def _correlated(x_P: Floats, y_P: Floats, groups_P: Integers | None) -> tuple[float, Floats] | None:
    """The correlation, and how each pair moves it (P times as far); None where something does not vary."""
    if not len(x_P):
        return None
    centred = []
    for values_P in (x_P, y_P):
        rest_P = values_P - _group_means(values_P, groups_P)
        deviation = float(np.sqrt((rest_P**2).mean()))
        if deviation <= ROUNDING * float(np.abs(values_P).max()):
            return None
        centred.append(rest_P / deviation)
    x_P, y_P = centred
    value = float((x_P * y_P).mean())
    return value, x_P * y_P - value / 2 * (x_P**2 + y_P**2)


def _group_means(values_P: Floats, groups_P: Integers | None) -> Floats:
    """The mean of each pair's group."""
    if groups_P is None:
        return np.broadcast_to(values_P.mean(), values_P.shape)
    _, number_P = np.unique(groups_P, return_inverse=True)
    return (np.bincount(number_P, values_P) / np.bincount(number_P))[number_P]


def nearest(
    points_NZ: Floats, count: int, norm: Literal["euclidean", "maximum"] = "euclidean"
) -> tuple[Integers, Floats]:
    """So many nearest other points of each, fewer where there are not as many, and the distances, nearest first."""
    from sklearn.neighbors import NearestNeighbors

    metric, order = ("euclidean", 2) if norm == "euclidean" else ("chebyshev", np.inf)
    neighbors = min(count, len(points_NZ) - 1)
    finder = NearestNeighbors(n_neighbors=neighbors, metric=metric).fit(points_NZ - points_NZ.mean(0))
    found_NK = finder.kneighbors(return_distance=False)  # without points, each is left out of its own search
    # The search's own distances are less exact.
    distances_NK = np.stack([np.linalg.norm(points_NZ - points_NZ[at_N], order, axis=1) for at_N in found_NK.T], axis=1)
    return found_NK, np.sort(distances_NK, axis=1)


def ratio_of_nearest(nearest_NK: Integers, values_NK: Floats, below_N: Floats, neighbor: int = 1) -> Ratio:
    """Mean value at the nearest other point / mean over points; the error is the jackknife's over points.

    Points share their neighbours: to take the values for independent would promise too much. The error is None where
    the next neighbour is not known, as of two points.

    Args:
        nearest_NK: the rows of the K nearest other points of each, and one more than `neighbor` for the error.
        values_NK: the values at these.
        below_N: what is divided by.
        neighbor: which one's values to take: 1 is the nearest, 3 the third nearest.
    """
    first_N, count = values_NK[:, neighbor - 1], len(below_N)
    value = Ratio.of(first_N, below_N).value
    if nearest_NK.shape[1] <= neighbor:
        return Ratio(value, None)
    # Where one of a point's nearest is left out, the next one takes the last place.
    gains_NK = np.repeat((values_NK[:, neighbor] - first_N)[:, None], neighbor, axis=1)
    moved_N = np.bincount(nearest_NK[:, :neighbor].ravel(), gains_NK.ravel(), count)
    without_N = (first_N.sum() - first_N + moved_N) / np.maximum(below_N.sum() - below_N, 1e-12)
    return Ratio(value, float(without_N.std() * math.sqrt(count - 1)))
