"""The slow parts of the discrete family in compiled code, where there is a library (`ready`).

Each function means the same as the NumPy code that calls it, and agrees with it but for rounding. Random numbers are
drawn here, in the same order. Products of large matrices are NumPy's. Shapes are those of belief.py and kernel.py.
"""

import ctypes
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.core.numerics import Array
from rasp_tuner.engine.kernel import native

if TYPE_CHECKING:
    from rasp_tuner.engine.discrete.belief import Fit
    from rasp_tuner.engine.discrete.kernel import Kernel, Rows
    from rasp_tuner.engine.discrete.knobs import Knobs

SAMPLED_EFFECTS = 64  # up to which a root is taken here; beyond, NumPy's linear algebra is faster
SLOPES = 8  # sums that `slopes` gives
POINTER, COUNT, NUMBER = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
ARGUMENTS: dict[str, tuple[Any, list[Any]]] = {  # of each function: what it gives and takes
    "features": (None, [POINTER, COUNT, *[POINTER] * 6]),
    "race": (None, [POINTER, COUNT, *[POINTER] * 7]),
    "mutate": (
        None,
        [POINTER, COUNT, COUNT, POINTER, COUNT, POINTER, POINTER, POINTER, NUMBER, COUNT, POINTER, POINTER, POINTER],
    ),
    "effects": (None, [POINTER] * 5),
    "sample": (None, [COUNT, NUMBER, POINTER, POINTER, COUNT, POINTER, POINTER]),
    "optimum": (None, [POINTER, COUNT, POINTER, COUNT, POINTER, POINTER, POINTER]),
    "distinct": (COUNT, [COUNT, COUNT, POINTER, COUNT, POINTER, POINTER]),
    "believe": (None, [POINTER] * 3),
    "elites": (COUNT, [POINTER, POINTER, COUNT, NUMBER, POINTER, POINTER]),
    "cross": (None, [POINTER, POINTER, COUNT, *[POINTER] * 5]),
    "covariance": (None, [POINTER, COUNT, *[POINTER] * 4]),
    "look": (None, [POINTER] * 11),
    "gradient": (None, [COUNT, POINTER, POINTER, NUMBER, NUMBER, COUNT, POINTER, POINTER]),
    "likeness": (None, [COUNT, COUNT, POINTER, NUMBER, POINTER, POINTER]),
    "target": (None, [COUNT, POINTER, POINTER, NUMBER, POINTER, POINTER, POINTER, POINTER]),
    "updated": (None, [COUNT, COUNT, POINTER, POINTER, POINTER, COUNT, POINTER]),
    "matrix": (None, [POINTER] * 8),
    "slopes": (None, [POINTER] * 13),
}


def ready() -> bool:
    """Whether there is compiled code to use."""
    return native.available()


class _Knobs(ctypes.Structure):
    """Knobs of discrete.h."""

    COUNTS = ("d", "p", "q", "ramps", "turns", "values")
    NUMBERS = ("near_chance", "swap_chance", "focused")
    REALS = (
        "default", "low", "high", "turning", "neighbour", "cuts", "grid", "single",
        "ramp_low", "ramp_slope", "choice_at", "choice_width", "term_scale", "origin", "prior",
    )  # fmt: skip
    PLACES = ("step_knob", "term", "last", "first_cut", "discrete", "binary", "unordered")
    _fields_ = [
        *((name, COUNT) for name in COUNTS),
        *((name, NUMBER) for name in NUMBERS),
        *((name, POINTER) for name in (*REALS, *PLACES)),
    ]


class _Here(ctypes.Structure):
    """Here of discrete.h."""

    _fields_ = [
        *((name, COUNT) for name in ("n", "c")),
        *((name, NUMBER) for name in ("va", "vp", "width", "noise", "vc", "rho", "level")),
        *((name, POINTER) for name in (
            "weights", "points", "phi", "steps", "weighted", "sizes", "contexts", "failed", "gram", "inverse", "alpha",
            "values", "middle", "scale", "kc", "share", "base",
        )),
    ]  # fmt: skip


@lru_cache
def _functions() -> dict[str, Callable[..., Any]]:
    return {name: native.function(f"rasp_discrete_{name}", *reversed(one)) for name, one in ARGUMENTS.items()}


class Tables:
    """The knobs of one space as compiled code sees them."""

    def __init__(self, knobs: "Knobs", chances: tuple[float, float, float], **tables: NDArray[Any]) -> None:
        self._functions = _functions()
        self._dim, self._main, self._steps = dim, main, steps = knobs.dim, len(tables["term"]), len(tables["step_knob"])
        reals = {name: np.array(tables[name], dtype=np.float64, order="C") for name in _Knobs.REALS}
        places = {name: np.array(tables[name], dtype=np.int64) for name in _Knobs.PLACES}
        counts = (dim, main, steps, len(reals["ramp_low"]), reals["turning"].shape[1], reals["grid"].shape[1])
        self._owners = {**reals, **places}
        self._struct = _Knobs(*counts, *chances, *map(_at, self._owners.values()))
        self.address = ctypes.addressof(self._struct)
        self._continuous = not places["discrete"].all()

    def features(self, points: Array, weights: Array) -> tuple[Array, Array, Array, Array]:
        """phi, steps, weighted steps and sizes: the parts of `Rows`."""
        n, points = len(points), np.ascontiguousarray(points)
        parts = np.empty((n, self._main)), np.empty((n, self._steps)), np.empty((n, self._steps)), np.empty(n)
        self._functions["features"](self.address, n, _at(points), _at(weights), *map(_at, parts))
        return parts

    def mutate(
        self, parents: Array, rates: Array, rng: np.random.Generator, count: int, few: float, home: float
    ) -> Array:
        """As `Knobs.mutate`."""
        changes, lots = rng.geometric(few, count), rng.random(count)
        arrivals = rng.exponential(size=(count, self._dim))
        places = np.empty(count * self._dim + count + 2, dtype=np.int64)
        changed = _at(places)
        swapped, counts = changed + 8 * count * self._dim, changed + 8 * count * (self._dim + 1)
        self._functions["race"](
            self.address, count, _at(changes), _at(lots), _at(arrivals), _at(rates), changed, swapped, counts
        )
        moves, swaps = places[-2:].tolist()
        draws = rng.random((4, moves))
        steps = 10.0 ** (-2.0 + 1.7 * draws[1]) * rng.normal(size=moves) if self._continuous else draws
        lottery = rng.random((swaps, self._dim)) if swaps else draws
        points = np.empty((count, self._dim))
        self._functions["mutate"](
            self.address, count, len(parents), _at(parents), moves, changed, _at(draws), _at(steps), home, swaps,
            swapped, _at(lottery), _at(points),
        )  # fmt: skip
        return points

    def optimum(self, values: Array, draws: Array, elite: Array) -> Array:
        """Points [n, d] that minimise main effects of values [n, d L]; the last are sparse, one for each draw."""
        points = np.empty((len(values), self._dim))
        self._functions["optimum"](
            self.address, len(values), _at(values), len(draws), _at(draws), _at(elite), _at(points)
        )
        return points


class Here:
    """A fit in one context as compiled code sees it."""

    def __init__(self, fit: "Fit", tables: Tables, context: Array) -> None:
        n = len(fit.points)
        self._functions, self._fit, self._knobs, self._count = _functions(), fit, tables.address, n
        self._own = np.empty((3, n))
        self.kc: Array = self._own[0]
        self.share: Array = self._own[1]
        self.base: Array = self._own[2]
        own = _at(self._own)
        self._struct = _struct(
            fit.kernel, n, fit.contexts.shape[1], fit.points, *fit.rows, fit.contexts, fit.failed, fit.gram,
            fit.inverse, fit.alpha, fit.values, fit.middle, fit.width, own, own + 8 * n, own + 16 * n,
        )  # fmt: skip
        self._address = ctypes.addressof(self._struct)
        sums = np.empty(2)
        self._functions["believe"](self._address, _at(context), _at(sums))
        self.level, self.samples = sums.tolist()  # sums of kc y and of kc

    def elites(self, count: int, alike: float) -> Array:
        """As `DiscreteBelief._elites`."""
        means, rows = np.empty((2, self._count)), np.empty(count, dtype=np.int64)
        found = self._functions["elites"](self._knobs, self._address, count, alike, _at(means), _at(rows))
        best: Array = self._fit.points[rows[:found]]
        return best

    def effects(self) -> tuple[Array, Array, Array]:
        """Kernel [n, p] between main effects and rows, their posterior mean [p]; how often [d] mutations touch."""
        knobs = self._fit.knobs
        shared, effects, rates = np.empty_like(self._fit.rows.phi), np.empty(len(knobs.prior)), np.empty(knobs.dim)
        self._functions["effects"](self._knobs, self._address, _at(shared), _at(effects), _at(rates))
        return shared, effects, rates

    def cross(self, rows: "Rows") -> tuple[Array, Array, Array]:
        """As `DiscreteBelief._cross`."""
        stored, mean = self._fit.rows, np.empty(len(rows.phi))
        near, linear = rows.steps @ stored.weighted.T, rows.phi @ stored.phi.T
        self._functions["cross"](
            self._knobs, self._address, len(mean), _at(rows.sizes), _at(rows.phi), _at(near), _at(linear), _at(mean)
        )
        return near, linear, mean

    def covariance(self, rows: "Rows", explained: Array) -> Array:
        """Of points [m, m], of which the stored rows explain so much."""
        near, linear = rows.steps @ rows.weighted.T, rows.phi @ rows.phi.T
        self._functions["covariance"](self._address, len(near), _at(rows.sizes), _at(near), _at(linear), _at(explained))
        return explained

    def look(self, both: Array) -> tuple[list[Array], Array, Array, Array]:
        """Two points [2, d]: the parts of their `Rows`; their gram, mean and covariance."""
        _, main = self._fit.rows.phi.shape
        steps = self._fit.rows.steps.shape[1]
        widths = (main, steps, steps, 1, self._count, 1, 2, 2 * self._count)
        ends = [0]
        for width in widths:
            ends.append(ends[-1] + 2 * width)
        memory = np.empty(ends[-1])
        at = _at(memory)
        self._functions["look"](self._knobs, self._address, _at(both), *(at + 8 * end for end in ends[:-1]))
        phi, passed, weighted, sizes, gram, mean, covariance = (
            memory[start:end].reshape(2, -1) for start, end in pairwise(ends[:-1])
        )
        return [phi, passed, weighted, sizes[:, 0]], gram, mean[:, 0], covariance


def sampled_effects(va: float, covariance: Array, effects: Array, draws: Array) -> Array:
    """Main effects [m, p] by normal draws [m, p]; the covariance [p, p] lacks its prior, and is used up."""
    sampled = np.empty_like(draws)
    _functions()["sample"](len(effects), va, _at(covariance), _at(effects), len(draws), _at(draws), _at(sampled))
    return sampled


def distinct(points: Array, barred: Array) -> NDArray[np.int64]:
    """Which of some points [m, d] come first of their kind and are not barred."""
    kept = np.empty(len(points), dtype=np.int64)
    found = _functions()["distinct"](points.shape[1], len(points), _at(points), len(barred), _at(barred), _at(kept))
    return kept[:found]


def knowledge_gradient(mean: Array, covariance: Array, noise: float, jitter: float, looks: Array) -> Array:
    """As `knowledge_gradient` of value.py."""
    value = np.empty(len(mean))
    _functions()["gradient"](len(mean), _at(mean), _at(covariance), noise, jitter, len(looks), _at(looks), _at(value))
    return value


def likeness(contexts: Array, width: float) -> tuple[Array, Array]:
    """gaps and kc [n, n] between contexts [n, d_c]."""
    n, c = contexts.shape
    gaps, kc, columns = np.empty((n, n)), np.empty((n, n)), contexts.T.copy()
    _functions()["likeness"](n, c, _at(columns), width, _at(gaps), _at(kc))
    return gaps, kc


def target_of(y: Array, alike: Array, warp: float, priors: Array) -> tuple[Array, float, float, float]:
    """As `target_of` of target.py: values, center, scale and level."""
    values, numbers = np.empty(len(y)), np.empty(3)
    scratch = np.empty(2 * len(y))
    _functions()["target"](len(y), _at(y), _at(alike), warp, _at(priors), _at(scratch), _at(values), _at(numbers))
    center, scale, level = numbers.tolist()
    return values, center, scale, level


def updated(matrix: Array, left: Array, right: Array, size: int) -> Array:
    """The matrix plus the sum of left_i right_i', in the corner of a new one [size, size]."""
    changed = np.empty((size, size))
    _functions()["updated"](len(matrix), len(left), _at(matrix), _at(left), _at(right), size, _at(changed))
    return changed


class Matrices:
    """The matrices of all rows at a refit."""

    def __init__(self, kernel: "Kernel", rows: "Rows", kc: Array, noises: Array) -> None:
        self._kernel, self._rows, self._kc, self._noises = kernel, rows, kc, noises
        self._near, self._linear = rows.steps @ rows.weighted.T, rows.phi @ rows.phi.T
        self.rugged, self.gram, self.matrix = (np.empty_like(self._near) for _ in range(3))
        struct = _struct(kernel, len(kc), 0, 0, *rows)
        _functions()["matrix"](
            ctypes.addressof(struct), *map(_at, (kc, noises, self._near, self._linear)), _at(self.rugged),
            _at(self.gram), _at(self.matrix),
        )  # fmt: skip

    def slopes(self, inverse: Array, alpha: Array, gaps: Array, means: Array) -> tuple[Array, Array, list[float]]:
        """Sums of the rugged part of the gradient and rivals [n], and of all else that `evidence` sums; `rugged`
        becomes that part."""
        n = len(alpha)
        struct = _struct(self._kernel, n, 0, 0, *self._rows, 0, 0, 0, inverse, alpha)
        scratch, by_row, rivals, sums = np.empty(SLOPES * n), np.empty(n), np.empty(n), np.empty(SLOPES)
        arrays = (self._kc, gaps, self._noises, means, self._near, self._linear, self.rugged, self.gram)
        _functions()["slopes"](ctypes.addressof(struct), *map(_at, (*arrays, scratch, by_row, rivals, sums)))
        return by_row, rivals, sums.tolist()


def _struct(kernel: "Kernel", n: int, c: int, *arrays: Array | int) -> _Here:
    """Addresses may stand for arrays."""
    va, vp, width, noise, vc, rho, level, weights = kernel
    addresses = (array if isinstance(array, int) else _at(array) for array in arrays)
    return _Here(n, c, va, vp, width, noise, vc, rho, level, _at(weights), *addresses)


def _at(array: NDArray[Any]) -> int:
    """Where it lies, row by row."""
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(array))  # type: ignore[arg-type] # three times as fast
    except (TypeError, ValueError):  # read-only, empty, or not row by row
        if not array.flags.c_contiguous:
            raise
        return int(array.ctypes.data)
