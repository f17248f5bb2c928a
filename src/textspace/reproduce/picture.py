"""A reproduction as a picture: every row a line, every number a panel, ours filled and the paper's hollow."""

from __future__ import annotations

import math
from typing import Any

from textspace.evaluate.reports.pictures import COLOURS, FAINT, INK, STYLE
from textspace.reproduce.report import Line, Reproduction
from textspace.reproduce.table import Column

__all__ = ["draw"]

PANELS = 4
"""Columns that are drawn, from the left of the table."""

OURS, PAPERS = COLOURS[0], COLOURS[1]


def draw(found: Reproduction) -> Any:
    """A matplotlib figure: a panel for each of the first columns of the table."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    lines, columns = found.lines(), found.table.columns[:PANELS]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(2.4 + 2.3 * len(columns), 1.4 + 0.24 * len(lines)), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0]
        for axis, column in zip(axes, columns, strict=True):
            _panel(axis, lines, column)
        axes[0].set_yticks(range(len(lines)), [line.row.name for line in lines])
        axes[0].set_ylim(len(lines) - 0.4, -0.6)
        figure.suptitle(f"{found.table.name}: ours filled, the paper's hollow", x=0.01, ha="left", fontsize=10.5)
    return figure


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
    """From what is compared with the paper's, or from all there is, with some air."""
    cells = [line.cells[column.key] for line in lines]
    compared = [cell for cell in cells if cell.paper is not None and cell.ours is not None]
    numbers = [*(cell.paper for cell in cells), *(cell.ours for cell in compared or cells)]
    known = [number for number in numbers if number is not None and math.isfinite(number)]
    low, high = min(known, default=0.0), max(known, default=1.0)
    air = 0.08 * (high - low) or 0.5
    return low - air, high + air
