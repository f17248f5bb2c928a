"""Numbers that users hand in, checked."""

from __future__ import annotations

from operator import index
from typing import Any

from textspace.errors import TextspaceError

__all__ = ["LARGEST", "is_within", "seed_number", "whole_number"]

LARGEST = 2**31 - 1
"""Whole number that is taken; libraries below fail at those that 64 bits cannot hold, each in its own way."""


def whole_number(given: Any, least: int, problem: str, most: int | None = LARGEST) -> int:
    """The number as an int; where it is no whole one from `least` to `most`, a sentence beginning with the problem.

    >>> whole_number(3, 1, "cannot sample 3 sentences")
    3
    """
    try:
        number = least - 1 if isinstance(given, bool) else index(given)
    except (TypeError, ValueError, RuntimeError):  # the last of a tensor that is no number
        number = least - 1
    is_too_large = most is not None and number > most
    if number < least or is_too_large:
        raise TextspaceError(f"{problem}: give a whole number from {least}{f' to {most:,}' if is_too_large else ''}")
    return number


def seed_number(given: Any) -> int:
    """A seed as an int: numpy's integers print differently, and noise is keyed by the printed seed.

    >>> seed_number(1)
    1
    """
    return whole_number(given, 0, f"a seed cannot be {given!r}", most=None)


def is_within(given: Any, least: float, most: float) -> bool:
    """Whether this is a number from `least` to `most`."""
    try:
        return bool(least <= given <= most)
    except (TypeError, ValueError, RuntimeError):  # such as text, or several numbers
        return False
