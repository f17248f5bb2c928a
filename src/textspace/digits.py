"""Numbers for people, in as many digits as anybody reads."""

from __future__ import annotations

__all__ = ["VAST", "written"]

VAST = 1e7
"""From here on only a number's size is told: of a perplexity with twenty digits nobody reads the last ones."""


def written(number: float, layout: str) -> str:
    """A number in a layout of Python's, such as `,.2f`; a vast one by its power of ten.

    >>> written(1234.5678, ",.2f"), written(9.5232e21, ",.2f"), written(-1e7, ".0f"), written(float("inf"), ".2f")
    ('1,234.57', '9.5e+21', '-1.0e+07', 'inf')
    """
    return format(number, layout if abs(number) < VAST else ".1e")
