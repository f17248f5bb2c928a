"""The log file and what a terminal shows."""

import io
import json
import os
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from rich.console import Console

from textspace.errors import TextspaceError
from textspace.train.log import Display, NotFiniteError, StepLog, records
from textspace.train.updates import Step


def step(loss: float) -> Step:
    return Step(("loss", "kl", "gradient"), torch.tensor([loss, loss, 1.0]), {"kl": 1.0}, sentences=2, tokens=9)


def test_a_log_continues_after_what_the_checkpoint_knew(tmp_path: Path) -> None:
    log = StepLog(tmp_path / "steps.jsonl", 0)
    for number in (1, 2):
        log.hold({"event": "step", "step": number}, step(0.5))
    log.flush()
    known = log.size
    log.hold({"event": "step", "step": 3}, step(0.5))
    log.flush()
    log.close()
    again = StepLog(tmp_path / "steps.jsonl", known)
    again.hold({"event": "step", "step": 3}, step(0.25))
    again.flush()
    again.close()
    lines = [json.loads(line) for line in (tmp_path / "steps.jsonl").read_text().splitlines()]
    assert [(line["step"], line["loss"]) for line in lines] == [(1, 0.5), (2, 0.5), (3, 0.25)]
    with pytest.raises(TextspaceError, match="is shorter than the checkpoint says"):
        StepLog(tmp_path / "steps.jsonl", 10_000)


@pytest.mark.parametrize(
    ("damage", "lost", "told"),
    [
        (lambda log: b"x" + log[1:], {0}, "line 1"),
        (lambda log: log[:14] + b"\xff" + log[15:], {0}, "line 1"),
        (lambda log: log[:14] + b"\n" + log[15:], {0}, "2 lines, the first is 1"),
        (lambda log: b"[" * 100_000 + log[100_000:], {0}, "line 1"),
        (lambda log: b"3\n" + log[2:], {0}, "2 lines, the first is 1"),
        (lambda log: log[:-1] + b" ", {4}, "line 5"),
        (lambda log: b"\0" * len(log), {0, 1, 2, 3, 4}, "line 1"),
    ],
)
def test_a_damaged_log_is_repaired_before_training(
    tmp_path: Path, damage: Callable[[bytes], bytes], lost: set[int], told: str
) -> None:
    """The file keeps its length: an older checkpoint counts its bytes too."""
    path = tmp_path / "steps.jsonl"
    lines = [{"event": "step", "step": number, "more": "x" * 100_000 * (number == 0)} for number in range(5)]
    whole = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
    path.write_bytes(damage(whole))
    with pytest.warns(UserWarning, match=rf"steps.jsonl was damaged \({told}\): its curves have gaps"):
        log = StepLog(path, len(whole))
    assert log.size == len(whole)
    log.write({"event": "step", "step": 5})
    log.close()
    assert [line["step"] for line in records(path, "step")] == [step for step in range(6) if step not in lost]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        StepLog(path, len(whole)).close()


def test_a_log_that_is_no_file_is_refused(tmp_path: Path) -> None:
    for name, make in {"pipe": os.mkfifo, "endless": lambda path: path.symlink_to("/dev/zero")}.items():
        make(tmp_path / name)
        with pytest.raises(TextspaceError, match="device or a pipe"):
            StepLog(tmp_path / name, 0)


def test_the_first_step_that_is_not_finite_is_named_with_its_term(tmp_path: Path) -> None:
    log = StepLog(tmp_path / "steps.jsonl", 0)
    for number, loss in [(1, 0.5), (2, float("inf")), (3, float("nan"))]:
        log.hold({"event": "step", "step": number}, step(loss))
    with pytest.raises(NotFiniteError, match="at step 2 the kl became inf"):
        log.flush()
    log.close()
    assert len((tmp_path / "steps.jsonl").read_text().splitlines()) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_disk_that_is_full_is_told_by_the_file(tmp_path: Path) -> None:
    """Also by who closes the log after that, which would write what is left."""
    log = StepLog(tmp_path / "steps.jsonl", 0)
    log._file.close()
    log._file = open("/dev/full", "ab")  # noqa: SIM115 (closed by close)
    for write in (lambda: log.write({"step": 1}), log.close):
        with pytest.raises(TextspaceError, match=r"could not write .*steps.jsonl: No space left on device; free some"):
            write()


@pytest.mark.parametrize("kind", ["terminal", "pipe"])
def test_a_run_goes_on_where_nobody_reads_what_it_shows(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    reading, writing = os.openpty() if kind == "terminal" else os.pipe()
    with open(writing, "w", buffering=1) as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        display = Display(epochs=2)
        assert display.console.is_terminal == (kind == "terminal")
        os.close(reading)
        display.PLAIN_EVERY = 0.0  # type: ignore[misc]
        display.steps([{"step": 7, "epoch": 0.5, "loss": 3.25, "weights": {}, "tokens": 100}])
        display.say("stopping after this step")
        display.close()
        with suppress(OSError):  # what could not be written is tried once more
            stream.close()


@pytest.mark.parametrize(
    ("epoch", "shown"), [(0.01, "epoch 1/2"), (1.0, "epoch 1/2"), (1.5, "epoch 2/2"), (2.0, "epoch 2/2")]
)
def test_a_terminal_shows_epoch_terms_and_speed(monkeypatch: pytest.MonkeyPatch, epoch: float, shown: str) -> None:
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=150)
    monkeypatch.setattr("textspace.train.log.Console", lambda **_: terminal)
    display = Display(epochs=2)
    line = {"step": 7, "epoch": epoch, "loss": 3.25, "kl": 1.5, "weights": {"kl": 1.0}, "tokens": 100}
    display.steps([line])
    display.close()
    assert shown in screen.getvalue()
    assert "loss 3.25  kl 1.50" in screen.getvalue()
    assert "tokens/s" in screen.getvalue()


def test_what_a_checkpoint_counts_of_the_log_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_size))
    log = StepLog(tmp_path / "steps.jsonl", 0)
    log.write({"event": "step"})
    assert synced == []
    log.sync()
    assert synced == [(tmp_path / "steps.jsonl").stat().st_size]
    log.close()
