"""Events in an import, checked as the requests that made them would be."""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from rasp_tuner.answer_models import Word
from rasp_tuner.service.http.context_schemas import StrictModel
from rasp_tuner.service.http.edge_schemas import SumsField
from rasp_tuner.service.http.schemas import (
    ContextField,
    ControlField,
    MetricsField,
    ParamsField,
    RanField,
    Reason,
    StoppedField,
    WaitingId,
    parse,
)
from rasp_tuner.service.study.events import Kind

MAX_ASKS = 10**15  # numbered in one study: an id has few enough digits to be told

Count = Annotated[int, Field(ge=0, le=MAX_ASKS)]
Time = Annotated[float, Field(ge=0.0, le=1e11, allow_inf_nan=False)]  # unix seconds, of three thousand years


class FlagBody(StrictModel):
    reason: Annotated[str, StringConstraints(max_length=32)]
    target: Annotated[str, StringConstraints(max_length=64)] | None = None


class AskBody(StrictModel):
    context: ContextField
    params: ParamsField
    flag: FlagBody | None = None


class ObserveBody(StrictModel):
    context: ContextField
    params: ParamsField
    metrics: MetricsField
    stopped: StoppedField


class SumsBody(StrictModel):
    sums: SumsField


class AnswerBody(StrictModel):
    """`context` and `params` are there if the ask had been dropped."""

    ran: RanField
    asked_at: Time | None = None
    context: ContextField
    params: ParamsField | None = None


class TellBody(AnswerBody):
    metrics: MetricsField
    control: ControlField
    stopped: StoppedField


class FailedBody(AnswerBody):
    reason: Reason


class SwitchBody(StrictModel):
    by: Word | None = None
    at: Literal["default"] | None = None


class ApproveBody(StrictModel):
    id: WaitingId
    params: ParamsField
    by: Word | None = None


class RefuseBody(ApproveBody):
    until: Time


class ForgotBody(StrictModel):
    handed: Count
    records: Count


BODIES: dict[Kind, type[StrictModel]] = {
    "ask": AskBody,
    "tell": TellBody,
    "failed": FailedBody,
    "observe": ObserveBody,
    "sums": SumsBody,
    "freeze": SwitchBody,
    "unfreeze": SwitchBody,
    "approve": ApproveBody,
    "refuse": RefuseBody,
    "forgot": ForgotBody,
}


class EventRow(StrictModel):
    """One line of an export."""

    seq: int
    kind: Kind
    at: Time
    body: dict[str, Any]
    ask: Count | None = None
    key: Word | None = None


def checked_event(row: Any) -> EventRow:
    """The line as an EventRow with a sound body; a 422 names the field."""
    event = parse(EventRow, row)
    parse(BODIES[event.kind], event.body)
    return event
