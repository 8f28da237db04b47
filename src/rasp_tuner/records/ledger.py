"""Ledger: which suggestions are out, which were answered, and why each was made. Bounded on both sides."""

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple, TypeVar, get_args

import numpy as np

from rasp_tuner.base.checks import number, show, whole
from rasp_tuner.base.common_constants import FADING_SAMPLES
from rasp_tuner.base.numerics import LARGEST, Array
from rasp_tuner.base.state_checks import MOST_SAMPLES, Field, checked
from rasp_tuner.errors import AlreadyAnswered, ExpiredSuggestion, InvalidValue, UnknownSuggestion
from rasp_tuner.space import Params
from rasp_tuner.types import Explanation, Outlook, Path, Why

T = TypeVar("T")
FADED = 1.0 - 1.0 / FADING_SAMPLES  # what waits counts so much less at every later one that waits no more
_OF_DRAWS = ("propensity", "instead")  # written only where a holdout draws
_TEXTS = ("source", "path", "reason", "expert", "failure", "scale")
_LISTS = ("slots", "weights", "gate")
_NUMBERS = (
    *("predicted", "deviation", "novelty", "confidence", "entropy", "error", "better", "level", "stop", "stake"),
    *_OF_DRAWS,
)
_MAY_LACK = ("predicted", "deviation", "error", "failure", "better", "ran", "level", "stop", *_OF_DRAWS)
_KEPT = {*_TEXTS, *_LISTS, *_NUMBERS, "ran"}  # others are added by who knows names
_NAMES = tuple(field.name for field in fields(Explanation) if field.name in _KEPT)
ID = r"s(0|[1-9][0-9]{0,15})"
MOST_SIZE = 1_000_000  # suggestions on record
LOST_AFTER = 350  # of these, after which a suggestion is taken for lost: it counts a thousandth
LONGEST_EXPLANATION = 100_000  # numbers in one explanation
FIELDS = {
    "suggested": Field(("m", "d"), 0.0, 1.0),
    "contexts": Field(("n", "c"), -LARGEST, LARGEST),
    "points": Field(("n", "d"), 0.0, 1.0),
    "came": Field(("n",), 0.0, 1.0, whole=True),
}


class Pending(NamedTuple):
    """A suggestion that waits for its answer."""

    context: Array  # [d_c]
    point: Array  # [d] in the unit box
    why: Why
    came: bool = False  # whether its outcome was observed, without its id


class Answered:
    """What came of a suggestion. Its explanation is made when somebody first asks, and kept instead of its reasons."""

    __slots__ = ("_known",)

    def __init__(
        self,
        why: Why,
        error: float,
        path: Path,
        reason: str,
        ran: Params | None = None,
        failure: str | None = None,
    ) -> None:
        self._known: Explanation | tuple[Why, float, Path, str, Params | None, str | None]
        self._known = why, error, path, reason, ran, failure

    @property
    def stop(self) -> float | None:
        return (self._known[0] if isinstance(self._known, tuple) else self._known).stop

    @property
    def stake(self) -> float:
        return (self._known[0] if isinstance(self._known, tuple) else self._known).stake

    def outlook(self) -> Outlook | None:
        return (self._known[0] if isinstance(self._known, tuple) else self._known).outlook()

    def explanation(self) -> Explanation:
        known = self._known
        if isinstance(known, tuple):  # another thread may be here, too: it makes the same
            why, error, path, reason, ran, failure = known
            known = self._known = replace(
                why.explanation(), error=error, path=path, reason=reason, ran=ran, failure=failure
            )
        return known


class Ledger:
    """Ids count upwards and are never reused; the oldest records fall out when there are more than `size`."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.issued = 0
        self.pending: dict[str, Pending] = {}
        self.answered: dict[str, Why] = {}
        self._suggested: dict[str, Array] = {}  # points [d] of the answered ones

    def issue(self, context: Array, point: Array, why: Why) -> str:
        """A new id for a suggestion that is now out."""
        id = f"s{self.issued}"
        self.issued += 1
        _put(self.pending, id, Pending(context, point, why), self.size)
        return id

    def waiting(self, id: object) -> Pending:
        """The record of an id that may be answered now, or an error that says why not."""
        record = self.pending.get(id) if isinstance(id, str) else None
        if record is not None:
            return record
        self._check_known(id)
        raise AlreadyAnswered(
            f"suggestion {id!r} was answered before; tell each once, and report further runs of the same"
            " parameters with observe(context, params, metrics)"
        )

    def answer(self, id: str, why: Why) -> None:
        _put(self._suggested, id, self.pending.pop(id).point, self.size)
        _put(self.answered, id, why, self.size)

    def note_observed(self, point: Array) -> None:
        """Somebody observed a run of a point, maybe the latest suggestion of it that waits."""
        key = point.tobytes()
        for id, record in itertools.islice(reversed(self.pending.items()), LOST_AFTER):
            if not record.came and record.point.tobytes() == key:
                self.pending[id] = record._replace(came=True)
                return

    def in_flight(self) -> Iterator[tuple[float, Pending]]:
        """The latest whose outcomes are still to come, latest first, and by how much each counts.

        One that many later ones were answered before may never be answered, and counts less. Where none ever was
        answered, outcomes are learned otherwise.
        """
        for later, (id, record) in enumerate(itertools.islice(reversed(self.pending.items()), LOST_AFTER)):
            passed_over = self.issued - int(id[1:]) - 1 - later
            if passed_over > LOST_AFTER or not self.answered:
                return
            if not record.came:
                yield FADED**passed_over, record

    def withdraw(self, id: object) -> None:
        """Forget a suggestion that waits."""
        self.waiting(id)
        del self.pending[str(id)]

    def why(self, id: object) -> Why:
        self._check_known(id)
        key = str(id)
        return self.answered[key] if key in self.answered else self.pending[key].why

    def explain(self, id: object) -> Explanation:
        why = self.why(id).explanation()
        return why if why.ran is None else replace(why, ran=dict(why.ran))  # the caller may change a dict

    def latest_sources(self, count: int) -> list[str]:
        """As what the latest answered suggestions were chosen, oldest first."""
        latest = itertools.islice(reversed(self.answered.values()), count)
        return [why.explanation().source for why in latest][::-1]

    def point(self, id: str) -> Array | None:
        """The suggested point [d]; None of what was answered before a snapshot that does not hold it."""
        return self.pending[id].point if id in self.pending else self._suggested.get(id)

    def _check_known(self, id: object) -> None:
        if not isinstance(id, str):
            raise InvalidValue(f"id must be the string in Suggestion.id, got {show(id)}; use tuner.tell(s.id, ...)")
        if id in self.pending or id in self.answered:
            return
        if re.fullmatch(ID, id) and int(id[1:]) < self.issued:
            raise ExpiredSuggestion(
                f"suggestion {id!r} is no longer on record: it was withdrawn, or more than {self.size} suggestions ago"
                " answered or dropped unanswered; if it ran and was never told, report it with observe(context,"
                " params, metrics)"
            )
        raise UnknownSuggestion(f"no suggestion {show(id)} was issued by this tuner; ask() gives the ids")

    def copy(self, answered: int | None = None) -> "Ledger":
        """The same records, which are frozen, in a ledger of its own; of the answered, only so many of the latest."""
        ledger = Ledger(self.size)
        ledger.issued, ledger.pending = self.issued, dict(self.pending)
        kept = self.size if answered is None else answered
        ledger.answered = dict(itertools.islice(self.answered.items(), max(len(self.answered) - kept, 0), None))
        ledger._suggested = self._suggested.copy()
        return ledger

    def to_json(self) -> dict[str, Any]:
        return {
            "size": self.size,
            "issued": self.issued,
            "pending": [[id, to_fields(record.why.explanation())] for id, record in self.pending.items()],
            "answered": [[id, to_fields(why.explanation())] for id, why in self.answered.items()],
        }

    def state(self, dim: int, context_dim: int) -> dict[str, Array]:
        """Of the pending ones contexts [n, d_c], points [n, d], `came` [n]; of the latest answered points [m, d]."""
        records = list(self.pending.values())
        suggested = [self._suggested[id] for id in self.answered if id in self._suggested]
        return {
            "suggested": np.array(suggested).reshape(len(suggested), dim),
            "contexts": np.array([record.context for record in records]).reshape(len(records), context_dim),
            "points": np.array([record.point for record in records]).reshape(len(records), dim),
            "came": np.array([record.came for record in records], dtype=np.float64),
        }

    @classmethod
    def rebuild(cls, data: Mapping[str, Any], state: Mapping[str, Array], dim: int, context_dim: int) -> "Ledger":
        """The ledger that `to_json` and `state` describe."""
        ledger = cls(whole("ledger.size", data["size"], 1, MOST_SIZE))
        ledger.issued = whole("ledger.issued", data["issued"], 0, MOST_SAMPLES)
        answered, pending = (_records(name, data[name], ledger.issued, ledger.size) for name in ("answered", "pending"))
        if answered.keys() & pending.keys():
            raise InvalidValue(f"ledger: {show(list(answered.keys() & pending.keys()))} wait and were answered")
        sizes: dict[str, int | range] = {"n": len(pending), "m": range(len(answered) + 1), "d": dim, "c": context_dim}
        arrays = checked({"came": np.zeros(len(pending)), **state}, FIELDS, sizes)  # the first of 0.2 lack it
        suggested = arrays["suggested"]
        ledger.answered = dict(answered)
        ledger._suggested = dict(zip(list(answered)[len(answered) - len(suggested) :], suggested, strict=True))
        waiting = zip(pending.items(), arrays["contexts"], arrays["points"], arrays["came"] > 0.0, strict=True)
        ledger.pending = {id: Pending(context, point, why, bool(came)) for (id, why), context, point, came in waiting}
        return ledger


def _put(records: dict[str, T], id: str, record: T, size: int) -> None:
    records[id] = record
    if len(records) > size:
        del records[next(iter(records))]


def to_fields(why: Explanation) -> dict[str, Any]:
    """What a snapshot keeps of an explanation; as `asdict`, which would copy every number."""
    return {name: value for name in _NAMES if (value := getattr(why, name)) is not None or name not in _OF_DRAWS}


def _records(name: str, data: object, issued: int, most: int) -> dict[str, Explanation]:
    """Explanations by id, as `to_json` wrote them."""
    if not isinstance(data, list) or len(data) > most:
        raise InvalidValue(f"ledger.{name} must be a list of at most {most}, got {show(data)}")
    records = {id: _explanation(f"ledger.{name}", fields) for id, fields in data}
    for id in records:
        if not isinstance(id, str) or not re.fullmatch(ID, id) or int(id[1:]) >= issued or len(records) < len(data):
            raise InvalidValue(f"ledger.{name} must have every id once, below s{issued}, got {show(id)}")
    if name == "pending" and sorted(records, key=lambda id: int(id[1:])) != list(records):
        raise InvalidValue(f"ledger.{name} must have its ids in order, got {show(list(records))}")
    return records


def _explanation(place: str, told: Mapping[str, Any]) -> Explanation:
    if told.keys() | {"stop", "stake", *_OF_DRAWS} != _KEPT:  # the first snapshots of 0.2 have no stops
        raise InvalidValue(f"{place}: an explanation must have the fields {show(_NAMES)}, got {show(list(told))}")
    if not number(f"{place}.stake", told.get("stake", 0.0)) >= 0.0:
        raise InvalidValue(f"{place}.stake must be at least 0, got {show(told['stake'])}")
    return Explanation(**{name: _read(place, name, value) for name, value in told.items()})


def _read(place: str, name: str, value: Any) -> Any:
    """A field of an explanation as JSON holds it, checked."""
    kind = type(value)
    if kind is float and name in _NUMBERS and math.isfinite(value):
        return value  # the usual case
    if value is None and name in _MAY_LACK:
        return None
    if kind is str and name in _TEXTS and (name != "path" or value in get_args(Path)):
        return value
    field = f"{place}: {name}"
    if kind is list and name in _LISTS and len(value) <= LONGEST_EXPLANATION:
        if name == "slots":
            return tuple([whole(field, one, 0, MOST_SAMPLES) for one in value])
        return tuple([number(field, one) for one in value])
    if kind is dict and name == "ran":
        return value
    if kind is not bool and name in _NUMBERS:
        return number(field, value)
    raise InvalidValue(f"{field} is of another kind: {show(value)}")
