"""Processes side by side: how many, how long, and how they end."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from textspace.reproduce.side_by_side import side_by_side

SAVING = """
import signal, sys, time, pathlib
def stop(number, frame):
    pathlib.Path(sys.argv[1] + ".saved").write_text("saved")
    print("saved")
    sys.exit(130)
signal.signal(signal.SIGTERM, stop)
pathlib.Path(sys.argv[1] + ".began").write_text("began")
time.sleep(60)
"""
"""Runs for long, and saves when it is asked to stop."""


def python(code: str, *arguments: object) -> list[str]:
    return [sys.executable, "-c", code, *map(str, arguments)]


def awaited(path: Path) -> None:
    while not path.exists():
        time.sleep(0.01)


def test_each_process_ends_in_its_own_way_and_its_last_line_is_told(tmp_path: Path) -> None:
    commands = {
        "good": python("print('one'); print('two')"),
        "bad": python("raise SystemExit('it broke')"),
        "stopped": python("print('stopped at step 5'); raise SystemExit(130)"),
        "killed": python("import os; print('epoch 1', flush=True); os.kill(os.getpid(), 9)"),
    }
    ended = {each.name: (each.how, each.said) for each in side_by_side(commands, tmp_path, together=4)}
    assert ended == {
        "killed": ("failed", "killed by SIGKILL, as the system does when memory runs out"),
        "good": ("done", "two"),
        "bad": ("failed", "it broke"),
        "stopped": ("stopped", "stopped at step 5"),
    }
    assert (tmp_path / "good.log").read_text() == "one\ntwo\n"


def test_so_many_run_at_once_and_others_wait_until_they_may(tmp_path: Path) -> None:
    seen = []

    def ready(name: str, running) -> bool:
        seen.append((name, set(running)))
        return not (name == "c" and "a" in running)

    flag = tmp_path / "d was here"
    commands = {name: python("") for name in "abcd"}
    commands["a"] = python("import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)", flag)
    commands["d"] = python("import sys; open(sys.argv[1], 'w')", flag)
    ended = [each.name for each in side_by_side(commands, tmp_path, together=2, ready=ready)]
    assert max(len(running) for _, running in seen) == 1  # asked only where there is room
    assert ("c", {"a"}) in seen
    assert sorted(ended) == list("abcd")
    assert ended[-1] == "c"  # the next one went ahead of it


def test_processes_know_how_many_they_may_be(tmp_path: Path, monkeypatch) -> None:
    code = "import os; print(os.environ['TEXTSPACE_SIDE_BY_SIDE'])"
    assert [each.said for each in side_by_side({"a": python(code)}, tmp_path, together=3)] == ["3"]
    monkeypatch.setenv("TEXTSPACE_SIDE_BY_SIDE", "9")
    assert [each.said for each in side_by_side({"a": python(code)}, tmp_path, together=3)] == ["9"]


def test_no_more_have_waiting_layers_than_find_room(tmp_path: Path) -> None:
    """A place is for the next one when its owner has ended."""
    code = "import os, sys, time; print(os.environ['TEXTSPACE_SIDE_BY_SIDE']); time.sleep(float(sys.argv[1]))"
    commands = {f"{i}": python(code, 0.0 if i == 3 else 3.0) for i in range(11)}
    said = {each.name: each.said for each in side_by_side(commands, tmp_path, together=10)}
    assert [said[f"{i}"] for i in range(11)] == ["8"] * 8 + ["0", "0", "8"]


def test_when_the_time_is_over_processes_save_and_others_are_not_begun(tmp_path: Path) -> None:
    commands = {name: python(SAVING, tmp_path / name) for name in ("one", "two")}
    together = side_by_side(commands, tmp_path, together=1, minutes=1 / 60)
    ended = {each.name: each.how for each in together}
    assert ended["two"] == "not begun"
    assert ended["one"] == "stopped"
    assert (tmp_path / "one.saved").exists() == (tmp_path / "one.began").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_lets_processes_save(tmp_path: Path, number: signal.Signals) -> None:
    def interrupt() -> None:
        awaited(tmp_path / "one.began")
        os.kill(os.getpid(), number)

    before = signal.getsignal(signal.SIGTERM)
    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        list(side_by_side({"one": python(SAVING, tmp_path / "one")}, tmp_path, together=1))
    assert (tmp_path / "one.saved").exists()
    assert signal.getsignal(signal.SIGTERM) is before


def test_processes_learn_that_who_started_them_was_killed(tmp_path: Path) -> None:
    waiting = f"import os, pathlib; pathlib.Path({str(tmp_path / 'began')!r}).touch(); os.read(0, 1); "
    waiting += f"pathlib.Path({str(tmp_path / 'ended')!r}).touch()"
    starting = (
        "import sys, pathlib; from textspace.reproduce.side_by_side import side_by_side; "
        f"commands = {{'one': [sys.executable, '-c', {waiting!r}]}}; "
        f"list(side_by_side(commands, pathlib.Path({str(tmp_path)!r}), together=1))"
    )
    starter = subprocess.Popen(python(starting))
    awaited(tmp_path / "began")
    starter.kill()
    starter.wait()
    awaited(tmp_path / "ended")
