"""What a run begins with: nothing, its own checkpoint, or another space; and what is noted of it, for who resumes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from textspace import folder as folders
from textspace.config import Recipe
from textspace.data.content import TRAINING_TEXT
from textspace.data.tokenizers import Tokenizer
from textspace.errors import TextspaceError
from textspace.model import Model
from textspace.train import checkpoints
from textspace.train.resuming import weight_relevant

__all__ = ["Beginning", "Noted"]

BEGUN = "begun.json"


@dataclass(frozen=True)
class Noted:
    """What a run left in its folder when it began.

    Args:
        data: fingerprint of the text.
        weights: digest of those of the space that it started from; None where there was none.
        sketch: of the text that space had learnt from.
    """

    data: str
    weights: str | None = None
    sketch: str | None = None

    @classmethod
    def of(cls, data: str, start: folders.Saved | None) -> Noted:
        if start is None:
            return cls(data)
        return cls(data, checkpoints.digest(start.model), start.metrics.get(TRAINING_TEXT, {}).get("sketch"))

    @classmethod
    def read(cls, folder: Path) -> Noted | None:
        """None where a run of an earlier version has noted nothing."""
        path = folder / BEGUN
        if not path.exists():
            return None
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError):
            raise TextspaceError(f"{path} is damaged: start anew in another folder") from None

    def write(self, folder: Path) -> None:
        checkpoints.write_file(folder / BEGUN, (json.dumps(self.__dict__) + "\n").encode())


@dataclass(frozen=True)
class Beginning:
    """What a run begins with.

    Args:
        tokenizer: the one that is there already; None to learn one.
        resumed: whether it has begun before.
        goes_on: whether there are weights of its own to go on with.
        has_first_phase: whether it begins with the first phase of its recipe.
        start: the space that it starts from.
        init: the folder of that space.
    """

    tokenizer: Tokenizer | None
    resumed: bool
    goes_on: bool
    has_first_phase: bool
    start: folders.Saved | None = None
    init: Path | str | None = None

    @classmethod
    def of(cls, recipe: Recipe, resumed: Path | None, init: Path | str | None) -> Beginning:
        """Of a run that goes on in the folder `resumed`, else starts from the space in `init`, else from nothing."""
        start = folders.load(init) if init is not None else None
        if resumed is None:
            two_phases = recipe.pretrain is not None and start is None
            return cls(start.tokenizer if start else None, False, False, two_phases, start, init)
        noted = Noted.read(resumed)
        if start and noted and Noted.of("", start).weights != noted.weights:
            raise TextspaceError(f"the run in {resumed} did not start from {init}: leave out --init to resume it")
        two_phases = recipe.pretrain is not None and not (start or (noted and noted.weights))
        goes_on = not two_phases or checkpoints.newest(resumed) is not None
        if not goes_on and weight_relevant(Recipe.load(resumed / folders.RECIPE)) != weight_relevant(recipe):
            raise TextspaceError(f"the run in {resumed} began with another recipe: resume with the same settings")
        return cls(folders.load_tokenizer(resumed, recipe), True, goes_on, two_phases and not goes_on)

    def model(self, recipe: Recipe, tokenizer: Tokenizer) -> Model:
        """With the weights of the space that it starts from."""
        model = Model(recipe, len(tokenizer), tokenizer.encoder if self.goes_on or self.start else None)
        if self.start:
            checkpoints.load_weights(model, checkpoints.weights(self.start.model), str(self.init))
        return model
