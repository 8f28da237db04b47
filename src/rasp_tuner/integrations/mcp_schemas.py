"""Arguments and answers of the MCP tools: pydantic models, from which the tools' JSON schemas are made."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints

from rasp_tuner.answer_models import (
    Budget,
    ContextValue,
    ContextValues,
    DamagedStudy,
    Estimate,
    LazyModel,
    Margin,
    Number,
    Params,
    Serves,
    VersusDefault,
    WhatIf,
    Word,
)

MOST_STUDIES, MOST_SUGGESTIONS = 100, 50  # in one answer
MOST_EVENTS = 20
MOST_CHOICES, MOST_CHOICES_IN_ALL = 50, 400  # of one knob, and of all, that are shown

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


Range = Annotated[list[Number | None], Field(min_length=2, max_length=2)]


class ForgetArguments(StudyArguments):
    confirm: str = Field(max_length=64, description="The name of the study once more. Erasing cannot be undone.")
    suggestions: list[SuggestionId] = Field(default_factory=list, max_length=1_000, description="Ids of suggestions.")
    observations: list[Word] = Field(default_factory=list, max_length=1_000, description="Keys of observations.")
    context: dict[Word, ContextValue | Range] = Field(
        default_factory=dict,
        description="By name a value, or [low, high] with null for no limit.",
        examples=[{"qps": [400, None]}],
    )
    after: AwareDatetime | None = Field(default=None, description="Asked, answered or observed then or later.")
    before: AwareDatetime | None = Field(default=None, description="And before then.")


class ToolAnswer(LazyModel):
    """What a tool gives as structured content."""


class StudyRowAnswer(ToolAnswer):
    name: str
    serves: Serves = Field(description="What an ask gets; suggestions explore, the other two are frozen.")
    learned: int = Field(description="Runs learned.")
    pending: int = Field(description="Suggestions that wait for their metrics.")
    waiting: int = Field(description="Suggestions that wait for a person; list_waiting has them.")
    versus_default: VersusDefault | None = Field(default=None, description="Null while too little is known.")
    alerts: list[str] = Field(description="What is wrong, in words.")
    last_event_at: datetime | None


class StudyPage(ToolAnswer):
    studies: list[StudyRowAnswer]
    total: int = Field(description="Studies found, on this page or not.")
    next_offset: int | None = Field(description="Where the next page begins; null if this is the last.")
    loading: int = Field(description="Studies of this page that the server is still reading: ask again.")
    damaged: list[DamagedStudy]


class SwitchedAnswer(ToolAnswer):
    by: str | None = Field(description="Id of the key that did it; local without keys.")
    at: datetime


class StudyEvent(ToolAnswer):
    """On the timeline: novel (a new situation), freeze, unfreeze, default and others."""

    model_config = ConfigDict(extra="allow")

    at: datetime
    step: int
    kind: str
    by: str | None = None


class StudyDetails(StudyRowAnswer):
    space: dict[str, dict[str, Any]] = Field(description=f"Knobs; of many choices the first {MOST_CHOICES} or fewer.")
    constraints: list[str]
    default: Params = Field(description="What ran before tuning.")
    metrics: dict[str, dict[str, Any]]
    context: dict[str, Any] | list[str] | int | None = Field(description="Names, with kinds; or how many numbers.")
    preset: str
    switched: SwitchedAnswer | None = Field(description="Who froze or unfroze it last.")
    asks: int
    tells: int
    failures: int
    observations: int
    expired: int
    failure_share: float = Field(description="Of the latest 200 steps or so.")
    budget: Budget | None
    budget_words: str
    savings_words: str = Field(description="What was saved against the default, as measured.")
    exploring: str = Field(description="Whether it still tries what is less known.")
    health: str
    events: list[StudyEvent] = Field(description=f"The latest {MOST_EVENTS}, oldest first.")


class SuggestionAnswer(ToolAnswer):
    id: str
    asked_at: datetime
    status: Literal["pending", "expired", "told", "failed"]
    context: Any
    params: Params
    ran: Params | None = Field(description="If something else ran than was suggested.")
    metrics: dict[str, float] | None = Field(description="What came back.")
    failure: str | None = Field(description="Why it failed, as the program said.")


class SuggestionList(ToolAnswer):
    study: str
    suggestions: list[SuggestionAnswer] = Field(description="Newest first.")


class ExplanationAnswer(SuggestionAnswer):
    words: str = Field(description="Why it was suggested and what came of it.")
    metric: str | None = Field(description="In whose units the numbers below are; null: a sum of several metrics.")
    expected: Estimate | None = Field(description="What was expected of it; null while too little was known.")
    deviation: Estimate | None
    expected_of_default: Estimate | None
    better: Estimate | None = Field(description="Probability that it beats the default, as known when it was made.")
    novelty: Estimate | None = Field(description="0: the situation was well known, 1: new.")


class Recommendation(ToolAnswer):
    study: str
    params: Params
    default: Params
    is_default: bool = Field(description="Nothing was shown to be better than the default here (80%).")
    margins: dict[str, Margin] = Field(description="Of every metric with a limit.")


class WhatIfToolAnswer(ToolAnswer, WhatIf):
    study: str


class ServingAnswer(ToolAnswer):
    study: str
    serves: Serves
    frozen: bool
    switched: SwitchedAnswer | None


class WaitingSuggestionAnswer(ToolAnswer):
    id: str
    asked_at: datetime
    until: datetime = Field(description="When it is dropped, if nobody answers.")
    context: Any
    params: Params
    runs: Params = Field(description="What runs in this situation until then.")
    changes: dict[str, Any] = Field(description="Of every knob that differs: what runs, and what is suggested.")
    stop: Estimate | None = Field(description="The cost at which its run should be ended; null: it runs to its end.")
    level: Estimate | None = Field(description="What the default is expected to come to there.")
    words: str = Field(description="Why it is suggested.")


class WaitingList(ToolAnswer):
    study: str
    waiting: list[WaitingSuggestionAnswer]


class Decision(ToolAnswer):
    study: str
    waiting: str
    status: Literal["approved", "refused"]


class ForgottenAnswer(ToolAnswer):
    study: str
    erased: int = Field(description="Records that were erased.")
    files_clean: bool = Field(description="Whether the bytes are gone from the files; if not, they will be shortly.")
