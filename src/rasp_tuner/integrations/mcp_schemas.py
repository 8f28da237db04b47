"""Arguments of the MCP tools: pydantic models, from which the tools' JSON schemas are made."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from rasp_tuner.answer_models import ContextValues, Number, Word

MOST_STUDIES, MOST_SUGGESTIONS = 100, 50  # in one answer

StudyName = Annotated[
    str, StringConstraints(min_length=1, max_length=64), Field(description="Name of the study, as list_studies has it.")
]
SuggestionId = Annotated[str, StringConstraints(min_length=1, max_length=40), Field(examples=["s41"])]
ContextField = Annotated[
    ContextValues,
    Field(
        description="The situation: values by name, as show_study lists them under context; or in order. None for a"
        " study without context.",
        examples=[{"qps": 420.0}],
    ),
]


class Arguments(BaseModel):
    """No unknown names, no conversions."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ListArguments(Arguments):
    find: str = Field(default="", max_length=64, description="Only studies with this in their name.")
    sort: Literal["name", "recent", "alerts", "gain", "learned"] = Field(
        default="name", description="alerts: those with something wrong first; recent: the latest event first."
    )
    limit: int = Field(default=20, ge=1, le=MOST_STUDIES)
    offset: int = Field(default=0, ge=0, le=10**9, description="The next_offset of the page before.")


class StudyArguments(Arguments):
    study: StudyName


class SuggestionsArguments(StudyArguments):
    limit: int = Field(default=10, ge=1, le=MOST_SUGGESTIONS)


class ApproveArguments(StudyArguments):
    waiting: SuggestionId = Field(description="Id of a suggestion that waits, as list_waiting has it.", examples=["w4"])


class RefuseArguments(ApproveArguments):
    hours: float = Field(default=24.0, gt=0.0, le=10_000.0, description="For how long it is not put up again.")


class ContextArguments(StudyArguments):
    context: ContextField = None


class ExplainArguments(StudyArguments):
    suggestion: SuggestionId = Field(description="Id of a suggestion, as list_suggestions has it.")


class WhatIfArguments(ContextArguments):
    params: dict[Word, Number | bool | str | None] | None = Field(
        default=None,
        max_length=64,
        description="Settings to judge. Knobs left out are as in the default; without any, the recommendation is"
        " judged.",
        examples=[{"pool": 16}],
    )
