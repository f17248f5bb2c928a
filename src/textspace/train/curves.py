"""The course of a run as a picture."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from textspace.data.sources import reason
from textspace.evaluate.examination import courses
from textspace.train.log import records

__all__ = ["draw_curves"]

_NOT_TERMS = {
    "event",
    "step",
    "epoch",
    "lr",
    "weights",
    "sentences",
    "tokens",
    "moved",
    "gradient",
    "dual_gradient",
    "loss",
}

_OF_THE_CODES = ("mi", "active_units", "feature_cosine")
"""What only a validation measures."""

ACROSS = 3
"""Pictures in a row."""


def draw_curves(log: Path, stem: Path, unit: str = "sentence") -> list[Path]:
    """Draw the course of a run from its log, `stem`.png and .svg: every term, the codes' health, the learning rate.

    The unit is what has a code, a sentence or a token. A run does not fail for its curves: where the log is damaged or
    the pictures cannot be written, there is a warning instead.
    """
    try:
        return _draw(log, stem, unit)
    except Exception as error:  # a log that was changed may hold anything
        warnings.warn(f"no curves were drawn from {log} ({reason(error)}); the space itself is whole", stacklevel=2)
        return []


def _draw(log: Path, stem: Path, unit: str) -> list[Path]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from textspace.evaluate.reports.pictures import written

    steps = [line for line in records(log, "step") if line["loss"] is not None]
    validations = list(records(log, "validation"))
    terms = [name for name in (steps[0] if steps else {}) if name not in _NOT_TERMS]
    others = [name for name in _OF_THE_CODES if any(name in line for line in validations)]
    rows, across = divmod(len(terms) + len(others), ACROSS)[0] + 1, min(ACROSS, len(terms) + len(others) + 1)
    figure = Figure(figsize=(4.6 * across, 3.6 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = iter(np.atleast_1d(figure.subplots(rows, across)).ravel())
    epochs = np.array([line["epoch"] for line in steps])
    for term in terms:
        axis = next(axes)
        values = np.array([line[term] for line in steps])
        axis.plot(epochs, values, color="#9ecae1", linewidth=0.5)
        smooth = _smoothed(values)
        axis.plot(epochs, smooth, color="#08519c", linewidth=1.5, label="training (with dropout)")
        settled = smooth[len(smooth) // 20 :]  # the first steps may be far off and would flatten all that follows
        axis.set_ylim(min(0, 1.2 * settled.min()), 1.5 * settled.max() or 1.0)
        _draw_validations(axis, validations, term)
        axis.set(title=term.replace("_", " "), xlabel="epoch", ylabel="nats per sentence")
        axis.legend(frameon=False)
    for name in others:
        axis = next(axes)
        _draw_validations(axis, validations, name)
        title, label = courses(unit)[name]
        low, high = axis.get_ylim()
        axis.set(title=title, xlabel="epoch", ylabel=label, ylim=(min(0, low), high))
    kept = [line["epoch"] for line in validations if line.get("kept")]
    for axis in figure.get_axes()[: len(terms) + len(others)]:
        for epoch in kept[-1:]:
            axis.axvline(epoch, color="#444444", linestyle=":", linewidth=1, label="weights kept")
            axis.legend(frameon=False)
    axis = next(axes)
    axis.plot(epochs, [line["lr"] for line in steps], color="#444444")
    positive = all(line["lr"] > 0 for line in steps)
    axis.set(title="learning rate", xlabel="epoch", yscale="log" if positive else "linear")
    for spare in axes:
        spare.set_axis_off()
    for axis in figure.get_axes():
        axis.spines[["top", "right"]].set_visible(False)
    return written(figure, stem)


def _draw_validations(axis: Any, validations: list[dict[str, Any]], name: str) -> None:
    found = [(line["epoch"], line[name]) for line in validations if name in line]
    if found:
        axis.plot(*zip(*found, strict=True), color="#d94801", marker="o", markersize=3, label="validation")


def _smoothed(values: np.ndarray) -> np.ndarray:
    """Running mean over about a fiftieth of the run."""
    width = max(1, len(values) // 50)
    padded = np.concatenate([np.full(width // 2, values[0]), values, np.full(width - 1 - width // 2, values[-1])])
    return np.convolve(padded, np.ones(width) / width, mode="valid")
