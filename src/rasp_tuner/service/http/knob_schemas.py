"""Knobs as strict pydantic models, one for each kind."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, FiniteFloat, StringConstraints

from rasp_tuner.answer_models import Number, Word
from rasp_tuner.service.http.context_schemas import StrictModel

KnobValue = Annotated[str, StringConstraints(max_length=4_096)] | bool | int | FiniteFloat | None
KnobValues = Annotated[list[KnobValue], Field(fail_fast=True)]
MAX_CONDITIONS = 64  # as many as a study may have knobs


def _few(value: Any) -> Any:
    """The value, refused before its entries are looked at if there are too many: pydantic would collect all errors."""
    if isinstance(value, dict) and len(value) > MAX_CONDITIONS:
        raise ValueError(f"at most {MAX_CONDITIONS} conditions, got {len(value)}")
    return value


class KnobModel(StrictModel):
    when: Annotated[dict[Word, KnobValue | KnobValues] | None, BeforeValidator(_few)] = Field(
        default=None,
        description="The knob exists only while others have such values.",
        examples=[{"codec": ["zstd"]}],
    )


class FloatKnob(KnobModel):
    type: Literal["float"]
    low: Number
    high: Number
    log: bool = False
    step: Number | None = None
    digits: int | None = Field(default=None, description="Of the range, or of the value on a log scale; usually 3.")


class IntKnob(KnobModel):
    type: Literal["int"]
    low: int
    high: int
    log: bool = False
    step: int = 1


class PowerOfTwoKnob(KnobModel):
    type: Literal["power_of_two"]
    low: int
    high: int


class CategoricalKnob(KnobModel):
    type: Literal["categorical"]
    choices: KnobValues = Field(min_length=2)
    ordered: bool = Field(default=False, description="Whether neighbours in the list are expected to act alike.")


class BoolKnob(KnobModel):
    type: Literal["bool"]


NumberKnob = Annotated[FloatKnob | IntKnob | PowerOfTwoKnob, Field(discriminator="type")]


class AutoKnob(KnobModel):
    """A number, or a word with which the system chooses for itself."""

    type: Literal["auto"]
    knob: NumberKnob
    word: KnobValue = "auto"


class OptionalKnob(KnobModel):
    """A number or null."""

    type: Literal["optional"]
    knob: NumberKnob


KnobSpec = Annotated[
    FloatKnob | IntKnob | PowerOfTwoKnob | CategoricalKnob | BoolKnob | AutoKnob | OptionalKnob,
    Field(discriminator="type"),
]
