"""Tables of several spaces as one: what each says of the same sentence, below that sentence."""

from __future__ import annotations

from collections.abc import Mapping

from textspace.evaluate.measure import Cells, Table
from textspace.evaluate.reports.report import Report

__all__ = ["joined_table", "joined_tables"]


def joined_tables(reports: Mapping[str, Report]) -> dict[str, dict[str, Table]]:
    """The grouped tables that two reports or more have, joined; by measure and name."""
    found: dict[str, dict[str, dict[str, Table]]] = {}
    for space, report in reports.items():
        for measure, entry in report.entries.items():
            for key, table in entry.findings.tables.items():
                if table.grouped:
                    found.setdefault(measure, {}).setdefault(key, {})[space] = table
    return {
        measure: {key: joined_table(tables) for key, tables in by_key.items() if len(tables) > 1}
        for measure, by_key in found.items()
        if any(len(tables) > 1 for tables in by_key.values())
    }


def joined_table(tables: Mapping[str, Table]) -> Table:
    """The rows of all spaces below the row that begins their group, written once where it is the same.

    >>> one, other = (Table("t", ("s", "x"), (("a", "data"), ("a", made)), grouped=True) for made in ("1", "2"))
    >>> joined_table({"A": one, "B": other}).rows
    (('a', '', 'data'), ('a', 'A', '1'), ('a', 'B', '2'))
    """
    groups: dict[Cells, list[Cells]] = {}
    for space, table in tables.items():
        heading: Cells | None = None
        for row in table.rows:
            if heading is None or row[0] != heading[0]:
                heading = row
                groups.setdefault(heading, [])
            else:
                groups[heading].append((row[0], space, *row[1:]))
    first = next(iter(tables.values()))
    rows = [each for heading, below in groups.items() for each in ((heading[0], "", *heading[1:]), *below)]
    return Table(first.title, (first.columns[0], "space", *first.columns[1:]), tuple(rows), grouped=True)
