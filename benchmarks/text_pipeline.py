"""Reading, tokenising and batching generated sentences: time and memory per sentence as the corpus grows.

    python -m benchmarks.text_pipeline
    python -m benchmarks.text_pipeline --sizes 10000 100000 1000000 10000000 --tokenizers words

Each size and tokenizer runs in a process of its own, which reports its own peak memory and processor time.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.limits import load
from benchmarks.results import FOLDER, record
from textspace.data.english import english

SIZES = (10_000, 100_000, 1_000_000)
KINDS = ("words", "bpe")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="sentences, ascending")
    parser.add_argument("--tokenizers", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--out", type=Path, default=FOLDER)
    given = parser.parse_args(arguments)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for size in given.sizes:
            text = Path(folder, f"{size}.txt.gz")
            with gzip.open(text, "wt", compresslevel=1) as file:
                file.writelines(f"{sentence.text}\n" for sentence in english().sample(size, seed=1))
            for kind in given.tokenizers:
                command = [sys.executable, "-m", "benchmarks.text_pipeline", "one", str(text), kind]
                environment = os.environ | {"TEXTSPACE_CACHE": str(Path(folder, "cache"))}
                printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
                rows.append({"sentences": size, "tokenizer": kind, **json.loads(printed.splitlines()[-1])})
                print(rows[-1], flush=True)
            text.unlink()
    shown = ["python -m benchmarks.text_pipeline", *arguments]
    growth = {kind: growths([row for row in rows if row["tokenizer"] == kind]) for kind in given.tokenizers}
    numbers = {"rows": rows, "from_the_size_before": growth, "aim": "flat in the number of sentences"}
    record("text_pipeline", " ".join(shown), numbers, given.out)


def growths(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a sentence more costs, from one size to the next: fixed costs, like those of starting, fall out.

    >>> rows = [{"sentences": 10, "seconds_of_work": 3.0, "peak_mb": 100.0}]
    >>> growths([*rows, {"sentences": 110, "seconds_of_work": 3.1, "peak_mb": 100.1}])
    [{'sentences': 110, 'microseconds_per_sentence': 1000.0, 'bytes_of_peak_memory_per_sentence': 1048.6}]
    """
    found = []
    for before, after in pairwise(rows):
        more = after["sentences"] - before["sentences"]
        seconds = (after["seconds_of_work"] - before["seconds_of_work"]) / more
        peak = (after["peak_mb"] - before["peak_mb"]) * 2**20 / more
        found.append(
            {
                "sentences": after["sentences"],
                "microseconds_per_sentence": round(1e6 * seconds, 1),
                "bytes_of_peak_memory_per_sentence": round(peak, 1),
            }
        )
    return found


def measure(text: str, kind: str) -> dict[str, Any]:
    """One size and tokenizer, in this process."""
    from textspace.config import Recipe
    from textspace.data.batching import make_batch, plan_batches
    from textspace.data.corpus import open_corpus
    from textspace.data.preparing import prepare

    recipe = Recipe().but({"text.tokenizer.kind": kind})
    before, used = peak_mb(), time.process_time()
    began = time.perf_counter()
    corpus = open_corpus(text)
    opened = time.perf_counter()
    prepared = prepare(corpus, recipe)
    encoded = time.perf_counter()
    used = time.process_time() - used
    after_encoding = peak_mb()
    train = prepared.encoded.splits["train"]
    plan = plan_batches(train.lengths, size=32, seed=0, epoch=0)
    planned = time.perf_counter()
    batches = min(len(plan), 3000)
    for i in range(batches):
        make_batch(train, plan[i])
    batched = time.perf_counter()
    return {
        "sentences_per_second_read_and_cut": round(len(train) / (opened - began)),
        "sentences_per_second_tokenizer_and_encoding": round(len(train) / (encoded - opened)),
        "seconds": round(encoded - began, 2),
        "seconds_of_work": round(used, 2),
        "microseconds_of_work_per_sentence": round(1e6 * used / prepared.corpus.report.kept, 1),
        "seconds_to_plan_an_epoch": round(planned - encoded, 3),
        "microseconds_per_batch_of_32": round(1e6 * (batched - planned) / batches, 1),
        "peak_mb_before": before,
        "peak_mb": after_encoding,
        "peak_mb_after_batching": peak_mb(),
        "load": load(),
    }


def peak_mb() -> float:
    """Of this process alone: ru_maxrss would count what the parent had."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return round(int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024, 1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        print(json.dumps(measure(*sys.argv[2:])))
    else:
        main(sys.argv[1:])
