"""A report as one HTML page that needs nothing else: no scripts, no other files, pictures as SVG in the page."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from html import escape

from textspace.digits import value_and_error
from textspace.evaluate.measure import Picture, Table
from textspace.evaluate.reports.pictures import svg
from textspace.evaluate.reports.report import Entry, Report
from textspace.evaluate.reports.text import alignment, plain_name, shown, shown_rows
from textspace.types import Estimate

__all__ = ["figures", "html_page", "html_table", "page", "value_cell"]

LONG_TABLE = 13
"""Rows beyond which a table is folded."""

SHOWN_ROWS = 11
"""Of a folded table; a path of 11 sentences is just whole."""

MANY_NUMBERS = 14
"""Numbers of a measure beyond which they are folded."""

NARROW, HALF = 90, 56
"""Characters of a row below which a table does not fill the page, or can stand beside a picture."""

_CSS = """
:root { --ink: #1f2933; --soft: #5b6776; --line: #e3e8ee; --paper: #ffffff; --wash: #f5f7fa; --accent: #2f6db3;
  --good: #2c8a5f; --bad: #c2452d; --warn: #b7791f; }
* { box-sizing: border-box; }
html { color-scheme: light; scroll-behavior: smooth; }
body { margin: 0; background: var(--wash); color: var(--ink); line-height: 1.5;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 2.4rem 1.4rem 4rem; }
header h1 { font-size: 2.1rem; line-height: 1.15; margin: 0.1rem 0 0.4rem; letter-spacing: -0.015em;
  overflow-wrap: anywhere; }
.kicker { text-transform: uppercase; letter-spacing: 0.09em; font-size: 0.74rem; color: var(--accent); font-weight: 600;
  margin: 0; }
.lede { color: var(--soft); margin: 0.15rem 0; max-width: 60rem; }
nav { display: flex; flex-wrap: wrap; gap: 0.45rem; margin: 1.3rem 0; }
nav a { background: var(--paper); border: 1px solid var(--line); border-radius: 99px; padding: 0.22rem 0.85rem;
  font-size: 0.86rem; color: var(--ink); text-decoration: none; }
nav a:hover { border-color: var(--accent); color: var(--accent); }
.doctor { background: var(--paper); border: 1px solid var(--line); border-left: 5px solid var(--soft);
  border-radius: 10px; padding: 0.9rem 1.2rem; margin: 1.3rem 0; }
.doctor p { margin: 0.2rem 0; }
.doctor .state { font-weight: 650; text-transform: uppercase; font-size: 0.74rem; letter-spacing: 0.09em; }
.doctor.healthy { border-left-color: var(--good); } .doctor.healthy .state { color: var(--good); }
.doctor.collapsed, .doctor.collapsing { border-left-color: var(--bad); }
.doctor.collapsed .state, .doctor.collapsing .state { color: var(--bad); }
.doctor.overfull { border-left-color: var(--warn); } .doctor.overfull .state { color: var(--warn); }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(205px, 1fr)); gap: 0.9rem; margin: 1.3rem 0; }
.card { background: var(--paper); border: 1px solid var(--line); border-radius: 12px; padding: 0.95rem 1.1rem; }
.card .label { font-size: 0.82rem; color: var(--soft); font-weight: 600; }
.card .value { font-size: 1.75rem; font-weight: 650; line-height: 1.25; font-variant-numeric: tabular-nums; }
.card .error { font-size: 0.95rem; font-weight: 400; color: var(--soft); }
.card .about { font-size: 0.83rem; color: var(--soft); margin: 0.3rem 0 0; line-height: 1.4; }
section { margin-top: 2.6rem; }
section > h2 { font-size: 1.35rem; margin: 0 0 0.8rem; letter-spacing: -0.01em; }
.measure { background: var(--paper); border: 1px solid var(--line); border-radius: 12px; padding: 1.1rem 1.3rem 1.2rem;
  margin: 0 0 1.1rem; }
.measure h3 { margin: 0; font-size: 1.06rem; }
.measure > p.about { margin: 0.1rem 0 0.8rem; color: var(--soft); font-size: 0.92rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 0.88rem; margin: 0.2rem 0 0.9rem; }
th { text-align: left; font-weight: 600; color: var(--soft); font-size: 0.76rem; letter-spacing: 0.03em;
  border-bottom: 1px solid var(--line); padding: 0.3rem 1.1rem 0.3rem 0; vertical-align: bottom; }
td { border-bottom: 1px solid var(--line); padding: 0.38rem 1.1rem 0.38rem 0; vertical-align: top; }
tr:last-child td { border-bottom: 0; }
table.narrow { width: auto; } table.narrow th, table.narrow td { padding-right: 1.9rem; }
.way { white-space: nowrap; color: var(--soft); font-size: 0.8rem; padding-left: 0.9rem; width: 5.2rem; }
th.r, td.r { text-align: right; font-variant-numeric: tabular-nums; }
td.r { white-space: nowrap; }
td.value { font-weight: 600; } td.value span { font-weight: 400; color: var(--soft); }
caption, summary { text-align: left; font-weight: 600; font-size: 0.9rem; padding: 0.5rem 0 0.3rem; }
summary { cursor: pointer; color: var(--accent); }
.tag { display: inline-block; font-size: 0.72rem; color: var(--soft); background: var(--wash); border-radius: 6px;
  padding: 0 0.42rem; margin-left: 0.35rem; white-space: nowrap; border: 1px solid var(--line); }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(400px, 100%), 1fr)); gap: 1rem 1.6rem; }
figure { margin: 0.4rem 0; max-width: 560px; }
figcaption { font-weight: 600; font-size: 0.9rem; margin-bottom: 0.25rem; }
figure svg { width: 100%; height: auto; display: block; }
pre { background: var(--ink); color: #e8edf3; padding: 0.8rem 1rem; border-radius: 10px; overflow-x: auto;
  font-size: 0.85rem; white-space: pre-wrap; overflow-wrap: anywhere; }
.small { font-size: 0.84rem; color: var(--soft); font-weight: 400; }
.small.better, .small.worse, .small.different { font-weight: 600; }
.small.better { color: var(--good); } .small.worse { color: var(--bad); } .small.different { color: var(--ink); }
ul.plain { padding-left: 1.1rem; margin: 0.3rem 0; }
footer { margin-top: 3rem; color: var(--soft); font-size: 0.82rem; }
@media print { body { background: white; } .measure, .card { break-inside: avoid; } nav { display: none; } }
"""


def page(report: Report) -> str:
    """The whole page."""
    themes = report.by_theme()
    parts = [_header(report), _doctor(report), _cards(report), _navigation([*themes, *_last(report)])]
    for theme, entries in themes.items():
        inner = "".join(_measure(name, entry) for name, entry in entries.items())
        parts.append(f'<section id="{_anchor(theme)}"><h2>{escape(theme)}</h2>{inner}</section>')
    if report.skipped:
        items = "".join(f"<li><b>{escape(plain_name(n))}</b>: {escape(why)}</li>" for n, why in report.skipped.items())
        parts.append(
            f'<section id="{_anchor(NOT_MEASURED)}"><h2>{NOT_MEASURED}</h2>'
            f'<div class="measure"><ul class="plain">{items}</ul></div></section>'
        )
    parts.append(_repeating(report))
    return html_page(f"Evaluation of {report.name}", "".join(parts))


def html_page(title: str, body: str) -> str:
    """A page around a body."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_CSS}</style></head>\n<body><main>{body}</main></body></html>\n"
    )


NOT_MEASURED, REPEATING = "Not measured", "To repeat this"


def _last(report: Report) -> list[str]:
    return [*([NOT_MEASURED] if report.skipped else []), REPEATING]


def _header(report: Report) -> str:
    suite = report.settings["suite"]
    kicker = f"textspace evaluation{f' · {suite} suite' if suite else ''} · {report.settings['date'][:10]}"
    notes = "".join(f'<p class="lede small">{escape(note)}</p>' for note in report.data["notes"])
    return (
        f'<header><p class="kicker">{escape(kicker)}</p><h1>{escape(report.name)}</h1>'
        f'<p class="lede">{escape(report.space["about"])}</p>'
        f'<p class="lede">Measured on {escape(report.data["about"])}</p>{notes}</header>'
    )


def _doctor(report: Report) -> str:
    told = report.diagnosis
    if not told:
        return ""
    advice = "".join(
        f'<p class="small">{escape(start.capitalize())}: {escape(told[start])}</p>'
        for start in ("to try", "or")
        if start in told
    )
    state = told.get("state", "unknown")
    return (
        f'<aside class="doctor {escape(state)}"><p class="state">{escape(state)}</p>'
        f"<p>{escape(told.get('in words', ''))}</p>{advice}</aside>"
    )


def _cards(report: Report) -> str:
    cards = [
        f'<div class="card"><div class="label">{escape(line.label)}</div>{_card_value(estimate)}'
        f'<p class="about" title="{escape(estimate.name)}">{escape(line.about)}</p></div>'
        for line, estimate in report.headlines()
    ]
    return f'<div class="cards">{"".join(cards)}</div>' if cards else ""


def _card_value(estimate: Estimate) -> str:
    value, error = value_and_error(estimate.value, estimate.stderr)
    return f'<div class="value">{value}{f" <span class=error>± {error}</span>" if error else ""}</div>'


def _navigation(titles: Iterable[str]) -> str:
    links = "".join(f'<a href="#{_anchor(title)}">{escape(title)}</a>' for title in titles)
    return f"<nav>{links}</nav>"


def _anchor(title: str) -> str:
    return re.sub(r"[^a-z]+", "-", title.lower())


def _measure(name: str, entry: Entry) -> str:
    findings = entry.findings
    parts = [f'<h3>{escape(plain_name(name))}</h3><p class="about">{escape(entry.about)}</p>']
    if entry.notes:
        parts.append(f'<ul class="plain small">{"".join(f"<li>{escape(note)}</li>" for note in entry.notes)}</ul>')
    if findings.estimates:
        parts.append(_estimates(findings.estimates.values(), bool(findings.tables)))
    tables = [table for key, table in findings.tables.items() if (name, key) != ("posterior", "doctor")]
    beside = [table for table in tables if findings.pictures and _width(table) < HALF and len(table.rows) <= LONG_TABLE]
    if findings.pictures:
        parts.append(figures(findings.pictures, name, map(html_table, beside)))
    parts += [html_table(table) for table in tables if table not in beside]
    return f'<div class="measure" id="{escape(name)}">{"".join(parts)}</div>'


_BETTER = {"lower": "↓ lower", "higher": "↑ higher"}
_BOUNDS = {"upper": "upper bound", "lower": "lower bound", "exact": "exact"}


def _estimates(estimates: Collection[Estimate], has_tables: bool) -> str:
    """The numbers of a measure; many are folded where a table sums them up."""
    directed = any(each.better for each in estimates)
    rows = []
    for each in estimates:
        bound = _BOUNDS.get(each.bound, "")
        tag = f'<span class="tag">{bound}</span>' if bound and bound not in each.name else ""
        settings = ", ".join(f"{name} {shown(value)}" for name, value in each.settings.items() if value is not None)
        way = f'<td class="way">{_BETTER.get(each.better or "", "")}</td>' if directed else ""
        rows.append(
            f'<tr title="{escape(settings)}"><td>{escape(each.name)}{tag}</td>{value_cell(each)}'
            f'<td class="r">{each.n:,}</td>{way}</tr>'
        )
    way = '<th class="way">better</th>' if directed else ""
    head = f'<tr><th>what</th><th class="r">value ± error</th><th class="r">n</th>{way}</tr>'
    table = f'<div class="scroll"><table><thead>{head}</thead><tbody>{"".join(rows)}</tbody></table></div>'
    folded = f"<details><summary>All {len(rows)} numbers</summary>{table}</details>"
    return folded if len(rows) > MANY_NUMBERS and has_tables else table


def value_cell(estimate: Estimate | None) -> str:
    """A cell with a number and its error."""
    if estimate is None:
        return '<td class="r"></td>'
    value, error = value_and_error(estimate.value, estimate.stderr)
    return f'<td class="r value">{value}{f" <span>± {error}</span>" if error else ""}</td>'


def figures(pictures: dict[str, Picture], name: str, beside: Iterable[str] = ()) -> str:
    """Pictures side by side, and what else may stand beside them; `name` keeps them apart from others on the page."""
    drawn = (
        f"<figure><figcaption>{escape(picture.title)}</figcaption>{svg(picture, f'{name}-{number}')}</figure>"
        for number, picture in enumerate(pictures.values())
    )
    others = (f"<div>{each}</div>" for each in beside)
    return f'<div class="figures">{"".join([*drawn, *others])}</div>'


def html_table(table: Table) -> str:
    """A table; of a long one the beginning, and the rest folded."""
    sides = alignment(table)
    head = "".join(f'<th class="{side}">{escape(name)}</th>' for name, side in zip(table.columns, sides, strict=True))
    rows = [
        "<tr>" + "".join(f'<td class="{s}">{escape(c)}</td>' for c, s in zip(row, sides, strict=True)) + "</tr>"
        for row in shown_rows(table)
    ]
    kind = ' class="narrow"' if _width(table) < NARROW else ""
    first = len(rows) if len(rows) <= LONG_TABLE else SHOWN_ROWS

    def part(title: str, some: list[str]) -> str:
        inner = f"{title}<thead><tr>{head}</tr></thead><tbody>{''.join(some)}</tbody>"
        return f'<div class="scroll"><table{kind}>{inner}</table></div>'

    whole = part(f"<caption>{escape(table.title)}</caption>", rows[:first])
    more = len(rows) - first
    rest = f"<details><summary>{more:,} more rows</summary>{part('', rows[first:])}</details>" if more else ""
    return whole + rest


def _width(table: Table) -> int:
    """Characters of the widest row."""
    return max((sum(map(len, row)) for row in [table.columns, *shown_rows(table)]), default=0)


def _repeating(report: Report) -> str:
    settings = report.settings
    facts: dict[str, object] = {
        "textspace": settings["textspace"],
        "date": settings["date"],
        "device": settings["device"],
        "seed": settings["seed"],
        **{name.replace("_", " "): value for name, value in settings["effort"].items()},
        "weights": report.space["weights"][:16],
        "text": report.data["fingerprint"][:16],
        "seconds": round(sum(entry.seconds for entry in report.entries.values()), 1),
    }
    told = "".join(f"<tr><td>{escape(name)}</td><td>{escape(str(value))}</td></tr>" for name, value in facts.items())
    command = f"<pre>{escape(settings['command'])}</pre>" if settings["command"] else ""
    splits = Table(
        "Text",
        ("split", "sentences", "of", "words per sentence", "unknown tokens"),
        tuple(
            (name, each["sentences"], each["of"], round(each["words"], 2), f"{each['unknown']:.2%}")
            for name, each in report.data["splits"].items()
        ),
    )
    return (
        f'<section id="{_anchor(REPEATING)}"><h2>{REPEATING}</h2><div class="measure">{command}'
        f"{html_table(splits) if splits.rows else ''}"
        f"<details><summary>Settings</summary><table><tbody>{told}</tbody></table></details>"
        '<p class="small">All numbers with their settings, the values of every sentence and the data of the pictures '
        "are in report.json beside this page.</p></div></section>"
    )
