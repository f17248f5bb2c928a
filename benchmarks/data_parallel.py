"""Two processes against one on the CPU, and what many GPUs would have to send each other.

    python -m benchmarks.data_parallel

Steps of the `default` recipe with the same global batch: in one process, and in two of torchrun (gloo), in alternating
rounds with one thread each; and in one process with half the batch, whose processor time says what two could do if
exchanging cost nothing. Both must have the same losses. The exchange of gradients is timed inside the steps, where it
includes waiting for the other process, and by itself.

The plan for GPUs is arithmetic: parameters are counted, bytes follow from them, and links have their nominal rates.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.limits import BYTES, all_reduced_bytes, load, training_operations
from benchmarks.results import FOLDER, record
from benchmarks.trainer_overhead import timed
from textspace.config import Recipe
from textspace.data.corpus import open_corpus
from textspace.data.preparing import prepare
from textspace.model import Model
from textspace.recipes import recipe, sized
from textspace.train.log import records
from textspace.train.loop import Trainer
from textspace.train.processes import Processes

SOURCE = "builtin:20000"


# Two processes


def one_run(batch: int, steps: int) -> dict[str, Any]:
    """What this process, one of as many as there are, measures in some steps."""
    chosen = recipe("default").but(
        {"training.steps": steps, "training.batch.sentences": batch, "training.checkpoint_every": None}
    )
    processes = Processes("cpu")
    corpus = open_corpus(SOURCE)
    if processes.first:  # the other finds the cache filled
        prepare(corpus, chosen)
    processes.wait()
    prepared = prepare(corpus, chosen)
    train, valid = prepared.encoded.splits["train"], prepared.encoded.splits["valid"]
    exchange, exchanging = processes.sum_gradients, [0.0]

    def timed_exchange(*given: Any) -> Any:
        began = time.perf_counter()
        found = exchange(*given)
        exchanging[0] += time.perf_counter() - began
        return found

    processes.sum_gradients = timed_exchange  # type: ignore[assignment, method-assign]
    for _ in range(2):  # the first run warms up
        with tempfile.TemporaryDirectory() as out:
            model = Model(chosen, len(prepared.tokenizer))
            run = Trainer(chosen, model, train, valid, Path(out), processes=processes, silent=True)
            run._end_epoch = lambda: None  # type: ignore[method-assign]  # time the steps alone
            run.save = partial(_keep_losses, run)  # type: ignore[method-assign]
            tokens = sum(int((train.lengths[run.stream.plan[step]] - 1).sum()) for step in range(steps))
            exchanging[0] = 0.0
            processes.wait()
            rates = timed(steps, run.run)
            log = Path(out, "steps.jsonl")
            losses = [line["loss"] for line in records(log, "step")] if processes.first else []
    parameters = sum(p.numel() for p in model.parameters())
    return {
        "processes": processes.count,
        "batch": batch,
        "parameters": parameters,
        "tokens_per_step": tokens / steps,
        "milliseconds_per_step": 1e3 / rates.clock,
        "processor_milliseconds_per_step": 1e3 / rates.processor,
        "exchange_milliseconds_per_step": 1e3 * exchanging[0] / steps,
        "exchange_alone_milliseconds": _exchange_alone(processes, parameters),
        "losses": losses,
    }


def _keep_losses(run: Trainer) -> None:
    run.log.flush()


def _exchange_alone(processes: Processes, parameters: int, times: int = 20) -> float:
    """Milliseconds to sum as many numbers as a gradient has, nobody waiting: the median."""
    numbers, found = torch.zeros(parameters), []
    for _ in range(times):
        processes.wait()
        began = time.perf_counter()
        processes.sum(numbers)
        found.append(1e3 * (time.perf_counter() - began))
    processes.wait()  # who ends first would cut off the other
    return statistics.median(found)


def started(processes: int, batch: int, steps: int) -> dict[str, Any]:
    """The same in processes of their own; what the first tells."""
    program = ["-m", "benchmarks.data_parallel", "--one", str(batch), "--steps", str(steps)]
    several = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command = [sys.executable, *(several if processes > 1 else []), *program]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    told = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    return json.loads(next(line for line in told.splitlines() if line.startswith("{")))


def two_processes(batch: int, steps: int, rounds: int) -> dict[str, Any]:
    """Medians over rounds of one process, of two, and of one with half the batch."""
    kinds = {"one": (1, batch), "two": (2, batch), "half": (1, batch // 2)}
    found = [{name: started(*kind, steps) for name, kind in kinds.items()} for _ in range(rounds)]

    def median(kind: str, what: str) -> float:
        return round(statistics.median(each[kind][what] for each in found), 2)

    speed_ups = [each["one"]["milliseconds_per_step"] / each["two"]["milliseconds_per_step"] for each in found]
    alone = "processor_milliseconds_per_step"
    exchange = median("two", "exchange_alone_milliseconds")
    gaps = [
        abs(a - b) / abs(a) for each in found for a, b in zip(each["one"]["losses"], each["two"]["losses"], strict=True)
    ]
    parameters = found[0]["one"]["parameters"]
    return {
        "batch": batch,
        "parameters": parameters,
        "speed_up": round(statistics.median(speed_ups), 2),
        "speed_up_of_each_round": [round(each, 2) for each in speed_ups],
        "speed_up_by_processor_time": round(median("one", alone) / (median("half", alone) + exchange), 2),
        "milliseconds_per_step": {name: median(name, "milliseconds_per_step") for name in kinds},
        "processor_milliseconds_per_step": {name: median(name, alone) for name in kinds},
        "exchange_milliseconds_per_step": median("two", "exchange_milliseconds_per_step"),
        "exchange_alone_milliseconds": exchange,
        "bytes_sent_by_each_per_step": round(all_reduced_bytes(parameters, 2)),
        "largest_relative_gap_of_losses": float(f"{max(gaps):.1e}"),
        "load": load(),
    }


# Many GPUs

NVLINK, CARD = 450e9, 50e9
"""Bytes/s each way: of an H200's NVLink, and of a network card of 400 Gb/s."""
PER_MACHINE = 8
FP32 = 67e12
"""Operations/s of an H200 in float32, without tensor cores."""


class Planned(NamedTuple):
    """A recipe, its vocabulary, the tokens of a batch on each GPU, and the milliseconds that one was measured to
    compute for them, where that is known."""

    recipe: Recipe
    vocabulary: int
    tokens: int
    milliseconds: float | None = None


PLANS = {
    "vae, Penn Treebank sizes": Planned(sized(recipe("vae"), "ptb"), 10_000, 32 * 22, 2.1),
    "vae, Yahoo sizes": Planned(sized(recipe("vae"), "yahoo"), 20_000, 32 * 80),
    "vat": Planned(recipe("vat"), 2**15, 128 * 17),
}


def exchange_seconds(parameters: int, gpus: int, cards: int) -> float:
    """To sum a gradient in a ring, latencies apart: what each GPU sends over the slowest link on its way.

    Within a machine that is NVLink; between machines, all rings of a machine share its network cards.
    """
    rate = NVLINK if gpus <= PER_MACHINE else min(NVLINK, cards * CARD)
    return all_reduced_bytes(parameters, gpus) / rate


def plan_of(name: str) -> dict[str, Any]:
    """Communication of a recipe: bytes and milliseconds of a step, and how long it must compute to hide them."""
    chosen, vocabulary, tokens, measured = PLANS[name]
    with torch.device("meta"):
        model = Model(chosen, vocabulary)
    parameters = sum(model.parameter_counts().values())
    tables = {id(each.weight): each.weight.numel() for each in model.modules() if isinstance(each, torch.nn.Embedding)}
    least = 1e3 * training_operations(model) * tokens / FP32
    computing = least if measured is None else measured
    ways = {
        "2 GPUs, NVLink": (2, 0),
        "8 GPUs, NVLink": (8, 0),
        "64 GPUs, 8 cards a machine": (64, 8),
        "64 GPUs, 1 card a machine": (64, 1),
    }
    milliseconds = {way: 1e3 * exchange_seconds(parameters, *how) for way, how in ways.items()}
    return {
        "model": name,
        "vocabulary": vocabulary,
        "parameters": parameters,
        "parameters_of_parts": model.parameter_counts(),
        "share_of_embeddings": round(sum(tables.values()) / parameters, 3),
        "tokens_of_a_batch": tokens,
        "gradient_mb": round(BYTES * parameters / 1e6, 1),
        "sent_by_each_of_8_mb": round(all_reduced_bytes(parameters, 8) / 1e6, 1),
        "exchange_milliseconds": {way: round(each, 3) for way, each in milliseconds.items()},
        "least_computing_milliseconds_in_float32": round(least, 2),
        "measured_computing_milliseconds": measured,
        "efficiency_without_overlap": {
            way: round(computing / (computing + each), 2) for way, each in milliseconds.items()
        },
    }


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 128, 512], help="sentences of a global batch")
    parser.add_argument("--steps", type=int, default=20, help="of a run")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.one is not None:
        told = one_run(given.one, given.steps)
        if Processes("cpu").first:
            print(json.dumps(told))
        return
    found = [two_processes(batch, given.steps, given.rounds) for batch in given.batches]
    command = " ".join(["python -m benchmarks.data_parallel", *arguments])
    numbers = {"recipe": "default", "two_processes": found, "many_gpus": [plan_of(name) for name in PLANS]}
    record("data_parallel", command, numbers, given.out)


if __name__ == "__main__":
    main(sys.argv[1:])
