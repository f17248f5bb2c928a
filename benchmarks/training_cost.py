"""Whether a token costs the same in training on a large corpus as on a small one, and in long sentences as in short.

    python -m benchmarks.training_cost
    python -m benchmarks.training_cost --sizes 10000 1000000 --joined 1 2 4 8

Steps of the `default` recipe in alternating rounds, with the same vocabulary for all: on generated corpora of several
sizes, and on one corpus of which so many sentences at a time are joined into one. Ratios are to the first of each kind.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from benchmarks.limits import load
from benchmarks.results import FOLDER, record
from benchmarks.text_pipeline import peak_mb
from benchmarks.trainer_overhead import ratios, trainer_rates
from textspace.config import Recipe
from textspace.data.corpus import open_corpus
from textspace.data.english import english
from textspace.data.preparing import Prepared, prepare
from textspace.recipes import recipe
from textspace.train.processes import Processes

JOINED_SENTENCES = 6400
"""How many are there to be joined: enough for the steps of a round when eight make one."""


def generated(chosen: Recipe, sentences: int, joined: int, like: Prepared | None, folder: Path) -> Prepared:
    """Generated text in a file, and ready for training with the tokenizer of another."""
    path = folder / f"{sentences} {joined}.txt"
    texts = (sentence.text for sentence in english().sample(sentences * joined, seed=1))
    with open(path, "w") as file:
        file.writelines(f"{' '.join(own)}\n" for own in zip(*[texts] * joined, strict=True))
    return prepare(open_corpus(str(path)), chosen, tokenizer=None if like is None else like.tokenizer)


def costs(chosen: Recipe, texts: dict[str, Prepared], rounds: int) -> list[dict[str, Any]]:
    """Tokens/s on each text in alternating rounds, and as ratios to the first."""
    processes = Processes("cpu")
    for prepared in texts.values():  # warm up
        trainer_rates(chosen, prepared, processes)
    found = [{name: trainer_rates(chosen, each, processes) for name, each in texts.items()} for _ in range(rounds)]
    first = next(iter(texts))
    return [
        {
            "text": name,
            "sentences": len(prepared.encoded.splits["train"]),
            "mean_tokens": round(float(prepared.encoded.splits["train"].lengths.mean()) - 1, 1),
            "tokens_per_second": round(statistics.median(each[name].clock for each in found)),
            "tokens_per_processor_second": round(statistics.median(each[name].processor for each in found)),
            "to_the_first": ratios([(each[name], each[first]) for each in found]),
        }
        for name, prepared in texts.items()
    ]


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 1_000_000], help="sentences, ascending")
    parser.add_argument("--joined", type=int, nargs="+", default=[1, 2, 4, 8], help="sentences that make one")
    parser.add_argument("--steps", type=int, default=20, help="of a round")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, default=FOLDER)
    given = parser.parse_args(arguments)
    chosen = recipe("default").but({"training.steps": given.steps, "training.checkpoint_every": None})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        by_size: dict[str, Prepared] = {}
        for size in reversed(given.sizes):
            like = next(iter(by_size.values()), None)
            by_size[f"{size:,} sentences"] = generated(chosen, size, 1, like, folder)
        by_size = dict(reversed(by_size.items()))
        like = next(iter(by_size.values()))
        by_length = {
            f"{joined} joined": generated(chosen, JOINED_SENTENCES // max(given.joined), joined, like, folder)
            for joined in given.joined
        }
        numbers = {
            "recipe": "default",
            "vocabulary": len(like.tokenizer),
            "sentences_of_a_batch": chosen.training.batch.sentences,
            "by_size": costs(chosen, by_size, given.rounds),
            "by_length": costs(chosen, by_length, given.rounds),
            "peak_mb": peak_mb(),
            "threads": torch.get_num_threads(),
            "load": load(),
            "aim": "ratios near 1",
        }
    record("training_cost", " ".join(["python -m benchmarks.training_cost", *arguments]), numbers, given.out)


if __name__ == "__main__":
    main(sys.argv[1:])
