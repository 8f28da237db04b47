"""Fit: all that the discrete family knows at one moment. Here: a fit in one context, which predicts, and finds
candidates and what a look at each is worth.

The arrays version, which every other has to agree with. Symbols as in belief.py.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.core.distance import mean_squares
from rasp_tuner.core.numerics import Array
from rasp_tuner.engine.discrete import compiled
from rasp_tuner.engine.discrete.kernel import JITTER, Kernel, Rows, sampled_effects, standard
from rasp_tuner.engine.discrete.knobs import Knobs, keys_of
from rasp_tuner.engine.discrete.target import level_of

ALIKE = 0.5  # kc from which on what failed, or could not be had, there is not asked for here
SOURCES = ("elite", "default", "mutation", "crossover", "main effects")  # of candidates, in this order
LOOKS = np.array([1.0, 5.0, 25.0])  # at one point, that the value is averaged over: under noise one tells little


@dataclass(frozen=True)
class DiscreteConstants:
    """Where experiments ended."""

    capacity: int = 200
    horizon: float = 50.0  # steps in which knowledge pays: weight of its value against the price of a look
    elites: int = 5
    mutants: int = 40
    crossovers: int = 8
    full: int = 4  # minimisers of drawn main effects
    sparse: int = 6  # the same, with only the strongest knobs moved
    few: float = 0.5  # changes of a mutant are geometric with this parameter
    home: float = 0.2  # chance that a change goes back to the default
    spread: float = 0.5  # scale of drawn main effects
    warp: float = 2.0  # the compression: linear up to about this many deviations above the level of a context
    memory: float = 60.0
    kept: float = 2.0  # best rows of each context that are not forgotten
    similar: float = 0.85  # kc above which equal points share a row
    freedom: float = 4.0  # of the Student-t noise
    va: float = 0.3  # where theta starts, see kernel.py
    vp: float = 0.5
    length: float = 0.3
    width: float = 0.4
    noise: float = 0.1
    vc: float = 0.3
    rho: float = 0.7
    rate: float = 0.1  # first step of theta
    loose: float = 1.0  # how far theta's prior lets it go


class Fit(NamedTuple):
    """All that a belief needs; never changed once made, so a belief outlives later learning."""

    constants: DiscreteConstants
    knobs: Knobs
    kernel: Kernel
    points: Array
    rows: Rows  # features of the points
    contexts: Array
    failed: Array
    tried: Array  # which levels were tried (knobs.py)
    counts: Array
    since_default: int  # samples since the default ran or was asked for
    reached: float  # share of new points that ran as they were asked for
    unreached: Array  # [., d] the latest that did not, and never ran: asking for them again tells nothing
    unreached_in: Array  # [., d_c] raw contexts of these
    gram: Array
    inverse: Array
    alpha: Array
    values: Array  # [n] y of the rows
    center: float  # y = center + scale * (offset + what the compression left of the target)
    scale: float
    middle: Array  # contexts are standardised by (context - middle) / width
    width: Array

    def closeness(self, context: Array) -> Array:
        """kc [n] between a raw context and the rows'."""
        return self.kernel.closeness(mean_squares(self.contexts, standard(context, self.middle, self.width)))


class Candidates(NamedTuple):
    """Different points that are not barred; the default where there is none."""

    points: Array  # [m, d]
    places: NDArray[np.intp]  # [m] where each came first among all
    counts: tuple[int, ...]  # how many of all came from each source

    def source(self, row: int) -> str:
        place = int(self.places[row])
        return next(name for name, end in zip(SOURCES, np.cumsum(self.counts).tolist(), strict=True) if place < end)


class Pair(NamedTuple):
    """What is known of the target at two points."""

    mean: tuple[float, float]
    variance: tuple[float, float]
    covariance: float


class Here:
    """Good as long as its fit: for ever."""

    def __init__(self, fit: Fit, context: Array) -> None:
        self.fit, self.context = fit, context
        self.kc = fit.closeness(context)
        self.share, self.base = fit.kernel.blend(self.kc), fit.kernel.base(self.kc)
        self.level = level_of(self.kc, fit.values, fit.center)  # of y, in this context

    @cached_property
    def known(self) -> tuple[float, bool]:
        """How many samples there are of contexts like this; whether one of them is of the default."""
        alike = self.kc > ALIKE
        ran = (self.fit.points[alike] == self.fit.knobs.default).all(axis=1).any()
        return float(self.fit.counts[alike].sum()), bool(ran)

    def nearest(self, point: Array) -> int:
        """The row of this point [d] whose context is closest; -1 if there is none."""
        same = (self.fit.points == point).all(axis=1).nonzero()[0]
        return int(same[self.kc[same].argmax()]) if len(same) else -1

    @cached_property
    def failed(self) -> Array:
        """[., d] what failed in a context like this."""
        failed: Array = self.fit.points[(self.fit.failed > 0.0) & (self.kc > ALIKE)]
        return failed

    def unreached(self) -> Array:
        """[., d] what could not be had in a context like this."""
        fit = self.fit
        if len(fit.unreached) == 0:
            return fit.unreached
        contexts, here = (standard(c, fit.middle, fit.width) for c in (fit.unreached_in, self.context))
        unreached: Array = fit.unreached[fit.kernel.closeness(mean_squares(contexts, here)) > ALIKE]
        return unreached

    @cached_property
    def elites(self) -> Array:
        """A few different points [., d], best posterior mean first; none that failed here."""
        fit = self.fit
        means = fit.gram @ (self.share * fit.alpha)  # up to a constant
        means += fit.knobs.expected(fit.rows.phi)
        means[fit.failed > 0.0] = np.inf
        seen = set(keys_of(self.failed))
        rows: list[int] = []
        for row in means.argsort().tolist():
            if len(rows) == fit.constants.elites or means[row] == np.inf:
                break
            key = fit.points[row].tobytes()
            if key not in seen:
                seen.add(key)
                rows.append(row)
        return fit.points[rows]

    def candidates(self, rng: np.random.Generator) -> Candidates:
        """Points that may be worth a look."""
        fit, c, knobs = self.fit, self.fit.constants, self.fit.knobs
        elites = self.elites if len(self.elites) else knobs.default[None]
        shared = (fit.kernel.va * self.share)[:, None] * fit.rows.phi  # [n, p] kernel of main effects and rows
        effects = knobs.prior + fit.alpha @ shared  # [p] their posterior mean
        parents = np.concatenate([elites[:1], elites[:1], elites[:1], elites])  # half of the mutants are the best's
        first, second = rng.integers(len(elites), size=(2, c.crossovers))
        found = (
            elites,
            knobs.default[None],
            knobs.mutate(parents, knobs.importance(effects), rng, c.mutants, c.few, c.home),
            np.where(rng.random((c.crossovers, knobs.dim)) < 0.5, elites[first], elites[second]),
            self._additive(effects, shared, elites[0], rng),
        )
        points = knobs.lawful(np.concatenate(found))
        keys = keys_of(points)
        places = dict(zip(reversed(keys), range(len(keys) - 1, -1, -1), strict=True))
        for key in (*keys_of(self.failed), *keys_of(self.unreached())):
            places.pop(key, None)
        kept = np.array(sorted(places.values()) or [len(elites)])  # the default comes after the elites
        return Candidates(points[kept], kept, tuple(map(len, found)))

    def _additive(self, effects: Array, shared: Array, elite: Array, rng: np.random.Generator) -> Array:
        """Minimisers of the main effects: of their mean, of draws, and of draws with only the strongest knobs moved."""
        fit, c, knobs = self.fit, self.fit.constants, self.fit.knobs
        explained = shared.T @ (fit.inverse @ shared)
        draws = c.spread * rng.normal(size=(1 + c.full + c.sparse, len(explained)))
        draws[0] = 0.0
        taken = rng.uniform(0.0, math.log(knobs.dim + 1), c.sparse)
        drawn = sampled_effects(fit.kernel.va, np.negative(explained, out=explained), effects, draws)
        return knobs.optimum(drawn, taken, elite)

    def ranked(self, candidates: Candidates) -> tuple[int, int]:
        """Which of the candidates just made has the least price less its value, and which the least price.

        The price is the expected target. The value is what one look lowers the best known by, times the horizon.
        """
        fit = self.fit
        mean, covariance = self._joint(fit.kernel.rows_of(fit.knobs, candidates.points))
        value = knowledge_gradient(mean, covariance, fit.kernel.noise)
        if fit.reached < 1.0:  # a look at a new point may turn out to be one at another
            known = set(keys_of(fit.points))
            value *= [1.0 if key in known else fit.reached for key in keys_of(candidates.points)]
        return int((mean - fit.constants.horizon * value).argmin()), int(mean.argmin())

    def pair(self, point: Array, other: Array) -> Pair:
        """Of two points [d]."""
        mean, covariance = self._joint(self.fit.kernel.rows_of(self.fit.knobs, np.array([point, other])))
        (first, second), ((own, shared), (_, others)) = mean.tolist(), covariance.tolist()
        return Pair((first, second), (own, others), shared)

    def marginal(self, points: Array) -> tuple[Array, Array]:
        """Mean and variance [m] of the target at points [m, d]."""
        kernel = self.fit.kernel
        rows = kernel.rows_of(self.fit.knobs, points)
        cross, mean = self._cross(rows)
        variance = kernel.variances(rows.phi) - ((cross @ self.fit.inverse) * cross).sum(axis=1)
        return mean, np.maximum(variance, JITTER)

    def _cross(self, rows: Rows) -> tuple[Array, Array]:
        """Kernel [m, n] between points and the stored rows in this context; means [m] of the target at the points."""
        fit = self.fit
        cross = fit.kernel.gram(rows, fit.rows)
        cross *= self.share
        cross += self.base
        mean = cross @ fit.alpha
        mean += fit.knobs.expected(rows.phi)
        return cross, mean

    def _joint(self, rows: Rows) -> tuple[Array, Array]:
        """Mean [m] and covariance [m, m] of the target."""
        kernel = self.fit.kernel
        cross, mean = self._cross(rows)
        covariance = kernel.gram(rows, rows)
        covariance += kernel.level * (1.0 + kernel.vc)
        covariance -= (cross @ self.fit.inverse) @ cross.T
        return mean, covariance


def knowledge_gradient(mean: Array, covariance: Array, noise: float) -> Array:
    """[m] how far a noisy look at each of m candidates is expected to lower the least mean of them all.

    For each look x the best alternative j alone is counted: max over j of E[(best - (mean_j + s_j Z))+], where s_j is
    how far that look moves j against the best. Several looks at x may be worth more than as many times one.
    """
    if compiled.ready():
        return compiled.knowledge_gradient(mean, covariance, noise, JITTER, LOOKS)
    order = mean.argsort(kind="stable")
    gap = mean[order] - mean[order[0]]
    apart = np.abs(covariance.take(order, axis=1) - covariance[:, order[:1]])  # [x, j]
    nearer = np.maximum.accumulate(apart, axis=1)[:, :-1]
    counts = np.ones(apart.shape, dtype=bool)
    np.greater(apart[:, 1:], nearer, out=counts[:, 1:])  # a better alternative that moves as far is worth more
    look, other = counts.nonzero()
    looks, variance = LOOKS[:, None], np.maximum(covariance.diagonal(), JITTER)
    spread = np.maximum(apart[look, other] / np.sqrt(variance + noise / looks)[:, look], 1e-12)  # [looks, .]
    worth = (spread * expected_excess(gap[other] / spread) / looks).max(axis=0)
    value: Array = np.maximum.reduceat(worth, (other == 0).nonzero()[0])
    return value


def expected_excess(gap: Array) -> Array:
    """E[(Z - gap)+] of a standard normal Z, for gap >= 0: density - gap * tail."""
    density = np.exp(-0.5 * np.minimum(gap, 40.0) ** 2) / math.sqrt(2.0 * math.pi)
    t = 1.0 / (1.0 + 0.2316419 * gap)  # the tail by Abramowitz and Stegun 26.2.17, to 7.5e-8 of the density at 0
    a, b, c, d, e = 0.319381530, -0.356563782, 1.781477937, -1.821255978, 1.330274429
    tail = density * t * (a + t * (b + t * (c + t * (d + t * e))))
    excess: Array = np.maximum(density - gap * tail, 0.0)
    return excess
