"""The tables and figures of the five papers: how many rows of each are done, what measures the rest, or why not."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from textspace.errors import TextspaceError
from textspace.reproduce.report import Reproduction
from textspace.reproduce.tables import TABLES

__all__ = ["Item", "done_rows", "inventory", "results_in"]


@dataclass(frozen=True)
class Item:
    """A table or figure of a paper.

    Args:
        paper: whose.
        name: such as "table 1".
        about: what it shows.
        tables: our tables that have its rows.
        rows: names of these rows; empty where all rows of the tables belong to it.
        measured: the command or benchmark that measures it, where no table of ours does.
        why: the reason that it cannot be had, where nothing measures it.
    """

    paper: str
    name: str
    about: str
    tables: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    measured: str | None = None
    why: str | None = None

    @property
    def where(self) -> str:
        """What has its rows, what else measures it, or why nothing does."""
        return ", ".join(self.tables) or self.measured or f"not measured: {self.why}"

    @property
    def wanted(self) -> list[tuple[str, str]]:
        """The rows that it has, as table and row."""
        trained = [(name, row) for name in self.tables for row in TABLES[name].trained]
        return [(name, row) for name, row in trained if not self.rows or row in self.rows]


def inventory() -> list[Item]:
    """Every table and figure, paper by paper."""
    with open(Path(__file__).parent / "inventory.toml", "rb") as file:
        papers = tomllib.load(file)["paper"]
    return [_item(paper["name"], item) for paper in papers for item in paper["item"]]


def _item(paper: str, item: dict[str, Any]) -> Item:
    lists = {name: tuple(item.get(name, ())) for name in ("tables", "rows")}
    return Item(paper, **item | lists)


def results_in(folder: Path) -> list[Reproduction]:
    """The results of tables in a folder, and in folders inside it; other JSON files do not count."""
    if not folder.is_dir():
        raise TextspaceError(f"there is no folder {folder}: name one with results of textspace papers run")
    found = []
    for path in sorted([*folder.glob("*.json"), *folder.glob("*/*.json")]):
        try:
            found.append(Reproduction.load(path))
        except TextspaceError:
            continue
    return found


def done_rows(results: list[Reproduction]) -> Mapping[str, set[str]]:
    """The rows of each table that have a finished run."""
    found: dict[str, set[str]] = {}
    for each in results:
        done = {str(run["row"]) for run in each.runs.values() if run["state"] == "done"}
        found.setdefault(each.table.name, set()).update(done)
    return found
