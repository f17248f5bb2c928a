"""Encoding and decoding sentences/s on the CPU, time and memory per sentence of a large file, and start-up.

    python -m benchmarks.using_a_space
    python -m benchmarks.using_a_space --sizes 1 10000 100000 1000000 10000000

The space is the `default` recipe after one epoch on 5,000 built-in sentences: speed does not depend on how good it is,
except that decoding does on how long its sentences are, which is recorded.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.limits import load
from benchmarks.results import FOLDER, record
from benchmarks.text_pipeline import growths
from textspace.data.english import english

SIZES = (1, 10_000, 100_000, 1_000_000)
"""The file of one sentence shows what starting costs."""


def main(arguments: list[str]) -> None:
    import torch

    from textspace.generate import Beam, Greedy
    from textspace.space import Space

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="sentences of files, ascending")
    parser.add_argument("--out", type=Path, default=FOLDER)
    given = parser.parse_args(arguments)
    texts = [sentence.text for sentence in english().sample(4000, seed=5)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        space = Space.fit("builtin:5000", epochs=1, out=folder / "space", device="cpu")
        codes = space.encode(texts[:512])
        lengths = [len(text.split()) for text in space.decode(codes)]
        files = [_encode_file(folder, size) for size in given.sizes]
        numbers: dict[str, Any] = {
            "encode_sentences_per_second": _rate(len(texts), lambda: space.encode(texts)),
            "greedy_sentences_per_second": _rate(len(codes), lambda: space.decode(codes, method=Greedy())),
            "beam_5_sentences_per_second": _rate(len(codes), lambda: space.decode(codes, method=Beam(width=5))),
            "mean_words_of_decoded_sentences": round(statistics.mean(lengths), 1),
            "help_seconds": _start_up([sys.executable, "-m", "textspace", "--help"]),
            "bare_python_seconds": _start_up([sys.executable, "-c", "pass"]),
            "encode_a_file": files,
            "from_the_size_before": growths(files),
            "threads": torch.get_num_threads(),
            "load": load(),
            "aim": "time and memory per sentence stay flat; --help well under two seconds",
        }
    record("using_a_space", " ".join(["python -m benchmarks.using_a_space", *arguments]), numbers, given.out)


def _rate(count: int, work: Callable[[], object]) -> int:
    """Sentences per second, the median of three after a warm-up."""
    work()
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return round(count / statistics.median(seconds))


def _start_up(command: list[str]) -> float:
    seconds = []
    for _ in range(7):
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        seconds.append(time.perf_counter() - began)
    return round(statistics.median(seconds), 3)


def _encode_file(folder: Path, size: int) -> dict[str, Any]:
    """`textspace encode` on so many sentences, in a process that tells its own peak memory."""
    text = folder / f"{size}.txt"
    with open(text, "w") as file:
        file.writelines(f"{sentence.text}\n" for sentence in english().sample(size, seed=1))
    code = (
        "import sys, time; from textspace.cli import main; from benchmarks.text_pipeline import peak_mb\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(peak_mb(), time.process_time())"
    )
    began = time.perf_counter()
    codes = folder / "codes.npy"
    command = [sys.executable, "-c", code, "encode", str(folder / "space"), str(text), "--out", str(codes)]
    told = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds = time.perf_counter() - began
    peak, used = told.stdout.split()[-2:]
    found = {
        "sentences": size,
        "seconds": round(seconds, 1),
        "seconds_of_work": round(float(used), 2),
        "microseconds_of_work_per_sentence": round(1e6 * float(used) / size, 1),
        "peak_mb": float(peak),
        "load": load(),
    }
    print(json.dumps(found), flush=True)
    for each in (text, codes):
        each.unlink()
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
