"""Training steps on a GPU: as they are, recorded, and with faster arithmetic; tokens per second and their ratio.

    python -m benchmarks.training_speed CORPORA --corpus ptb --sizes ptb --out FOLDER
    python -m benchmarks.training_speed CORPORA --corpus yahoo20k --sizes yahoo --out FOLDER

All variants run one after the other in one process on the same batches, after enough steps that every common shape has
been recorded. The time is that of whole steps: batching, copying, forward, backward and optimiser; no validation.
Kernels are those of further steps, as PyTorch's profiler sees them.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.results import record
from textspace.config import Recipe
from textspace.data.corpus import open_corpus
from textspace.data.preparing import Prepared, prepare
from textspace.model import Model
from textspace.recipes import recipe, sized
from textspace.schedules import Progress
from textspace.train.loop import Trainer
from textspace.train.updates import Turn

REFERENCE = {"ptb": 929_589 / 13, "yahoo": 125_000.0}
"""Tokens per second of the public implementation on an H200: an epoch of Penn Treebank in 13 s; as measured."""

PROFILED, LONGEST = 50, 20
"""Steps whose kernels are counted, and kernels that are told."""

VARIANTS: dict[str, dict[str, Any]] = {
    "as it is": {"training.record_steps": False},
    "recorded": {},
    "recorded, tf32": {"training.precision": "tf32"},
    "recorded, bf16": {"training.precision": "bf16"},
}


def measured(prepared: Prepared, chosen: Recipe, warm: int, steps: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as nowhere:
        model = Model(chosen, len(prepared.tokenizer))
        splits = prepared.encoded.splits
        trainer = Trainer(chosen, model, splits["train"], splits["valid"], Path(nowhere), silent=True)
        trainer.model.train()
        device = trainer.processes.device
        numbers: Iterator[int] = iter(range(warm + steps + PROFILED))

        def run(count: int) -> tuple[int, float, float]:
            _wait(device)
            began, tokens = time.perf_counter(), 0
            for _ in range(count):
                step = trainer.update(trainer.stream.next_batch, Turn(next(numbers), Progress(0, 0.0), 0.01))
                tokens += step.tokens
            asked = time.perf_counter() - began
            _wait(device)
            return tokens, time.perf_counter() - began, asked

        _, warming, _ = run(warm)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        tokens, seconds, asked = run(steps)
        shapes = len(trainer.update.recorded._replayed) if trainer.update.recorded is not None else 0
        memory = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else 0.0
        return {
            "tokens_per_second": round(tokens / seconds),
            "milliseconds_a_step": round(1000 * seconds / steps, 3),
            "milliseconds_of_the_host": round(1000 * asked / steps, 3),
            "seconds_of_the_first_steps": round(warming, 2),
            "recorded_shapes": shapes,
            "gigabytes": round(memory, 2),
            **(_kernels(lambda: run(PROFILED)) if device.type == "cuda" else {}),
        }


def _kernels(run_profiled: Callable[[], object]) -> dict[str, Any]:
    """Kernels of a step: how many, how long, and which take longest (times a step, microseconds a step)."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        run_profiled()
    kernels = sorted(profiler.key_averages(), key=lambda each: -each.self_device_time_total)
    return {
        "kernels_a_step": round(sum(each.count for each in kernels) / PROFILED),
        "milliseconds_of_kernels": round(sum(each.self_device_time_total for each in kernels) / PROFILED / 1000, 3),
        "longest_kernels": [
            [each.key[:120], round(each.count / PROFILED, 1), round(each.self_device_time_total / PROFILED, 1)]
            for each in kernels[:LONGEST]
        ],
    }


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", type=Path)
    parser.add_argument("--corpus", default="ptb")
    parser.add_argument("--recipe", default="vae")
    parser.add_argument("--sizes", default="ptb", help="ptb, captions, yahoo, or own for the recipe's")
    parser.add_argument("--set", nargs="*", default=[])
    parser.add_argument("--warm", type=int, default=400, help="steps before the clock runs")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--variants", nargs="*", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    base = recipe(given.recipe) if given.sizes == "own" else sized(recipe(given.recipe), given.sizes)
    base = base.with_settings(given.set)
    source = given.corpora / given.corpus if (given.corpora / given.corpus).exists() else given.corpus
    prepared = prepare(open_corpus(source, normalise=base.text.normalise), base)
    found = {name: measured(prepared, base.but(VARIANTS[name]), given.warm, given.steps) for name in given.variants}
    first = next(iter(found.values()))["tokens_per_second"]
    record(
        f"training_speed_{given.recipe}_{Path(given.corpus).name.split(':')[0]}",
        f"python -m benchmarks.training_speed CORPORA --corpus {given.corpus} --recipe {given.recipe} "
        f"--sizes {given.sizes} --set {' '.join(given.set)} --warm {given.warm} --steps {given.steps} "
        f"--variants {' '.join(map(repr, given.variants))} --out FOLDER",
        {
            "reference_tokens_per_second": REFERENCE.get(given.sizes),
            "variants": found,
            "ratio_to_the_first": {name: round(each["tokens_per_second"] / first, 2) for name, each in found.items()},
        },
        given.out,
    )


if __name__ == "__main__":
    main()
