"""Knobs: how points become features, and which moves lead from one point to the next.

symbol     shape      meaning
d, L       scalar     knobs; most grid values that any knob has
points     [n, d]     points of the unit box, on legal levels where a knob has them
phi        [n, p]     main effects: a sum of one term a knob, zero at the default
steps      [n, q]     which thresholds (ordered) or choices (unordered) a point has passed: their squared distance
                      counts levels, so it is exact for few levels and L1-like for a continuum
grid       [d, L]     the values tried for each knob when main effects are minimised; the last is repeated to fill up
single     [p, d L]   phi of setting one knob to a grid value while the others keep their default
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.core.numerics import Array
from rasp_tuner.engine.discrete import compiled
from rasp_tuner.space import Rules

RAMPS = 8  # thresholds of an ordered knob: with more levels, neighbours share a ramp and differ by less
GRID_VALUES = 21  # values of a knob tried when main effects are minimised
NEIGHBOUR_CHANCE = 0.6  # chance that an ordered knob moves by one level rather than to any other
NEAR_CHANCE = 0.8  # the same for a continuous knob: a small step rather than anywhere
FOCUSED_SHARE = 0.5  # of the mutations follow the main effects, the rest touch any knob
LEVEL_SCALE = 4.0  # of the features that give each level of an ordered knob an effect of its own
DISTANCE_SCALE = 3.0  # of the feature that tells how far a point is from the default
DISTANCE_SLOPE = 1.0  # prior: settings far from the default are expected to be worse
ROUNDING, COARSE_ROUNDING = 1e-9, 0.02  # of a level; of a continuous knob, by the system that runs it
SWAP_CHANCE = 0.3  # chance that a mutation of several knobs turns one binary knob on and another off


class Knobs:
    """The knobs of one space: their levels, features and moves."""

    def __init__(
        self,
        levels: Sequence[Array | None],
        unordered: Sequence[bool],
        default: Array,
        rules: Rules | None = None,
    ) -> None:
        self.default, self._rules = np.array(default, dtype=np.float64), rules
        self.dim = len(self.default)
        self.counts = np.array([0 if own is None else len(own) for own in levels])
        self.discrete = self.counts > 0
        self.binary = self.counts == 2
        self.unordered = np.array(unordered, dtype=bool)
        self._last = np.where(self.discrete, self.counts - 1, 1)  # place of the last level
        self._each = np.arange(self.dim)
        self._offsets = 2.0 * self._each  # see _middles
        self.default_key = self.default.tobytes()
        self._all_discrete = bool(self.discrete.all())
        self._swaps = self.binary.sum() > 1
        self._table = _padded([np.zeros(1) if own is None else own for own in levels])  # [d, most levels]
        self._neighbour_chance = np.where(self.unordered, 0.0, NEIGHBOUR_CHANCE)
        self._turning = self._turned()
        self._cuts, self._first_cut = self._middles(levels)
        self.grid = _padded([_grid(own) for own in levels])
        self._ramp_knob, self._ramp_low, self._ramp_slope, ramp_weight = self._ramps(levels)
        self._choice_knob, self._choice_at, self._choice_width = self._choices(levels)
        self.step_knob = np.concatenate([self._ramp_knob, self._choice_knob])  # [q] whose step it is
        self.step_weight = np.concatenate([ramp_weight, np.full(len(self._choice_knob), 0.5)])
        self._few = (self.counts > 2) & (self.counts <= RAMPS)  # more levels are a scale, on which neighbours agree
        self._own_levels = (np.arange(self._table.shape[1]) < self.counts[:, None]) & self._few[:, None]
        self._term, self._term_scale = self._terms(ramp_weight)
        self._origin = np.zeros(len(self._term))
        self._origin = self.features(self.default[None])[0][0]
        self.prior = np.zeros(len(self._term))  # [p] expected main effects
        self.prior[-1] = DISTANCE_SLOPE / DISTANCE_SCALE
        self.single = self._singles()
        self.tables = self._tables() if compiled.serves(self.dim) else None

    def features(self, points: Array) -> tuple[Array, Array]:
        """phi [n, p] and steps [n, q], each row the same to the last digit whatever the others are.

        Both lie row by row in memory, so that products of them repeat bit by bit.
        """
        steps = np.empty((len(points), len(self.step_knob)))
        ramps = steps[:, : len(self._ramp_knob)]
        np.subtract(points.take(self._ramp_knob, axis=1), self._ramp_low, out=ramps)
        ramps *= self._ramp_slope
        np.maximum(ramps, 0.0, out=ramps)
        np.minimum(ramps, 1.0, out=ramps)
        if len(self._choice_knob):
            chosen = np.abs(points.take(self._choice_knob, axis=1) - self._choice_at) < self._choice_width
            steps[:, len(self._ramp_knob) :] = chosen
        z = 2.0 * points - 1.0
        gaps = np.abs(points - self.default)
        if len(self._choice_knob):
            np.sign(gaps, out=gaps, where=self.unordered)
        on, away = (z * self.binary).sum(axis=1, keepdims=True), gaps.sum(axis=1, keepdims=True)
        phi = np.concatenate([z, z**2, steps, on, away], axis=1).take(self._term, axis=1)
        phi *= self._term_scale
        phi -= self._origin
        return phi, steps

    def expected(self, phi: Array) -> Array:
        """[n] what the prior expects of points with main effects `phi`: worse, the further from the default."""
        expected: Array = phi[:, -1] * self.prior[-1]  # the others are zero
        return expected

    def mutate(
        self, parents: Array, rates: Array, rng: np.random.Generator, count: int, few: float, home: float
    ) -> Array:
        """`count` points [count, d], each a parent with few knobs changed; `rates` [d] says which are worth it.

        The number of changes is geometric with parameter `few`; with chance `home` a change goes back to the default.
        """
        rows = np.arange(count) % len(parents)
        points = parents[rows]
        changes = np.minimum(rng.geometric(few, count), self.dim)
        swapped = (changes > 1) & (rng.random(count) < SWAP_CHANCE) & self._swaps
        changes -= 2 * swapped
        race = rng.exponential(size=points.shape) / rates  # the first few to arrive are drawn without replacement
        limit = np.sort(race, axis=1)[np.arange(count), np.maximum(changes - 1, 0)]
        changed = (race <= limit[:, None]) & (changes > 0)[:, None]
        row, knob = np.nonzero(changed)
        points[row, knob] = self._elsewhere(points[row, knob], self._places(parents)[rows[row], knob], knob, home, rng)
        if swapped.any():
            points[swapped] = self._swap(points[swapped], rng)
        return points

    def moved(self, point: Array, knob: int, rng: np.random.Generator) -> Array:
        """The point [d] with one knob elsewhere: an ordered one by one level, or a little."""
        place = self._places(point[None])[:, knob]
        changed = point.copy()
        changed[knob] = self._elsewhere(point[[knob]], place, np.array([knob]), 0.0, rng)[0]
        enabled = self.enabled(changed, knob)
        if enabled is not changed and not np.array_equal(enabled, changed):  # it did not exist: any value is as near
            level = int(rng.integers(self.counts[knob])) if self.discrete[knob] else 0
            enabled[knob] = self._table[knob, level] if self.discrete[knob] else rng.random()
        return enabled

    def enabled(self, point: Array, knob: int) -> Array:
        """The point [d], with other knobs changed so that this one exists."""
        return point if self._rules is None else self._rules.enabled(point, knob)

    def lawful(self, points: Array) -> Array:
        """Points [n, d], with those that are not legal replaced: by the same without what does not exist there, or by
        the default."""
        return points if self._rules is None else self._rules.lawful(points)

    def none_tried(self) -> Array:
        """[d, 1 + most levels] 1 where a knob was moved from its default, and where it had each of its levels."""
        return np.zeros((self.dim, 1 + self._table.shape[1]))

    def tried(self, so_far: Array, points: Array) -> Array:
        """The same, once points [n, d] were tried, too."""
        tried, places = so_far.copy(), self._places(points)
        tried[:, 0] = np.maximum(tried[:, 0], (points != self.default).any(axis=0))
        tried[self._each, 1 + places] = 1.0
        return tried

    def unmoved(self, tried: Array) -> NDArray[np.intp]:
        """Knobs that were never moved from their default."""
        return np.flatnonzero(tried[:, 0] == 0.0)

    def untried(self, tried: Array) -> list[tuple[int, float]]:
        """(knob, level) that no point had, of knobs with three to eight levels."""
        places = np.argwhere((tried[:, 1:] == 0.0) & self._own_levels).tolist()
        return [(knob, float(self._table[knob, place])) for knob, place in places]

    def same(self, point: Array, other: Array) -> bool:
        """Whether two points are the same but for rounding, which may be coarse where a knob is continuous."""
        return bool((np.abs(point - other) < np.where(self.discrete, ROUNDING, COARSE_ROUNDING)).all())

    def importance(self, effects: Array) -> Array:
        """Chances [d] that a mutation touches each knob: half alike, half as the main effects [p] say."""
        values = (effects @ self.single).reshape(self.grid.shape)
        strength = values.max(axis=1) - values.min(axis=1)
        strength += 0.3 / self.dim * float(strength.sum()) + 1e-12
        rates: Array = (1.0 - FOCUSED_SHARE) / self.dim + FOCUSED_SHARE / float(strength.sum()) * strength
        return rates

    def optimum(self, effects: Array, taken: Array, elite: Array) -> Array:
        """For each row of effects [n, p] the point [n, d] that minimises them.

        In the last few only the strongest e^taken knobs move: from the default, or from the elite in every other.
        """
        values = (effects @ self.single).reshape(-1, *self.grid.shape)
        points: Array = self.grid[self._each, values.argmin(axis=2)]
        few, gains = len(taken), values.min(axis=2)
        rank = gains[-few:].argsort(axis=1, kind="stable").argsort(axis=1)
        base = np.tile(self.default, (few, 1))
        base[1::2] = elite
        points[-few:] = np.where(rank < np.exp(taken).astype(np.intp)[:, None], points[-few:], base)
        return points

    def _places(self, points: Array) -> NDArray[np.intp]:
        """Which level each knob has [n, d]; meaningless for a continuous knob."""
        places: NDArray[np.intp] = self._cuts.searchsorted(points + self._offsets) - self._first_cut
        return places

    def _elsewhere(
        self, values: Array, places: NDArray[np.intp], knob: NDArray[np.intp], home: float, rng: np.random.Generator
    ) -> Array:
        """Another value for each of some knobs [n]: an ordered neighbour or any other level; near or anywhere."""
        near, uniform, side, back = rng.random((4, len(values)))
        last, default = self._last[knob], self.default[knob]
        other = places + 1 + (uniform * last).astype(np.intp)
        other = np.where(near < self._neighbour_chance[knob], places + np.where(side < 0.5, 1, -1), other % (last + 1))
        moved = self._turning[knob, other]
        if not self._all_discrete:
            width = 10.0 ** (-2.0 + 1.7 * uniform)  # from 0.01 to 0.5
            close = np.clip(values + width * rng.normal(size=len(values)), 0.0, 1.0)
            moved = np.where(self.discrete[knob], moved, np.where(near < NEAR_CHANCE, close, side))
        return np.where((back < home) & (values != default), default, moved)

    def _swap(self, points: Array, rng: np.random.Generator) -> Array:
        """One binary knob up and another down in each row, where there are such."""
        low, high = self._table[:, 0], self._table[:, 1]
        up = self.binary & (points != low)
        down = self.binary & (points == low)
        rows = np.flatnonzero(up.any(axis=1) & down.any(axis=1))
        lottery = rng.random(points.shape)
        falls = np.where(up, lottery, -1.0).argmax(axis=1)[rows]
        rises = np.where(down, lottery, -1.0).argmax(axis=1)[rows]
        points[rows, falls] = low[falls]
        points[rows, rises] = high[rises]
        return points

    def _ramps(self, levels: Sequence[Array | None]) -> tuple[NDArray[np.intp], Array, Array, Array]:
        knobs, lows, widths, weights = [], [], [], []
        for i, own in enumerate(levels):
            if self.unordered[i]:
                continue
            ends = np.linspace(0.0, 1.0, RAMPS + 1) if own is None or len(own) > RAMPS + 1 else own
            knobs += [i] * (len(ends) - 1)
            lows += ends[:-1].tolist()
            widths += np.diff(ends).tolist()
            weights += (np.diff(ends) / (ends[-1] - ends[0])).tolist()
        return np.array(knobs, dtype=np.intp), np.array(lows), 1.0 / np.array(widths), np.array(weights)

    def _choices(self, levels: Sequence[Array | None]) -> tuple[NDArray[np.intp], Array, Array]:
        found = [
            (i, at, 0.25 / len(own))
            for i, own in enumerate(levels)
            if own is not None and self.unordered[i]
            for at in own
        ]
        knobs, at, width = np.array(found).reshape(-1, 3).T
        return knobs.astype(np.intp), at, width

    def _terms(self, ramp_weight: Array) -> tuple[NDArray[np.intp], Array]:
        """Where each main effect [p] is found among z [d], z^2 [d], steps [q], binaries on and distance, and its scale.

        Linear, bent and free terms of ordered knobs, choices of unordered ones, count of binaries that are on.
        """
        d, q, ramps = self.dim, len(self.step_knob), len(self._ramp_knob)
        bent_ramps = np.flatnonzero(self._few[self._ramp_knob])
        parts: list[tuple[NDArray[np.intp], float | Array]] = [
            (np.flatnonzero(~self.unordered), 1.0),
            (d + np.flatnonzero(~self.unordered & ~self.binary), 1.5),
            (2 * d + np.arange(ramps, q), np.sqrt(2.0)),  # two choices are as far apart as the ends of a binary knob
            (2 * d + bent_ramps, 2.0 * LEVEL_SCALE * np.sqrt(ramp_weight[bent_ramps])),
            (np.array([2 * d + q]), np.sqrt(d / max(1, self.binary.sum()))),
            (np.array([2 * d + q + 1]), DISTANCE_SCALE / np.sqrt(d)),
        ]
        scales = [np.broadcast_to(scale, len(where)) for where, scale in parts]
        return np.concatenate([where for where, _ in parts]), np.concatenate(scales) / np.sqrt(d)

    def _tables(self) -> compiled.Tables:
        """All that compiled code needs to know."""
        chances = NEAR_CHANCE, SWAP_CHANCE if self._swaps else 0.0, FOCUSED_SHARE
        return compiled.Tables(
            self, chances, default=self.default, low=self._table[:, 0], high=self._table[:, 1], turning=self._turning,
            neighbour=self._neighbour_chance, cuts=self._cuts, grid=self.grid, single=self.single,
            ramp_low=self._ramp_low, ramp_slope=self._ramp_slope, choice_at=self._choice_at,
            choice_width=self._choice_width, term_scale=self._term_scale, origin=self._origin, prior=self.prior,
            step_knob=self.step_knob, term=self._term, last=self._last,
            first_cut=np.append(self._first_cut, len(self._cuts)), discrete=self.discrete, binary=self.binary,
            unordered=self.unordered,
        )  # fmt: skip

    def _middles(self, levels: Sequence[Array | None]) -> tuple[Array, NDArray[np.intp]]:
        """Middles between levels, those of knob i from 2 i to 2 i + 1; and how many come before each knob's first."""
        cuts = [np.zeros(0) if own is None else 2.0 * i + 0.5 * (own[1:] + own[:-1]) for i, own in enumerate(levels)]
        return np.concatenate(cuts), np.cumsum([0, *(len(own) for own in cuts[:-1])])

    def _turned(self) -> Array:
        """[d, most levels + 2] levels; a step beyond either end, the lower one at place -1, turns back."""
        turned = np.concatenate([self._table, self._table[:, -1:], self._table[:, 1:2]], axis=1)
        turned[self._each, self._last + 1] = self._table[self._each, self._last - 1]
        return turned

    def _singles(self) -> Array:
        count = self.grid.shape[1]
        points = np.tile(self.default, (self.dim, count, 1))  # [d, L, d]
        points[self._each, :, self._each] = self.grid
        return np.ascontiguousarray(self.features(points.reshape(-1, self.dim))[0].T)


def _grid(levels: Array | None) -> Array:
    if levels is None:
        return np.linspace(0.0, 1.0, GRID_VALUES)
    return levels[np.unique(np.linspace(0, len(levels) - 1, GRID_VALUES).round().astype(np.intp))]


def _padded(rows: Sequence[Array]) -> Array:
    """Rows of unequal length as one array; the last value of each is repeated."""
    width = max(2, *(len(row) for row in rows))
    return np.array([np.append(row, np.full(width - len(row), row[-1])) for row in rows], dtype=np.float64)


def keys_of(points: Array) -> list[bytes]:
    """Each of some points [n, d] as bytes, equal where they are."""
    joined, size = points.tobytes(), points.shape[1] * points.itemsize
    return [joined[at : at + size] for at in range(0, len(joined), size)]
