"""Figures 2 and 3 of the VAT paper from what `benchmarks.token_tables` found."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.token_report import Contestants
from textspace.evaluate.measures.variety import VARIANTS
from textspace.evaluate.reports.pictures import COLOURS, INK, STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["PICTURES", "draw_all", "sweep"]

MOST_LAYERS = 100


def sweep(found: Contestants) -> list[str]:
    """The token-level spaces that differ in the prior's scale alone, by scale: of several such sets the largest."""
    groups: dict[str, list[str]] = {}
    for name, one in _token_spaces(found):
        recipe = json.loads(json.dumps(one["recipe"]))
        recipe["prior"].pop("scale", None)
        for words in ("name", "about", "citation"):
            recipe.pop(words, None)
        groups.setdefault(json.dumps(recipe, sort_keys=True), []).append(name)
    largest = max(groups.values(), key=len, default=[])
    return sorted(largest, key=lambda name: found[name]["scale"])


def learning_curves(figure: Figure, found: Contestants) -> None:
    """Figure 2: weighted KL above, reconstruction below; training batches and validation sentences."""
    runs = [(name, one) for name, one in _token_spaces(found) if (one["curves"] or {}).get("valid")]
    axes = figure.subplots(2, max(len(runs), 1), sharey="row", squeeze=False)
    for place, (name, one) in enumerate(runs):
        for row, what in enumerate(("weighted KL", "reconstruction")):
            axis = axes[row, place]
            for (split, label), colour in zip(
                {"train": "training", "valid": "validation"}.items(), COLOURS, strict=False
            ):
                lines = one["curves"][split]
                style = "o-" if split == "valid" else "-"
                axis.plot(
                    [line[0] for line in lines], [line[1 + row] for line in lines], style, color=colour, label=label
                )
            axis.set_title(name, fontsize=9) if row == 0 else axis.set_xlabel("epoch")
            if place == 0:
                axis.set_ylabel(f"{what}, nats a sentence", fontsize=8)
    reconstructions = [line[2] for _, one in runs for line in one["curves"]["valid"]]
    if reconstructions:  # the first steps would flatten all that follows
        axes[1, 0].set_ylim(0, 1.3 * max(reconstructions) + 1)
        axes[0, 0].legend(fontsize=8)


class Line(NamedTuple):
    """Where the numbers of a line are, and what they are multiplied by; None: by the KL's last weight."""

    part: str
    key: str
    unit: float | None = 1.0


PANELS: dict[tuple[str, str], dict[str, Line]] = {
    ("a: tokens of STS12", "mean cosine"): {
        "random tokens": Line("isotropy", "random_cosine"),
        "intra-sentence": Line("isotropy", "intra_sentence"),
        "tokens dealt out anew": Line("isotropy", "intra_sentence_dealt"),
        "self": Line("isotropy", "self_similarity"),
    },
    ("b: losses, test", "nats a sentence"): {
        "reconstruction": Line("losses", "reconstruction_test"),
        "KL": Line("losses", "kl_test"),
        "KL, weighted as at the end": Line("losses", "kl_test", None),
    },
    ("c: 12 samples of a sentence", "share"): {
        "different": Line("variety", "distinct_strength_1", 1 / VARIANTS),
        "self-BLEU-4 / 100": Line("variety", "self_bleu4_strength_1", 0.01),
        "copies": Line("variety", "copies_strength_1"),
        "copies of means": Line("variety", "copies_mean"),
    },
}


def points_of(found: Contestants, names: Sequence[str], line: Line) -> list[tuple[float, float]]:
    """The scale and the number of each space that has one."""
    points = []
    for name in names:
        one = found[name]
        of = one["estimates"].get(line.part, {}).get(line.key)
        unit = (one["curves"] or {}).get("last_weight") if line.unit is None else line.unit
        if of is not None and unit is not None:
            points.append((one["scale"], of["value"] * unit))
    return points


def by_scale(figure: Figure, found: Contestants) -> None:
    """Figure 3: cosines, losses and variety against the prior's scale, and encoders' cosines by layer."""
    names = sweep(found)
    others = [name for name, one in _token_spaces(found) if name not in names]
    for place, ((title, label), lines) in enumerate(PANELS.items()):
        axis = figure.add_subplot(2, 2, place + 1)
        for colour, (told, line) in zip(COLOURS, lines.items(), strict=False):
            for some, style, legend in ((names, "o-", told), (others, "x", None)):
                if points := points_of(found, some, line):
                    axis.plot(*zip(*points, strict=True), style, color=colour, markersize=5, label=legend)
        axis.set(title=title, xlabel="scale s of the prior (x: other settings)", ylabel=label)
        if place == 0:
            _last_layers(axis, found)
        _legend(axis)
    axis = figure.add_subplot(2, 2, 4)
    for style, (name, one) in zip(("-", "--", ":", "-."), _encoders(found), strict=False):
        of = one["estimates"]["isotropy"]
        for colour, (told, key) in zip(COLOURS, PER_LAYER.items(), strict=False):
            layers = [n for n in range(MOST_LAYERS) if f"{key}_layer_{n}" in of]
            values = [of[f"{key}_layer_{n}"]["value"] for n in layers]
            axis.plot(layers, values, style, color=colour, label=f"{name}: {told}")
    axis.set(title="d: layers of encoders (0: embeddings)", xlabel="layer", ylabel="mean cosine")
    _legend(axis)


PER_LAYER = {"random": "random_cosine", "self": "self_similarity"}


def _legend(axis: Axes) -> None:
    if axis.get_legend_handles_labels()[1]:
        axis.legend(fontsize=7.5)


def _token_spaces(found: Contestants) -> list[tuple[str, Mapping[str, Any]]]:
    return [(name, one) for name, one in found.items() if one["kind"] == "space" and one["token_level"]]


def _encoders(found: Contestants) -> list[tuple[str, Mapping[str, Any]]]:
    return [(name, one) for name, one in found.items() if one["kind"] == "encoder" and "isotropy" in one["estimates"]]


def _last_layers(axis: Axes, found: Contestants) -> None:
    """Where random tokens lie in the last layer of the encoders."""
    for name, one in _encoders(found):
        of = one["estimates"]["isotropy"]
        last = max(n for n in range(MOST_LAYERS) if f"random_cosine_layer_{n}" in of)
        value = of[f"random_cosine_layer_{last}"]["value"]
        axis.axhline(value, color=INK, linewidth=0.8, linestyle=":")
        axis.annotate(
            f"random, {name}",
            (1, value),
            xycoords=("axes fraction", "data"),
            ha="right",
            va="bottom",
            fontsize=7,
            color=INK,
        )


PICTURES: dict[str, tuple[Callable[[Figure, Contestants], None], tuple[float, float]]] = {
    "token-losses.png": (learning_curves, (11.0, 4.6)),
    "token-isotropy.png": (by_scale, (10.0, 7.0)),
}


def draw_all(found: Contestants, folder: Path) -> list[str]:
    """Draw the pictures into a folder; their names."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        for name, (draw, size) in PICTURES.items():
            figure = Figure(figsize=size, layout="constrained")
            FigureCanvasAgg(figure)
            draw(figure, found)
            figure.savefig(folder / name, dpi=100)
    return list(PICTURES)
