"""The command line: one function per command. Heavy packages load inside the command that needs them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from textspace.errors import TextspaceError, nearest

if TYPE_CHECKING:
    from textspace.config import Recipe
    from textspace.data.corpus import Corpus
    from textspace.data.options import ReadOptions
    from textspace.types import Estimate

__all__ = ["app", "main"]

app = typer.Typer(
    help="Learn a latent space of text from your own sentences.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

Source = Annotated[
    str,
    typer.Argument(
        help="Text: a .txt, .tsv, .csv, .jsonl or .parquet file (also .gz), a folder or glob with train/valid/test "
        "files, '-' for standard input, or 'builtin'.",
        show_default=False,
    ),
]
TextColumn = Annotated[str | None, typer.Option(help="Column of the text: its name, or its number from 1.")]
LabelColumn = Annotated[str | None, typer.Option(help="Column of the label: its name, or its number from 1.")]
Header = Annotated[bool | None, typer.Option("--header/--no-header", help="Whether the first row names the columns.")]
Seed = Annotated[int, typer.Option(help="Of all randomness.")]
Device = Annotated[str | None, typer.Option(help="cpu or cuda; by default the GPU where there is one.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def main() -> None:
    """Run the command line: a mistake of the user's is one line on standard error and exit code 2."""
    debug = "--debug" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    try:
        app(arguments, prog_name="textspace")
    except TextspaceError as error:
        if debug:
            raise
        typer.echo(f"textspace: {error}", err=True)
        raise SystemExit(2) from None
    except BrokenPipeError:  # e.g. `| head`
        sys.stderr.close()
        raise SystemExit(141) from None


@app.callback()
def _all(debug: Annotated[bool, typer.Option(help="Show the traceback of an error.")] = False) -> None:
    pass


@app.command()
def train(
    source: Source,
    recipe: Annotated[str, typer.Option(help="A named recipe; `textspace recipes` lists them.")] = "vae",
    config: Annotated[Path | None, typer.Option(help="Instead: a recipe.json.")] = None,
    out: Annotated[Path, typer.Option(help="The folder for the trained space.")] = Path("space"),
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change an option of the recipe: latent.dim=64", metavar="PATH=VALUE"),
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Short for --set training.epochs=N.", min=1)] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in --out from its last checkpoint.")
    ] = False,
    mixing: Annotated[
        str, typer.Option(help="Several sources: 'all' sentences each epoch, or 'balanced' sources.")
    ] = "all",
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    header: Header = None,
    seed: Annotated[int | None, typer.Option(help="Short for --set training.seed=N.", min=0)] = None,
    device: Device = None,
) -> None:
    """Train a space on your text.

    Examples:

      textspace train my.txt --out my-space

      textspace train reviews.tsv --text-column review --recipe ae --epochs 10

      textspace train builtin --set latent.dim=16 --set training.optimizer.kind=adam --set training.optimizer.lr=0.001

      textspace train my.txt --out my-space --resume

    A run that was interrupted or killed goes on with --resume and the same settings. Several processes:

      torchrun --nproc-per-node 2 -m textspace train my.txt
    """
    from textspace.train.fit import train as fit
    from textspace.train.loop import Interrupted

    chosen = _recipe(recipe, config, resume, out)
    shorthands = {"training.epochs": epochs, "training.seed": seed}
    chosen = chosen.with_settings(set_ or []).but({path: n for path, n in shorthands.items() if n is not None})
    options = _read_options(text_column, label_column, header, mixing=mixing)
    try:
        trained = fit(_sources(source), chosen, out, options=options, resume=resume, device=device, say=_tell)
    except Interrupted as stopped:
        _tell(str(stopped))
        raise typer.Exit(130) from None
    _tell(
        f"{trained.stopped} after {trained.seconds:.0f} s and {trained.steps:,} steps; "
        f"best {trained.criterion}: {trained.best:.2f} at step {trained.best_step:,}"
    )
    _tell(
        f"{trained.parameters:,} parameters, {trained.encoder_updates:,} encoder and "
        f"{trained.decoder_updates:,} decoder updates; the space is in {out}, its curves in {out / 'curves.png'}"
    )


@app.command()
def score(
    folder: Annotated[Path, typer.Argument(help="A trained space.", show_default=False)],
    source: Source,
    samples: Annotated[int, typer.Option(help="Importance samples; 0 leaves that bound out.", min=0)] = 100,
    split: Annotated[str, typer.Option(help="Which split, where the source has several.")] = "test",
    drop_end: Annotated[bool, typer.Option("--drop-end", help="Leave the end token out of every likelihood.")] = False,
    text_column: TextColumn = None,
    header: Header = None,
    seed: Seed = 0,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Say how likely text is under a space, and which bound each number is.

    A source without splits is scored as a whole.

    Example:

      textspace score my-space held-out.txt --samples 500
    """
    from textspace.evaluate.likelihood import likelihood
    from textspace.folder import load
    from textspace.train.fit import prepare
    from textspace.train.processes import Processes

    saved = load(folder, str(Processes(device).device))
    options = _read_options(text_column, None, header, valid=0.0, test=0.0)
    corpus = _corpus_to_score(source, split, options, saved.recipe)
    prepared = prepare(corpus, saved.recipe, tokenizer=saved.tokenizer, progress=True)
    for line in corpus.report.lines():
        _tell(line)
    measured = likelihood(
        saved.model,
        prepared.encoded.splits[split],
        samples=samples,
        end_token="dropped" if drop_end else "included",
        seed=seed,
        progress=True,
    )
    _print_estimates(measured.estimates(), as_json)


@app.command()
def describe(
    source: Source,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    header: Header = None,
    normalise: Annotated[
        list[str] | None, typer.Option(help="lower, ascii, quotes, links or html; may be repeated.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Count sentences, words, lengths and labels of a source, and what was skipped.

    Example:

      textspace describe reviews.csv --text-column review --label-column stars
    """
    from rich.console import Console

    from textspace.data.corpus import open_corpus
    from textspace.data.describe import describe as describe_corpus
    from textspace.data.describe import render

    corpus = open_corpus(
        _sources(source), _read_options(text_column, label_column, header), normalise=tuple(normalise or ())
    )
    description = describe_corpus(corpus)
    if as_json:
        typer.echo(json.dumps(description.to_dict(), indent=1))
        return
    Console().print(render(description))


recipes_app = typer.Typer(invoke_without_command=True, help="List the named recipes, or show one as JSON.")
app.add_typer(recipes_app, name="recipes")


@recipes_app.callback()
def recipes(context: typer.Context, as_json: Json = False) -> None:
    """List the named recipes.

    Example:

      textspace recipes show vae > my-recipe.json
    """
    if context.invoked_subcommand:
        return
    from rich.console import Console
    from rich.table import Table

    from textspace.recipes import RECIPES

    if as_json:
        typer.echo(json.dumps({name: json.loads(recipe.to_json()) for name, recipe in RECIPES.items()}, indent=1))
        return
    table = Table(box=None, pad_edge=False)
    for column in ("recipe", "what it is", "citation"):
        table.add_column(column, no_wrap=column == "recipe")
    for name, recipe in RECIPES.items():
        table.add_row(name, recipe.about, recipe.citation)
    Console().print(table)


@recipes_app.command("show")
def recipes_show(name: Annotated[str, typer.Argument(show_default=False)]) -> None:
    """Print a recipe as JSON, ready for `train --config`."""
    from textspace.recipes import recipe

    typer.echo(recipe(name).to_json(), nl=False)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="The folder for the trained space.")] = Path("textspace-demo"),
    seed: Seed = 0,
    device: Device = None,
) -> None:
    """Train on the built-in corpus in minutes, and compare the likelihood with the exact one.

    Example:

      textspace demo --out /tmp/demo
    """
    from rich.console import Console

    from textspace.demo import run

    run(out, seed=seed, device=device, console=Console())


# What the commands share


def _tell(text: str) -> None:
    typer.echo(text, err=True)


def _sources(written: str) -> Any:
    """Several sources are written with commas between them, unless a file of that very name exists."""
    return written.split(",") if "," in written and not Path(written).exists() else written


def _read_options(text: str | None, label: str | None, header: bool | None, **more: Any) -> ReadOptions:
    from textspace.data.options import ReadOptions

    def column(written: str | None) -> str | int | None:
        return int(written) if written is not None and written.isdecimal() else written

    return ReadOptions(text=column(text), label=column(label), header=header, **more)


def _recipe(name: str, config: Path | None, resume: bool, out: Path) -> Recipe:
    from textspace.config import Recipe
    from textspace.recipes import recipe

    if resume:
        return Recipe.load(out / "recipe.json")
    return Recipe.load(config) if config else recipe(name)


def _corpus_to_score(source: str, split: str, options: ReadOptions, recipe: Recipe) -> Corpus:
    """The asked-for split of a source, under that name; all of a source that has no splits."""
    from dataclasses import replace

    from textspace.data.corpus import open_corpus

    corpus = open_corpus(_sources(source), options, normalise=recipe.text.normalise)
    if split not in corpus.splits and list(corpus.splits) != ["train"]:
        raise TextspaceError(f"{source} has no split {split!r}; {nearest(split, corpus.splits)}")
    return replace(corpus, splits={split: corpus.splits.get(split) or corpus.splits["train"]})


def _print_estimates(estimates: dict[str, Estimate], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({name: estimate.to_dict() for name, estimate in estimates.items()}, indent=1))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("measure")
    table.add_column("value ± standard error", justify="right", no_wrap=True)
    table.add_column("n", justify="right")
    for estimate in estimates.values():
        table.add_row(estimate.name, str(estimate), f"{estimate.n:,}")
    Console().print(table)
