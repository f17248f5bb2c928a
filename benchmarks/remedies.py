"""Remedies against collapse, one short run each, several side by side: what each does to KL, information and cost.

    python -m benchmarks.remedies CORPORA vae vae-max-pool --corpus ptb --epochs 14 --together 8 --out FOLDER

A recipe may carry settings, `pretrain-free-bits+objective.free_bits.target=8`. Encoder and decoder have the sizes that
the papers use on the corpus. Test numbers come from the weights that were best on validation. A run that has not ended
when `--minutes` are over is stopped, and its epochs so far are recorded.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.results import record
from textspace.config import Recipe
from textspace.recipes import recipe, sized

SIZES_OF = {"yahoo20k": "yahoo", "yelp_long": "yahoo", "flickr30k": "captions", "yelp_short": "captions"}
CURVES = ("elbo", "dual_elbo", "reconstruction", "kl", "dual_kl", "mi", "active_units", "feature_cosine", "marginal_kl")
TEST = (*CURVES, "nll", "nll_ppl_word", "effective_samples", "mi_leave_one_out")


def chosen(written: str, given: argparse.Namespace) -> Recipe:
    name, *settings = written.split("+")
    found = recipe(name) if name == "default" else sized(recipe(name), SIZES_OF.get(given.corpus, "ptb"))
    settings += given.set
    return found.with_settings(settings).but({"training.epochs": given.epochs, "training.seed": given.seed})


def work(written: str, given: argparse.Namespace) -> None:
    """Train one recipe and write what it measured beside its run."""
    from textspace.data.corpus import open_corpus
    from textspace.evaluate.likelihood import likelihood
    from textspace.evaluate.posterior import posterior_statistics
    from textspace.space import Space
    from textspace.train.fit import prepare, train

    source = given.source or str(given.corpora / given.corpus)
    folder = given.out / written.replace("/", "_")
    mine = chosen(written, given)
    trained = train(source, mine, folder, silent=True, curves=False)
    space = Space.load(folder)
    corpus = open_corpus(source, normalise=mine.text.normalise)
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
        texts = [test.text(row) for row in range(200)]
        copies = space.reconstruct(texts)
        numbers["exact_copies"] = sum(a == b for a, b in zip(texts, copies, strict=True)) / len(texts)
        numbers["copies"] = list(zip(texts[:3], copies[:3], strict=True))
    (folder / "numbers.json").write_text(json.dumps(numbers))


def collected(written: str, given: argparse.Namespace) -> dict[str, Any]:
    folder = given.out / written.replace("/", "_")
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
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--samples", type=int, default=100, help="of the importance-weighted bound")
    parser.add_argument("--together", type=int, default=8, help="runs side by side")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", nargs="*", default=[])
    parser.add_argument("--name", default="remedies")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        work(given.recipes[0], given)
        return
    given.out.mkdir(parents=True, exist_ok=True)
    options = sys.argv[sys.argv.index(given.recipes[-1]) + 1 :]  # recipes come before them
    waiting, running = list(given.recipes), {}
    failed: dict[str, str] = {}
    deadline = time.monotonic() + 60 * given.minutes
    while waiting or running:
        while waiting and len(running) < given.together:
            written = waiting.pop(0)
            log = open(given.out / f"{written.replace('/', '_')}.log", "w")  # noqa: SIM115 (the process owns it)
            command = [sys.executable, "-m", "benchmarks.remedies", str(given.corpora), written, *options, "--worker"]
            running[written] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        time.sleep(0.5)
        for written, process in list(running.items()):
            if time.monotonic() > deadline:
                process.kill()
                waiting.clear()
            if process.poll() is not None:
                if process.returncode:
                    failed[written] = (given.out / f"{written.replace('/', '_')}.log").read_text()[-400:]
                del running[written]
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
