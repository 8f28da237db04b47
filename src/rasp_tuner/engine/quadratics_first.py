"""QuadraticsFirst: knobs on a continuum have quadratics, unless a process of any shape predicts far better.

Where costs are a bowl, quadratics know it after a few runs. Real systems have cliffs, steps and plateaus, too, which no
bowl tells of: quadratics call them false measurements, and run into them again. So both learn the first samples, and
each says before a sample how likely it is. The process takes over for good once those samples were far likelier by it,
and the latter half of them alone, since luck with one sample is soon told.

symbol     meaning
compared   [n, 3] of the latest samples: y, and the logarithm of its density by the process, and by quadratics
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from rasp_tuner.base.numerics import LARGEST, SMALLEST, Array
from rasp_tuner.base.state_checks import Field, broken, checked, under
from rasp_tuner.engine.evidence import log_mean
from rasp_tuner.engine.family import Bill, ByExpert, Prices, RunOutcome
from rasp_tuner.engine.gp.family import GpFamily
from rasp_tuner.engine.kernel.state import WINDOW_SAMPLES
from rasp_tuner.engine.quadratic.family import QuadraticFamily
from rasp_tuner.optimizer.optimizer import Asked, LatestSamples
from rasp_tuner.space import Layout
from rasp_tuner.types import Slots

COMPARED = 32  # samples, at most: later the process costs more time than it is worth
MOST_LEARNED = 2 * COMPARED  # samples of both, compared or not: failures and ended runs are not
FEWEST_COMPARED = 8  # samples, before there is a latter half to speak of
FAR_AHEAD = 16.0  # log odds, of all samples and of the latter half: a bowl found early is worth more than its density
MOST_EACH = 8.0  # log odds that one sample may add
EXACT = 0.2  # of the mean distance of what came from its median: to forecast it more exactly is worth nothing
PROCESS = "process/"  # in a snapshot, while both learn

FIELDS = {"compared": Field(("n", 3), -LARGEST, LARGEST)}


class QuadraticsFirst:
    """A family that is one of two; while both learn, the process is kept beside the quadratics."""

    def __init__(self, layout: Layout, context_dim: int, columns: int) -> None:
        self._layout, self._context_dim, self._columns = layout, context_dim, columns
        self._quadratics = QuadraticFamily(layout.default, context_dim, columns)
        self._chosen: QuadraticFamily | GpFamily = self._quadratics
        self._rival: GpFamily | None = self._process()  # None once it is decided
        self._compared: list[tuple[float, float, float]] = []

    @property
    def experts(self) -> tuple[str, ...]:
        return self._chosen.experts

    @property
    def hindsight(self) -> bool:
        return self._chosen.hindsight

    @property
    def uses_blas(self) -> bool:
        return self._rival is not None or self._chosen.uses_blas

    @property
    def samples(self) -> int:
        return self._chosen.samples

    @property
    def relevance(self) -> Array | None:
        return self._chosen.relevance

    def believe(self, context: Array) -> Any:
        return self._chosen.believe(context)

    def learn(self, trial: RunOutcome, belief: Any, forecast: ByExpert | None) -> None:
        rival, theirs = self._rival, None
        measured = not trial.failed and trial.ended is None
        if rival is not None and belief is not None and forecast is not None and measured:
            y = float(trial.losses @ rival.weights)
            theirs = rival.believe(trial.context)
            densities = _density(theirs.forecast(trial.point, y), theirs.weights), _density(forecast, belief.weights)
            self._compared.append((y, *densities))
        self._chosen.learn(trial, belief, forecast)
        if rival is not None:
            rival.learn(trial, theirs, None)
            self._decide(rival)

    def _decide(self, rival: GpFamily) -> None:
        n = len(self._compared)
        if n >= FEWEST_COMPARED:
            ahead = _ahead(np.array(self._compared))
            if min(ahead.sum(), ahead[n // 2 :].sum()) > FAR_AHEAD:
                self._settle(rival)
                return
        if n >= COMPARED or rival.samples >= MOST_LEARNED:
            self._settle(self._quadratics)

    def _settle(self, chosen: QuadraticFamily | GpFamily) -> None:
        self._chosen, self._rival, self._compared = chosen, None, []

    def bill(self, prices: Prices, belief: Any = None) -> Bill | None:
        return self._chosen.bill(prices, belief)

    def reweigh(self, weights: Array) -> None:
        """Densities so far were those of another target."""
        self._compared = []
        for family in self._families():
            family.reweigh(weights)

    def restate(self, factors: Array, shifts: Array, weights: Array) -> None:
        self._compared = []
        for family in self._families():
            family.restate(factors, shifts, weights)

    def forget(self) -> None:
        self._compared = []
        for family in self._families():
            family.forget()

    def bound_contexts(self, least: Array, most: Array, mend: bool) -> None:
        for family in self._families():
            family.bound_contexts(least, most, mend)

    def merge(self, other: "QuadraticsFirst", weights: Array, first: bool) -> None:
        """Take in another one; quadratics of two that both have them, else the process."""
        if not other.samples:
            self.reweigh(weights)
        elif not self.samples:
            self.restore(other.state())
            self.reweigh(weights)
        elif isinstance(self._chosen, QuadraticFamily) and isinstance(other._chosen, QuadraticFamily):
            self._chosen.merge(other._chosen, weights, first)
            if self._rival is not None and other._rival is not None:
                self._rival.merge(other._rival, weights, first)
                self._compared = []
            else:
                self._settle(self._chosen)
        else:
            self._settle(self._as_process())
            self._chosen.merge(other._as_process(), weights, first)  # type: ignore[arg-type]

    def logs_gain(self, sign: float) -> float | None:
        return self._chosen.logs_gain(sign)

    def remembered(self) -> Slots:
        return self._chosen.remembered()

    def recent(self) -> LatestSamples:
        return self._chosen.recent()

    def state(self) -> dict[str, Array]:
        """Of the one that was chosen; of both, while both learn."""
        state = self._chosen.state()
        if self._rival is not None:
            state["compared"] = np.array(self._compared).reshape(-1, 3)
            state |= {f"{PROCESS}{name}": array for name, array in self._rival.state().items()}
        return state

    def restore(self, state: Mapping[str, Array]) -> None:
        """Without what only one of both has, it is of the other; a fleet has no process."""
        if "late" in state:
            process = self._process()
            process.restore(state)
            self._settle(process)
            return
        self._quadratics.restore(state)
        self._settle(self._quadratics)
        if "compared" in state:
            rival = self._process()
            rival.restore(under(PROCESS, state))
            if rival.samples != self.samples:
                raise broken(state, f"{PROCESS}clock", f"say {self.samples} samples, as quadratics do", rival.samples)
            compared = checked(state, FIELDS, {"n": range(COMPARED)})["compared"]
            self._compared = [(y, process, quadratics) for y, process, quadratics in compared.tolist()]
            self._rival = rival

    def _families(self) -> list[QuadraticFamily | GpFamily]:
        return [self._chosen] if self._rival is None else [self._chosen, self._rival]

    def _process(self) -> GpFamily:
        return GpFamily(self._layout, self._context_dim, self._columns, WINDOW_SAMPLES)

    def _as_process(self) -> GpFamily:
        """What a process makes of the latest samples."""
        if isinstance(self._chosen, GpFamily):
            return self._chosen
        if self._rival is not None:
            return self._rival
        process, recent, default = self._process(), self._chosen.recent(), self._layout.default
        process.reweigh(self._chosen.tuners.weights[0])
        for context, point, losses in zip(recent.contexts, recent.points, recent.losses, strict=True):
            ran = np.clip(point, 0.0, 1.0)
            asked = None if np.allclose(ran, default) else Asked(ran, None)
            process.learn(RunOutcome(ran, context, losses, False, asked), None, None)
        return process


def _ahead(compared: Array) -> Array:
    """[n] by how much the process was ahead, in log odds."""
    y, by_process, by_quadratics = compared.T
    apart = float(np.mean(np.abs(y - np.median(y))))
    exact = -math.log(max(EXACT * math.sqrt(2.0 * math.pi) * apart, SMALLEST))  # the density of being so exact
    ahead: Array = np.minimum(by_process, exact) - np.minimum(by_quadratics, exact)
    return ahead.clip(-MOST_EACH, MOST_EACH)


def _density(forecast: ByExpert, weights: Array) -> float:
    """The logarithm of that of a sample, by all experts."""
    return log_mean(forecast.log_densities, weights)
