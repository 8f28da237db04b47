"""FindBelief: what to look at where only the end counts: a number of runs, then the best setting found is used.

A look is worth what the recommendation gains by it, E[max(best - y, 0)]. For a setting that was never measured here, y
is Student's t around the model's forecast: the model may be wrong. For one that was, y is normal, and moves only as far
as one more run moves its mean. So a setting runs again only to tell it from the best, and all other runs go to
something new. Every value of a knob with few values, and every quarter of the range of another, runs once in each
situation: the first looks go to them. Later every second look goes to values that never ran beside good ones: what went
with them may have spoilt them. What came out far better elsewhere than was expected, which the model takes for an
outlier, runs here next. No setting that is known runs as a new one.

Where there are limits, the best is the best that keeps them, and a look gains what it may improve on that times the
probability that it keeps them: a run that breaks a limit costs nothing. While nothing surely keeps them, what ran
counts as far as it keeps them, and else as the worst of all: a look that may keep them has to be a good one, too.

What was measured here outweighs what the model makes of all else. Of a setting that was measured here

    mean = (l / (c V) + y / N) / (1 / (c V) + 1 / N)

symbol   meaning
l, V     forecast from all other rows, and its variance
y, N     mean of its runs here, and the variance of that: noise / runs, the noise of repeats where there are any
c        how much larger than V + N the squared errors of such forecasts are here; at least 1

Means and variances are in units of a (model.py).
"""

import math
from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

import numpy as np

from rasp_tuner.base.common_constants import LIKELY, NINE_IN_TEN
from rasp_tuner.base.numerics import Array
from rasp_tuner.engine.family import Choice
from rasp_tuner.engine.gp.belief import AT_ONCE, BASELINE, GpBelief, PointAndDefault, Recalled
from rasp_tuner.engine.gp.knobs import MOST_FEW, SAME_LEVEL, Knobs
from rasp_tuner.engine.gp.model import scatter_of
from rasp_tuner.engine.gp.posterior import LEAST_VARIANCE, ContextPosterior
from rasp_tuner.engine.gp.search import STEP, best_point, moves, point_keys, snapped
from rasp_tuner.optimizer.optimizer import ANY, NOTHING, Room, Scope, Waiting

HERE = 0.98  # of the greatest likeness of a row: rows so alike count as measured in this situation
GUESSED_REPEATS = 2.0  # that the fitted noise is worth, beside the scatter of real ones
WORTH_A_RUN = 0.01  # in units of a: to tell settings apart that differ by less, nothing runs again while there is new
MOST_VALUES = 12  # of an ordered knob, all of which run once
PARTS = 4  # of the range of any other knob, each of which runs once: else what lies between two bad ends is never seen
MIDDLES = (np.arange(PARTS) + 0.5) / PARTS
FIRST_LOOKS = MOST_FEW  # runs in a situation that go to untried values, one knob at a time; later every second one
FEW_SETTINGS = 32  # of a space, all of which run once before any runs again: one may be far better than its neighbours
ALL_POINTS = 1024  # settings of a small space, all of which are candidates
SHORT = 192  # settings of a long list that are looked at: the best by their effects, and as many others
DRAWN, AROUND = 128, 64  # candidates in a larger space: anywhere; around each good point
NEAR = np.array([0.02, 0.07, 0.2])  # deviations of small moves of scales: three lengths, since none is known
LONG = 8 * SHORT  # settings of a list, of which it is looked at whether they keep the limits
BETWEEN = np.linspace(0.0, 1.0, 13)[1:-1, None]  # shares of a way
FARTHEST = 30.0  # deviations, beyond which a normal number does not go
FAR = -20.0  # in units of sqrt(3) deviations: below, the gain of a Student's t has its asymptotic form

UNTRIED, NEW, AGAIN = "a value that did not run here yet", "something new", "once more, to be sure"
FIRST_RUN = "one of few settings, which did not run here yet"
NEWS = "far better elsewhere than was expected"
LIKELIEST = "likely to keep the limits, as nothing known does"


class MeasuredHere(NamedTuple):
    """The k settings that ran in this situation."""

    points: Array  # [k, d]
    mean: Array  # [k]
    variance: Array  # [k]
    runs: float  # of all of them
    misfit: float  # c
    room: Array  # [k] how far each stays within the limits
    safe: int  # how many surely keep them: they come first


class FindBelief(GpBelief):
    """A belief that looks for the best setting, and believes what was measured."""

    def __init__(
        self,
        here: ContextPosterior,
        barred: set[bytes],
        reached: Array,
        unknown: bool,
        repeats: Array,
        similar: Array | None = None,
        recalled: Recalled | None = None,
    ) -> None:
        super().__init__(here, barred, reached, unknown, similar=similar, recalled=recalled)
        joined, squares, _ = repeats.tolist()
        scatter = scatter_of(joined, squares, here.fit.scale) + GUESSED_REPEATS * here.fit.noise
        self._noise = max(scatter / (joined + GUESSED_REPEATS), LEAST_VARIANCE)

    @cached_property
    def measured(self) -> MeasuredHere:
        """What ran here and did not fail, the best first."""
        fit, kc = self.fit, self._here.kc
        own = np.flatnonzero(kc >= HERE * kc.max())
        spare = np.maximum(fit.spare()[own], LEAST_VARIANCE)
        y, runs = fit.targets()[own], fit.of_rows("counts")[own]
        error = fit.alpha[own] * (spare + fit.noises[own])  # of the forecast from all other rows
        trust = np.where(error > 0.0, fit.of_rows("trust")[own], 1.0)  # bad news may be a hiccup: it is looked at again
        noises = self._noise / (runs * trust)
        misfit = max(1.0, float((error**2).sum() / (spare + noises).sum()))
        precision = 1.0 / (misfit * spare) + 1.0 / noises
        weighted = (y - error) / (misfit * spare) + y / noises
        points, back = np.unique(
            fit.of_rows("points")[own], axis=0, return_inverse=True
        )  # rows of one setting may differ
        total: Array = np.bincount(back.ravel(), precision).astype(np.float64)
        mean = np.bincount(back.ravel(), weighted) / total
        fine = [key not in self._barred for key in point_keys(points)]
        order = np.flatnonzero(fine)[mean[fine].argsort(kind="stable")]
        room, k = np.full(len(order), np.inf), len(order)
        return MeasuredHere(points[order], mean[order], 1.0 / total[order], float(runs.sum()), misfit, room, k)

    def _within(self, room: Room | None) -> MeasuredHere:
        """What ran here: first what keeps the limits, the best first; then the others, the likeliest first."""
        found = self.measured
        if room is None or not len(found.points):
            return found
        spare = room(found.points)
        safe = spare >= NINE_IN_TEN
        order = np.lexsort([np.where(safe, found.mean, -spare), ~safe])
        points, mean, variance = (a[order] for a in found[:3])
        return MeasuredHere(points, mean, variance, *found[3:5], spare[order], int(safe.sum()))

    def best_within(self, room: Room) -> Array | None:
        found = self._within(room).points
        return found[0] if len(found) else None

    def choose(self, rng: np.random.Generator, waiting: Waiting = NOTHING) -> Choice:
        del waiting  # a search is given what waits in this context
        return self.search(rng, ANY)

    def search(self, rng: np.random.Generator, scope: Scope) -> Choice:
        """The look that is worth most."""
        found, default = self._within(scope.room), self.fit.knobs.default
        asked = set() if scope.pending is None else set(point_keys(scope.pending))  # it will be known anyway
        if self._unknown and default.tobytes() not in asked and can_run(default, scope):
            return self._expected(default, BASELINE)
        if not len(found.points):
            return self._expected(default if scope.among is None else self._least(scope.among), BASELINE)
        known = set(point_keys(found.points)) | self._barred | asked
        fresh, source = self._fresh(rng, scope, found, known)
        fresh = fresh[[key not in known for key in point_keys(fresh)]]
        worth_again = math.inf if source == FIRST_RUN else WORTH_A_RUN
        again, value = self._again(scope, found, worth_again if len(fresh) else 0.0)
        worth = self._worth(fresh, scope, found)
        for i in (-worth).argsort(kind="stable").tolist():
            if again is not None and worth[i] < value:
                break
            point = fresh[i] if scope.among is not None else self.fit.knobs.as_run(fresh[i])
            if point.tobytes() not in known:
                return self._expected(point, source if found.safe else LIKELIEST)
        if again is None:  # what seems new would run as something known
            again, _ = self._again(scope, found, 0.0)
        if again is None:  # all that can run is barred, or runs now
            again = default if scope.among is None else self._least(scope.among)
        return self._expected(again, AGAIN)

    def _fresh(
        self, rng: np.random.Generator, scope: Scope, found: MeasuredHere, known: set[bytes]
    ) -> tuple[Array, str]:
        """[m, d] settings to look at, and what they are."""
        news = self._news_from_elsewhere()
        news = news[[key not in known and can_run(point, scope) for key, point in with_keys(news)]]
        if len(news):
            return news, NEWS
        every = all_points(self.fit.knobs) if scope.among is None else None
        if every is not None and len(every) <= FEW_SETTINGS:
            every = every[[key not in known for key in point_keys(every)]]
            if len(every):
                return every, FIRST_RUN
        first, odd = found.runs <= FIRST_LOOKS, found.runs % 2.0 > 0.0
        if (scope.among is None) if first else not odd:
            fresh = self._untried(scope, found, first)
            fresh = fresh[[key not in known and can_run(point, scope) for key, point in with_keys(fresh)]]
            if len(fresh):
                return fresh, UNTRIED
        if scope.among is not None:
            return self._shortlist(rng, scope.among, scope.room), NEW
        return self._candidates(rng, found.points[0], scope.room), NEW

    def _news_from_elsewhere(self) -> Array:
        """[m, d] settings that came out so much better than expected that the model takes it for an outlier."""
        fit = self.fit
        news: Array = fit.of_rows("points")[(fit.of_rows("trust") < LIKELY) & (fit.alpha < 0.0)]
        return news

    def _worth(self, fresh: Array, scope: Scope, found: MeasuredHere) -> Array:
        """[m] what a look at each setting gains."""
        if not len(fresh):
            return np.zeros(0)
        if scope.room is None:
            return self._gain(fresh, scope, found)
        return self._gain(fresh, scope, found) * below(scope.room(fresh))

    def _gain(self, fresh: Array, scope: Scope, found: MeasuredHere) -> Array:
        """[m] what each setting may be better than the best."""
        pending = scope.pending
        mean, variance = self._predicted(fresh) if pending is None else self._given(fresh, pending)
        least = self._least_of(scope, found, max(mean.max(), found.mean.max()))
        spread = np.sqrt(found.misfit) * variance / np.sqrt(variance + self._noise)
        gain = student_gain(least - mean, spread)
        if scope.among is not None:
            return gain
        had = np.where(fresh != found.points[0], self._reached, 1.0).prod(axis=1)  # some cannot be had
        worth: Array = gain * had
        return worth

    def _given(self, points: Array, pending: Array) -> tuple[Array, Array]:
        """Mean and variance [m] once the pending runs have come to what is expected of them."""
        k, means, variances = len(pending), [], []
        for at in range(0, len(points), AT_ONCE):
            mean, covariance = self._here.joint(np.concatenate([pending, points[at : at + AT_ONCE]]))
            own, cross = covariance[:k, :k] + self._noise * np.eye(k), covariance[:k, k:]
            means.append(mean[k:])
            variances.append(covariance.diagonal()[k:] - (cross * np.linalg.solve(own, cross)).sum(axis=0))
        return np.concatenate(means), np.maximum(np.concatenate(variances), LEAST_VARIANCE)

    def _least_of(self, scope: Scope, found: MeasuredHere, worst: float) -> float:
        """The best that is known, once the pending runs have come to what is expected of them."""
        least = found.mean[0] if found.safe else (worst + below(found.room) * (found.mean - worst)).min()
        if scope.pending is not None:
            means = self._known(scope.pending)[0]
            if scope.room is not None:
                means = means[scope.room(scope.pending) >= NINE_IN_TEN]
            least = min(least, means.min(initial=math.inf))
        return float(least)

    def _shortlist(self, rng: np.random.Generator, among: Array, room: Room | None) -> Array:
        """Of a long list the settings of least mean, and as many others; those that may keep the limits come first."""
        if len(among) <= 2 * SHORT:
            return among
        if room is not None and len(among) > LONG:
            among = among[rng.choice(len(among), LONG, replace=False)]
        mean = self._here.effects_mean(among)  # interactions are looked at later
        order = mean.argsort(kind="stable") if room is None else np.lexsort([mean, room(among) < 0.0])
        short: Array = among[np.concatenate([order[:SHORT], rng.choice(order[SHORT:], SHORT, replace=False)])]
        return short

    def _least(self, points: Array) -> Array:
        """[d] the point of least mean."""
        least: Array = points[int(self._known(points)[0].argmin())]
        return least

    def best(self) -> Array | None:
        """The least mean of what was measured here; where nothing was, of all that is known."""
        best: Array | None = self.measured.points[0] if len(self.measured.points) else super().best()
        return best

    def predict(self, points: Array) -> tuple[Array, Array]:
        mean, variance = self._known(points)
        return self._y(mean), self.fit.scale**2 * variance

    def _both(self, point: Array, default: Array) -> PointAndDefault:
        (mean, level), (own, other) = (a.tolist() for a in self._known(np.stack([point, default])))
        return PointAndDefault(mean, own, level, other, own if np.array_equal(point, default) else 0.0)

    def _known(self, points: Array) -> tuple[Array, Array]:
        """Mean and variance [m]: as measured, or else by the model."""
        mean, variance = self._predicted(points)
        places = {key: i for i, key in enumerate(point_keys(self.measured.points))}
        for i, key in enumerate(point_keys(np.ascontiguousarray(points))):
            if (at := places.get(key)) is not None:
                mean[i], variance[i] = self.measured.mean[at], self.measured.variance[at]
        return mean, variance

    def _again(self, scope: Scope, found: MeasuredHere, least: float) -> tuple[Array | None, float]:
        """The setting that should be measured once more, and what that is worth; None if it is below `least`."""
        mean, variance, safe = found.mean, found.variance, found.safe
        if not safe and least:
            return None, 0.0
        if scope.pending is not None:
            running = Counter(point_keys(scope.pending))
            runs = np.array([running[key] for key in point_keys(found.points)])
            variance = variance * self._noise / (self._noise + runs * variance)
        rival = np.full(len(mean), mean[0])  # the best would have to fall behind the second best, others to pass it
        rival[0] = 2.0 * mean[0] - mean[1] if safe > 1 else -np.inf
        gain = normal_gain(rival - mean, variance / np.sqrt(variance + self._noise))
        moved = variance[safe:] / (variance[safe:] + self._noise)  # as much as one more run moves what is expected
        gain[safe:] *= below((found.room[safe:] - NINE_IN_TEN) / moved)  # then it would keep the limits
        if not safe:
            gain = below(found.room)
        for i in (-gain).argsort(kind="stable").tolist():
            if gain[i] < least:
                break
            if can_run(found.points[i], scope):
                return found.points[i], float(gain[i])
        return None, 0.0

    def _predicted(self, points: Array) -> tuple[Array, Array]:
        """Mean and variance [m] by the model."""
        parts = [self._here.marginal(points[at : at + AT_ONCE]) for at in range(0, len(points), AT_ONCE)]
        variance = np.concatenate([own for _, own in parts])
        return np.concatenate([mean for mean, _ in parts]), np.maximum(variance, LEAST_VARIANCE)

    def _untried(self, scope: Scope, found: MeasuredHere, first: bool) -> Array:
        """[m, d] the best setting here, with one value, or part of a wide knob's range, that did not run here yet.

        After the `first` looks a choice counts only where it ran beside good ones: others may have spoilt it.
        """
        knobs, points = self.fit.knobs, list[Array]()
        ran = found.points if scope.pending is None else np.concatenate([found.points, scope.pending])
        alike = np.maximum(np.sqrt(found.variance + found.variance[0]), WORTH_A_RUN)
        good = found.points[found.mean <= found.mean[0] + alike]
        differ = (ran[:, None] != good) & ~knobs.scale  # [ran, good, d]
        for j, levels in enumerate(knobs.levels):
            values, near = MIDDLES, 0.5 / PARTS
            if levels is not None and (len(levels) <= MOST_VALUES or knobs.unordered[j]):
                values, near = levels, SAME_LEVEL
            elsewhere = differ.sum(axis=2) > differ[:, :, j]
            counts = np.full(len(ran), True) if first or knobs.scale[j] else ~elsewhere.all(axis=1)
            for at in values[(np.abs(ran[counts, j] - values[:, None]) > near).all(axis=1)].tolist():
                points.append(ran[0].copy())
                points[-1][j] = at
        lawful = knobs.lawful(snapped(knobs, np.array(points).reshape(-1, knobs.dim)))
        return lawful[[key not in self._barred for key in point_keys(lawful)]]

    def _candidates(self, rng: np.random.Generator, best: Array, room: Room | None) -> Array:
        """[m, d] all settings of a small space; of a large one some from everywhere, and some around the best."""
        knobs = self.fit.knobs
        every = all_points(knobs)
        if every is not None:
            return every
        end = best_point(self._here, self._barred)
        end = best if end is None else end
        parts = [end[None], self.fit.of_rows("points"), drawn(knobs, rng, DRAWN)]
        if room is not None:  # where limits bind, the best lies between what keeps them and what would be best
            parts += [snapped(knobs, best + BETWEEN * (end - best))]
        for center in (best, end):
            apart = rng.choice(NEAR, (AROUND, 1)) * rng.standard_normal((AROUND, knobs.dim))
            moved = rng.random((AROUND, knobs.dim)).argsort(axis=1) < 1 + rng.geometric(0.5, (AROUND, 1))
            parts += [
                moves(knobs, center, STEP)[0],
                np.where(moved, drawn(knobs, rng, AROUND), center),  # two knobs anywhere; half as often each one more
                snapped(knobs, np.where(knobs.scale, center + apart, center)),
            ]
        return np.unique(knobs.lawful(np.concatenate(parts)), axis=0)


def can_run(point: Array, scope: Scope) -> bool:
    """Whether a point [d] is in the scope."""
    return scope.among is None or bool((scope.among == point).all(axis=1).any())


def with_keys(points: Array) -> Iterable[tuple[bytes, Array]]:
    """Each point [d], and its key."""
    return zip(point_keys(points), points, strict=True)


def all_points(knobs: Knobs) -> Array | None:
    """[m, d] every setting of a small space; None for a large one."""
    levels = [own for own in knobs.levels if own is not None]
    if len(levels) < knobs.dim or math.prod(map(len, levels)) > ALL_POINTS:
        return None
    grid = np.stack([axis.ravel() for axis in np.meshgrid(*levels, indexing="ij")], axis=1)
    return np.unique(knobs.lawful(grid), axis=0)


def drawn(knobs: Knobs, rng: np.random.Generator, count: int) -> Array:
    """[count, d] points at random; each level of a knob is as likely as another."""
    points = rng.random((count, knobs.dim))
    for j, levels in enumerate(knobs.levels):
        if levels is not None:
            points[:, j] = levels[(points[:, j] * len(levels)).astype(int)]
    return points


def below(z: Array) -> Array:
    """[m] probability that a standard normal number is below each.

    >>> below(np.array([-np.inf, 0.0, 1.2816])).round(4).tolist()
    [0.0, 0.5, 0.9]
    """
    return np.array([0.5 * math.erfc(-one / math.sqrt(2.0)) for one in z.tolist()])


def normal_gain(gap: Array, deviation: Array) -> Array:
    """[m] E[max(gap + deviation z, 0)] of a standard normal z.

    >>> normal_gain(np.array([0.0, -1.0, -np.inf]), np.ones(3)).round(4).tolist()
    [0.3989, 0.0833, 0.0]
    """
    u = np.maximum(gap / deviation, -FARTHEST)
    gain: Array = deviation * np.maximum(np.exp(-0.5 * u * u) / math.sqrt(2.0 * math.pi) + u * below(u), 0.0)
    return gain


def student_gain(gap: Array, deviation: Array) -> Array:
    """[m] the same of a z with Student's t distribution, with three degrees of freedom: the fewest with a variance.

    >>> student_gain(np.array([0.0, -1.0, -40.0]), np.ones(3)).round(4).tolist()
    [0.5513, 0.218, 0.0003]
    """
    w = gap / deviation / math.sqrt(3.0)
    density = 2.0 / (math.sqrt(3.0) * math.pi * (1.0 + w * w) ** 2)
    share = 0.5 + (w / (1.0 + w * w) + np.arctan(w)) / math.pi
    gain = 1.5 * (1.0 + w * w) * density + math.sqrt(3.0) * w * share
    tail = 1.0 / (math.sqrt(3.0) * math.pi * np.maximum(w * w, 1.0))
    gained: Array = deviation * np.where(w < FAR, tail, gain)
    return gained
