"""Flags of the provider: a tuner in this process, or a study of a server, each with the leases of its targeting keys.

Evaluations with one targeting key get one suggestion until its lease is over or it was told, as from the service
(service/flags.py). Only hashes of targeting keys are kept.
"""

import hashlib
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rasp_tuner.client import Study, is_fallback
from rasp_tuner.errors import AlreadyAnswered, ExpiredSuggestion, InvalidValue
from rasp_tuner.feature_flags import (
    AS_DEFAULT,
    EXPLORING,
    MOST_LEASES,
    NOT_ASKED,
    TrackedOutcome,
    known_context,
    reason_for,
)
from rasp_tuner.tuner import Tuner
from rasp_tuner.types import Suggestion

ASKS_AT_ONCE = 64  # of one flag, for targeting keys: two that share a place wait for each other


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A suggestion, and for how long its targeting key keeps it."""

    suggestion: Suggestion
    reason: str
    until: float  # unix seconds
    mode: object  # what the tuner served then


class TunerFlag:
    """A tuner in this process; thread-safe."""

    def __init__(self, tuner: Tuner) -> None:
        self._tuner, self._lock = tuner, threading.Lock()

    @property
    def mode(self) -> object:
        """Changes when the tuner is frozen or unfrozen: leases end then."""
        return self._tuner.frozen, self._tuner.frozen_at_default

    def ask(self, attributes: Mapping[str, Any]) -> tuple[Suggestion, str]:
        """A suggestion, and the reason of OpenFeature for it."""
        with self._lock:
            context = known_context(attributes, self._tuner.context_schema)
            made = self._tuner.ask(context)
            return made, reason_for(made.params, self._tuner.default, self._tuner.recommend(context))

    def tell(self, id: str, told: TrackedOutcome) -> None:
        with self._lock:
            if told.metrics is None:
                self._tuner.tell_failed(id, told.failure)
            else:
                self._tuner.tell(id, told.metrics)

    def metrics(self) -> list[str]:
        return list(self._tuner.scales)

    def has_knob(self, knob: str) -> bool:
        return knob in self._tuner.knobs

    def lacks_knob(self, knob: str) -> bool:
        return knob not in self._tuner.knobs

    def read_again(self) -> None:
        """A tuner stays what it is."""

    def flush(self, timeout: float) -> None:
        """Nothing waits."""


class StudyFlag:
    """A study of a server. Its definition is read when it is needed, so that all starts without the server."""

    mode: object = None  # what a server serves is seen when a lease is over

    def __init__(self, study: Study, view: Mapping[str, Any] | None = None) -> None:
        self._study, self._view = study, dict(view or {})

    def ask(self, attributes: Mapping[str, Any]) -> tuple[Suggestion, str]:
        """A suggestion, made by the client from the latest good ones if the server is away; and the reason."""
        if self._view:
            made = self._study.ask(known_context(attributes, self._view["context"]))
        else:
            try:
                made = self._study.ask(attributes or None)
            except InvalidValue:  # the server is there, and knows less than the application says
                made = self._study.ask(known_context(attributes, self._definition()["context"]))
        if is_fallback(made.id):
            return made, NOT_ASKED
        return made, AS_DEFAULT if made.params == self._view.get("default") else EXPLORING

    def tell(self, id: str, told: TrackedOutcome) -> None:
        """In the background: whoever tracks may not wait."""
        if told.metrics is None:
            self._study.tell_failed_later(id, told.failure)
        else:
            self._study.tell_later(id, told.metrics)

    def metrics(self) -> list[str]:
        return list(self._definition()["metrics"])

    def has_knob(self, knob: str) -> bool:
        return knob in self._definition()["space"]

    def lacks_knob(self, knob: str) -> bool:
        """Whether it is known, without a request, that there is no such knob."""
        return bool(self._view) and knob not in self._view["space"]

    def flush(self, timeout: float) -> None:
        self._study.flush(timeout)

    def read_again(self) -> None:
        """Something was refused: the study may have been made anew, and differ."""
        self._view = {}

    def _definition(self) -> dict[str, Any]:
        if not self._view:
            self._view = self._study.view()
        return self._view


class LeasedFlag:
    """A tuner or a study under the name of a flag, with its leases; thread-safe, bounded."""

    def __init__(self, name: str, source: TunerFlag | StudyFlag, lease_s: float) -> None:
        self.name, self.source, self._lease_s = name, source, lease_s
        self._lock = threading.Lock()
        self._asking = [threading.Lock() for _ in range(ASKS_AT_ONCE)]
        self._latest: dict[str, Evaluation] = {}  # by hash of the targeting key, oldest first
        self._told: dict[str, TrackedOutcome] = {}  # by id

    def evaluate(self, targeting_key: str | None, attributes: Mapping[str, Any]) -> Evaluation:
        """The suggestion of a targeting key, or a new one; without a targeting key always a new one."""
        target = None if not targeting_key else _hash(self.name, targeting_key)
        if target is None:
            return self._ask(attributes)
        if (leased := self._leased(target)) is not None:
            return leased
        with self._asking[int(target, 16) % ASKS_AT_ONCE]:
            leased = self._leased(target)  # another thread may have been faster: all knobs come from one suggestion
            if leased is None:
                leased = self._ask(attributes)
                with self._lock:
                    _put(self._latest, target, leased)
            return leased

    def _ask(self, attributes: Mapping[str, Any]) -> Evaluation:
        mode = self.source.mode
        try:
            made, reason = self.source.ask(attributes)
        except InvalidValue:
            self.source.read_again()
            raise
        return Evaluation(made, reason, time.time() + self._lease_s, mode)

    def _leased(self, target: str) -> Evaluation | None:
        with self._lock:
            return self._current(target)

    def _current(self, target: str) -> Evaluation | None:
        found = self._latest.get(target)
        if found is None or found.suggestion.id in self._told or time.time() > found.until:
            return None
        return found if found.mode == self.source.mode else None

    def track(self, targeting_key: str | None, told: TrackedOutcome) -> None:
        """Tell an outcome, once."""
        id = told.variant or self._latest_id(targeting_key or "")
        with self._lock:
            before = self._told.get(id)
            if before is None:
                _put(self._told, id, told)
        if before is None:
            try:
                self.source.tell(id, told)
            except BaseException:
                with self._lock:
                    self._told.pop(id, None)
                raise
        elif (before.metrics, before.failure) != (told.metrics, told.failure):
            raise AlreadyAnswered(f"suggestion {id!r} was answered before with other values")

    def _latest_id(self, targeting_key: str) -> str:
        with self._lock:
            found = self._latest.get(_hash(self.name, targeting_key))
            if found is None:
                raise ExpiredSuggestion(
                    "this targeting key has no suggestion: evaluate the flag first, or give variant"
                )
            late, id = time.time() - found.until, found.suggestion.id
            if late > 0.0 and id not in self._told:
                raise ExpiredSuggestion(
                    f"the lease of this targeting key ended {late:.0f} s ago; with variant {id!r} the event is learned"
                )
            return id


def _put(table: dict[str, Any], key: str, value: object) -> None:
    table.pop(key, None)
    table[key] = value
    if len(table) > MOST_LEASES:
        del table[next(iter(table))]


def _hash(flag: str, targeting_key: str) -> str:
    return hashlib.blake2b(f"{flag}\0{targeting_key}".encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
