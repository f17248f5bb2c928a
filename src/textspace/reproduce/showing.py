"""A reproduction for people: rows for the terminal, Markdown, and all files of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from textspace.digits import number, plus_minus
from textspace.evaluate.reports.report import to_json
from textspace.evaluate.reports.text import as_text, markdown_table
from textspace.files import check_no_file, write_file
from textspace.reproduce.picture import pictures
from textspace.reproduce.report import SPREAD_FROM, Cell, Line, Reproduction
from textspace.reproduce.table import ELSEWHERE, Column

__all__ = ["explained", "fitting", "markdown", "save", "terminal_rows"]

MOST_ERRORS = 99
"""Standard errors beyond which nobody counts: seeds that end all alike have next to none."""


def save(found: Reproduction, folder: Path) -> dict[str, Path]:
    """Write `folder`/NAME.json, .md, .png and further pictures; the first is enough to make the others again."""
    check_no_file(folder, ELSEWHERE)
    paths = {ending: folder / f"{found.table.name}.{ending}" for ending in ("json", "md")}
    content = json.dumps(to_json(found.to_dict()), indent=1, ensure_ascii=False, allow_nan=False)
    write_file(paths["json"], (_lists_in_lines(content) + "\n").encode())
    write_file(paths["md"], markdown(found).encode())
    for name, draw in pictures(found).items():
        paths[name] = folder / name
        draw(found).savefig(paths[name], dpi=130)
    return paths


def _lists_in_lines(content: str) -> str:
    """JSON with every list of numbers in one line.

    >>> print(_lists_in_lines(json.dumps({"a": [1, None], "b": ["[ 1 ]"]}, indent=1)))
    {
     "a": [1, null],
     "b": [
      "[ 1 ]"
     ]
    }
    """
    # Text cannot match: in JSON its line breaks are written otherwise.
    return re.sub(r'\[\n([^\[\]{}"]*)\n *\]', lambda found: f"[{' '.join(found[1].split())}]", content)


def ours(cell: Cell) -> str:
    """
    >>> ours(Cell(96.3061, 0.2, 96.17, 0.68)), ours(Cell(32.0, 0.0, 32)), ours(Cell(0.0025, 8e-5)), ours(Cell())
    ('96.31 ± 0.20', '32', '0.002500 ± 0.000080', '')
    >>> ours(Cell(9.5232e21, 1.151e19)), ours(Cell(9e20)), ours(Cell(1234.50012))
    ('9.523e+21 ± 1.2e+19', '9e+20', '1,235')
    """
    return "" if cell.ours is None else plus_minus(cell.ours, cell.error)


def paper(cell: Cell) -> str:
    return "" if cell.paper is None else f"{cell.paper:g}"


def gap(cell: Cell) -> str:
    """What ours differs by from the reference's, and in brackets the same of the paper's.

    >>> gap(Cell(374.3, 5.1, 327.2, gap=-1.1, gap_error=0.08, paper_gap=-1.4)), gap(Cell(32.0, gap=32.0)), gap(Cell())
    ('-1.100 ± 0.080 (-1.4)', '+32', '')
    """
    if cell.gap is None:
        return ""
    theirs = "" if cell.paper_gap is None else f" ({number(cell.paper_gap, signed=True)})"
    return plus_minus(cell.gap, cell.gap_error, signed=True) + theirs


def difference(cell: Cell) -> str:
    """
    >>> difference(Cell(96.3, 0.2, 96.17, 0.68)), difference(Cell(32.0, 0.0, 32.0)), difference(Cell(0.1, None, 0.0))
    ('+0.7', '', '')
    >>> difference(Cell(8.228, 1e-13, 8.22, 8e10)), difference(Cell(0.5, 0.005, 1.01, -102.0))
    ('> +99', '< -99')
    """
    if cell.difference is None:
        return ""
    if abs(cell.difference) > MOST_ERRORS:
        return f"> +{MOST_ERRORS}" if cell.difference > 0 else f"< -{MOST_ERRORS}"
    return f"{cell.difference:+.1f}"


def runs(line: Line) -> str:
    """How many of a row's runs are done; a star where errors are over sentences."""
    if line.row.recipe is None:
        return "quoted"
    done = f"{line.done}" if line.done == line.wanted else f"{line.done} of {line.wanted}"
    return done + ("*" if 0 < line.done < SPREAD_FROM else "")


# The terminal


def terminal_rows(found: Reproduction, columns: Sequence[Column]) -> Iterator[tuple[str, ...]]:
    """Ours, and below it, as far as there are any, the paper's, gaps to a reference, and differences."""
    for line in found.lines():
        cells = [line.cells[column.key] for column in columns]
        if line.row.recipe is not None:
            yield line.row.name, runs(line), *(ours(cell) for cell in cells)
        for name, show in (("  paper", paper), ("  gap", gap), ("  difference", difference)):
            texts = [show(cell) for cell in cells]
            if any(texts):
                yield (name if line.row.recipe else line.row.name), "" if line.row.recipe else "quoted", *texts


def fitting(found: Reproduction, width: int) -> tuple[Column, ...]:
    """The first columns of the table that fit into a line."""
    columns = found.table.columns
    for count in range(len(columns), 1, -1):
        rows = [("", "runs", *(column.label for column in columns[:count])), *terminal_rows(found, columns[:count])]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        if sum(widths) + 2 * len(widths) <= width:
            return columns[:count]
    return columns[:1]


def explained(found: Reproduction) -> list[str]:
    """What a reader of the numbers must know."""
    lines = []
    if any(line.done >= SPREAD_FROM for line in found.lines()):
        lines.append("± is the standard error over seeds.")
    if any(0 < line.done < SPREAD_FROM for line in found.lines()):
        lines.append("* few seeds: ± is the standard error over test sentences (or what its measure says).")
    cells = [cell for line in found.lines() for cell in line.cells.values()]
    if any(cell.gap is not None for cell in cells):
        lines.append(f"gap: ours less that of {found.table.reference}, and the paper's.")
    if any(cell.difference is not None for cell in cells):
        compared = f" Compared are gaps to {found.table.reference}." if found.table.reference else ""
        lines.append(f"difference: ours less the paper's in standard errors of ours.{compared}")
    lines += found.table.notes
    lines += [f"Not as the table says: {each}." for each in found.deviations]
    lines += [f"Missing: {name} ({why})." for name, why in found.missing.items()]
    if found.unasked:
        lines.append(f"Not asked for: {', '.join(found.unasked)}.")
    return lines


# Markdown


def markdown(found: Reproduction) -> str:
    """The whole as Markdown: numbers beside the paper's, and what they cost."""
    table = found.table
    heads = ("row", "in the paper", "runs", *(column.label for column in table.columns))
    rows = [
        (line.row.name, line.row.in_paper, runs(line), *(_beside(cell) for cell in line.cells.values()))
        for line in found.lines()
    ]
    lines = [f"# {table.name}", "", as_text(table.about), "", f"The paper: {as_text(table.paper)}.", ""]
    lines += ["Ours (the paper's; difference in standard errors).", ""]
    lines += markdown_table(heads, rows, "lll" + "r" * len(table.columns))
    lines += [*(f"- {as_text(each)}" for each in explained(found)), ""]
    lines += _gaps(found)
    for name in pictures(found):
        lines += [f"![{name.removesuffix('.png')}]({name})", ""]
    if costs := list(_costs(found)):
        heads = ("run", "seconds", "epochs", "steps", "encoder updates", "decoder updates", "parameters", "stopped")
        lines += ["## What it cost", "", *markdown_table(heads, costs, "lrrrrrrl")]
    lines += ["## To repeat this", "", f"    {found.command}", ""]
    lines += [f"- {', '.join(f'{name} {value}' for name, value in each.items() if value)}" for each in found.machines]
    return "\n".join(lines).rstrip() + "\n"


def _gaps(found: Reproduction) -> list[str]:
    """What rows differ by from the reference, where the corpus is not the paper's."""
    gaps = [line for line in found.lines() if any(cell.gap is not None for cell in line.cells.values())]
    columns = [column for column in found.table.columns if any(gap(line.cells[column.key]) for line in gaps)]
    if not gaps:
        return []
    heads = ("row", *(column.label for column in columns))
    rows = [(line.row.name, *(gap(line.cells[column.key]) for column in columns)) for line in gaps]
    lines = [f"## Gaps to {as_text(found.table.reference or '')}", ""]
    lines += ["Ours (the paper's). With few seeds ± of likelihoods is over the differences of the same sentences.", ""]
    return lines + markdown_table(heads, rows, "l" + "r" * len(columns))


def _beside(cell: Cell) -> str:
    """
    >>> _beside(Cell(96.3061, 0.2, 96.17, 0.68)), _beside(Cell(None, None, 43.0)), _beside(Cell(1.5, 0.5))
    ('96.31 ± 0.20 (96.17; +0.7)', '(43)', '1.50 ± 0.50')
    """
    inside = "; ".join(filter(None, (paper(cell), difference(cell))))
    return " ".join(filter(None, (ours(cell), f"({inside})" if inside else "")))


def _costs(found: Reproduction) -> Iterator[tuple[str, ...]]:
    for name, run in found.runs.items():
        if run["state"] == "done":
            names = "steps", "encoder_updates", "decoder_updates", "parameters"
            seconds = f"{run['seconds']:,.0f}"
            if run.get("pretraining"):
                seconds += f" + {run['pretraining']['seconds']:,.0f} before"
            yield name, seconds, f"{run['epochs']:,}", *(f"{run[each]:,}" for each in names), run["stopped"]
