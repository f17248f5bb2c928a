"""What a run begins with: nothing, its own checkpoint, or another space; and what is noted of it, for who resumes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from textspace import folder as folders
from textspace.config import Recipe
from textspace.data.batching import Mixing
from textspace.data.content import TRAINING_TEXT
from textspace.data.tokenizers import Tokenizer
from textspace.digests import DIGEST, check_record, with_digest
from textspace.errors import TextspaceError
from textspace.files import check_no_file, read_json, write_file
from textspace.model import Model
from textspace.train import checkpoints
from textspace.train.record import is_unfinished
from textspace.train.resuming import can_continue

__all__ = ["Beginning", "Noted", "check_free", "recipe_of_run"]

BEGUN = folders.BEGUN


def check_free(folder: Path, recipe: Recipe) -> None:
    """Say so if a folder holds a run, a space, or files of somebody's that training would write over."""
    check_no_file(folder, "choose another folder with --out")
    if checkpoints.newest(folder) is not None:
        raise TextspaceError(f"{folder} already holds a run: add --resume to continue it, or choose another folder")
    has_record = (folder / folders.METRICS).exists() or (folder / BEGUN).exists()
    if has_record and not is_unfinished(folder):
        raise TextspaceError(f"{folder} already holds a space: choose another folder (--init {folder} starts from it)")
    folders.check_overwrites(folder, recipe, BEGUN, "training")


def recipe_of_run(folder: Path) -> Recipe | None:
    """The recipe of a run, even of one that was killed before it wrote recipe.json; None where there is no run."""
    if (folder / folders.RECIPE).is_file():
        return Recipe.load(folder / folders.RECIPE)
    noted = Noted.read(folder)
    return Recipe.parse(noted.recipe) if noted and noted.recipe else None


@dataclass(frozen=True)
class Noted:
    """What a run left in its folder when it began.

    Args:
        data: fingerprint of the text.
        weights: digest of those of the space that it started from; None where there was none.
        sketch: of the text that space had learnt from.
        mixing: how several sources share an epoch; None where a run of an earlier version has not noted it.
        recipe: its plain data; None where a run of an earlier version has not noted it.
    """

    data: str
    weights: str | None = None
    sketch: str | None = None
    mixing: Mixing | None = None
    recipe: dict[str, Any] | None = None

    @classmethod
    def of(cls, data: str, beginning: Beginning, recipe: Recipe) -> Noted:
        plain = json.loads(recipe.to_json())
        return cls(data, beginning.start_digest, beginning.learnt_before, beginning.mixing, plain)

    @classmethod
    def read(cls, folder: Path) -> Noted | None:
        """None where a run of an earlier version has noted nothing."""
        path = folder / BEGUN
        if not path.exists():
            return None
        try:
            stored = read_json(path)
            return cls(**(check_record(stored) if DIGEST in stored else stored))  # earlier versions wrote no digest
        except (OSError, ValueError, TypeError):
            raise TextspaceError(f"{path} is damaged: start anew in another folder") from None

    def write(self, folder: Path) -> None:
        write_file(folder / BEGUN, (json.dumps(with_digest(self.__dict__)) + "\n").encode())


@dataclass(frozen=True)
class Beginning:
    """What a run begins with.

    Args:
        tokenizer: the one that is there already; None to learn one.
        resumed: whether it has begun before.
        goes_on: whether it has a checkpoint to continue from.
        has_first_phase: whether it begins with the first phase of its recipe.
        start: the space that it starts from.
        init: the folder of that space.
        mixing: how several sources share an epoch.
    """

    tokenizer: Tokenizer | None
    resumed: bool
    goes_on: bool
    has_first_phase: bool
    start: folders.Saved | None = None
    init: Path | str | None = None
    mixing: Mixing = "all"

    @classmethod
    def of(cls, recipe: Recipe, resumed: Path | None, init: Path | str | None, mixing: Mixing | None) -> Beginning:
        """Of a run that goes on in the folder `resumed`, else starts from the space in `init`, else from nothing; with
        the mixing that is asked for, if one is."""
        start = folders.load(init) if init is not None else None
        if resumed is None:
            two_phases = recipe.pretrain is not None and start is None
            return cls(start.tokenizer if start else None, False, False, two_phases, start, init, mixing or "all")
        noted = Noted.read(resumed)
        if start and noted and checkpoints.digest(start.model) != noted.weights:
            raise TextspaceError(f"the run in {resumed} did not start from {init}: leave out --init to resume it")
        goes_on = checkpoints.newest(resumed) is not None
        if not goes_on and not is_unfinished(resumed):
            raise TextspaceError(
                f"there is no checkpoint in {resumed} to resume from: train in a new folder (--init {resumed} starts "
                "from its weights)"
            )
        if not goes_on and noted and noted.weights and start is None:
            raise TextspaceError(
                f"the run in {resumed} started from another space and has no checkpoint yet: add --init with that space"
            )
        mixed = (noted and noted.mixing) or mixing or "all"
        if mixing not in (None, mixed):
            raise TextspaceError(
                f"the run in {resumed} began with --mixing {mixed}: leave out --mixing {mixing} to resume it"
            )
        stored = recipe_of_run(resumed)
        if stored is None:
            raise TextspaceError(f"{resumed} holds no run to resume: leave out --resume to begin one there")
        if not can_continue(stored, recipe):
            raise TextspaceError(f"the run in {resumed} began with another recipe: resume with the same settings")
        if goes_on:
            folders.check_files(resumed)
            return cls(folders.load_tokenizer(resumed, recipe), True, True, False, mixing=mixed)
        # It was stopped before its first checkpoint, and starts over.
        two_phases = recipe.pretrain is not None and start is None
        return cls(start.tokenizer if start else None, True, False, two_phases, start, init, mixed)

    @property
    def start_digest(self) -> str | None:
        """Of the weights that it starts from."""
        return checkpoints.digest(self.start.model) if self.start else None

    @property
    def learnt_before(self) -> str | None:
        """Sketch of what the space learnt from that it starts from."""
        text = self.start.metrics.get(TRAINING_TEXT) if self.start else None
        return text.get("sketch") if isinstance(text, Mapping) else None

    def with_own_tokenizer(self, recipe: Recipe) -> Recipe:
        """The recipe with the tokenizer that there will be: a space that training starts from brings its own."""
        if self.start is None:
            return recipe
        return recipe.but({"text.tokenizer": self.start.recipe.text.tokenizer.model_dump()})

    def model(self, recipe: Recipe, tokenizer: Tokenizer) -> Model:
        """With the weights of the space that it starts from."""
        model = Model(recipe, len(tokenizer), tokenizer.encoder if self.goes_on or self.start else None)
        if self.start:
            checkpoints.load_weights(model, checkpoints.weights(self.start.model), str(self.init))
        return model
