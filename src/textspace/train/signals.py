"""What Ctrl-C does to a training."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["stop_asked"]


@contextmanager
def stop_asked(say: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """Whether the training shall stop: the first Ctrl-C or SIGTERM asks for it, the second ends at once.

    Args:
        say: shows a line.
    """
    asked = False

    def ask(number: int, frame: Any) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        say("stopping after this step; press Ctrl-C again to stop without saving")

    try:
        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: then nobody can send us a signal either
        before = {}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
