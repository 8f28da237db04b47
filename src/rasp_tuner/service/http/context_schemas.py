"""Contexts in requests: their kinds and their values; and what all models of requests have in common."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from rasp_tuner.answer_models import LazyModel, Number, Word
from rasp_tuner.contexts import HASHED_WIDTH, kind_of


class StrictModel(LazyModel):
    """A request: no unknown names, no conversions."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class NumberContext(StrictModel):
    kind: Literal["number"]
    log: bool = False
    missing: Number | None = Field(default=None, description="A usual value, which stands for a missing one.")


class PlainContext(StrictModel):
    kind: Literal["flag", "time of day", "weekday"]


class CategoryContext(StrictModel):
    kind: Literal["category"]
    values: Annotated[list[Word], Field(fail_fast=True)] | None = Field(
        default=None, description="The usual ones, if known; any other is one more."
    )


class NameContext(StrictModel):
    kind: Literal["name"]
    width: int = Field(default=HASHED_WIDTH, description="Numbers that stand for a text.")


ContextSpec = Annotated[NumberContext | PlainContext | CategoryContext | NameContext, Field(discriminator="kind")]
ContextWord = Literal["number", "flag", "category", "name", "time of day", "weekday"]


def dimensions(context: Mapping[str, Any] | Sequence[str]) -> int:
    """How many a context of these names, or names with kinds, has."""
    if not isinstance(context, Mapping):
        return len(context)
    plain = {name: one if isinstance(one, str) else one.model_dump() for name, one in context.items()}
    return sum(kind_of(f"context[{name!r}]", one).dim for name, one in plain.items())
