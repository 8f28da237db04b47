"""Reasons: why a point was chosen, as it stood then. The explanation is made of it when somebody asks for one."""

import math
from typing import NamedTuple

from rasp_tuner.core.numerics import Array
from rasp_tuner.engine.safety import Against
from rasp_tuner.types import Explanation

SHOWN_SLOTS = 3  # similar situations named in an explanation


class Reasons(NamedTuple):
    """What was believed of one choice. Few suggestions are ever explained, so little is computed here in advance."""

    source: str
    similar: Array  # [N] how similar each remembered situation is to this one
    gate: Array  # [E] how much weight each expert has
    experts: tuple[str, ...]  # their names
    is_log: bool  # whether the metric is compared by its logarithm
    predicted: float | None  # this and the deviation in the metric's own units; None while too little is known
    deviation: float | None
    beside: Against | None  # the choice beside the default; None for the default itself, or while little is known

    def explanation(self) -> Explanation:
        nearest, likeness = _most(self.similar, SHOWN_SLOTS)
        total = sum(likeness)
        weights = [like / total for like in likeness] if total > 0.0 else [1.0 / len(nearest)] * len(nearest)
        gate = self.gate.tolist()
        return Explanation(
            source=self.source,
            slots=tuple(nearest),
            weights=tuple(weights),
            gate=tuple(gate),
            predicted=self.predicted,
            deviation=self.deviation,
            novelty=1.0 - likeness[0],
            confidence=max(weights),
            entropy=max(-sum([weight * math.log(weight) for weight in weights if weight > 0.0]), 0.0),
            expert=self.experts[gate.index(max(gate))],
            better=None if self.beside is None else float(self.beside.better),
            scale="log" if self.is_log else "linear",
        )


def _most(values: Array, count: int) -> tuple[list[int], list[float]]:
    """Places and values of the largest few of numbers >= 0, largest first."""
    left, places, found = values.copy(), [], []
    for _ in range(min(count, len(left))):
        place = int(left.argmax())
        places.append(place)
        found.append(left.item(place))
        left[place] = -1.0
    return places, found
