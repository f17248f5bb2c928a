"""The command that reads a space: features."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from textspace.cli.shared import (
    Device,
    Folder,
    Header,
    LabelColumn,
    Seed,
    Split,
    TextColumn,
    app,
    make_folder,
    name_of,
    out_option,
    print_json,
    print_table,
    some_records,
    tell,
    tell_reading,
    uncut_corpus,
)

if TYPE_CHECKING:
    from textspace.features import Dimension, Features

LONGEST_TABLE = 32
"""Dimensions beyond which the terminal shows only those that tell most."""


@app.command()
def features(
    folder: Folder,
    data: Annotated[str, typer.Option(help="The sentences to read the dimensions in: a source of text.")],
    sentence: Annotated[
        list[str] | None,
        typer.Option(
            help="Switch every dimension in this sentence and decode; may be repeated. By default the first 3 of the "
            "source.",
            show_default=False,
        ),
    ] = None,
    sentences: Annotated[int, typer.Option(help="Read so many at most, drawn at random.", min=1)] = 20_000,
    top: Annotated[int, typer.Option(help="Sentences shown for each dimension.", min=1)] = 8,
    out: Annotated[
        Path | None, out_option("Folder for features.html and features.json; by default FOLDER/features.")
    ] = None,
    split: Split = None,
    text_column: TextColumn = None,
    label_column: LabelColumn = None,
    header: Header = None,
    seed: Seed = 0,
    device: Device = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a summary as JSON.")] = False,
) -> None:
    """Say what each dimension of a space means: a page to look at, and JSON.

    For every dimension: how often it is on, the sentences that switch it on most, the words and classes that go with
    it, and what decoding does when it is switched. Made for sparse spaces; the dimensions of a dense one are read by
    their two ends.

    Examples:

      textspace features my-space --data my.txt

      textspace features my-space --data reviews.tsv --label-column stars --sentence "the soup was cold ."
    """
    from textspace.features import read_features
    from textspace.space import Space

    space = Space.load(folder, device)
    _ = space.dim  # a language model is refused before the source is read
    where = out or folder / "features"
    make_folder(where)
    corpus = uncut_corpus(data, split, space.recipe, text_column, label_column, header)
    total, records = some_records(corpus.splits.values(), sentences)
    texts = [record.text for record in records]
    tell_reading(corpus)
    if len(texts) < total:
        tell(f"read {len(texts):,} of {total:,} sentences, drawn at random")
    found = read_features(
        space.of_normalised(),
        texts,
        [record.label for record in records] if corpus.labels else None,
        probes=[space.normalise(text) for text in sentence or ()] or None,
        limit=len(texts),
        of=total,
        top=top,
        seed=seed,
        show_progress=True,
    )
    paths = found.save(where, name_of(folder))
    if as_json:
        print_json(found.summary() | {"files": [str(path) for path in paths.values()]})
        return
    _print_features(found)
    typer.echo(f"The page is in {paths['html']} (also .json).")


def _print_features(found: Features) -> None:
    for note in found.notes:
        tell(note)
    shown = [each for each in found.dimensions if each.sides]
    if len(shown) > LONGEST_TABLE:
        shown = sorted(shown, key=lambda each: (-_told(each), each.number))[:LONGEST_TABLE]
    columns = {"dimension": "right", "on in" if found.gated else "variance": "right", "words": "left"}
    columns |= {"class": "left"} if found.classes else {}
    print_table(columns, (_row(each, bool(found.classes)) for each in shown))
    if len(shown) < sum(bool(each.sides) for each in found.dimensions):
        typer.echo(f"The {LONGEST_TABLE} that tell most, by {'labels' if found.classes else 'words'}.")
    if found.on_per_sentence is not None:
        typer.echo(f"{found.on_per_sentence.name}: {found.on_per_sentence}")
    for state, told in (("always on", "always on"), ("dead", "dead")):
        if numbers := found.in_state(state):  # type: ignore[arg-type]
            typer.echo(f"{told}: {', '.join(map(str, numbers))}")


def _told(dimension: Dimension) -> float:
    """What to order dimensions by: what they say about labels, or else their strongest word."""
    if dimension.labels is not None:
        return dimension.labels.excess
    return max((word.z for word in dimension.sides[0].words), default=0.0)


def _row(dimension: Dimension, with_class: bool) -> tuple[str, ...]:
    often = f"{dimension.variance:.3g}" if dimension.density is None else f"{dimension.density:.1%}"
    on = dimension.side("on")
    words = " / ".join(" ".join(word.word for word in side.words[:4]) for side in ([on] if on else dimension.sides))
    row = (str(dimension.number), often, words)
    if not with_class:
        return row
    labels = dimension.labels
    return (*row, f"{labels.label} ×{labels.lift:.1f}" if labels is not None and labels.is_clear else "")
