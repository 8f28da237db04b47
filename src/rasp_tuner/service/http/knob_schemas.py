"""Knobs as strict pydantic models, one for each kind."""

from typing import Annotated, Literal

from pydantic import Field, FiniteFloat

from rasp_tuner.service.http.context_schemas import Number, StrictModel, Word

KnobValue = str | bool | int | FiniteFloat | None


class KnobModel(StrictModel):
    when: dict[Word, KnobValue | list[KnobValue]] | None = Field(
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
    choices: list[KnobValue] = Field(min_length=2)
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
