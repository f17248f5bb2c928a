"""What every dimension does in every sentence, kept in a temporary file and read one dimension at a time."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from textspace.progress import track

if TYPE_CHECKING:
    from textspace.space import Space

__all__ = ["Activity", "activity", "told_before"]

Floats32 = NDArray[np.float32]


class Activity(NamedTuple):
    """Dimension by dimension, sentence by sentence."""

    values_ZN: Floats32
    """The slab's mean where a dimension is on and 0 where it is off; in a dense space the posterior's mean."""
    on_ZN: Floats32 | None
    """Probability of being on; None in a dense space."""


def activity(space: Space, texts: Sequence[str], show_progress: bool = False) -> Activity:
    """Encode sentences, in chunks; what cannot be encoded well is told once."""
    gated = space.model.has_gates
    values_ZN = _on_disk(space.dim, len(texts))
    for rows, codes_NZ in _chunks(space, texts, "mean", gated, show_progress):
        values_ZN[:, rows] = codes_NZ.T
    if not gated:
        return Activity(values_ZN, None)
    on_ZN = _on_disk(space.dim, len(texts))
    with told_before():
        for rows, gates_NZ in _chunks(space, texts, "gates", False, show_progress):
            on_ZN[:, rows] = gates_NZ.T
    return Activity(values_ZN, on_ZN)


@contextmanager
def told_before(certainly: bool = True) -> Iterator[None]:
    """Nothing is said of sentences that were encoded before, if they certainly were."""
    with warnings.catch_warnings():
        if certainly:
            warnings.simplefilter("ignore")
        yield


def _chunks(
    space: Space, texts: Sequence[str], what: str, sparse: bool, show_progress: bool
) -> Iterator[tuple[slice, Floats32]]:
    start = 0
    shown = track(texts, "encoding" if what == "mean" else "reading gates", show_progress, len(texts))
    for chunk, codes_NZ in space.encode_stream(shown, what=what, sparse=sparse):  # type: ignore[arg-type]
        yield slice(start, start + len(chunk)), codes_NZ.toarray() if sparse else codes_NZ
        start += len(chunk)


def _on_disk(*shape: int) -> Floats32:
    """An array in a file without a name, gone with the array."""
    with tempfile.TemporaryFile() as file:
        return np.memmap(file, np.float32, "w+", shape=shape)
