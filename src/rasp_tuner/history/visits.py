"""Visits: when a known situation returns, and whether it recovers sooner than at first. Nothing learns from it.

A visit to a situation begins with three steps in a row that belong to it, while the visit before was to another one. So
noise makes no visits, and neither does a stream that alternates between situations at every step or two. A return is a
visit that is not the first. It is told (`Arrival`) only if the latest one that was told began ten steps ago or more.

How long it took at first is measured over the first visit; if that is shorter than twelve steps, over the first few
together (recovery.py). A later visit recovers when it is as good as that. Steps count that somebody asked for.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from rasp_tuner.history.recovery import IN_A_ROW, LEAST_STEPS_TO_SETTLE, Settled, settled, steps_to_recover
from rasp_tuner.history.revisits import Revisit
from rasp_tuner.space import Params

HOLD_STEPS = 3  # in a row, before a visit begins
TOLD_EVERY_STEPS = 10  # at most one return
MAX_STEPS = 256  # over which it is measured how long a visit took
SETTINGS_KEPT = 5  # the latest of a visit, which the next one may start from
SAME_SETTINGS_WITHIN = 0.1  # root mean square over knobs, each from 0 to 1: within it settings are called the same
MAX_RETURNS = 64  # whose times are kept, of each situation
MAX_TOLD = 100  # arrivals, the newest

Gap = Callable[[Any, Any], float]  # how far two settings are apart: root mean square over knobs of the unit box


@dataclass(slots=True)
class StepSeen:
    """One step: its number, its moment where there is a clock, its value (less is better; None: unknown), what ran."""

    number: int
    at: float | None
    value: float | None
    settings: Any


@dataclass(slots=True)
class Arrival:
    """A return, as it stands now. Stored by name in snapshots."""

    situation: int
    step: int  # with which it began
    at: float | None
    visits: int  # before it
    last_step: int  # of the visit before it
    last_at: float | None
    away_from: int  # the situation before
    first_took: int | None  # steps, until the situation had settled at first
    took: int | None = None  # this time; None: not yet, or it cannot be told
    started_from: Any = None  # settings of the visit before that this one began near to, if it did
    told: bool = True  # as an event
    end_step: int = 0  # the latest step of it
    end_at: float | None = None


@dataclass(slots=True)
class VisitedSituation:
    """What is known of one situation. Stored by name in snapshots."""

    visits: int = 0
    steps: int = 0
    first_step: int = 0
    last_step: int = 0
    last_at: float | None = None
    settings: list[Any] = field(default_factory=list)  # of the latest steps
    first_values: list[float] = field(default_factory=list)  # until it is measured
    first: list[float] | None = None  # level, limit and steps, as in `Settled`
    took: list[int] = field(default_factory=list)  # by returns that recovered
    missed: int = 0  # returns that ended before they had

    @property
    def settled(self) -> Settled | None:
        return None if self.first is None else Settled(self.first[0], self.first[1], int(self.first[2]))

    @property
    def took_on_return(self) -> float | None:
        """The median; None if no return has been measured."""
        return median(self.took) if self.took else None


class Visits:
    """The visits of one stream of steps, each with the label of its situation."""

    def __init__(self, gap: Gap, from_the_start: bool = True) -> None:
        self._gap = gap
        self.from_the_start = from_the_start  # else which visit was the first is not known, nor how long it took
        self.situations: dict[int, VisitedSituation] = {}
        self.now: int | None = None  # the situation of the current visit
        self.arrivals: list[Arrival] = []  # the newest returns
        self._coming: list[StepSeen] = []  # in a row, of another situation
        self._coming_to: int | None = None
        self._waits = False  # whether the current visit has not recovered yet
        self._recent: list[float] = []  # its latest values
        self._valued = 0  # steps of it that have one
        self._told_step: int | None = None  # of the latest arrival that was told

    def add(self, label: int, step: StepSeen) -> Arrival | None:
        """Add the next step; the return that begins with it, if that is to be told."""
        if label == self.now:
            self._coming, self._coming_to = [], None
            self._stay(label, step)
            return None
        if label != self._coming_to:
            self._coming, self._coming_to = [], label
        self._coming.append(step)
        return self._arrive(label) if len(self._coming) >= HOLD_STEPS else None

    def merge(self, gone: int, kept: int) -> None:
        """Two situations have become one: what was called a return from one to the other was none."""
        other, own = self.situations.pop(gone, None), self.situations.get(kept)
        if other is not None:
            self.situations[kept] = other if own is None else _merged(own, other)
        for arrival in self.arrivals:
            arrival.situation = kept if arrival.situation == gone else arrival.situation
            arrival.away_from = kept if arrival.away_from == gone else arrival.away_from
        self.arrivals = [arrival for arrival in self.arrivals if arrival.situation != arrival.away_from]
        if self.now == gone:
            self.now, self._waits = kept, False
        if self._coming_to in (gone, self.now):
            self._coming, self._coming_to = [], None

    def arrival_of(self, label: int, step: int) -> Arrival | None:
        """The return that this step of a situation was part of; None of a first visit, or one that is too old."""
        return self._found(label, lambda one: one.step <= step <= one.end_step)

    def arrival_at(self, label: int, at: float) -> Arrival | None:
        """The same, of a step that was asked for at this moment and answered since."""
        return self._found(label, lambda one: (one.last_at or 0.0) < at <= (one.end_at or 0.0))

    def current(self) -> Arrival | None:
        """The return that the stream is in now, if it is in one."""
        latest = self.arrivals[-1] if self.arrivals else None
        return latest if latest is not None and latest.situation == self.now else None

    @property
    def told(self) -> list[Arrival]:
        """The returns that were told, oldest first."""
        return [arrival for arrival in self.arrivals if arrival.told]

    def to_json(self) -> dict[str, Any]:
        return {
            "situations": [[label, _fields(one)] for label, one in self.situations.items()],
            "arrivals": [_fields(one) for one in self.arrivals],
            "coming": [_fields(one) for one in self._coming],
            "now": [self.now, self._coming_to, self._waits, self._valued, self._told_step],
            "recent": list(self._recent),
        }

    def restore(self, data: dict[str, Any]) -> None:
        self.situations = {label: VisitedSituation(**one) for label, one in data["situations"]}
        self.arrivals = [Arrival(**one) for one in data["arrivals"]]
        self._coming = [StepSeen(**one) for one in data["coming"]]
        self.now, self._coming_to, self._waits, self._valued, self._told_step = data["now"]
        self._recent = list(data["recent"])

    def _found(self, label: int, fits: Callable[[Arrival], bool]) -> Arrival | None:
        return next((one for one in self.arrivals if one.situation == label and fits(one)), None)

    def _arrive(self, label: int) -> Arrival | None:
        """Begin a visit with the steps that came in a row."""
        steps, left = self._coming, self.now
        self._coming, self._coming_to = [], None
        self._leave()
        here = self.situations.setdefault(label, VisitedSituation(first_step=steps[0].number))
        arrival = None if left is None or not here.visits else self._returned(label, left, here, steps[0])
        here.visits += 1
        here.settings = []
        self.now, self._waits = label, arrival is not None and here.first is not None
        self._recent, self._valued = [], 0
        for step in steps:
            self._stay(label, step)
        return arrival if arrival is not None and arrival.told else None

    def _returned(self, label: int, left: int, here: VisitedSituation, step: StepSeen) -> Arrival:
        before = self.situations[left].settings if left in self.situations else []
        gaps = [self._gap(step.settings, settings) for settings in here.settings]
        nearest = min(range(len(gaps)), key=gaps.__getitem__, default=None)
        started = None
        if nearest is not None and gaps[nearest] <= SAME_SETTINGS_WITHIN:  # and not only because nothing was changed
            stayed = self._gap(step.settings, before[-1]) if before else 1.0
            started = here.settings[nearest] if gaps[nearest] < stayed else None
        told = self._told_step is None or step.number - self._told_step >= TOLD_EVERY_STEPS
        if told:
            self._told_step = step.number
        known = here.settled
        arrival = Arrival(
            label,
            step.number,
            step.at,
            here.visits,
            here.last_step,
            here.last_at,
            left,
            None if known is None else known.took,
            started_from=started,
            told=told,
        )
        self.arrivals = [*self.arrivals, arrival][-MAX_TOLD:]
        return arrival

    def _stay(self, label: int, step: StepSeen) -> None:
        here = self.situations[label]
        here.steps += 1
        here.last_step, here.last_at = step.number, step.at
        here.settings.append(step.settings)
        if len(here.settings) > SETTINGS_KEPT:
            del here.settings[0]
        arrival = self.current()
        if arrival is not None:
            arrival.end_step, arrival.end_at = step.number, step.at
        if step.value is None:
            return
        if here.first is None and self.from_the_start:
            here.first_values.append(step.value)
            if len(here.first_values) >= MAX_STEPS:
                _measure(here)
        elif self._waits:
            self._look(here, step.value, arrival)

    def _look(self, here: VisitedSituation, value: float, arrival: Arrival | None) -> None:
        """Whether the current visit is by now as good as it got at first."""
        known = here.settled
        self._recent, self._valued = [*self._recent, value][-IN_A_ROW:], self._valued + 1
        if known is not None and steps_to_recover(self._recent, known.limit) is not None:
            took = self._valued - IN_A_ROW
            here.took, self._waits = [*here.took, took][-MAX_RETURNS:], False
            if arrival is not None:
                arrival.took = took
        elif self._valued >= MAX_STEPS:
            here.missed, self._waits = here.missed + 1, False

    def _leave(self) -> None:
        """End the current visit."""
        here = self.situations.get(self.now) if self.now is not None else None
        if here is None:
            return
        here.missed += self._waits and self._valued >= IN_A_ROW
        if here.first is None and len(here.first_values) >= LEAST_STEPS_TO_SETTLE:
            _measure(here)


def return_of(arrival: Arrival, settings: Params | None = None, at_least: bool = False) -> Revisit:
    """What an arrival comes to; `settings` are those that it started from, by name."""
    return Revisit(
        arrival.visits,
        arrival.last_step,
        max(arrival.step - arrival.last_step, 0),
        arrival.first_took,
        arrival.took,
        settings,
        arrival.last_at,
        arrival.at,
        at_least,
    )


def return_coming(visits: Visits, label: int, step: int, at: float | None = None) -> Revisit | None:
    """What is known of a situation that the next step would return to; None if it was never visited."""
    here = visits.situations.get(label)
    if here is None or not here.visits or label == visits.now:
        return None
    known = here.settled
    ago, took = max(step - here.last_step, 0), None if known is None else known.took
    return Revisit(here.visits, here.last_step, ago, took, None, None, here.last_at, at, not visits.from_the_start)


def _measure(here: VisitedSituation) -> None:
    found = settled(here.first_values)
    here.first_values = []
    here.first = None if found is None else [found.level, found.limit, float(found.took)]


def _merged(one: VisitedSituation, other: VisitedSituation) -> VisitedSituation:
    """Of both; the number of visits is at least that of each, and may be more: which were the same is not known."""
    early, late = sorted((one, other), key=lambda each: each.first_step)
    latest = max((one, other), key=lambda each: each.last_step)
    first = early.first or late.first
    return VisitedSituation(
        max(one.visits, other.visits),
        one.steps + other.steps,
        early.first_step,
        latest.last_step,
        latest.last_at,
        latest.settings,
        [] if first is not None else early.first_values or late.first_values,
        first,
        [*early.took, *late.took][-MAX_RETURNS:],
        one.missed + other.missed,
    )


def _fields(part: VisitedSituation | Arrival | StepSeen) -> dict[str, Any]:
    """As `asdict`, which would copy every number."""
    named = {name: getattr(part, name) for name in part.__dataclass_fields__}
    return {name: list(value) if isinstance(value, list) else value for name, value in named.items()}
