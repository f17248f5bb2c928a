"""The `vae` recipe on Penn Treebank: tokens per second, and validation NLL epoch by epoch against the reference run.

    python -m benchmarks.penn_treebank CORPORA --out FOLDER --seed 0 --epochs 36 --recipe vae

The reference (the public implementation that accompanies the pretrain + free-bits paper, run on one H200) takes 13 s an
epoch and stands at a validation NLL of 103 after 470 s, that is after 36 epochs.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks.results import record
from textspace.recipes import recipe
from textspace.train.fit import train
from textspace.train.log import records

REFERENCE = {"seconds_per_epoch": 13.0, "epochs": 36, "validation_nll": 103.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", type=Path, help="the folder that holds ptb/")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--recipe", default="vae")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=36)
    parser.add_argument("--set", nargs="*", default=[])
    given = parser.parse_args()
    name = f"penn_treebank_{given.recipe}_seed{given.seed}"
    space = given.out / name
    chosen = recipe(given.recipe).but({"training.seed": given.seed, "training.epochs": given.epochs})
    trained = train(given.corpora / "ptb", chosen.with_settings(given.set), space, silent=True)
    validations = list(records(space / "steps.jsonl", "validation"))
    steps = list(records(space / "steps.jsonl", "step"))
    metrics = json.loads((space / "metrics.json").read_text())
    key = "elbo" if "elbo" in validations[-1] else "nll"
    record(
        name,
        f"python -m benchmarks.penn_treebank CORPORA --out FOLDER --recipe {given.recipe} --seed {given.seed} "
        f"--epochs {given.epochs} --set {' '.join(given.set)}",
        {
            "reference": REFERENCE,
            "seconds_per_epoch": round(trained.seconds / trained.epochs, 2),
            "tokens_per_second": round(sum(line["tokens"] for line in steps) / trained.seconds),
            "validation_nll_by_epoch": [round(line[key], 3) for line in validations],
            "kl_by_epoch": [round(line["kl"], 4) for line in validations if "kl" in line],
            "seconds_by_epoch": [round(line["seconds"], 1) for line in validations],
            "best": trained.best,
            "stopped": trained.stopped,
            "parameters": trained.parameters,
            "test": {n: {"value": e["value"], "stderr": e["stderr"]} for n, e in metrics["test"].items()},
        },
        given.out,
    )


if __name__ == "__main__":
    main()
