"""How much a few dimensions of each code hold: labels read and sentences rebuilt when all others are set to 0."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from textspace.data.encoded import EncodedSplit
from textspace.encoding import is_on
from textspace.evaluate.hoyer import deviations
from textspace.evaluate.likelihood import batches_of
from textspace.evaluate.measure import Cells, Findings, Measure, Picture, Sentences, Subject, Table
from textspace.evaluate.measures.classifiers import (
    Ints,
    Labelled,
    Settings,
    accuracy,
    fit_linear,
    labelled,
    majority_estimate,
)
from textspace.evaluate.measures.reconstruction import Originals, greedy_method, originals_of, shown
from textspace.evaluate.measures.sparsity import sparse_codes
from textspace.evaluate.statistics import BLOCKS, OVER_SENTENCES, Ratio, some_rows
from textspace.evaluate.text_metrics import corpus_bleu
from textspace.model import Model
from textspace.noise import Noise, seed_of
from textspace.types import Estimate, Pass

__all__ = ["MEASURES", "grid", "kept", "kept_dimensions", "losses_of_codes", "size_order"]

PROBED = 10_000
"""Training sentences of a probe at most: there is one for every number of dimensions."""

DECODED = 2_000
"""Test sentences that are rebuilt at most, for the same reason."""

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Way = Literal["largest", "random", "on"]

_WAYS: dict[Way, str] = {
    "largest": "the {k} largest dimensions of each sentence",
    "random": "{k} random dimensions of each sentence",
    "on": "exactly the dimensions that are on",
}


# The mathematics, on arrays


def grid(dims: int) -> list[int]:
    """How many dimensions are kept: powers of two, and all.

    >>> grid(12), grid(1)
    ([1, 2, 4, 8, 12], [1])
    """
    return [k for k in (2**power for power in range(dims.bit_length())) if k < dims] + [dims]


def size_order(codes_NZ: Floats, deviation_Z: Floats) -> Integers:
    """Dimensions of each code, the largest first in units of its deviation over sentences; those without one last."""
    size_NZ = np.divide(np.abs(codes_NZ), deviation_Z, where=deviation_Z > 0, out=np.full_like(codes_NZ, -1))
    return np.argsort(-size_NZ, axis=1, kind="stable")


def kept(codes_NZ: Floats, order_NZ: Integers, k: int) -> Floats:
    """Codes with the first k dimensions of an order, and 0 elsewhere.

    >>> kept(np.array([[5.0, 7.0, 9.0]]), np.array([[2, 0, 1]]), 2).tolist()
    [[5.0, 0.0, 9.0]]
    """
    few_NZ = np.zeros_like(codes_NZ)
    places_NK = order_NZ[:, :k]
    np.put_along_axis(few_NZ, places_NK, np.take_along_axis(codes_NZ, places_NK, 1), 1)
    return few_NZ


@torch.no_grad()
def losses_of_codes(model: Model, split: EncodedSplit, codes_NZ: Floats, progress: bool = False) -> Floats:
    """-log p(x | z) of each sentence with a code of its own, nats, the end token included."""
    weight = next(model.parameters())
    losses_N = np.zeros(len(split))
    for batch in batches_of(model, split, None, progress=progress)[1]:
        rows_B = batch.rows_B.numpy()
        z_SBZ = torch.from_numpy(codes_NZ[rows_B][None]).to(weight)
        moved = batch.to(weight.device)
        noise = Noise(0, 0, moved.rows_B)
        passed = Pass(moved, None, {}, model.decoder(z_SBZ, moved.decoder, noise), noise)
        losses_N[rows_B] = -passed.log_px_SB[0].double().cpu().numpy()
    return losses_N


# The measure


class _Kept(NamedTuple):
    """One way to keep some dimensions, for any sentences."""

    way: Way
    k: int
    dims: float
    """How many are kept, on average where it varies."""
    codes: Callable[[Sentences], Floats]

    @property
    def words(self) -> str:
        if self.way == "on":
            return f"{_WAYS['on']} ({self.dims:.3g} on average)"
        return _WAYS[self.way].format(k=self.k)

    @property
    def key(self) -> str:
        return "on" if self.way == "on" else f"{self.way}_{self.k}"


def kept_dimensions(subject: Subject) -> Findings:
    """Accuracy and reconstruction from the k largest dimensions of each mean code, from k random ones, and, where there
    are gates, from exactly those that are on."""
    kinds = _kinds(subject)
    effort = replace(subject.effort, decoded=min(DECODED, subject.effort.decoded))
    originals = originals_of(replace(subject, effort=effort))
    probe = _Probe(subject) if _has_classes(subject) else None
    estimates: dict[str, Estimate] = {}
    rows: list[Cells] = []
    for kind in kinds:
        found = _rebuilt(subject, originals, kind)
        if probe is not None:
            found = {"accuracy": probe.accuracy(kind)} | found
        estimates |= {f"{key}_{kind.key}": each for key, each in found.items()}
        accuracy_cell = shown(found["accuracy"]) if probe is not None else None
        rows.append((kind.words, round(kind.dims, 2), accuracy_cell, shown(found["bleu1"]), shown(found["nats"])))
    if probe is not None:
        estimates["majority"] = probe.majority
        rows.append(("no dimension: always the most frequent class", 0, shown(probe.majority), None, None))
    table = Table(
        f"What is left when only some of the {subject.space.dim} dimensions of each mean code are kept",
        ("kept", "dimensions", "accuracy (%)", "BLEU-1 (0-100)", "nats per token"),
        tuple(rows),
    )
    return Findings(estimates, {"kept_dimensions": table}, _pictures(subject.space.dim, kinds, estimates))


def _kinds(subject: Subject) -> list[_Kept]:
    dims = subject.space.dim
    scaled_by = subject.splits.get("train", subject.test)
    deviation_Z = deviations(scaled_by.means_NZ)

    def largest(k: int) -> Callable[[Sentences], Floats]:
        return lambda of: kept(of.means_NZ, size_order(of.means_NZ, deviation_Z), k)

    def drawn(k: int) -> Callable[[Sentences], Floats]:
        def codes(of: Sentences) -> Floats:
            random = np.random.default_rng(seed_of(subject.seed, "random dimensions", of.name))
            return kept(of.means_NZ, random.random(of.means_NZ.shape).argsort(1), k)

        return codes

    kinds = [_Kept("largest", k, k, largest(k)) for k in grid(dims)]
    kinds += [_Kept("random", k, k, drawn(k)) for k in grid(dims) if k < dims]  # all are all
    if subject.test.gates_NZ is not None:
        kinds.append(_Kept("on", 0, float(is_on(subject.test.gates_NZ).sum(1).mean()), sparse_codes))
    return kinds


def _rebuilt(subject: Subject, originals: Originals, kind: _Kept) -> dict[str, Estimate]:
    """BLEU-1 and nats per token of test sentences decoded from what is kept."""
    space, count = subject.space, len(originals.texts)
    codes_NZ = kind.codes(subject.test)[originals.rows_N]
    made = space.decode(codes_NZ, method=greedy_method(originals.split), show_progress=subject.show_progress)
    bleu = corpus_bleu(made, originals.texts, 1)
    losses_N = losses_of_codes(space.model, originals.split, codes_NZ, subject.show_progress)
    nats = Ratio.of(losses_N, originals.split.lengths - 1)
    settings = _settings(subject, kind)
    jackknife = f"standard error by a jackknife over {min(BLOCKS, count)} blocks of sentences"
    return {
        "bleu1": Estimate(
            f"corpus BLEU-1 (0-100), greedy decoding from {kind.words}",
            bleu.score,
            bleu.stderr,
            count,
            "none",
            "higher",
            settings | {"signature": bleu.signature, "error": jackknife, "of": len(subject.test)},
        ),
        "nats": Estimate(
            f"-log p(x|z), nats per token (end counted), z {kind.words}",
            nats.value,
            nats.stderr,
            count,
            "none",
            "lower",
            settings | {"end_token": "included", "error": OVER_SENTENCES, "of": len(subject.test)},
        ),
    }


def _settings(subject: Subject, kind: _Kept) -> Settings:
    from_ = "the slab's means" if kind.way == "on" else "posterior means"
    return {"codes": f"{from_}, dimensions not kept are 0", "dimensions": subject.space.dim, "seed": subject.seed}


def _has_classes(subject: Subject) -> bool:
    train = subject.splits.get("train")
    return bool(subject.test.labels and train is not None and train.labels and len(set(train.labels)) > 1)


class _Probe:
    """A linear classifier on what is kept; its penalty is chosen once, on whole codes."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        _, (self.train, self.test) = labelled(subject, "train", "test")
        self.rows_N = some_rows(len(self.train), PROBED)
        self.seed = seed_of(subject.seed, "kept dimensions")
        self.C = fit_linear(self.train.sentences.means_NZ[self.rows_N], self._classes_N, seed=self.seed).C
        self.majority = majority_estimate(self._classes_N, self.test.classes_N)

    @property
    def _classes_N(self) -> Ints:
        return self.train.classes_N[self.rows_N]

    def accuracy(self, kind: _Kept) -> Estimate:
        def codes(of: Labelled) -> Floats:
            return kind.codes(of.sentences)

        fit = fit_linear(codes(self.train)[self.rows_N], self._classes_N, seed=self.seed, penalties=(self.C,))
        correct_N = fit.predict(codes(self.test)) == self.test.classes_N
        settings = _settings(self.subject, kind) | {
            "classifier": "logistic regression, penalty chosen by cross-validation on whole mean codes",
            "C": self.C,
            "labels": len(self.rows_N),
        }
        return accuracy(f"accuracy (%) of a linear classifier on {kind.words}", correct_N, settings)


def _pictures(dims: int, kinds: list[_Kept], estimates: dict[str, Estimate]) -> dict[str, Picture]:
    """Accuracy and BLEU-1, which both go to 100, over the dimensions kept; and nats."""
    x = sorted({max(kind.dims, 1.0) for kind in kinds})  # on a scale of ratios there is no 0

    def lines(key: str, label: str) -> dict[str, list[float]]:
        series: dict[str, list[float]] = {}
        for way, words in (("largest", "largest"), ("random", "random"), ("on", "those that are on")):
            of = {max(kind.dims, 1.0): f"{key}_{kind.key}" for kind in kinds if kind.way == way}
            if way == "random":
                of[dims] = f"{key}_largest_{dims}"
            values = [estimates[of[at]].value if of.get(at) in estimates else math.nan for at in x]
            if not all(map(math.isnan, values)):
                series[f"{label}, {words}"] = values
        return series

    def picture(what: str, series: dict[str, list[float]], y_label: str) -> Picture:
        title = f"{what} when only some of {dims} dimensions are kept"
        at = "dimensions kept of each sentence"
        return Picture("lines", title, series, x=x, x_label=at, y_label=y_label, log_x=True)

    accuracies, bleus = lines("accuracy", "accuracy"), lines("bleu1", "BLEU-1")
    what = "Accuracy (%) and BLEU-1 (0-100)" if accuracies else "BLEU-1 (0-100)"
    return {
        "kept_dimensions": picture(what, accuracies | bleus, "0-100"),
        "kept_dimensions_nats": picture("Nats per token", lines("nats", "-log p(x|z)"), "nats per token"),
    }


MEASURES: dict[str, Measure] = {
    "kept_dimensions": Measure(
        kept_dimensions,
        "What a few dimensions of each code still say: labels read and sentences rebuilt from the largest alone.",
        ("codes", "sentence_codes"),
        ("full",),
    ),
}
