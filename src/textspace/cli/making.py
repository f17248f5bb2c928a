"""Commands that make spaces: describe, train, recipes, demo."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from textspace.cli.shared import (
    Device,
    Header,
    Json,
    LabelColumn,
    Seed,
    Source,
    TextColumn,
    app,
    out_option,
    print_json,
    print_table,
    read_options,
    sources,
    tell,
)
from textspace.errors import TextspaceError

if TYPE_CHECKING:
    from textspace.config import Recipe
    from textspace.train.rehearsal import Rehearsal


@app.command()
def train(
    source: Source,
    recipe: Annotated[
        str | None, typer.Option(help="A named recipe; `textspace recipes` lists them.", show_default="default")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Instead: a recipe.json.")] = None,
    out: Annotated[Path, out_option("The folder for the trained space.")] = Path("space"),
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change an option of the recipe: latent.dim=64", metavar="PATH=VALUE"),
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option(help="Encoder and decoder as large as the papers' on a corpus: ptb, captions or yahoo."),
    ] = None,
    sparsity: Annotated[
        float | None,
        typer.Option(help="Share of the dimensions that shall be off, such as 0.8, for recipes with gates like hsvae."),
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Short for --set training.epochs=N.", min=1)] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Continue the run in --out from its last checkpoint, or start it over if it has none; "
            "--epochs may be larger than before.",
        ),
    ] = False,
    init: Annotated[
        Path | None,
        typer.Option(help="Start from the space in this folder, with its recipe and tokenizer, on new text."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be trained, and how long it would take.")
    ] = False,
    mixing: Annotated[
        str | None,
        typer.Option(
            help="Several sources: 'all' takes every sentence once an epoch, so that larger sources count for more; "
            "'balanced' takes from each as many as the smallest has, drawn anew each epoch. Each is measured apart "
            "too. A run that goes on has the one it began with.",
            show_default="all",
        ),
    ] = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    header: Header = None,
    seed: Annotated[int | None, typer.Option(help="Short for --set training.seed=N.", min=0)] = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Train a space on your text.

    Examples:

      textspace train my.txt --out my-space

      textspace train reviews.tsv --text-column review --recipe ae --epochs 10

      textspace train my.txt --recipe pretrain-free-bits --set objective.free_bits.target=8

      textspace train builtin --recipe vae-max-pool --sizes ptb --set latent.dim=16 --dry-run

      textspace train my.txt --recipe hsvae --sparsity 0.8

      textspace train my.txt --out my-space --resume

      textspace train more.txt --init my-space --out my-new-space

    A run that was interrupted or killed goes on with --resume and the same settings. Several processes:

      torchrun --nproc-per-node 2 -m textspace train my.txt
    """
    from dataclasses import asdict

    from textspace.digits import number as shown
    from textspace.folder import check
    from textspace.recipes import sized, with_sparsity
    from textspace.train.beginning import recipe_of_run
    from textspace.train.fit import train as fit
    from textspace.train.loop import Interrupted

    shorthands = {"training.epochs": epochs, "training.seed": seed}
    if resume and recipe_of_run(out) is None:
        raise TextspaceError(f"{out} holds no run to resume: leave out --resume to begin one there")
    if init is not None and not resume:
        check(init)
    chosen = _recipe(recipe, config, out if resume else init)
    chosen = (sized(chosen, sizes) if sizes else chosen).with_settings(set_ or [])
    chosen = chosen.but({path: number for path, number in shorthands.items() if number is not None})
    chosen = chosen if sparsity is None else with_sparsity(chosen, sparsity)
    if chosen.with_settings(set_ or []) != chosen:
        shorter = {"--epochs": epochs, "--seed": seed, "--sparsity": sparsity}
        other = " or ".join(option for option, value in shorter.items() if value is not None)
        raise TextspaceError(f"--set and {other} say two things of one setting: leave out one of them")
    if init is not None and any(change.strip().startswith("text.tokenizer") for change in set_ or []):
        raise TextspaceError(f"the space in {init} brings its own tokenizer: leave out --set text.tokenizer or --init")
    options = read_options(text_column, label_column, header, mixing=mixing)
    if dry_run:
        from textspace.train.rehearsal import rehearse

        rehearsal = rehearse(
            sources(source), chosen, options=options, resumed=out if resume else None, init=init, device=device
        )
        _print_rehearsal(rehearsal, as_json)
        return
    try:
        trained = fit(
            sources(source), chosen, out, options=options, resume=resume, init=init, device=device, say=tell
        )  # fmt: skip
    except Interrupted as stopped:
        tell(str(stopped))
        raise typer.Exit(130) from None
    if as_json:
        print_json(asdict(trained) | {"folder": str(out)})
        return
    tell(
        f"{trained.stopped} after {trained.seconds:.0f} s and {trained.steps:,} steps; weights kept after epoch "
        f"{trained.best_epoch:g} (step {trained.best_step:,}), {trained.criterion}: {shown(trained.best)}"
    )
    tell(
        f"{trained.parameters:,} parameters, {trained.encoder_updates:,} encoder and "
        f"{trained.decoder_updates:,} decoder updates; the space is in {out}, its curves in {out / 'curves.png'}"
    )


def _recipe(name: str | None, config: Path | None, folder: Path | None) -> Recipe:
    """By name or from a file; a folder that is to be continued or started from has its own."""
    from textspace.config import Recipe
    from textspace.recipes import recipe
    from textspace.train.beginning import recipe_of_run

    if config and name is not None:
        raise TextspaceError(f"--config {config} and --recipe {name} are two recipes: leave out one of them")
    if config:
        return Recipe.load(config)
    if folder is None:
        return recipe(name or "default")
    own = recipe_of_run(folder) or Recipe.load(folder / "recipe.json")
    if name is not None and name != own.name:
        raise TextspaceError(
            f"{folder} has the recipe {own.name!r}, which --resume and --init go on with: leave out --recipe {name}, "
            "or begin anew in another folder"
        )
    return own


def _print_rehearsal(rehearsal: Rehearsal, as_json: bool) -> None:
    if as_json:
        print_json(rehearsal._asdict())
        return
    rows = [(part, description) for part, description in rehearsal.parts.items()]
    rows += [
        ("parameters", f"{sum(rehearsal.parameters.values()):,}"),
        ("sentences", ", ".join(f"{name} {count:,}" for name, count in rehearsal.sentences.items())),
        ("vocabulary", f"{rehearsal.vocabulary:,} tokens"),
        ("batches per epoch", f"{rehearsal.batches_per_epoch:,}"),
        ("time", _time(rehearsal)),
    ]
    print_table({"what": "left", "value": "left"}, rows)
    for note in rehearsal.notes:
        tell(note)


def _epochs(count: int) -> str:
    return "1 epoch" if count == 1 else f"{count} epochs"


def _time(rehearsal: Rehearsal) -> str:
    before = f", after {_epochs(rehearsal.epochs_before)} of a first phase" if rehearsal.epochs_before else ""
    extra = "; the encoder's extra steps come on top" if rehearsal.parts["update"].startswith("aggressive") else ""
    return f"about {rehearsal.seconds_per_epoch:.0f} s an epoch, at most {_epochs(rehearsal.epochs)}{before}{extra}"


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

    options = read_options(text_column, label_column, header)
    description = describe_corpus(open_corpus(sources(source), options, normalise=tuple(normalise or ())))
    if as_json:
        print_json(description.to_dict())
    else:
        Console().print(render(description))


recipes_app = typer.Typer(invoke_without_command=True)
app.add_typer(recipes_app, name="recipes")


@recipes_app.callback()
def recipes(context: typer.Context, as_json: Json = False) -> None:
    """List the named recipes: what you get without asking first, then the baselines and each paper's.

    Examples:

      textspace recipes

      textspace recipes show vae > my-recipe.json
    """
    from textspace.recipes import FAMILIES, RECIPES

    if context.invoked_subcommand:
        return
    if as_json:
        print_json({name: json.loads(recipe.to_json()) for name, recipe in RECIPES.items()})
        return
    for family, members in FAMILIES.items():
        typer.echo(f"{family}\n")
        rows = ((each.name, f"{each.about} {_cited(each.citation)}".rstrip()) for each in members)
        print_table({"recipe": "left", "what it is": "left"}, rows, whole="recipe")
        typer.echo()


def _cited(citation: str) -> str:
    """In short.

    >>> _cited("Burda, Grosse and Salakhutdinov. Importance Weighted Autoencoders. ICLR 2016")
    '(Burda et al. 2016)'
    >>> _cited("Pelsmaeker and Aziz. Effective Estimation of Deep Generative Language Models. 2019"), _cited("")
    ('(Pelsmaeker and Aziz 2019)', '')
    """
    authors, _, rest = citation.partition(". ")
    names = re.split(", | and ", authors.removesuffix(" et al"))
    several = len(names) > 2 or authors.endswith(" et al")
    return f"({f'{names[0]} et al.' if several else ' and '.join(names)} {rest[-4:]})" if citation else ""


@recipes_app.command("show")
def recipes_show(name: Annotated[str, typer.Argument(show_default=False)], as_json: Json = True) -> None:
    """Print a recipe as JSON, ready for `train --config`.

    Example:

      textspace recipes show vae > my-recipe.json
    """
    from textspace.recipes import recipe

    typer.echo(recipe(name).to_json(), nl=False)


@app.command()
def demo(
    out: Annotated[Path, out_option("The folder for the trained space.")] = Path("textspace-demo"),
    seed: Seed = 0,
    device: Device = None,
) -> None:
    """Train on the built-in corpus in minutes, and show what the space can do.

    Example:

      textspace demo --out /tmp/demo
    """
    from rich.console import Console

    from textspace.demo import run
    from textspace.train.loop import Interrupted

    try:
        run(out, seed=seed, device=device, console=Console())
    except Interrupted:
        tell("stopped: the same command goes on from there")
        raise typer.Exit(130) from None
