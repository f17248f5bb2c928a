"""The `default` recipe on a CPU: training against a bare loop, time to a stated quality, and encoding.

    python -m benchmarks.cpu
    python -m benchmarks.cpu --corpus yelp_short --label 1 --per-class 10000 --baseline all-MiniLM-L6-v2

Of each corpus: tokens/s of the trainer and of a bare loop in alternating rounds (see `trainer_overhead`); the
validation curve by seconds of a run of some epochs, validations and checkpoints included, and when it first came within
a share of its lowest validation; sentences/s of the space it made and of an encoder of Hugging Face, on the same
sentences in alternating rounds. Operations are counted and stand beside what the machine does in products of large
matrices in the same run; the load of the machine stands beside everything.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.utils.rnn import pad_sequence

from benchmarks.limits import TRAINING, load, machine_rates, network_operations, operations, step_bytes
from benchmarks.results import FOLDER, record
from benchmarks.trainer_overhead import Rates, overhead, ratios, timed
from textspace.config import PretrainedEncoder as PretrainedEncoderConfig
from textspace.config import SimplePooling as SimplePoolingConfig
from textspace.data.batching import batches_by_length
from textspace.data.corpus import ReadOptions, open_corpus
from textspace.data.preparing import prepare
from textspace.encoders import PretrainedEncoder
from textspace.pooling import SimplePooling
from textspace.pretrained import EncoderFiles
from textspace.recipes import recipe
from textspace.space import Space
from textspace.train.fit import train
from textspace.train.log import records
from textspace.train.processes import Processes
from textspace.types import View

BUILTIN = "builtin:20000"
WITHIN = 0.02
"""The stated quality: so close to the run's lowest validation."""
BUDGETS = (2**9, 2**11, 2**13)
"""Tokens of a batch of the other encoder; the fastest is taken."""


# Training


def to_quality(curve: Sequence[dict[str, Any]], name: str, within: float) -> dict[str, Any]:
    """When a validation number, the lower the better, was first within a share of its lowest.

    >>> curve = [{"elbo": 60.0, "seconds": 5}, {"elbo": 40.5, "seconds": 9}, {"elbo": 40.0, "seconds": 13}]
    >>> to_quality(curve, "elbo", 0.02)["seconds"]
    9
    """
    lowest = min(line[name] for line in curve)
    limit = lowest * (1 + within)
    reached = next(line for line in curve if line[name] <= limit)
    stated = f"validation {name} at most {100 * within:g} percent above the run's lowest"
    return {"quality": stated, "lowest": lowest, "limit": limit, **reached}


def trained(source: str, options: ReadOptions, epochs: int, steps: int, rounds: int, folder: Path) -> dict[str, Any]:
    """What training `default` on a source costs; the space is left in the folder."""
    chosen = recipe("default").but({"training.epochs": epochs})
    processes = Processes("cpu")
    corpus = open_corpus(source, options, normalise=chosen.text.normalise)
    prepared = prepare(corpus, chosen)
    speed = overhead(chosen, prepared, processes, steps, rounds)
    before, began, used = load(), time.perf_counter(), time.process_time()
    run = train(corpus, chosen, folder, device="cpu", silent=True, curves=False)
    share = (time.process_time() - used) / (time.perf_counter() - began)
    space = Space.load(folder, "cpu")
    split = prepared.encoded.splits["train"]
    tokens = int((split.lengths - 1).sum())
    encoding, decoding = operations(space.model)
    words = float(split.lengths.mean()) - 2
    forward = (encoding.sentence(words + 2) + decoding.sentence(words + 1)) / (words + 1)
    parameters = sum(space.model.parameter_counts().values())
    curve = [
        {name: round(line[name], 3) for name in ("seconds", "epoch", "elbo", "reconstruction", "kl")}
        for line in records(folder / "steps.jsonl", "validation")
    ]
    reached = to_quality(curve, "elbo", WITHIN)
    return {
        "sentences": len(split),
        "vocabulary": len(prepared.tokenizer),
        "parameters": parameters,
        "tokens_of_an_epoch": tokens,
        "speed": speed,
        "run": {
            "epochs": run.epochs,
            "seconds": round(run.seconds, 1),
            "cores_had": round(share, 2),
            "load_before": before,
            "load_after": load(),
        },
        "curve": curve,
        "time_to_quality": {
            **reached,
            "seconds_of_the_steps_on_a_free_core": {
                name: round(reached["epoch"] * tokens / rate, 1)
                for name, rate in speed["tokens_per_processor_second"].items()
            },
        },
        "operations_per_token": round(TRAINING * forward),
        "bytes_per_token_of_adam": round(step_bytes(parameters) / speed["tokens_per_step"]),
    }


# Encoding


class OtherEncoder:
    """An encoder of Hugging Face with the mean of its last layer's states, as its users run it: sentences of similar
    length together."""

    def __init__(self, model: str) -> None:
        config = PretrainedEncoderConfig(model=model)
        self.files = EncoderFiles.fetch(config)
        self.encoder = PretrainedEncoder(config).eval()
        self.pool = SimplePooling(SimplePoolingConfig(kind="mean"), self.encoder.size)

    @torch.no_grad()
    def encode(self, texts: list[str], budget: int) -> NDArray[np.float32]:
        ids = self.files.encode(texts)
        lengths = np.array([len(each) for each in ids])
        vectors_NH = np.zeros((len(texts), self.encoder.size), np.float32)
        for rows in batches_by_length(lengths, tokens=budget):
            ids_BT = pad_sequence([torch.tensor(ids[row]) for row in rows], batch_first=True)
            view = View(ids_BT, torch.from_numpy(lengths[rows]), own=False)
            vectors_NH[rows] = self.pool(self.encoder(view)).numpy()
        return vectors_NH

    def operations(self, texts: list[str]) -> float:
        """Of a sentence, on average."""
        config = self.encoder.network.config
        counts = [len(each) for each in self.files.encode(texts)]
        sizes = config.num_hidden_layers, config.hidden_size
        return statistics.mean(network_operations(self.encoder, *sizes, count) for count in counts)


def encoding(space: Space, texts: list[str], baseline: str | None, rounds: int) -> dict[str, Any]:
    """Sentences/s of the space, and of another encoder in alternating rounds."""
    tokens = statistics.mean(len(each) + 2 for each in space.tokenizer.encode(texts))
    per_sentence = {"space": operations(space.model)[0].sentence(tokens)}
    work: dict[str, Callable[[], object]] = {"space": lambda: space.encode(texts)}
    found: dict[str, Any] = {"sentences": len(texts), "mean_tokens": round(tokens, 1), "dimensions": space.dim}
    if baseline is not None:
        other = OtherEncoder(baseline)
        some = texts[: len(texts) // 4]
        speeds = {budget: timed(len(some), lambda b=budget: other.encode(some, b)) for budget in BUDGETS * 2}  # type: ignore[misc]
        budget = max(speeds, key=lambda each: speeds[each].processor)
        work["other"] = lambda: other.encode(texts, budget)
        per_sentence["other"] = other.operations(texts)
        found |= {
            "other_tokens_of_a_batch": budget,
            "other_parameters": sum(p.numel() for p in other.encoder.parameters()),
            "other_dimensions": other.encoder.size,
        }
    for each in work.values():  # warm up
        each()
    rates: list[dict[str, Rates]] = [
        {name: timed(len(texts), each) for name, each in work.items()} for _ in range(rounds)
    ]
    found["sentences_per_second"] = {
        name: round(statistics.median(each[name].clock for each in rates)) for name in work
    }
    found["operations_per_sentence"] = {name: round(count) for name, count in per_sentence.items()}
    found["gflops"] = {
        name: round(per_sentence[name] * statistics.median(each[name].processor for each in rates) / 1e9, 1)
        for name in work
    }
    if baseline is not None:
        found["space_to_other"] = ratios([(each["space"], each["other"]) for each in rates])
        found["operations_of_other_to_space"] = round(per_sentence["other"] / per_sentence["space"], 1)
    return found | {"threads": torch.get_num_threads(), "load": load()}


def measured(source: str, options: ReadOptions, given: argparse.Namespace) -> dict[str, Any]:
    """All of one corpus."""
    with tempfile.TemporaryDirectory() as name:
        found = trained(source, options, given.epochs, given.steps, given.rounds, Path(name))
        space = Space.load(name, "cpu")
        held_out = open_corpus(source, options, normalise=space.recipe.text.normalise).splits["valid"]
        texts = [record.text for record in held_out][: given.sentences]
        found["encoding"] = encoding(space, texts, given.baseline, given.rounds)
    print(found, flush=True)
    return found


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", help="a source of text to train on besides the built-in corpus")
    parser.add_argument("--label", type=int, help="of that source: the column of its classes, from 1")
    parser.add_argument("--per-class", type=int, help="of that source: so many sentences of each class")
    parser.add_argument("--baseline", help="a folder with an encoder of Hugging Face")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--steps", type=int, default=60, help="of a round of training")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--sentences", type=int, default=2000, help="to encode")
    parser.add_argument("--out", type=Path, default=FOLDER)
    given = parser.parse_args(arguments)
    corpora = {BUILTIN: measured(BUILTIN, ReadOptions(), given)}
    if given.corpus:
        options = ReadOptions(label=given.label, per_class=given.per_class)
        corpora[Path(given.corpus).name] = measured(given.corpus, options, given)
    shown = [Path(each).name if each in (given.corpus, given.baseline) else each for each in arguments]
    numbers = {"recipe": "default", "machine_rates": machine_rates(), "corpora": corpora}
    record("cpu", " ".join(["python -m benchmarks.cpu", *shown]), numbers, given.out)


if __name__ == "__main__":
    main(sys.argv[1:])
