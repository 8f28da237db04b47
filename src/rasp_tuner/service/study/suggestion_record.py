"""SuggestionRecord: a suggestion and its answer, as the service keeps them."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from rasp_tuner.errors import UnknownSuggestion
from rasp_tuner.service.service_errors import Conflict
from rasp_tuner.service.study.events import Event, ask_id
from rasp_tuner.space import Space

Status = Literal["pending", "told", "failed"]


class SuggestionRecord(NamedTuple):
    """A suggestion and its answer. Snapshots store the fields by name: do not rename them."""

    number: int
    asked_at: float
    context: Any
    params: dict[str, Any]
    status: Status = "pending"
    metrics: dict[str, float] | None = None
    reason: str | None = None
    late: bool = False
    foreign: bool = False  # a replayed tuner suggested other parameters; the logged ones count
    inner: int | None = None  # the tuner's own number of it; differs from `number` after an erasure
    ran: dict[str, Any] | None = None  # all parameters that ran, if they are not the suggested ones
    control: dict[str, float] | None = None  # metrics of the default, measured beside it
    flag: dict[str, str] | None = None  # of one that answers the evaluation of a flag: see flag_leases.py
    stopped: bool = False  # the run was ended: the metrics are at least so bad

    @property
    def learned_params(self) -> dict[str, Any]:
        """What the answer is about."""
        return self.params if self.ran is None else self.ran

    def answered(self, event: Event) -> "SuggestionRecord":
        """The same with its answer, a tell or a failure."""
        body = event.body
        if event.kind == "failed":
            return self._replace(status="failed", reason=body["reason"])
        stopped, control = body.get("stopped") is True, body.get("control")
        return self._replace(status="told", metrics=body["metrics"], stopped=stopped, control=control)

    def to_json(self, expired: bool, explanation: str, details: Sequence[str] = ()) -> dict[str, Any]:
        """What the views show of it."""
        shown: dict[str, Any] = {
            "id": ask_id(self.number),
            "asked_at": self.asked_at,
            "context": self.context,
            "params": self.params,
            "status": "expired" if expired else self.status,
            "late": self.late and self.status != "pending",
            "explanation": explanation,
            "details": list(details),
        }
        told = {
            "ran": self.ran,
            "metrics": self.metrics,
            "control": self.control,
            "reason": self.reason,
            "stopped": self.stopped or None,
        }
        return shown | {name: value for name, value in told.items() if value is not None}

    def what_ran(self, params: Mapping[str, Any] | None, space: Space) -> dict[str, Any] | None:
        """All parameters that ran, if `params`, which may leave knobs out, are not what was suggested."""
        ran = self.params if params is None else space.completed(self.params, params)
        return None if ran == self.params else ran

    def check_same_answer(
        self,
        metrics: Mapping[str, float] | None,
        reason: str,
        params: Mapping[str, Any] | None,
        space: Space,
        stopped: bool = False,
        control: Mapping[str, float] | None = None,
    ) -> "SuggestionRecord":
        """This record if it is the same answer as before, else a Conflict."""
        same = self.reason == reason if metrics is None else (self.metrics, self.control) == (metrics, control)
        if not same or self.stopped != stopped or self.ran != self.what_ran(params, space):
            raise Conflict(f"suggestion {ask_id(self.number)!r} was answered before with other values", "id")
        return self


def unknown_suggestion(id: str, erased: bool = False) -> UnknownSuggestion:
    said = "was handed out in this study" + (", or it was erased" if erased else "")
    return UnknownSuggestion(f"no suggestion {id[:80]!r} {said}")


def put_bounded(records: dict[Any, Any], key: Any, value: Any, size: int) -> bool:
    """Add an entry to a bounded dict; True if the oldest one was removed."""
    records[key] = value
    if len(records) <= size:
        return False
    del records[next(iter(records))]
    return True
