"""What the width of the prior does to codes of tokens, with the posterior's noise and with that of the VAT paper.

    python -m benchmarks.prior_width builtin:20000 --scales 0.4 1.0 --epochs 12 --out FOLDER

Codes and the prior's deviation s can be scaled together without changing anything, so that s should not matter. The
paper's codes are mean + s x deviation x noise while its KL is that of the deviation itself (prior.noise=scale): its
means then cost s^2 of what they should, beside the noise that they must drown out. Both are trained here, side by side,
with the KL's full weight, and recorded epoch by epoch on the validation split, each with its own noise. With `scaled`
noise `kl` is that of the loss, and `kl_of_codes` that of the codes drawn. Exact copies are decoded from means.
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.results import record
from textspace.reproduce.side_by_side import side_by_side

NOISES = {"posterior": "standard", "scaled": "scale"}
"""What results call them, and what the recipe's prior.noise does."""


def train_one(given: argparse.Namespace, scale: float, noise: str, weight: float) -> None:
    """Train a recipe with one width and kind of noise."""
    from textspace.data.corpus import open_corpus
    from textspace.recipes import recipe
    from textspace.space import Space
    from textspace.train.fit import train

    changes = {"prior.scale": scale, "prior.noise": NOISES[noise], "objective.kl_weight.end": weight}
    changes["training.epochs"] = given.epochs
    chosen = recipe(given.recipe).but(changes).with_settings(given.set)
    folder = given.out / run_name(scale, noise, weight)
    train(given.source, chosen, folder, silent=True, curves=False)
    texts = [each.text for each in islice(open_corpus(given.source).splits["test"], 400)]
    copies = sum(one == other for one, other in zip(texts, Space.load(folder).reconstruct(texts), strict=True))
    (folder / "copies.json").write_text(json.dumps(copies / len(texts)))


def run_name(scale: float, noise: str, weight: float) -> str:
    return f"s={scale:g} noise={noise} weight={weight:g}"


def found_in(folder: Path) -> dict[str, Any]:
    """What each validation found, and the share of test sentences that come back as they were."""
    if not (folder / "copies.json").exists():
        return {}
    lines = (json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines() if '"validation"' in line)
    names = "epoch", "step", "reconstruction", "kl", "active_units"
    epochs = []
    for line in lines:
        if line["event"] == "validation":
            epochs.append({name: round(line[name], 3) for name in names})
            if "kl_printed" in line:
                epochs[-1] |= {"kl": round(line["kl_printed"], 3), "kl_of_codes": round(line["kl"], 3)}
    return {"exact_copies": json.loads((folder / "copies.json").read_text()), "epochs": epochs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("--recipe", default="vat-small")
    parser.add_argument("--scales", type=float, nargs="+", default=[0.4, 1.0])
    parser.add_argument("--noises", nargs="+", choices=list(NOISES), default=list(NOISES))
    parser.add_argument("--weights", type=float, nargs="+", default=[1.0], help="where the KL's weight ends")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--set", nargs="*", default=[])
    parser.add_argument("--together", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        train_one(given, float(given.worker[0]), given.worker[1], float(given.worker[2]))
        return
    runs = [(scale, noise, weight) for scale in given.scales for noise in given.noises for weight in given.weights]
    same = [sys.executable, "-m", "benchmarks.prior_width", *sys.argv[1:], "--worker"]
    commands = {run_name(*run): [*same, *map(str, run)] for run in runs}
    ended = side_by_side(commands, given.out, together=given.together, minutes=given.minutes)
    failed = {each.name: f"{each.how}: {each.said}" for each in ended if each.how != "done"}
    options = " ".join(sys.argv[1:]).replace(str(given.out), "FOLDER")
    found = {run_name(*run): found_in(given.out / run_name(*run)) for run in runs}
    record(
        f"prior_width_{given.recipe}",
        f"python -m benchmarks.prior_width {options}",
        {"runs": found, "not_ended": failed},
        given.out,
    )


if __name__ == "__main__":
    main()
