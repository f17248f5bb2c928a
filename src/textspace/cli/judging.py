"""Commands that judge a trained space: doctor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from textspace.cli.shared import (
    Device,
    Folder,
    Header,
    Json,
    Seed,
    Split,
    TextColumn,
    app,
    print_json,
    print_table,
    tell,
    uncut_corpus,
)
from textspace.errors import TextspaceError

if TYPE_CHECKING:
    from textspace.data.corpus import Corpus
    from textspace.evaluate.examination import Examination
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
        Path | None, typer.Option(help="The pictures' path without .png and .svg; by default FOLDER/doctor.")
    ] = None,
    split: Split = None,
    text_column: TextColumn = None,
    header: Header = None,
    seed: Seed = 0,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Say in plain words whether a space's codes hold anything and fill the prior, and what to try if not.

    Without --data the diagnosis rests on what was measured when the space was trained.

    Examples:

      textspace doctor my-space

      textspace doctor my-space --data held-out.txt --out pictures/my-space
    """
    from textspace import folder as folders
    from textspace.evaluate.examination import draw_examination, validations
    from textspace.space import Space

    history = validations(folder)
    if data is None:
        examination = _remembered(folder, folders.load(folder), history)
    else:
        space = Space.load(folder, device)
        corpus = uncut_corpus(data, split, space.recipe, text_column, None, header)
        examination = _examined(space, corpus, history, seed)
    stem = folder / "doctor" if out is None else out.with_suffix("") if out.suffix in (".png", ".svg") else out
    pictures = draw_examination(examination, history, stem)
    if as_json:
        print_json(examination.to_dict() | {"pictures": [str(path) for path in pictures]})
        return
    _print_numbers(examination)
    typer.echo(str(examination.diagnosis))
    if pictures:
        typer.echo(f"The picture is in {pictures[0]} and {pictures[1].name}.")


def _remembered(folder: Path, saved: Saved, history: list[dict[str, Any]]) -> Examination:
    """The examination that training left; without one, what the log says of the weights that were kept."""
    from textspace.evaluate.doctor import MEASURES, diagnose
    from textspace.evaluate.examination import Examination

    earlier = _earlier(history, saved.metrics)
    stored = saved.metrics.get("examination")
    if stored is not None:
        try:
            found = Examination.from_dict(stored)
        except TextspaceError:
            raise TextspaceError(f"the examination stored in {folder} is damaged: {_GIVE_DATA}") from None
        return replace(found, diagnosis=diagnose(found.numbers, saved.recipe, earlier, _epochs(history)))
    kept = history[len(earlier)] if len(earlier) < len(history) else {}
    numbers = {name: kept[name] for name in MEASURES if name in kept}
    diagnosis = diagnose(numbers, saved.recipe, earlier, _epochs(history))
    if diagnosis.state == "unknown" and saved.recipe.posterior is not None:
        raise TextspaceError(f"{folder} holds no examination and no log of a run: {_GIVE_DATA}")
    return Examination(numbers, None, diagnosis)


def _epochs(history: list[dict[str, Any]]) -> float | None:
    """How long the run was."""
    last = history[-1].get("epoch") if history else None
    return float(last) if isinstance(last, int | float) else None


def _earlier(history: list[dict[str, Any]], metrics: dict[str, Any]) -> list[dict[str, Any]]:
    """The validations before the one whose weights were kept; before the last, where that is not known."""
    trained = metrics.get("trained")
    kept = trained.get("best_step") if isinstance(trained, dict) else None
    steps = [line.get("step") for line in history]
    return history[: steps.index(kept)] if kept in steps else history[:-1]


def _examined(space: Space, corpus: Corpus, history: list[dict[str, Any]], seed: int) -> Examination:
    from textspace.data.encoded import EncodedSplit
    from textspace.evaluate.examination import examine
    from textspace.inputs import Troubles

    parts = [corpus.splits["valid"]] if "valid" in corpus.splits else list(corpus.splits.values())
    total = sum(len(part) for part in parts)
    count = min(total, EXAMINED)
    records = enumerate(record for part in parts for record in part)
    # Each whole number that row * count / total passes is a row to keep: `count` of them, spread evenly.
    texts = [record.text for row, record in records if row * count // total > (row - 1) * count // total]
    for line in corpus.report.lines():
        tell(line)
    if count < total:
        tell(f"examined {count:,} of {total:,} sentences, spread evenly")
    encoded = EncodedSplit.of(texts, space.tokenizer, space.recipe.text.max_tokens)
    troubles = Troubles()
    troubles.count(encoded)
    troubles.warn(space.recipe.text.max_tokens)
    return examine(
        space.model,
        encoded,
        space.recipe,
        seed=seed,
        history=_earlier(history, space.metrics),
        epochs=_epochs(history),
        progress=True,
    )


def _print_numbers(examination: Examination) -> None:
    from textspace.evaluate.doctor import MEASURES

    estimates = {} if examination.statistics is None else examination.statistics.estimates()
    rows = []
    for name, value in examination.numbers.items():
        known = estimates.get(name)
        side = f", {known.bound} bound" if known and known.bound in ("lower", "upper") else ""
        shown = f"{value:.0f}" if name == "active_units" else str(known) if known else f"{value:.2f}"
        rows.append((f"{MEASURES.get(name, name)}{side}", shown))
    if rows:
        print_table({"measure": "left", "value ± standard error": "right"}, rows)
        typer.echo()
