"""The model in compiled code, where there is a library: the same as in model.py, posterior.py, search.py, value.py.

Every count that C is told comes from the shape of an array here, and every array is made row by row in float64 first.
"""

import ctypes
import struct
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.core.numerics import Array
from rasp_tuner.engine.kernel import native
from rasp_tuner.engine.kernel.native import address

if TYPE_CHECKING:
    from rasp_tuner.engine.gp.knobs import Knobs

POINTER, COUNT, NUMBER = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
ARGUMENTS: dict[str, tuple[Any, list[Any]]] = {  # of each function: what it gives and takes
    "features": (None, [POINTER, COUNT, *[POINTER] * 5]),
    "fit": (COUNT, [POINTER, POINTER, COUNT, *[POINTER] * 3, COUNT, *[POINTER] * 5]),
    "spare": (None, [POINTER, POINTER, POINTER]),
    "beside": (None, [*[POINTER] * 3, NUMBER, NUMBER, *[POINTER] * 3]),
    "solve": (None, [POINTER, POINTER, POINTER]),
    "here": (None, [POINTER, POINTER, POINTER, POINTER, NUMBER]),
    "means": (None, [POINTER, POINTER, POINTER, COUNT, *[POINTER] * 3]),
    "joint": (None, [POINTER, POINTER, POINTER, COUNT, *[POINTER] * 4]),
    "moves": (COUNT, [POINTER, POINTER, NUMBER, POINTER, POINTER]),
    "descend": (None, [POINTER, POINTER, POINTER, COUNT, POINTER, POINTER, COUNT, COUNT, POINTER]),
    "value": (
        None,
        [POINTER, COUNT, POINTER, COUNT, *[POINTER] * 4, NUMBER, POINTER, COUNT, *[POINTER] * 3],
    ),
}


def ready() -> bool:
    """Whether there is compiled code to use."""
    return native.available()


@lru_cache
def functions() -> dict[str, Callable[..., Any]]:
    return {name: native.function(f"rasp_gp_{name}", *reversed(one)) for name, one in ARGUMENTS.items()}


_own = threading.local()


def scratch(size: int) -> int:
    """The address of memory of this thread for one call."""
    found: tuple[Array, int, int] | None = getattr(_own, "scratch", None)
    if found is None or found[1] < size:
        made = np.empty(2 * size)
        found = _own.scratch = made, len(made), address(made)
    return found[2]


class Features(NamedTuple):
    """Of m points: see knobs.py."""

    effects: Array  # [m, p]
    curved: Array  # [m, q]
    mean: Array  # [m]
    embedding: Array  # [m, e]


class KnobTables:
    """The knobs of one space as compiled code sees them: GpKnobs of gp.h."""

    COUNTS = 8
    POINTERS = 19

    def __init__(self, knobs: "Knobs") -> None:
        levels = [np.zeros(0) if own is None else own for own in knobs.levels]
        first = np.cumsum([0, *map(len, levels)])
        places = (
            knobs.ordered, knobs.switches, knobs.hot_knob, knobs.hot_choice, knobs.effect_knob, knobs.embedding_knob,
            first, knobs.unordered,
        )  # fmt: skip
        reals = (
            knobs.default, knobs.reach, knobs.bowl, knobs.harm, knobs.few, knobs.hot_at, knobs.of_few, knobs.of_choice,
            knobs.effect_variance, knobs.curved_variance, np.concatenate([*levels, np.zeros(1)]),
        )  # fmt: skip
        self._owners = [np.array(a, dtype=np.int64) for a in places] + [np.array(a, dtype=np.float64) for a in reals]
        self.d, self.p, self.q, self.e = (
            knobs.dim,
            len(knobs.effect_knob),
            len(knobs.curved_variance),
            len(knobs.embedding_knob),
        )
        self.most_moves = sum(
            2 if own is None else max(len(own) if len(own) <= 8 or loose else 6, 6)
            for own, loose in zip(knobs.levels, knobs.unordered.tolist(), strict=True)
        )
        counts = (
            self.d, self.p, self.q, self.e, len(knobs.ordered), len(knobs.switches), len(knobs.hot_knob),
            len(knobs.hot_choice),
        )  # fmt: skip
        self.struct = struct.pack(f"{self.COUNTS}q{self.POINTERS}Q", *counts, *map(address, self._owners))

    def features(self, points: Array) -> Features:
        points, m = np.ascontiguousarray(points), len(points)
        made = Features(np.empty((m, self.p)), np.empty((m, self.q)), np.empty(m), np.empty((m, self.e)))
        functions()["features"](self.struct, m, address(points), *map(address, made))
        return made


class NativeFit(NamedTuple):
    """GpFit of gp.h, and the arrays that it points to."""

    struct: bytes
    owners: tuple[Array, ...]
    context_dim: int
    root: Array
    pairs: Array  # [2, n, n] covariance without level and noise, and kc; up to the diagonal
    alpha: Array
    noises: Array


class Known(NamedTuple):
    """The pairs of an older fit with the same weights."""

    pairs: Array  # [2, m, m]
    kept: NDArray[np.int64]  # [n] where each row was there, ascending; -1: nowhere


def prepared(
    tables: KnobTables, h: Array, weights: tuple[Array, ...], level: float, rows: tuple[Array, ...], z: Array
) -> NativeFit:
    """Memory for a fit; weights of effects, choices and embedding; rows: points, features, counts, trust, times, y."""
    points, effects, curved, mean, embedding, counts, trust, times, y = rows
    n = len(y)
    embedded, turned = np.empty((tables.e, n)), np.empty((2 * tables.p + tables.q, n))
    root, pairs, alpha, noises = np.empty((n, n)), np.empty((2, n, n)), np.empty(n), np.empty(n)
    given = (h, *weights, points, effects, curved, mean, embedding, z, counts, trust, times, y)
    owners = (
        *(np.ascontiguousarray(a, dtype=np.float64) for a in given), embedded, turned, root, *pairs, alpha, noises,
    )  # fmt: skip
    packed = struct.pack(f"2qd{len(owners)}Q", n, z.shape[1], level, *map(address, owners))
    return NativeFit(packed, owners, z.shape[1], root, pairs, alpha, noises)


def fit(
    tables: KnobTables, made: NativeFit, factors: Array, priors: Array, slopes: int, known: Known | None = None
) -> tuple[float, int, Array | None, Array | None]:
    """The scale, which factor of the noise; slopes of the evidence and how odd each row is, if `slopes` > 0."""
    n = len(made.alpha)
    slope, odd = (np.empty(slopes), np.empty(n)) if slopes else (None, None)
    out = np.empty(2)
    widths = tables.p + tables.e + made.context_dim
    memory = scratch(7 * n * n + n * (widths + 8) + 2 * widths)
    if known is not None and slopes:
        raise ValueError("slopes need all parts of the covariance")
    of_known = (0, 0, 0) if known is None else (address(known.pairs), known.pairs.shape[1], address(known.kept))
    if functions()["fit"](
        tables.struct, made.struct, len(factors), address(factors), address(priors), *of_known,
        0 if slope is None else address(slope), 0 if odd is None else address(odd), address(out), memory,
    ):  # fmt: skip
        raise np.linalg.LinAlgError("the covariance of the rows is not positive definite")
    return float(out[0]), int(out[1]), slope if slope is None else 0.5 * slope, odd


def spare(made: NativeFit) -> Array:
    """[n] the variance of each row given the others, without its noise."""
    n = len(made.alpha)
    out = np.empty(n)
    functions()["spare"](made.struct, address(out), scratch(2 * n * n))
    return out


def beside(made: NativeFit, lin: Array, choice: Array, own: float, own_choice: float) -> tuple[Array, Array]:
    """See bill.py; lin, choice [n]: what each row shares with the default."""
    n = len(made.alpha)
    out = np.empty((n, n)), np.empty((n, n))
    memory = scratch(n)
    functions()["beside"](made.struct, address(lin), address(choice), own, own_choice, *map(address, out), memory)
    return out


def solve(made: NativeFit, b: Array) -> Array:
    """The covariance of the rows with noise, its inverse times b [n]."""
    out = np.empty(len(b))
    functions()["solve"](made.struct, address(b), address(out))
    return out


class NativeHere:
    """GpHere of gp.h: a fit in one context."""

    def __init__(self, tables: KnobTables, made: NativeFit, z: Array, now: float) -> None:
        self._tables, self._made, n = tables, made, len(made.alpha)
        self._arrays = [np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(tables.p), np.empty(tables.q)]
        self.kc, self.share, *_, self.effects, self.curved = self._arrays
        self._struct = ctypes.create_string_buffer(struct.pack("3d6Q", 0.0, 0.0, 0.0, *map(address, self._arrays)))
        functions()["here"](tables.struct, made.struct, self._struct, address(np.ascontiguousarray(z)), now)

    def mean(self, points: Array) -> Array:
        t, points, m = self._tables, np.ascontiguousarray(points), len(points)
        out, memory = np.empty(m), scratch(self._means_room(m))
        functions()["means"](t.struct, self._made.struct, self._struct, m, address(points), address(out), memory)
        return out

    def joint(self, points: Array) -> tuple[Array, Array]:
        t, points, m, n = self._tables, np.ascontiguousarray(points), len(points), len(self.kc)
        mean, covariance = np.empty(m), np.empty((m, m))
        memory = scratch(2 * m * (t.p + t.q + t.e) + n * (2 * m + 4) + 3 * t.p + t.q)
        functions()["joint"](
            t.struct, self._made.struct, self._struct, m, address(points), address(mean), address(covariance), memory
        )
        return mean, covariance

    def descend(self, starts: list[Array], steps: int) -> list[tuple[Array, float]]:
        t, most, count, ends = self._tables, self._tables.most_moves, len(starts), np.array(starts)
        means = np.empty(count)
        memory = scratch(most * (t.d + 3) + 2 * t.d + 2 + self._means_room(most) + count * steps * (2 * t.d + 1))
        functions()["descend"](
            t.struct, self._made.struct, self._struct, count, address(ends), address(means), steps, most, memory
        )
        return list(zip(ends, means.tolist(), strict=True))

    def _means_room(self, m: int) -> int:
        t, n = self._tables, len(self.kc)
        return m * (t.p + t.q + t.e) + 2 * n + 1


def moves(tables: KnobTables, x: Array, width: float) -> tuple[Array, NDArray[np.intp]]:
    points, knob = np.empty((tables.most_moves, tables.d)), np.empty(tables.most_moves, dtype=np.int64)
    count = functions()["moves"](tables.struct, address(np.ascontiguousarray(x)), width, address(points), address(knob))
    return points[:count], knob[:count]


def value(
    tables: KnobTables, points: Array, lines: NDArray[np.intp], line_knob: NDArray[np.intp], mean: Array,
    covariance: Array, noise: float, nodes: Array, looks: Array,
) -> Array:  # fmt: skip
    m, out = len(mean), np.empty(len(mean))
    given = [np.ascontiguousarray(a) for a in (points, lines, line_knob, mean, covariance)]
    functions()["value"](
        tables.struct, m, address(given[0]), len(lines), *map(address, given[1:]), noise, address(nodes), len(looks),
        address(looks), address(out), scratch(m * (m + 3) + 2),
    )  # fmt: skip
    return out
