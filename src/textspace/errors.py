"""The one exception users see, the "did you mean" that goes into its sentence, and warnings."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable

__all__ = ["TextspaceError", "nearest", "warn"]


class TextspaceError(Exception):
    """Something the user can mend. The message is one sentence: what is wrong and what to do."""


def nearest(name: str, choices: Iterable[str], limit: int = 3) -> str:
    """A clause naming the choices most like `name`, or all of them when none is alike.

    >>> nearest("lables", ["label", "text"])
    "did you mean 'label'?"
    >>> nearest("zzz", ["label", "text"])
    "there are 'label' and 'text'"
    """
    from rapidfuzz import fuzz, process  # loads only when something went wrong

    choices = list(choices)
    alike = process.extract(name, choices, scorer=fuzz.WRatio, limit=None, score_cutoff=65)
    # Of choices that contain something like the name, those that are little else come first, and the others not at all.
    ratios = {match[0]: fuzz.ratio(name, match[0]) for match in alike}
    best = max(ratios.values(), default=0.0)
    found = sorted((choice for choice in ratios if ratios[choice] > best - 15), key=lambda choice: -ratios[choice])
    found = found[:limit]
    if found:
        return f"did you mean {_spoken(found, 'or')}?"
    if not choices:
        return "there is nothing to choose from"
    return f"there {'is' if len(choices) == 1 else 'are'} {_spoken(choices, 'and')}"


def warn(message: str) -> None:
    """Warn of the line outside of this package that led here."""
    frame, level = sys._getframe(), 1
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("textspace."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)


def _spoken(names: list[str], joiner: str) -> str:
    quoted = [repr(name) for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} {joiner} {quoted[-1]}"
