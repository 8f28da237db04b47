"""What stands between what the tuners of a fleet are told and what they learn: engine/intake.py, for many at once."""

import logging
from collections.abc import Callable

import numpy as np

from rasp_tuner.base.numerics import SMALLEST, Array
from rasp_tuner.engine.kernel.batch import Beliefs
from rasp_tuner.engine.kernel.believe import believe
from rasp_tuner.engine.kernel.learn import remembered, start
from rasp_tuner.engine.kernel.masks import Flags
from rasp_tuner.engine.kernel.restate import mend_scales, restate
from rasp_tuner.engine.kernel.state import Dims, Places, State, blank
from rasp_tuner.engine.quadratic.family import KEPT
from rasp_tuner.engine.trials import Trials
from rasp_tuner.fleet.tuners import Tuners

log = logging.getLogger("rasp_tuner.fleet")
Learn = Callable[[Tuners, Trials, Beliefs | None, bool], None]


class FleetLearners:
    """Tuners as the intake sees them; `learn` is what comes after it, `beliefs` are good until they learn."""

    def __init__(self, dims: Dims, default: Array, learn: Learn, tuners: Tuners, beliefs: Beliefs | None) -> None:
        self.dims, self._default, self._learn = dims, default, learn
        self._tuners, self._beliefs, self.objective = tuners, beliefs, tuners.objective
        self.contexts, self.losses, self.watch, self.notes = tuners.contexts, tuners.losses, tuners.watch, tuners.notes

    def some(self, places: Places) -> "FleetLearners":
        return FleetLearners(self.dims, self._default, self._learn, self._tuners.some(places), None)

    def put(self, places: Places, part: "FleetLearners") -> None:
        self._tuners.put(places, part._tuners)

    def samples(self) -> Array:
        return self._tuners.known("steps")

    def surprise(self, trials: Trials) -> tuple[Array, Array]:
        tuners = self._tuners
        believed = tuners.believe(trials.contexts) if self._beliefs is None else self._beliefs
        means, variances = believed.predict(trials.points[:, None])
        unsure = np.sqrt(np.maximum(variances[:, 0] + believed.noise(), SMALLEST))
        deviation: Array = unsure * np.maximum(tuners.calibration.factor, 1.0)
        return (trials.losses * self.objective.weights).sum(axis=1) - means[:, 0], deviation

    def likeness(self, contexts: Array) -> Array:
        state = self._tuners.batch.take(self._tuners.rows)
        likeness: Array = believe(self.dims, state, self._default, contexts).kernels[:, 2].max(axis=1)
        return likeness

    def met(self) -> list[Array]:
        state = self._tuners.batch.take(self._tuners.rows)
        return [remembered(state, i)[0] for i in range(self._tuners.size)]

    def differs(self, aside: Array) -> Flags:
        """Each waits for one answer at a time, and asks for what had run where this is in doubt."""
        return np.ones(len(aside), dtype=bool)

    def learn_trials(self, trials: Trials, again: bool) -> None:
        self._learn(self._tuners, trials, self._beliefs, again)

    def rescaled(self, changed: Flags, again: bool) -> None:
        del again
        self._tuners.reweigh(changed)
        self._beliefs = None

    def restate(self, factors: Array, shifts: Array) -> None:
        tuners, n = self._tuners, self._tuners.size
        state = tuners.batch.take(tuners.rows)
        restate(self.dims, state, np.arange(n), factors, shifts, self.objective.weights)
        tuners.batch.put(tuners.rows, state)
        if tuners.measured is not None:
            tuners.measured.forget_level()
        log.warning("a metric of %d tuners has changed: all that they learned is seen in the new unit", n)

    def forget(self) -> None:
        self.objective.forget()
        state: State = blank(self.dims, self._tuners.size, start(self.dims))
        for name in KEPT:
            getattr(state, name)[...] = self._tuners.known(name)
        state.weights[...] = self.objective.weights
        self._tuners.batch.put(self._tuners.rows, state)

    def bound_contexts(self, moved: Places, mend: Places) -> None:
        batch, rows = self._tuners.batch, self._tuners.rows
        batch.write("context_least", rows[moved], self.contexts.least[moved])
        batch.write("context_most", rows[moved], self.contexts.most[moved])
        if len(mend):
            state = batch.take(rows[mend])
            mend_scales(self.dims, state, np.arange(len(mend)))
            batch.put(rows[mend], state)
            self._beliefs = None


def check_points(tuners: Tuners, default: Array, points: Array, best: Callable[[Places], Array]) -> Array:
    """Points [n, d] to try; where trials are put aside, what shows whether a metric has changed its unit.

    `best` gives the best points known of some tuners.
    """
    places = np.flatnonzero(tuners.watch.count > 0.0)
    if not len(places):
        return points
    part = tuners.some(places)
    own, others = part.watch.at_default(default)
    check = best(places)
    check[(others > 1.0) & (own == 0.0)] = default
    stuck = (own > 1.0) & (others == 0.0) & (check == default).all(axis=1)
    for i in np.flatnonzero(stuck):
        check[i] = _best_tried(part.some(np.array([i])), default)
    points = points.copy()
    points[places] = check
    return points


def _best_tried(one: Tuners, default: Array) -> Array:
    """[d] the best of the latest points of a tuner that are not the default; else the default."""
    seen = int(min(one.known("steps")[0], one.known("window_points").shape[1]))
    u, losses = one.known("window_points")[0, :seen], one.known("window_losses")[0, :seen]
    tried = (u != 0.0).any(axis=1)
    if not tried.any():
        return default
    y = losses[tried] @ one.objective.weights[0]
    best: Array = default + 0.5 * u[tried][int(y.argmin())]
    return best
