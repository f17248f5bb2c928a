"""What Ctrl-C, SIGTERM and SIGHUP do: they end a command in order, and a training after its step."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["orderly_exit", "stop_asked"]

HANGUP = getattr(signal, "SIGHUP", None)
"""What closing a terminal sends to its programs; Windows has none."""
_ENDING = [signal.SIGTERM] if HANGUP is None else [signal.SIGTERM, HANGUP]


@contextmanager
def stop_asked(say: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Whether the training shall stop: the first Ctrl-C or SIGTERM asks for it, the second ends at once.

    So does SIGHUP, but never at once: a terminal that is closed may send it twice. Signals that the parent ignores, as
    nohup does, stay ignored.

    Args:
        say: shows a line.
    """
    asked = False
    may_end = False

    def ask(number: int, frame: Any) -> None:
        nonlocal asked, may_end
        if may_end and number != HANGUP:
            raise KeyboardInterrupt
        may_end = may_end or number != HANGUP
        if not asked:
            asked = True
            say("stopping after this step; press Ctrl-C again to stop without saving")

    with _handled(ask, [signal.SIGINT, *_ENDING]):
        yield lambda: asked


@contextmanager
def orderly_exit() -> Iterator[None]:
    """While this lasts, SIGTERM and SIGHUP end the program as an exception does: temporary files are removed.

    Handlers that others have set stay.
    """

    def leave(number: int, frame: Any) -> None:
        for each in ending:  # a second one would interrupt the cleaning up
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    ending = [number for number in _ENDING if signal.getsignal(number) is signal.SIG_DFL]
    with _handled(leave, ending):
        yield


@contextmanager
def _handled(handler: Callable[[int, Any], None], numbers: list[signal.Signals]) -> Iterator[None]:
    """While this lasts, signals call the handler, but for those that are ignored."""
    before = {}
    try:
        for number in numbers:
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, handler)
    except ValueError:  # not in the main thread: then nobody can send us a signal either
        before = {}
    try:
        yield
    finally:
        for number, earlier in before.items():
            if signal.getsignal(number) is handler:
                signal.signal(number, earlier)
