"""Approvals: suggestions of a study that wait for a person, and what was said to them.

ask      the default may run, and so may what was approved; anything else waits, and the best that was approved runs
approve  runs at the next ask in the same situation; from then on the tuner may choose these settings there
refuse   neither these settings nor nearly the same are put up again, until a stated time; something else is
What nobody answers in time is dropped, and may be put up again. Times come from events: a replay gives the same.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rasp_tuner.errors import ExpiredSuggestion, UnknownSuggestion
from rasp_tuner.report.looks import BEST_APPROVED, NEWLY_APPROVED
from rasp_tuner.service.study.suggestion_record import put_bounded
from rasp_tuner.space import Categorical, Space
from rasp_tuner.tuner import Tuner
from rasp_tuner.types import Explanation, Suggestion

REFUSED_S = 86_400.0  # how long a refusal holds, unless it says otherwise
MOST_WAITING, MOST_APPROVED, MOST_REFUSED = 50, 100, 100  # the oldest are dropped
MOST_TRIES = 5  # for something that was not refused
NEARLY = 0.05  # of every range: settings so near to refused ones are refused, too

SameSituation = Callable[[Any, Any], bool]


@dataclass(frozen=True, slots=True)
class WaitingSuggestion:
    """Settings that the tuner would like to run."""

    id: str  # w0, w1, ...
    at: float  # since when it waits
    context: Any
    params: dict[str, Any]
    inner: str  # the tuner's own id of it


@dataclass(frozen=True, slots=True)
class Approved:
    params: dict[str, Any]
    context: Any
    anywhere: bool  # it is not known any more where it was asked for
    ran: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    params: dict[str, Any]
    until: float


class Approvals:
    """What waits in one study, what may run and what may not."""

    def __init__(self, wait_s: float, space: Space, same: SameSituation) -> None:
        self._wait_s, self._space, self._same = wait_s, space, same
        self.waiting: dict[str, WaitingSuggestion] = {}
        self._issued = 0
        self._approved: list[Approved] = []
        self._refused: list[Refused] = []

    def ask(self, tuner: Tuner, context: Any, at: float) -> Suggestion:
        """What runs now; what the tuner wants waits, if it needs an approval."""
        self._expire(tuner, at)
        if tuner.frozen_at_default:
            return tuner.ask(context)
        if not tuner.frozen:
            for i, one in enumerate(self._approved):
                if not one.ran and self._holds(one, context):
                    return self._run(tuner, context, i)
            waits = any(self._same(one.context, context) for one in self.waiting.values())
            wanted = self._wanted(tuner, context, others=not waits)
            if wanted.params == tuner.default or wanted.params in self.allowed(context):
                return wanted
            if waits or self._is_refused(wanted.params):
                tuner.withdraw(wanted.id)
            else:
                self._put(tuner, WaitingSuggestion(f"w{self._issued}", at, context, wanted.params, wanted.id))
        return tuner.ask_for(context, self.best(tuner, context), BEST_APPROVED)

    def best(self, tuner: Tuner, context: Any) -> dict[str, Any]:
        """The best of what was approved, if it is known to be better than the default here; else the default."""
        return tuner.recommend(context, among=self.allowed(context))

    def allowed(self, context: Any) -> list[dict[str, Any]]:
        """What may run in a situation without asking a person, but for the default."""
        return [one.params for one in self._approved if self._holds(one, context)]

    def get(self, id: str, at: float) -> WaitingSuggestion:
        """One that waits; an UnknownSuggestion if it does not."""
        found = self.waiting.get(id)
        if found is None or found.at + self._wait_s <= at:
            message = f"no suggestion {id[:80]!r} waits here: it was answered, or waited too long"
            raise UnknownSuggestion(message)
        return found

    def approve(self, tuner: Tuner, id: str, params: dict[str, Any]) -> None:
        waited = self._take(tuner, id)
        context, anywhere = (None, True) if waited is None else (waited.context, False)
        self._approved = [*self._approved, Approved(params, context, anywhere)][-MOST_APPROVED:]

    def refuse(self, tuner: Tuner, id: str, params: dict[str, Any], until: float) -> None:
        self._take(tuner, id)
        self._refused = [*self._refused, Refused(params, until)][-MOST_REFUSED:]

    def count(self, at: float) -> int:
        return sum(one.at + self._wait_s > at for one in self.waiting.values())

    def view(self, tuner: Tuner, at: float) -> list[dict[str, Any]]:
        """What waits, oldest first: the change against what would run otherwise, why, and what it may cost."""
        return [self._shown(tuner, one) for one in self.waiting.values() if one.at + self._wait_s > at]

    def to_json(self) -> dict[str, Any]:
        return {
            "issued": self._issued,
            "waiting": [asdict(one) for one in self.waiting.values()],
            "approved": [asdict(one) for one in self._approved],
            "refused": [asdict(one) for one in self._refused],
        }

    def restore(self, data: Mapping[str, Any]) -> None:
        self._issued = data["issued"]
        self.waiting = {one["id"]: WaitingSuggestion(**one) for one in data["waiting"]}
        self._approved = [Approved(**one) for one in data["approved"]]
        self._refused = [Refused(**one) for one in data["refused"]]

    def _holds(self, one: Approved, context: Any) -> bool:
        return one.anywhere or self._same(one.context, context)

    def _wanted(self, tuner: Tuner, context: Any, others: bool) -> Suggestion:
        """What the tuner wants to run; `others`: if that was refused, what it would want if that had failed."""
        wanted = tuner.ask(context)
        if not others or not self._is_refused(wanted.params):
            return wanted
        copy = Tuner.from_bytes(tuner.capture(explained=0)())
        failed = [one.params for one in self._refused]
        for _ in range(MOST_TRIES):
            for params in failed:
                copy.observe_failed(context, params)
            other = copy.ask(context)
            if not self._is_refused(other.params):
                tuner.withdraw(wanted.id)
                return tuner.ask_for(context, other.params, copy.explain(other.id).source)
            failed = [other.params]
        return wanted

    def _run(self, tuner: Tuner, context: Any, place: int) -> Suggestion:
        """An approved one, for the first time; the holdout may draw the default in its place."""
        one = self._approved[place]
        suggestion = tuner.ask_for(context, one.params, NEWLY_APPROVED)
        if suggestion.params == one.params:
            self._approved[place] = Approved(one.params, one.context, one.anywhere, ran=True)
        return suggestion

    def _put(self, tuner: Tuner, one: WaitingSuggestion) -> None:
        self._issued += 1
        oldest = next(iter(self.waiting.values()), None)
        if put_bounded(self.waiting, one.id, one, MOST_WAITING) and oldest is not None:
            _withdraw(tuner, oldest)

    def _take(self, tuner: Tuner, id: str) -> WaitingSuggestion | None:
        """One that waits no longer; None in a replay in which it was never put up, since records were erased."""
        found = self.waiting.pop(id, None)
        if found is not None:
            _withdraw(tuner, found)
        return found

    def _expire(self, tuner: Tuner, at: float) -> None:
        for one in [one for one in self.waiting.values() if one.at + self._wait_s <= at]:
            self._take(tuner, one.id)
        self._refused = [one for one in self._refused if one.until > at]

    def _is_refused(self, params: dict[str, Any]) -> bool:
        return any(self._nearly(params, one.params) for one in self._refused)

    def _nearly(self, one: dict[str, Any], other: dict[str, Any]) -> bool:
        choices = [name for name, knob in self._space.knobs.items() if isinstance(knob, Categorical)]
        if one.keys() != other.keys() or any(one.get(name) != other.get(name) for name in choices):
            return False
        return bool(np.abs(self._space.to_unit(one) - self._space.to_unit(other)).max() < NEARLY)

    def _shown(self, tuner: Tuner, one: WaitingSuggestion) -> dict[str, Any]:
        runs = self.best(tuner, one.context)
        names = [*one.params, *(name for name in runs if name not in one.params)]
        changes = {name: [runs.get(name), one.params.get(name)] for name in names}
        try:
            why = tuner.explain(one.inner, visits=False)
        except ExpiredSuggestion:  # many asks without an answer came after it
            why = Explanation(source="", params=one.params)
        return {
            "id": one.id,
            "asked_at": one.at,
            "until": one.at + self._wait_s,
            "context": one.context,
            "params": one.params,
            "runs": runs,
            "changes": {name: pair for name, pair in changes.items() if pair[0] != pair[1]},
            "stop": why.stop,
            "level": why.level if why.direction == "min" or why.level is None else -why.level,
            "explanation": str(why) if why.source else "",
        }


def _withdraw(tuner: Tuner, one: WaitingSuggestion) -> None:
    try:
        tuner.withdraw(one.inner)
    except ExpiredSuggestion:
        return  # many asks without an answer came after it, and the tuner dropped it
