"""The text of a number, with or without its standard error: for tables, reports, cards and the terminal alike."""

from __future__ import annotations

import math

__all__ = ["VAST", "decimals_of", "number", "plus_minus", "value_and_error"]

VAST, TINY = 1e7, 1e-4
"""From VAST on, and below TINY, a number is written with a power of ten."""

DIGITS, PRECISE_DIGITS, ERROR_DIGITS = 4, 7, 2
"""Significant digits of a number without an error, of one whose error is negligible, and of an error."""

MOST_DECIMALS = 6
"""An error that would need more decimals is written with a power of ten."""

LARGE = 1e4
"""From this on, an error is written with a power of ten where its value is."""

MOST_PRECISE = 12
"""Decimals of a value at most, however small its error is."""

ROUNDING = 1e-12
"""An error below this share of its value is rounding, and counts as no error."""


def number(value: float, digits: int = DIGITS, *, signed: bool = False) -> str:
    """A number without an error, to `digits` significant digits; no digit before the decimal point is rounded away.

    `signed` writes a plus sign too, as differences need it.

    >>> number(0.0083612), number(58.6745), number(0.5), number(1234567.8), number(-0.25), number(0.25, signed=True)
    ('0.008361', '58.67', '0.5', '1,234,568', '-0.25', '+0.25')
    >>> number(9.5232e21), number(1.23456e-6), number(0.0), number(float("inf")), number(float("nan"))
    ('9.523e+21', '1.235e-06', '0', '∞', '–')
    """
    plus = "+" if signed else ""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return f"{plus}∞" if value > 0 else "-∞"
    if value and not TINY <= abs(value) < VAST:
        return f"{value:{plus}.{digits}g}"
    decimals = decimals_of(value, digits)
    text = f"{value:{plus}z,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if decimals else text


def plus_minus(value: float, error: float | None, *, signed: bool = False) -> str:
    """A value and its standard error: the error to two significant digits, the value to the same decimal place.

    Without an error, or with one of zero, the value alone, as `number` writes it.

    >>> plus_minus(0.00836, 0.0013), plus_minus(34.5678, 0.2345), plus_minus(12345.6, 123.4), plus_minus(0.003, 0.13)
    ('0.0084 ± 0.0013', '34.57 ± 0.23', '12,346 ± 123', '0.00 ± 0.13')
    >>> plus_minus(-1.25, 0.25), plus_minus(1.25, 0.25, signed=True), plus_minus(-0.001, 0.5), plus_minus(7.3, 0.0)
    ('-1.25 ± 0.25', '+1.25 ± 0.25', '0.00 ± 0.50', '7.3')
    >>> plus_minus(9.5232e21, 1.151e19), plus_minus(0.2345678, 1.2e-7), plus_minus(3.21e-7, 1.2e-8)
    ('9.523e+21 ± 1.2e+19', '0.23456780 ± 1.2e-07', '3.21e-07 ± 1.2e-08')
    >>> plus_minus(1.0312e7, 2011095.0)
    '1.03e+07 ± 2.0e+06'
    """
    text, error_text = value_and_error(value, error, signed=signed)
    return f"{text} ± {error_text}" if error_text else text


def value_and_error(value: float, error: float | None, *, signed: bool = False) -> tuple[str, str]:
    """What `plus_minus` joins, for tables with a column for each; the second is empty where there is no error.

    >>> value_and_error(58.6745, 1.1677), value_and_error(27.0, None), value_and_error(5.0, float("inf"))
    (('58.7', '1.2'), ('27', ''), ('5', '∞'))
    """
    if error is None or math.isnan(error) or not math.isfinite(value) or error <= ROUNDING * abs(value):
        return number(value, signed=signed), ""
    if math.isinf(error):
        return number(value, signed=signed), number(error)
    decimals = decimals_of(error, ERROR_DIGITS)
    plus = "+" if signed else ""
    if decimals > MOST_DECIMALS:
        exact = f"{value:{plus}z.{min(decimals, MOST_PRECISE)}f}"
        is_tiny = abs(value) < TINY
        return number(value, PRECISE_DIGITS, signed=signed) if is_tiny else exact, f"{error:.{ERROR_DIGITS - 1}e}"
    is_large = error >= VAST or (abs(value) >= VAST and error >= LARGE)
    error_text = f"{error:.{ERROR_DIGITS - 1}e}" if is_large else f"{error:,.{decimals}f}"
    if abs(value) < VAST:
        return f"{value:{plus}z,.{decimals}f}", error_text
    finer = _exponent(value, PRECISE_DIGITS) - _exponent(error, ERROR_DIGITS)
    return f"{value:{plus}.{min(max(0, finer + ERROR_DIGITS - 1), PRECISE_DIGITS - 1)}e}", error_text


def decimals_of(value: float, digits: int) -> int:
    """How many decimals show so many significant digits of a finite value.

    >>> decimals_of(0.0996, 3), decimals_of(0.0996, 2), decimals_of(0.0, 2), decimals_of(123.4, 2)
    (4, 2, 1, 0)
    """
    return max(0, digits - 1 - _exponent(value, digits))


def _exponent(value: float, digits: int) -> int:
    """The power of ten of the first significant digit, after rounding to `digits` of them."""
    return int(f"{value:.{digits - 1}e}".partition("e")[2])
