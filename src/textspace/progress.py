"""Progress bars: in a terminal, on standard error, gone when done."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

__all__ = ["track"]

T = TypeVar("T")


def track(items: Iterable[T], what: str, shown: bool, total: int | None = None) -> Iterable[T]:
    """`items`, with a bar while they are iterated over, if `shown` and if there is a terminal to show it in."""
    if not shown:
        return items
    from rich.console import Console
    from rich.progress import track as rich_track

    console = Console(stderr=True)
    if not console.is_terminal:
        return items
    return rich_track(items, description=what, total=total, transient=True, console=console)
