"""What every config has in common."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticKnownError

from textspace.checks import LARGEST

__all__ = ["Config", "Count", "NotNegative", "Positive", "Seed", "Share", "Whole"]


def _no_boolean(given: Any) -> Any:
    """Which Python takes for 0 and 1."""
    if isinstance(given, bool):
        raise PydanticKnownError("int_type")
    return given


Share = Annotated[float, Field(ge=0, lt=1)]
NotNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Whole = Annotated[int, BeforeValidator(_no_boolean), Field(le=LARGEST)]
Count = Annotated[Whole, Field(ge=1)]
Seed = Annotated[int, BeforeValidator(_no_boolean), Field(ge=0)]


class Config(BaseModel):
    """Base of every config: unknown options are errors, values are checked, objects do not change.

    Numbers are finite: JSON has no others, so that a recipe with one could not be read again.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)
