"""RA-GD: projected gradient descent with the regimes and the true loss known (paper, Theorem regret). An oracle.

It plays w_r and then moves it by a projected gradient step on the true loss of the condition it was played in. The
step eta of a regime starts at a move across the whole box and is halved until the descent inequality of a 1/eta-smooth
function holds, which every eta <= 1/L satisfies; it may double again at the next visit. So eta needs no tuning.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rasp_lab.bench.agents.base import MAX_PENDING
from rasp_lab.bench.domains.base import ExperimentDomain, Task
from rasp_tuner.base.numerics import Array
from rasp_tuner.errors import UnknownSuggestion
from rasp_tuner.space import Categorical, Int

DIFFERENCE = 1e-4  # half-width of a central difference: floats have twelve digits, so eight are left for the slope
HALVINGS = 60


@dataclass(slots=True)
class RegimeDescent:
    """w_r in the unit box and the last step size of its regime."""

    point: Array
    step: float = np.inf


class RaGd:
    """Before `reveal` is called it plays the default and learns nothing. Categorical knobs stay at the default."""

    def __init__(self, task: Task, seed: int) -> None:
        del seed  # nothing is random
        self.task = task
        self.regimes: dict[int, RegimeDescent] = {}
        self._truth: tuple[ExperimentDomain[object], object] | None = None
        self._pending: dict[str, tuple[ExperimentDomain[object], object] | None] = {}
        self._asked = 0

    def reveal(self, domain: ExperimentDomain[object], omega: object) -> None:
        """The domain and the condition now in force; the protocol shows them before each ask."""
        self._truth = (domain, omega)

    def ask(self, context: Array) -> tuple[str, Array]:
        del context
        id = str(self._asked)
        self._asked += 1
        self._pending[id] = self._truth
        if len(self._pending) > MAX_PENDING:
            del self._pending[next(iter(self._pending))]
        known = None if self._truth is None else self.regimes.get(self._truth[0].regime(self._truth[1]))
        return id, self.task.space.snap(self.task.default if known is None else known.point)

    def tell(self, id: str, metrics: Mapping[str, float]) -> None:
        del metrics
        self._move(id)

    def tell_failed(self, id: str) -> None:
        self._move(id)

    def _move(self, id: str) -> None:
        if id not in self._pending:
            raise UnknownSuggestion(f"no suggestion {id!r} waits for an answer")
        truth = self._pending.pop(id)
        if truth is not None:
            domain, omega = truth
            regime = self.regimes.setdefault(domain.regime(omega), RegimeDescent(self.task.default.copy()))
            descend(regime, domain, omega)


def descend(regime: RegimeDescent, domain: ExperimentDomain[object], omega: object) -> None:
    """One projected step w <- clip(w - eta slope), with eta as the head of this file says."""

    def loss(point: Array) -> float:
        return domain.true_loss(domain.theta(point), omega)

    w, here = regime.point, loss(regime.point)
    slope = gradient(domain, omega, w)
    steepest = float(np.abs(slope).max())
    if steepest == 0.0:
        return
    step = min(2.0 * regime.step, 1.0 / steepest)
    for _ in range(HALVINGS):
        moved = np.clip(w - step * slope, 0.0, 1.0)
        change = moved - w
        if loss(moved) <= here + slope @ change + change @ change / (2.0 * step):
            regime.point, regime.step = moved, step
            return
        step /= 2.0


def gradient(domain: ExperimentDomain[object], omega: object, point: Array) -> Array:
    """Central differences [d] of the true loss in the unit box, always between legal values."""
    slope = np.zeros(len(point))
    for i, knob in enumerate(domain.space.knobs.values()):
        if isinstance(knob, Categorical):
            continue  # unordered: there is no slope
        unit = float(point[i])
        if isinstance(knob, Int):
            value = knob.from_unit(unit)
            last = knob.low + knob.step * (knob.levels - 1)
            ends = [knob.to_unit(max(value - knob.step, knob.low)), knob.to_unit(min(value + knob.step, last))]
        else:
            width = DIFFERENCE if knob.levels is None else 1.0 / (knob.levels - 1)
            ends = [max(unit - width, 0.0), min(unit + width, 1.0)]
        below, above = (domain.true_loss(domain.theta(_replaced(point, i, end)), omega) for end in ends)
        slope[i] = (above - below) / (ends[1] - ends[0])
    return slope


def _replaced(point: Array, index: int, value: float) -> Array:
    changed = point.copy()
    changed[index] = value
    return changed
