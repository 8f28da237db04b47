"""Events: what happened to a study, in order. Everything else is computed from the log of events."""

from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

Kind = Literal[
    "ask", "tell", "failed", "observe", "sums", "freeze", "unfreeze", "approve", "refuse", "forgot"
]  # fmt: skip
LONGEST_ACTOR = 64  # characters
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of a study's log.

    kind      body
    ask       context, params (as answered); flag, if it answers the evaluation of one (flag_leases.py)
    tell      metrics; stopped, if the run was ended; control, those of the default beside it, if measured; ran,
              all knobs, if other parameters ran than suggested; asked_at, context and params (as suggested) if the
              tuner's ledger had dropped the ask
    failed    reason; the same as for tell, without stopped and control
    observe   context, params, metrics; stopped
    sums      sums: runs that were added up before they were told (records/outcome_sum.py)
    freeze    at: "default" if asks get the default and not the recommendation; by: who did it
    unfreeze  by
    approve   id: of a suggestion that waited; params: its settings, which may run now; by
    refuse    id, params: the settings that must not run; until: and not before this time; by
    forgot    first event of a log from which records were erased; `handed`: ask numbers below it may be missing and
              are not reused; `records`: how many were erased so far
    """

    seq: int  # 1, 2, ... within the study
    kind: Kind
    at: float  # unix seconds
    body: dict[str, Any]
    ask: int | None = None  # number of the suggestion: 7 for "s7"
    key: str | None = None  # of an observation, or of sums, that must be learned only once


class EventLog(Protocol):
    """The logs of studies on disk, for records that are no longer in memory."""

    def events_of_ask(self, study: int, number: int) -> list[Event]:
        """The ask and, if there is one, its answer."""

    def observation_by_key(self, study: int, key: str) -> Event | None:
        """The observation with this key."""


def actor(event: Event) -> str | None:
    """Who did it, where the event says so; a ValueError if that is no name of a key."""
    by = event.body.get("by")
    if not (by is None or (isinstance(by, str) and len(by) <= LONGEST_ACTOR)):
        raise ValueError(f"event {event.seq}: `by` must be a text of at most {LONGEST_ACTOR} characters")
    return by


def ask_id(number: int) -> str:
    return f"s{number}"


def ask_number(id: str) -> int | None:
    """7 for "s7"; None for a text that is no id of a suggestion."""
    digits = id[1:]
    if not id.startswith("s") or not (digits.isascii() and digits.isdigit()) or len(digits) > 18:
        return None
    return int(digits) if digits == "0" or digits[0] != "0" else None
