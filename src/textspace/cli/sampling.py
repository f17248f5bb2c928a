"""Commands that make new sentences: sample, interpolate, vary."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from textspace.cli.shared import (
    Device,
    Folder,
    Header,
    Json,
    MethodName,
    Seed,
    Split,
    Temperature,
    TextColumn,
    TopK,
    TopP,
    Width,
    app,
    check_has_data,
    method,
    print_json,
    print_lines,
    print_table,
    tell_reading,
    uncut_corpus,
)


@app.command()
def sample(
    folder: Folder,
    n: Annotated[int, typer.Option("-n", help="How many.", min=0)] = 5,
    deviation: Annotated[
        str | None,
        typer.Option(
            help="Codes nearer to the prior's middle: with so many of its deviations (0.1 in sentenceMIM's paper), or "
            "'dim' for 1 / sqrt(dimensions) (in its public code)."
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="Codes from the aggregated posterior of this source: a sentence at random, a sample of it."),
    ] = None,
    chain: Annotated[
        int, typer.Option(help="Encode what was decoded (a sample) and decode it again, so many times.", min=0)
    ] = 0,
    draw_length: Annotated[
        bool, typer.Option("--draw-length", help="Draw each sentence's length first, as training sentences have it.")
    ] = False,
    how: MethodName = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    width: Width = None,
    split: Split = None,
    text_column: TextColumn = None,
    header: Header = None,
    seed: Seed = 0,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Make new sentences: codes from the prior or from other sentences' posteriors, words sampled.

    Examples:

      textspace sample my-space -n 5 --seed 1 --temperature 0.7

      textspace sample my-space --deviation 0.1 --draw-length

      textspace sample my-space --data my.txt

      textspace sample my-space --chain 5 --method greedy
    """
    from textspace.space import Space

    chosen = method(how, "sampling", temperature=temperature, top_k=top_k, top_p=top_p, width=width)
    check_has_data(data, split=split, text_column=text_column, header=header)
    space = Space.load(folder, device)
    corpus = None if data is None else uncut_corpus(data, split, space.recipe, text_column, None, header)
    made = space.of_normalised().sample(
        n,
        deviation=_deviation(deviation),
        of=None if corpus is None else (record.text for part in corpus.splits.values() for record in part),
        chain=chain,
        lengths="drawn" if draw_length else "decoded",
        method=chosen,
        seed=seed,
        show_progress=not sys.stdout.isatty(),
    )
    tell_reading(corpus)
    print_lines(made, as_json)


def _deviation(written: str | None) -> Any:
    """A number where one is written; `Space.sample` refuses other words than it knows."""
    try:
        return written if written is None else float(written)
    except ValueError:
        return written


@app.command()
def interpolate(
    folder: Folder,
    first: Annotated[str, typer.Argument(help="A sentence.", show_default=False)],
    second: Annotated[str, typer.Argument(help="Another.", show_default=False)],
    steps: Annotated[int, typer.Option(help="How many sentences, both ends included.")] = 7,
    path: Annotated[str, typer.Option(help="linear or spherical.")] = "linear",
    ends: Annotated[str, typer.Option(help="The posteriors' means, or a sample of each.")] = "mean",
    how: MethodName = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    width: Width = None,
    seed: Seed = 0,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Walk from one sentence to another through the space.

    Examples:

      textspace interpolate my-space "one text" "another" --steps 5

      textspace interpolate my-space "one text" "another" --steps 10 --ends sample --method sampling
    """
    from textspace.space import Space

    chosen = method(how, "greedy", temperature=temperature, top_k=top_k, top_p=top_p, width=width)
    space = Space.load(folder, device)
    walked = space.interpolate(first, second, steps=steps, path=path, ends=ends, method=chosen, seed=seed)  # type: ignore[arg-type]
    print_lines(walked, as_json)


@app.command()
def vary(
    folder: Folder,
    text: Annotated[
        str,
        typer.Argument(
            help="A sentence; where every token has a code, with \\[words] that are to vary while all others stay.",
            show_default=False,
        ),
    ],
    n: Annotated[int, typer.Option("-n", help="How many.", min=0)] = 5,
    strength: Annotated[
        float,
        typer.Option(
            help="0 is the sentence's own code, 1 a sample of its posterior, more strays further: sentenceMIM's paper "
            "perturbs codes by 10 times the posterior's deviation."
        ),
    ] = 1.0,
    token: Annotated[
        list[str] | None,
        typer.Option(help="A word to vary, instead of brackets in the sentence; may be repeated.", show_default=False),
    ] = None,
    how: MethodName = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    width: Width = None,
    seed: Seed = 0,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Make variants of a sentence or of some of its words, and say how far from it re-encoding lands.

    In a space whose every token has a code (recipe vat), words in brackets vary and all others stay at their means.
    Plain brackets have a backslash before them.

    Examples:

      textspace vary my-space "a text" -n 5 --strength 1.5

      textspace vary my-space "a text" --strength 10 --method sampling

      textspace vary my-token-space "the \\[food] was great" -n 10

      textspace vary my-token-space "the food was great" --token food --token great
    """
    from textspace.space import Space

    chosen = method(how, "greedy", temperature=temperature, top_k=top_k, top_p=top_p, width=width)
    space = Space.load(folder, device)
    variants = space.vary(text, n, tokens=token or None, strength=strength, method=chosen, seed=seed)
    if as_json:
        print_json([variant._asdict() for variant in variants])
        return
    rows = ((variant.text, f"{variant.moved:.2f}", f"{variant.landed:.2f}") for variant in variants)
    print_table({"variant": "left", "moved": "right", "landed": "right"}, rows)
