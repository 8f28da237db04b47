"""Moves of a point, the best point by the mean, and candidates for a look.

symbol     shape    meaning
x0         [d]      the best point by the posterior mean
lines      [l, d]   x0 with one knob moved, `line_knob` [l] says which
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.base.numerics import Array
from rasp_tuner.engine.gp.knobs import MOST_FEW, Indices, Knobs
from rasp_tuner.engine.gp.posterior import ContextPosterior

STEP = 0.1  # move of a continuous knob, to look
NEAR, WIDE = 0.5 * STEP, 2.0 * STEP  # to descend; deviation of a look at several
MOST_MOVE = 0.3  # of the box, by one step of the descent
DESCENTS = 4  # steps of a descent
LEAST_CURVATURE = 1e-3  # below, a parabola has no minimum
BEST_ROWS = 4  # stored points that are candidates; there are more of other kinds in proportion
SHORTLIST = 4 * BEST_ROWS  # stored points that are compared with the residual
SEVERAL, ELSEWHERE = 4 * BEST_ROWS, 2 * BEST_ROWS  # candidates with several knobs, or all scales, moved
LITTLE = 0.15  # deviation of these moves
NO_POINTS = np.zeros((1, 1))[:0]
SOURCES = ("best known", "best tried", "default", "one knob moved", "several knobs moved", "a move nearby")


class Candidates(NamedTuple):
    """x0 first; then found and tried points, the default, the lines, and others."""

    points: Array  # [m, d]
    source: Indices  # [m] place in SOURCES
    lines: Indices  # [l] where the lines are
    line_knob: Indices  # [l]

    def only(self, kept: NDArray[np.bool_]) -> "Candidates":
        """Those of a mask [m]."""
        lines, knob = self.lines[kept[self.lines]], self.line_knob[kept[self.lines]]
        return Candidates(self.points[kept], self.source[kept], np.cumsum(kept)[lines] - 1, knob)


def moves(knobs: Knobs, x: Array, width: float) -> tuple[Array, Indices]:
    """Points [l, d] that differ from x [d] in one knob, and that knob [l].

    All levels of a choice or a knob with few, six of a knob with many, two points of a continuum.
    """
    values: list[float] = []
    knob: list[int] = []
    for j, levels in enumerate(knobs.levels):
        at = float(x[j])
        if levels is None:
            own = [at - width, at + width]
            if own[0] < 0.0 or own[1] > 1.0:
                own = [at + width, at + 0.5 * width] if at < 0.5 else [at - width, at - 0.5 * width]
        else:
            n = len(levels)
            i = int(np.abs(levels - at).argmin())
            places = range(n)
            if n > MOST_FEW and not knobs.unordered[j]:
                hops = (-1, 1, -(n // 8), n // 8, -(n // 3), n // 3)
                places = sorted({min(max(i + hop, 0), n - 1) for hop in hops})  # type: ignore[assignment]
            own = [float(levels[k]) for k in places if k != i]
        values += own
        knob += [j] * len(own)
    points = np.repeat(x[None], len(values), axis=0)
    points[np.arange(len(values)), knob] = values
    return points, np.array(knob, dtype=np.intp)


def parabola(x: Array, f: Array) -> tuple[Array, Array]:
    """Slope at 0 and half the second derivative of the parabola through (0, 0) and (x_i, f_i [..., 2])."""
    one, two = f[..., 0] / x[0], f[..., 1] / x[1]
    bend = (one - two) / (x[0] - x[1])
    return one - bend * x[0], bend


def descents(here: ContextPosterior, starts: list[Array]) -> list[tuple[Array, float]]:
    """The ends of coordinate descents of the mean from points [d], and the means there.

    All improving moves at once, which is exact without interactions, or the best single one.
    """
    ends, steps = [], dict[bytes, tuple[Array, float]]()  # those that descents have in common are made once
    means = here.mean(np.array(starts)).tolist()
    for x, least in zip(starts, means, strict=True):
        for _ in range(DESCENTS):
            key = x.tobytes()
            if key not in steps:
                steps[key] = _step(here, x, least)
            if steps[key][0] is x:
                break
            x, least = steps[key]
        ends.append((x.copy(), least))
    return ends


def _step(here: ContextPosterior, x: Array, least: float) -> tuple[Array, float]:
    """Where one step from x [d], of mean `least`, leads to, and the mean there; x itself if it is the end."""
    knobs = here.fit.knobs
    points, knob = moves(knobs, x, NEAR)
    means, first = here.mean(points).tolist(), knob.searchsorted(np.arange(knobs.dim + 1)).tolist()
    together, single, single_mean = x.copy(), x, least
    for j, at in enumerate(x.tolist()):
        own = range(first[j], first[j + 1])
        if knobs.levels[j] is None:
            slope, bend = parabola(points[own, j] - at, np.array([means[i] - least for i in own]))
            step = -slope / (2.0 * bend) if bend > LEAST_CURVATURE else -math.copysign(MOST_MOVE, slope)
            together[j] = min(max(at + min(max(step, -MOST_MOVE), MOST_MOVE), 0.0), 1.0)
        else:
            best = min(own, key=means.__getitem__)
            if means[best] < least - 1e-9:
                together[j] = points[best, j]
            if means[best] < single_mean:
                single, single_mean = points[best], means[best]
    both = knobs.lawful(np.stack([together, single]))
    pair = here.mean(both).tolist()
    best = int(pair[1] < pair[0])
    return (x, least) if pair[best] > least - 1e-7 else (both[best], pair[best])


def best_rows(here: ContextPosterior, barred: set[bytes], count: int) -> list[Array]:
    """Different stored points, least mean first, without those that are barred; the residual decides among a few."""
    points = here.fit.rows.points
    seen, found, keys = set(barred), [], point_keys(points)
    for i in here.linear_means().argsort(kind="stable").tolist():
        if keys[i] not in seen:
            seen.add(keys[i])
            found.append(points[i])
            if len(found) == SHORTLIST:
                break
    if not found:
        return []
    order = here.mean(np.array(found)).argsort(kind="stable")[:count]
    return [found[i] for i in order.tolist()]


def best_point(here: ContextPosterior, barred: set[bytes]) -> Array | None:
    """The least mean, by a descent from the best tried and from the default; the best tried if all ends are barred."""
    if here.native is not None:
        return here.native.best(joined_keys(barred, here.fit.knobs.dim))
    tried = best_rows(here, barred, 1)
    starts = [*tried, here.fit.knobs.default]
    ends = [end for end in descents(here, starts) if end[0].tobytes() not in barred]
    return min(ends, key=lambda end: end[1])[0] if ends else tried[0] if tried else None


class Draws(NamedTuple):
    """What is left to chance in one search: as much in every context."""

    uniform: Array  # [SEVERAL, 2 d + 1]: how many knobs move, which of them, and where to
    normal: Array | None  # [SEVERAL + ELSEWHERE, d]; None where no knob is a scale

    @classmethod
    def of(cls, knobs: Knobs, rng: np.random.Generator) -> "Draws":
        uniform = rng.random((SEVERAL, 2 * knobs.dim + 1))
        return cls(uniform, rng.standard_normal((SEVERAL + ELSEWHERE, knobs.dim)) if knobs.has_scale else None)


def candidates(here: ContextPosterior, barred: set[bytes], draws: Draws) -> Candidates:
    """Points that may be worth a look; those that are barred are left out."""
    knobs = here.fit.knobs
    tried = best_rows(here, barred, BEST_ROWS) or [knobs.default]
    ends = descents(here, [tried[0], knobs.default, *tried[1:2]])
    ends = [end for end in ends if end[0].tobytes() not in barred] or [(tried[0], 0.0)]
    x0 = min(ends, key=lambda end: end[1])[0]
    return around(knobs, x0, np.array([*(point for point, _ in ends), *tried]), draws)


def around(knobs: Knobs, x0: Array, known: Array, draws: Draws) -> Candidates:
    """x0 [d], points [k, d] that are known, the default, and moves of x0."""
    lines, line_knob = moves(knobs, x0, STEP)
    parts = [x0[None], known, knobs.default[None], lines]
    parts += [_several(knobs, x0, lines, line_knob, draws)]
    if draws.normal is not None:
        parts += [snapped(knobs, np.where(knobs.scale, x0 + LITTLE * draws.normal[SEVERAL:], x0))]
    groups = [len(part) for part in parts]
    source, lined = np.repeat(np.arange(len(groups)), groups), sum(groups[:3])
    return Candidates(knobs.lawful(np.concatenate(parts)), source, lined + np.arange(len(lines)), line_knob)


def _several(knobs: Knobs, x0: Array, lines: Array, line_knob: Indices, draws: Draws) -> Array:
    """[SEVERAL, d] x0 with two knobs moved, or more: half as often with one more each."""
    several, dim = np.repeat(x0[None], SEVERAL, axis=0), knobs.dim
    first = line_knob.searchsorted(np.arange(dim + 1)).tolist()  # line of each knob
    for i, (count, *drawn) in enumerate(draws.uniform.tolist()):
        order, pick = np.argsort(drawn[:dim]).tolist(), drawn[dim:]
        for j in order[: 2 + sum(count < 0.5**k for k in range(1, dim))]:
            if knobs.levels[j] is None:
                several[i, j] = min(max(x0[j] + WIDE * draws.normal[i, j], 0.0), 1.0)  # type: ignore[index]
            elif first[j + 1] > first[j]:
                several[i, j] = lines[first[j] + int(pick[j] * (first[j + 1] - first[j])), j]
    return several


def point_keys(points: Array) -> list[bytes]:
    """A key of each point [m, d], as `tobytes` of it would give."""
    raw, width = points.tobytes(), points.shape[1] * points.itemsize
    return [raw[at : at + width] for at in range(0, len(raw), width)]


def joined_keys(keys: set[bytes], dim: int) -> Array:
    """[m, d] the points of keys."""
    return np.frombuffer(b"".join(sorted(keys))).reshape(-1, dim) if keys else NO_POINTS


def snapped(knobs: Knobs, points: Array) -> Array:
    """Points [m, d] on legal levels inside the box."""
    points = np.clip(points, 0.0, 1.0)
    for j, levels in enumerate(knobs.levels):
        if levels is not None:
            points[:, j] = levels[np.abs(points[:, j, None] - levels).argmin(axis=1)]
    return points
