"""A reproduction in pictures: its numbers beside the paper's, validations by epoch, and features."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from textwrap import fill
from typing import Any

import numpy as np

from textspace.evaluate.reports.pictures import COLOURS, FAINT, INK, STYLE
from textspace.reproduce.report import Cell, Line, Reproduction
from textspace.reproduce.table import Column

__all__ = ["draw", "draw_by_epoch", "draw_features", "draw_features_in_space", "pictures"]

PANELS = 4
"""Columns that are drawn, from the left of the table."""

DECADES = 2
"""Numbers that differ by as many powers of ten are drawn by their logarithm: else the largest flattens all others. Not
shares and cosines, which are at most 1."""

OURS, PAPERS = COLOURS[0], COLOURS[1]


def pictures(found: Reproduction) -> dict[str, Callable[[Reproduction], Any]]:
    """What there is to draw, by the names of files."""
    there: dict[str, tuple[Callable[[Reproduction], Any], bool]] = {
        "": (draw, True),
        "-by-epoch": (draw_by_epoch, bool(found.table.by_epoch and found.drawn("by_epoch"))),
        "-features": (
            draw_features_in_space if found.drawn("features") else draw_features,
            bool(found.drawn("feature_places")),
        ),
    }
    return {f"{found.table.name}{after}.png": drawing for after, (drawing, is_there) in there.items() if is_there}


def draw(found: Reproduction) -> Any:
    """A matplotlib figure: a panel for each of the first columns of the table, a line for each row.

    Of a table with a reference, whose corpus is not the paper's, gaps to it are drawn: numbers themselves lie apart.
    """
    lines, columns = found.lines(), found.table.columns[:PANELS]
    gaps = any(cell.gap is not None for line in lines for cell in line.cells.values())
    if gaps:
        lines = [_gaps(line, found.table.reference) for line in lines]
    with _panels(len(columns), 2.4 + 2.3 * len(columns), 1.4 + 0.24 * len(lines), sharey=True) as (figure, axes):
        for axis, column in zip(axes, columns, strict=True):
            _panel(axis, lines, column)
        axes[0].set_yticks(range(len(lines)), [line.row.name for line in lines])
        axes[0].set_ylim(len(lines) - 0.4, -0.6)
        drawn = f"gaps to {found.table.reference}, " if gaps else ""
        figure.suptitle(f"{found.table.name}: {drawn}ours filled, the paper's hollow", x=0.01, ha="left", fontsize=10.5)
    return figure


def _gaps(line: Line, reference: str | None) -> Line:
    """A row as what it differs by from the reference, which itself differs by nothing."""
    if line.row.name == reference:
        nothing = {key: Cell(cell.ours and 0.0, None, cell.paper and 0.0) for key, cell in line.cells.items()}
        return replace(line, cells=nothing)
    return replace(
        line, cells={key: Cell(cell.gap, cell.gap_error, cell.paper_gap) for key, cell in line.cells.items()}
    )


@contextmanager
def _panels(count: int, width: float, height: float, **options: Any) -> Iterator[tuple[Any, Any]]:
    """A figure and its axes beside each other, in our style; options as of matplotlib's `subplots`."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure, figure.subplots(1, count, squeeze=False, **options)[0]


def _panel(axis: Any, lines: list[Line], column: Column) -> None:
    """One number of every row; what lies far outside the paper's range is an arrow at the edge."""
    low, high = limits(lines, column)
    for at, line in enumerate(lines):
        cell = line.cells[column.key]
        if cell.ours is not None and cell.paper is not None:
            axis.plot([min(max(cell.ours, low), high), cell.paper], [at, at], color=FAINT, linewidth=2, zorder=1)
        if cell.paper is not None:
            axis.plot(cell.paper, at, "o", markerfacecolor="white", markeredgecolor=PAPERS, markersize=6, zorder=2)
        if cell.ours is None:
            continue
        if low <= cell.ours <= high:
            axis.errorbar(cell.ours, at, xerr=cell.error or 0, fmt="o", color=OURS, markersize=4, capsize=2, zorder=3)
        elif not math.isnan(cell.ours):
            edge, mark = (high, ">") if cell.ours > high else (low, "<")
            axis.plot(edge, at, mark, color=OURS, markersize=5, clip_on=False, zorder=3)
    axis.set_xlim(low, high)
    axis.set_title(column.label, loc="left", color=INK)
    axis.grid(axis="x")
    axis.tick_params(axis="y", length=0)


def limits(lines: list[Line], column: Column) -> tuple[float, float]:
    """From what is compared with the paper's, or from all there is, errors included, with some air."""
    cells = [line.cells[column.key] for line in lines]
    compared = [cell for cell in cells if cell.paper is not None and cell.ours is not None] or cells
    ends = [cell.ours + side * (cell.error or 0) for cell in compared if cell.ours is not None for side in (-1, 1)]
    numbers = [*(cell.paper for cell in cells), *ends]
    known = [number for number in numbers if number is not None and math.isfinite(number)]
    low, high = min(known, default=0.0), max(known, default=1.0)
    air = 0.08 * (high - low) or 0.5
    return low - air, high + air


def draw_by_epoch(found: Reproduction) -> Any:
    """What validations measured over the course of training: the mean over seeds, and their range."""
    columns = found.table.by_epoch
    with _panels(len(columns), 1.6 + 3.4 * len(columns), 3.2) as (figure, axes):
        for axis, column in zip(axes, columns, strict=True):
            all_values: list[float] = []
            for colour, (row, runs) in zip(COLOURS, found.drawn("by_epoch").items(), strict=False):
                if courses := [(run["epoch"], course) for run in runs if (course := _course(run, column)) is not None]:
                    epochs = min((epochs for epochs, _ in courses), key=len)  # seeds may stop after different ones
                    values_SE = np.array([course[: len(epochs)] for _, course in courses], float)  # nan for none
                    axis.plot(epochs, values_SE.mean(0), color=colour, label=row)
                    axis.fill_between(epochs, values_SE.min(0), values_SE.max(0), color=colour, alpha=0.2, linewidth=0)
                    all_values += values_SE[np.isfinite(values_SE)].tolist()
            if all_values and max(all_values) > max(1, min(all_values) * 10**DECADES) and min(all_values) > 0:
                axis.set_yscale("log")
            axis.set_title(column.label, loc="left")
            axis.set_xlabel("epoch")
            axis.xaxis.get_major_locator().set_params(integer=True)
            axis.grid(True)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center")
        figure.suptitle(f"{found.table.name}, validation", x=0.01, ha="left", fontsize=10.5)
    return figure


def _course(run: Mapping[str, Any], column: Column) -> list[float | None] | None:
    """A number of each epoch."""
    by_epoch: Mapping[str, list[float | None]] = run["by_epoch"]
    return by_epoch.get(column.key, by_epoch.get(column.otherwise or ""))


def draw_features(found: Reproduction) -> Any:
    """Features of test sentences of one run of each row, on axes of equal length."""
    places = {row: np.array(runs[0]["feature_places"]) for row, runs in found.drawn("feature_places").items()}
    spreads = {row: runs[0]["feature_spread"][0] for row, runs in found.drawn("feature_places").items()}
    edge = 1.05 * max(0.1, *(np.abs(places_N2).max() for places_N2 in places.values()))
    with _panels(len(places), 0.6 + 2.2 * len(places), 2.9, sharex=True, sharey=True) as (figure, axes):
        for colour, axis, (row, places_N2) in zip(COLOURS, axes, places.items(), strict=False):
            axis.scatter(*places_N2.T, 5, color=colour, alpha=0.6, linewidths=0)
            axis.set(xlim=(-edge, edge), ylim=(-edge, edge), aspect="equal")
            axis.set_title(f"{row}\nspread {spreads[row]:.2f}", loc="left", fontsize=9)
            axis.grid(True)
        title = f"{found.table.name}: features from their mean, in lengths of a feature"
        figure.suptitle(fill(title, 28 * len(places)), x=0.01, ha="left", fontsize=10.5)
    return figure


def draw_features_in_space(found: Reproduction) -> Any:
    """Features of three numbers as they are, of one run of each row: nothing is lost, as it is in a plane."""
    features = {row: np.array(runs[0]["features"]) for row, runs in found.drawn("features").items()}
    spreads = {row: runs[0]["feature_spread"][0] for row, runs in found.drawn("features").items()}
    edge = max(np.abs(features_N3).max() for features_N3 in features.values())
    options = {"subplot_kw": {"projection": "3d"}}
    with _panels(len(features), 0.6 + 3.4 * len(features), 3.9, **options) as (figure, axes):
        for colour, axis, (row, features_N3) in zip(COLOURS, axes, features.items(), strict=False):
            axis.scatter(*features_N3.T, s=5, color=colour, alpha=0.6, linewidths=0)
            axis.set(xlim=(-edge, edge), ylim=(-edge, edge), zlim=(-edge, edge))
            axis.tick_params(labelsize=7, pad=-1)
            axis.locator_params(nbins=4)
            axis.set_box_aspect(None, zoom=0.9)
            axis.set_title(f"{row}, spread {spreads[row]:.2f}", loc="left", fontsize=9)
        title = f"{found.table.name}: the three features of test sentences"
        figure.suptitle(title, x=0.01, ha="left", fontsize=10.5)
    return figure
