"""What signals do, in this process."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from textspace.train.signals import orderly_exit, stop_asked

HUP, INT, TERM = signal.SIGHUP, signal.SIGINT, signal.SIGTERM


@pytest.fixture(autouse=True)
def _usual_handlers() -> Iterator[None]:
    usual = {HUP: signal.SIG_DFL, INT: signal.default_int_handler, TERM: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def send(*numbers: int) -> None:
    for number in numbers:
        os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [HUP, INT, TERM])
def test_the_first_signal_asks_a_training_to_stop(number: int) -> None:
    said: list[str] = []
    with stop_asked(said.append) as asked:
        assert not asked()
        send(number)
        assert asked()
    assert len(said) == 1
    assert signal.getsignal(HUP) is signal.getsignal(TERM) is signal.SIG_DFL
    assert signal.getsignal(INT) is signal.default_int_handler


@pytest.mark.parametrize("first", [INT, TERM])
@pytest.mark.parametrize("second", [INT, TERM])
def test_the_second_signal_ends_a_training(first: int, second: int) -> None:
    with pytest.raises(KeyboardInterrupt), stop_asked(lambda text: None):
        send(first, second)


@pytest.mark.parametrize("numbers", [(HUP, HUP, HUP), (HUP, TERM), (HUP, HUP, INT), (TERM, HUP), (TERM, HUP, HUP)])
def test_a_terminal_that_is_closed_leaves_time_to_save(numbers: tuple[int, ...]) -> None:
    """It may send SIGHUP more than once, and SIGTERM with it."""
    said: list[str] = []
    with stop_asked(said.append) as asked:
        send(*numbers)
        assert asked()
    assert len(said) == 1


@pytest.mark.parametrize("number", [HUP, INT, TERM])
def test_ignored_signals_stay_ignored(number: int) -> None:
    signal.signal(number, signal.SIG_IGN)
    with orderly_exit(), stop_asked(lambda text: None) as asked:
        send(number)
        assert not asked()
    assert signal.getsignal(number) is signal.SIG_IGN


@pytest.mark.parametrize("number", [HUP, TERM])
def test_a_command_ends_as_by_an_exception(number: int) -> None:
    """A second signal does not interrupt what is cleaned up."""
    cleaned = []

    def ended() -> None:
        with orderly_exit():
            try:
                send(number)
            finally:
                send(HUP, TERM)
                cleaned.append(True)

    with pytest.raises(SystemExit) as error:
        ended()
    assert error.value.code == 128 + number
    assert cleaned
    assert signal.getsignal(number) is signal.SIG_IGN  # until the process has ended


def test_handlers_of_others_stay_and_ours_go() -> None:
    def own(number: int, frame: object) -> None:
        raise AssertionError

    signal.signal(TERM, own)
    with orderly_exit():
        assert signal.getsignal(TERM) is own
        assert signal.getsignal(HUP) is not signal.SIG_DFL
        with stop_asked(lambda text: None):
            assert signal.getsignal(TERM) is not own
        assert signal.getsignal(TERM) is own
    assert signal.getsignal(HUP) is signal.SIG_DFL


def test_other_threads_have_no_signals() -> None:
    found = []

    def work() -> None:
        with orderly_exit(), stop_asked(lambda text: None) as asked:
            found.append(asked())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [False]
