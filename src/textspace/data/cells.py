"""What a cell of a table or a value from Python stands for: text, a label, or nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from textspace.data.options import ReadReport

__all__ = ["Row", "label_of", "plain", "row_of"]

_SURROGATES = re.compile("[\ud800-\udfff]")

Row = tuple[str, str | None]  # text and label


def plain(value: Any) -> Any:
    """A value without the array or tensor around it; None for all that stands for nothing, such as NaN.

    >>> plain(np.array(3)), plain(float("nan")), plain(np.datetime64("NaT")), plain("nan")
    (3, None, None, 'nan')
    """
    if getattr(value, "ndim", None) == 0 and not isinstance(value, np.generic):  # which str writes as they are
        value = value.item()
    try:
        return None if value != value else value  # only nothing differs from itself
    except TypeError:  # pandas.NA does not say whether it does
        return None
    except ValueError:  # several numbers
        return value


def label_of(value: Any) -> str | None:
    """A label as text; none where there is nothing, or nothing but blanks."""
    value = plain(value)
    return None if value is None else str(value).strip() or None


def row_of(text: object, label: object, report: ReadReport) -> Iterator[Row]:
    """The row of two cells; none where the text is missing or either is nested. A missing label is no label."""
    text = plain(text)
    if text is None or isinstance(text, dict | list | bytes) or isinstance(label, dict | list | bytes):
        report.bad_row()
        return
    written = label_of(label)
    yield _encodable(str(text), report), None if written is None else _encodable(written, report)


def _encodable(text: str, report: ReadReport) -> str:
    r"""The text without lone surrogates, which JSON can spell (\ud800) and UTF-8 cannot."""
    if text.isascii() or not _SURROGATES.search(text):
        return text
    report.bad_utf8 += 1
    return _SURROGATES.sub("\N{REPLACEMENT CHARACTER}", text)
