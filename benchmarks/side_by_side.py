"""Training steps per second of several runs on one GPU at once, alone and together.

    nvidia-cuda-mps-control -d
    python -m benchmarks.side_by_side CORPORA --corpus ptb --sizes ptb --together 1 8 16 --out FOLDER

Each run is a process. All of them train until the last has recorded its steps, and the clock runs for all at the same
time. As in `textspace papers run`, the first eight have LSTM layers of our own in bf16; `--own-layers` asks for others.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.results import record
from textspace.data.corpus import open_corpus
from textspace.data.preparing import prepare
from textspace.model import Model
from textspace.recipes import recipe, sized
from textspace.recurrence import PROCESSES, SIDE_BY_SIDE
from textspace.schedules import Progress
from textspace.train.loop import Trainer
from textspace.train.updates import Turn

AT_ONCE = 10
"""Steps between two looks at the clock."""


def train(given: argparse.Namespace) -> float:
    """Steps per second of one run, once all are warm."""
    chosen = sized(recipe(given.recipe), given.sizes).with_settings(given.set)
    prepared = prepare(open_corpus(given.corpora / given.corpus, normalise=chosen.text.normalise), chosen)
    splits, model = prepared.encoded.splits, Model(chosen, len(prepared.tokenizer))
    trainer = Trainer(chosen, model, splits["train"], splits["valid"], given.worker, silent=True)
    trainer.model.train()
    done = 0

    def steps(count: int) -> None:
        nonlocal done
        for _ in range(count):
            trainer.update(trainer.stream.next_batch, Turn(done, Progress(0, 0.0), 0.01))
            done += 1
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    steps(given.warm)
    (given.worker / "warm").touch()
    while not (given.worker.parent / "go").exists():
        steps(AT_ONCE)
    began, first = time.perf_counter(), done
    while time.perf_counter() - began < given.seconds:
        steps(AT_ONCE)
    return (done - first) / (time.perf_counter() - began)


def together(count: int, own_layers: int) -> list[float]:
    """Steps per second of each of so many runs, of which some have LSTM layers of our own."""
    with tempfile.TemporaryDirectory() as name:
        folder, workers = Path(name), []
        for index in range(count):
            (folder / str(index)).mkdir()
            environment = {"OMP_NUM_THREADS": "1"} | os.environ
            environment[SIDE_BY_SIDE] = str(min(count, PROCESSES) if index < own_layers else 0)
            again = [*sys.argv[1:], "--worker", str(folder / str(index))]
            command = [sys.executable, "-m", "benchmarks.side_by_side", *again]
            workers.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment))
        while len(list(folder.glob("*/warm"))) < count:
            if any(worker.poll() for worker in workers):
                for worker in workers:
                    worker.kill()
                break
            time.sleep(0.05)
        (folder / "go").touch()
        told = [worker.communicate()[0] for worker in workers]
        if any(worker.returncode for worker in workers):
            sys.exit("a run failed: see above")
        return [float(each) for each in told]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", type=Path)
    parser.add_argument("--corpus", default="ptb")
    parser.add_argument("--recipe", default="vae")
    parser.add_argument("--sizes", default="ptb", help="ptb, captions or yahoo")
    parser.add_argument("--set", nargs="*", default=["training.precision=bf16"])
    parser.add_argument("--together", type=int, nargs="*", default=[1, 8, 16])
    parser.add_argument("--own-layers", type=int, default=PROCESSES, help=f"of how many runs, at most {PROCESSES}")
    parser.add_argument("--warm", type=int, default=250, help="steps before the clock runs")
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.own_layers > PROCESSES:
        parser.error(f"programs of more than {PROCESSES} runs may wait for each other for ever")
    if given.worker is not None:
        print(train(given))
        return
    found = {count: together(count, given.own_layers) for count in given.together}
    first = sum(next(iter(found.values())))
    record(
        f"side_by_side_{given.recipe}_{given.corpus}_{given.own_layers}_own_layers",
        f"python -m benchmarks.side_by_side CORPORA --corpus {given.corpus} --recipe {given.recipe} "
        f"--sizes {given.sizes} --set {' '.join(given.set)} --together {' '.join(map(str, given.together))} "
        f"--own-layers {given.own_layers} --warm {given.warm} --seconds {given.seconds:g} --out FOLDER",
        {
            "steps_per_second": {str(count): round(sum(each)) for count, each in found.items()},
            "of_each_run": {str(count): [round(one) for one in sorted(each)] for count, each in found.items()},
            "ratio_to_the_first": {str(count): round(sum(each) / first, 2) for count, each in found.items()},
        },
        given.out,
    )


if __name__ == "__main__":
    main()
