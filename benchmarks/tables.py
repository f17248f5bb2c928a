"""The tables of docs/results.md as they were run, shorter than the papers': what is missing of them, on one GPU.

    nvidia-cuda-mps-control -d
    python -m benchmarks.tables CORPORA --list
    python -m benchmarks.tables CORPORA --together 16 --minutes 25 --out FOLDER

Runs are those of `textspace papers run` with the settings of `PIECES`, all of them in one queue, what takes longest
first, as many at once as the GPU has memory for. Those that benchmarks/results has are not run again, and what was
stopped goes on with the same command. Every table has a folder in FOLDER, with its runs, and with kept runs and new
ones together as `textspace papers run` writes them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.results import FOLDER
from textspace.errors import TextspaceError
from textspace.progress import track
from textspace.reproduce.job import Job
from textspace.reproduce.report import Reproduction
from textspace.reproduce.run import Asked, command_of, gathered, jobs_of, missing_of, ready_beside
from textspace.reproduce.showing import save
from textspace.reproduce.side_by_side import side_by_side
from textspace.reproduce.tables import table

FALLS = 'training.optimizer.schedule={"kind":"logistic","start":1.0,"end":0.0,"midpoint":0.88,"slope":25,"unit":"run"}'
"""The rate stays and falls in the last eighth, in place of halvings after stalls."""
STOPS = "training.patience=5"
AT_MOST_TEN = "training.update.cap=10"
"""Encoder steps before each of the decoder: without it an epoch of short reviews is 134,000 of them, and answers, not
annealed, take more than six epochs of 22,000."""
GIGABYTES = {
    "captions-text": 4.0,
    "ranking": 14.0,
    "yahoo-pooling": 11.5,
    "yahoo-remedies": 11.5,
    "yelp-pooling": 19.5,
    "yelp-three-units": 19.5,
}
"""Of a GPU's memory that a run of a table holds, as seen on an H200."""
SMALL = 3.2
"""Those of other tables."""
LONGEST = ("aggressive", "everything")
"""In names of rows."""
COMMAND = "python -m benchmarks.tables CORPORA --out FOLDER"
ADAM = 'training.optimizer={"kind":"adam","lr":0.001}'
SHORT = ("training.precision=bf16", "training.plateau=null", FALLS)


def first_phase(epochs: int) -> str:
    return f"pretrain.epochs={epochs}"


def warm_up(epochs: int, start: float = 0.0) -> str:
    return f'objective.kl_weight={{"kind":"linear","start":{start},"end":1.0,"over":{epochs},"unit":"epochs"}}'


def cycles(epochs: int) -> str:
    """Four in so many epochs, from 0 to 1 in half of each: the general form of cyclic annealing."""
    return f'objective.kl_weight={{"kind":"cyclic","cycles":4,"rising":0.5,"over":{epochs},"unit":"epochs"}}'


def published_cycles(epochs: int) -> str:
    """Four in so many epochs, each as the recipes have them in ten."""
    return (
        f'objective.kl_weight={{"kind":"cyclic","start":0.1,"cycles":4,"rising":0.45,"over":{epochs},"unit":"epochs"}}'
    )


def falling_in_cycles(epochs: int) -> str:
    """The rate of `vae-cyclic`, in so many epochs."""
    return f'training.optimizer.schedule={{"kind":"cosine","cycles":4,"stairs":10,"over":{epochs},"unit":"epochs"}}'


@dataclass(frozen=True)
class Piece:
    """Rows of a table with the same settings.

    Args:
        results: where they are kept: the table's name, and what tells its runs from longer ones.
        rows: separated by blanks.
        epochs: at most.
        changes: of every run.
        seeds: at most; None is as many as the table has.
    """

    results: str
    rows: str
    epochs: int
    changes: tuple[str, ...] = SHORT
    seeds: int | None = None

    @property
    def table(self) -> str:
        return self.results.split("_")[0]

    @property
    def asked(self) -> Asked:
        return Asked(
            rows=self.rows.split(),
            seeds=self.seeds,
            epochs=self.epochs,
            changes=list(self.changes),
            score_in="bf16",
        )


PTB, COMBINED, MIM = "ptb-remedies_60_epochs", "ptb-combinations_30_epochs", "ptb-mim_200_epochs"
YAHOO, POOLING = "yahoo-remedies_14_epochs", "yahoo-pooling_14_epochs"
LONG_YAHOO, LONG_YELP = "yahoo-pooling_42_epochs", "yelp-pooling_42_epochs"
YELP, YELP_COMBINED = "yelp-few-labels_12_epochs", "yelp-combinations_10_epochs"
YELP_IN_SPACE, CAPTIONS, RANKING = "yelp-three-units_42_epochs", "captions-text_10_epochs", "ranking_20_epochs"
SPARSE = "sparse-dbpedia_15_epochs"


def _with_a_long_warm_up(
    results: str, to_the_end: str = "", no_anneal: tuple[str, ...] = (), seeds: int | None = None
) -> list[Piece]:
    """Pooling and its rivals, the KL's weight rising over 30 epochs: over 5,000 steps nothing is left.

    Args:
        results: as in `Piece`.
        to_the_end: rows that train on when nothing gets better, 42 epochs.
        no_anneal: settings of aggressive training without annealing.
        seeds: as in `Piece`.
    """
    settings = {
        "vae-aggressive": (warm_up(30, 0.1), *SHORT),
        "vae-aggressive-no-anneal": (*no_anneal, *SHORT),
        "vae-max-pool-no-anneal skip-vae-no-anneal lstm-lm": SHORT,
        "vae-anneal vae-max-pool vae-abs-pool vae-mean-pool vae-attention-pool skip-vae vae-word-dropout": (
            warm_up(30),
            *SHORT,
        ),
        "vae-cyclic-sgd": (cycles(42), *SHORT),
    }
    return [
        Piece(results, row, 42, changes if row in to_the_end.split() else (*changes, STOPS), seeds)
        for rows, changes in settings.items()
        for row in rows.split()
    ]


PIECES = [
    Piece(PTB, "vae-aggressive iwae", 60),
    Piece(
        PTB,
        "iwae-pretrain pretrain-free-bits-4 pretrain-free-bits-6 pretrain-free-bits-8 pretrain-free-bits-9 "
        "pretrain-free-bits-7 pretrain-free-bits-5 pretrain-free-bits-3 pretrain-free-bits-2 vae-pretrain "
        "vae-pretrain-anneal vae-pretrain-both-4 pretrain-free-bits-no-anneal-4",
        50,
        (first_phase(50), *SHORT),
    ),
    Piece(
        PTB,
        "vae vae-anneal vae-max-pool vae-free-bits-3 vae-free-bits-7 vae-free-bits-total-2 vae-free-bits-total-3 "
        "vae-free-bits-total-4 vae-free-bits-total-5 vae-free-bits-total-6 vae-free-bits-total-7 "
        "vae-free-bits-total-8 vae-free-bits-total-9 lstm-lm",
        60,
    ),
    Piece(PTB, "ae", 50),
    Piece(PTB, "vae-cyclic", 40, SHORT[:1]),
    Piece(PTB, "vae-cyclic-sgd", 40),
    Piece(PTB, "lstm-lm-public-code", 100, SHORT[:1]),
    Piece(COMBINED, "one-embedding one-embedding-6 one-embedding-256-6 layers-512-6", 30, (*SHORT, first_phase(24))),
    Piece(COMBINED, "one-embedding-lm", 30),
    Piece(YELP, "vae-aggressive", 12, (warm_up(4, 0.1), AT_MOST_TEN, *SHORT)),
    Piece(YAHOO, "vae-aggressive", 14),
    Piece(POOLING, "skip-vae skip-vae-no-anneal vae-attention-pool ivae ivae-mi", 14),
    Piece(POOLING, "vae-cyclic-sgd", 14, (cycles(14), *SHORT)),
    Piece(
        POOLING,
        "vae-anneal vae-word-dropout vae-mean-pool vae-abs-pool vae-max-pool vae-max-pool-no-anneal lstm-lm",
        14,
        seeds=1,
    ),
    *_with_a_long_warm_up(
        LONG_YAHOO,
        to_the_end="vae-anneal vae-max-pool vae-abs-pool vae-mean-pool vae-cyclic-sgd lstm-lm",
        no_anneal=(AT_MOST_TEN,),
    ),
    Piece(YAHOO, "vae-cyclic", 14, (published_cycles(14), falling_in_cycles(14), SHORT[0])),
    Piece(YAHOO, "vae-cyclic-sgd", 14, (published_cycles(14), *SHORT)),
    Piece(
        YAHOO,
        "pretrain-free-bits-4 pretrain-free-bits-6 pretrain-free-bits-8 pretrain-free-bits-9",
        14,
        (first_phase(14), *SHORT),
    ),
    Piece(
        YAHOO,
        "vae vae-anneal ae vae-free-bits-total-3 vae-free-bits-total-5 vae-free-bits-total-7 vae-free-bits-total-9 "
        "lstm-lm",
        14,
    ),
    Piece(YELP, "vae-cyclic", 12, (published_cycles(12), falling_in_cycles(12), SHORT[0])),
    Piece(YELP, "vae-anneal", 12, (warm_up(4), *SHORT)),
    Piece(YELP, "pretrain-free-bits-6", 10, (warm_up(4), first_phase(8), *SHORT)),
    Piece(YELP, "ae vae vae-free-bits-total-9", 12),
    Piece(
        YELP_COMBINED,
        "pooled-6 mean-pooled-6 one-embedding-6 one-embedding-pooled-6",
        10,
        (warm_up(4), first_phase(8), *SHORT),
    ),
    Piece(
        YELP_COMBINED,
        "one-embedding-aggressive one-embedding-pooled-aggressive",
        12,
        (warm_up(4, 0.1), AT_MOST_TEN, *SHORT),
    ),
    *_with_a_long_warm_up(LONG_YELP, seeds=1),
    Piece(LONG_YELP, "vae-max-pool-from-yahoo", 42, (warm_up(30), *SHORT, STOPS)),
    Piece(LONG_YELP, "ivae ivae-mi", 20, (warm_up(14, 0.1), *SHORT)),
    Piece(YELP_IN_SPACE, "vae-anneal vae-max-pool", 42, (warm_up(30), *SHORT, STOPS)),
    Piece(
        MIM,
        "smim-512 smim-128 smim-16 smim-ae-512 smim-ae-128 smim-ae-16 svae-512 svae-128 svae-16 "
        "smim-pretrain-512 smim-pretrain-128 smim-pretrain-16 svae-anneal-16 smim-as-written-512 "
        "smim-printed-rule-512 svae-printed-rule-16 svae-anneal-printed-rule-16",
        200,
        SHORT[:1],
    ),
    Piece(CAPTIONS, "vae-aggressive", 10, (warm_up(4, 0.1), AT_MOST_TEN, *SHORT)),
    Piece(CAPTIONS, "pretrain-free-bits-4", 10, (warm_up(4), first_phase(8), *SHORT)),
    Piece(CAPTIONS, "vae-anneal", 10, (warm_up(4), *SHORT)),
    Piece(CAPTIONS, "vae-cyclic", 10, (published_cycles(10), falling_in_cycles(10), SHORT[0])),
    Piece(CAPTIONS, "ae vae vae-free-bits-total-7", 10),
    Piece(RANKING, "smim-512 smim-ae-512 smim-1024", 20, (SHORT[0], ADAM)),
    Piece(RANKING, "smim-1024-everything", 8, (SHORT[0], ADAM, 'training.batch={"sentences":64,"by_length":true}')),
    Piece(
        SPARSE,
        "hsvae hsvae-public-code mat-vae vae-dense vae-dense-matched vae-l1 vae-l2 ton-vae hsvae-0.2 hsvae-0.5 "
        "hsvae-768 mat-vae-768 vae-dense-768",
        15,
        ("training.precision=tf32", "training.batch.sentences=64"),
        seeds=1,
    ),
]


def kept(results: str) -> Reproduction | None:
    """What there is already."""
    path = FOLDER / f"reproduced_{results}.json"
    return Reproduction.load(path) if path.exists() else None


def jobs(piece: Piece, corpora: Path) -> dict[str, Job]:
    return jobs_of(table(piece.table), corpora, piece.asked)


def missing(corpora: Path, out: Path, only: Collection[str]) -> dict[str, Job]:
    """Runs of some tables that neither benchmarks/results has nor `out`, by the names of their folders; what takes
    longest comes first."""
    found = {
        f"{piece.results}/{name}": job
        for piece in PIECES
        if piece.table in only
        for name, job in missing_of(jobs(piece, corpora), out / piece.results, kept(piece.results)).items()
    }
    return dict(sorted(found.items(), key=lambda each: turn(each[0]) > 0))


def gigabytes(name: str) -> float:
    """Of the GPU's memory that a run will hold."""
    return GIGABYTES.get(name.split("_")[0], SMALL)


def within(room: float, ready: Callable[[str, Collection[str]], bool]) -> Callable[[str, Collection[str]], bool]:
    """Whether a run may begin: as many as have room in the GPU's memory, and a first one in any case."""

    def has_room(name: str, running: Collection[str]) -> bool:
        return not running or sum(map(gigabytes, running)) + gigabytes(name) <= room

    return lambda name, running: has_room(name, running) and ready(name, running)


def turn(name: str) -> int:
    """Aggressive training and training on everything take longest; beside large networks small ones all but stand
    still."""
    if any(each in name for each in LONGEST):
        return 0
    return 2 if gigabytes(name) > GIGABYTES["captions-text"] else 1


def commands(names: Collection[str], out: Path) -> dict[str, list[str]]:
    """What does each run: those whose turn is first are before all others on the GPU."""
    first = min(map(turn, names), default=0)
    return {
        name: ["env", f"CUDA_MPS_CLIENT_PRIORITY={int(turn(name) > first)}", *command_of(out / name)] for name in names
    }


def collect(corpora: Path, out: Path) -> None:
    """Write what there is of every table that has runs in `out`."""
    found: dict[str, Reproduction] = {}
    for piece in PIECES:
        folder = out / piece.results
        if folder.exists():
            known = found.get(piece.results) or kept(piece.results)
            asked, runs = piece.asked, jobs(piece, corpora)
            found[piece.results] = gathered(table(piece.table), runs, folder, asked, known=known, command=COMMAND)
    for results, each in found.items():
        save(each, out / results)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", type=Path, help="the folder that holds the corpora")
    tables = sorted({piece.table for piece in PIECES})
    parser.add_argument("--only", nargs="+", choices=tables, default=tables, metavar="TABLE", help=", ".join(tables))
    parser.add_argument("--list", action="store_true", help="show what is missing and run nothing")
    parser.add_argument("--together", type=int, default=16, help="runs side by side, at most")
    parser.add_argument("--gigabytes", type=float, default=136, help="of the GPU's memory for all runs; default 136")
    parser.add_argument("--minutes", type=float, help="when they are over, runs are stopped so that they can go on")
    parser.add_argument("--out", type=Path, default=Path("reproduced"))
    given = parser.parse_args()
    try:
        wanted = missing(given.corpora, given.out, given.only)
    except TextspaceError as error:
        sys.exit(f"{error}; --only leaves tables out")
    if given.list:
        print("\n".join(wanted) or "nothing is missing")
        return
    try:
        for name, job in wanted.items():
            job.write(given.out / name)
    except TextspaceError as error:
        sys.exit(f"{error}")
    processes = side_by_side(
        commands(wanted, given.out),
        given.out,
        together=given.together,
        minutes=given.minutes,
        ready=within(given.gigabytes, ready_beside(wanted, given.out)),
    )
    with suppress(KeyboardInterrupt):
        for each in track(processes, "tables", True, len(wanted)):
            print(f"{each.name}: {each.how}{': ' + each.said if each.how == 'failed' else ''}", flush=True)
    collect(given.corpora, given.out)


if __name__ == "__main__":
    main()
