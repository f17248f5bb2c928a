"""Several runs at once on one machine, each a process of its own, with a time limit for all of them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["run_side_by_side"]


def run_side_by_side(
    commands: Mapping[str, Sequence[str]], folder: Path, *, together: int, minutes: float
) -> dict[str, str]:
    """Run commands, so many at a time; what those that failed or were stopped said last.

    Args:
        commands: by name; a name's output goes to `folder / name.log`.
        folder: of the logs.
        together: processes at once.
        minutes: when they are over, what still runs is stopped and what waits is not begun.
    """
    folder.mkdir(parents=True, exist_ok=True)
    waiting = list(commands)
    running: dict[str, subprocess.Popen[bytes]] = {}
    failed = {}
    deadline = time.monotonic() + 60 * minutes
    while waiting or running:
        while waiting and len(running) < together and time.monotonic() < deadline:
            name = waiting.pop(0)
            log = open(folder / f"{name}.log", "w")  # noqa: SIM115 (the process owns it)
            running[name] = subprocess.Popen(commands[name], stdout=log, stderr=subprocess.STDOUT)
        time.sleep(0.5)
        for name, process in list(running.items()):
            if time.monotonic() > deadline:
                process.kill()
                failed.update(dict.fromkeys(waiting, "not begun: the time was over"))
                waiting.clear()
            if process.poll() is not None:
                if process.returncode:
                    failed[name] = (folder / f"{name}.log").read_text()[-400:]
                del running[name]
        if waiting and not running and time.monotonic() > deadline:
            failed.update(dict.fromkeys(waiting, "not begun: the time was over"))
            waiting.clear()
    return failed
