"""StudyVisits: when situations of a study return, with dates. Computed from its steps alone, bounded, saved with it."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from rasp_tuner.history.revisits import Revisit, steps_saved
from rasp_tuner.history.visits import Arrival, Visits, return_coming, return_of
from rasp_tuner.space import Params, Space


class StudyVisits(Visits):
    """For one study; labels are those of its regimes."""

    def __init__(self, space: Mapping[str, Any]) -> None:
        super().__init__(self._distance)
        self._space = Space.from_json(space)

    def seen(self, regime: int, step: int, asked_at: float, waits: bool) -> Revisit | None:
        """Of a suggestion in this regime: whether the situation had been seen before; `step`: the next one."""
        if waits and regime != self.now:
            return return_coming(self, regime, step, asked_at)
        arrival = self.current() if waits else self.arrival_at(regime, asked_at)
        return None if arrival is None else return_of(arrival, arrival.started_from)

    def events(self) -> list[dict[str, Any]]:
        """The newest returns that are told, oldest first."""
        return [_event(arrival) for arrival in self.told]

    def latest(self) -> dict[str, Any] | None:
        """The newest of them."""
        return _event(self.told[-1]) if self.told else None

    def situations_met(self) -> list[dict[str, Any]]:
        """What is known of each, by regime."""
        current = self.current()
        return [
            {
                "regime": label,
                "visits": one.visits,
                "steps": one.steps,
                "last_step": one.last_step,
                "last_at": one.last_at,
                "first_took": None if (known := one.settled) is None else known.took,
                "returns_measured": len(one.took),
                "took_on_return": one.took_on_return,
                "returns_missed": one.missed,
                "saved": steps_saved(None if known is None else known.took, one.took_on_return),
                "current": label == self.now,
                "words": str(return_of(current, current.started_from))
                if current is not None and current.situation == label
                else "",
            }
            for label, one in sorted(self.situations.items())
        ]

    def _distance(self, one: Params, other: Params) -> float:
        return math.sqrt(float(np.mean((self._space.to_unit(one) - self._space.to_unit(other)) ** 2)))


def _event(arrival: Arrival) -> dict[str, Any]:
    back = return_of(arrival, arrival.started_from)
    told = {name: value for name, value in asdict(back).items() if name != "at"}
    head = {"step": arrival.step, "at": arrival.at, "kind": "returned", "regime": arrival.situation}
    return {**head, **told, "saved": back.saved, "words": str(back)}
