"""FleetEngine: what engine/engine.py does for one tuner, for many at once. Branches are masks over tuners.

ask    contexts -> believe -> choose -> guard, cost of switching, budget -> points
tell   metrics -> losses -> book the cost, forecast, calibrate -> learn -> scale of the metric
Stops and what was measured are kept here, in NumPy, wherever the tuners compute.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import numpy as np

from rasp_tuner.base.numerics import Array
from rasp_tuner.contexts.context_metric import z_of_many
from rasp_tuner.engine import intake
from rasp_tuner.engine.engine import SCALE_SAMPLES
from rasp_tuner.engine.kernel.batch import Beliefs, BesideDefault
from rasp_tuner.engine.kernel.draws import DrawKeys, draws
from rasp_tuner.engine.kernel.masks import Flags, Rows
from rasp_tuner.engine.kernel.state import WINDOW_SAMPLES, Dims, Places
from rasp_tuner.engine.measured_bill import MeasuredRun
from rasp_tuner.engine.safety import EARN_BACK_STEPS, Against, cost, within_budget, within_guard
from rasp_tuner.engine.scalar_or_batch import BLOCK_TUNERS
from rasp_tuner.engine.scale import due
from rasp_tuner.engine.stops import can_stop, losses_from, stop_of
from rasp_tuner.engine.trials import Trials
from rasp_tuner.fleet.intake import FleetLearners, check_points
from rasp_tuner.fleet.records import LOCATED
from rasp_tuner.fleet.tuners import Tuners


@dataclass(frozen=True)
class Settings:
    """As of a Tuner."""

    seed: int
    switching_cost: float
    guard: float | None


@dataclass(frozen=True)
class FleetSamples:
    """What came of one point of each of n tuners."""

    points: Array  # [n, d]
    contexts: Array  # [n, c]
    values: Sequence[Array]  # K metrics [n]; those of failures mean nothing
    failed: Flags  # [n]
    asked: bool  # whether these were suggestions, which a budget counts
    stopped: Flags  # [n] whether runs were ended, and would have come to these values or worse
    stops: Array  # [n] the costs from which on they should have been ended; infinite where there is none

    def some(self, places: Rows) -> "FleetSamples":
        own = [column[places] for column in self.values]
        points, contexts, stops = (array[places] for array in (self.points, self.contexts, self.stops))
        return FleetSamples(points, contexts, own, self.failed[places], self.asked, self.stopped[places], stops)

    def trials(self, losses: Array) -> Trials:
        """The same, by their losses [n, C]; none was ended."""
        asked, none = np.full(len(self.points), self.asked), np.full(len(self.points), np.inf)
        return Trials(self.points, self.contexts, losses, self.failed, self.points, asked, self.stops, none)


class FleetEngine:
    """Functions of n tuners, which they change in place, and one row of every argument for each of them."""

    def __init__(self, dims: Dims, default: Array, settings: Settings) -> None:
        self.dims, self.default, self.settings = dims, default, settings

    def propose(self, tuners: Tuners, contexts: Array) -> tuple[Array, Array, Beliefs | None]:
        """The next points [n, d], the costs [n] from which on their runs should be ended, and what was believed."""
        records, seen = tuners.records, tuners.objective.seen
        known, located = seen > 0, records.guided == LOCATED
        if not known.any():
            return self._starts(tuners), np.full(tuners.size, np.inf), None
        keys = DrawKeys(self.settings.seed, records.number, records.asks)
        beliefs, wanted, versus = tuners.batch.ask(contexts, keys, tuners.rows)
        points, offer = wanted, cast("BesideDefault | None", versus)
        second = known & located & (tuners.known("count") < 2.0) if located.any() else located
        if second.any():  # no first probe, where the fleet knows where optima are
            points, offer = np.where(second[:, None], beliefs.best(), points), None
        careful = seen > self.dims.knobs + 1  # before, nothing could be learned by standing still
        if careful.any():
            points = self._checked(tuners, beliefs, points, careful, offer)
        if tuners.budget is not None:
            points = np.where(tuners.stops.many[:, None], self.default, points)
        best = partial(self._known_best, tuners, beliefs)
        points = check_points(tuners, self.default, points, best)
        if not known.all():
            points = np.where(known[:, None], points, self._starts(tuners))
        return points, self._stops(tuners, beliefs, points, wanted, versus), beliefs

    def _stops(self, tuners: Tuners, beliefs: Beliefs, points: Array, wanted: Array, versus: BesideDefault) -> Array:
        """[n] the costs from which on runs of points should be ended, in the metric's own units; infinite for none.

        `versus` is of the points that the tuners wanted.
        """
        stops = np.full(tuners.size, np.inf)
        if tuners.budget is None or tuners.measured is None or not can_stop(tuners.objective):
            return stops
        has = (tuners.objective.seen > 0) & self._other(points)
        moved = np.flatnonzero(has & (points != wanted).any(axis=1))
        if len(moved):
            instead = beliefs.some(moved).versus_default(points[moved])
            versus = BesideDefault(*(column.copy() for column in versus))
            for column, new in zip(versus, instead, strict=True):
                column[moved] = new
        offer, left = self._beside(tuners, beliefs, points, versus), tuners.budget.left(tuners.budget.steps)
        stop = stop_of(tuners.objective, offer, beliefs.noise(), tuners.wider, left)
        stops[has] = tuners.measured.lowered(stop)[has]
        return stops

    def _other(self, points: Array) -> Flags:
        """[n] whether points [n, d] are not the default."""
        other: Flags = np.any(points != self.default, axis=1)
        return other

    def _known_best(self, tuners: Tuners, beliefs: Beliefs, places: Places) -> Array:
        """[m, d] the best points known of some tuners; where they run, if a change would cost more than it gains."""
        part, some = tuners.some(places), beliefs.some(places)
        points = self._proven(part, some)
        return self._worth(part, some, points) if self.settings.switching_cost > 0.0 else points

    def _starts(self, tuners: Tuners) -> Array:
        """[n, d] where tuners without samples begin: at the default; at the usual optimum, if the fleet knows it."""
        records = tuners.records
        located, failing = (records.guided == LOCATED)[:, None], records.failures > 0.0
        start = np.clip(self.default + 0.5 * np.where(located, tuners.known("location"), 0.0), 0.0, 1.0)
        if failing.any():  # anywhere else than where all runs have failed so far
            keys = DrawKeys(self.settings.seed, records.number[failing], records.asks[failing])
            start[failing] = draws(keys, self.dims.knobs)
        return start

    def learn(self, tuners: Tuners, samples: FleetSamples, belief: Beliefs | None = None) -> None:
        """Take in one sample of each tuner, of which `belief` is from the ask, if there is one.

        A tuner that has seen nothing but failures does not come here with one more.
        """
        stopped = samples.stopped & (tuners.objective.seen > 0)  # else there is nothing to compare it with
        if stopped.any():
            self._some(tuners, np.flatnonzero(stopped), samples, belief, self._learn_bounds)
            self._some(tuners, np.flatnonzero(~stopped), samples, belief, self._learn_values)
        else:
            self._learn_values(tuners, samples, belief)

    @staticmethod
    def _some(
        tuners: Tuners,
        places: Places,
        samples: FleetSamples,
        belief: Beliefs | None,
        learn: Callable[[Tuners, FleetSamples, Beliefs | None], None],
    ) -> None:
        """Have some of the tuners learn their samples."""
        if len(places):
            part = tuners.some(places)
            learn(part, samples.some(places), None if belief is None else belief.some(places))
            tuners.put(places, part)

    def _learn_values(self, tuners: Tuners, samples: FleetSamples, belief: Beliefs | None) -> None:
        """Learn what runs came to."""
        objective, failed = tuners.objective, samples.failed
        losses = objective.losses_of(samples.values)
        if failed.any():
            losses = np.where(failed[:, None], self._of_failures(tuners, samples.contexts, belief), losses)
        waiting = ~failed & ~samples.stopped & (tuners.records.failures > 0.0)
        intake.tell(self._learners(tuners, belief), samples.trials(losses))
        if waiting.any():
            self._learn_failures(tuners, waiting)

    def _of_failures(self, tuners: Tuners, contexts: Array, belief: Beliefs | None = None) -> Array:
        """Losses [n, C] that failures count as, by what the default is expected to come to."""
        believed = tuners.believe(contexts) if belief is None else belief
        levels = believed.predict(np.tile(self.default, (tuners.size, 1, 1)))[0][:, 0]
        return tuners.losses.bounded(tuners.objective.of_failure(levels))

    def _learn_bounds(self, tuners: Tuners, samples: FleetSamples, belief: Beliefs | None) -> None:
        """Learn that runs were ended: what is expected of them beyond that. No range or scale moves."""
        objective = tuners.objective
        believed = tuners.believe(samples.contexts) if belief is None else belief
        told = objective.losses_of(samples.values)
        means, variances = believed.predict(samples.points[:, None])
        losses = losses_from(objective, told, means[:, 0], variances[:, 0] + believed.noise())
        learners = self._learners(tuners, believed)
        trials = replace(samples.trials(tuners.losses.bounded(losses)), ended=objective.target(told))
        intake.see(learners, trials, keep=False)
        learners.learn_trials(trials, again=False)

    def _learners(self, tuners: Tuners, belief: Beliefs | None) -> FleetLearners:
        return FleetLearners(self.dims, self.default, self._learn, tuners, belief)

    def best_known(self, tuners: Tuners, contexts: Array) -> Array:
        """[n, d] the best points without exploring; the default while nothing better is proven."""
        known = (tuners.objective.seen > 0)[:, None]
        if not known.any():
            return np.tile(self.default, (tuners.size, 1))
        return np.where(known, self._proven(tuners, tuners.believe(contexts)), self.default)

    def _checked(
        self, tuners: Tuners, belief: Beliefs, points: Array, careful: Flags, versus: BesideDefault | None
    ) -> Array:
        """The points [n, d] unless guard, cost of switching or budget forbid them; `versus` is of these, if known."""
        if self.settings.guard is not None:
            harmless = partial(within_guard, tuners.objective, self.settings.guard)
            points, versus = self._replaced(tuners, belief, points, careful, harmless, versus), None
        if self.settings.switching_cost > 0.0:
            points, versus = np.where(careful[:, None], self._worth(tuners, belief, points), points), None
        if tuners.budget is not None:
            harmless = partial(within_budget, tuners.objective, tuners.budget)
            points = self._replaced(tuners, belief, points, careful, harmless, versus)
            points = self._audited(tuners, points, careful)
        return points

    def _audited(self, tuners: Tuners, points: Array, careful: Flags) -> Array:
        """The points [n, d]; or the default, if its measured cost asks for that."""
        if tuners.budget is None or tuners.measured is None or not tuners.objective.one:
            return points
        binds = careful & tuners.stops.used
        if binds.any():
            spent, audit = tuners.measured.needs_default(tuners.budget.share)
            points = np.where((binds & (spent | audit))[:, None], self.default, points)
        return points

    def _worth(self, tuners: Tuners, belief: Beliefs, points: Array) -> Array:
        """The points [n, d]; but where tuners run, if a change may not earn back what it costs."""
        current, own = tuners.records.current, tuners.objective.own_units
        means, variances = belief.predict(np.stack([current, points], axis=1))
        hoped = own(means[:, 0]) - own(means[:, 1] - np.sqrt(variances[:, 1]))
        stay = EARN_BACK_STEPS * hoped < self.settings.switching_cost
        return np.where(stay[:, None], current, points)

    def _replaced(
        self,
        tuners: Tuners,
        belief: Beliefs,
        points: Array,
        careful: Flags,
        harmless: Callable[[Against], Flags],
        versus: BesideDefault | None,
    ) -> Array:
        """Points that are harmless beside the default; else the best known if that is, and better; else the default."""
        harmful = np.flatnonzero(careful & ~harmless(self._beside(tuners, belief, points, versus)))
        if len(harmful):
            points = points.copy()
            points[harmful] = self._proven(tuners.some(harmful), belief.some(harmful))
            bad = ~harmless(self._beside(tuners, belief, points))[harmful]
            points[harmful[bad]] = self.default
        return points

    def _proven(self, tuners: Tuners, belief: Beliefs) -> Array:
        """[n, d] the best point known where that is proven to be better than the default; else the best of the latest
        that ran, where that is; else the default."""
        best = belief.best()
        others = np.flatnonzero(~self._beside(tuners, belief, best).proven)
        for begin in range(0, len(others), BLOCK_TUNERS):
            places = others[begin : begin + BLOCK_TUNERS]
            part, some = tuners.some(places), belief.some(places)
            points = best_tried(part, some, self.default)
            better = self._beside(part, some, points).proven
            best[places] = np.where(better[:, None], points, self.default)
        return best

    def _beside(self, tuners: Tuners, belief: Beliefs, points: Array, versus: BesideDefault | None = None) -> Against:
        """Points compared with the default, with a deviation as wide as calibration asks for."""
        level, mean, variance, expected, own, unsure = belief.versus_default(points) if versus is None else versus
        other = self._other(points)
        return Against(
            level=level,
            mean=np.where(other, mean, 0.0),
            deviation=np.where(other, np.sqrt(variance), 0.0) * tuners.wider,
            expected=np.where(other, expected, level),
            variances=(np.where(other, own, unsure), unsure),
        )

    def _learn(self, tuners: Tuners, trials: Trials, beliefs: Beliefs | None, again: bool) -> None:
        """Book, score and learn trials; what is learned again was booked before."""
        points, contexts, losses, failed, _, asked, stops, ends = vars(trials).values()
        objective, belief = tuners.objective, tuners.believe(contexts) if beliefs is None else beliefs
        ended, y = ends < np.inf, (losses * objective.weights).sum(axis=1)
        told = ~failed & ~ended
        if not again:
            tuners.stops.observe(ended, told & asked & (objective.own_units(y) > stops))
        steps, noise = tuners.known("steps"), belief.noise()
        counts = asked & (objective.seen > self.dims.knobs + 1)  # the first looks are free
        open_ = told & (steps > 0.0) & objective.may_rescale
        begun = (steps == 0.0) & (tuners.records.guided > 0.0)
        versus, mean, variance = belief.tell(points, contexts, losses, failed, y)
        if tuners.budget is not None and asked.any():
            came = np.where(ended, ends, y)
            offer = self._beside(tuners, belief, points, versus)
            price = cost(objective, offer, came, noise, failed | ended)  # of those that were ended, what it cost
            tuners.budget.record(price, counts)
            run = MeasuredRun(came, ~self._other(points), failed, ended)
            self._measure(tuners, run, offer, noise, asked, steps > 0.0)
        tuners.calibration.observe(y - mean, told & (steps >= 2.0) & (objective.seen >= 2), variance + noise)
        if begun.any():  # what the fleet knew of the level was not relative to the first sample
            tuners.know("level", tuners.known("level") - np.where(begun, y, 0.0))
        changed = objective.observe(losses, told)
        if open_.any():
            surprise = np.where(steps >= 2.0, y - mean, 0.0)  # levels are what came
            objective.observe_level(versus.level + surprise, open_)
            changed = changed | self._rescaled(tuners, open_ & due(objective.seen))
        if changed.any():
            tuners.reweigh(changed)

    @staticmethod
    def _measure(tuners: Tuners, run: MeasuredRun, offer: Against, noise: Array, asked: Flags, beside: Flags) -> None:
        """Set runs that were asked for beside the default; where nothing ran before, there is nothing beside."""
        if tuners.measured is None or not tuners.objective.one:
            return
        if not beside.all():
            tuners.measured.begin(tuners.objective, run, asked & ~beside)
        tuners.measured.learn(tuners.objective, run, offer, noise, tuners.wider, asked & beside)

    def _rescaled(self, tuners: Tuners, looked: Flags) -> Flags:
        """[n] whether the scale of the metric changed, of the tuners whose turn it is to look at it."""
        changed, turns = np.zeros_like(looked), np.flatnonzero(looked)
        for begin in range(0, len(turns), BLOCK_TUNERS):
            places = turns[begin : begin + BLOCK_TUNERS]
            part = tuners.some(places)
            contexts, losses, used = recent(part)
            z = z_of_many(contexts, used)
            changed[places] = part.objective.choose_scale(z, losses, used, looked[places])
            tuners.put(places, part)
        return changed

    def _learn_failures(self, tuners: Tuners, waiting: Flags) -> None:
        """Learn what failed before the first success, now that it is known what bad means."""
        d = self.dims.knobs
        for i in range(tuners.records.failed_at.shape[1]):
            places = np.flatnonzero(waiting & (tuners.records.failures > float(i)))
            if not len(places):
                break
            part = tuners.some(places)
            points, contexts = part.records.failed_at[:, i, :d], part.records.failed_at[:, i, d:]
            yes, none = np.ones(len(places), dtype=bool), np.full(len(places), np.inf)
            samples = FleetSamples(points, contexts, [], yes, False, ~yes, none)
            losses = self._of_failures(part, contexts)
            intake.see_and_learn(self._learners(part, None), samples.trials(losses))
            tuners.put(places, part)
        tuners.records.failures[waiting] = 0.0


def best_tried(tuners: Tuners, belief: Beliefs, default: Array) -> Array:
    """[n, d] of the latest points that ran, those of which the least is expected; the default where none did."""
    ran = default + 0.5 * tuners.known("window_points")
    used = np.arange(ran.shape[1]) < tuners.known("steps")[:, None]
    ran = ran[:, : int(used.sum(axis=1).max(initial=0))]
    if not ran.shape[1]:
        return np.tile(default, (tuners.size, 1))
    means = np.where(used[:, : ran.shape[1]], belief.predict(ran)[0], np.inf)
    best: Array = np.where(used[:, :1, None], ran, default)[np.arange(tuners.size), means.argmin(axis=1)]
    return best


def recent(tuners: Tuners) -> tuple[Array, Array, Flags]:
    """Contexts and losses [n, m, .] of the latest samples, oldest first, and which of them there are [n, m]."""
    sample = tuners.known("steps").astype(np.int64)[:, None] - SCALE_SAMPLES + np.arange(SCALE_SAMPLES)
    each, place = np.arange(tuners.size)[:, None], sample % WINDOW_SAMPLES
    contexts, losses = (tuners.known(name)[each, place] for name in ("window_contexts", "window_losses"))
    return contexts, losses + tuners.known("first")[:, None], sample >= 0
