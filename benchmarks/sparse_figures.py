"""The pictures of docs/sparse.md, from the recorded results: python -m benchmarks.sparse_figures [--out FOLDER]."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.results import FOLDER
from textspace.evaluate.reports.pictures import COLOURS, INK, STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CORPORA = {"dbpedia28k": "DBpedia", "yahoo_topics20k": "Yahoo topics", "yelp_20_200": "Yelp"}
DBPEDIA = (
    "company",
    "school",
    "artist",
    "athlete",
    "politician",
    "transport",
    "building",
    "nature",
    "village",
    "animal",
    "plant",
    "album",
    "film",
    "book",
)
"""Its classes, in the order of their numbers."""

FAMILIES = {
    "hsvae+prior.alpha=1": ("hsvae, Beta(1, 4)", COLOURS[6], "^"),
    "hsvae": ("hsvae, Beta(4, 1)", COLOURS[1], "^"),
    "mat-vae": ("mat-vae", COLOURS[2], "s"),
    "vae-dense+objective.kl_weight=0.2": ("vae-dense, KL weight 0.2", COLOURS[4], "o"),
    "vae-dense": ("vae-dense", COLOURS[0], "o"),
    "vae-l": ("vae-l1, vae-l2", COLOURS[3], "D"),
}
"""How a run is drawn, by how its name begins; the first that fits."""

HOYER = {
    "hsvae": {
        "Beta(4.5, 0.5): 0.9 off": "hsvae+prior.alpha=4.5+prior.beta=0.5",
        "Beta(20, 5): 0.8": "hsvae+prior.alpha=20+prior.beta=5",
        "Beta(4, 1): 0.8, three seeds": "hsvae",
        "Beta(2.5, 2.5): 0.5": "hsvae+prior.alpha=2.5+prior.beta=2.5",
        "Beta(1, 4): 0.2": "hsvae+prior.alpha=1+prior.beta=4",
    },
    "mat-vae and dense": {
        "mat-vae, KL 0.01, MMD 10": "mat-vae",
        "mat-vae, KL 0.01, MMD 1, three seeds": "mat-vae+objective.mmd_weight=1",
        "mat-vae, KL 0.1, MMD 10": "mat-vae+objective.kl_weight=0.1",
        "vae-l1": "vae-l1",
        "vae-dense, three seeds": "vae-dense",
    },
}
"""Runs on DBpedia by what they are called in the picture of Hoyer by epoch."""


def results(name: str) -> dict[str, Any]:
    path = FOLDER / f"sparse_{name}.json"
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def runs(*names: str) -> dict[str, Any]:
    """The runs of several files together."""
    return {key: run for name in names for key, run in results(name)["runs"].items()}


def baselines(corpus: str) -> dict[str, Any]:
    found: dict[str, Any] = results(f"baselines_{corpus}")["corpora"][corpus]
    return found


def accuracy(figure: Figure) -> None:
    """Figure 2: accuracy against reconstruction, all runs."""
    for place, (corpus, name) in enumerate(CORPORA.items()):
        axes = figure.add_subplot(1, 3, place + 1)
        seeds = ["dbpedia28k_seeds"] if corpus == "dbpedia28k" else []
        _scatter(axes, runs(corpus, *seeds), filled=True)
        _scatter(axes, runs(f"{corpus}_768"), filled=False)
        without = baselines(corpus)["measures"]
        _level(axes, "majority", without["probe_baselines"]["majority"][0])
        if corpus != "dbpedia28k":
            _level(axes, "bag of words", without["probe_baselines"]["bag_of_words"][0])
        axes.set(title=name, xlabel="reconstruction, nats a sentence")
        axes.margins(x=0.12, y=0.12)
        if place == 0:
            axes.set_ylabel("accuracy (%)")
            axes.legend(fontsize=7.5, loc="center left", title="filled: 32 dimensions, hollow: 768", title_fontsize=7.5)


def _scatter(axes: Axes, found: dict[str, Any], *, filled: bool) -> None:
    for key, run in found.items():
        measured = run.get("measures", {}).get("sampled_classifier")
        if measured is None:
            continue
        label, colour, marker = next(drawn for begins, drawn in FAMILIES.items() if key.startswith(begins))
        new = filled and label not in axes.get_legend_handles_labels()[1]
        axes.plot(
            run["test"]["reconstruction"][0],
            measured["sampled_accuracy"][0],
            marker,
            color=colour,
            fillstyle="full" if filled else "none",
            markersize=6,
            linestyle="none",
            label=label if new else None,
        )


def _level(axes: Axes, name: str, value: float) -> None:
    axes.axhline(value, color=INK, linewidth=0.8, linestyle=":")
    axes.annotate(
        name, (1, value), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=7.5, color=INK
    )


def hoyer(figure: Figure) -> None:
    """Figure 3: average Hoyer of samples and of means by epoch, DBpedia validation set."""
    found = runs("dbpedia28k", "dbpedia28k_seeds")
    floor = found["hsvae"]["measures"]["sparsity"]["hoyer_dense"][0]
    for column, (title, lines) in enumerate(HOYER.items()):
        for row, kind in enumerate(("hoyer_samples", "hoyer_means")):
            axes = figure.add_subplot(2, 2, 2 * row + column + 1)
            for colour, (label, key) in zip(COLOURS, lines.items(), strict=False):
                curves = [
                    run["by_epoch"][kind]
                    for name, run in found.items()
                    if name in (key, f"{key}+training.seed=1", f"{key}+training.seed=2")
                ]
                least = min(len(curve) for curve in curves)
                if len(curves) > 1:
                    among = np.array([curve[:least] for curve in curves])
                    axes.fill_between(range(1, least + 1), among.min(0), among.max(0), color=colour, alpha=0.2)
                axes.plot(range(1, len(curves[0]) + 1), curves[0], color=colour, label=label)
            axes.axhline(floor, color=INK, linewidth=0.8, linestyle=":")
            axes.set(ylim=(0.05, 0.72), xlim=(1, 15), ylabel=f"average Hoyer of {kind.removeprefix('hoyer_')}")
            if row == 0:
                axes.set_title(title)
                axes.legend(fontsize=7.5, loc="upper right" if column else "lower left", ncols=1 if column else 2)
                axes.annotate("dense Gaussian", (15, floor - 0.01), ha="right", va="top", fontsize=7.5, color=INK)
            else:
                axes.set_xlabel("epoch")


def classes(figure: Figure) -> None:
    """Figures 4 and 5: class-averaged gates, and the KL of classes' words."""
    gates = {
        "DBpedia, 32": runs("dbpedia28k")["hsvae"],
        "Yahoo topics, 32": runs("yahoo_topics20k")["hsvae"],
        "Yelp, 32": runs("yelp_20_200")["hsvae"],
        "Yelp, 32 of 768": runs("yelp_20_200_768")["hsvae+latent.dim=768"],
    }
    image: Any = None
    for place, (title, run) in enumerate(gates.items()):
        axes = figure.add_subplot(2, 4, place + 1)
        image = _heat(axes, run["pictures"]["class_gates"], f"off: {title}", most=1.0, names=place == 0)
        axes.set_xlabel("dimension")
    figure.colorbar(image, ax=figure.axes[:4], shrink=0.8, label="share off")
    words = {name: baselines(corpus)["class_kl"] for corpus, name in CORPORA.items()}
    most = max(value for series in words.values() for row in series.values() for value in row)
    first = len(figure.axes)
    for place, (name, series) in enumerate(words.items()):
        axes = figure.add_subplot(2, 4, 5 + place)
        image = _heat(axes, series, f"KL of words: {name}", most=most, names=place == 0)
    axes = figure.add_subplot(2, 4, 8)
    for colour, (title, run) in zip(COLOURS, list(gates.items())[:3], strict=False):
        pairs = np.array(run["pictures"]["gates_and_words"]).reshape(-1, 2)
        axes.plot(pairs[:, 0], pairs[:, 1], "o", color=colour, markersize=2.5, label=title.removesuffix(", 32"))
    axes.set(title="pairs of classes", xlabel="KL of words, nats", ylabel="distance of gates")
    axes.legend(fontsize=7.5, handletextpad=0.1)
    figure.colorbar(image, ax=figure.axes[first:], shrink=0.8, label="nats per word")


def _heat(axes: Axes, series: dict[str, list[float]], title: str, *, most: float, names: bool) -> Any:
    order = sorted(series, key=int)
    columns = len(next(iter(series.values())))
    if columns == len(order):  # classes by classes; the measure orders both as text
        places = [sorted(series).index(name) for name in order]
        values = np.array([[series[name][place] for place in places] for name in order])
    else:
        values = np.array([series[name] for name in order])
    image = axes.imshow(values, vmin=0, vmax=most, cmap="viridis", aspect="auto", interpolation="nearest")
    axes.set_title(title, fontsize=9.5)
    axes.set_yticks(range(len(order)), DBPEDIA if names else order, fontsize=7)
    axes.set_xticks([] if columns == len(order) else [0, columns - 1], None if columns == len(order) else ["1", "32"])
    return image


def kept(figure: Figure) -> None:
    """Accuracy and reconstruction when only some dimensions of each mean code are kept, DBpedia."""
    found = runs("dbpedia28k")
    shown = {
        "hsvae": ("hsvae, Beta(4, 1)", COLOURS[1]),
        "vae-dense+objective.kl_weight=0.2": ("vae-dense, KL weight 0.2", COLOURS[4]),
        "vae-dense": ("vae-dense", COLOURS[0]),
    }
    counts = (1, 2, 4, 8, 16, 32)
    labels = {"accuracy": "accuracy of a linear classifier (%)", "nats": "reconstruction, nats per token"}
    for place, (what, label) in enumerate(labels.items()):
        axes = figure.add_subplot(1, 2, place + 1)
        for key, (name, colour) in shown.items():
            numbers = found[key]["measures"]["kept_dimensions"]
            largest = [numbers[f"{what}_largest_{k}"][0] for k in counts]
            drawn = [*(numbers[f"{what}_random_{k}"][0] for k in counts[:-1]), largest[-1]]
            axes.plot(counts, largest, "o-", color=colour, markersize=4, label=f"{name}: largest")
            axes.plot(counts, drawn, "o:", color=colour, markersize=3, alpha=0.7, label=f"{name}: random")
        on = 32 * (1 - found["hsvae"]["measures"]["sparsity"]["share_off"][0])
        axes.plot(
            on,
            found["hsvae"]["measures"]["kept_dimensions"][f"{what}_on"][0],
            "*",
            color=COLOURS[1],
            markersize=11,
            label="hsvae: exactly those that are on",
        )
        axes.set_xscale("log", base=2)
        axes.set_xticks(counts, [str(k) for k in counts])
        axes.set(xlabel="dimensions kept of each sentence, of 32", ylabel=label)
        if place == 0:
            axes.legend(fontsize=7.5)


PICTURES: dict[str, tuple[Callable[[Figure], None], tuple[float, float]]] = {
    "accuracy": (accuracy, (10.0, 3.6)),
    "hoyer": (hoyer, (10.0, 5.6)),
    "classes": (classes, (11.0, 5.4)),
    "kept": (kept, (10.0, 3.8)),
}


def main() -> None:
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "docs")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE):
        for name, (draw, size) in PICTURES.items():
            figure = Figure(figsize=size, layout="constrained")
            FigureCanvasAgg(figure)
            draw(figure)
            figure.savefig(given.out / f"sparse-{name}.png", dpi=100)


if __name__ == "__main__":
    main()
