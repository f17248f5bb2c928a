"""Reading, tokenising and batching generated sentences: sentences per second, and memory as the corpus grows.

Each size and tokenizer runs in a process of its own, which reports its own peak memory.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.results import record
from textspace.data.english import english

SIZES = (100_000, 1_000_000)
KINDS = ("words", "bpe")


def main() -> None:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            text = Path(folder, f"{size}.txt.gz")
            with gzip.open(text, "wt", compresslevel=1) as file:
                file.writelines(f"{sentence.text}\n" for sentence in english().sample(size, seed=1))
            for kind in KINDS:
                command = [sys.executable, "-m", "benchmarks.text_pipeline", str(text), kind]
                environment = os.environ | {"TEXTSPACE_CACHE": str(Path(folder, "cache"))}
                printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
                rows.append({"sentences": size, "tokenizer": kind, **json.loads(printed.splitlines()[-1])})
                print(rows[-1], flush=True)
    record("text_pipeline", "python -m benchmarks.text_pipeline", {"rows": rows, "aim": "memory stays flat"})


def measure(text: str, kind: str) -> dict[str, Any]:
    """One size and tokenizer, in this process."""
    from textspace.config import Recipe
    from textspace.data.batching import make_batch, plan_batches
    from textspace.data.corpus import open_corpus
    from textspace.train.fit import prepare

    recipe = Recipe().but({"text.tokenizer.kind": kind})
    before = _peak()
    began = time.perf_counter()
    corpus = open_corpus(text)
    opened = time.perf_counter()
    prepared = prepare(corpus, recipe)
    encoded = time.perf_counter()
    after_encoding = _peak()
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
        "seconds_to_plan_an_epoch": round(planned - encoded, 3),
        "microseconds_per_batch_of_32": round(1e6 * (batched - planned) / batches, 1),
        "peak_mb_before": before,
        "peak_mb_after_encoding": after_encoding,
        "peak_mb_after_batching": _peak(),
    }


def _peak() -> int:
    """MB, of this process alone: ru_maxrss would count what the parent had."""
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) // 1024


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(measure(*sys.argv[1:])))
    else:
        main()
