"""Reasons: why a point was chosen, as it stood then. The explanation is made of it when somebody asks for one."""

import math
from typing import NamedTuple

from rasp_tuner.base.numerics import Array
from rasp_tuner.engine.family import Choice
from rasp_tuner.engine.objective import in_own_units
from rasp_tuner.engine.safety import Against
from rasp_tuner.types import Explanation, Outlook

SHOWN_SLOTS = 3  # similar situations named in an explanation


class Reasons(NamedTuple):
    """What was believed of one choice. Few suggestions are ever explained, so nothing is computed in advance."""

    choice: Choice
    default: Array  # [d]
    beside: Against | None  # the choice beside the default; None while too little is known for a forecast
    similar: Array  # [N] how similar each remembered situation is to this one
    gate: Array  # [E] how much weight each expert has
    experts: tuple[str, ...]  # their names
    noise: float  # variance of one observation
    factor: float  # by which deviations are wider than believed
    is_log: bool  # whether the metric is compared by its logarithm
    sign: float  # 1 if less of it is better, else -1
    stop: float | None  # the cost from which on the run should be ended
    stake: float  # what it may cost more than the default, as a share of the default's loss; where there is a budget

    def explanation(self) -> Explanation:
        nearest, likeness = _most(self.similar, SHOWN_SLOTS)
        total = sum(likeness)
        weights = [like / total for like in likeness] if total > 0.0 else [1.0 / len(nearest)] * len(nearest)
        gate, beside = self.gate.tolist(), self.beside
        is_default = self.choice.point.tolist() == self.default.tolist()
        return Explanation(
            source=self.choice.source,
            slots=tuple(nearest),
            weights=tuple(weights),
            gate=tuple(gate),
            predicted=None if beside is None else self._own_units(self.choice.mean),
            deviation=None if beside is None else self._deviation(),
            novelty=1.0 - likeness[0],
            confidence=max(weights),
            entropy=max(-sum([weight * math.log(weight) for weight in weights if weight > 0.0]), 0.0),
            expert=self.experts[gate.index(max(gate))],
            better=None if beside is None or is_default else float(beside.better),
            scale="log" if self.is_log else "linear",
            level=None if beside is None else self._own_units(float(beside.level)),
            stop=self.stop,
            stake=self.stake,
        )

    def outlook(self) -> Outlook | None:
        beside = self.beside
        if beside is None:
            return None
        level, better = self._own_units(float(beside.level)), None if beside.mean == 0.0 else float(beside.better)
        return Outlook(self._own_units(self.choice.mean), self._deviation(), level, better)

    def _deviation(self) -> float:
        """Of what will be measured, calibrated, in the metric's own units."""
        mean, wide = self.choice.mean, math.sqrt(self.choice.variance + self.noise) * self.factor
        return 0.5 * (self._own_units(mean + wide) - self._own_units(mean - wide))

    def _own_units(self, target: float) -> float:
        return float(in_own_units(target, self.is_log, self.sign))


def _most(values: Array, count: int) -> tuple[list[int], list[float]]:
    """Places and values of the largest few of numbers >= 0, largest first."""
    left, places, found = values.copy(), [], []
    for _ in range(min(count, len(left))):
        place = int(left.argmax())
        places.append(place)
        found.append(left.item(place))
        left[place] = -1.0
    return places, found
