"""Spaces side by side: every number of each, and how the others differ from the first on the very same sentences."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from html import escape
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

from textspace.digits import plus_minus
from textspace.errors import TextspaceError
from textspace.evaluate.measure import Table
from textspace.evaluate.registry import THEMES
from textspace.evaluate.reports.html import figures, html_page, html_table, value_cell
from textspace.evaluate.reports.joined import joined_tables
from textspace.evaluate.reports.report import HEADLINES, SCHEMA, Report, json_text, to_json
from textspace.evaluate.reports.text import (
    alignment,
    as_text,
    markdown_table,
    plain_name,
    shown_rows,
)
from textspace.evaluate.statistics import standard_error
from textspace.files import write_file
from textspace.types import Estimate

__all__ = ["Comparison", "Difference", "Row", "compare", "difference_text", "markdown", "page", "paired_difference"]

CLEAR = 2.0
"""Standard errors beyond which a difference is marked."""

ALIKE = 5e-4
"""Shares of unknown tokens that differ by no more need no mention."""

EXPLANATION = (
    "Below each number of another space: how much it differs from the first, as the mean over the same sentences with "
    "its standard error, where there is a number for each sentence. Differences beyond two standard errors are marked; "
    "of many numbers without any true difference about one in twenty is marked by chance."
)


@dataclass(frozen=True)
class Difference:
    """A mean over sentences of another space's value less the first space's."""

    value: float
    stderr: float | None
    n: int

    @property
    def clear(self) -> bool:
        """Whether it is beyond two standard errors."""
        return self.stderr is not None and abs(self.value) > CLEAR * self.stderr

    def __str__(self) -> str:
        """
        >>> print(Difference(-1.25, 0.25, 100))
        -1.25 ± 0.25
        """
        return plus_minus(self.value, self.stderr, signed=True)


def paired_difference(first: Sequence[float], second: Sequence[float]) -> Difference | None:
    """The mean of second - first and its standard error, over the sentences where both are finite.

    None where the two are not as many, or nothing is finite.

    >>> paired_difference([1.0, 2.0, 3.0], [2.0, 4.0, 3.0])
    Difference(value=1.0, stderr=0.5773502691896258, n=3)
    """
    if len(first) != len(second):
        return None
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite does not count
        difference_N = np.asarray(second, np.float64) - np.asarray(first, np.float64)
        difference_N = difference_N[np.isfinite(difference_N)]
        count = len(difference_N)
        if not count:
            return None
        return Difference(float(difference_N.mean()), standard_error(difference_N), count)


def merged(names: Sequence[str | None]) -> str:
    """One name out of several that are alike: what they have in common, and in brackets what not.

    >>> merged(["NLL, 20 samples (size 9.4)", "NLL, 20 samples (size 8.5)", None])
    'NLL, 20 samples (size [9.4 | 8.5 | –])'
    """
    words = [re.split(r"([\s(),]+)", name) for name in names if name is not None]
    if all(each == words[0] for each in words):
        return "".join(words[0])
    start = _alike(words)
    end = _alike([each[start:][::-1] for each in words])
    middles = iter("".join(each[start : len(each) - end]).strip() or "–" for each in words)
    told = " | ".join("–" if name is None else next(middles) for name in names)
    return f"{''.join(words[0][:start])}[{told}]{''.join(words[0][len(words[0]) - end :])}"


def _alike(words: list[list[str]]) -> int:
    """How many words all begin with."""
    return sum(1 for _ in takewhile(lambda each: len(set(each)) == 1, zip(*words, strict=False)))


@dataclass(frozen=True)
class Row:
    """One number of all spaces, in their order; None where a space has none. The first differs from nothing."""

    measure: str
    key: str
    theme: str
    estimates: tuple[Estimate | None, ...]
    differences: tuple[Difference | None, ...]

    @property
    def name(self) -> str:
        """What it is; where the spaces' own words differ, such as in a count, all of them in brackets."""
        return merged([None if each is None else each.name for each in self.estimates])

    def verdict(self, place: int) -> str:
        """ "better", "worse" or "different" for a space whose number is clearly another than the first's, else ""."""
        difference = self.differences[place]
        if difference is None or not difference.clear:
            return ""
        better = next((each.better for each in self.estimates if each is not None), None)
        if better is None:
            return "different"
        return "better" if (difference.value < 0) == (better == "lower") else "worse"


@dataclass(frozen=True)
class Comparison:
    """Reports of several spaces under their names, and their numbers side by side."""

    reports: dict[str, Report]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    command: str = ""

    @cached_property
    def tables(self) -> dict[str, dict[str, Table]]:
        """What the spaces say of the same sentences, by measure and name."""
        return joined_tables(self.reports)

    def headlines(self) -> list[tuple[str, Row]]:
        """The rows for the top, and their plain names."""
        by_key = {(row.measure, row.key): row for row in self.rows}
        found = [(line, by_key[line[:2]]) for line in HEADLINES if line[:2] in by_key]
        return [(line.bounded(next(filter(None, row.estimates))).label, row) for line, row in found]

    def to_dict(self) -> dict[str, Any]:
        """For JSON: the numbers side by side; what each rests on is in the report of each space."""
        rows = [
            {
                "measure": row.measure,
                "key": row.key,
                "theme": row.theme,
                "name": row.name,
                "estimates": [None if each is None else each.to_dict() for each in row.estimates],
                "differences": [None if each is None else asdict(each) for each in row.differences],
                "verdicts": [row.verdict(place) for place in range(len(self.reports))],
            }
            for row in self.rows
        ]
        about = {
            name: {"space": report.space, "data": report.data, "settings": report.settings, "skipped": report.skipped}
            for name, report in self.reports.items()
        }
        tables = {name: {key: asdict(each) for key, each in of.items()} for name, of in self.tables.items()}
        found = {"schema": SCHEMA, "spaces": about, "rows": rows, "tables": tables}
        return to_json(found | {"notes": self.notes, "command": self.command})

    def save(self, folder: Path) -> dict[str, Path]:
        """Write comparison.json, comparison.md and comparison.html into a folder."""

        made = {"json": json_text(self.to_dict()), "md": markdown(self), "html": page(self)}
        paths = {ending: folder / f"comparison.{ending}" for ending in made}
        for ending, text in made.items():
            write_file(paths[ending], text.encode())
        return paths


def compare(reports: dict[str, Report], command: str = "") -> Comparison:
    """Put reports side by side; the first is what the others are compared with."""
    if len(reports) < 2:
        raise TextspaceError("a comparison takes two spaces or more")
    (first_name, first), *_ = reports.items()
    notes = []
    same_text = {name: _text(report) == _text(first) for name, report in reports.items()}
    for name in (name for name, same in same_text.items() if not same):
        notes.append(
            f"{name} was measured on other test sentences than {first_name}, so the two cannot be compared sentence by "
            "sentence"
        )
    for name, report in reports.items():
        changed = [key for key in ("effort", "seed") if report.settings[key] != first.settings[key]]
        if changed:
            notes.append(f"{name} was measured with another {' and '.join(changed)} than {first_name}")
    notes += [f"{name}: {note}" for name, report in reports.items() if (note := report.data.get("met"))]
    unknown = {name: _unknown(report) for name, report in reports.items()}
    if max(unknown.values()) - min(unknown.values()) > ALIKE:
        told = ", ".join(f"{name} {share:.2%}" for name, share in unknown.items())
        notes.append(
            "the spaces do not know the same words, and likelihoods are flattered by those they do not know: "
            f"{told} of the test tokens"
        )
    places = dict.fromkeys(
        (measure, key)
        for report in reports.values()
        for measure, entry in report.entries.items()
        for key in entry.findings.estimates
    )
    themes = {name: entry.theme for report in reports.values() for name, entry in report.entries.items()}
    rows = []
    for measure, key in places:
        base = _per_sentence(first, measure, key)
        differences = tuple(
            None
            if report is first or base is None or not same_text[name]
            else _difference(
                base, _per_sentence(report, measure, key), [_of_runs(each, measure, key) for each in (first, report)]
            )
            for name, report in reports.items()
        )
        estimates = tuple(report.estimate(measure, key) for report in reports.values())
        rows.append(Row(measure, key, themes[measure], estimates, differences))
    return Comparison(reports, tuple(rows), tuple(notes), command)


def _text(report: Report) -> Any:
    return report.data.get("test_fingerprint")


def _unknown(report: Report) -> float:
    """Share of the test tokens that a space does not know."""
    return report.data["splits"].get("test", {}).get("unknown", 0.0)


def _per_sentence(report: Report, measure: str, key: str) -> list[float] | None:
    entry = report.entries.get(measure)
    return None if entry is None else entry.findings.per_sentence.get(key)


def _of_runs(report: Report, measure: str, key: str) -> float:
    """The standard error of a number over the runs that it is the mean of, classifiers with other labels, say."""
    estimate = report.estimate(measure, key)
    runs = None if estimate is None else estimate.settings.get("runs")
    # Reports of the first versions have the spread in the place of the error.
    spread = None if estimate is None else estimate.settings.get("spread", estimate.stderr)
    if not isinstance(spread, float) or not isinstance(runs, int) or runs < 2:
        return 0.0
    return spread / math.sqrt(runs)


def _difference(base: list[float], other: list[float] | None, of_runs: Sequence[float]) -> Difference | None:
    """Paired over sentences; to that error come those over runs, which other sentences would not show."""
    found = None if other is None else paired_difference(base, other)
    if found is None or found.stderr is None:
        return found
    return replace(found, stderr=math.hypot(found.stderr, *of_runs))


# Markdown


def markdown(comparison: Comparison) -> str:
    """The numbers side by side, by theme."""
    names = list(comparison.reports)
    lines = [f"# Comparison of {as_text(' and '.join([', '.join(names[:-1]), names[-1]]))}", ""]
    lines += [f"- {as_text(name)}: {as_text(report.space['about'])}" for name, report in comparison.reports.items()]
    lines += [f"- Text: {as_text(comparison.reports[names[0]].data['about'])}"]
    lines += [f"- Note: {as_text(note)}" for note in comparison.notes]
    lines += ["", EXPLANATION, ""]
    columns, sides = ["measure", *names], "l" + "r" * len(names)
    headlines = comparison.headlines()
    if headlines:
        lines += ["## In short", ""]
        lines += markdown_table(columns, [(label, *_cells(row)) for label, row in headlines], sides)
    for theme, by_measure in _grouped(comparison).items():
        told = {name: rows for name, rows in by_measure.items() if rows or name in comparison.tables}
        lines += [f"## {theme}", ""] if told else []
        for measure, rows in told.items():
            lines += [f"### {plain_name(measure)}", ""]
            lines += markdown_table(columns, [(row.name, *_cells(row)) for row in rows], sides) if rows else []
            for table in comparison.tables.get(measure, {}).values():
                lines += [f"**{as_text(table.title)}**", ""]
                lines += markdown_table(table.columns, shown_rows(table), alignment(table))
    if comparison.command:
        lines += ["## To repeat this", "", f"    {comparison.command}", ""]
    return "\n".join(lines)


def _cells(row: Row) -> tuple[str, ...]:
    values = ["" if each is None else str(each) for each in row.estimates]
    differences = [difference_text(row, place) for place in range(len(values))]
    return tuple(f"{value} ({told})" if told else value for value, told in zip(values, differences, strict=True))


def difference_text(row: Row, place: int) -> str:
    """How a space differs from the first, and whether that is for the better; empty where there is nothing to say."""
    difference, verdict = row.differences[place], row.verdict(place)
    return "" if difference is None else f"{difference}{f', {verdict}' if verdict else ''}"


def _grouped(comparison: Comparison) -> dict[str, dict[str, list[Row]]]:
    """Rows by theme and measure; a measure that has only pictures has no rows."""
    found: dict[str, dict[str, list[Row]]] = {theme: {} for theme in THEMES}
    for report in comparison.reports.values():
        for theme, entries in report.by_theme().items():
            for measure in entries:
                found.setdefault(theme, {}).setdefault(measure, [])
    for row in comparison.rows:
        found.setdefault(row.theme, {}).setdefault(row.measure, []).append(row)
    return {theme: by_measure for theme, by_measure in found.items() if by_measure}


# HTML


def page(comparison: Comparison) -> str:
    """The whole page."""
    names = list(comparison.reports)
    spaces = "".join(
        f'<p class="lede"><b>{escape(name)}</b>: {escape(report.space["about"])}</p>'
        for name, report in comparison.reports.items()
    )
    notes = "".join(f'<p class="lede small">{escape(note)}</p>' for note in comparison.notes)
    date = next(iter(comparison.reports.values())).settings["date"][:10]
    parts = [
        f'<header><p class="kicker">textspace comparison · {escape(date)}</p><h1>{escape(" · ".join(names))}</h1>'
        f'{spaces}<p class="lede">Measured on {escape(comparison.reports[names[0]].data["about"])}</p>{notes}</header>',
        _diagnoses(comparison),
    ]
    headlines = comparison.headlines()
    if headlines:
        parts.append(f'<section><h2>In short</h2><div class="measure">{_table(names, headlines)}</div></section>')
    parts.append(f'<p class="small">{escape(EXPLANATION)}</p>')
    for theme, by_measure in _grouped(comparison).items():
        inner = "".join(_measure(comparison, measure, rows) for measure, rows in by_measure.items())
        parts.append(f"<section><h2>{escape(theme)}</h2>{inner}</section>" if inner else "")
    if comparison.command:
        parts.append(f"<section><h2>To repeat this</h2><pre>{escape(comparison.command)}</pre></section>")
    return html_page(f"Comparison of {', '.join(names)}", "".join(parts))


def _diagnoses(comparison: Comparison) -> str:
    said = {name: report.diagnosis for name, report in comparison.reports.items() if report.diagnosis}
    return "".join(
        f'<aside class="doctor {escape(told.get("state", ""))}"><p class="state">{escape(name)}: '
        f"{escape(told.get('state', ''))}</p><p>{escape(told.get('in words', ''))}</p></aside>"
        for name, told in said.items()
    )


def _measure(comparison: Comparison, measure: str, rows: list[Row]) -> str:
    names = list(comparison.reports)
    table = _table(names, [(row.name, row) for row in rows]) if rows else ""
    pictures = _pictures(comparison, measure)
    inner = table + "".join(map(html_table, comparison.tables.get(measure, {}).values())) + pictures
    # Empty where a measure has nothing but tables that only a report shows.
    return f'<div class="measure"><h3>{escape(plain_name(measure))}</h3>{inner}</div>' if inner else ""


def _table(names: list[str], rows: list[tuple[str, Row]]) -> str:
    head = "".join(f'<th class="r">{escape(name)}</th>' for name in names)
    body = "".join(
        f"<tr><td>{escape(label)}</td>{''.join(_cell(row, place) for place in range(len(names)))}</tr>"
        for label, row in rows
    )
    table = f"<table><thead><tr><th>what</th>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="scroll">{table}</div>'


def _cell(row: Row, place: int) -> str:
    whole, told = value_cell(row.estimates[place]), difference_text(row, place)
    line = f'<div class="small {row.verdict(place)}">{escape(told)}</div>' if told else ""
    return whole.removesuffix("</td>") + line + "</td>"


def _pictures(comparison: Comparison, measure: str) -> str:
    """The pictures of all spaces that have them, each kind beside its likes."""
    drawn = []
    having = {name: report for name, report in comparison.reports.items() if measure in report.entries}
    found = {name: report.entries[measure].findings for name, report in having.items()}
    for key in dict.fromkeys(key for findings in found.values() for key in findings.pictures):
        row = {name: findings.pictures[key] for name, findings in found.items() if key in findings.pictures}
        named = {name: replace(picture, title=f"{name}: {picture.title}") for name, picture in row.items()}
        drawn.append(figures(named, f"{measure}-{key}"))
    return f"<details><summary>Pictures</summary>{''.join(drawn)}</details>" if drawn else ""
