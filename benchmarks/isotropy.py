"""How wide the prior of tokens is, against how they lie, what is lost, and how varied samples are: figure 3 of VAT.

    python -m benchmarks.isotropy CORPORA --corpus wikitext2 --epochs 3 --tasks CORPORA --out FOLDER
    python -m benchmarks.isotropy CORPORA --recipe vat-small --scales 0.2 0.4 1 --source builtin:900 --out FOLDER

One run for each scale, side by side; what is not named here is an option of `benchmarks.remedies`, which trains and
measures them. Pictures (`isotropy_*.png`) and their numbers lie in FOLDER, and `--drawn` draws them once more.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.results import record
from textspace.evaluate.measures.variety import VARIANTS

Curves = dict[str, list[float | None]]

CURVES: dict[str, dict[str, tuple[str, ...]]] = {
    "cosines": {
        "random tokens": ("measures", "isotropy", "random_cosine"),
        "intra-sentence": ("measures", "isotropy", "intra_sentence"),
        "intra-sentence, tokens dealt out anew": ("measures", "isotropy", "intra_sentence_dealt"),
        "self": ("measures", "isotropy", "self_similarity"),
        "length of a code / of the prior's draws": ("measures", "isotropy", "length"),
    },
    "losses": {"reconstruction": ("test", "reconstruction"), "KL": ("test", "kl"), "both": ("test", "elbo")},
    "variety": {
        "different samples, share": ("measures", "variety", "distinct_strength_1"),
        "self-BLEU-4 / 100": ("measures", "variety", "self_bleu4_strength_1"),
        "copies": ("measures", "variety", "copies_strength_1"),
    },
}
"""The lines of each picture, and where a run of `benchmarks.remedies` has their numbers."""

UNITS = {"different samples, share": float(VARIANTS), "self-BLEU-4 / 100": 100.0}
AXES = {"cosines": "mean cosine", "losses": "nats a sentence, test", "variety": "share"}


def curves_of(runs: dict[str, Any]) -> dict[str, Curves]:
    """The numbers of each line, run by run; None where a run has none."""

    def number(run: Any, place: tuple[str, ...], unit: float) -> float | None:
        for part in place:
            run = run.get(part, {})
        return run[0] / unit if run else None

    return {
        picture: {
            line: [number(run, place, UNITS.get(line, 1.0)) for run in runs.values()] for line, place in lines.items()
        }
        for picture, lines in CURVES.items()
    }


def drawn(scales: list[float], curves: dict[str, Curves], folder: Path) -> None:
    from textspace.evaluate.measure import Picture
    from textspace.evaluate.reports.pictures import draw

    for name, lines in curves.items():
        series = {line: [float("nan") if y is None else y for y in values] for line, values in lines.items()}
        title = f"{name.capitalize()} by the prior's scale"
        picture = Picture("lines", title, series, x=scales, x_label="scale s of the prior", y_label=AXES[name])
        draw(picture).savefig(folder / f"isotropy_{name}.png", dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("corpora", help="the folder that holds the corpora")
    parser.add_argument("--recipe", default="vat")
    parser.add_argument("--scales", type=float, nargs="+", default=[0.1, 0.2, 0.4, 0.6, 1.0])
    parser.add_argument("--corpus", default="ptb", help="a folder in CORPORA")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--drawn", action="store_true", help="train nothing: draw what lies in FOLDER")
    given, others = parser.parse_known_args()
    recipes = [f"{given.recipe}+prior.scale={scale:g}" for scale in given.scales]
    if not given.drawn:
        options = ["--corpus", given.corpus, "--out", str(given.out), "--name", "isotropy_runs", "--sizes", "own"]
        measures = ["--measures", "isotropy", "variety"]
        command = [sys.executable, "-m", "benchmarks.remedies", given.corpora, *recipes, *options, *measures, *others]
        subprocess.run(command, check=True)
    runs = json.loads((given.out / f"isotropy_runs_{given.corpus}.json").read_text())["runs"]
    curves = curves_of({recipe: runs.get(recipe, {}) for recipe in recipes})
    drawn(given.scales, curves, given.out)
    places = {str(given.out): "FOLDER", given.corpora: "CORPORA"}
    written = " ".join(places.get(each, each) for each in sys.argv[1:])
    record(
        f"isotropy_{given.corpus}",
        f"python -m benchmarks.isotropy {written}",
        {"scales": given.scales, "curves": curves},
        given.out,
    )


if __name__ == "__main__":
    main()
