"""Commands about the papers' tables: list them, and run one."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from textspace.cli.shared import Device, Json, app, out_option, print_json, print_table, tell
from textspace.errors import TextspaceError

if TYPE_CHECKING:
    from textspace.reproduce.report import Reproduction
    from textspace.reproduce.table import Table


papers_app = typer.Typer(no_args_is_help=True, help="Reproduce the papers' tables.")
app.add_typer(papers_app, name="papers")


@papers_app.command("list")
def list_papers(
    results: Annotated[
        Path | None, typer.Option(help="Folder with results of papers run; by default papers, where there is one.")
    ] = None,
    tables: Annotated[bool, typer.Option("--tables", help="List our tables instead, and what each needs.")] = False,
    as_json: Json = False,
) -> None:
    """List the papers' tables and figures, and how many rows are done.

    A row is done when a run of it has ended, perhaps a shorter one than the paper's: the results say so.

    Examples:

      textspace papers list

      textspace papers list --results benchmarks/results

      textspace papers list --tables
    """
    if tables:
        _print_tables(as_json)
        return
    from textspace.reproduce.inventory import done_rows, inventory, results_in

    folder = results or Path("papers")
    done = done_rows(results_in(folder) if results or folder.is_dir() else [])
    items = inventory()
    counts = [sum(row in done.get(table, ()) for table, row in item.wanted) for item in items]
    if as_json:
        print_json(
            [asdict(item) | {"wanted": len(item.wanted), "done": n} for item, n in zip(items, counts, strict=True)]
        )
        return
    columns = {"item": "left", "about": "left", "rows done": "right", "where": "left"}
    for paper in dict.fromkeys(item.paper for item in items):
        typer.echo(f"{paper}\n")
        own = [(item, count) for item, count in zip(items, counts, strict=True) if item.paper == paper]
        rows = [(i.name, i.about, f"{n} / {len(i.wanted)}" if i.tables else "", i.where) for i, n in own]
        print_table(columns, rows, whole="item")
        typer.echo()


@papers_app.command()
def run(
    name: Annotated[
        str | None, typer.Argument(help="A table; `textspace papers list --tables` names them.", show_default=False)
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="The folder that holds the table's corpus in a folder of its own.")
    ] = None,
    out: Annotated[Path | None, out_option("The folder for runs and results; by default papers/NAME.")] = None,
    rows: Annotated[
        list[str] | None, typer.Option(help="Only this row; may be repeated, or several with commas.", metavar="ROW")
    ] = None,
    row: Annotated[
        list[str] | None,
        typer.Option(help="Add a row of your own: mine=recipe.json; may be repeated.", metavar="NAME=RECIPE"),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="At most so many seeds of each row.", min=1)] = None,
    samples: Annotated[
        int | None, typer.Option(help="Importance samples, instead of the table's number.", min=1)
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="At most so many epochs.", min=1)] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change an option of every run: training.precision=bf16", metavar="PATH=VALUE"),
    ] = None,
    together: Annotated[
        int | None, typer.Option(help="Runs side by side; by default 8 on a GPU and 1 without.", min=1)
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="When they are over, runs are stopped so that they can go on.", min=0)
    ] = None,
    score_in: Annotated[
        str, typer.Option(help="Precision of the products behind likelihoods: float32, or tf32 or bf16 on a GPU.")
    ] = "float32",
    from_: Annotated[
        list[Path] | None,
        typer.Option(
            "--from",
            help="Results as NAME.json, whose runs are not run again; without --data they are only written and drawn "
            "anew. May be repeated to join several.",
            metavar="FILE",
        ),
    ] = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Run a table of a paper end to end: train what is missing, score it, and print it beside the paper's numbers.

    Every run is a process of its own with a folder in --out. What was interrupted goes on with the same command, and
    what is done is not done again. NAME.json, NAME.md and pictures in --out hold the results.

    Examples:

      textspace papers run tiny --out tiny-table

      textspace papers run ptb-remedies --data corpora --together 8 --minutes 55

      textspace papers run ptb-remedies --data corpora --rows vae,pretrain-free-bits-4 --seeds 1 --epochs 10

      textspace papers run ptb-remedies --data corpora --row mine=my-recipe.json --rows mine,vae

      textspace papers run ptb-remedies --from ptb-remedies.json --out redrawn
    """
    from textspace.reproduce.tables import table

    known = _joined(from_ or [])
    if name is None and known is None:
        raise TextspaceError(
            "name a table, such as: textspace papers run ptb-remedies --data corpora; "
            "textspace papers list --tables names all"
        )
    asked_for = known.table if name is None and known is not None else table(str(name))
    asked_for = _with_own_rows(asked_for, row or [])
    if known is not None and known.table.name != asked_for.name:
        raise TextspaceError(f"{from_[0] if from_ else ''} is of {known.table.name} and not of {asked_for.name}")
    folder = out or Path("papers") / asked_for.name
    interrupted = False
    asked_runs: set[str] = set()
    to_run = f"add --data {'FOLDER' if asked_for.folders else '.'} to run"
    if known is not None and data is None:
        what = {"--rows": rows, "--row": row, "--seeds": seeds, "--samples": samples, "--epochs": epochs, "--set": set_}
        how = {"--together": together, "--minutes": minutes, "--device": device}
        _refuse({**what, **how, "--score-in": None if score_in == "float32" else score_in}, to_run)
    else:
        from textspace.reproduce.report import run_name
        from textspace.reproduce.run import Asked
        from textspace.reproduce.run import run as run_table
        from textspace.token_losses import precision_named

        chosen = [each.strip() for written in rows or [] for each in written.split(",")]
        asked = Asked(chosen, seeds, samples, epochs, set_ or [], precision_named(score_in), device)
        known, interrupted = run_table(
            asked_for,
            data,
            folder,
            asked,
            known=known,
            together=together,
            minutes=minutes,
            command=_command(asked_for.name, bool(asked_for.folders), asked, row or []),
            say=tell,
        )
        asked_runs = {run_name(row, seed) for row, most in asked.wanted(asked_for).items() for seed in range(most)}
    _show(known, folder, as_json)
    failed = sum(why.startswith("failed") for why in known.missing.values())
    if failed:
        tell(f"runs that failed: {failed}; see above why")
    missing = {name for name, why in known.missing.items() if not why.startswith("failed")}
    if interrupted or missing & asked_runs:
        tell(f"runs missing: {len(missing & asked_runs)}; the same command goes on where it stopped")
    if others := missing - asked_runs:
        tell(f"runs missing that this command does not run: {len(others)}" + ("" if asked_runs else f"; {to_run} them"))
    if interrupted:
        raise typer.Exit(130)
    if failed:
        raise typer.Exit(1)


def _refuse(about_runs: dict[str, Any], to_run: str) -> None:
    """Refuse options that say what to run, or how, where nothing is run."""
    for option, value in about_runs.items():
        if value not in (None, []):
            raise TextspaceError(
                f"{option} is about runs, and --from without --data only writes and draws those that are there: "
                f"{to_run} others, or leave out {option}"
            )


def _joined(files: list[Path]) -> Reproduction | None:
    from textspace.reproduce.report import Reproduction

    found = None
    for path in files:
        each = Reproduction.load(path)
        found = each if found is None else found.joined(each)
    return found


def _with_own_rows(table: Table, rows: list[str]) -> Table:
    """A table with rows from the user's recipe files."""
    from textspace.config import Recipe

    for written in rows:
        name, equals, path = (part.strip() for part in written.partition("="))
        if not (name and equals and path):
            raise TextspaceError(f"--row {written} names no recipe: write it as mine=recipe.json")
        table = table.with_row(name, Recipe.load(path))
    return table


def _command(name: str, needs_data: bool, asked: object, own_rows: list[str]) -> str:
    """What repeats it on any machine."""
    from textspace.reproduce.run import Asked

    assert isinstance(asked, Asked)
    words = ["textspace", "papers", "run", name, *(["--data", "CORPORA"] if needs_data else [])]
    words += [word for row in own_rows for word in ("--row", row)]
    words += [word for row in asked.rows for word in ("--rows", row)]
    numbers = {"--seeds": asked.seeds, "--samples": asked.samples, "--epochs": asked.epochs}
    words += [word for option, value in numbers.items() if value is not None for word in (option, str(value))]
    words += [word for change in asked.changes for word in ("--set", change)]
    return shlex.join([*words, *(["--score-in", asked.score_in] if asked.score_in != "float32" else [])])


def _show(found: Reproduction, folder: Path, as_json: bool) -> None:
    from rich.console import Console

    from textspace.reproduce.showing import explained, fitting, save, terminal_rows

    paths = save(found, folder)
    if as_json:
        print_json(found.to_dict())
        return
    columns = fitting(found, Console().width)
    heads = {"": "left", "runs": "left"} | {column.label: "right" for column in columns}
    print_table(heads, terminal_rows(found, columns), whole="")
    typer.echo()
    for line in explained(found):
        typer.echo(line)
    if left := len(found.table.columns) - len(columns):
        typer.echo(f"Columns that do not fit here: {left}.")
    first, *others, last = paths.values()
    typer.echo(f"All of it is in {first}, {', '.join(path.name for path in others)} and {last.name}.")


def _print_tables(as_json: bool) -> None:
    from textspace.reproduce.tables import TABLES

    if as_json:
        print_json({name: each.to_dict() for name, each in TABLES.items()})
        return
    rows = []
    for name, each in TABLES.items():
        count = sum(row.seeds for row in each.trained.values())
        needs = [*(f"{corpus}/" for corpus in each.folders), *(["files of tasks"] if each.tasks else [])]
        rows.append((name, ", ".join(needs) or "nothing", f"{count}", each.about, each.paper))
    columns = {"table": "left", "in --data": "left", "runs": "right", "about": "left", "paper": "left"}
    print_table(columns, rows, whole="table")
