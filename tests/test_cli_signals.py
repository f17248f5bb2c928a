"""Commands that are ended from outside: no copy of the text is left, and no run is lost."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from helpers import small, tiny_sentences

from textspace.recipes import RECIPES
from textspace.train import checkpoints

HUP, TERM = signal.SIGHUP, signal.SIGTERM


def wait_for(condition: Callable[[], Any], process: subprocess.Popen[Any]) -> None:
    while not condition():
        assert process.poll() is None, "it has ended"
        time.sleep(0.01)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "temporary").mkdir()
    (tmp_path / "text.txt").write_text("\n".join(tiny_sentences()))
    (tmp_path / "recipe.json").write_text(small(RECIPES["vae"]).but({"training.epochs": 100_000}).to_json())
    return tmp_path


def start(place: Path, *arguments: str, **more: Any) -> subprocess.Popen[bytes]:
    """A command that reads a pipe which stays open, unless another standard input is given."""
    command = [sys.executable, "-m", "textspace", *arguments]
    environment = os.environ | {"TMPDIR": str(place / "temporary"), "OMP_NUM_THREADS": "1"}
    streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=place, env=environment, **streams | more)


def copies(place: Path) -> list[Path]:
    return sorted((place / "temporary").glob("textspace-*"))


def feed(process: subprocess.Popen[bytes], place: Path, count: int = 1) -> None:
    """Give it text until so many copies of text are on the disk."""
    assert process.stdin is not None
    while sum(path.stat().st_size > 0 for path in copies(place)) < count:
        assert process.poll() is None, "it has ended"
        process.stdin.write(b"anna sees private cats\n" * 1000)
        process.stdin.flush()


TRAIN = ("train", "-", "--config", "recipe.json", "--out", "run")


@pytest.mark.parametrize(
    ("arguments", "number"), [(("describe", "-"), TERM), (("describe", "-"), HUP), (TRAIN, TERM), (TRAIN, HUP)]
)
def test_who_is_ended_while_reading_leaves_no_text(place: Path, arguments: tuple[str, ...], number: int) -> None:
    process = start(place, *arguments)
    feed(process, place)
    process.send_signal(number)
    _, err = process.communicate()
    assert process.returncode == 128 + number
    assert b"Traceback" not in err
    assert copies(place) == []


def test_nohup_is_respected(place: Path) -> None:
    process = start(place, "describe", "-", preexec_fn=lambda: signal.signal(HUP, signal.SIG_IGN))
    feed(process, place)
    process.send_signal(HUP)
    process.communicate()
    assert process.returncode == 0
    assert copies(place) == []


def test_what_a_killed_command_leaves_is_removed_by_the_next(place: Path) -> None:
    killed, waiting = start(place, "describe", "-"), start(place, "describe", "-")
    feed(killed, place)
    feed(waiting, place, 2)
    killed.kill()
    killed.communicate()
    assert len(copies(place)) == 2
    for path in copies(place):
        os.utime(path, (0, 0))
    next_one = start(place, "describe", "-")
    next_one.communicate(b"bob likes dogs\n" * 50)
    assert next_one.returncode == 0
    assert len(copies(place)) == 1  # of the one that still reads
    waiting.communicate()
    assert waiting.returncode == 0
    assert copies(place) == []


def test_a_run_in_a_terminal_that_is_closed_is_saved(place: Path) -> None:
    ours, terminal = os.openpty()

    def own_terminal() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    streams = dict.fromkeys(("stdin", "stdout", "stderr"), terminal)
    arguments = ("train", "text.txt", "--config", "recipe.json", "--out", "run")
    process = start(place, *arguments, preexec_fn=own_terminal, **streams)
    os.close(terminal)
    log = place / "run" / "steps.jsonl"
    os.set_blocking(ours, False)

    def has_steps() -> bool:
        with suppress(BlockingIOError):
            os.read(ours, 2**16)  # a full terminal would make it wait
        return log.exists() and log.read_bytes().count(b"\n") > 30

    wait_for(has_steps, process)
    os.close(ours)  # which sends SIGHUP, and nothing can be printed any more
    assert process.wait() == 130
    newest = checkpoints.newest(place / "run")
    assert newest is not None
    assert checkpoints.read(place / "run").state["step"] > 0
