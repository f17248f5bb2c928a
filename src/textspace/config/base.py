"""What every config has in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Config", "Count", "NotNegative", "Positive", "Share"]

Share = Annotated[float, Field(ge=0, lt=1)]
NotNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1, le=10**15)]
"""More than anybody means, and few enough for all that counts with them."""


class Config(BaseModel):
    """Base of every config: unknown options are errors, values are checked, objects do not change.

    Numbers are finite: JSON has no others, so that a recipe with one could not be read again.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)
