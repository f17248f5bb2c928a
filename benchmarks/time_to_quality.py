"""How long a recipe trains until its validation likelihood is that of the reference.

    python -m benchmarks.time_to_quality CORPORA --corpus ptb --sizes ptb --target 103 --out FOLDER
    python -m benchmarks.time_to_quality CORPORA --corpus yahoo20k --sizes yahoo --target 371 --name adam \\
        --set training.optimizer.kind=adam training.optimizer.lr=0.001 training.precision=bf16 --out FOLDER

The reference is the public implementation that accompanies the pretrain + free-bits paper, run on one H200 with its own
settings: on Penn Treebank 13 s an epoch and a validation NLL of 103 after 470 s; with Yahoo's sizes 125 thousand
tokens/s. Seconds are those of training and validation together, from the first step on; those of the reference for
another target are its speed times the tokens that `vae` as it is (SGD, batches of 32) needs to get there.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks.results import record
from textspace.recipes import recipe, sized
from textspace.train.fit import train
from textspace.train.log import records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", type=Path, help="the folder that holds the corpus")
    parser.add_argument("--corpus", default="ptb")
    parser.add_argument("--recipe", default="vae")
    parser.add_argument("--sizes", default="ptb", help="ptb, captions, yahoo, or own for the recipe's")
    parser.add_argument("--target", type=float, help="validation NLL to reach, nats a sentence")
    parser.add_argument("--name", default="as-it-is", help="of these settings")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=36)
    parser.add_argument("--set", nargs="*", default=[])
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    name = f"time_to_quality_{given.corpus}_{given.recipe}_{given.name}_seed{given.seed}"
    space = given.out / name
    chosen = recipe(given.recipe) if given.sizes == "own" else sized(recipe(given.recipe), given.sizes)
    chosen = chosen.but({"training.seed": given.seed, "training.epochs": given.epochs}).with_settings(given.set)
    trained = train(given.corpora / given.corpus, chosen, space, silent=True, curves=False)
    validations = list(records(space / "steps.jsonl", "validation"))
    steps = list(records(space / "steps.jsonl", "step"))
    metrics = json.loads((space / "metrics.json").read_text())
    key = "elbo" if "elbo" in validations[-1] else "nll"
    reached = [line for line in validations if given.target is not None and line[key] <= given.target]
    record(
        name,
        f"python -m benchmarks.time_to_quality CORPORA --corpus {given.corpus} --recipe {given.recipe} --sizes "
        f"{given.sizes} --target {given.target} --name {given.name} --seed {given.seed} --epochs {given.epochs} "
        f"--set {' '.join(given.set)} --out FOLDER",
        {
            "target": given.target,
            "seconds_to_target": round(reached[0]["seconds"], 1) if reached else None,
            "epochs_to_target": reached[0]["epoch"] if reached else None,
            "seconds_per_epoch": round(trained.seconds / trained.epochs, 2),
            "tokens_per_second": round(sum(line["tokens"] for line in steps) / trained.seconds),
            "tokens_per_epoch": round(sum(line["tokens"] for line in steps) / trained.epochs),
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
