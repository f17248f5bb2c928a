"""What being on tells about a sentence's label, against shuffled labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from textspace.features.results import Association

__all__ = ["SHUFFLES", "association", "mutual_information"]

SHUFFLES = 1_000

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def mutual_information(first_KC: Integers, all_C: Integers) -> Floats:
    """Nats that a yes or no tells about a class, by counting (which chance alone makes larger than 0), (K,).

    Args:
        first_KC: sentences of each class with a yes, in each of K tables.
        all_C: sentences of each class.
    """
    total = all_C.sum()
    cells_K2C = np.stack([first_KC, all_C - first_KC], axis=1) / total
    independent_K2C = cells_K2C.sum(2, keepdims=True) * (all_C / total)
    with np.errstate(divide="ignore", invalid="ignore"):
        nats_K2C = np.where(cells_K2C > 0, cells_K2C * np.log(cells_K2C / independent_K2C), 0.0)
    return nats_K2C.sum((1, 2)).clip(min=0.0)


def association(first_C: Integers, all_C: Integers, names: Sequence[str], seed: int) -> Association | None:
    """How a yes or no goes with classes; None where all sentences have the same of either.

    Shuffling labels leaves how many have a yes and how large classes are, so that the yeses of each class follow a
    multivariate hypergeometric distribution: that is what the shuffles are drawn from.

    Args:
        first_C: sentences of each class with a yes.
        all_C: sentences of each class, at least one.
        names: of the classes.
        seed: of the shuffles.
    """
    first, total = int(first_C.sum()), int(all_C.sum())
    if first in (0, total) or len(all_C) < 2:
        return None
    information = float(mutual_information(first_C[None], all_C)[0])
    generator = np.random.default_rng(seed)
    drawn_KC = generator.multivariate_hypergeometric(all_C, first, size=SHUFFLES, method="marginals")
    null_K = mutual_information(drawn_KC, all_C)
    share_C = first_C / all_C
    lift_C = share_C / (first / total)
    with np.errstate(divide="ignore", invalid="ignore"):
        gain_C = np.where(first_C > 0, first_C * np.log(lift_C), 0.0)
    best = int(gain_C.argmax())
    # Equal tables differ by rounding, and count as equal.
    reached = int((null_K >= information - 1e-12).sum())
    return Association(
        information=information,
        shuffled=float(null_K.mean()),
        p=(1 + reached) / (1 + SHUFFLES),
        shuffles=SHUFFLES,
        sentences=total,
        label=names[best],
        lift=float(lift_C[best]),
        shares={name: float(share) for name, share in zip(names, share_C, strict=True)},
    )
