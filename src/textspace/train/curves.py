"""The course of a run as a picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from textspace.train.log import records

__all__ = ["draw_curves"]

_NOT_TERMS = {"event", "step", "epoch", "lr", "weights", "sentences", "tokens", "seconds", "gradient", "loss"}


def draw_curves(folder: Path) -> list[Path]:
    """Draw `curves.png` and `curves.svg` from the `steps.jsonl` of a run: every term, and the learning rate."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    steps = list(records(folder / "steps.jsonl", "step"))
    validations = list(records(folder / "steps.jsonl", "validation"))
    terms = [name for name in (steps[0] if steps else {}) if name not in _NOT_TERMS]
    figure = Figure(figsize=(4.6 * (len(terms) + 1), 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = np.atleast_1d(figure.subplots(1, len(terms) + 1))
    epochs = np.array([line["epoch"] for line in steps])
    for axis, term in zip(axes, terms, strict=False):
        values = np.array([line[term] for line in steps])
        axis.plot(epochs, values, color="#9ecae1", linewidth=0.5)
        smooth = _smoothed(values)
        axis.plot(epochs, smooth, color="#08519c", linewidth=1.5, label="training (with dropout)")
        settled = smooth[len(smooth) // 20 :]  # the first steps may be far off and would flatten all that follows
        axis.set_ylim(0, 1.5 * settled.max() or 1.0)
        found = [(line["epoch"], line[term]) for line in validations if term in line]
        if found:
            axis.plot(*zip(*found, strict=True), color="#d94801", marker="o", markersize=3, label="validation")
        axis.set(title=term, xlabel="epoch", ylabel="nats per sentence")
        axis.legend(frameon=False)
    axes[-1].plot(epochs, [line["lr"] for line in steps], color="#444444")
    axes[-1].set(
        title="learning rate",
        xlabel="epoch",
        yscale="log" if all(line["lr"] > 0 for line in steps) else "linear",
    )
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    paths = [folder / "curves.png", folder / "curves.svg"]
    for path in paths:
        figure.savefig(path, dpi=130)
    return paths


def _smoothed(values: np.ndarray) -> np.ndarray:
    """Running mean over about a fiftieth of the run."""
    width = max(1, len(values) // 50)
    padded = np.concatenate([np.full(width // 2, values[0]), values, np.full(width - 1 - width // 2, values[-1])])
    return np.convolve(padded, np.ones(width) / width, mode="valid")
