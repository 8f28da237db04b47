"""What family D knows about knobs: how points become features, and which moves lead from one point to the next.

symbol     shape      meaning
d, L       scalar     knobs; most grid values that any knob has
points     [n, d]     points of the unit box, on legal levels where a knob has them
phi        [n, p]     main effects: a sum of one term a knob, zero at the default
steps      [n, q]     which thresholds (ordered) or choices (unordered) a point has passed: their squared distance
                      counts levels, so it is exact for few levels and L1-like for a continuum
grid       [d, L]     the values tried for each knob when main effects are minimised; the last is repeated to fill up
single     [p, d, L]  phi of setting one knob to a grid value while the others keep their default
"""

from collections.abc import Sequence

import numpy as np

from rasp_tuner.numerics import Array

RAMPS = 8  # thresholds of an ordered knob: with more levels, neighbours share a ramp and differ by less
GRID = 21  # values of a knob tried when main effects are minimised
NEIGHBOUR = 0.6  # chance that an ordered knob moves by one level rather than to any other
NEAR = 0.8  # the same for a continuous knob: a small step rather than anywhere
SWAP = 0.3  # chance that a mutation of several knobs turns one binary knob on and another off


class Knobs:
    """The knobs of one space: their levels, features and moves."""

    def __init__(self, levels: Sequence[Array | None], unordered: Sequence[bool], default: Array) -> None:
        self.default = np.array(default, dtype=np.float64)
        self.dim = len(self.default)
        self.counts = np.array([0 if own is None else len(own) for own in levels])
        self.discrete = self.counts > 0
        self.binary = self.counts == 2
        self.unordered = np.array(unordered, dtype=bool)
        self._table = _padded([np.zeros(1) if own is None else own for own in levels])  # [d, most levels]
        self.grid = _padded([_grid(own) for own in levels])
        self._ramp_knob, self._ramp_low, self._ramp_width, self.ramp_weight = self._ramps(levels)
        self._choice_knob, self._choice_at, self._choice_width = self._choices(levels)
        self.step_knob = np.concatenate([self._ramp_knob, self._choice_knob])  # [q] whose step it is
        self.step_weight = np.concatenate([self.ramp_weight, np.full(len(self._choice_knob), 0.5)])
        self._ordered = np.flatnonzero(~self.unordered)
        self._bent = np.flatnonzero(~self.unordered & ~self.binary)
        self._reach = np.maximum(self.default, 1.0 - self.default)  # the longest way from the default
        self._origin = self._raw(self.default[None])
        self.single = self._singles()

    def main_effects(self, points: Array) -> Array:
        """phi [n, p]: linear and bent terms of ordered knobs, choices of unordered ones, and the distance gone."""
        return self._raw(points) - self._origin

    def steps(self, points: Array) -> Array:
        """[n, q] in [0, 1]."""
        ramps = np.clip((points[:, self._ramp_knob] - self._ramp_low) / self._ramp_width, 0.0, 1.0)
        return np.concatenate([ramps, self._chosen(points)], axis=1) if len(self._choice_knob) else ramps

    def mutate(
        self, parents: Array, rates: Array, rng: np.random.Generator, count: int, few: float, home: float
    ) -> Array:
        """`count` points [count, d], each a parent with few knobs changed; `rates` [d] says which are worth it.

        The number of changes is geometric with parameter `few`; with chance `home` a change goes back to the default.
        """
        points = parents[np.arange(count) % len(parents)]
        changes = np.minimum(rng.geometric(few, count), self.dim)
        order = (np.log(rates) + rng.gumbel(size=(count, self.dim))).argsort(axis=1)[:, ::-1]
        rank = np.empty_like(order)
        np.put_along_axis(rank, order, np.broadcast_to(np.arange(self.dim), order.shape), axis=1)
        swapped = (changes > 1) & (rng.random(count) < SWAP) & (self.binary.sum() > 1)
        changed = rank < np.where(swapped, changes - 2, changes)[:, None]
        moved = self._elsewhere(points, rng)
        homing = (rng.random(points.shape) < home) & (points != self.default)
        points = np.where(changed, np.where(homing, self.default, moved), points)
        if swapped.any():
            points[swapped] = self._swap(points[swapped], rng)
        return points

    def optimum(self, effects: Array) -> tuple[Array, Array]:
        """For each row of effects [n, p]: the point [n, d] that minimises the main effects, and each knob's effect
        there [n, d] relative to the default."""
        values = np.tensordot(effects, self.single, axes=1)  # [n, d, L]
        best = values.argmin(axis=2)
        points = self.grid[np.arange(self.dim), best]
        return points, np.take_along_axis(values, best[:, :, None], axis=2)[:, :, 0]

    def _raw(self, points: Array) -> Array:
        z = 2.0 * points - 1.0
        away = np.where(self.unordered, points != self.default, np.abs(points - self.default) / self._reach)
        terms = [
            z[:, self._ordered],
            1.5 * (z[:, self._bent] ** 2 - 0.33),
            np.sqrt(2.0) * self._chosen(points),  # two choices are as far apart as the ends of a binary knob
            2.0 * away.sum(axis=1, keepdims=True),
        ]
        raw: Array = np.concatenate(terms, axis=1) / np.sqrt(self.dim)
        return raw

    def _chosen(self, points: Array) -> Array:
        gap = np.abs(points[:, self._choice_knob] - self._choice_at)
        return (gap < self._choice_width).astype(np.float64)

    def _elsewhere(self, points: Array, rng: np.random.Generator) -> Array:
        """Another value for every knob [n, d]: an ordered neighbour or any other level; near or anywhere."""
        shape = points.shape
        near, uniform, side = rng.random((3, *shape))
        moved = np.empty(shape)
        if self.discrete.any():
            last = np.maximum(self.counts - 1, 0)
            now = np.abs(self._table - points[:, :, None]).argmin(axis=2)
            step = np.where(side < 0.5, 1, -1)
            step = np.where((now + step < 0) | (now + step > last), -step, step)
            other = (now + 1 + (uniform * last).astype(np.intp)) % np.maximum(self.counts, 1)
            there = np.where((near < NEIGHBOUR) & ~self.unordered, now + step, other)
            moved = self._table[np.arange(self.dim), np.clip(there, 0, last)]
        if not self.discrete.all():
            width = 10.0 ** (-2.0 + 1.7 * uniform)  # from 0.01 to 0.5
            close = np.clip(points + width * rng.normal(size=shape), 0.0, 1.0)
            moved = np.where(self.discrete, moved, np.where(near < NEAR, close, side))
        return moved

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

    def _ramps(self, levels: Sequence[Array | None]) -> tuple[Array, Array, Array, Array]:
        knobs, lows, widths, weights = [], [], [], []
        for i, own in enumerate(levels):
            if self.unordered[i]:
                continue
            ends = np.linspace(0.0, 1.0, RAMPS + 1) if own is None or len(own) > RAMPS + 1 else own
            knobs += [i] * (len(ends) - 1)
            lows += ends[:-1].tolist()
            widths += np.diff(ends).tolist()
            weights += (np.diff(ends) / (ends[-1] - ends[0])).tolist()
        return np.array(knobs, dtype=np.intp), np.array(lows), np.array(widths), np.array(weights)

    def _choices(self, levels: Sequence[Array | None]) -> tuple[Array, Array, Array]:
        found = [
            (i, at, 0.25 / len(own))
            for i, own in enumerate(levels)
            if own is not None and self.unordered[i]
            for at in own
        ]
        knobs, at, width = np.array(found).reshape(-1, 3).T
        return knobs.astype(np.intp), at, width

    def _singles(self) -> Array:
        count = self.grid.shape[1]
        points = np.tile(self.default, (self.dim, count, 1))  # [d, L, d]
        points[np.arange(self.dim), :, np.arange(self.dim)] = self.grid
        phi = self.main_effects(points.reshape(-1, self.dim)).reshape(self.dim, count, -1)
        return np.ascontiguousarray(phi.transpose(2, 0, 1))


def _grid(levels: Array | None) -> Array:
    if levels is None:
        return np.linspace(0.0, 1.0, GRID)
    return levels[np.unique(np.linspace(0, len(levels) - 1, GRID).round().astype(np.intp))]


def _padded(rows: Sequence[Array]) -> Array:
    """Rows of unequal length as one array; the last value of each is repeated."""
    width = max(2, *(len(row) for row in rows))
    return np.array([np.append(row, np.full(width - len(row), row[-1])) for row in rows], dtype=np.float64)
