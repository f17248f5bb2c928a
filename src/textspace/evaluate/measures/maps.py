"""Maps: sentences in the plane where their codes vary most, or the features that codes are made of."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from textspace.data.batching import batches_by_length, make_batch
from textspace.evaluate.measure import Findings, Measure, Picture, Sentences, Subject
from textspace.evaluate.statistics import OVER_SENTENCES, Ratio, some_rows
from textspace.networks import evaluating
from textspace.types import Estimate

if TYPE_CHECKING:
    from textspace.data.encoded import EncodedSplit
    from textspace.model import Model

__all__ = ["MEASURES", "FeaturePlane", "code_map", "feature_map", "feature_plane", "principal_shares", "spread_of"]

Floats = NDArray[np.float64]

SHOWN_POINTS = 2_000
"""Of a map, drawn at random."""

SHOWN_GROUPS = 9
"""Colours of a map, the most frequent labels; all others share one more."""

OTHERS = "others"
"""What they are called."""

TOKENS_AT_ONCE = 2**14
"""Padded tokens that are encoded together."""


def principal_shares(codes_NZ: Floats) -> tuple[Floats, Floats]:
    """Codes along their principal axes (N, Z'), and the share of the variance along each, falling.

    An axis points to where its largest component is above 0, so that maps do not flip from one machine to another.
    """
    centred_NZ = codes_NZ - codes_NZ.mean(0)
    _, lengths, axes = np.linalg.svd(centred_NZ, full_matrices=False)
    largest = np.abs(axes).argmax(1)
    axes = axes * np.where(axes[np.arange(len(axes)), largest] < 0, -1.0, 1.0)[:, None]
    total = float((lengths**2).sum())
    return centred_NZ @ axes.T, lengths**2 / total if total > 0 else np.zeros_like(lengths)


def code_map(subject: Subject) -> Findings:
    """The posterior means in the plane where they vary most, coloured by label, or by length where there is none."""
    test = subject.test
    if len(test) < 2:
        return Findings()
    along_NZ, shares = principal_shares(test.means_NZ)
    settings: dict[str, Any] = {"codes": "posterior means", "error": None}

    def estimate(name: str, value: float) -> Estimate:
        return Estimate(name, value, None, len(test), "none", None, settings)

    most = int(np.searchsorted(shares.cumsum(), 0.9)) + 1 if shares.any() else 0
    estimates = {
        "plane": estimate("share of the means' variance in their first two principal axes (0-1)", shares[:2].sum()),
        "axes_for_90": estimate("principal axes that hold 90 percent of the means' variance", most),
        "axes_effective": estimate(
            "effective number of principal axes of the means, 1 / sum of squared shares",
            1 / float((shares**2).sum()) if shares.any() else 0.0,
        ),
    }
    rows_N = some_rows(len(test), SHOWN_POINTS)
    return Findings(estimates, pictures={"map": _map("Codes", test, rows_N, _plane(along_NZ[rows_N]), shares)})


def _map(what: str, test: Sentences, rows_N: NDArray[np.int64], places_N2: Floats, shares: Floats) -> Picture:
    """Some sentences in the plane of the first two axes."""
    groups, by = _groups(test)
    names = sorted({groups[row] for row in rows_N}, key=_by_number)
    members = {name: [at for at, row in enumerate(rows_N) if groups[row] == name] for name in names}
    labels = [f"principal axis {axis + 1} ({share:.0%} of the variance)" for axis, share in enumerate(shares[:2])]
    labels += [""] * (2 - len(labels))
    return Picture(
        "points",
        f"{what} of {len(rows_N):,} sentences by {by}",
        {name: places_N2[at].ravel().tolist() for name, at in members.items()},
        x_label=labels[0],
        y_label=labels[1],
    )


def _plane(along_NZ: Floats) -> Floats:
    """The first two axes, where there is one the other 0."""
    plane_N2 = np.zeros((len(along_NZ), 2))
    plane_N2[:, : min(2, along_NZ.shape[1])] = along_NZ[:, :2]
    return plane_N2


def _by_number(group: str) -> tuple[float, str]:
    """Groups in the order of the number they begin with, others after them, by name; the rest last."""
    start = group.partition(" ")[0].partition("-")[0]
    return (float(start) if start.isdecimal() else math.inf if group == OTHERS else 1e9, group)


def _groups(sentences: Sentences) -> tuple[list[str], str]:
    """A group for each sentence, few enough to be told apart by colour, and what they are groups of."""
    if sentences.labels is not None:
        frequent = [label for label, _ in Counter(sentences.labels).most_common(SHOWN_GROUPS + 1)]
        # One more label than there are colours would make a group of others with a single label in it.
        kept = set(frequent if len(set(sentences.labels)) <= SHOWN_GROUPS + 1 else frequent[:SHOWN_GROUPS])
        return [label if label in kept else OTHERS for label in sentences.labels], "label"
    words_N = np.array([len(words) for words in sentences.words])
    edges = np.unique(np.quantile(words_N, [0.25, 0.5, 0.75, 1.0]).astype(int))
    place_N = np.searchsorted(edges, words_N)
    starts = [int(words_N.min()), *(int(edge) + 1 for edge in edges[:-1])]
    named = [f"{a} words" if a == b else f"{a}-{b} words" for a, b in zip(starts, edges, strict=True)]
    return [named[place] for place in place_N], "length"


# Features


class FeaturePlane(NamedTuple):
    """Features of some sentences, in the plane where they vary most."""

    rows_N: NDArray[np.int64]
    """Which sentences."""
    places_N2: Floats
    """Along their first two principal axes, from their mean, in lengths of a feature (the root of the mean square)."""
    shares: Floats
    """Of the variance, along each axis, falling."""
    spread: Ratio
    """See `spread_of`."""
    features_NH: Floats
    """As the encoder makes them."""


@torch.no_grad()
def feature_plane(model: Model, split: EncodedSplit, most: int = SHOWN_POINTS) -> FeaturePlane | None:
    """What the encoder makes of at most so many sentences, before their posteriors; where every token has a code, the
    mean over a sentence's tokens. None for a language model and for fewer than two sentences."""
    if model.posterior is None or len(split) < 2:
        return None
    rows_N = some_rows(len(split), most)
    plan = batches_by_length(split.lengths[rows_N], tokens=TOKENS_AT_ONCE)
    device = next(model.parameters()).device
    parts = []
    with evaluating(model):
        for places in plan:
            batch = make_batch(split, rows_N[places]).to(device)
            features = model.features(batch.encoder)
            assert features is not None  # there is a posterior
            if model.is_token_level:
                mask_BT1 = batch.encoder.mask_BT[:, :, None]
                features = (features * mask_BT1).sum(1) / mask_BT1.sum(1)
            parts.append(features.double().cpu().numpy())
    features_NH = np.empty((len(rows_N), parts[0].shape[1]))
    features_NH[np.concatenate(plan)] = np.concatenate(parts)
    along_NH, shares = principal_shares(features_NH)
    length = math.sqrt(float((features_NH**2).sum(1).mean())) or 1.0
    return FeaturePlane(rows_N, _plane(along_NH) / length, shares, spread_of(features_NH), features_NH)


def spread_of(features_NH: Floats) -> Ratio:
    """How much of features' mean square is distance from their mean: 0 where all are alike, 1 around the origin.

    >>> spread_of(np.array([[3.0, 4.0], [3.0, 4.0]])).value, spread_of(np.array([[1.0, 0.0], [-1.0, 0.0]])).value
    (0.0, 1.0)
    """
    from_mean_N = ((features_NH - features_NH.mean(0)) ** 2).sum(1)
    return Ratio.of(from_mean_N, (features_NH**2).sum(1))


def feature_map(subject: Subject) -> Findings:
    """Features in the plane where they vary most [Long et al. 2019, figure 2], and how much they vary for their
    length: where all are alike, posteriors must be too."""
    plane = feature_plane(subject.space.model, subject.test.split)
    if plane is None:
        return Findings()
    settings: dict[str, Any] = {"sentences": len(plane.rows_N), "of": len(subject.test)}
    estimates = {
        "spread": Estimate(
            "share of the features' mean square that is distance from their mean (0: all alike, 1: around the origin)",
            plane.spread.value,
            plane.spread.stderr,
            len(plane.rows_N),
            "none",
            None,
            settings | {"error": OVER_SENTENCES},
        ),
        "plane": Estimate(
            "share of the features' variance in their first two principal axes (0-1)",
            float(plane.shares[:2].sum()),
            None,
            len(plane.rows_N),
            "none",
            None,
            settings | {"error": None},
        ),
    }
    picture = _map("Features", subject.test, plane.rows_N, plane.places_N2, plane.shares)
    return Findings(estimates, pictures={"map": picture})


MEASURES: dict[str, Measure] = {
    "code_map": Measure(
        code_map,
        "A map of the codes in the plane where they vary most, and how many axes they spread over.",
        needs=("codes",),
    ),
    "feature_map": Measure(
        feature_map,
        "A map of what the encoder makes of sentences before their codes, and whether it is alike for all of them.",
        needs=("codes",),
        suites=("full",),
    ),
}
