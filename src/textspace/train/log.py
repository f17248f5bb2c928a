"""What a run writes down and shows: a line of JSON per step; a progress bar, or plain lines without a terminal."""

from __future__ import annotations

import json
import math
import os
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, cast

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from textspace.errors import TextspaceError
from textspace.files import MOST_JSON_BYTES, json_lines, open_regular, parse_json
from textspace.train.updates import Step

__all__ = ["Display", "StepLog", "records"]

FETCH_EVERY = 20
"""Steps between two fetches of numbers from the device."""


class StepLog:
    """`steps.jsonl`: one line per optimisation step, and one per validation, in order, without gap or repetition.

    Numbers of steps are held on the device and fetched together; `flush` writes them, null for those not finite.
    """

    def __init__(self, path: Path | None, keep_bytes: int, bad_steps: int = 1) -> None:
        """Continue the file after its first `keep_bytes`: what a killed run wrote past its checkpoint goes.

        Without a path nothing is written: all but the first of several processes. So many `bad_steps` in a row, which
        are not finite, are an error. Lines that are damaged are blanked, with a warning: the run does not need them.
        """
        self.path, self.bad_steps = path, bad_steps
        self._bad: list[NotFiniteError] = []
        """Those in a row up to now."""
        self._passed_over = 0
        self._held: list[tuple[dict[str, Any], Step]] = []
        if path is None:
            self._file = open(os.devnull, "ab")  # noqa: SIM115 (closed by close)
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                open_regular(path).close()  # a pipe would wait for a reader
            self._file = open(path, "ab")  # noqa: SIM115 (closed by close)
            if self._file.tell() < keep_bytes:
                raise TextspaceError(f"{path} is shorter than the checkpoint says: it was changed; train anew")
            self._file.truncate(keep_bytes)
            self._file.seek(keep_bytes)
            damaged = _blank_damage(path)
        except OSError as error:
            raise TextspaceError(f"cannot write {path}: {error.strerror or error}") from None
        if damaged:
            lines = f"line {damaged[0]}" if len(damaged) == 1 else f"{len(damaged):,} lines, the first is {damaged[0]}"
            warnings.warn(
                f"{path} was damaged ({lines}): its curves have gaps there, and the training itself loses nothing",
                stacklevel=2,
            )

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._file.tell()

    def hold(self, facts: dict[str, Any], step: Step) -> None:
        self._held.append((facts, step))

    def flush(self) -> list[dict[str, Any]]:
        """Fetch and write what is held; raises when too many steps were not finite, having written those before."""
        if not self._held:
            return []
        fetched = torch.stack([step.values for _, step in self._held]).tolist()
        held, self._held = self._held, []
        written = []
        for (facts, step), values in zip(held, fetched, strict=True):
            self._check(facts["step"], dict(zip(step.names, values, strict=True)))
            values = [value if math.isfinite(value) else None for value in values]
            line = facts | dict(zip(step.names, values, strict=True)) | {"weights": step.weights}
            line |= {"sentences": step.sentences, "tokens": step.tokens}
            self.write(line)
            written.append(line)
        return written

    def passed_over(self) -> str | None:
        """A sentence on the steps that were not finite since this was last asked, if there were any."""
        count, self._passed_over = self._passed_over, 0
        if not count:
            return None
        steps = "a step" if count == 1 else f"{count} steps"
        return f"{steps} moved nothing: not finite in 16 bits, as a gradient about to be clipped may be"

    def _check(self, step: int, values: dict[str, float]) -> None:
        bad = [name for name, value in values.items() if not math.isfinite(value)]
        if not bad:
            self._bad = []
            return
        # the loss is bad because a term is: name the term
        name = next((name for name in bad if name != "loss"), "loss")
        self._bad.append(NotFiniteError(step, name, values[name]))
        self._passed_over += 1
        if len(self._bad) >= self.bad_steps:
            raise self._bad[0]

    def write(self, line: dict[str, Any]) -> None:
        with self._sentence_for_failure():
            self._file.write(json.dumps(line).encode() + b"\n")
            self._file.flush()

    def sync(self) -> None:
        """See that all of it is on the disk."""
        with self._sentence_for_failure():
            self._file.flush()
            if self.path is not None:
                os.fsync(self._file.fileno())

    def close(self) -> None:
        with self._sentence_for_failure(), self._file:
            self.sync()

    @contextmanager
    def _sentence_for_failure(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise TextspaceError(f"could not write {self.path}: {error.strerror or error}; free some space") from None


class NotFiniteError(Exception):
    """A step whose loss or gradient was not finite."""

    def __init__(self, step: int, term: str, value: float) -> None:
        super().__init__(f"at step {step} the {term} became {value}")


def _blank_damage(path: Path) -> list[int]:
    """Replace the lines that are not JSON objects by spaces, and return their numbers, from 1.

    The file keeps its length, because checkpoints count its bytes.
    """
    damaged = []
    with open(path, "r+b") as file:
        for number, line in enumerate(iter(lambda: file.readline(MOST_JSON_BYTES), b""), start=1):
            if not _is_record(line):
                damaged.append(number)
                file.seek(-len(line), os.SEEK_CUR)
                file.write(b" " * (len(line) - 1) + b"\n")
    return damaged


def _is_record(line: bytes) -> bool:
    """Whether a line of the log can be read, or is blank."""
    try:
        return line.endswith(b"\n") and (line.isspace() or isinstance(parse_json(line.decode()), dict))
    except ValueError:
        return False


def records(path: Path, event: str) -> Iterator[dict[str, Any]]:
    """The lines of `steps.jsonl` of one kind: "step" or "validation"."""
    return (record for record in json_lines(path) if record.get("event") == event)


class _Screen:
    """Standard error for a run that goes on where it cannot be written, such as in a terminal that was closed."""

    def __init__(self) -> None:
        self._stream = sys.stderr

    def write(self, text: str) -> None:
        with suppress(OSError):
            self._stream.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Display:
    """The run as it goes: a bar in a terminal, a line now and then elsewhere, nothing when silent."""

    PLAIN_EVERY = 15.0
    """Seconds between plain lines."""

    def __init__(self, epochs: int, silent: bool = False) -> None:
        self.console = Console(file=cast(IO[str], _Screen()), stderr=True, quiet=silent or sys.stderr is None)
        self.epochs = epochs
        self._seen = time.monotonic()
        self._tokens = 0
        self._bar: Progress | None = None
        if self.console.is_terminal and not silent:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=30),
                TextColumn("{task.fields[numbers]}"),
                TimeRemainingColumn(),
                TextColumn("left at most"),
                console=self.console,
            )
            self._task = self._bar.add_task("training", total=epochs, numbers="")
            self._bar.start()

    def steps(self, lines: list[dict[str, Any]]) -> None:
        """Show the newest of some steps."""
        if not lines:
            return
        self._tokens += sum(line["tokens"] for line in lines)
        now = time.monotonic()
        if self._bar is None and now - self._seen < self.PLAIN_EVERY:
            return
        speed = self._tokens / max(now - self._seen, 1e-9)
        self._seen, self._tokens = now, 0
        line = lines[-1]
        terms = [name for name in line if (name in line["weights"] or name == "loss") and line[name] is not None]
        numbers = "  ".join(f"{name} {line[name]:.2f}" for name in terms) + f"  {speed:,.0f} tokens/s"
        if self._bar is not None:
            epoch = max(1, math.ceil(line["epoch"]))
            self._bar.update(self._task, completed=line["epoch"], numbers=numbers)
            self._bar.update(self._task, description=f"epoch {epoch}/{self.epochs}")
        else:
            self.say(f"step {line['step']}  epoch {line['epoch']:.2f}  {numbers}")

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True, markup=False)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
