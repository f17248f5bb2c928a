"""The text of numbers and their errors: one rule, and every place that shows a number follows it."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from textspace.cli.shared import print_estimates
from textspace.digits import number, plus_minus, value_and_error
from textspace.evaluate.reports.comparison import Difference
from textspace.evaluate.reports.html import value_cell
from textspace.reproduce.report import Cell
from textspace.reproduce.showing import gap, ours
from textspace.types import Estimate


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (0.00836, 0.0013, "0.0084 ± 0.0013"),
        (0.00809, 0.00025, "0.00809 ± 0.00025"),
        (101.2345, 0.5, "101.23 ± 0.50"),
        (0.83123, 0.0049, "0.8312 ± 0.0049"),
        (351.65, 14.05, "352 ± 14"),
        (-0.5, 0.096, "-0.500 ± 0.096"),
        (22.0, 0.59, "22.00 ± 0.59"),
        (7.3, 0.996, "7.3 ± 1.0"),  # two digits after rounding too
        (0.0002, 0.13, "0.00 ± 0.13"),
        (-0.0002, 0.13, "0.00 ± 0.13"),
        (0.0, 0.13, "0.00 ± 0.13"),
        (12345.6, 123.4, "12,346 ± 123"),
        (9_999_999.0, 1234.0, "9,999,999 ± 1,234"),
        (9_523_254_459_621_015_814_144.0, 11_510_000_000_000_000_000.0, "9.523e+21 ± 1.2e+19"),
        (2.5e7, 12.0, "2.500000e+07 ± 12"),
        (3.0, 2.5e8, "3 ± 2.5e+08"),
        (0.2, 1e-6, "0.2000000 ± 1.0e-06"),
        (3.21e-7, 1.2e-8, "3.21e-07 ± 1.2e-08"),
        (24.0, None, "24"),
        (0.0, 0.0, "0"),
        (1.5, 0.0, "1.5"),
        (0.1 + 0.2, 5e-17, "0.3"),  # an error of rounding
        (12345.6, None, "12,346"),
        (0.0083612, None, "0.008361"),
        (0.25, None, "0.25"),
        (1.23456e-6, None, "1.235e-06"),
        (2.5e7, None, "2.5e+07"),
        (math.inf, None, "∞"),
        (-math.inf, 0.5, "-∞"),
        (math.nan, math.nan, "–"),
        (1.5, math.nan, "1.5"),
        (1.5, math.inf, "1.5 ± ∞"),
    ],
)
def test_numbers_have_the_digits_their_error_leaves(value: float, error: float | None, text: str) -> None:
    assert plus_minus(value, error) == text


@given(st.floats(-1e12, 1e12), st.floats(1e-9, 1e9))
def test_what_is_shown_is_the_number_rounded_within_its_error(value: float, error: float) -> None:
    text, error_text = value_and_error(value, error)
    if not error_text:
        assert error <= 1e-12 * abs(value)
        return
    shown, shown_error = (float(part.replace(",", "")) for part in (text, error_text))
    assert shown_error == pytest.approx(error, rel=0.051)
    assert abs(shown - value) <= max(0.051 * error, 6e-7 * abs(value))
    assert not text.startswith("-0.") or shown < 0


@given(st.floats(-1e300, 1e300, allow_subnormal=False), st.integers(1, 7))
def test_a_number_without_an_error_keeps_its_significant_digits(value: float, digits: int) -> None:
    shown = float(number(value, digits).replace(",", ""))
    assert shown == pytest.approx(value, rel=0.51 * 10 ** (1 - digits), abs=0)
    assert number(value, digits, signed=True).lstrip("+-") == number(value, digits).lstrip("-")


def kl(value: float = 0.00836, stderr: float | None = 0.0013) -> Estimate:
    return Estimate("KL", value, stderr, 1000, "exact", None, {})


@pytest.mark.parametrize(
    ("show", "text"),
    [
        (lambda: str(kl()), "0.0084 ± 0.0013"),
        (lambda: value_cell(kl()), '<td class="r value">0.0084 <span>± 0.0013</span></td>'),
        (lambda: str(Difference(0.00836, 0.0013, 1000)), "+0.0084 ± 0.0013"),
        (lambda: str(Difference(-0.00836, 0.0013, 1000)), "-0.0084 ± 0.0013"),
        (lambda: str(Difference(0.0, 0.0, 1000)), "+0"),
        (lambda: ours(Cell(0.00836, 0.0013)), "0.0084 ± 0.0013"),
        (lambda: gap(Cell(1.0, gap=0.00836, gap_error=0.0013)), "+0.0084 ± 0.0013"),
    ],
)
def test_every_place_shows_a_number_in_the_same_way(show: Callable[[], str], text: str) -> None:
    assert show() == text


def test_a_small_number_is_not_printed_as_zero(capsys: pytest.CaptureFixture[str]) -> None:
    print_estimates({"kl": kl(), "ppl": kl(139.66, 7.69), "vast": kl(1.2e9, None)}, False)
    out = capsys.readouterr().out
    assert "0.0084 ± 0.0013" in out
    assert "139.7 ± 7.7" in out
    assert "1.2e+09" in out
