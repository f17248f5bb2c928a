"""Figures 2 and 3 of the VAT paper from what `benchmarks.token_tables` found."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.token_report import Contestants
from textspace.evaluate.measures.variety import VARIANTS
from textspace.evaluate.reports.pictures import COLOURS, STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["PICTURES", "alike", "draw_all", "sweep"]

MOST_LAYERS = 100


def alike(found: Contestants) -> list[list[str]]:
    """The token-level spaces in sets that differ in the prior's scale alone, each by scale."""
    groups: dict[str, list[str]] = {}
    for name, one in _token_spaces(found):
        recipe = json.loads(json.dumps(one["recipe"]))
        recipe["prior"].pop("scale", None)
        for words in ("name", "about", "citation"):
            recipe.pop(words, None)
        groups.setdefault(json.dumps(recipe, sort_keys=True), []).append(name)
    return [sorted(names, key=lambda name: found[name]["scale"]) for names in groups.values()]


def sweep(found: Contestants) -> list[str]:
    """Of the sets of spaces that differ in the prior's scale alone the largest."""
    return max(alike(found), key=len, default=[])


def learning_curves(figure: Figure, found: Contestants) -> None:
    """Figure 2: weighted KL above, reconstruction below, a column for runs that differ in the prior's scale alone."""
    groups = [[name for name in names if (found[name]["curves"] or {}).get("valid")] for names in alike(found)]
    groups = [names for names in groups if names]
    axes = figure.subplots(2, max(len(groups), 1), sharey="row", sharex="col", squeeze=False)
    for place, names in enumerate(groups):
        for colour, name in zip(cycle(COLOURS), names):
            curves = found[name]["curves"]
            for row in (0, 1):
                epochs, values = zip(*((line[0], line[1 + row]) for line in curves["train"]), strict=True)
                axes[row, place].plot(epochs, values, color=colour, linewidth=0.7, alpha=0.6)
                epochs, values = zip(*((line[0], line[1 + row]) for line in curves["valid"]), strict=True)
                axes[row, place].plot(epochs, values, "o-", color=colour, markersize=3, label=name)
        one = found[names[0]]
        weight, steps = one["curves"]["last_weight"], one["cost"]["steps"]
        ends = "" if weight is None else f", KL weight ends at {weight:.1g}"
        axes[0, place].set_title(f"{steps:,} steps{ends}", fontsize=10)
        axes[1, place].set_xlabel("epoch")
        # Beside the weighted KL's last values there is room above, since it is the reconstruction that starts high.
        axes[1, place].legend(fontsize=8, loc="upper right")
    for row, what in enumerate(("weighted KL", "reconstruction")):
        axes[row, 0].set_ylabel(f"{what}, nats a sentence", fontsize=9)
        told = [line[1 + row] for names in groups for name in names for line in found[name]["curves"]["valid"]]
        if told:  # the first training steps would flatten all that follows
            axes[row, 0].set_ylim(0, (1.2, 1.6)[row] * max(told) + 1)


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
    longer = [name for name, one in _token_spaces(found) if name not in names and _is_longer(one, found, names)]
    for place, ((title, label), lines) in enumerate(PANELS.items()):
        axis = figure.add_subplot(2, 2, place + 1)
        for colour, (told, line) in zip(COLOURS, lines.items(), strict=False):
            for some, style, legend in ((names, "o-", told), (longer, "x", None)):
                if points := points_of(found, some, line):
                    axis.plot(*zip(*points, strict=True), style, color=colour, markersize=6, label=legend)
        crosses = f" (x: {', '.join(longer)}, longer)" if longer else ""
        axis.set(title=title, xlabel=f"scale s of the prior{crosses}", ylabel=label)
        _legend(axis)
    from matplotlib.ticker import MaxNLocator

    axis = figure.add_subplot(2, 2, 4)
    for colour, (name, one) in zip(cycle(COLOURS), _encoders(found)):
        of = one["estimates"]["isotropy"]
        for style, (told, key) in zip(("o-", "o--"), PER_LAYER.items(), strict=True):
            layers = [n for n in range(MOST_LAYERS) if f"{key}_layer_{n}" in of]
            values = [of[f"{key}_layer_{n}"]["value"] for n in layers]
            axis.plot(layers, values, style, color=colour, markersize=4, label=f"{name}: {told}")
    axis.set(title="d: layers of encoders (0: embeddings)", xlabel="layer", ylabel="mean cosine", ylim=(0, 1.05))
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    _legend(axis)


def _is_longer(one: Mapping[str, Any], found: Contestants, names: Sequence[str]) -> bool:
    """Whether a space was trained with the same last weight of the KL as those of a sweep, for more steps."""
    if not names:
        return False
    other = found[names[0]]
    own, others = (round((each["curves"] or {}).get("last_weight") or 0.0, 3) for each in (one, other))
    return own == others and one["cost"]["steps"] > other["cost"]["steps"]


PER_LAYER = {"random": "random_cosine", "self": "self_similarity"}


def _legend(axis: Axes) -> None:
    if axis.get_legend_handles_labels()[1]:
        axis.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _token_spaces(found: Contestants) -> list[tuple[str, Mapping[str, Any]]]:
    return [(name, one) for name, one in found.items() if one["kind"] == "space" and one["token_level"]]


def _encoders(found: Contestants) -> list[tuple[str, Mapping[str, Any]]]:
    return [(name, one) for name, one in found.items() if one["kind"] == "encoder" and "isotropy" in one["estimates"]]


PICTURES: dict[str, tuple[Callable[[Figure, Contestants], None], tuple[float, float]]] = {
    "tokens-losses.png": (learning_curves, (10.5, 5.4)),
    "tokens-isotropy.png": (by_scale, (12.0, 7.0)),
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
