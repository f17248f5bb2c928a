"""What decoding does when one dimension of a sentence's code is taken to another side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from textspace.encoding import is_on
from textspace.features.activity import told_before
from textspace.features.results import Dimension, Effect, Probe, Side, SideName

if TYPE_CHECKING:
    from textspace.space import Space

__all__ = ["switched"]


def switched(
    space: Space, dimensions: Sequence[Dimension], probes: Sequence[str], show_progress: bool = False
) -> tuple[tuple[Probe, ...], tuple[Dimension, ...]]:
    """Every dimension of every probe's code switched, one at a time, and decoded greedily.

    The code is sparse in a space with gates (the slab's mean where on, else 0), and the mean in a dense one. A
    dimension that is on becomes 0, and one that is off its median where it is on; one that is read by its two ends goes
    to the median of the other end, or of each.

    Returns:
        The probes with what they decode to before, and the dimensions with the effects.
    """
    if not probes:
        return (), tuple(dimensions)
    gated = space.model.has_gates
    codes = space.encode(list(probes), sparse=True).toarray() if gated else space.encode(list(probes))
    with told_before():
        on_PZ = is_on(space.encode(list(probes), what="gates")) if gated else np.ones(codes.shape, bool)
    shown: list[Probe] = []
    effects: dict[int, list[Effect]] = {each.number: [] for each in dimensions}
    for place, text in enumerate(probes):
        moves = [
            (each, before, after)
            for each in dimensions
            for before, after in _moves(each, bool(on_PZ[place, each.number]), float(codes[place, each.number]))
        ]
        moved = np.repeat(codes[place][None], 1 + len(moves), axis=0)  # the first as it is
        for row, (each, _, after) in enumerate(moves, 1):
            moved[row, each.number] = after.typical
        plain, *others = space.decode(moved, show_progress=show_progress)
        shown.append(Probe(text, plain, tuple(np.flatnonzero(on_PZ[place]).tolist())))
        for (each, before, after), decoded in zip(moves, others, strict=True):
            effects[each.number].append(
                Effect(
                    place,
                    before,
                    after.name,
                    float(codes[place, each.number]),
                    after.typical,
                    decoded,
                    decoded != plain,
                )
            )
    return tuple(shown), tuple(replace(each, effects=tuple(effects[each.number])) for each in dimensions)


def _moves(dimension: Dimension, on: bool, value: float) -> list[tuple[SideName, Side]]:
    """On which side a value is, and where else it can go."""
    gate, ends = dimension.side("on"), (dimension.side("high"), dimension.side("low"))
    above = value > dimension.average
    end: SideName = "high" if above else "low"
    if not on:  # which a dimension without gates never is
        return [("off", side) for side in (ends if ends[0] else (gate,)) if side]
    before = end if ends[0] else "on"
    return [(before, side) for side in (dimension.side("off"), ends[1] if above else ends[0]) if side]
