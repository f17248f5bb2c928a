"""Recipes on a corpus, one run each, several side by side: KL, information and cost by epoch, and any measures.

    python -m benchmarks.remedies CORPORA vae vae-max-pool --corpus ptb --epochs 14 --together 8 --out FOLDER
    python -m benchmarks.remedies CORPORA smim svae+training.seed=1 --sizes own --measures melbo --out FOLDER

A recipe may carry settings, `pretrain-free-bits+objective.free_bits.target=8`. Encoder and decoder have the sizes that
the papers use on the corpus unless told otherwise. Test numbers come from the weights that were best on validation. A
run that has not ended when `--minutes` are over is stopped, and its epochs so far are recorded.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.results import record
from benchmarks.side_by_side import run_side_by_side
from textspace.config import Recipe
from textspace.recipes import recipe, sized

if TYPE_CHECKING:
    from textspace.space import Space

SIZES_OF = {"yahoo20k": "yahoo", "yelp_long": "yahoo", "flickr30k": "captions", "yelp_short": "captions"}
CURVES = (
    "elbo",
    "dual_elbo",
    "mim",
    "reconstruction",
    "kl",
    "dual_kl",
    "mi",
    "active_units",
    "feature_cosine",
    "hoyer_samples",
    "hoyer_means",
    "marginal_kl",
)
TEST = (*CURVES, "nll", "nll_ppl_word", "effective_samples", "mi_leave_one_out")


def chosen(written: str, given: argparse.Namespace) -> Recipe:
    name, *settings = written.split("+")
    sizes = given.sizes or ("own" if name == "default" else SIZES_OF.get(given.corpus, "ptb"))
    found = recipe(name) if sizes == "own" else sized(recipe(name), sizes)
    found = found.but({"training.epochs": given.epochs, "training.seed": given.seed})
    return found.with_settings([*given.set, *settings])


def filename(written: str) -> str:
    return written.replace("/", "_")


def work(written: str, given: argparse.Namespace) -> None:
    """Train one recipe and write what it measured beside its run."""
    import torch

    from textspace.data.corpus import open_corpus
    from textspace.data.options import ReadOptions
    from textspace.evaluate.likelihood import likelihood
    from textspace.evaluate.posterior import posterior_statistics
    from textspace.space import Space
    from textspace.train.fit import prepare, train

    source = given.source or str(given.corpora / given.corpus)
    folder = given.out / filename(written)
    mine = chosen(written, given)
    if given.tf32:
        torch.set_float32_matmul_precision("high")
    options = ReadOptions(label=given.label)
    trained = train(source, mine, folder, options=options, silent=True, curves=False)
    torch.set_float32_matmul_precision("highest")
    space = Space.load(folder)
    corpus = open_corpus(source, options=options, normalise=mine.text.normalise)
    test = prepare(corpus, mine, tokenizer=space.tokenizer).encoded.splits["test"]
    began = time.monotonic()
    estimates = likelihood(space.model, test, samples=given.samples).estimates()
    statistics = posterior_statistics(space.model, test)
    estimates |= statistics.estimates() if statistics else {}
    numbers: dict[str, Any] = {
        "test": {name: [estimates[name].value, estimates[name].stderr] for name in TEST if name in estimates},
        "test_names": {name: estimates[name].name for name in TEST if name in estimates},
        "seconds": trained.seconds,
        "seconds_to_score": time.monotonic() - began,
        "steps": trained.steps,
        "epochs": trained.epochs,
        "encoder_updates": trained.encoder_updates,
        "decoder_updates": trained.decoder_updates,
        "parameters": trained.parameters,
        "stopped": trained.stopped,
        "pretraining": space.metrics.get("pretraining"),
        "samples": space.sample(4),
    }
    if space.model.posterior is not None:
        texts = [test.text(row) for row in range(min(200, len(test)))]
        copies = space.reconstruct(texts)
        numbers["exact_copies"] = sum(a == b for a, b in zip(texts, copies, strict=True)) / len(texts)
        numbers["copies"] = list(zip(texts[:3], copies[:3], strict=True))
    (folder / "numbers.json").write_text(json.dumps(numbers))
    if given.measures:
        numbers |= measured(space, source, folder, given)
        (folder / "numbers.json").write_text(json.dumps(numbers))


def measured(space: Space, source: str, folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """What the measures asked for find; the whole report stays beside the run."""
    from textspace.data.options import ReadOptions
    from textspace.evaluate.measure import Effort
    from textspace.evaluate.registry import measures_named
    from textspace.evaluate.subjects import subject_of
    from textspace.evaluate.suite import evaluate

    effort = Effort(
        importance_samples=given.samples, sentences=4_000, decoded=given.decoded, prior_samples=given.prior_samples
    )
    options = ReadOptions(label=given.label)
    subject = subject_of(space, source, effort=effort, folder=folder, options=options, task_files=given.tasks)
    report = evaluate(subject, measures_named(given.measures), cache=folder / "measured")
    report.save(folder / "report")
    return {
        "measures": {
            name: {key: [each.value, each.stderr] for key, each in entry.findings.estimates.items()}
            for name, entry in report.entries.items()
        },
        "seconds_to_measure": {name: entry.seconds for name, entry in report.entries.items()},
        "not_measured": report.skipped,
    }


def collected(written: str, given: argparse.Namespace) -> dict[str, Any]:
    folder = given.out / filename(written)
    found: dict[str, Any] = {}
    if (folder / "numbers.json").exists():
        found = json.loads((folder / "numbers.json").read_text())
    if (folder / "steps.jsonl").exists():
        lines = (
            json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines() if '"validation"' in line
        )
        validations = [line for line in lines if line["event"] == "validation"]
        found["by_epoch"] = {
            name: [round(line[name], 3) for line in validations] for name in CURVES if name in (validations or [{}])[0]
        }
        found["seconds_by_epoch"] = [round(line["seconds"], 1) for line in validations]
    return found


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
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        work(given.recipes[0], given)
        return
    options = sys.argv[sys.argv.index(given.recipes[-1]) + 1 :]  # recipes come before them
    worker = [sys.executable, "-m", "benchmarks.remedies", str(given.corpora)]
    commands = {filename(written): [*worker, written, *options, "--worker"] for written in given.recipes}
    failed = run_side_by_side(commands, given.out, together=given.together, minutes=given.minutes)
    found = {written: collected(written, given) for written in given.recipes}
    written_command = " ".join([*given.recipes, *options]).replace(str(given.out), "FOLDER")
    record(
        f"{given.name}_{given.corpus}",
        f"python -m benchmarks.remedies CORPORA {written_command}",
        {"epochs": given.epochs, "together": given.together, "runs": found, "not_ended": failed},
        given.out,
    )


if __name__ == "__main__":
    main()
