"""QuadraticsFirst: knobs on a continuum have quadratics, unless a process of any shape predicts far better.

Where costs are a bowl, quadratics know it after a few runs. Real systems have cliffs, steps and plateaus, too, which no
bowl tells of: quadratics call them false measurements, and run into them again. So both learn the first samples, and
each says before a sample how likely it is. The process takes over for good once those samples were far likelier by it,
and the latter half of them alone, since luck with one sample is soon told. One sample counts no more than MOST_EACH.

symbol   meaning
ahead    [n] log density of each of the latest n samples by the process, less that by quadratics
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from rasp_tuner.base.numerics import Array
from rasp_tuner.base.state_checks import Field, checked, under
from rasp_tuner.engine.evidence import log_mean
from rasp_tuner.engine.family import Bill, ByExpert, Prices, RunOutcome
from rasp_tuner.engine.gp.family import GpFamily
from rasp_tuner.engine.kernel.state import WINDOW_SAMPLES
from rasp_tuner.engine.quadratic.family import QuadraticFamily
from rasp_tuner.optimizer.optimizer import Asked, LatestSamples
from rasp_tuner.space import Layout
from rasp_tuner.types import Slots

COMPARED = 32  # samples, at most: later the process costs more time than it is worth
FEWEST_COMPARED = 8  # samples, before there is a latter half to speak of
FAR_AHEAD = 14.0  # log odds, of all samples and of the latter half: a bowl found early is worth more than its density
MOST_EACH = 8.0  # log odds that one sample may add
PROCESS = "process/"  # in a snapshot, while both learn

FIELDS = {"ahead": Field(("n",), -MOST_EACH, MOST_EACH)}


class QuadraticsFirst:
    """A family that is one of two; while both learn, the process is kept beside the quadratics."""

    def __init__(self, layout: Layout, context_dim: int, columns: int) -> None:
        self._layout, self._context_dim, self._columns = layout, context_dim, columns
        self._quadratics = QuadraticFamily(layout.default, context_dim, columns)
        self._chosen: QuadraticFamily | GpFamily = self._quadratics
        self._rival: GpFamily | None = self._process()  # None once it is decided
        self._ahead: list[float] = []

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
        rival = self._rival
        if rival is not None and belief is not None and forecast is not None and trial.ended is None:
            y = float(trial.losses @ rival.weights)
            theirs = rival.believe(trial.context)
            ahead = _density(theirs.forecast(trial.point, y), theirs.weights) - _density(forecast, belief.weights)
            self._ahead.append(min(max(ahead, -MOST_EACH), MOST_EACH))
        self._chosen.learn(trial, belief, forecast)
        if rival is not None:
            rival.learn(trial, None, None)
            self._decide(rival)

    def _decide(self, rival: GpFamily) -> None:
        n = len(self._ahead)
        if n >= FEWEST_COMPARED and min(sum(self._ahead), sum(self._ahead[n // 2 :])) > FAR_AHEAD:
            self._settle(rival)
        elif n >= COMPARED:
            self._settle(self._quadratics)

    def _settle(self, chosen: QuadraticFamily | GpFamily) -> None:
        self._chosen, self._rival, self._ahead = chosen, None, []

    def bill(self, prices: Prices) -> Bill | None:
        return self._chosen.bill(prices)

    def reweigh(self, weights: Array) -> None:
        """Densities so far were those of another target."""
        self._ahead = []
        for family in self._families():
            family.reweigh(weights)

    def restate(self, factors: Array, shifts: Array, weights: Array) -> None:
        self._ahead = []
        for family in self._families():
            family.restate(factors, shifts, weights)

    def forget(self) -> None:
        self._ahead = []
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
                self._ahead = []
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
            state["ahead"] = np.array(self._ahead)
            state |= {f"{PROCESS}{name}": array for name, array in self._rival.state().items()}
        return state

    def restore(self, state: Mapping[str, Array]) -> None:
        """Without what only one of both has, it is of the other; a fleet has no process."""
        if "theta" in state:
            process = self._process()
            process.restore(state)
            self._settle(process)
            return
        self._quadratics.restore(state)
        self._settle(self._quadratics)
        if "ahead" in state:
            rival = self._process()
            rival.restore(under(PROCESS, state))
            self._ahead = checked(state, FIELDS, {"n": range(COMPARED)})["ahead"].tolist()
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


def _density(forecast: ByExpert, weights: Array) -> float:
    """The logarithm of that of a sample, by all experts."""
    return log_mean(forecast.log_densities, weights)
