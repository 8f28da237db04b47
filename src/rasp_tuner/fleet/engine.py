"""FleetEngine: what engine/engine.py does for one tuner, for many at once. Branches are masks over tuners.

ask    contexts -> believe -> choose -> guard, cost of switching, budget -> points
tell   metrics -> losses -> book the cost, forecast, calibrate -> learn -> scale of the metric
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rasp_tuner.engine.engine import (
    MOST_DEVIATIONS,
    SCALE_SAMPLES,
)
from rasp_tuner.engine.kernel.backend import Beliefs, Kernel, Told, kernel_for
from rasp_tuner.engine.kernel.choose import draws_needed
from rasp_tuner.engine.kernel.namespace import namespace
from rasp_tuner.engine.kernel.state import WINDOW_SAMPLES, Dims, Tensor
from rasp_tuner.engine.safety import EARN_BACK_STEPS, GUARD_DEVIATIONS, LEAST_VARIANCE, LIKELY, PROVEN, Against
from rasp_tuner.engine.scale import due
from rasp_tuner.fleet.draws import draws
from rasp_tuner.fleet.records import LOCATED
from rasp_tuner.fleet.tuners import Tuners


@dataclass(frozen=True)
class Settings:
    """As of a Tuner."""

    seed: int
    switching_cost: float
    guard: float | None


@dataclass(frozen=True)
class Samples:
    """What came of one point of each of n tuners."""

    points: Tensor  # [n, d]
    contexts: Tensor  # [n, c]
    values: Sequence[Tensor]  # K metrics [n]; those of failures mean nothing
    failed: Tensor  # [n] true or false
    asked: bool  # whether these were suggestions, which a budget counts


class FleetEngine:
    """Functions of n tuners, which they change in place, and one row of every argument for each of them."""

    def __init__(self, dims: Dims, default: Tensor, settings: Settings) -> None:
        self.dims, self.default, self.settings = dims, default, settings
        self.kernel: Kernel = kernel_for(dims, default)
        self._draws = draws_needed(dims)

    def propose(self, tuners: Tuners, contexts: Tensor) -> tuple[Tensor, Beliefs | None]:
        """The next points [n, d], and what was believed."""
        records, xp = tuners.records, namespace(contexts)
        drawn = draws(self.settings.seed, records.number, records.asks, self._draws)
        known = tuners.objective.seen > 0
        located = (records.guided == LOCATED)[:, None]  # the fleet knows better than the default
        start = xp.clip(self.default + 0.5 * xp.where(located, tuners.known("location"), 0.0), 0.0, 1.0)
        start = xp.where((records.failures > 0.0)[:, None], drawn[:, : self.dims.knobs], start)  # all so far failed
        second = known & (records.guided == LOCATED) & (tuners.known("count") < 2.0)
        careful = tuners.objective.seen > self.dims.knobs + 1  # before, nothing could be learned by standing still
        some_known, some_second, some_careful = anywhere(known, second, careful)
        if not some_known:
            return start, None
        belief, points, told = self.kernel.ask(tuners.state, contexts, drawn, tuners.rows)
        if some_second:  # no first probe, where the fleet knows where optima are
            points = xp.where(second[:, None], self.kernel.best(tuners.state, belief, tuners.rows), points)
            told = None
        if some_careful:
            points = self._checked(tuners, belief, points, careful, told)
        return xp.where(known[:, None], points, start), belief

    def learn(self, tuners: Tuners, samples: Samples, belief: Beliefs | None = None) -> None:
        """Take in one sample of each tuner, of which `belief` is from the ask, if there is one.

        A tuner that has seen nothing but failures does not come here with one more.
        """
        objective, xp = tuners.objective, namespace(samples.points)
        told, failed = ~samples.failed, samples.failed
        losses = xp.where(failed[:, None], objective.worst(), objective.losses_of(samples.values))
        changed = objective.observe_extreme(losses, told)
        waiting = told & (tuners.records.failures > 0.0)
        some_changed, some_waiting = anywhere(changed, waiting)
        if some_changed:
            tuners.reweigh(self.dims, changed)
            belief = None
        if belief is None:
            belief = self.kernel.believe(tuners.state, samples.contexts, tuners.rows)
        self._learn(tuners, belief, samples.points, samples.contexts, losses, failed, samples.asked)
        if some_waiting:
            self._learn_failures(tuners, waiting)

    def best_known(self, tuners: Tuners, contexts: Tensor) -> Tensor:
        """[n, d] the best points without exploring; the default while nothing better is proven."""
        xp, known = namespace(contexts), (tuners.objective.seen > 0)[:, None]
        if not xp.any(known):
            return xp.zeros_like(tuners.records.point) + self.default
        belief = self.kernel.believe(tuners.state, contexts, tuners.rows)
        return xp.where(known, self._proven(tuners, belief, PROVEN), self.default)

    def _checked(self, tuners: Tuners, belief: Beliefs, points: Tensor, careful: Tensor, told: Told | None) -> Tensor:
        """The points [n, d] unless guard, cost of switching or budget forbid them; `told` is of these, if known."""
        xp, own = namespace(points), tuners.objective.own_units
        if self.settings.guard is not None:
            points, told = self._replaced(tuners, belief, points, careful, self._within_guard, told), None
        if self.settings.switching_cost > 0.0:
            current = tuners.records.current
            both = xp.stack([current, points], axis=1)
            means, variances = self.kernel.predict(tuners.state, belief, both, tuners.rows)
            hoped = own(means[:, 0]) - own(means[:, 1] - xp.sqrt(variances[:, 1]))
            stay = careful & (EARN_BACK_STEPS * hoped < self.settings.switching_cost)
            points, told = xp.where(stay[:, None], current, points), None
        if tuners.budget is not None:
            points = self._replaced(tuners, belief, points, careful, _within_budget, told)
        return points

    def _replaced(
        self,
        tuners: Tuners,
        belief: Beliefs,
        points: Tensor,
        careful: Tensor,
        harmless: Callable[[Tuners, Against], Tensor],
        told: Told | None,
    ) -> Tensor:
        """Points that are harmless beside the default; else the best known if that is better; else the default."""
        xp = namespace(points)
        harmful = careful & ~harmless(tuners, self._beside(tuners, belief, points, told))
        if not isinstance(points, np.ndarray):  # to count them would cost a GPU more
            return xp.where(harmful[:, None], self._proven(tuners, belief, LIKELY), points)
        rows = xp.nonzero(harmful)[0]
        if 2 * len(rows) > len(points):
            return xp.where(harmful[:, None], self._proven(tuners, belief, LIKELY), points)
        if len(rows):
            some = tuners.take(rows) if tuners.rows is None else tuners.take_beside(rows)
            points[rows] = self._proven(some, self.kernel.some(belief, rows), LIKELY)
        return points

    def _within_guard(self, tuners: Tuners, offer: Against) -> Tensor:
        worst = offer.mean + GUARD_DEVIATIONS * offer.deviation
        return tuners.objective.relative(worst, offer.level) <= self.settings.guard

    def _proven(self, tuners: Tuners, belief: Beliefs, probability: float) -> Tensor:
        """[n, d] the best point known where it is so likely better than the default; else the default."""
        best = self.kernel.best(tuners.state, belief, tuners.rows)
        better = self._beside(tuners, belief, best).better >= probability
        return namespace(best).where(better[:, None], best, self.default)

    def _beside(self, tuners: Tuners, belief: Beliefs, points: Tensor, told: Told | None = None) -> Against:
        """Points compared with the default, with a deviation as wide as calibration asks for."""
        xp = namespace(points)
        if told is None:
            told = self.kernel.against(tuners.state, belief, points, tuners.rows)
        level, mean, variance, expected, own, unsure = told
        other = xp.any(points != self.default, axis=1)
        return Against(
            level=level,
            mean=xp.where(other, mean, 0.0),
            deviation=xp.where(other, xp.sqrt(variance), 0.0) * xp.clip(tuners.calibration.factor, 1.0, None),
            expected=xp.where(other, expected, level),
            variances=(xp.where(other, own, unsure), unsure),
        )

    def _account(
        self, tuners: Tuners, offer: Against, y: Tensor, noise: Tensor, failed: Tensor, moved: Tensor, counts: Tensor
    ) -> None:
        """Book what own suggestions cost against the default, as it is known after they ran."""
        assert tuners.budget is not None  # noqa: S101 - asked for only then
        xp, relative = namespace(y), tuners.objective.relative
        mean, deviation = offer.after(y, noise)
        mean, deviation = xp.where(failed, y - offer.level, mean), xp.where(failed, 0.0, deviation)
        price = relative(mean, offer.level)
        unsure = relative(mean + deviation, offer.level) - price
        tuners.budget.record(price, unsure, relative(y - offer.level, offer.level), moved, counts)

    def _learn(
        self,
        tuners: Tuners,
        belief: Beliefs,
        points: Tensor,
        contexts: Tensor,
        losses: Tensor,
        failed: Tensor,
        asked: bool,
    ) -> None:
        """Take in losses [n, C] of points that were suggested, if `asked`."""
        objective, xp = tuners.objective, namespace(points)
        told, y = ~failed, xp.sum(losses * objective.weights, axis=1)
        steps, noise = tuners.known("steps") + 0.0, noise_of(belief)
        counts = objective.seen > self.dims.knobs + 1  # the first looks are free
        open_ = told & (steps > 0.0) & objective.may_rescale
        begun = (steps == 0.0) & (tuners.records.guided > 0.0)
        some_counted, look, some_begun = anywhere(counts, open_, begun)
        book = asked and tuners.budget is not None and some_counted
        sample = points, contexts, losses, failed, y
        beside, mean, variance = self.kernel.tell(tuners.state, belief, *sample, rows=tuners.rows, beside=book or look)
        if book:
            moved = xp.any(points != self.default, axis=1)
            offer = self._beside(tuners, belief, points, beside)
            self._account(tuners, offer, y, noise, failed, moved, counts)
        surprise = xp.clip(
            xp.abs(y - mean) / xp.sqrt(xp.clip(variance + noise, LEAST_VARIANCE, None)), None, MOST_DEVIATIONS
        )
        tuners.calibration.observe(surprise, told & (steps >= 2.0) & (objective.seen >= 2))
        if some_begun:  # what the fleet knew of the level was not relative to the first sample
            tuners.know("level", xp.where(begun, tuners.known("level") - y, tuners.known("level")))
        changed = objective.observe(losses, told)
        due_now = open_
        if look:
            assert beside is not None  # noqa: S101 - asked for above
            objective.observe_level(y, beside[0], open_)
            due_now = open_ & due(objective.seen)
        some_changed, some_due = anywhere(changed, due_now)
        if look and some_due:
            changed = changed | objective.choose_scale(*recent(tuners, self.default), looked=due_now)
            some_changed = bool(xp.any(changed))
        if some_changed:
            tuners.reweigh(self.dims, changed)

    def _learn_failures(self, tuners: Tuners, waiting: Tensor) -> None:
        """Learn what failed before the first success, now that it is known what bad means."""
        xp, d = namespace(waiting), self.dims.knobs
        for i in range(tuners.records.failed_at.shape[1]):
            rows = xp.nonzero(waiting & (tuners.records.failures > float(i)))[0]
            if not len(rows):
                break
            part = tuners.take(rows) if tuners.rows is None else tuners.take_beside(rows)
            points, contexts = part.records.failed_at[:, i, :d], part.records.failed_at[:, i, d:]
            belief = self.kernel.believe(part.state, contexts, part.rows)
            failed = xp.ones_like(rows, dtype=xp.bool)
            self._learn(part, belief, points, contexts, part.objective.worst(), failed, False)
            tuners.put(rows, part)
        tuners.records.failures[...] = xp.where(waiting, 0.0, tuners.records.failures)


def anywhere(*masks: Tensor) -> list[bool]:
    """Of each mask [n], whether it is true for any tuner; asked together, since a GPU has to stop for an answer."""
    xp = namespace(masks[0])
    told: list[bool] = xp.any(xp.stack(masks), axis=1).tolist()
    return told


def noise_of(belief: Beliefs) -> Tensor:
    """[n] variance of one observation of y around its mean."""
    return namespace(belief.a).sum(belief.weights * belief.noises, axis=1) * belief.a**2


def recent(tuners: Tuners, default: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Contexts, points and losses [n, m, .] of the latest samples, oldest first, and which of them there are [n, m]."""
    state, steps, m = tuners.state, tuners.known("steps"), SCALE_SAMPLES
    xp = namespace(steps)
    sample = xp.astype(steps, xp.int64)[:, None] - m + xp.arange(m, device=steps.device)
    each, place = xp.arange(len(steps), device=steps.device)[:, None], sample % WINDOW_SAMPLES
    if tuners.rows is not None:
        each = tuners.rows[:, None]
    points = default + 0.5 * state.window_points[each, place]
    losses = state.window_losses[each, place] + tuners.known("first")[:, None]
    return state.window_contexts[each, place], points, losses, sample >= 0


def _within_budget(tuners: Tuners, offer: Against) -> Tensor:
    assert tuners.budget is not None  # noqa: S101 - asked for only then
    price = tuners.objective.relative(offer.mean, offer.level)
    worse = tuners.objective.relative(offer.mean + offer.deviation, offer.level)
    return tuners.budget.allows(price, worse - price)
