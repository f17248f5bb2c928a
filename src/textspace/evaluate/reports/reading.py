"""Check what the JSON of a report holds when it is read, so that nothing in it can break a comparison later."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, PlainValidator, StrictBool, StrictFloat, StrictInt, model_validator

from textspace.types import Bound

__all__ = ["check_report", "checked_findings"]

NOT_FINITE = ("NaN", "Infinity", "-Infinity")
"""Names of the numbers that JSON has no digits for."""


def _number(value: Any) -> int | float:
    if isinstance(value, str) and value in NOT_FINITE:
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("not a number")
    return value


def _plain(value: Any) -> str | int | float | bool | None:
    if not isinstance(value, str | int | float | bool | None):
        raise ValueError("not text, a number, true, false or null")
    return value


Number = Annotated[Any, PlainValidator(_number)]
Plain = Annotated[Any, PlainValidator(_plain)]


class _Estimate(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    value: Number
    stderr: Number | None
    n: Number
    bound: Bound
    better: Literal["lower", "higher"] | None
    settings: dict[str, Plain]


class _Table(BaseModel):
    title: str
    columns: list[str]
    rows: list[list[Plain]]
    grouped: StrictBool = False

    @model_validator(mode="after")
    def _has_all_cells(self) -> _Table:
        if not self.columns or any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError("a table has columns, and every row a cell for each")
        return self


class _Picture(BaseModel):
    model_config = ConfigDict(extra="forbid")

    kind: Literal["histogram", "lines", "bars", "points", "heat"]
    title: str
    series: dict[str, list[Number]]
    x: list[Number] | None = None
    x_label: str = ""
    y_label: str = ""
    ticks: list[str] | None = None
    log_x: StrictBool = False

    @model_validator(mode="after")
    def _can_be_drawn(self) -> _Picture:
        lengths = {len(values) for values in self.series.values()}
        match self.kind:
            case "lines":
                fits = not self.x or lengths <= {len(self.x)}
            case "bars" | "heat":
                fits = len(lengths) < 2 and (self.ticks is None or lengths <= {len(self.ticks)})
            case _:
                fits = self.kind != "points" or not any(length % 2 for length in lengths)
        if not fits:
            raise ValueError("the series of a picture do not fit its positions")
        return self


class _Findings(BaseModel):
    estimates: dict[str, _Estimate]
    tables: dict[str, _Table]
    pictures: dict[str, _Picture]
    per_sentence: dict[str, list[Number]]


class _Entry(BaseModel):
    about: str
    theme: str
    seconds: StrictInt | StrictFloat
    notes: list[str]


class _Split(BaseModel):
    unknown: StrictInt | StrictFloat = 0.0


class _Data(BaseModel):
    about: str
    splits: dict[str, _Split]


class _Space(BaseModel):
    about: str


class _Settings(BaseModel):
    date: str
    effort: dict[str, Plain]
    seed: Plain


class _Report(BaseModel):
    name: str
    space: _Space
    data: _Data
    settings: _Settings
    measures: dict[str, _Entry]
    skipped: dict[str, str]


def check_report(data: Any) -> None:
    """Raise ValueError where a report lacks what a comparison reads, its findings aside."""
    _Report.model_validate(data)


def checked_findings(data: Any) -> dict[str, Any]:
    """The findings of a measure as plain data, numbers that are written by name as numbers; else a ValueError."""
    return _Findings.model_validate(data).model_dump()
