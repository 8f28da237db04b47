"""SeenBefore: the visits among the steps that a tuner has on record. Made when somebody looks; nothing learns from it.

It follows the record from its first step on. Once steps fall out of a full record, it starts anew at every 64th. So it
depends on the record, and on what the tuner has learned of its context by now, however often somebody looks: it starts
anew, too, when the relevance of a dimension has changed by a factor of about four. Which visit was the first is not
known any more once steps have fallen out.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rasp_tuner.base.numerics import Array
from rasp_tuner.contexts.regimes import RegimeTimeline, coarse
from rasp_tuner.history.recovery import FAILED
from rasp_tuner.history.revisits import Revisit
from rasp_tuner.history.visits import Arrival, StepSeen, Visits, return_coming, return_of
from rasp_tuner.records.ledger import Ledger
from rasp_tuner.records.step_record import FAILED as FAILED_RUN
from rasp_tuner.records.step_record import MOST_STEPS, StepRecord
from rasp_tuner.space import Params

START_EVERY_STEPS = 64


@dataclass(frozen=True)
class Valued:
    """How good steps were: by the metric that the engine works on, or by the target of several."""

    metric: int | None  # its place
    sign: float  # -1 if more of it is better
    has_target: bool  # whether errors of several metrics can be compared between steps

    def of(self, metrics: Array, failed: bool, asked: str, ledger: Ledger) -> float | None:
        """Less is better; None where it is not known."""
        if failed:
            return FAILED
        if self.metric is not None:
            return self.sign * float(metrics[self.metric])
        why = ledger.answered.get(asked) if self.has_target else None
        return None if why is None else why.explanation().error


class SeenBefore:
    """Situations and visits of one tuner, up to the latest step on record."""

    def __init__(self, dim: int) -> None:
        self._dim = dim
        self._begin(0.0)

    def _begin(self, start: float, relevance: Array | None = None) -> None:
        self.regimes, self.visits = RegimeTimeline(self._dim), Visits(distance, from_the_start=start == 0.0)
        self._relevance = relevance  # that it follows the record by, from its first step on
        self._start = self._next = start  # the first step that it knows, and the first one that it does not

    def update(self, record: StepRecord, ledger: Ledger, valued: Valued, relevance: Array | None = None) -> None:
        """Take in the steps since it was looked at; `relevance` [d_c] is what the tuner has learned by now."""
        relevance = None if relevance is None else coarse(relevance)
        numbers, metrics, points, contexts = record.parts()
        start = _start(numbers[:, 0])
        if start != self._start or not _same(relevance, self._relevance):
            self._begin(start, relevance)
        for i in np.flatnonzero(numbers[:, 0] >= self._next).tolist():
            step, asked, end = numbers[i].tolist()
            label = self.regimes.add(contexts[i], self._relevance)
            for gone, kept in self.regimes.joined:
                self.visits.merge(gone, kept)
            if asked >= 0 and not self.regimes.stray:
                value = valued.of(metrics[i], end == FAILED_RUN, f"s{int(asked)}", ledger)
                self.visits.add(self.regimes.situations[label], StepSeen(int(step), None, value, points[i]))
            self._next = step + 1.0

    @property
    def steps(self) -> int:
        """The number of the step after the latest."""
        return int(self._next)

    def coming(self, context: Array, learned: int, named: Callable[[Array], Params]) -> Revisit | None:
        """Of a suggestion [d_c] that waits for its answer."""
        label = self.regimes.known_situation(context)
        if label is None:
            return None
        current = self.visits.current()
        if label == self.visits.now:
            return None if current is None else self._named(current, named)
        return return_coming(self.visits, label, learned)

    def of_step(self, step: int, context: Array, named: Callable[[Array], Params]) -> Revisit | None:
        """Of a step that is on record, with its context [d_c]."""
        label = self.regimes.known_situation(context)
        arrival = None if label is None else self.visits.arrival_of(label, step)
        return None if arrival is None else self._named(arrival, named)

    def _named(self, arrival: Arrival, named: Callable[[Array], Params]) -> Revisit:
        settings = None if arrival.started_from is None else named(arrival.started_from)
        return return_of(arrival, settings, at_least=not self.visits.from_the_start)


def distance(one: Array, other: Array) -> float:
    """Root mean square over knobs between points [d] of the unit box."""
    return math.sqrt(float(np.mean((one - other) ** 2))) if len(one) else 0.0


def _same(one: Array | None, other: Array | None) -> bool:
    return one is other or (one is not None and other is not None and np.array_equal(one, other))


def _start(steps: Array) -> float:
    """The first step to begin with."""
    if len(steps) < MOST_STEPS:
        return float(steps[0]) if len(steps) else 0.0
    return math.ceil(float(steps[0]) / START_EVERY_STEPS) * float(START_EVERY_STEPS)
