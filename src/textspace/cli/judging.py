"""Commands that judge trained spaces: doctor, evaluate, compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from textspace.checks import LARGEST
from textspace.cli.evaluating import (
    Asked,
    evaluated,
    given_command,
    print_comparison,
    print_measures,
    print_report,
    report_folder,
)
from textspace.cli.shared import (
    Device,
    Folder,
    Header,
    Json,
    LabelColumn,
    Precision,
    Seed,
    Split,
    TextColumn,
    app,
    check_has_data,
    check_read_again,
    name_of,
    out_option,
    print_json,
    print_table,
    read_options,
    some_records,
    tell,
    tell_reading,
    uncut_corpus,
)
from textspace.errors import TextspaceError
from textspace.files import check_no_file

if TYPE_CHECKING:
    from textspace.config import Recipe
    from textspace.data.corpus import Corpus
    from textspace.evaluate.examination import Examination, History
    from textspace.evaluate.reports.report import Report
    from textspace.folder import Saved
    from textspace.space import Space

EXAMINED = 10_000
"""Sentences of a source that are examined at most."""

_GIVE_DATA = "give text to measure on, such as --data my.txt"


@app.command()
def doctor(
    folder: Folder,
    data: Annotated[
        str | None,
        typer.Option(help="Measure on this text: its validation split where it has one, else all of it."),
    ] = None,
    out: Annotated[
        Path | None,
        out_option("The pictures' path without .png and .svg, or a folder for them; by default FOLDER/doctor."),
    ] = None,
    split: Split = None,
    text_column: TextColumn = None,
    header: Header = None,
    seed: Seed = 0,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Check a space for posterior collapse, and suggest what to try.

    Without --data the diagnosis rests on what training measured of the weights that the space has.

    Examples:

      textspace doctor my-space

      textspace doctor my-space --data held-out.txt --out pictures/my-space
    """
    from textspace import folder as folders
    from textspace.evaluate.examination import History, draw_examination
    from textspace.space import Space

    check_has_data(data, split=split, text_column=text_column, header=header)
    if data is None:
        saved = folders.load(folder)
        recipe, history = saved.recipe, History.of(folder, saved.metrics)
        examination = _remembered(folder, saved, history)
    else:
        space = Space.load(folder, device)
        recipe, history = space.recipe, History.of(folder, space.metrics)
        corpus = uncut_corpus(data, split, space.recipe, text_column, None, header)
        examination = _examined(space, corpus, history, seed)
    stem = _picture_stem(folder if out is None else out)
    not_drawn: TextspaceError | None = None
    try:
        pictures = draw_examination(examination, history.lines, stem)
    except TextspaceError as error:
        pictures, not_drawn = [], error
    if as_json:
        validated = {"kept": history.kept, "last": history.last or history.kept}
        print_json(examination.to_dict() | validated | {"pictures": [str(path) for path in pictures]})
    else:
        shown_last = history.last if data is None else None
        _print_numbers(examination, recipe, shown_last)
        if history.kept and history.last:
            column = ', as the column "last weights" shows' if shown_last else ""
            typer.echo(
                f"The diagnosis describes the weights in the space, which were kept after {_epoch(history.kept)}. The "
                f"run went on to {_epoch(history.last)}{column}.\n"
            )
        typer.echo(str(examination.diagnosis))
        if pictures:
            typer.echo(f"The picture is in {pictures[0]} and {pictures[1].name}.")
    if not_drawn is None:
        return
    if out is not None:  # then pictures were asked for, and not the diagnosis alone
        raise not_drawn
    tell(str(not_drawn))


def _picture_stem(out: Path) -> Path:
    """The path of pictures without their endings; those in a folder are called doctor."""
    if out.is_dir():
        return out / "doctor"
    return out.with_suffix("") if out.suffix in (".png", ".svg") else out


def _remembered(folder: Path, saved: Saved, history: History) -> Examination:
    """The examination that training left; without one, what the log says of the weights that were kept."""
    from textspace.evaluate.doctor import diagnose, measures_of
    from textspace.evaluate.examination import Examination

    stored = saved.metrics.get("examination")
    if stored is not None:
        try:
            found = Examination.from_dict(stored)
        except TextspaceError:
            raise TextspaceError(f"the examination stored in {folder} is damaged: {_GIVE_DATA}") from None
        diagnosis = diagnose(found.numbers, saved.recipe, history.earlier, history.epochs)
        return replace(found, diagnosis=diagnosis)
    kept = history.kept or {}
    numbers = {name: kept[name] for name in measures_of(saved.recipe) if name in kept}
    diagnosis = diagnose(numbers, saved.recipe, history.earlier, history.epochs)
    if diagnosis.state == "unknown" and saved.recipe.posterior is not None:
        raise TextspaceError(f"{folder} holds no examination, and no log of the weights in it: {_GIVE_DATA}")
    return Examination(numbers, None, diagnosis)


def _examined(space: Space, corpus: Corpus, history: History, seed: int) -> Examination:
    from textspace.evaluate.examination import examine
    from textspace.evaluate.held_out import held_out_note

    parts = [corpus.splits["valid"]] if "valid" in corpus.splits else list(corpus.splits.values())
    total, records = some_records(parts, EXAMINED)
    texts = [record.text for record in records]
    tell_reading(corpus)
    if note := held_out_note(space.metrics, texts):
        tell(note)
    if len(texts) < total:
        tell(f"examined {len(texts):,} of {total:,} sentences, drawn at random")
    return examine(
        space.model,
        space.of_normalised().read(texts),
        space.recipe,
        seed=seed,
        history=history.earlier,
        epochs=history.epochs,
        progress=True,
    )


def _print_numbers(examination: Examination, recipe: Recipe, last: dict[str, Any] | None) -> None:
    """The numbers of the weights that the space has, and beside them those of the run's last ones, if these differ."""
    from textspace.digits import number
    from textspace.evaluate.doctor import measures_of

    words = measures_of(recipe)
    estimates = {} if examination.statistics is None else examination.statistics.estimates()
    rows = []
    for name, value in examination.numbers.items():
        known = estimates.get(name)
        side = f", {known.bound} bound" if known and known.bound in ("lower", "upper") else ""
        row = (f"{words.get(name, name)}{side}", str(known) if known else number(value))
        rows.append((*row, number(last[name]) if name in last else "") if last else row)
    columns = {"measure": "left", "value ± standard error": "right"}
    if rows:
        print_table(columns | ({"last weights": "right"} if last else {}), rows)
        typer.echo()


def _epoch(line: dict[str, Any]) -> str:
    return f"epoch {line['epoch']:g} (step {line['step']:,})"


# Evaluation

Data = Annotated[
    str | None,
    typer.Option(
        help="The text to measure on: a file, a folder with train/valid/test files, 'builtin', ...; several with "
        "commas between are measured together and, in likelihood and reconstruction, each apart. A file without "
        "splits is cut as for training if the space was trained on it, else all of it is tested on."
    ),
]
SuiteName = Annotated[str, typer.Option("--suite", help="quick (a minute), standard, or full (as the papers).")]
MeasureNames = Annotated[
    list[str] | None,
    typer.Option("--measure", help="Instead of the suite's: this measure; may be repeated.", metavar="NAME"),
]
Samples = Annotated[
    int | None, typer.Option(help="Importance samples, instead of the suite's number.", min=1, max=LARGEST)
]
EndToken = Annotated[str, typer.Option(help="In likelihoods: included, dropped, both of these, or length.")]
Tasks = Annotated[
    Path | None, typer.Option(help="Folder with the files of sentence-pair and transfer tasks.", show_default=False)
]
Baselines = Annotated[
    list[str] | None,
    typer.Option(
        "--baseline",
        help="An encoder of Hugging Face, a folder or a name of the hub, that some measures put beside the space; may "
        "be repeated.",
        metavar="MODEL",
    ),
]


@app.command()
def evaluate(
    folder: Annotated[Path | None, typer.Argument(help="A trained space.", show_default=False)] = None,
    data: Data = None,
    suite: SuiteName = "quick",
    measure: MeasureNames = None,
    out: Annotated[Path | None, out_option("Folder for the report; by default FOLDER/evaluation.")] = None,
    samples: Samples = None,
    precision: Precision = "float32",
    end_token: EndToken = "included",
    tasks: Tasks = None,
    baseline: Baselines = None,
    list_: Annotated[bool, typer.Option("--list", help="List the measures, and what each needs.")] = False,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    header: Header = None,
    seed: Seed = 0,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Say how good a space is: numbers with error bars, and a report with pictures.

    Finished measures are kept in FOLDER/evaluation/cache: after an interrupt the same command goes on.

    Examples:

      textspace evaluate my-space --data my.txt

      textspace evaluate my-space --data reviews.tsv --label-column stars --suite standard --out report

      textspace evaluate my-space --data my.txt --measure likelihood --samples 500

      textspace evaluate my-space --data my.txt --measure transfer --tasks tasks --baseline bert-base-uncased

      textspace evaluate --list
    """
    if list_:
        print_measures(as_json)
        return
    if folder is None:
        raise TextspaceError("name the folder of a trained space, such as: textspace evaluate my-space --data my.txt")
    if data is None:
        raise TextspaceError(_GIVE_DATA)
    options = read_options(text_column, label_column, header)
    models = tuple(baseline or ())
    asked = Asked(data, options, suite, measure or [], samples, precision, end_token, tasks, seed, device, out, models)
    report = evaluated(folder, name_of(folder), asked)
    paths = report.save(out or report_folder(folder))
    if as_json:
        print_json(report.to_dict())
        return
    print_report(report)
    typer.echo(f"The report is in {paths['html']} (also .md and .json).")


@app.command()
def compare(
    folders: Annotated[
        list[Path], typer.Argument(help="Trained spaces, the first of which the others are compared with.")
    ],
    data: Data = None,
    suite: SuiteName = "quick",
    measure: MeasureNames = None,
    out: Annotated[Path, out_option("Folder for the comparison.")] = Path("comparison"),
    samples: Samples = None,
    precision: Precision = "float32",
    end_token: EndToken = "included",
    tasks: Tasks = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    header: Header = None,
    seed: Seed = 0,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Put spaces side by side, and say which differences are more than chance.

    Without --data the reports that `textspace evaluate` left in the folders are compared.

    Examples:

      textspace compare my-space my-new-space --data held-out.txt

      textspace compare my-space my-new-space --data my.txt --measure likelihood --samples 100
    """
    from textspace.evaluate.reports.comparison import compare as compared
    from textspace.folder import check

    check_no_file(out, "name another with --out")
    names = _names(folders)
    if data is None:
        given = {"--measure": measure, "--samples": samples, "--tasks": tasks, "--text-column": text_column}
        given |= {"--label-column": label_column, "--header": header, "--seed": seed or None, "--device": device}
        given |= {"--suite": suite != "quick" or None, "--precision": precision != "float32" or None}
        given |= {"--end-token": end_token != "included" or None}
        if asked_for := [option for option, value in given.items() if value is not None]:
            raise TextspaceError(f"{asked_for[0]} is for measuring something now: {_GIVE_DATA}")
        reports = {name: _saved_report(folder) for name, folder in zip(names, folders, strict=True)}
    else:
        check_read_again(data)
        for folder in folders:  # before any work is done for one of them
            check(folder)
        options = read_options(text_column, label_column, header)
        asked = Asked(data, options, suite, measure or [], samples, precision, end_token, tasks, seed, device, out)
        reports = {}
        for name, folder in zip(names, folders, strict=True):
            tell(f"{name}:")
            reports[name] = evaluated(folder, name, asked)
    found = compared(reports, command=given_command())
    paths = found.save(out)
    if as_json:
        print_json(found.to_dict())
        return
    print_comparison(found)
    typer.echo(f"The comparison is in {paths['html']} (also .md and .json).")


def _names(folders: Sequence[Path]) -> list[str]:
    """What to call spaces: the names of their folders, or as much of the paths as tells them apart."""
    short = [name_of(folder) for folder in folders]
    names = short if len(set(short)) == len(short) else [str(folder) for folder in folders]
    if len(set(names)) < len(names):
        raise TextspaceError("the same space is given twice: name each once")
    return names


def _saved_report(folder: Path) -> Report:
    """What was found when a space was last evaluated, if it is the same still."""
    from textspace import folder as folders
    from textspace.evaluate.reports.report import Report
    from textspace.train.checkpoints import digest

    is_report = folder.suffix == ".json"
    path = folder if is_report else report_folder(folder) / "report.json"
    if not path.is_file():
        raise TextspaceError(f"there is no report {path}: {_GIVE_DATA}")
    report = Report.load(path)
    if not is_report and report.space.get("weights") != digest(folders.load(folder).model):
        raise TextspaceError(f"{path} is of other weights than the space has now: {_GIVE_DATA}")
    return report
