"""A reproduction as data: every run's numbers, and what they come to beside the paper's."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textspace.errors import TextspaceError
from textspace.evaluate.statistics import Ratio, standard_error
from textspace.files import read_json
from textspace.reproduce.reading import check_results
from textspace.reproduce.table import Column, Row, Table, run_name

__all__ = ["IN_EVERY_RUN", "IN_SOME_RUNS", "SPREAD_FROM", "Cell", "Line", "Reproduction", "Runs", "run_name"]

FORMAT = 1
Runs = Mapping[str, Mapping[str, Any]]
Floats = NDArray[np.float64]

IN_EVERY_RUN, IN_SOME_RUNS = " in every run", " in some runs"
"""How a deviation ends; those that say neither are of every run too."""

SPREAD_FROM = 3
"""Seeds whose spread is taken for an error: two can lie side by side by chance."""


OF_WHOLE_SENTENCES = ("nll", "elbo", "reconstruction", "swaps")
"""How names of numbers begin that longer sentences have more of: they scatter with lengths, which all rows share."""


@dataclass(frozen=True)
class Cell:
    """Our number and the paper's.

    Args:
        ours: the mean over seeds; None where there is none (yet).
        error: its standard error over seeds, or over test sentences where seeds are too few to tell.
        paper: the paper's.
        difference: ours less the paper's in standard errors of ours; where the table has a reference, that of the gaps
            to it. None where there is nothing to compare, or no error.
        gap: ours less the reference's, where the table has one.
        gap_error: its standard error.
        paper_gap: the same of the paper's.
    """

    ours: float | None = None
    error: float | None = None
    paper: float | None = None
    difference: float | None = None
    gap: float | None = None
    gap_error: float | None = None
    paper_gap: float | None = None


@dataclass(frozen=True)
class Line:
    """A row with its cells by the keys of columns, and how many of its runs are done."""

    row: Row
    cells: dict[str, Cell]
    done: int
    wanted: int


@dataclass(frozen=True)
class Reproduction:
    """A table, and the runs there are of it.

    Args:
        table: with the paper's numbers.
        runs: by name: "row", "seed", "state" ("done" or "missing"), and what was measured.
        wanted: how many seeds of which rows were asked for.
        command: what repeats it.
        deviations: from what the table says, in words.
    """

    table: Table
    runs: Runs
    wanted: Mapping[str, int]
    command: str = ""
    deviations: list[str] | tuple[str, ...] = ()

    def lines(self) -> list[Line]:
        """The rows that were asked for, and those that the paper quotes."""
        return [self._line(row) for row in self.table.rows if row.recipe is None or row.name in self.wanted]

    @property
    def unasked(self) -> list[str]:
        """Rows that could be trained and were not asked for."""
        return [name for name in self.table.trained if name not in self.wanted]

    @property
    def missing(self) -> dict[str, str]:
        """Runs that were asked for and have no numbers, and why."""
        names = (run_name(row, seed) for row, seeds in self.wanted.items() for seed in range(seeds))
        return {
            name: self.runs.get(name, {}).get("said", "not begun")
            for name in names
            if self.runs.get(name, {}).get("state") != "done"
        }

    @property
    def machines(self) -> list[dict[str, Any]]:
        """What the runs ran on, each once."""
        found: list[dict[str, Any]] = []
        for run in self.runs.values():
            if (machine := run.get("machine")) and machine not in found:
                found.append(machine)
        return found

    def _done(self, row: str) -> list[Mapping[str, Any]]:
        return [run for run in self.runs.values() if run["row"] == row and run["state"] == "done"]

    def drawn(self, key: str) -> dict[str, list[Mapping[str, Any]]]:
        """Finished runs of the rows that are drawn, of those that have something under a key."""
        found = {row: [run for run in self._done(row) if run.get(key)] for row in self.table.drawn}
        return {row: runs for row, runs in found.items() if runs}

    def _line(self, row: Row) -> Line:
        cells = {column.key: self._cell(row, column) for column in self.table.columns}
        return Line(row, cells, len(self._done(row.name)), self.wanted.get(row.name, 0))

    def _cell(self, row: Row, column: Column) -> Cell:
        if row.trained_on is not None and _is_of_whole_sentences(column):
            return Cell()  # with other words unknown, which are the easiest to predict
        ours, error = _mean([_value(run, column) for run in self._done(row.name)])
        paper = row.paper.get(column.key)
        if self.table.reference is None:
            difference = ours - paper if ours is not None and paper is not None else None
            return Cell(ours, error, paper, _in_errors(difference, error))
        if row.name == self.table.reference:
            return Cell(ours, error, paper)
        gap, gap_error = self._gap(row, self.table.trained[self.table.reference], column)
        theirs = self.table.trained[self.table.reference].paper.get(column.key)
        paper_gap = paper - theirs if paper is not None and theirs is not None else None
        difference = gap - paper_gap if gap is not None and paper_gap is not None else None
        return Cell(ours, error, paper, _in_errors(difference, gap_error), gap, gap_error, paper_gap)

    def _gap(self, row: Row, reference: Row, column: Column) -> tuple[float | None, float | None]:
        """What a row differs by from the reference, and its standard error.

        With few seeds that is the error over sentences, which are the same in both: of their differences where the
        numbers of each are kept. Where they are not it is that of two samples of sentences, and none for numbers of
        which longer sentences have more, for which it would be far too large.
        """
        runs, beside = self._done(row.name), self._done(reference.name)
        ours, error = _mean([_value(run, column) for run in runs])
        theirs, its_error = _mean([_value(run, column) for run in beside])
        if ours is None or theirs is None:
            return None, None
        if min(len(runs), len(beside)) < SPREAD_FROM:
            a_N, b_N = _each_sentence(runs, column), _each_sentence(beside, column)
            if a_N is not None and b_N is not None and len(a_N) == len(b_N):
                return ours - theirs, standard_error(a_N - b_N)
            if _is_of_whole_sentences(column):
                return ours - theirs, None
        return ours - theirs, None if error is None or its_error is None else math.hypot(error, its_error)

    # On disk

    def to_dict(self) -> dict[str, Any]:
        """All that is needed to write and draw it again."""
        return {
            "format": FORMAT,
            "command": self.command,
            "machine": self.machines[-1] if self.machines else None,
            "deviations": list(self.deviations),
            "wanted": dict(self.wanted),
            "missing": self.missing,
            "table": self.table.to_dict(),
            "runs": {name: dict(run) for name, run in self.runs.items()},
        }

    @classmethod
    def load(cls, path: Path) -> Reproduction:
        """From a file that `to_dict` went into."""
        try:
            data = read_json(path)
        except OSError as error:
            raise TextspaceError(f"cannot read {path}: {error.strerror or error}") from None
        except ValueError as error:
            raise TextspaceError(
                f"{path} is no JSON or is cut short ({error}): give a NAME.json that textspace papers run has written"
            ) from None
        try:
            if data["format"] != FORMAT:
                raise TextspaceError(
                    f"{path} has format {data['format']} and this version of textspace reads {FORMAT}: update textspace"
                )
            check_results(data, path)
            table = Table.from_dict(data["table"])
        except (ValueError, LookupError, TypeError, AttributeError):
            raise TextspaceError(
                f"{path} is no result of textspace papers run: give a NAME.json that it has written"
            ) from None
        return cls(table, data["runs"], data["wanted"], data["command"], data["deviations"])

    def joined(self, other: Reproduction) -> Reproduction:
        """With the runs of another; of a run that both have the other's, unless only ours is done.

        The table is the other's: one that was saved before may lack rows that it has since.
        """
        if self.table.name != other.table.name:
            raise TextspaceError(f"{self.table.name} and {other.table.name} are two tables: join those of one")
        runs = dict(self.runs)
        for name, run in other.runs.items():
            if run["state"] == "done" or runs.get(name, {}).get("state") != "done":
                runs[name] = run
        wanted = {name: max(self.wanted.get(name, 0), other.wanted.get(name, 0)) for name in other.table.trained}
        wanted = {name: seeds for name, seeds in wanted.items() if seeds}
        of_both = {*self.deviations} & {*other.deviations}
        deviations = [
            each if each in of_both else _in_some_runs(each)
            for each in (*self.deviations, *other.deviations)
            if _is_of_some(each, runs)
        ]
        return Reproduction(other.table, runs, wanted, other.command or self.command, list(dict.fromkeys(deviations)))


def _in_some_runs(deviation: str) -> str:
    return f"{deviation.removesuffix(IN_EVERY_RUN).removesuffix(IN_SOME_RUNS)}{IN_SOME_RUNS}"


def _is_of_some(deviation: str, runs: Runs) -> bool:
    """Whether some of the runs is so, as far as their numbers tell: the others' place may have been taken."""
    for told, key in (
        (r"at most (.+) epochs instead of .*", "epochs_at_most"),
        (r"(\d+) importance samples instead of .*", "importance_samples"),
        (r"likelihoods scored in (\w+)", "scored_in"),
    ):
        if found := re.fullmatch(rf"{told}({IN_EVERY_RUN}|{IN_SOME_RUNS})?", deviation):
            return any(key not in run or str(run[key]) in found[1].split(" or ") for run in runs.values())
    return True


def _is_of_whole_sentences(column: Column) -> bool:
    return column.key.partition("@")[0].rpartition(".")[2].startswith(OF_WHOLE_SENTENCES)


def _value(run: Mapping[str, Any], column: Column) -> tuple[float, float | None] | None:
    """A number of a run and its standard error over sentences.

    >>> value, error = _value({"measures": {"melbo": {"melbo": [98.35, 2.0]}}}, Column("melbo.melbo@22.70", "PPL"))
    >>> round(value, 2), round(error, 2)  # exp(98.35 / 22.70), and that times 2.0 / 22.70
    (76.14, 6.71)
    """
    for key in filter(None, (column.key, column.otherwise)):
        path, _, tokens = key.partition("@")
        measure, _, name = path.rpartition(".")
        found = run.get("measures", {}).get(measure, {}) if measure else run.get("test", {})
        if name in found:
            value, error = float(found[name][0]), found[name][1]  # in files, what is not finite is its name
            error = None if error is None else float(error)
            return _perplexity(value, error, float(tokens)) if tokens else (value, error)
    return None


def _perplexity(nats: float, error: float | None, tokens: float) -> tuple[float, float | None]:
    """Of nats a sentence, at so many tokens a sentence; its error to first order."""
    value = math.inf if nats / tokens > 700 else math.exp(nats / tokens)
    return value, None if error is None else value * error / tokens


def _each_sentence(runs: list[Mapping[str, Any]], column: Column) -> Floats | None:
    """What each sentence adds to a number of some runs, so that their mean is that number; None where it is not kept.

    A perplexity is no mean over sentences: for that what it changes by to first order.

    >>> runs = [{"by_sentence": {"nll": [2.0, 6.0], "words": [1, 3]}}, {"by_sentence": {"nll": [4.0, 8.0]}}]
    >>> _each_sentence(runs, Column("nll", "NLL")).tolist(), _each_sentence(runs[:1], Column("kl", "KL"))
    ([3.0, 7.0], None)
    >>> _each_sentence(runs[:1], Column("nll_ppl_word", "PPL")).round(3).tolist()  # 2 nats a word in both
    [7.389, 7.389]
    """
    name, _, unit = column.key.partition("_ppl_")
    found = []
    for run in runs:
        kept = run.get("by_sentence", {})
        if name not in kept or unit not in ("", "word"):
            return None
        values_N = np.array(kept[name], float)
        if unit:
            words_N = np.array(kept["words"], float)
            rate = Ratio.of(values_N, words_N)
            values_N = np.exp(rate.value) * (1 + rate.each_sentence(values_N, words_N) - rate.value)
        found.append(values_N)
    if not found or len({len(values_N) for values_N in found}) > 1 or not np.isfinite(found).all():
        return None
    return np.mean(found, axis=0)


def _in_errors(difference: float | None, error: float | None) -> float | None:
    return difference / error if difference is not None and error else None


def _mean(values: list[tuple[float, float | None] | None]) -> tuple[float | None, float | None]:
    """The mean over seeds and its standard error; of fewer than `SPREAD_FROM` that over sentences, which all share.

    >>> _mean([(2.0, 9.0), (2.0, 9.0), (5.0, 9.0)]), _mean([(2.0, 8.0), (4.0, 9.0)]), _mean([None])
    ((3.0, 1.0), (3.0, 8.5), (None, None))
    >>> _mean([(2.0, 9.0), (math.inf, None), (5.0, 9.0)])
    (inf, None)
    """
    known = [value for value in values if value is not None]
    if not known:
        return None, None
    numbers, errors = zip(*known, strict=True)
    mean = statistics.fmean(numbers)
    if len(known) >= SPREAD_FROM:
        finite = all(map(math.isfinite, numbers))
        return mean, statistics.stdev(numbers) / math.sqrt(len(numbers)) if finite else None
    return mean, None if None in errors else statistics.fmean(errors)
