"""Recipes on a corpus, one run each, several side by side: KL, information and cost by epoch, and any measures.

    python -m benchmarks.remedies CORPORA vae vae-max-pool --corpus ptb --epochs 14 --together 8 --out FOLDER
    python -m benchmarks.remedies CORPORA smim svae+training.seed=1 --sizes own --measures melbo --out FOLDER

A recipe may carry settings, `pretrain-free-bits+objective.free_bits.target=8`. Encoder and decoder have the sizes that
the papers use on the corpus unless told otherwise. Test numbers come from the weights that were best on validation. A
run that has not ended when `--minutes` are over is stopped, its epochs so far are recorded, and the same command goes
on with it. Tables of the papers have a command of their own, `textspace papers run`, whose runs these are.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.results import record
from textspace.config import Recipe
from textspace.recipes import recipe, sized
from textspace.reproduce.job import NUMBERS, Job, read_json
from textspace.reproduce.run import collected, command_of, ready_beside
from textspace.reproduce.side_by_side import side_by_side

SIZES_OF = {"yahoo20k": "yahoo", "yelp_long": "yahoo", "flickr30k": "captions", "yelp_short": "captions"}


def chosen(written: str, given: argparse.Namespace) -> Recipe:
    name, *settings = written.split("+")
    sizes = given.sizes or ("own" if name == "default" else SIZES_OF.get(given.corpus, "ptb"))
    found = recipe(name) if sizes == "own" else sized(recipe(name), sizes)
    found = found.but({"training.epochs": given.epochs, "training.seed": given.seed})
    precision = ["training.precision=tf32"] if given.tf32 else []
    return found.with_settings([*precision, *given.set, *settings])


def job(written: str, given: argparse.Namespace) -> Job:
    return Job(
        recipe=chosen(written, given),
        source=given.source or str(given.corpora / given.corpus),
        samples=given.samples,
        label=given.label,
        measures=tuple(given.measures),
        effort={"sentences": 4_000, "decoded": given.decoded, "prior_samples": given.prior_samples},
        tasks=str(given.tasks) if given.tasks else None,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", type=Path, help="the folder that holds the corpora")
    parser.add_argument("recipes", nargs="+")
    parser.add_argument("--corpus", default="ptb", help="a folder in CORPORA; its name also chooses the sizes")
    parser.add_argument("--source", help="instead of that folder: any other source")
    parser.add_argument("--label", type=int, help="column of the classes, from 1, for measures that need them")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--samples", type=int, default=100, help="of the importance-weighted bound")
    parser.add_argument("--together", type=int, default=8, help="runs side by side")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", nargs="*", default=[])
    parser.add_argument("--tf32", action="store_true", help="train (and never measure) with TF32")
    parser.add_argument("--sizes", help="of encoder and decoder: ptb, captions, yahoo, or own for the recipe's")
    parser.add_argument("--measures", nargs="*", default=[], help="of `textspace evaluate --list`, on the test split")
    parser.add_argument("--decoded", type=int, default=1_000, help="sentences that measures decode")
    parser.add_argument("--prior-samples", type=int, default=500, help="a tenth of the mixture that `melbo` takes")
    parser.add_argument("--tasks", type=Path, help="folder with the files of tasks")
    parser.add_argument("--name", default="remedies")
    given = parser.parse_args()
    options = sys.argv[sys.argv.index(given.recipes[-1]) + 1 :]  # recipes come before them
    names = {written: written.replace("/", "_") for written in given.recipes}
    jobs = {name: job(written, given) for written, name in names.items()}
    missing = {name: each for name, each in jobs.items() if not each.is_done(read_json(given.out / name / NUMBERS))}
    for name, each in missing.items():
        each.write(given.out / name)
    ended = side_by_side(
        {name: command_of(given.out / name) for name in missing},
        given.out,
        together=given.together,
        minutes=given.minutes,
        ready=ready_beside(missing, given.out),
    )
    failed = {each.name: f"{each.how}: {each.said}" for each in ended if each.how != "done"}
    found = {written: collected(given.out / name) for written, name in names.items()}
    written_command = " ".join([*given.recipes, *options]).replace(str(given.out), "FOLDER")
    record(
        f"{given.name}_{given.corpus}",
        f"python -m benchmarks.remedies CORPORA {written_command}",
        {"epochs": given.epochs, "together": given.together, "runs": found, "not_ended": failed},
        given.out,
    )


if __name__ == "__main__":
    main()
