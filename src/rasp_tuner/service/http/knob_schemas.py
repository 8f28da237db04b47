"""A knob in a request. Which fields go with which type is checked where the space is built, and nowhere else."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, FiniteFloat, StringConstraints

from rasp_tuner.answer_models import Word
from rasp_tuner.service.http.context_schemas import StrictModel

KnobValue = Annotated[str, StringConstraints(max_length=4_096)] | bool | int | FiniteFloat | None
KnobValues = Annotated[list[KnobValue], Field(fail_fast=True)]
Bound = int | FiniteFloat
MAX_CONDITIONS = 64  # as many as a study may have knobs


def _few(value: Any) -> Any:
    """The value, refused before its entries are looked at if there are too many: pydantic would collect all errors."""
    if isinstance(value, dict) and len(value) > MAX_CONDITIONS:
        raise ValueError(f"at most {MAX_CONDITIONS} conditions, got {len(value)}")
    return value


class KnobSpec(StrictModel):
    type: Literal["float", "int", "power_of_two", "categorical", "bool", "auto", "optional"]
    low: Bound | None = Field(default=None, description="Of a float, an int or a power of two; so is high.")
    high: Bound | None = None
    log: bool | None = Field(default=None, description="Of a float or an int; usually false.")
    step: Bound | None = Field(default=None, description="Of a float or an int.")
    digits: int | None = Field(default=None, description="Of a float: of its range, or, log, of its value; usually 3.")
    choices: KnobValues | None = Field(default=None, description="Of a categorical, two or more.")
    ordered: bool | None = Field(default=None, description="Whether neighbouring choices are expected to act alike.")
    knob: "KnobSpec | None" = Field(default=None, description="The number of an auto or an optional.")
    word: KnobValue = Field(default=None, description="Of an auto: with which the system chooses for itself.")
    when: Annotated[dict[Word, KnobValue | KnobValues] | None, BeforeValidator(_few)] = Field(
        default=None,
        description="The knob exists only while others have such values.",
        examples=[{"codec": ["zstd"]}],
    )
