"""FindBelief: what to look at where only the end counts: a number of runs, then the best setting found is used.

A look is worth what the recommendation gains by it, E[max(best - y, 0)]. For a setting that was never measured here, y
is Student's t around the model's forecast: the model may be wrong. For one that was, y is normal, and moves only as far
as one more run moves its mean. So a setting runs again only to tell it from the best, and all other runs go to
something new. Every value of a knob with few values runs once in each situation: the first looks go to such values,
later every second one.

What was measured here outweighs what the model makes of all else. Of a setting that was measured here

    mean = (l / (c V) + y / N) / (1 / (c V) + 1 / N)

symbol   meaning
l, V     forecast from all other rows, and its variance
y, N     mean of its runs here, and the variance of that: noise / runs, the noise of repeats where there are any
c        how much larger than V + N the squared errors of such forecasts are here; at least 1

Means and variances are in units of a (model.py).
"""

import math
from functools import cached_property
from typing import NamedTuple

import numpy as np

from rasp_tuner.base.numerics import Array
from rasp_tuner.engine.family import Choice
from rasp_tuner.engine.gp.belief import AT_ONCE, BASELINE, GpBelief, PointAndDefault
from rasp_tuner.engine.gp.knobs import MOST_FEW, SAME_LEVEL, Knobs
from rasp_tuner.engine.gp.model import scatter_of
from rasp_tuner.engine.gp.posterior import LEAST_VARIANCE, ContextPosterior
from rasp_tuner.engine.gp.search import STEP, best_point, moves, point_keys, snapped

HERE = 0.98  # of the greatest likeness of a row: rows so alike count as measured in this situation
GUESSED_REPEATS = 2.0  # that the fitted noise is worth, beside the scatter of real ones
WORTH_A_RUN = 0.01  # in units of a: to tell settings apart that differ by less, nothing runs again while there is new
FIRST_LOOKS = MOST_FEW  # runs in a situation that go to untried values, one knob at a time; later every second one
ALL_POINTS = 1024  # settings of a small space, all of which are candidates
DRAWN, AROUND = 128, 64  # candidates in a larger space: anywhere; around each good point
NEAR = np.array([0.02, 0.07, 0.2])  # deviations of small moves of scales: three lengths, since none is known
FARTHEST = 30.0  # deviations, beyond which a normal number does not go
FAR = -20.0  # in units of sqrt(3) deviations: below, the gain of a Student's t has its asymptotic form

UNTRIED, NEW, AGAIN = "a value that did not run here yet", "something new", "once more, to be sure"


class MeasuredHere(NamedTuple):
    """The k settings that ran in this situation."""

    points: Array  # [k, d]
    mean: Array  # [k]
    variance: Array  # [k]
    runs: float  # of all of them
    misfit: float  # c


class FindBelief(GpBelief):
    """A belief that looks for the best setting, and believes what was measured."""

    def __init__(
        self, here: ContextPosterior, barred: set[bytes], reached: Array, unknown: bool, repeats: Array
    ) -> None:
        super().__init__(here, barred, reached, unknown)
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
        return MeasuredHere(points[order], mean[order], 1.0 / total[order], float(runs.sum()), misfit)

    def choose(self, rng: np.random.Generator) -> Choice:
        """The look that is worth most."""
        found = self.measured
        if self._unknown or not len(found.points):
            return self._expected(self.fit.knobs.default, BASELINE)
        fresh, source = self._untried(), UNTRIED
        if not len(fresh) or (found.runs > FIRST_LOOKS and found.runs % 2.0):
            fresh, source = self._candidates(rng), NEW
        known = set(point_keys(found.points)) | self._barred
        fresh = fresh[[key not in known for key in point_keys(fresh)]]
        again, value = self._again()
        if len(fresh):
            mean, variance = self._predicted(fresh)
            spread = np.sqrt(found.misfit) * variance / np.sqrt(variance + self._noise)
            had = np.where(fresh != found.points[0], self._reached, 1.0).prod(axis=1)  # some cannot be had
            worth = student_gain(found.mean[0] - mean, spread) * had
            if worth.max() >= value or value < WORTH_A_RUN:
                return self._expected(fresh[int(worth.argmax())], source)
        return self._expected(found.points[again], AGAIN)

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

    def _again(self) -> tuple[int, float]:
        """Which setting should be measured once more, and what that is worth."""
        mean, variance = self.measured.mean, self.measured.variance
        rival = np.full(len(mean), mean[0])  # the best would have to fall behind the second best, others to pass it
        rival[0] = 2.0 * mean[0] - mean[1] if len(mean) > 1 else -np.inf
        gain = normal_gain(rival - mean, variance / np.sqrt(variance + self._noise))
        return int(gain.argmax()), float(gain.max())

    def _predicted(self, points: Array) -> tuple[Array, Array]:
        """Mean and variance [m] by the model."""
        parts = [self._here.joint(points[at : at + AT_ONCE]) for at in range(0, len(points), AT_ONCE)]
        variance = np.concatenate([covariance.diagonal() for _, covariance in parts])
        return np.concatenate([mean for mean, _ in parts]), np.maximum(variance, LEAST_VARIANCE)

    def _untried(self) -> Array:
        """[m, d] the best setting here, with one value that did not run here yet of a knob with few, or a choice."""
        knobs, ran, points = self.fit.knobs, self.measured.points, []
        for j, levels in enumerate(knobs.levels):
            if levels is None or (len(levels) > MOST_FEW and not knobs.unordered[j]):
                continue
            for at in levels[(np.abs(ran[:, j] - levels[:, None]) > SAME_LEVEL).all(axis=1)].tolist():
                points.append(ran[0].copy())
                points[-1][j] = at
        lawful = knobs.lawful(np.array(points).reshape(-1, knobs.dim))
        return lawful[[key not in self._barred for key in point_keys(lawful)]]

    def _candidates(self, rng: np.random.Generator) -> Array:
        """[m, d] all settings of a small space; of a large one some from everywhere, and some around the best."""
        knobs, best = self.fit.knobs, self.measured.points[0]
        every = all_points(knobs)
        if every is not None:
            return every
        end = best_point(self._here, self._barred)
        end = best if end is None else end
        parts = [end[None], self.fit.of_rows("points"), drawn(knobs, rng, DRAWN)]
        for center in (best, end):
            apart = rng.choice(NEAR, (AROUND, 1)) * rng.standard_normal((AROUND, knobs.dim))
            moved = rng.random((AROUND, knobs.dim)).argsort(axis=1) < 1 + rng.geometric(0.5, (AROUND, 1))
            parts += [
                moves(knobs, center, STEP)[0],
                np.where(moved, drawn(knobs, rng, AROUND), center),  # two knobs anywhere; half as often each one more
                snapped(knobs, np.where(knobs.scale, center + apart, center)),
            ]
        return np.unique(knobs.lawful(np.concatenate(parts)), axis=0)


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


def normal_gain(gap: Array, deviation: Array) -> Array:
    """[m] E[max(gap + deviation z, 0)] of a standard normal z.

    >>> normal_gain(np.array([0.0, -1.0, -np.inf]), np.ones(3)).round(4).tolist()
    [0.3989, 0.0833, 0.0]
    """
    u = np.maximum(gap / deviation, -FARTHEST)
    below = np.array([0.5 * math.erfc(-one / math.sqrt(2.0)) for one in u.tolist()])
    gain: Array = deviation * np.maximum(np.exp(-0.5 * u * u) / math.sqrt(2.0 * math.pi) + u * below, 0.0)
    return gain


def student_gain(gap: Array, deviation: Array) -> Array:
    """[m] the same of a z with Student's t distribution, with three degrees of freedom: the fewest with a variance.

    >>> student_gain(np.array([0.0, -1.0, -40.0]), np.ones(3)).round(4).tolist()
    [0.5513, 0.218, 0.0003]
    """
    w = gap / deviation / math.sqrt(3.0)
    density = 2.0 / (math.sqrt(3.0) * math.pi * (1.0 + w * w) ** 2)
    below = 0.5 + (w / (1.0 + w * w) + np.arctan(w)) / math.pi
    gain = 1.5 * (1.0 + w * w) * density + math.sqrt(3.0) * w * below
    tail = 1.0 / (math.sqrt(3.0) * math.pi * np.maximum(w * w, 1.0))
    gained: Array = deviation * np.where(w < FAR, tail, gain)
    return gained
