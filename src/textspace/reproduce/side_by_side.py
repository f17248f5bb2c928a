"""Several processes at once on one machine, with a time limit for all of them, stopped so that they can go on."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

from textspace.recurrence import PROCESSES, SIDE_BY_SIDE

__all__ = ["Ended", "side_by_side"]

PATIENCE = 30.0
"""Seconds that processes have to save what they have once they are asked to stop."""
LOOK_EVERY = 0.2


How = Literal["done", "failed", "stopped", "not begun"]


class Ended(NamedTuple):
    """How a process ended, and what it said last."""

    name: str
    how: How
    said: str = ""


def side_by_side(
    commands: Mapping[str, Sequence[str]],
    folder: Path,
    *,
    together: int,
    minutes: float | None = None,
    ready: Callable[[str, Collection[str]], bool] = lambda name, running: True,
) -> Iterator[Ended]:
    """Run commands, so many at a time, and tell of each when it has ended.

    Processes are asked to stop with SIGTERM when the time is over, on Ctrl-C and SIGTERM (which raise
    KeyboardInterrupt), and when the caller has seen enough; those that do not stop in time are killed. They are in
    sessions of their own, so that Ctrl-C reaches them through us alone, and get the end of their standard input when
    we die.

    Args:
        commands: by name; a name's output goes to `folder / name.log`.
        folder: of the logs.
        together: processes at once.
        minutes: when they are over, what still runs is stopped and what waits is not begun.
        ready: whether a name may begin beside those that run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    threads = max(1, (os.cpu_count() or 1) // together)
    environment = {"OMP_NUM_THREADS": str(threads)} | os.environ
    waiting = list(commands)
    running: dict[str, subprocess.Popen[bytes]] = {}
    with_place: set[str] = set()
    """Those that run and may have layers whose programs wait for each other on a GPU: no more than find room."""
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    with _sigterm_interrupts():
        try:
            while waiting or running:
                while len(running) < together and (name := next((n for n in waiting if ready(n, running)), None)):
                    waiting.remove(name)
                    if has_place := len(with_place) < PROCESSES:
                        with_place.add(name)
                    sharing = str(min(together, PROCESSES) if has_place else 0)
                    with open(folder / f"{name}.log", "wb") as log:
                        running[name] = subprocess.Popen(
                            commands[name],
                            stdin=subprocess.PIPE,
                            stdout=log,
                            stderr=subprocess.STDOUT,
                            start_new_session=True,
                            env={SIDE_BY_SIDE: sharing} | environment,
                        )
                time.sleep(LOOK_EVERY)
                for name, process in list(running.items()):
                    if process.poll() is not None:
                        del running[name]
                        with_place.discard(name)
                        yield Ended(name, _how(process), _killed_by(process) or _last_line(folder, name))
                if deadline is not None and time.monotonic() > deadline:
                    _stop(running)
                    for name, process in running.items():
                        yield Ended(name, "stopped" if process.returncode else "done", _last_line(folder, name))
                    running.clear()
                    yield from (Ended(name, "not begun", "the time was over") for name in waiting)
                    return
        finally:
            _stop(running)


def _stop(running: Mapping[str, subprocess.Popen[bytes]]) -> None:
    """Ask processes to stop, and end those that do not; a second Ctrl-C ends them at once."""
    try:
        for process in running.values():
            process.terminate()
        deadline = time.monotonic() + PATIENCE
        for process in running.values():
            process.wait(max(0.0, deadline - time.monotonic()))
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        pass
    finally:
        for process in running.values():
            process.kill()
            process.wait()
            if process.stdin is not None:
                process.stdin.close()


def _killed_by(process: subprocess.Popen[bytes]) -> str:
    """What ended a process that did not end by itself, whose last line says nothing of it."""
    if process.returncode is None or process.returncode >= 0:
        return ""
    known = {each.value: each.name for each in signal.Signals}
    name = known.get(-process.returncode, f"signal {-process.returncode}")
    return f"killed by {name}{', as the system does when memory runs out' if name == 'SIGKILL' else ''}"


def _how(process: subprocess.Popen[bytes]) -> How:
    """130 is the exit status of who was interrupted."""
    return "done" if not process.returncode else "stopped" if process.returncode == 130 else "failed"


def _last_line(folder: Path, name: str) -> str:
    lines = (folder / f"{name}.log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


@contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """SIGTERM raises KeyboardInterrupt, as Ctrl-C does; outside the main thread it stays what it was."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
