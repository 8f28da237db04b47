"""Requests and answers of OFREP, and of its tracking as it is discussed.

Requests may have names that we do not know, since the protocol grows.
"""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from rasp_tuner.answer_models import LazyModel

TARGETING = {"targetingKey": "host-7", "qps": 420.0}
FLAG: dict[str, Any] = {
    "key": "checkout",
    "value": {"pool": 8},
    "reason": "SPLIT",
    "variant": "s41",
    "metadata": {"study": "checkout", "expiresAt": 1760003600.0, "leaseUntil": 1760000300.0},
}

Attributes = Annotated[
    dict[str, Any] | None,
    Field(
        default=None,
        description="`targetingKey`, a text, and attributes; those that the study has in its context are used.",
        examples=[TARGETING],
    ),
]


class OfrepRequest(LazyModel):
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


class EvaluateFlag(OfrepRequest):
    context: Attributes


class TrackedEvent(OfrepRequest):
    """What came of a suggestion."""

    trackingEventName: Annotated[str, Field(min_length=1, max_length=256)] = Field(
        description="A study, or study.metric.", examples=["checkout"]
    )
    context: Attributes
    trackingEventDetails: dict[str, Any] = Field(
        default_factory=dict,
        description="`value` of the only metric, or metrics by name; or `failed` with a reason. `stopped`: the run was"
        " ended there. `variant` names the suggestion; without it, it is that of the targeting key. `eventId`: sent"
        " twice, the outcome of a policy's pick counts once.",
        examples=[{"value": 181.2, "variant": "s41"}],
    )


class TrackedEvents(OfrepRequest):
    events: Annotated[list[Any], Field(min_length=1, description="Of TrackedEvent; each is taken on its own.")]


class EvaluatedFlag(LazyModel):
    model_config = ConfigDict(json_schema_extra={"examples": [FLAG]})

    key: str
    value: Any = Field(
        default=None, description="All knobs, or one. Absent of a knob that is null or does not exist now."
    )
    reason: Literal["SPLIT", "TARGETING_MATCH", "DEFAULT", "STALE"]
    variant: str = Field(description="The id of the suggestion, or of a policy's pick.")
    metadata: dict[str, bool | str | float]


class OfrepError(LazyModel):
    key: str | None = Field(default=None, description="The flag; absent where the request is about none.")
    errorCode: str = Field(examples=["INVALID_CONTEXT"])
    errorDetails: str
    code: str = Field(description="The code that other routes would give.", examples=["invalid_value"])


class EvaluatedFlags(LazyModel):
    flags: list[EvaluatedFlag | OfrepError]


class TrackedResult(LazyModel):
    key: str = Field(description="The event's name.")
    variant: str
    status: Literal["learned", "duplicate"]
    late: bool
