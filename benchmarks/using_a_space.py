"""Encoding and decoding sentences/s on the CPU, memory while encoding a large file, and start-up of the command line.

The space is the `default` recipe after one epoch on 5,000 built-in sentences: speed does not depend on how good it is,
except that decoding does on how long its sentences are, which is recorded.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.results import record
from textspace.data.english import english

SIZES = (100_000, 1_000_000)


def main() -> None:
    from textspace.generate import Beam, Greedy
    from textspace.space import Space

    texts = [sentence.text for sentence in english().sample(4000, seed=5)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        space = Space.fit("builtin:5000", epochs=1, out=folder / "space", device="cpu")
        codes = space.encode(texts[:512])
        lengths = [len(text.split()) for text in space.decode(codes)]
        numbers: dict[str, Any] = {
            "encode_sentences_per_second": _rate(len(texts), lambda: space.encode(texts)),
            "greedy_sentences_per_second": _rate(len(codes), lambda: space.decode(codes, method=Greedy())),
            "beam_5_sentences_per_second": _rate(len(codes), lambda: space.decode(codes, method=Beam(width=5))),
            "mean_words_of_decoded_sentences": round(statistics.mean(lengths), 1),
            "help_seconds": _start_up([sys.executable, "-m", "textspace", "--help"]),
            "bare_python_seconds": _start_up([sys.executable, "-c", "pass"]),
            "encode_a_file": [_encode_file(folder, size) for size in SIZES],
            "aim": "memory stays flat; --help well under two seconds",
        }
    record("using_a_space", "python -m benchmarks.using_a_space", numbers)


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
        "import sys; from textspace.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([line for line in open('/proc/self/status') if line.startswith('VmHWM')][0].split()[1])"
    )
    began = time.perf_counter()
    command = [
        sys.executable,
        "-c",
        code,
        "encode",
        str(folder / "space"),
        str(text),
        "--out",
        str(folder / "codes.npy"),
    ]
    told = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds = time.perf_counter() - began
    found = {"sentences": size, "seconds": round(seconds, 1), "peak_mb": int(told.stdout.split()[-1]) // 1024}
    print(json.dumps(found), flush=True)
    return found


if __name__ == "__main__":
    main()
