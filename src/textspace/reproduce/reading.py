"""What a file of results must hold, so that damage is told where it is read and not where a number is missed."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    StrictFloat,
    StrictInt,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from textspace.errors import TextspaceError
from textspace.reproduce.table import Table, run_name

__all__ = ["check_results", "check_run"]

MOST_SEEDS = 1000
"""Of a row: more than anybody trains."""

Number = float
"""Also by name where it is not finite ("NaN"), as files have it; a strict one is written as a number."""


def _checked_error(error: Number) -> Number:
    if error < 0:
        raise ValueError("a standard error must not be negative")
    return error


Measured = tuple[Number, Annotated[Number, AfterValidator(_checked_error)] | None]
"""A number and its standard error, which may be NaN."""


Drawn = Annotated[StrictFloat, Field(allow_inf_nan=False)]
"""A number that is a place in a picture."""


class _Begun(BaseModel):
    row: str
    seed: StrictInt
    machine: dict[str, Any] | None = None


class _Missing(_Begun):
    state: Literal["missing"]
    said: str = ""


class _Phase(BaseModel):
    seconds: StrictFloat


class _Done(_Begun):
    state: Literal["done"]
    digest: str
    epochs_at_most: StrictInt
    steps_at_most: StrictInt | None
    stopped: str
    seconds: StrictFloat
    epochs: StrictInt
    steps: StrictInt
    encoder_updates: StrictInt
    decoder_updates: StrictInt
    parameters: StrictInt
    pretraining: _Phase | None = None
    test: dict[str, Measured]
    measures: dict[str, dict[str, Measured]] = {}
    not_measured: dict[str, Any] = {}
    by_sentence: dict[str, list[Number]] = {}
    by_epoch: dict[str, list[Number | None]] = {}
    epoch: list[Drawn] = []
    feature_places: list[tuple[Drawn, Drawn]] = []
    feature_spread: tuple[StrictFloat, Number | None] | None = None
    features: list[tuple[Drawn, Drawn, Drawn]] = []

    @model_validator(mode="after")
    def _fits_together(self) -> _Done:
        if any(len(values) != len(self.epoch) for values in self.by_epoch.values()):
            raise ValueError("by_epoch must have a number for each in epoch")
        if self.by_sentence and len({len(self.by_sentence.get("words", ())), *map(len, self.by_sentence.values())}) > 1:
            raise ValueError("by_sentence must have as many numbers as words")
        if self.feature_places and self.feature_spread is None:
            raise ValueError("feature_places need feature_spread")
        if self.features and not self.feature_places:
            raise ValueError("features need feature_places")
        return self


def _checked_papers(table: Any) -> Any:
    """Before text that reads like a number is taken for one."""
    numbers = (number for row in table["rows"] for number in row.get("paper", {}).values())
    if not all(isinstance(number, int | float) and math.isfinite(number) for number in numbers):
        raise ValueError("one of the paper's numbers is none")
    return table


class _Results(BaseModel):
    table: Annotated[Table, BeforeValidator(_checked_papers)]
    runs: dict[str, Any]
    wanted: dict[str, Annotated[StrictInt, Field(ge=1, le=MOST_SEEDS)]]
    command: str
    deviations: list[str]

    @model_validator(mode="after")
    def _can_be_shown(self) -> _Results:
        # Names of a table and of its rows become those of files and folders.
        for name in (self.table.name, *self.table.trained):
            if not re.fullmatch(r"\w[\w.+-]*", name):
                raise ValueError(f"{name!r} is no plain name, of letters, digits and . _ + -")
        if not self.table.columns:
            raise ValueError("its table has no columns")
        if self.table.reference not in (None, *self.table.trained):
            raise ValueError(f"its table has no row {self.table.reference!r} to compare others with")
        return self


_RUN: TypeAdapter[_Missing | _Done] = TypeAdapter(Annotated[_Missing | _Done, Field(discriminator="state")])


def check_results(data: dict[str, Any], path: Path) -> None:
    """Say so if the content of a file is not what a reproduction writes, or one of its runs is damaged."""
    try:
        _Results.model_validate(data)
    except ValidationError as error:
        raise TextspaceError(
            f"{path} is no result of textspace papers run ({_first(error)}): give a NAME.json that it has written"
        ) from None
    for name, run in data["runs"].items():
        try:
            found = _RUN.validate_python(run)
            damage = None if name == run_name(found.row, found.seed) else f"it is of {run_name(found.row, found.seed)}"
        except ValidationError as error:
            damage = _first(error, inside=1)  # of its state
        if damage is not None:
            raise TextspaceError(
                f"the run {name!r} in {path} is damaged ({damage}): write or fetch the file again, or take that run out"
            )


def check_run(run: dict[str, Any], path: Path) -> dict[str, Any]:
    """Say so if what a folder has of a run is not what a worker writes."""
    try:
        _RUN.validate_python(run)
    except ValidationError as error:
        raise TextspaceError(f"{path} is damaged ({_first(error, inside=1)}): remove it to begin anew") from None
    return run


def _first(error: ValidationError, inside: int = 0) -> str:
    """The first mistake, and where it is; so many parts of the place are known."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][inside:])
    match first["type"]:
        case "union_tag_not_found" | "union_tag_invalid":
            return "its state is neither done nor missing"
        case "value_error":
            return str(first["ctx"]["error"])
        case _:
            told = f"{first['msg'][0].lower()}{first['msg'][1:]}"
            return f"{where}: {told}" if where else told
