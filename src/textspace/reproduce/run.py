"""From a table and the user's data to a reproduction: trains what is missing, and collects what is there."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from textspace.data.finding import SPLITS, find
from textspace.data.options import ReadOptions
from textspace.data.sources import opened, sentence_for_failure
from textspace.errors import TextspaceError
from textspace.files import check_no_file
from textspace.progress import track
from textspace.reproduce.job import NUMBERS, Job, courses, read_json
from textspace.reproduce.reading import check_run
from textspace.reproduce.report import IN_EVERY_RUN, IN_SOME_RUNS, Reproduction, Runs, run_name
from textspace.reproduce.side_by_side import Ended, side_by_side
from textspace.reproduce.table import ELSEWHERE, Table
from textspace.token_losses import Precision
from textspace.train import checkpoints
from textspace.train.fit import PRETRAINING

__all__ = [
    "Asked",
    "collected",
    "command_of",
    "default_together",
    "gathered",
    "jobs_of",
    "missing_of",
    "ready_beside",
    "run",
]

TOGETHER_ON_A_GPU = 8

_TOLD_OTHERWISE = {"training.epochs", "training.validate_every", "training.checkpoint_every"}
"""Settings that runs which are done may have had otherwise: how long each was is told by itself, and no number depends
on how often it was looked at."""


@dataclass(frozen=True)
class Asked:
    """What is asked for where it is not what the table says.

    Args:
        rows: only these.
        seeds: at most so many.
        samples: of the importance-weighted bound.
        epochs: at most so many.
        changes: settings of every run, written `path=value`.
        score_in: precision of the matrix products behind likelihoods.
        device: "cpu" or "cuda".
    """

    rows: list[str] = field(default_factory=list)
    seeds: int | None = None
    samples: int | None = None
    epochs: int | None = None
    changes: list[str] = field(default_factory=list)
    score_in: Precision = "float32"
    device: str | None = None

    def wanted(self, table: Table) -> dict[str, int]:
        """How many seeds of which rows."""
        most = self.seeds or sys.maxsize
        return {name: min(row.seeds, most) for name, row in table.chosen(self.rows).items()}

    def deviations(self, table: Table, runs: Runs) -> list[str]:
        """Where the numbers of some runs are not made as the table says, in words."""
        changes = [change for change in self.changes if change.partition("=")[0].strip() not in _TOLD_OTHERWISE]
        found = [f"{change}{IN_EVERY_RUN}" for change in changes]
        if others := [most for run in runs.values() if (most := self._other_epochs(table, run)) is not None]:
            usual = "as many as the recipes say" if table.epochs is None else f"{table.epochs}"
            which = "" if len(others) == len(runs) else IN_SOME_RUNS
            found.append(f"at most {' or '.join(map(str, sorted({*others})))} epochs instead of {usual}{which}")
        if self.samples is not None and self.samples != table.samples:
            found.append(f"{self.samples} importance samples instead of {table.samples}")
        if self.score_in != "float32":
            found.append(f"likelihoods scored in {self.score_in}")
        return found

    def _other_epochs(self, table: Table, run: Mapping[str, Any]) -> int | None:
        """How many epochs a run has at most where that is not what the table says; one that is done may have had more
        than are asked for."""
        row = table.trained[run["row"]]
        asked = table.recipe_of(row, 0, epochs=self.epochs, changes=self.changes).training.epochs
        most: int = run.get("epochs_at_most", asked)
        return None if most == table.recipe_of(row, 0).training.epochs else most


def jobs_of(table: Table, data: Path | None, asked: Asked) -> dict[str, Job]:
    """Every run by name, in the order in which they are begun: rows with many seeds first, seed by seed."""
    if any(change.partition("=")[0].strip() == "training.seed" for change in asked.changes):
        raise TextspaceError("runs of a row differ in training.seed: leave it out, and say how many with --seeds")
    wanted = asked.wanted(table)
    rows = {name: table.trained[name] for name in wanted}
    sources = {other: _sources(table, other, data) for other in {row.trained_on for row in rows.values()}}
    runs = [(name, seed) for name, seeds in wanted.items() for seed in range(seeds)]
    runs.sort(key=lambda run: (-rows[run[0]].seeds, run[1]))
    return {
        run_name(name, seed): Job(
            recipe=table.recipe_of(rows[name], seed, epochs=asked.epochs, changes=asked.changes),
            **sources[rows[name].trained_on],
            samples=asked.samples or table.samples,
            label=table.label,
            measures=(*table.measures, *rows[name].measures),
            effort=dict(table.effort),
            tasks=str(data) if table.tasks else None,
            score_in=asked.score_in,
            device=asked.device,
        )
        for name, seed in runs
    }


def _sources(table: Table, others: str | None, data: Path | None) -> dict[str, Any]:
    """What rows are trained and scored on that learn from other corpora, if any, and the digest, as jobs have them."""
    source, text = _source(table, table.corpus, table.label, data)
    if others is None:
        return {"source": source, "text": text}
    own = [_source(table, other, None, data) for other in others.split(",")]
    texts = [digest for _, digest in own] + [text]
    known = None if None in texts else "-".join(map(str, texts))
    return {"source": own[0][0] if len(own) == 1 else [each for each, _ in own], "scored_on": source, "text": known}


def _source(table: Table, corpus: str, label: int | None, data: Path | None) -> tuple[str, str | None]:
    """A corpus of a table, and the digest of its files where it has one for each split."""
    if corpus not in table.folders:
        return corpus, None
    if data is None:
        raise TextspaceError(f"{table.name} needs the corpus {corpus!r}: name the folder that holds it, --data")
    folder = data / corpus
    kind = ".txt, a sentence a line" if label is None else f".tsv, the class in column {label}"
    files = f"files train, valid and test ({kind}; also .gz)"
    if not folder.is_dir():
        raise TextspaceError(f"there is no folder {folder}, which {table.name} needs: it wants {files} there")
    there = {split: reader.name for found in find(folder, ReadOptions()) for split, reader in found.readers.items()}
    if lacking := [split for split in SPLITS if split not in there]:
        raise TextspaceError(f"{folder} has no file {' and no file '.join(lacking)}: {table.name} wants {files} there")
    paths = [Path(there[split]) for split in SPLITS]
    return str(folder), _digest(paths) if all(path.is_file() for path in paths) else None


def _digest(paths: list[Path]) -> str:
    """Of what files say, packed or not."""
    whole = sha256()
    for path in paths:
        with sentence_for_failure(path), opened(path) as file:
            whole.update(sha256(file.read()).digest())
    return whole.hexdigest()[:16]


def default_together(device: str | None = None) -> int:
    """How many runs side by side: a GPU has room for several, whose steps wait for the host."""
    import torch

    return TOGETHER_ON_A_GPU if torch.cuda.is_available() and device != "cpu" else 1


def command_of(folder: Path) -> list[str]:
    """What does the job in a folder."""
    return [sys.executable, "-m", "textspace.reproduce.worker", str(folder)]


def ready_beside(jobs: Mapping[str, Job], folder: Path) -> Callable[[str, Collection[str]], bool]:
    """Whether a run may begin: not while another trains the first phase that both begin with, since it would wait."""
    phases = {name: job.first_phase for name, job in jobs.items()}

    def ready(name: str, running: Collection[str]) -> bool:
        same = (other for other in running if phases[name] is not None and phases[other] == phases[name])
        return all((folder / other / PRETRAINING).exists() for other in same)

    return ready


def missing_of(jobs: Mapping[str, Job], out: Path, known: Reproduction | None) -> dict[str, Job]:
    """Those that are done neither in `out` nor in an earlier reproduction."""
    before = known.runs if known else {}
    return {
        name: job
        for name, job in jobs.items()
        if not job.is_done(before.get(name, {})) and not job.is_done(read_json(out / name / NUMBERS))
    }


def run(
    table: Table,
    data: Path | None,
    out: Path,
    asked: Asked,
    *,
    known: Reproduction | None = None,
    together: int | None = None,
    minutes: float | None = None,
    command: str = "",
    say: Callable[[str], None] = lambda text: None,
) -> tuple[Reproduction, bool]:
    """Train and score what is missing of a table, and collect all of it in `out`.

    Args:
        table: what to reproduce.
        data: the folder that holds its corpus.
        out: where runs lie, each in a folder of its own, and go on when asked for again.
        asked: what differs from the table.
        known: an earlier reproduction, whose finished runs are taken as they are.
        together: runs side by side.
        minutes: for all of them.
        command: what repeats it, for the record.
        say: takes a line about each run.

    Returns:
        What there is now, and whether it was interrupted.
    """
    jobs = jobs_of(table, data, asked)
    for name in jobs:
        check_no_file(out / name, ELSEWHERE)
    missing = missing_of(jobs, out, known)
    for name, job in missing.items():
        job.write(out / name)
    if missing:
        say(f"{table.name}: {len(jobs) - len(missing)} of {len(jobs)} runs are done, {len(missing)} to go")
    ended: dict[str, Ended] = {}
    interrupted = False
    try:
        processes = side_by_side(
            {name: command_of(out / name) for name in missing},
            out,
            together=together or default_together(asked.device),
            minutes=minutes,
            ready=ready_beside(missing, out),
        )
        for each in track(processes, table.name, True, len(missing)):
            ended[each.name] = each
            say(f"[{len(ended)}/{len(missing)}] {_told(each, out)}")
    except KeyboardInterrupt:
        interrupted = True
    found = gathered(table, jobs, out, asked, known=known, ended=ended, command=command)
    return found, interrupted


def gathered(
    table: Table,
    jobs: Mapping[str, Job],
    out: Path,
    asked: Asked,
    *,
    known: Reproduction | None = None,
    ended: Mapping[str, Ended] | None = None,
    command: str = "",
) -> Reproduction:
    """What there is of some runs, in `out` or known before, with all else that is known; arguments as of `run`."""
    before = known.runs if known else {}
    if known is not None:  # of what was asked for, runs with other settings are no answer
        others = {name: run for name, run in before.items() if name not in jobs or jobs[name].is_done(run)}
        known = replace(known, runs=others)
    runs = {
        name: before[name] if job.is_done(before.get(name, {})) else _run(name, job, out, (ended or {}).get(name))
        for name, job in jobs.items()
    }
    if table.reference is None:  # nothing for which each sentence's numbers are needed
        runs = {name: {key: run[key] for key in run if key != "by_sentence"} for name, run in runs.items()}
    found = Reproduction(table, runs, asked.wanted(table), command, asked.deviations(table, runs))
    return found if known is None else known.joined(found)


def _told(ended: Ended, out: Path) -> str:
    if ended.how == "done":
        numbers = read_json(out / ended.name / NUMBERS)
        return f"{ended.name}: {numbers.get('stopped')}, {numbers.get('seconds', 0):.0f} s"
    return f"{ended.name}: {ended.how}{': ' + ended.said if ended.said else ''}"


def _run(name: str, job: Job, out: Path, ended: Ended | None) -> dict[str, Any]:
    """What is known of a run, for a report."""
    done = job.is_done(read_json(out / name / NUMBERS))
    row, _, seed = name.rpartition("-seed")
    facts: dict[str, Any] = {"row": row, "seed": int(seed), "state": "done" if done else "missing"}
    if not done and ended is not None:
        said = re.sub(rf"(?<![\w/.-]){re.escape(str(out))}/", "FOLDER/", ended.said)
        facts["said"] = f"{ended.how}: {said}".rstrip(": ")
    elif not done and checkpoints.newest(out / name):
        facts["said"] = "stopped: goes on with the same command"
    return check_run(facts | collected(out / name, with_numbers=done), out / name / NUMBERS)


def collected(folder: Path, *, with_numbers: bool = True) -> dict[str, Any]:
    """The numbers of the run in a folder, where it has ended, and its validations so far."""
    return (read_json(folder / NUMBERS) if with_numbers else {}) | courses(folder)
