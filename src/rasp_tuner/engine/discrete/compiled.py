"""The slow parts of the discrete family in compiled code, where there is a library (`ready`).

Each function means the same as the NumPy code that calls it, and agrees with it but for rounding. Random numbers are
drawn here, in the same order. Products of large matrices are NumPy's. Shapes are those of belief.py and kernel.py.
"""

import ctypes
import struct
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.core.numerics import Array
from rasp_tuner.engine.kernel import native

if TYPE_CHECKING:
    from rasp_tuner.engine.discrete.here import Fit
    from rasp_tuner.engine.discrete.kernel import Kernel, Rows
    from rasp_tuner.engine.discrete.knobs import Knobs

MOST_KNOBS = 512  # beyond, what compiled code puts on the stack could be too much
POINTER, COUNT, NUMBER = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
ARGUMENTS: dict[str, tuple[Any, list[Any]]] = {  # of each function: what it gives and takes
    "features": (None, [POINTER, COUNT, *[POINTER] * 6]),
    "begin": (None, [POINTER] * 3),
    "race": (None, [POINTER] * 2),
    "candidates": (None, [POINTER] * 3),
    "believe": (None, [POINTER, POINTER, NUMBER, POINTER, POINTER]),
    "elites": (COUNT, [POINTER, POINTER, COUNT, NUMBER, POINTER, POINTER]),
    "cross": (None, [POINTER] * 3),
    "rank": (COUNT, [POINTER] * 3),
    "look": (None, [POINTER] * 5),
    "gradient": (None, [COUNT, POINTER, POINTER, NUMBER, NUMBER, COUNT, *[POINTER] * 3]),
    "likeness": (None, [COUNT, COUNT, POINTER, NUMBER, POINTER, POINTER]),
    "target": (None, [COUNT, POINTER, POINTER, NUMBER, *[POINTER] * 4]),
    "updated": (None, [COUNT, COUNT, POINTER, POINTER, POINTER, COUNT, POINTER]),
    "with_noise": (None, [COUNT, POINTER, COUNT, NUMBER, POINTER]),
    "nearest": (COUNT, [POINTER] * 3),
    "evidence": (COUNT, [POINTER] * 2),
}


def ready() -> bool:
    """Whether there is compiled code to use."""
    return native.available()


def serves(knobs: int) -> bool:
    """Whether compiled code takes spaces of so many knobs."""
    return ready() and knobs <= MOST_KNOBS


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


_HERE = struct.Struct("2q 7d 17Q")  # Here of discrete.h: made at every step, for which bytes are fastest


class _Evidence(ctypes.Structure):
    """Evidence of discrete.h."""

    _fields_ = [
        ("n", COUNT),
        *((name, NUMBER) for name in ("va", "vp", "width", "noise", "vc", "rho", "level", "freedom", "jitter")),
        *((name, POINTER) for name in (
            "weights", "phi", "steps", "weighted", "sizes", "gaps", "kc", "target", "doubt", "counts", "gram",
            "inverse", "noises", "factor", "rivals", "gradient", "sums", "scratch",
        )),
    ]  # fmt: skip


@lru_cache
def functions() -> dict[str, Callable[..., Any]]:
    return {name: native.function(f"rasp_discrete_{name}", *reversed(one)) for name, one in ARGUMENTS.items()}


class Tables:
    """The knobs of one space as compiled code sees them."""

    def __init__(self, knobs: "Knobs", chances: tuple[float, float, float], **tables: NDArray[Any]) -> None:
        self._functions = functions()
        self.dim, self.main, self.steps = knobs.dim, len(tables["term"]), len(tables["step_knob"])
        self.singles = tables["single"].shape[1]  # values of all knobs
        reals = {name: np.array(tables[name], dtype=np.float64, order="C") for name in _Knobs.REALS}
        places = {name: np.array(tables[name], dtype=np.int64) for name in _Knobs.PLACES}
        counts = (
            self.dim,
            self.main,
            self.steps,
            len(reals["ramp_low"]),
            reals["turning"].shape[1],
            reals["grid"].shape[1],
        )
        self._owners = {**reals, **places}
        self._struct = _Knobs(*counts, *chances, *map(address, self._owners.values()))
        self.address, self.default = ctypes.addressof(self._struct), address(reals["default"])
        self.continuous = not places["discrete"].all()

    def features(self, points: Array, weights: Array) -> tuple[Array, Array, Array, Array]:
        """phi, steps, weighted steps and sizes: the parts of `Rows`."""
        n, points = len(points), np.ascontiguousarray(points)
        parts = np.empty((n, self.main)), np.empty((n, self.steps)), np.empty((n, self.steps)), np.empty(n)
        self._functions["features"](self.address, n, address(points), address(weights), *map(address, parts))
        return parts


def here_struct(fit: "Fit", own: Array) -> bytes:
    """A fit in one context, as compiled code sees it; kc, share and base [3, n] are to be worked out."""
    (n, c), rows, at = fit.contexts.shape, fit.rows, address(own)
    arrays = (
        fit.kernel.weights, fit.points, rows.phi, rows.weighted, rows.sizes, fit.contexts, fit.failed, fit.counts,
        fit.gram, fit.inverse, fit.alpha, fit.values, fit.middle, fit.width,
    )  # fmt: skip
    return _HERE.pack(n, c, *fit.kernel[:-1], *map(address, arrays), at, at + 8 * n, at + 16 * n)


def knowledge_gradient(mean: Array, covariance: Array, noise: float, jitter: float, looks: Array) -> Array:
    """As `knowledge_gradient` of here.py."""
    value, order = np.empty(len(mean)), np.empty(len(mean), dtype=np.int64)
    functions()["gradient"](
        len(mean),
        address(mean),
        address(covariance),
        noise,
        jitter,
        len(looks),
        address(looks),
        address(order),
        address(value),
    )
    return value


def likeness(contexts: Array, width: float) -> tuple[Array, Array]:
    """gaps and kc [n, n] between contexts [n, d_c]."""
    n, c = contexts.shape
    gaps, kc, columns = np.empty((n, n)), np.empty((n, n)), contexts.T.copy()
    functions()["likeness"](n, c, address(columns), width, address(gaps), address(kc))
    return gaps, kc


def target_of(y: Array, alike: Array, warp: float, priors: Array) -> tuple[Array, float, float, float]:
    """As `target_of` of target.py: values, center, scale and level."""
    n = len(y)
    memory = np.empty(3 * n + 3)  # values, scratch, numbers
    at = address(memory)
    given = map(address, (y, alike))
    functions()["target"](n, *given, warp, address(priors), at + 8 * n, at, at + 24 * n)
    center, scale, level = memory[3 * n :].tolist()
    return memory[:n], center, scale, level


def updated(matrix: Array, left: Array, right: Array, size: int) -> Array:
    """The matrix plus the sum of left_i right_i', in the corner of a new one [size, size]."""
    changed = np.empty((size, size))
    functions()["updated"](
        len(matrix), len(left), address(matrix), address(left), address(right), size, address(changed)
    )
    return changed


def with_noise(inverse: Array, row: int, change: float) -> Array:
    """As `with_noise` of kernel.py."""
    changed = np.empty_like(inverse)
    functions()["with_noise"](len(inverse), address(inverse), row, change, address(changed))
    return changed


def evidence(
    kernel: "Kernel", tables: Tables, rows: "Rows", *arrays: Array, freedom: float, jitter: float
) -> tuple[list[Array], list[float]] | None:
    """As `evidence` of kernel.py: gram, inverse, noises, noise factors, rivals and gradient; slope and information of
    the noise. None where rounding made the matrix indefinite.

    The arrays are gaps, kc, target, noise factors and counts.
    """
    (n, main), steps = rows.phi.shape, tables.steps
    made = [np.empty(shape) for shape in ((n, n), (n, n), n, n, n, 7 + tables.dim, 2)]
    given = (kernel.weights, rows.phi, rows.steps, rows.weighted, rows.sizes, *arrays)
    scratch = _scratch((5 * n + main + steps + 20) * n)
    refit = _Evidence(n, *kernel[:-1], freedom, jitter, *map(address, (*given, *made, scratch)))
    if functions()["evidence"](tables.address, ctypes.addressof(refit)):
        return None
    return made[:6], made[6].tolist()


_own = threading.local()


def _scratch(size: int) -> Array:
    """Memory of this thread for one call: what is new has to be cleared by the system first."""
    found: Array | None = getattr(_own, "scratch", None)
    if found is None or len(found) < size:
        found = _own.scratch = np.empty(size)
    return found


_addressof, _buffer = ctypes.addressof, ctypes.c_char.from_buffer


def address(array: NDArray[Any]) -> int:
    """Where it lies, row by row."""
    try:
        return _addressof(_buffer(array))  # type: ignore[arg-type] # three times as fast as what NumPy offers
    except (TypeError, ValueError):  # read-only, empty, or not row by row
        if not array.flags.c_contiguous:
            raise
        return int(array.ctypes.data)
