"""Whether sentences are held out: what a space records of its training text, and the notes where text repeats it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from textspace.data.content import TRAINING_TEXT, Sketch, canonical
from textspace.data.corpus import Corpus
from textspace.data.encoded import EncodedSplit
from textspace.evaluate.statistics import some_rows

__all__ = ["held_out_note", "repeats_note", "sentences_of", "shared_note", "training_record"]

LOOKED_UP = 20_000
"""Sentences of a split that are looked up in the training text, drawn at random."""

FEW_DIFFERENT = 0.5
"""Below this share of different sentences a note says so."""

UNKNOWN = "this space does not record its training text, so whether these sentences are held out is unknown"


def training_record(metrics: Mapping[str, Any]) -> dict[str, Any] | None:
    """The record of the training text in a space's metrics; None without one, or with one that is not ours."""
    record: Any = metrics.get(TRAINING_TEXT)
    try:
        if sketch := record.get("sketch"):
            Sketch.of(sketch)
        return record if isinstance(record["sentences"], int) and isinstance(record["digest"], str) else None
    except (AttributeError, LookupError, TypeError, ValueError):
        return None


def held_out_note(metrics: Mapping[str, Any], texts: Iterable[str], split: str = "") -> str | None:
    """The note to print before numbers of `texts`: some are training sentences of the space, or nobody can know.

    None where no sentence that can be looked up is in the training text.

    Args:
        metrics: those of the space.
        texts: sentences as the space reads them, normalised.
        split: their name in the note, such as "test".
    """
    sketch = (training_record(metrics) or {}).get("sketch")
    if not sketch:
        return UNKNOWN
    met, looked_up, different = Sketch.of(sketch).met(texts)
    if not met:
        return None
    sentences = f"{split} sentences".strip()
    of = f"different {sentences}" if looked_up == different else f"{sentences} that were looked up"
    note = (
        f"{met:,} of {looked_up:,} {of} are in the text the space was trained on, which flatters its numbers: "
        "give sentences that it has not met"
    )
    return f"{split}: {note}" if split else note


def shared_note(split: str, texts: Iterable[str], sketches: Iterable[str], where: str = "the training text") -> str:
    """The note that sentences of a split are among others too, by the sketches of those; empty where none is."""
    met, looked_up, _ = Sketch.of(*sketches).met(texts)
    are = "is" if met == 1 else "are"
    note = f"{split}: {met:,} of {looked_up:,} different sentences {are} in {where} too, which flatters it"
    return note if met else ""


def repeats_note(split: str, texts: Iterable[str]) -> str:
    """The note that most sentences of a split repeat others of it; empty where they do not."""
    sentences = [canonical(text) for text in texts]
    different = len(set(sentences))
    if different >= FEW_DIFFERENT * len(sentences):
        return ""
    return f"{split}: only {different:,} of {len(sentences):,} sentences differ, so standard errors are too small"


def sentences_of(name: str, split: EncodedSplit, corpus: Corpus) -> Iterator[str]:
    """The sentences of a split to look up: some at random, or all of them before the cut where long ones are cut."""
    if split.over_long and corpus.report.cuts:
        return (record.text for record in corpus.splits[name])
    return map(split.text, map(int, some_rows(len(split), LOOKED_UP)))
