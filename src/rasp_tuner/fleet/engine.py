"""FleetEngine: what engine/engine.py does for one tuner, for many at once. Branches are masks over tuners.

ask    contexts -> believe -> choose -> guard, cost of switching, budget -> points
tell   metrics -> losses -> book the cost, forecast, calibrate -> learn -> scale of the metric
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from rasp_tuner.base.numerics import Array
from rasp_tuner.contexts.context_metric import z_of_many
from rasp_tuner.engine import intake
from rasp_tuner.engine.engine import SCALE_SAMPLES
from rasp_tuner.engine.kernel.batch import Beliefs, BesideDefault
from rasp_tuner.engine.kernel.draws import DrawKeys, draws
from rasp_tuner.engine.kernel.masks import Flags
from rasp_tuner.engine.kernel.state import WINDOW_SAMPLES, Dims, Places
from rasp_tuner.engine.safety import EARN_BACK_STEPS, Against, cost, within_budget, within_guard
from rasp_tuner.engine.scalar_or_batch import BLOCK_TUNERS
from rasp_tuner.engine.scale import due
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


class FleetEngine:
    """Functions of n tuners, which they change in place, and one row of every argument for each of them."""

    def __init__(self, dims: Dims, default: Array, settings: Settings) -> None:
        self.dims, self.default, self.settings = dims, default, settings

    def propose(self, tuners: Tuners, contexts: Array) -> tuple[Array, Beliefs | None]:
        """The next points [n, d], and what was believed."""
        records, seen = tuners.records, tuners.objective.seen
        known, located = seen > 0, records.guided == LOCATED
        if not known.any():
            return self._starts(tuners), None
        keys = DrawKeys(self.settings.seed, records.number, records.asks)
        beliefs, points, versus = tuners.batch.ask(contexts, keys, tuners.rows)
        offer: BesideDefault | None = versus
        second = known & located & (tuners.known("count") < 2.0) if located.any() else located
        if second.any():  # no first probe, where the fleet knows where optima are
            points, offer = np.where(second[:, None], beliefs.best(), points), None
        careful = seen > self.dims.knobs + 1  # before, nothing could be learned by standing still
        if careful.any():
            points = self._checked(tuners, beliefs, points, careful, offer)
        best = partial(self._known_best, tuners, beliefs)
        points = check_points(tuners, self.default, points, best)
        return points if known.all() else np.where(known[:, None], points, self._starts(tuners)), beliefs

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
        objective, failed = tuners.objective, samples.failed
        losses = np.where(failed[:, None], objective.worst(), objective.losses_of(samples.values))
        waiting = ~failed & (tuners.records.failures > 0.0)
        asked, points = np.full(tuners.size, samples.asked), samples.points
        intake.tell(self._learners(tuners, belief), Trials(points, samples.contexts, losses, failed, points, asked))
        if waiting.any():
            self._learn_failures(tuners, waiting)

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
        harmful = careful & ~harmless(self._beside(tuners, belief, points, versus))
        if harmful.any():
            best = belief.best()
            offer = self._beside(tuners, belief, best)
            instead = np.where((offer.proven & harmless(offer))[:, None], best, self.default)
            points = np.where(harmful[:, None], instead, points)
        return points

    def _proven(self, tuners: Tuners, belief: Beliefs) -> Array:
        """[n, d] the best point known where it is proven to be better than the default; else the default."""
        best = belief.best()
        better = self._beside(tuners, belief, best).proven
        return np.where(better[:, None], best, self.default)

    def _beside(self, tuners: Tuners, belief: Beliefs, points: Array, versus: BesideDefault | None = None) -> Against:
        """Points compared with the default, with a deviation as wide as calibration asks for."""
        level, mean, variance, expected, own, unsure = belief.versus_default(points) if versus is None else versus
        other = np.any(points != self.default, axis=1)
        return Against(
            level=level,
            mean=np.where(other, mean, 0.0),
            deviation=np.where(other, np.sqrt(variance), 0.0) * np.clip(tuners.calibration.factor, 1.0, None),
            expected=np.where(other, expected, level),
            variances=(np.where(other, own, unsure), unsure),
        )

    def _learn(self, tuners: Tuners, trials: Trials, beliefs: Beliefs | None) -> None:
        """Book, score and learn trials."""
        points, contexts, losses, failed, _, asked = vars(trials).values()
        objective, belief = tuners.objective, tuners.believe(contexts) if beliefs is None else beliefs
        told, y = ~failed, (losses * objective.weights).sum(axis=1)
        steps, noise = tuners.known("steps"), belief.noise()
        counts = asked & (objective.seen > self.dims.knobs + 1)  # the first looks are free
        open_ = told & (steps > 0.0) & objective.may_rescale
        begun = (steps == 0.0) & (tuners.records.guided > 0.0)
        versus, mean, variance = belief.tell(points, contexts, losses, failed, y)
        if tuners.budget is not None and counts.any():
            offer = self._beside(tuners, belief, points, versus)
            tuners.budget.record(cost(objective, offer, y, noise, failed), counts)
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
            failed = np.ones(len(places), dtype=bool)
            trials = Trials(points, contexts, part.objective.worst(), failed, points, ~failed)
            intake.see_and_learn(self._learners(part, None), trials)
            tuners.put(places, part)
        tuners.records.failures[waiting] = 0.0


def recent(tuners: Tuners) -> tuple[Array, Array, Flags]:
    """Contexts and losses [n, m, .] of the latest samples, oldest first, and which of them there are [n, m]."""
    sample = tuners.known("steps").astype(np.int64)[:, None] - SCALE_SAMPLES + np.arange(SCALE_SAMPLES)
    each, place = np.arange(tuners.size)[:, None], sample % WINDOW_SAMPLES
    contexts, losses = (tuners.known(name)[each, place] for name in ("window_contexts", "window_losses"))
    return contexts, losses + tuners.known("first")[:, None], sample >= 0
