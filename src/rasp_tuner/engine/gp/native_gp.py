"""The model in compiled code, where there is a library: the same as in model.py, posterior.py, search.py, value.py.

Every count that C is told comes from the shape of an array here, and every array is made row by row in float64 first.
"""

import ctypes
import itertools
import math
import struct
import threading
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.base.numerics import Array
from rasp_tuner.engine.kernel import native
from rasp_tuner.engine.kernel.native import address

POINTER, COUNT, NUMBER = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
LAWFUL = ctypes.CFUNCTYPE(None, COUNT, POINTER)
ARGUMENTS: dict[str, tuple[Any, list[Any]]] = {  # of each function: what it gives and takes
    "features": (None, [POINTER, COUNT, *[POINTER] * 5]),
    "fit": (COUNT, [POINTER, POINTER, COUNT, *[POINTER] * 6]),
    "take": (COUNT, [POINTER] * 8),
    "bounded": (None, [COUNT, COUNT, *[POINTER] * 4]),
    "closest": (None, [POINTER, POINTER, POINTER, COUNT, POINTER, COUNT, POINTER, POINTER]),
    "spare": (None, [POINTER, POINTER, POINTER]),
    "bill": (None, [*[POINTER] * 4, *[NUMBER] * 3, *[POINTER] * 4]),
    "billed": (NUMBER, [POINTER] * 7),
    "here": (None, [POINTER, POINTER, POINTER, POINTER, NUMBER, POINTER]),
    "joint": (None, [POINTER, POINTER, POINTER, COUNT, *[POINTER] * 4]),
    "marginal": (None, [POINTER, POINTER, POINTER, COUNT, *[POINTER] * 4]),
    "best": (COUNT, [*[POINTER] * 3, COUNT, POINTER, COUNT, COUNT, POINTER, POINTER]),
    "choose_room": (COUNT, [POINTER, COUNT, COUNT, COUNT]),
    "choose": (
        None,
        [*[POINTER] * 5, COUNT, *[POINTER] * 3, NUMBER, COUNT, COUNT, POINTER, POINTER],
    ),
}

NOT_DEFINITE = "the covariance of the rows is not positive definite"
VALUES_OF_CONTINUUM = 64  # of one knob that a search meets, about: what is known of more is not kept


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


class KnobArrays(Protocol):
    """What compiled code needs of `Knobs`."""

    dim: int
    levels: tuple[Array | None, ...]
    rules: Any
    unordered: NDArray[np.bool_]
    ordered: NDArray[np.intp]
    switches: NDArray[np.intp]
    hot_knob: NDArray[np.intp]
    hot_choice: NDArray[np.intp]
    effect_knob: NDArray[np.intp]
    embedding_knob: NDArray[np.intp]
    default: Array
    reach: Array
    bowl: Array
    harm: Array
    few: NDArray[np.bool_]
    hot_at: Array
    of_few: NDArray[np.bool_]
    of_choice: NDArray[np.bool_]
    effect_variance: Array
    curved_variance: Array

    def lawful(self, points: Array) -> Array: ...


class KnobTables:
    """The knobs of one space as compiled code sees them: GpKnobs of gp.h."""

    COUNTS = 8
    POINTERS = 20

    def __init__(self, knobs: KnobArrays) -> None:
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
        self.widths = 2 * (self.d + self.p + self.q + self.e + 1)  # of two points with their features
        values = [VALUES_OF_CONTINUUM if own is None else len(own) for own in knobs.levels]
        self.most_values = sum(values) + 1  # never full where all have levels: those of a point are taken together
        counts = (
            self.d, self.p, self.q, self.e, len(knobs.ordered), len(knobs.switches), len(knobs.hot_knob),
            len(knobs.hot_choice),
        )  # fmt: skip
        self.choose_rooms: dict[int, int] = {}  # scratch that a choice among so many rows needs
        self._lawful = None if knobs.rules is None else LAWFUL(self._kept(knobs.lawful))
        lawful = 0 if self._lawful is None else ctypes.cast(self._lawful, POINTER).value
        self.struct = struct.pack(f"{self.COUNTS}q{self.POINTERS}Q", *counts, *map(address, self._owners), lawful)

    def _kept(self, lawful: Callable[[Array], Array]) -> Callable[[int, int], None]:
        """Points at an address, made to keep the rules in place; what goes wrong is raised after the search."""

        def keep(count: int, place: int) -> None:
            try:
                held = (ctypes.c_double * (count * self.d)).from_address(place)
                points: Array = np.ndarray((count, self.d), buffer=memoryview(held).cast("B"))
                points[:] = lawful(points)
            except BaseException as failure:  # noqa: BLE001 - C cannot pass it on
                _own.failure = failure

        return keep

    def features(self, points: Array) -> Features:
        points, m = np.ascontiguousarray(points), len(points)
        made = Features(np.empty((m, self.p)), np.empty((m, self.q)), np.empty(m), np.empty((m, self.e)))
        functions()["features"](self.struct, m, address(points), *map(address, made))
        return made


class NativeFit(NamedTuple):
    """GpFit of gp.h, and the arrays that it points to."""

    struct: bytes
    block: Array  # that all of it lies in
    places: "FitPlaces"
    context_dim: int
    alpha: Array
    noises: Array

    def part(self, name: str, *shape: int) -> Array:
        """What GpFit calls so."""
        at = self.places.at[name] // 8
        return self.block[at : at + math.prod(shape)].reshape(shape)


class FitPlaces(NamedTuple):
    """Where in its block each part of a GpFit begins, in bytes."""

    at: dict[str, int]
    size: int  # of the block


@lru_cache(maxsize=1024)
def fit_places(n: int, d: int, p: int, q: int, e: int, c: int, hypers: int) -> FitPlaces:
    sizes = {
        "hyper": hypers, "effect_weight": p, "choice_weight": p, "embedding_weight": e, "relevance": c, "median": c,
        "deviation": c, "points": n * d, "effects": n * p, "curved": n * q, "mean": n, "embedding": n * e, "z": n * c,
        "counts": n, "trust": n, "times": n, "y": n, "embedded": e * n, "turned": (2 * p + q) * n, "root": n * n,
        "kernel": n * n, "alike": n * n, "lately": n * n, "alpha": n, "noises": n,
    }  # fmt: skip
    ends = list(itertools.accumulate(sizes.values(), initial=0))
    return FitPlaces({name: 8 * end for name, end in zip(sizes, ends, strict=False)}, ends[-1])


def blank_fit(
    tables: KnobTables,
    n: int,
    weights: Array,
    hypers: int,
    context_dim: int,
    level: float,
    repeats: tuple[float, float, float],
    spare: Array | None = None,
) -> NativeFit:
    """Memory for a fit to n rows, a `spare` one if it is large enough; `weights`: its first parts, up to deviations."""
    places = fit_places(n, tables.d, tables.p, tables.q, tables.e, context_dim, hypers)
    block = spare if spare is not None and len(spare) >= places.size else np.empty(places.size)
    block[: len(weights)] = weights
    at = address(block)
    packed = _FIT.pack(n, context_dim, level, *repeats, *[at + place for place in places.at.values()])
    last = places.at["alpha"] // 8
    return NativeFit(packed, block, places, context_dim, block[last : last + n], block[last + n : last + 2 * n])


_HERE, _SIX, _FIT, _STORED = (struct.Struct(form) for form in ("6d6Q", "6d", "2q4d25Q", "2q2Q"))


def prepared(
    tables: KnobTables,
    weights: Array,
    hypers: int,
    level: float,
    repeats: tuple[float, float, float],
    rows: Mapping[str, Array],
    z: Array,
) -> NativeFit:
    """A fit to be made; `weights` as for `blank_fit`, rows by their names in GpFit."""
    made = blank_fit(tables, len(z), weights, hypers, z.shape[1], level, repeats)
    for name, array in (*rows.items(), ("z", z)):
        at = made.places.at[name] // 8
        made.block[at : at + array.size] = array.reshape(-1)
    return made


def fit(
    tables: KnobTables, made: NativeFit, factors: Array, priors: Array, slopes: int
) -> tuple[float, int, float, Array | None, Array | None]:
    """The scale, which factor of the noise, the evidence; its slopes and how odd each row is, if `slopes` > 0."""
    n = len(made.alpha)
    slope, odd = (np.empty(slopes), np.empty((3, n))) if slopes else (None, None)
    out = np.empty(3)
    if functions()["fit"](
        tables.struct, made.struct, len(factors), address(factors), address(priors),
        0 if slope is None else address(slope), 0 if odd is None else address(odd), address(out),
        scratch(_fit_room(tables, n, made.context_dim)),
    ):  # fmt: skip
        raise np.linalg.LinAlgError(NOT_DEFINITE)
    return float(out[0]), int(out[1]), float(out[2]), slope if slope is None else 0.5 * slope, odd


def _fit_room(tables: KnobTables, n: int, context_dim: int) -> int:
    widths = tables.p + tables.e + context_dim
    return 7 * n * n + n * (widths + 8) + 2 * widths


def take(
    tables: KnobTables, made: NativeFit, table: Array, columns: int, weights: Array, older: NativeFit | None,
    kept: NDArray[np.int64] | None, bounded: Array | None,
) -> list[float]:  # fmt: skip
    """Fit stored rows, the first of `table`: center, unit, spread and scale.

    An older fit with the same weights, and where each row was in it, ascending, -1: nowhere, save time; so does what
    `bounded` gave for all rows.
    """
    n, out = len(made.alpha), np.empty(4)
    stored = _STORED.pack(table.shape[1], columns, address(table), address(weights))
    was = (None, None) if older is None or kept is None else (older.struct, address(kept))
    room = scratch(_fit_room(tables, n, made.context_dim))
    known = None if bounded is None else address(bounded)
    if functions()["take"](tables.struct, made.struct, stored, *was, known, address(out), room):
        raise np.linalg.LinAlgError(NOT_DEFINITE)
    found: list[float] = out.tolist()
    return found


def bounded(median: Array, deviation: Array, contexts: Array) -> Array:
    """[n, d_c] contexts in deviations: see ContextMetric. A fit has the same bits, on every machine."""
    given, out = [np.ascontiguousarray(array) for array in (median, deviation, contexts)], np.empty(contexts.shape)
    functions()["bounded"](*contexts.shape, *map(address, given), address(out))
    return out


def closest(
    tables: KnobTables, made: NativeFit, table: Array, columns: int, kept: NDArray[np.int64], row: int = -1
) -> tuple[float, int, int]:
    """How similar the most similar two stored rows of one point are, and which; `kept`: where each is in the fit.

    With a row: 0, and the one most like it.
    """
    n, out = len(kept), np.empty(3)
    stored = _STORED.pack(table.shape[1], columns, address(table), 0)
    room = scratch(n * (made.context_dim + tables.e) + tables.widths)
    functions()["closest"](tables.struct, made.struct, stored, n, address(kept), row, address(out), room)
    alike, one, two = out.tolist()
    return alike, int(one), int(two)


def spare(made: NativeFit) -> Array:
    """[n] the variance of each row given the others, without its noise."""
    n = len(made.alpha)
    out = np.empty(n)
    functions()["spare"](made.struct, address(out), scratch(n * n))
    return out


def bill(
    tables: KnobTables, made: NativeFit, own: Array, prices: tuple[float, ...], center: float, unit: float, scale: float
) -> tuple[Array, list[float]]:
    """[2, n] weights of the rows, and what is left of them; spent, earned and the variance; see bill.py."""
    n = len(made.alpha)
    block = np.empty(2 * n + 3)
    at, own = address(block), np.ascontiguousarray(own)
    memory = scratch(9 * n + tables.widths)
    functions()["bill"](
        tables.struct, made.struct, _SIX.pack(*prices), address(own), center, unit, scale, at, at + 8 * n, at + 16 * n,
        memory,
    )  # fmt: skip
    return block[: 2 * n].reshape(2, n), block[2 * n :].tolist()


class NativeHere:
    """GpHere of gp.h: a fit in one context."""

    def __init__(self, tables: KnobTables, made: NativeFit, context: Array, now: float) -> None:
        self._tables, self._made, n, p = tables, made, len(made.alpha), tables.p
        block = np.empty(4 * n + p + tables.q)
        self.kc, self.share = block[:n], block[n : 2 * n]
        self.effects, self.curved = block[4 * n : 4 * n + p], block[4 * n + p :]
        at = address(block)
        places = (at, at + 8 * n, at + 16 * n, at + 24 * n, at + 32 * n, at + 8 * (4 * n + p))
        self._struct = ctypes.create_string_buffer(_HERE.pack(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, *places))
        given = np.ascontiguousarray(context)
        functions()["here"](tables.struct, made.struct, self._struct, address(given), now, scratch(len(given) + 1))
        *_, self.visits, self.at_default, self.defaults = _SIX.unpack_from(self._struct)

    def joint(self, points: Array) -> tuple[Array, Array]:
        t, points, m, n = self._tables, np.ascontiguousarray(points), len(points), len(self.kc)
        mean, covariance = np.empty(m), np.empty((m, m))
        memory = scratch(2 * m * (t.p + t.q + t.e) + n * (m + 1) + t.p + t.q + self._table_room(m * t.d))
        functions()["joint"](
            t.struct, self._made.struct, self._struct, m, address(points), address(mean), address(covariance), memory
        )
        return mean, covariance

    def marginal(self, points: Array) -> tuple[Array, Array]:
        t, points, m, n = self._tables, np.ascontiguousarray(points), len(points), len(self.kc)
        mean, variance = np.empty(m), np.empty(m)
        memory = scratch(m * (t.p + t.q + t.e) + n * (m + 1) + self._table_room(m * t.d))
        functions()["marginal"](
            t.struct, self._made.struct, self._struct, m, address(points), address(mean), address(variance), memory
        )
        return mean, variance

    def best(self, barred: Array) -> Array | None:
        """[d] the point of least mean that descents find; None if all of them are `barred` [., d]."""
        t, out = self._tables, np.empty(self._tables.d)
        found = self._call(
            "best",
            len(barred),
            address(barred),
            t.most_moves,
            t.most_values,
            address(out),
            scratch(self._choose_room()),
        )
        return out if found else None

    def choose(
        self, uniform: Array, normal: Array | None, barred: Array, reached: Array | None, nodes: Array,
        horizon: float,
    ) -> Array:  # fmt: skip
        """[d + 6] the point; its place in SOURCES; its mean and variance; those of the default; their covariance."""
        t = self._tables
        out = np.empty(t.d + 6)
        self._call(
            "choose", address(uniform), 0 if normal is None else address(normal), len(barred), address(barred),
            0 if reached is None else address(reached), address(nodes), horizon,
            t.most_moves, t.most_values, address(out), scratch(self._choose_room()),
        )  # fmt: skip
        return out

    def billed(self, weights: Array, point: Array) -> float:
        """The covariance of a bill and of the gap of a point here; weights [2, n] as `bill` gave them."""
        t, n, at = self._tables, len(self.kc), address(weights)
        found: float = functions()["billed"](
            t.struct, self._made.struct, self._struct, at, at + 8 * n, address(np.ascontiguousarray(point)),
            scratch(2 * n + t.widths),
        )  # fmt: skip
        return found

    def _call(self, name: str, *arguments: float) -> object:
        """A search, which may ask for the rules of the space."""
        _own.failure = None
        found: object = functions()[name](self._tables.struct, self._made.struct, self._struct, *arguments)
        if _own.failure is not None:
            raise _own.failure
        return found

    def _choose_room(self) -> int:
        t, n = self._tables, len(self.kc)
        if n not in t.choose_rooms:
            t.choose_rooms[n] = functions()["choose_room"](t.struct, n, t.most_moves, t.most_values)
        return t.choose_rooms[n]

    def _table_room(self, values: int) -> int:
        t, n = self._tables, len(self.kc)
        return (values + 1) * (2 * n + 3) + 3 * n + 2 * t.d + t.p + t.q + t.e
