"""CompiledHere: the same as Here, in compiled code; and Search, the memory in which a family makes its choices.

Random numbers are drawn here, in the same order as by the arrays version. Products of large matrices are NumPy's.
Addresses are looked up once: to look one up costs as much as much of the arithmetic.
"""

import ctypes
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.core.numerics import Array
from rasp_tuner.engine.discrete.compiled import COUNT, NUMBER, POINTER, Tables, address, functions, here_struct
from rasp_tuner.engine.discrete.here import ALIKE, LOOKS, Candidates, DiscreteConstants, Fit, Here, Pair
from rasp_tuner.engine.discrete.kernel import JITTER
from rasp_tuner.engine.discrete.target import level_from

ROOM = 32  # rows by which memory grows
VIEWS = 64  # kept, of as many numbers of candidates


class _Search(ctypes.Structure):
    """Search of discrete.h."""

    COUNTS = ("elites", "mutants", "crossovers", "drawn", "sparse", "looks")
    RESULTS = ("found", "moves", "swaps", "bars", "kept")
    NUMBERS = ("alike", "home", "horizon", "spread", "reached", "jitter")
    PLACES = ("rows", "changes", "changed", "swapped", "pairs", "places", "order")
    REALS = (
        "look", "barred", "means", "shared", "effects", "rates", "lots", "arrivals", "uniform", "steps", "draws",
        "taken", "explained", "diagonal", "values", "points", "candidates", "phi", "passed", "weighted", "sizes",
        "near", "cross", "own_near", "own", "covariance", "mean", "value",
    )  # fmt: skip
    _fields_ = [
        *((name, COUNT) for name in (*COUNTS, *RESULTS)),
        *((name, NUMBER) for name in NUMBERS),
        *((name, POINTER) for name in (*PLACES, *REALS)),
    ]

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


class Search:
    """Memory of one family; not for several threads at once."""

    def __init__(self, tables: Tables, constants: DiscreteConstants) -> None:
        c, d, p, q = constants, tables.dim, tables.main, tables.steps
        drawn = 1 + c.full + c.sparse
        most = max(c.elites, 1) + 1 + c.mutants + c.crossovers + drawn  # candidates
        self.tables, self.constants, self._most, self._room = tables, constants, most, -1
        self._views: dict[tuple[int, int], tuple[Array, ...]] = {}
        self.struct = _Search(
            c.elites, c.mutants, c.crossovers, drawn, c.sparse, len(LOOKS), 0, 0, 0, 0, 0, ALIKE, c.home, c.horizon,
            c.spread, 1.0, JITTER,
        )  # fmt: skip
        self.address = ctypes.addressof(self.struct)
        self.places: dict[str, NDArray[np.int64]] = {}
        self.reals: dict[str, Array] = {}
        self._take(
            self.places, np.int64, rows=(c.elites,), changes=(c.mutants,), changed=(c.mutants * d,),
            swapped=(c.mutants,), pairs=(2, c.crossovers), places=(most,), order=(most,),
        )  # fmt: skip
        self._take(
            self.reals, np.float64, look=(len(LOOKS),), effects=(p,), rates=(d,), lots=(c.mutants,),
            arrivals=(c.mutants * d,), uniform=((5 * c.mutants + c.crossovers) * d,), steps=(c.mutants * d,),
            taken=(c.sparse,), values=(drawn, tables.singles), points=(most, d), candidates=(most, d), phi=(most, p),
            passed=(most, q), weighted=(most, q), sizes=(most,), own_near=(most * most,), own=(most * most,),
            covariance=(most * most,), mean=(most,), value=(most,), explained=(p, p), diagonal=(p,),
            draws=(drawn, p),
        )  # fmt: skip
        self.reals["look"][:] = LOOKS

    def with_room_for(self, rows: int) -> "Search":
        """Itself, with memory for so many."""
        if rows > self._room:
            self._room, self._views = rows + ROOM, {}
            room = self._room
            p, most = self.tables.main, self._most
            self._take(
                self.reals, np.float64, means=(2 * room,), shared=(room * p,), reach=(room * max(p, most),),
                near=(most * room,), cross=(most * room,),
            )  # fmt: skip
        return self

    def views(self, m: int, n: int) -> tuple[Array, ...]:
        """Of m candidates: steps, weighted steps and main effects; products of these and of what is between them and n
        rows: near [m, n], cross [m, n], reach [m, n], own_near [m, m], own [m, m] and covariance [m, m]."""
        if (m, n) not in self._views:
            of = self.reals
            if len(self._views) > VIEWS:
                self._views = {}
            wide = tuple(of[name][: m * n].reshape(m, n) for name in ("near", "cross", "reach"))
            square = tuple(of[name][: m * m].reshape(m, m) for name in ("own_near", "own", "covariance"))
            self._views[m, n] = (of["passed"][:m], of["weighted"][:m], of["phi"][:m], *wide, *square)
        return self._views[m, n]

    def _take(self, into: dict[str, NDArray[Any]], kind: type[Any], **shapes: tuple[int, ...]) -> None:
        """Arrays, and their addresses where compiled code knows them."""
        for name, shape in shapes.items():
            into[name] = np.zeros(shape, dtype=kind)
            if name in (*_Search.PLACES, *_Search.REALS):
                setattr(self.struct, name, address(into[name]))


class CompiledHere(Here):
    """Candidates and what is known of them lie in the memory of the family until it chooses again."""

    def __init__(self, fit: Fit, context: Array, search: Search) -> None:
        self.fit, self.context, self._search = fit, context, search
        self._functions, self._knobs, n = functions(), search.tables.address, len(fit.points)
        own = np.empty((3, n))
        self.kc, self.share, self.base = own[0], own[1], own[2]
        self._struct = here_struct(fit, own)
        sums = np.empty(4)
        self._functions["believe"](self._knobs, self._struct, ALIKE, address(context), address(sums))
        total, alike, samples, default = sums.tolist()
        self.level = level_from(total, alike, fit.center)
        self._known = samples, default > 0.0

    @property
    def known(self) -> tuple[float, bool]:
        return self._known

    def nearest(self, point: Array) -> int:
        found: int = self._functions["nearest"](self._knobs, self._struct, address(np.ascontiguousarray(point)))
        return found

    @cached_property
    def elites(self) -> Array:
        search = self._search.with_room_for(len(self.kc))
        rows, count = search.places["rows"], self.fit.constants.elites
        found = self._functions["elites"](
            self._knobs, self._struct, count, ALIKE, search.struct.means, search.struct.rows
        )
        elites: Array = self.fit.points[rows[:found]]
        return elites

    def candidates(self, rng: np.random.Generator) -> Candidates:
        search, c = self._search.with_room_for(len(self.kc)), self.fit.constants
        struct, tables, places, reals = search.struct, search.tables, search.places, search.reals
        self._functions["begin"](self._knobs, self._struct, search.address)
        places["pairs"][:] = rng.integers(struct.found, size=(2, c.crossovers))
        places["changes"][:] = rng.geometric(c.few, c.mutants)
        rng.random(out=reals["lots"])
        rng.standard_exponential(out=reals["arrivals"])
        self._functions["race"](self._knobs, search.address)
        moves, uniform = struct.moves, reals["uniform"]
        last = 4 * moves + (struct.swaps + c.crossovers) * tables.dim
        if tables.continuous:
            rng.random(out=uniform[: 4 * moves])
            widths = 10.0 ** (-2.0 + 1.7 * uniform[moves : 2 * moves])  # from 0.01 to 0.5
            reals["steps"][:moves] = widths * rng.standard_normal(moves)
            rng.random(out=uniform[4 * moves : last])
        else:
            rng.random(out=uniform[:last])
        rng.standard_normal(out=reals["draws"])
        rng.random(out=reals["taken"])
        n, p = self.fit.rows.phi.shape
        shared, reach = reals["shared"][: n * p].reshape(n, p), reals["reach"][: n * p].reshape(n, p)
        np.matmul(self.fit.inverse, shared, out=reach)
        np.matmul(shared.T, reach, out=reals["explained"])
        barred = self.unreached()
        struct.bars, struct.barred = len(barred), address(barred)
        self._functions["candidates"](self._knobs, self._struct, search.address)
        counts = (struct.found, 1, c.mutants, c.crossovers, struct.drawn)
        return Candidates(reals["candidates"][: struct.kept], places["places"][: struct.kept], counts)

    def ranked(self, candidates: Candidates) -> tuple[int, int]:
        search, fit = self._search, self.fit
        of = search.views(len(candidates.points), len(self.kc))
        steps, weighted, phi, near, cross, reach, own_near, own, covariance = of
        np.matmul(steps, fit.rows.weighted.T, out=near)
        np.matmul(phi, fit.rows.phi.T, out=cross)
        np.matmul(steps, weighted.T, out=own_near)
        np.matmul(phi, phi.T, out=own)
        self._functions["cross"](self._knobs, self._struct, search.address)
        np.matmul(cross, fit.inverse, out=reach)
        np.matmul(reach, cross.T, out=covariance)
        search.struct.reached = fit.reached
        chosen: int = self._functions["rank"](self._knobs, self._struct, search.address)
        return chosen, int(search.places["order"][0])

    def pair(self, point: Array, other: Array) -> Pair:
        tables, default = self._search.tables, other is self.fit.knobs.default
        memory = np.empty(8 + 2 * (tables.main + 2 * tables.steps) + 6 * len(self.kc))
        others = tables.default if default else address(np.ascontiguousarray(other))
        self._functions["look"](
            self._knobs, self._struct, address(np.ascontiguousarray(point)), others, address(memory)
        )
        first, second, own, shared, _, last = memory[:6].tolist()
        return Pair((first, second), (own, last), shared)
