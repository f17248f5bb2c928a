"""A report for reading: numbers with the digits that mean something, and the whole as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from textspace.digits import VAST, decimals_of, number
from textspace.evaluate.measure import Table
from textspace.evaluate.reports.report import Report
from textspace.types import Estimate

__all__ = [
    "alignment",
    "as_text",
    "markdown",
    "markdown_table",
    "plain_name",
    "shown",
    "shown_rows",
]


# Numbers for people


def shown(value: Any) -> str:
    """A cell as text: a number without an error, a text as it is, yes or no, or nothing for None.

    >>> shown(0.83123), shown(0.5), shown(12_345_678), shown(9.5e21), shown(True), shown(None)
    ('0.8312', '0.5', '12,345,678', '9.5e+21', 'yes', '')
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return number(value)


def shown_rows(table: Table) -> list[tuple[str, ...]]:
    """The cells of a table for people; numbers of one column that are not whole have equally many decimals.

    >>> shown_rows(Table("", ("", "x"), (("a", 0.575), ("b", 0.1318), ("c", None))))
    [('a', '0.575'), ('b', '0.132'), ('c', '')]
    >>> shown_rows(Table("", ("x",), ((9.5e21,), (0.575,))))
    [('9.5e+21',), ('0.575',)]
    """
    columns = [_shown_column([row[at] for row in table.rows]) for at in range(len(table.columns))]
    return list(zip(*columns, strict=True))


def _shown_column(cells: list[Any]) -> list[str]:
    numbers = [float(cell) for cell in cells if isinstance(cell, int | float) and abs(cell) < VAST]
    largest = max(map(abs, numbers), default=0.0)
    if all(number == round(number) for number in numbers) or largest < 1e-4:
        return [shown(cell) for cell in cells]
    decimals = decimals_of(largest, 3)
    is_number = [isinstance(cell, int | float) and abs(cell) < VAST for cell in cells]
    return [f"{cell:z,.{decimals}f}" if yes else shown(cell) for cell, yes in zip(cells, is_number, strict=True)]


def plain_name(name: str) -> str:
    """The name of a measure as words."""
    words = name.replace("_", " ").capitalize()
    return re.sub(r"\b(bleu|kl|mlp|nll)\b", lambda found: found.group().upper(), words, flags=re.IGNORECASE)


# Markdown


def markdown(report: Report) -> str:
    """The report as Markdown: numbers and tables by theme."""
    lines = [f"# Evaluation of {as_text(report.name)}", "", *_facts(report), ""]
    if said := report.diagnosis.get("in words"):
        lines += [f"> {as_text(said)}", ""]
    headlines = report.headlines()
    if headlines:
        rows = [(line.label, str(estimate), line.about) for line, estimate in headlines]
        lines += ["## In short", "", *markdown_table(("", "value", "what it says"), rows, "lrl")]
    for theme, entries in report.by_theme().items():
        lines += [f"## {theme}", ""]
        for name, entry in entries.items():
            lines += [f"### {plain_name(name)}", "", entry.about, ""]
            lines += [*(f"- Note: {as_text(note)}" for note in entry.notes), ""] if entry.notes else []
            if entry.findings.estimates:
                lines += markdown_table(
                    ("measure", "value", "n", "bound", "better"),
                    [
                        (each.name, str(each), f"{each.n:,}", _bound(each), each.better or "")
                        for each in entry.findings.estimates.values()
                    ],
                    "lrrll",
                )
            for table in entry.findings.tables.values():
                lines += [f"**{as_text(table.title)}**", ""]
                lines += markdown_table(table.columns, shown_rows(table), alignment(table))
    if report.skipped:
        lines += ["## Not measured", ""]
        lines += [f"- {plain_name(name)}: {as_text(reason)}" for name, reason in report.skipped.items()]
        lines += [""]
    lines += ["## To repeat this", "", f"    {report.settings['command']}", "", _conditions(report), ""]
    return "\n".join(lines)


def _facts(report: Report) -> list[str]:
    facts = [f"- Space: {as_text(report.space['about'])}", f"- Text: {as_text(report.data['about'])}"]
    return facts + [f"- Note: {as_text(note)}" for note in report.data["notes"]]


def _conditions(report: Report) -> str:
    effort = ", ".join(f"{name.replace('_', ' ')} {shown(value)}" for name, value in report.settings["effort"].items())
    told = {name: report.settings[name] for name in ("textspace", "seed", "device", "date")}
    return f"{', '.join(f'{name} {value}' for name, value in told.items())}; {effort}."


def _bound(estimate: Estimate) -> str:
    return {"none": ""}.get(estimate.bound, estimate.bound)


_DIGITS = r"([\d.,]+(e[-+]\d+)?|∞)"
_NUMBER = re.compile(rf"[-+]?{_DIGITS}( ± {_DIGITS})?%?|–?")


def alignment(table: Table) -> str:
    """A letter for each column: r for numbers (also such as "0.50 ± 0.02"), l for text."""
    columns = [[row[at] for row in table.rows] for at in range(len(table.columns))]
    texts = [[cell for cell in column if isinstance(cell, str)] for column in columns]
    return "".join("r" if all(map(_NUMBER.fullmatch, column)) else "l" for column in texts)


def markdown_table(columns: Iterable[str], rows: Iterable[tuple[str, ...]], sides: str) -> list[str]:
    """Lines of a table; `sides` has l or r for each column."""
    marks = {"l": "---", "r": "--:"}
    head = [_row(map(as_text, columns)), _row(marks[side] for side in sides)]
    return [*head, *(_row(map(as_text, row)) for row in rows), ""]


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def as_text(text: str) -> str:
    """Text in one line, in which what Markdown or HTML would take for itself is written so that it is shown."""
    return re.sub(r"([\\|<>*_`\[\]])", r"\\\1", " ".join(text.split()))
