"""Requests and answers as strict pydantic models with examples; the OpenAPI document is made from them."""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from rasp_tuner.answer_models import (
    BudgetAnswer,
    ContextValue,
    ContextValues,
    DamagedStudy,
    GainAnswer,
    LazyModel,
    MarginAnswer,
    Number,
    Serves,
    VersusDefaultAnswer,
    Word,
)
from rasp_tuner.service.http.context_schemas import ContextSpec, ContextWord, StrictModel, dimensions
from rasp_tuner.service.http.http_errors import HttpError
from rasp_tuner.service.http.knob_schemas import KnobSpec, KnobValue
from rasp_tuner.service.limits import Limits
from rasp_tuner.service.service_errors import InvalidRequest
from rasp_tuner.service.study.approvals import REFUSED_S
from rasp_tuner.service.study.definition import NAME_PATTERN

SPACE_EXAMPLE = {
    "pool": {"type": "int", "low": 1, "high": 64, "log": True},
    "timeout_s": {"type": "float", "low": 0.1, "high": 10.0},
    "codec": {"type": "categorical", "choices": ["lz4", "zstd"]},
}
PARAMS_EXAMPLE = {"pool": 8, "timeout_s": 1.0, "codec": "lz4"}
METRICS_EXAMPLE = {"p99_ms": 181.2}
CONTEXT_EXAMPLE = {"qps": 420.0}

Key = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[^\x00]*$")]  # no database takes a NUL
Id = Annotated[str, StringConstraints(min_length=2, max_length=20), Field(examples=["s41"])]
WaitingId = Annotated[str, StringConstraints(min_length=2, max_length=20), Field(examples=["w4"])]
ContextField = Annotated[
    ContextValues,
    Field(
        default=None,
        description="By name, or in order; absent for a study without context. Texts, booleans and null are for kinds"
        " of context that take them.",
        examples=[CONTEXT_EXAMPLE],
    ),
]
MetricsField = Annotated[dict[Word, Number], Field(min_length=1, examples=[METRICS_EXAMPLE])]
ParamsField = Annotated[dict[Word, KnobValue], Field(min_length=1, examples=[PARAMS_EXAMPLE])]
RanField = Annotated[
    dict[Word, KnobValue] | None,
    Field(
        default=None,
        description="What ran, if not what was suggested; knobs left out ran as suggested.",
        examples=[{"pool": 16}],
    ),
]
ControlField = Annotated[
    dict[Word, Number] | None,
    Field(
        default=None,
        description="The same metrics, measured at the same time on like work under the default: noise that both share"
        " cancels.",
        examples=[METRICS_EXAMPLE],
    ),
]
Reason = Annotated[str, StringConstraints(max_length=2_000), Field(examples=["out of memory"])]


M = TypeVar("M", bound=BaseModel)


class MetricSpec(StrictModel):
    direction: Literal["min", "max"] = "min"
    weight: Number | None = Field(default=None, description="Beside other metrics: 1, or 0 of one with a limit.")
    scale: Literal["auto", "linear", "log"] = Field(
        default="auto", description="On a log scale values are compared by factors; auto decides from the data."
    )
    max: Number | None = Field(default=None, description="A limit to keep in nine runs of ten; direction min.")
    min: Number | None = Field(default=None, description="The same; direction max.")
    at_most: Word | None = Field(default=None, description="A limit beside the default.", examples=["1.05 default"])
    at_least: Word | None = Field(default=None, description="The same; direction max.", examples=["0.95 default"])


class NewStudy(StrictModel):
    """A study: the knobs, the metrics, and the context that is known when asking."""

    name: str = Field(pattern=f"^{NAME_PATTERN}$", examples=["checkout"])
    space: dict[Word, KnobSpec] = Field(min_length=1, examples=[SPACE_EXAMPLE])
    metrics: dict[Word, MetricSpec | Literal["min", "max"]] = Field(
        min_length=1, examples=[{"p99_ms": {"direction": "min"}}]
    )
    context: Annotated[list[Word], Field(fail_fast=True)] | dict[Word, ContextSpec | ContextWord] | int | None = Field(
        default=None, examples=[["qps"], {"qps": "number", "region": "category"}]
    )
    default: ParamsField | None = None
    preset: Word = "default"
    seed: int = Field(default=0, ge=0, le=2**64 - 1)
    guard: Number | None = Field(default=None, description="Needs a default.")
    budget: Number | None = Field(
        default=None,
        description="Share of the default's loss by which the sum of losses may exceed it; needs a default, and is 0.02"
        " if there is one and this field is left out; null: no budget.",
    )
    constraints: list[Annotated[str, StringConstraints(max_length=2_000)]] = Field(
        default_factory=list,
        max_length=64,
        description="Rules between knobs that every suggestion keeps; the default must keep them.",
        examples=[["pool * timeout_s <= 100"]],
    )
    holdout: Number | None = Field(
        default=None,
        description="Share of steps, 0.01 to 0.5, that run the default instead of a suggestion, drawn at random, to"
        " measure what was gained; needs a default.",
    )
    max_change: Number | Word | dict[Word, Number | Word] | None = Field(
        default=None,
        description='How far a knob moves at most from one run to the next: 0.1 of its range, "20%" of its value,'
        ' "2 steps"; for all knobs or by name.',
        examples=[0.1, {"pool": "4 steps"}],
    )
    approve_s: Number | None = Field(
        default=None,
        description="Suggestions wait for a person, each so many seconds at most; meanwhile the best of what was"
        " approved runs, or the default. Null: they run at once.",
    )
    switching_cost: Number = 0.0
    lease_s: Number = 3600.0
    max_pending: int = 1000


class Ask(StrictModel):
    context: ContextField


class WhatIfRequest(StrictModel):
    """What would these parameters give here? Nothing changes."""

    context: ContextField
    params: dict[Word, KnobValue] | None = Field(
        default=None,
        description="Knobs left out are as in the default; without any it is about the recommendation.",
        examples=[{"pool": 16}],
    )


class AskBatch(StrictModel):
    contexts: Annotated[list[ContextValues], Field(fail_fast=True)] = Field(min_length=1, examples=[[CONTEXT_EXAMPLE]])


StoppedField = Annotated[
    bool, Field(default=False, description="The run was ended: it would have come to these metrics or worse.")
]


class Tell(StrictModel):
    id: Id
    metrics: MetricsField
    params: RanField
    stopped: StoppedField
    control: ControlField


class Partial(StrictModel):
    id: Id
    metrics: MetricsField


class PartialAnswer(LazyModel):
    stop: bool = Field(description="Whether the run should be ended now; tell it with stopped then.")
    limit: float | None = Field(description="The value of the metric from which on it should be; null: let it run.")


class TellFailed(StrictModel):
    id: Id
    reason: Reason = ""
    params: RanField


class TellItem(StrictModel):
    """Metrics, or the reason for a failure."""

    id: Id
    metrics: dict[Word, Number] | None = Field(default=None, examples=[METRICS_EXAMPLE])
    failed: str | None = Field(default=None, max_length=2_000)
    params: RanField
    stopped: StoppedField
    control: ControlField


class TellBatch(StrictModel):
    tells: Annotated[list[TellItem], Field(fail_fast=True)] = Field(min_length=1)


class Observe(StrictModel):
    context: ContextField
    params: ParamsField
    metrics: MetricsField
    stopped: StoppedField
    key: Key | None = Field(default=None, description="A repeated key changes nothing.", examples=["run-17"])


Limit = Annotated[list[Number | None], Field(min_length=2, max_length=2)]


class Forget(StrictModel):
    """Which records to erase: those that meet all given conditions."""

    after: Number | None = Field(default=None, description="Unix seconds: asked, answered or observed then or later.")
    before: Number | None = Field(default=None, description="Unix seconds: and before then.")
    context: dict[Word, ContextValue | Limit] = Field(
        default_factory=dict,
        description="A value, or [low, high], null for no limit; a context without names by index: 0, 1, ...",
        examples=[{"qps": [400, None]}],
    )
    ids: Annotated[list[Id], Field(fail_fast=True)] = Field(default_factory=list, max_length=10_000)
    keys: Annotated[list[Key], Field(fail_fast=True)] = Field(
        default_factory=list, max_length=10_000, description="Of observations."
    )


class Forgotten(LazyModel):
    erased: int = Field(description="Records.")
    scrubbed: bool = Field(description="Whether the files are clean; if not, they will be shortly.")


class Suggested(LazyModel):
    id: Id
    params: ParamsField
    expires_at: float
    stop: float | None = Field(description="Value of the metric from which on the run should be ended; null: none.")


class SuggestedBatch(LazyModel):
    suggestions: list[Suggested]


class Told(LazyModel):
    id: Id
    status: Literal["learned", "duplicate"]
    late: bool


class TellResult(LazyModel):
    id: str
    status: Literal["learned", "duplicate", "rejected"]
    late: bool | None = None
    error: dict[str, Any] | None = None


class ToldBatch(LazyModel):
    results: list[TellResult]


class Observed(LazyModel):
    status: Literal["learned", "duplicate"]


class Recommended(LazyModel):
    params: ParamsField
    margins: dict[str, MarginAnswer] = Field(description="Of every metric with a limit; empty while nothing is known.")


class Freeze(StrictModel):
    at: Literal["recommendation", "default"] = Field(
        default="recommendation", description="What every ask gets: the best known, or the default."
    )


class Switched(LazyModel):
    """Who froze or unfroze the study, and when."""

    by: str | None = Field(description="Id of a key; local without keys.")
    at: float


class Frozen(LazyModel):
    frozen: bool
    serves: Serves
    switched: Switched | None


class Approve(StrictModel):
    id: WaitingId


class Refuse(StrictModel):
    id: WaitingId
    for_s: Number = Field(
        default=REFUSED_S, gt=0.0, le=1e9, description="How long these settings are not put up again."
    )


class Decided(LazyModel):
    id: WaitingId
    status: Literal["approved", "refused"]
    until: float | None = Field(description="When a refusal ends.")


class WaitingView(LazyModel):
    """A suggestion that waits for a person."""

    id: WaitingId
    asked_at: float
    until: float = Field(description="When it is dropped, if nobody answers.")
    context: Any = None
    params: ParamsField
    runs: ParamsField = Field(description="What runs in this situation until then.")
    changes: dict[str, Any] = Field(description="Of every knob that differs: what runs, and what is suggested.")
    stop: float | None = Field(description="The stake: the cost at which the run should be ended; null: none.")
    level: float | None = Field(description="What the default is expected to come to here.")
    explanation: str


class Waiting(LazyModel):
    waiting: list[WaitingView]


class LooksAnswer(LazyModel):
    """Whether the tuner still tries what is less known."""

    steps: int = Field(description="The latest answered suggestions: up to 50.")
    looks: int = Field(description="Of them, those that tried something less known.")
    refused: int = Field(description="Of them, those at which budget, guard, stops or a missing approval forbade one.")
    quiet: int = Field(description="The latest in a row that were neither.")
    ended: bool = Field(description="No look is worth its price now; it looks again if things drift.")
    words: str


class Coverage(LazyModel):
    forecasts: int
    held: float | None = Field(description="Share of outcomes within the intervals that should hold 0.9 of them.")


class SituationView(LazyModel):
    """One regime: how often it was visited, and whether returns recover sooner than at first (docs/RETURNS.md)."""

    regime: int
    label: str = Field(description="Its contexts in words; empty if none of the latest suggestions was in it.")
    visits: int
    steps: int = Field(description="Of all its visits; steps that somebody asked for.")
    last_step: int
    last_at: float | None
    first_took: int | None = Field(description="Steps until it had settled at first; null if not measured.")
    returns_measured: int = Field(description="Returns that became as good as that.")
    took_on_return: float | None = Field(description="Their median of steps until then.")
    returns_missed: int = Field(description="Returns that ended before, or did not within 256 steps.")
    saved: float | None = Field(description="The difference; null if not measured, or too little to tell.")
    current: bool
    words: str = Field(description="Of the return that is going on, if one is.")


class Times(LazyModel):
    """When the steps of each piece were told, in unix seconds."""

    step: list[int]
    first: list[float]
    last: list[float]


class StudyUser(LazyModel):
    name: str = Field(description="Label or id of a key; local without keys.")
    at: float = Field(description="When it last asked or told.")


class StudyUsers(LazyModel):
    users: list[StudyUser] = Field(description="Who wrote to it in the last hour, since this server has it.")


class StudyView(NewStudy):
    model_config = ConfigDict(extra="forbid", strict=False, frozen=True)

    created: float
    frozen: bool
    serves: Serves = Field(description="What an ask gets: suggestions, or, frozen, the recommendation or the default.")
    switched: Switched | None = Field(description="Null if it was never frozen.")
    asks: int
    tells: int
    failures: int
    observations: int
    late: int
    expired: int
    pending: int
    waiting: int = Field(default=0, description="Suggestions that wait for a person.")
    erased: int
    learned: int
    last_event_at: float | None
    scales: dict[str, Literal["linear", "log"]] = Field(description="On which each metric is compared now.")
    budget_report: BudgetAnswer | None = Field(description="Null without a budget.")
    looks: LooksAnswer | None = Field(default=None, description="Null before the first answer.")
    versus_default: VersusDefaultAnswer | None = Field(description="Null while too little is known.")
    failure_share: float = Field(description="Of the latest 200 steps or so.")
    coverage: Coverage
    alerts: list[str] = Field(description="What is wrong, in words; empty where all is well.")
    health: str = Field(description='"good", or all that is wrong with it, in words.')
    server: str | None = Field(default=None, description="Which of several servers has it; null with one server.")


class StudyList(LazyModel):
    studies: list[StudyView]
    damaged: list[DamagedStudy] = Field(default_factory=list, description="Those that cannot be loaded.")
    total: int = Field(description="Studies found, on this page or not.")
    loading: int = Field(description="Of this page, studies that are still read from disk: ask again.")
    missing: list[str] = Field(default_factory=list, description="Of servers that do not answer. Absent if none.")


class SuggestionView(LazyModel):
    id: Id
    asked_at: float
    context: Any = None
    params: ParamsField
    status: Literal["pending", "expired", "told", "failed"]
    late: bool
    ran: dict[str, KnobValue] | None = Field(default=None, description="All parameters, if others ran than suggested.")
    metrics: dict[str, float] | None = None
    stopped: bool | None = Field(default=None, description="True: the run was ended; the metrics are at least so bad.")
    reason: str | None = None
    explanation: str = Field(description="What runs, why, and how sure that is; empty once the reasons are gone.")
    details: list[str] = Field(description="What else is known of it, a sentence each.")


class Suggestions(LazyModel):
    suggestions: list[SuggestionView]


class ExplainedSuggestion(SuggestionView):
    why: dict[str, Any] | None = Field(description="Fields of the explanation; null once the tuner has dropped it.")


class Series(LazyModel):
    step: list[int]
    mean: list[float]
    min: list[float]
    max: list[float]


class HistoryView(LazyModel):
    steps: int
    first: int = Field(description="The first step shown.")
    bucket: int
    times: Times
    gain_total: float = Field(description="Of one metric in its unit; of several the sum of their mean shares.")
    series: dict[str, Series]
    regimes: list[dict[str, int]]
    situations: list[SituationView]
    events: list[dict[str, Any]] = Field(
        description="Steps with a kind: failed, late, novel, slow, restated (a metric changed its unit; words say how),"
        " freeze, default, unfreeze, approved, refused, returned. The latter has"
        " regime, visits before, last_step and last_at, first_took, took and saved (steps, null if not measured),"
        " started_from and words."
    )
    calibration: dict[str, Any]


class KnobSharesAnswer(LazyModel):
    """Which of the changes a gain comes from."""

    shares: dict[str, float] = Field(description="Of each knob in the gain, where its effect is shown; they sum to 1.")
    not_shown: list[str] = Field(description="Knobs that may do nothing, or less than noise lets one see.")
    words: str


class SituationGainAnswer(LazyModel):
    """A situation by its context values: what is recommended there, and what that is expected to gain."""

    label: str = Field(description="Its contexts in words.", examples=["qps about 900, codec zstd"])
    contexts: int = Field(description="Different ones, of 60 in the last 1,000 steps.")
    context: dict[str, Any] = Field(description="One that stands for it.")
    params: dict[str, KnobValue]
    changed: dict[str, KnobValue] = Field(description="Those that are not as in the default.")
    gains: dict[str, GainAnswer] = Field(description="By forecast, of each metric that is to be improved.")
    knobs: KnobSharesAnswer
    margins: dict[str, dict[str, float]]
    proven: dict[str, KnobValue] = Field(description="Of `changed`, the knobs shown to matter: what is recommended.")
    unproven: dict[str, KnobValue] = Field(description="Of `changed`, those without a shown effect: left to chance.")
    source: str = Field(description="Which of `proven` the gain comes from, in words.", examples=["from cache 100%"])
    words: str


class SituationGains(LazyModel):
    situations: list[SituationGainAnswer]


class ErrorBody(LazyModel):
    code: str = Field(examples=["invalid_value"])
    message: str
    field: str | None = None


class Error(LazyModel):
    error: ErrorBody


def parse(model: type[M], value: Any, _limits: Limits | None = None) -> M:
    """The value as a model; an InvalidRequest names the wrong field."""
    try:
        return model.model_validate(value)
    except ValidationError as reason:
        first = reason.errors(include_url=False, include_context=False, include_input=False)[0]
        field = ".".join(str(part)[:80] for part in first["loc"])
        raise InvalidRequest(f"{field or 'the body'}: {first['msg']}", field or None) from None


def parse_batch(model: type[M], field: str, value: Any, limits: Limits) -> M:
    """A batch; a 413 if `field` has more entries than this server allows."""
    if (count := _entries(value, field)) > limits.batch:
        raise HttpError(413, "too_large", f"{field} may hold at most {limits.batch}, got {count}", field)
    return parse(model, value)


def parse_study(value: Any, limits: Limits) -> NewStudy:
    """The definition of a new study; a 422 if it is wrong, or larger than this server allows."""
    for field, most in (("space", limits.knobs), ("metrics", limits.metrics)):
        if (count := _entries(value, field)) > most:
            raise InvalidRequest(f"{field} may have at most {most} entries, got {count}", field)
    wanted = parse(NewStudy, value)
    context = wanted.context if isinstance(wanted.context, int) else dimensions(wanted.context or ())
    if context > limits.context:
        raise InvalidRequest(f"context may have at most {limits.context} entries, got {context}", "context")
    for name, knob in wanted.space.items():
        if len(knob.choices or ()) > limits.choices:
            raise InvalidRequest(f"space.{name}.choices may have at most {limits.choices}", f"space.{name}.choices")
    return wanted


def _entries(value: Any, field: str) -> int:
    """How many a field has. Counted before they are checked: to collect the errors of many takes seconds."""
    given = value.get(field) if isinstance(value, dict) else None
    return len(given) if isinstance(given, list | dict) else 0
