"""CompiledHere: the same as Here, in compiled code; and Search, the memory in which a family makes its choices.

Random numbers are drawn here, in the same order as by the arrays version. Products of large matrices are NumPy's.
Addresses are looked up once: to look one up costs as much as much of the arithmetic.
"""

import ctypes
import math
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.core.numerics import Array
from rasp_tuner.engine.discrete.compiled import COUNT, NUMBER, POINTER, Tables, address, functions, here_struct
from rasp_tuner.engine.discrete.here import ALIKE, LOOKS, Candidates, DiscreteConstants, Fit, Here, Pair
from rasp_tuner.engine.discrete.kernel import JITTER, Rows, sampled_effects
from rasp_tuner.engine.discrete.target import level_from

ROOM = 32  # rows by which memory grows


class _Search(ctypes.Structure):
    """Search of discrete.h."""

    COUNTS = ("elites", "mutants", "crossovers", "drawn", "sparse", "looks")
    RESULTS = ("found", "moves", "swaps", "bars", "kept")
    NUMBERS = ("alike", "home", "horizon", "reached", "jitter")
    PLACES = ("rows", "changes", "changed", "swapped", "pairs", "places", "order")
    REALS = (
        "look", "barred", "means", "shared", "effects", "rates", "lots", "arrivals", "uniform", "steps", "taken",
        "values", "points", "candidates", "phi", "passed", "weighted", "sizes", "near", "cross", "own_near", "own",
        "covariance", "mean", "value",
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
        self.struct = _Search(
            c.elites, c.mutants, c.crossovers, drawn, c.sparse, len(LOOKS), 0, 0, 0, 0, 0, ALIKE, c.home, c.horizon,
            1.0, JITTER,
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
            covariance=(most * most,), mean=(most,), value=(most,), explained=(p, p), draws=(drawn, p),
        )  # fmt: skip
        self.reals["look"][:] = LOOKS

    def with_room_for(self, rows: int) -> "Search":
        """Itself, with memory for so many."""
        if rows > self._room:
            self._room = room = rows + ROOM
            p, most = self.tables.main, self._most
            self._take(
                self.reals, np.float64, means=(2 * room,), shared=(room * p,), reach=(room * max(p, most),),
                near=(most * room,), cross=(most * room,),
            )  # fmt: skip
        return self

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
        self._address = ctypes.addressof(self._struct)
        sums = np.empty(4)
        self._functions["believe"](self._knobs, self._address, ALIKE, address(context), address(sums))
        total, alike, samples, default = sums.tolist()
        self.level = level_from(total, alike, fit.center)
        self._known = samples, default > 0.0

    @property
    def known(self) -> tuple[float, bool]:
        return self._known

    def nearest(self, point: Array) -> int:
        found: int = self._functions["nearest"](self._knobs, self._address, address(np.ascontiguousarray(point)))
        return found

    @cached_property
    def elites(self) -> Array:
        search = self._search.with_room_for(len(self.kc))
        rows, count = search.places["rows"], self.fit.constants.elites
        found = self._functions["elites"](
            self._knobs, self._address, count, ALIKE, search.struct.means, search.struct.rows
        )
        elites: Array = self.fit.points[rows[:found]]
        return elites

    def candidates(self, rng: np.random.Generator) -> Candidates:
        search, c = self._search.with_room_for(len(self.kc)), self.fit.constants
        struct, tables, places, reals = search.struct, search.tables, search.places, search.reals
        self._functions["begin"](self._knobs, self._address, search.address)
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
        self._sample(rng)
        barred = self.unreached()
        struct.bars, struct.barred = len(barred), address(barred)
        self._functions["candidates"](self._knobs, self._address, search.address)
        counts = (struct.found, 1, c.mutants, c.crossovers, struct.drawn)
        return Candidates(reals["candidates"][: struct.kept], places["places"][: struct.kept], counts)

    def _sample(self, rng: np.random.Generator) -> None:
        """Draw main effects, and work out what they say of every value of every knob."""
        search, fit, c, (n, p) = self._search, self.fit, self.fit.constants, self.fit.rows.phi.shape
        reals = search.reals
        shared, draws, explained = reals["shared"][: n * p].reshape(n, p), reals["draws"], reals["explained"]
        np.matmul(fit.inverse, shared, out=(reach := reals["reach"][: n * p].reshape(n, p)))
        np.matmul(shared.T, reach, out=explained)
        np.negative(explained, out=explained)
        rng.standard_normal(out=draws)
        draws *= c.spread
        draws[0] = 0.0
        rng.random(out=reals["taken"])
        reals["taken"] *= math.log(search.tables.dim + 1)
        drawn = sampled_effects(fit.kernel.va, explained, reals["effects"], draws)
        np.matmul(drawn, fit.knobs.single, out=reals["values"])

    def ranked(self, candidates: Candidates) -> tuple[int, int]:
        search, fit = self._search, self.fit
        reals, m, n = search.reals, len(candidates.points), len(self.kc)
        steps, weighted, phi = reals["passed"][:m], reals["weighted"][:m], reals["phi"][:m]
        cross, own = reals["cross"][: m * n].reshape(m, n), reals["own"][: m * m].reshape(m, m)
        np.matmul(steps, fit.rows.weighted.T, out=reals["near"][: m * n].reshape(m, n))
        np.matmul(phi, fit.rows.phi.T, out=cross)
        np.matmul(steps, weighted.T, out=reals["own_near"][: m * m].reshape(m, m))
        np.matmul(phi, phi.T, out=own)
        self._functions["cross"](self._knobs, self._address, search.address)
        np.matmul(cross, fit.inverse, out=(reach := reals["reach"][: m * n].reshape(m, n)))
        np.matmul(reach, cross.T, out=reals["covariance"][: m * m].reshape(m, m))
        search.struct.reached = fit.reached
        chosen: int = self._functions["rank"](self._knobs, self._address, search.address)
        return chosen, int(search.places["order"][0])

    def pair(self, both: Array) -> Pair:
        n, (_, p), (_, q) = len(self.kc), self.fit.rows.phi.shape, self.fit.rows.steps.shape
        ends = [0]
        for width in (p, q, q, 1, n, 1, 2, 2 * n):
            ends.append(ends[-1] + 2 * width)
        memory = np.empty(ends[-1])
        at = address(memory)
        self._functions["look"](self._knobs, self._address, address(both), *(at + 8 * end for end in ends[:-1]))
        part = [memory[start:end] for start, end in pairwise(ends)]
        rows = Rows(part[0].reshape(2, p), part[1].reshape(2, q), part[2].reshape(2, q), part[3])
        return Pair(rows, part[4].reshape(2, n), part[5], part[6].reshape(2, 2))
