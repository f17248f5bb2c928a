"""What a run says of the weights in its folder while it goes on: the space's record, always true of these weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from textspace import folder as folders
from textspace.data.content import TRAINING_TEXT
from textspace.files import write_file
from textspace.train import checkpoints
from textspace.train.selection import Kept

__all__ = ["KEPT", "TRAINED", "RunRecord", "is_unfinished", "write_weights"]

TRAINED, KEPT = "trained", "kept"
"""How a run ended, in the record of a finished one; which weights there are, in that of every run that has some."""


def is_unfinished(folder: Path) -> bool:
    """Whether a folder has no weights, or those of a run that has not ended; without a record nobody can tell."""
    if not (folder / folders.METRICS).exists():
        return not (folder / folders.WEIGHTS).exists()
    record = folders.read_metrics(folder)
    return TRAINING_TEXT in record and TRAINED not in record


def write_weights(path: Path, tensors: Mapping[str, Tensor], kept: Kept) -> None:
    """Write the weights of a run that keeps no record."""
    checkpoints.write_tensors(path, tensors)


class RunRecord:
    """`metrics.json` from the start of a run until its end, when the full record takes its place.

    Args:
        folder: of the run.
        facts: what is known when a run starts: the text it learns from, above all, so that nobody takes that for
            held-out text.
        card: the model card for a record.
    """

    def __init__(self, folder: Path, facts: Mapping[str, Any], card: Callable[[dict[str, Any]], str]) -> None:
        self.folder, self.facts, self.card = folder, dict(facts), card

    def begin(self) -> None:
        """Write it, unless there is one already: a run that is resumed may have been a finished one."""
        if TRAINING_TEXT not in folders.read_metrics(self.folder):
            folders.write_record(self.folder, self.facts)

    def replace_weights(self, path: Path, tensors: Mapping[str, Tensor], kept: Kept) -> None:
        """Write weights. Whenever this is cut off, record and model card are true of those that are there."""
        (self.folder / folders.CARD).unlink(missing_ok=True)
        folders.write_record(self.folder, self.facts, of_files=False)
        checkpoints.write_tensors(path, tensors)
        record = self.facts | {KEPT: kept._asdict()}
        folders.write_record(self.folder, record)
        write_file(self.folder / folders.CARD, self.card(record).encode())
