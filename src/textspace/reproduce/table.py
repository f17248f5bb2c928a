"""What a table is: rows that can be trained, the columns that are measured, and the paper's numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from textspace.config import Recipe
from textspace.errors import TextspaceError, nearest
from textspace.recipes import recipe, sized

__all__ = ["ELSEWHERE", "Column", "Row", "Table", "printed", "run_name"]

ELSEWHERE = "choose another folder with --out"
"""What to do where a folder cannot be used."""


@dataclass(frozen=True)
class Column:
    """A number of every row.

    Args:
        key: of an estimate of the test split's likelihood and posteriors, such as "nll", or "measure.estimate"; of
            nats a sentence "KEY@22.70" is the perplexity at so many tokens a sentence, whatever ours have.
        label: its heading.
        otherwise: the key that stands in for it where a space has no such number.
    """

    key: str
    label: str
    otherwise: str | None = None


@dataclass(frozen=True)
class Row:
    """A row that is trained with each of its seeds.

    Args:
        name: as it is asked for.
        recipe: None for a system that the paper only quotes.
        settings: of the recipe, by their paths.
        seeds: runs.
        paper: the paper's numbers by the keys of columns.
        in_paper: what the paper calls the row.
        trained_on: another corpus, or several with commas between them, that it learns from, without classes; it is
            scored on the table's.
        measures: of this row besides the table's.
    """

    name: str
    recipe: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    seeds: int = 1
    paper: Mapping[str, float] = field(default_factory=dict)
    in_paper: str = ""
    trained_on: str | None = None
    measures: tuple[str, ...] = ()
    own: Mapping[str, Any] | None = None
    """Plain data of a user's recipe, which a row of their own is trained with instead of a named one."""


@dataclass(frozen=True)
class Table:
    """A table or figure of a paper.

    Args:
        name: as it is asked for.
        about: one line.
        paper: which tables of which paper.
        corpus: a folder inside the user's data, or "builtin:N".
        columns: from the left; the first ones are what matters most.
        rows: from above. Those with more seeds are trained first.
        sizes: of encoder and decoder, those that the papers use on a corpus; None leaves the recipes' own.
        settings: of every row, by their paths.
        epochs: at most so many; None leaves the recipes' own.
        label: column of the classes, from 1.
        measures: of the test split besides likelihood and posteriors.
        effort: how hard those try, where it is not the usual.
        samples: of the importance-weighted bound.
        tasks: whether measures read files of tasks, which then lie in the user's data too.
        reference: the row that others are compared with where the corpus is not the paper's: then gaps to it are
            compared, and not the numbers themselves.
        notes: what a reader of the numbers must know.
        by_epoch: numbers of validations that the paper draws over the course of training.
        drawn: rows in pictures of that, and of features.
    """

    name: str
    about: str
    paper: str
    corpus: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    sizes: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    epochs: int | None = None
    label: int | None = None
    measures: tuple[str, ...] = ()
    effort: Mapping[str, int] = field(default_factory=dict)
    samples: int = 100
    tasks: bool = False
    reference: str | None = None
    notes: tuple[str, ...] = ()
    by_epoch: tuple[Column, ...] = ()
    drawn: tuple[str, ...] = ()

    @property
    def folders(self) -> list[str]:
        """The corpora that it needs of the user's data; none where they are made here."""
        named = [self.corpus, *(row.trained_on for row in self.rows if row.trained_on)]
        corpora = dict.fromkeys(corpus for each in named for corpus in each.split(","))
        return [corpus for corpus in corpora if not corpus.startswith("builtin")]

    @property
    def trained(self) -> dict[str, Row]:
        """The rows that can be trained, by name."""
        return {row.name: row for row in self.rows if row.recipe is not None}

    def with_row(self, name: str, own: Recipe) -> Table:
        """This table with a row of the user's; sizes and settings of the table do not change its recipe."""
        if any(row.name == name for row in self.rows):
            raise TextspaceError(f"{self.name} has a row {name!r} already: give yours another name")
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
            raise TextspaceError(f"a row cannot be called {name!r}: use letters, digits, '.', '_' and '-'")
        return replace(self, rows=(*self.rows, Row(name, own.name, own=json.loads(own.to_json()))))

    def chosen(self, names: list[str]) -> dict[str, Row]:
        """Rows that can be trained by their names, in the order of the table; all where none is named."""
        for name in names:
            if name not in self.trained:
                raise TextspaceError(f"{self.name} has no row {name!r} to train; {nearest(name, self.trained)}")
        return {name: row for name, row in self.trained.items() if not names or name in names}

    def recipe_of(self, row: Row, seed: int, *, epochs: int | None = None, changes: list[str] | None = None) -> Recipe:
        """The recipe of a run; `epochs` is at most as many, and `changes` are settings written `path=value`."""
        assert row.recipe is not None
        if row.own is None:
            found = recipe(row.recipe)
            found = (sized(found, self.sizes) if self.sizes else found).but({**self.settings, **row.settings})
        else:
            found = Recipe.parse(dict(row.own))
        found = found.but({"training.seed": seed}).with_settings(changes or [])
        in_changes = any(change.partition("=")[0].strip() == "training.epochs" for change in changes or [])
        most = epochs or (None if in_changes else self.epochs)
        return found if most is None else found.but({"training.epochs": min(most, found.training.epochs)})

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Table:
        rows = tuple(Row(**row | {"measures": tuple(row.get("measures", ()))}) for row in data["rows"])
        columns = {name: tuple(Column(**each) for each in data.get(name, ())) for name in ("columns", "by_epoch")}
        lists = {name: tuple(data.get(name, ())) for name in ("measures", "notes", "drawn")}
        return cls(**data | lists | columns | {"rows": rows})


def run_name(row: str, seed: int) -> str:
    return f"{row}-seed{seed}"


def printed(text: str, keys: str) -> dict[str, dict[str, float]]:
    """The numbers of a table written as the paper prints it, a row a line, by the row's name and by keys.

    >>> printed('''
    ...     lstm-lm  100.47  -
    ...     vae      101.39  0.00
    ... ''', "nll_ppl_word kl")
    {'lstm-lm': {'nll_ppl_word': 100.47}, 'vae': {'nll_ppl_word': 101.39, 'kl': 0.0}}
    """
    rows = [line.split() for line in text.strip().splitlines()]
    return {
        name: {key: float(cell) for key, cell in zip(keys.split(), cells, strict=True) if cell != "-"}
        for name, *cells in rows
    }
