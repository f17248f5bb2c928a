"""The pictures of findings, drawn: one figure for each, as SVG that stands inside a page."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from textspace.evaluate.measure import Picture

__all__ = ["draw", "svg", "written"]

COLOURS = (
    "#2f6db3",
    "#e07b39",
    "#3a9a6b",
    "#b8488f",
    "#7a63c4",
    "#c79a1e",
    "#3fa7b8",
    "#cf4a56",
    "#6b7a8f",
    "#8c6d46",
    "#1b3a5c",
    "#a8b820",
)
"""Told apart by most eyes, also beside each other."""

INK, FAINT = "#3c4654", "#dfe4ea"

STYLE = {
    "font.size": 9.5,
    "axes.edgecolor": "#9aa5b1",
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.titlesize": 10.5,
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.7,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "svg.fonttype": "path",
    "svg.hashsalt": "textspace",
}

BINS = 40
MANY_POINTS = 400
"""From so many on, the points of a map are drawn as one image inside the picture, which keeps a page small."""

ROUNDING = 1e-6
"""Share of the largest value below which another is 0 but for rounding."""

MANY_BARS = 24
"""From so many on, only some bars are named."""


def draw(picture: Picture, *, titled: bool = True) -> Any:
    """A matplotlib figure of a picture."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(5.4, _height(picture)), layout="constrained")
        FigureCanvasAgg(figure)
        axis = figure.subplots()
        axis.set(xlabel=picture.x_label, ylabel=picture.y_label)
        _KINDS[picture.kind](axis, picture)
        if titled:
            axis.set_title(picture.title, loc="left")
    return figure


def written(figure: Any, stem: Path) -> list[Path]:
    """Write a figure as `stem`.png and .svg; it is laid out once."""
    paths = [stem.with_name(f"{stem.name}.{ending}") for ending in ("png", "svg")]
    for path in paths:
        figure.savefig(path, dpi=130)
        figure.set_layout_engine("none")  # the places stay, and need not be found again
    return paths


def svg(picture: Picture, name: str) -> str:
    """A picture as an SVG element for the middle of a page; `name` keeps its parts apart from those of others."""
    import matplotlib

    stream = io.StringIO()
    with np.errstate(over="ignore", invalid="ignore"), matplotlib.rc_context(STYLE):  # of vast numbers
        figure = draw(picture, titled=False)
        figure.savefig(stream, format="svg", transparent=True, dpi=170, metadata={"Date": None})
    text = stream.getvalue()
    # What an SVG file needs at its beginning, a page does not; nor does it say whose programme made it.
    text = text[text.index("<svg") :].strip()
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, count=1, flags=re.DOTALL)
    opening, _, rest = text.partition(">")
    box = re.search(r'viewBox="[^"]*"', opening)
    rest = re.sub(r'\bid="([^"]*)"', rf'id="{name}-\1"', rest)
    rest = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", rest)
    return f'<svg {box.group() if box else ""} role="img" aria-label="{_attribute(picture.title)}">{rest}'


def _attribute(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")


def _height(picture: Picture) -> float:
    if picture.kind == "points":
        return 4.6
    if picture.kind == "heat":
        return min(8.0, 1.4 + 0.34 * len(picture.series))
    if picture.kind == "bars" and _lies(picture):
        return min(8.0, 1.0 + (0.17 * len(picture.series) + 0.16) * len(picture.ticks or ()))
    return 3.3


# Kinds


def _histogram(axis: Any, picture: Picture) -> None:
    """Shares and not counts, since the samples may differ in size."""
    samples = {name: values for name, given in picture.series.items() if len(values := _finite(given))}
    if not samples:
        return
    together = np.concatenate(list(samples.values()))
    edges = _edges(together)
    for colour, (name, values) in zip(_colours(len(samples)), samples.items(), strict=True):
        shares = np.full(len(values), 1 / len(values))
        style = {"bins": edges, "weights": shares, "color": colour}
        axis.hist(values, histtype="stepfilled", alpha=0.28, label=name, **style)
        axis.hist(values, histtype="step", linewidth=1.4, **style)
        axis.axvline(values.mean(), color=colour, linewidth=1, linestyle=(0, (4, 3)))
    if np.abs(together).max() >= 1e4:  # their names are long
        axis.locator_params(axis="x", nbins=5)
    axis.set_ylabel(picture.y_label or "share (dashed: mean)")
    axis.grid(axis="y")
    _legend(axis, len(samples))


def _edges(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ends of bins: around whole numbers where there are no others, and few of them."""
    low, high = float(values.min()), float(values.max())
    if (values == np.round(values)).all() and high - low < 2 * BINS:
        return np.arange(low - 0.5, high + 1)
    if high == low:
        return np.array([low - 0.5, low + 0.5])
    fitting = len(np.histogram_bin_edges(values, "auto")) - 1
    return np.linspace(low, high, min(max(fitting, 8), BINS) + 1)


def _lines(axis: Any, picture: Picture) -> None:
    x = np.asarray(picture.x if picture.x is not None else [], float)
    lowest, highest = np.inf, -np.inf
    for colour, (name, given) in zip(_colours(len(picture.series)), picture.series.items(), strict=True):
        at = x if len(x) else np.arange(1, len(given) + 1)
        y = np.asarray(given, float)
        there = np.isfinite(y) & np.isfinite(at)
        if not there.any():
            continue
        few = there.sum() <= 25
        axis.plot(at[there], y[there], color=colour, label=name, marker="o" if few else None, markersize=3.5)
        # The first values of a run may be far off and would flatten all that follows.
        settled = y[there][there.sum() // 20 :]
        lowest, highest = min(lowest, settled.min()), max(highest, settled.max())
    if np.isfinite(lowest) and highest > lowest:
        bottom = 0.0 if 0 <= lowest < 0.5 * highest else lowest - 0.06 * (highest - lowest)
        axis.set_ylim(bottom, highest + 0.08 * (highest - bottom))
    if picture.log_x:
        axis.set_xscale("log", base=2)
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    elif len(x) and (x == np.round(x)).all() and np.ptp(x) <= 20:
        axis.xaxis.get_major_locator().set_params(integer=True)
    axis.grid(axis="y")
    _legend(axis, len(picture.series))


def _bars(axis: Any, picture: Picture) -> None:
    ticks = picture.ticks or [str(number + 1) for number in range(max(map(len, picture.series.values()), default=0))]
    at, width = np.arange(len(ticks)), 0.8 / max(1, len(picture.series))
    lies = _lies(picture)
    for number, (colour, (name, values)) in enumerate(
        zip(_colours(len(picture.series)), picture.series.items(), strict=True)
    ):
        place = at + (number - (len(picture.series) - 1) / 2) * width
        draw_bar = axis.barh if lies else axis.bar
        draw_bar(place, np.nan_to_num(_floats(values)), width, color=colour, label=name)
    every = 1 if len(ticks) <= MANY_BARS else -(-len(ticks) // 16)
    shown = at[::every]
    if lies:
        axis.set_yticks(shown, [_short(ticks[tick]) for tick in shown])
        axis.invert_yaxis()
        axis.tick_params(axis="y", length=0)
        axis.set(xlabel=picture.y_label, ylabel=picture.x_label)  # which are those of upright bars
    else:
        axis.set_xticks(shown, [ticks[tick] for tick in shown])
        axis.tick_params(axis="x", length=0)
        axis.set_xlim(-0.7, len(ticks) - 0.3)
    axis.grid(axis="x" if lies else "y")
    _legend(axis, len(picture.series))


def _lies(picture: Picture) -> bool:
    """Whether the bars lie: their names would not fit below upright ones."""
    ticks = picture.ticks or []
    return 0 < len(ticks) <= MANY_BARS and sum(len(_short(tick)) for tick in ticks) > 55


def _points(axis: Any, picture: Picture) -> None:
    groups = {name: pairs for name, values in picture.series.items() if len(pairs := _floats(values).reshape(-1, 2))}
    total = sum(map(len, groups.values()))
    size = float(np.clip(9000 / max(total, 1), 6, 26))
    for colour, (name, pairs) in zip(_colours(len(groups)), groups.items(), strict=True):
        axis.scatter(
            pairs[:, 0],
            pairs[:, 1],
            size,
            color=colour,
            alpha=0.65,
            linewidths=0,
            label=_short(name),
            rasterized=total >= MANY_POINTS,
        )
    axis.grid(True)
    if len(groups) > 1:
        longest = max(len(_short(name)) for name in groups)
        columns = min(len(groups), max(1, 40 // (longest + 2)))
        rows = -(-len(groups) // columns)
        key = axis.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, markerscale=1.6, handletextpad=0.1)
        for handle in key.legend_handles:
            handle.set_alpha(1)
        axis.margins(0.03 + 0.002 * rows)


def _heat(axis: Any, picture: Picture) -> None:
    rows = list(picture.series)
    values = np.array([_floats(picture.series[row]) for row in rows])
    if not values.size:
        return
    finite = values[np.isfinite(values)]
    limit = float(np.abs(finite).max()) if len(finite) else 1.0
    signed = len(finite) > 0 and finite.min() < -ROUNDING * limit and finite.max() > ROUNDING * limit
    limits = {"vmin": -limit, "vmax": limit} if signed else {}
    image = axis.imshow(values, aspect="auto", cmap="RdBu_r" if signed else "Blues", **limits)
    ticks = picture.ticks or [str(number + 1) for number in range(values.shape[1])]
    every = 1 if len(ticks) <= MANY_BARS else -(-len(ticks) // 16)
    long = max(map(len, ticks)) * len(ticks[::every]) > 50
    shown = range(0, len(ticks), every)
    turned: dict[str, Any] = {"rotation": 45, "ha": "right"} if long else {}
    axis.set_xticks(shown, [_short(ticks[tick]) for tick in shown], **turned)
    every_row = 1 if len(rows) <= 2 * MANY_BARS else -(-len(rows) // MANY_BARS)
    axis.set_yticks(range(0, len(rows), every_row), [_short(row) for row in rows[::every_row]])
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    if values.size <= 150:
        middle = (finite.min() + finite.max()) / 2 if len(finite) else 0.0
        for row, column in np.ndindex(*values.shape):
            number = values[row, column]
            strong = abs(number) > 0.6 * limit if signed else number > middle
            if np.isfinite(number):
                text = f"{number:.2f}".replace("-0.00", "0.00") if abs(number) < 100 else f"{number:.0f}"
                axis.text(column, row, text, ha="center", va="center", fontsize=8, color="white" if strong else INK)
    else:
        axis.figure.colorbar(image, ax=axis, shrink=0.85).outline.set_visible(False)


_KINDS: dict[Literal["histogram", "lines", "bars", "points", "heat"], Callable[[Any, Picture], None]] = {
    "histogram": _histogram,
    "lines": _lines,
    "bars": _bars,
    "points": _points,
    "heat": _heat,
}


def _colours(count: int) -> list[str]:
    return [COLOURS[number % len(COLOURS)] for number in range(count)]


def _floats(values: list[float]) -> NDArray[np.float64]:
    return np.asarray(values, np.float64)


def _finite(values: list[float]) -> NDArray[np.float64]:
    array = _floats(values)
    return array[np.isfinite(array)]


def _short(text: str, most: int = 28) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _legend(axis: Any, count: int) -> None:
    if count > 1:
        axis.legend(loc="best")
