"""What the commands evaluate and compare have in common: running measures as asked, and printing what they found."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from textspace.cli.shared import make_folder, print_json, print_table, sources, tell
from textspace.errors import TextspaceError

if TYPE_CHECKING:
    from textspace.data.options import ReadOptions
    from textspace.evaluate.measure import Measure, Table
    from textspace.evaluate.reports.comparison import Comparison, Row
    from textspace.evaluate.reports.report import Report

__all__ = [
    "Asked",
    "evaluated",
    "given_command",
    "print_comparison",
    "print_measures",
    "print_report",
    "report_folder",
]


@dataclass(frozen=True)
class Asked:
    """What to measure, on what, and how hard to try; as the command line has it, unchecked."""

    data: str
    options: ReadOptions
    suite: str
    measures: list[str]
    samples: int | None
    precision: str
    end_token: str
    tasks: Path | None
    seed: int
    device: str | None
    out: Path | None
    baselines: tuple[str, ...] = ()


def evaluated(folder: Path, name: str, asked: Asked) -> Report:
    """The report of the space in a folder, measured now or before."""
    from textspace.evaluate.suite import chosen_measures, effort_of, subject_of
    from textspace.evaluate.suite import evaluate as run
    from textspace.space import Space

    effort = effort_of(asked.suite, asked.samples, asked.precision)
    if asked.tasks is not None and not asked.tasks.is_dir():
        raise TextspaceError(f"there is no folder {str(asked.tasks)!r} with files of tasks")
    suite: Any = asked.suite
    end_token: Any = asked.end_token
    names = [each.strip() for written in asked.measures for each in written.removesuffix(",").split(",")]
    measures = chosen_measures(suite, names, end_token)
    _check_baselines(asked, measures)
    space = Space.load(folder, asked.device)
    make_folder(asked.out or report_folder(folder))
    subject = subject_of(
        space,
        sources(asked.data),
        effort=effort,
        seed=asked.seed,
        options=asked.options,
        folder=folder,
        task_files=asked.tasks,
        baselines=asked.baselines,
        show_progress=True,
    )
    for note in subject.notes:
        tell(note)
    # A folder that cannot be written, such as one on a shared disk, has no cache.
    cache = report_folder(folder) / "cache" if os.access(folder, os.W_OK) else None
    try:
        report = run(subject, measures, name=name, suite=suite, cache=cache, command=given_command(), say=tell)
    except KeyboardInterrupt:
        tell("interrupted: finished measures are kept, and the same command goes on from there" if cache else "stopped")
        raise typer.Exit(130) from None
    if not report.entries:  # which must not take the place of an earlier report
        reasons = "; ".join(dict.fromkeys(report.skipped.values()))
        raise TextspaceError(f"nothing was measured and no report written: {reasons}")
    return report


def _check_baselines(asked: Asked, measures: Mapping[str, Measure]) -> None:
    """Notice before hours of work, and not after, that a baseline cannot be had or would not be looked at."""
    from textspace.config import PretrainedEncoder
    from textspace.evaluate.registry import measures as all_measures
    from textspace.pretrained import EncoderFiles

    looking = [each for each in measures.values() if each.has_baselines]
    if asked.baselines and not looking:
        able = ", ".join(name for name, each in all_measures().items() if each.has_baselines)
        raise TextspaceError(f"no chosen measure looks at a baseline: choose one with --measure, of {able}")
    if asked.baselines and asked.tasks is None and all("files" in each.needs for each in looking):
        raise TextspaceError("baselines are measured on tasks: name the folder with their files with --tasks")
    for model in asked.baselines:
        EncoderFiles.fetch(PretrainedEncoder(model=model))


def report_folder(folder: Path) -> Path:
    """Where the report of a space goes unless asked otherwise."""
    return folder / "evaluation"


def given_command() -> str:
    """The command as it was given."""
    return shlex.join(["textspace", *sys.argv[1:]])


def print_measures(as_json: bool) -> None:
    from textspace.evaluate.registry import measures, theme_of

    if as_json:
        found = {
            name: {"about": each.about, "theme": theme_of(name), "needs": each.needs, "suites": list(each.suites)}
            for name, each in measures().items()
        }
        print_json(found)
        return
    needs = {name: f" (needs {', '.join(each.needs)})" if each.needs else "" for name, each in measures().items()}
    rows = [
        (name, next(iter(each.suites), ""), each.about.rstrip(".") + needs[name]) for name, each in measures().items()
    ]
    print_table({"measure": "left", "from suite": "left", "about": "left"}, rows, whole="measure")


def print_report(report: Report) -> None:

    if report.diagnosis:
        typer.echo(f"{report.diagnosis['in words']}\n")
    headlines = report.headlines()
    rows = [(line.label, str(each), f"{each.n:,}", line.about) for line, each in headlines]
    if not rows:  # single measures, of which none is for the top
        rows = [
            (each.name, str(each), f"{each.n:,}", f"{each.better} is better" if each.better else "")
            for entry in report.entries.values()
            for each in entry.findings.estimates.values()
        ]
    if rows:
        columns = {"measure": "left", "value ± error": "right", "n": "right", "what it says": "left"}
        print_table(columns, rows)
        typer.echo()
    for entry in report.entries.values():
        for key, table in entry.findings.tables.items():
            if key == "by_source" or (table.grouped and not headlines):
                _print_findings(table)


def _print_findings(table: Table) -> None:
    from rich.console import Console

    from textspace.evaluate.reports.text import alignment, shown_rows

    rows = list(shown_rows(table))
    widths = [max(map(len, cells)) for cells in zip(table.columns, *rows, strict=True)]
    ends = [sum(widths[:count]) + 2 * (count - 1) for count in range(1, len(widths) + 1)]
    fitting = max(2, sum(end <= Console().width for end in ends))
    sides = ["right" if side == "r" else "left" for side in alignment(table)]
    typer.echo(f"{table.title}:")
    print_table(dict(list(zip(table.columns, sides, strict=True))[:fitting]), [row[:fitting] for row in rows])
    if fitting < len(widths):
        typer.echo(f"Columns that do not fit here: {len(widths) - fitting}; the report has them.")
    typer.echo()


def print_comparison(found: Comparison) -> None:
    from textspace.evaluate.reports.comparison import difference_text

    for note in found.notes:
        tell(note)
    places = range(len(found.reports))

    def cell(row: Row, place: int) -> str:
        estimate = row.estimates[place]
        lines = ["" if estimate is None else str(estimate), difference_text(row, place)]
        return "\n".join(filter(None, lines))

    rows = found.headlines() or [(row.name, row) for row in found.rows]
    # On the left, since only there cells are broken over lines where spaces are many.
    columns = dict.fromkeys(["measure", *found.reports], "left")
    if rows:
        print_table(columns, [(label, *(cell(row, place) for place in places)) for label, row in rows])
        first = next(iter(found.reports))
        typer.echo(f"\nWith a sign: the difference to {first}, mean over the same sentences ± standard error.")
    if not found.headlines():
        for table in (each for of in found.tables.values() for each in of.values()):
            _print_findings(table)
