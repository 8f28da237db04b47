"""Native: the kernel compiled from C, on states in NumPy; the same functions as in Python, for all tuners or some rows.

It is optional (`available()`): it saves what NumPy costs on small arrays, and spreads many tuners over all processors.
Calls do not hold Python's lock. Inputs and outputs are [n, ...] for n rows of a state.
"""

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rasp_tuner.core.numerics import Array
from rasp_tuner.engine.kernel import belief as beliefs
from rasp_tuner.engine.kernel.build import LIBRARY, digest
from rasp_tuner.engine.kernel.choose import draws_needed
from rasp_tuner.engine.kernel.moving import sketch
from rasp_tuner.engine.kernel.shared_structs import MOST_KNOBS, DimsStruct, StateStruct, difference
from rasp_tuner.engine.kernel.state import Dims, E, State, shapes

THREADS_FROM_TUNERS = 256  # fewer are done before threads have begun
POINTER, NUMBER = ctypes.c_void_p, ctypes.c_int64
ARGUMENTS: dict[str, list[Any]] = {  # of each function, after those that all have
    "believe": [POINTER] * 2,
    "predict": [POINTER, POINTER, NUMBER, POINTER, POINTER],
    "compare": [POINTER] * 5,
    "against": [POINTER] * 3,
    "forecast": [POINTER] * 6,
    "choose": [POINTER] * 6,
    "best": [POINTER] * 2,
    "learn": [POINTER] * 6,
    "ask": [POINTER, POINTER, NUMBER, *[POINTER] * 6],
    "tell": [POINTER] * 9,
}

Rows = NDArray[np.int64]


class _Shared(NamedTuple):
    """What compiled code is given with every call, and the objects that own this memory."""

    of: tuple[Any, ...]
    address: int
    owners: tuple[Any, ...]


def wanted() -> bool:
    """Whether compiled code may be used at all."""
    return os.environ.get("RASP_NATIVE") != "0"


@lru_cache
def _library() -> ctypes.CDLL | str:
    """The library, or the reason why there is none."""
    if not wanted():
        return "turned off by RASP_NATIVE=0"
    try:
        library = ctypes.CDLL(str(LIBRARY))
        library.rasp_sources.restype = ctypes.c_char_p
        made_of = library.rasp_sources().decode()
        for name, arguments in ARGUMENTS.items():
            function = getattr(library, f"rasp_{name}")
            function.restype, function.argtypes = None, [POINTER, POINTER, POINTER, NUMBER, *arguments]
        _ = library.rasp_places
    except (OSError, AttributeError):
        return "not built: run python -m rasp_tuner.engine.kernel.build"
    if digest() not in (None, made_of):
        return "built from other C files: run python -m rasp_tuner.engine.kernel.build"
    wrong = difference(library)
    return (
        library if wrong is None else f"built for other structs, {wrong}: run python -m rasp_tuner.engine.kernel.build"
    )


def available() -> bool:
    """Whether there is a library to use."""
    return why_not() is None


def why_not() -> str | None:
    """Why there is no library; None if there is one."""
    library = _library()
    return library if isinstance(library, str) else None


def function(name: str, arguments: list[Any], result: Any = None) -> Callable[..., Any]:
    """A function of the library that is none of those for many tuners."""
    if not available():
        raise RuntimeError(f"the native kernel is {why_not()}")
    found: Callable[..., Any] = getattr(_library(), name)
    found.restype, found.argtypes = result, arguments  # type: ignore[attr-defined]
    return found


class NativeBelief:
    """Beliefs of n tuners in one buffer; its arrays, named as in `Belief`, are views that are made when asked for."""

    def __init__(self, dims: Dims, size: int = 0, buffer: Array | None = None) -> None:
        self._dims = dims
        self.buffer = np.empty((size, beliefs.length(dims))) if buffer is None else buffer
        self.address = address(self.buffer)
        self.experts: Any = None  # as of a Belief: the functions on arrays take this one, too

    def __len__(self) -> int:
        return len(self.buffer)

    def __getattr__(self, name: str) -> Array:
        layout = {} if name.startswith("_") else belief_layout(self._dims)
        if name not in layout:
            raise AttributeError(f"a belief has no array {name!r}")
        part, shape = layout[name]
        return self.buffer[:, part].reshape(len(self.buffer), *shape)


class Native:
    """The compiled functions. One for each owner of a state: where that lies is looked up once."""

    def __init__(self) -> None:
        if not available():
            raise RuntimeError(f"the native kernel is {why_not()}")
        self._functions: dict[str, Callable[..., None]] = {n: getattr(_library(), f"rasp_{n}") for n in ARGUMENTS}
        self._dims = self._state = _Shared((None, None), 0, ())
        self._rows = np.arange(1)

    @staticmethod
    def serves(dims: Dims) -> bool:
        """Whether it is the faster way for tuners of this size."""
        return dims.knobs <= MOST_KNOBS

    def believe(
        self, dims: Dims, state: State, default: Array, contexts: ArrayLike, rows: Rows | None = None
    ) -> NativeBelief:
        n = state.size if rows is None else len(rows)
        belief = NativeBelief(dims, n)
        contexts = _numbers(contexts, n, dims.context)
        ins = (address(contexts), 8 * dims.context), (belief.address, belief.buffer.strides[0])
        self._call("believe", dims, state, default, rows, n, *ins)
        return belief

    def predict(
        self, dims: Dims, state: State, belief: NativeBelief, default: Array, points: Array, rows: Rows | None = None
    ) -> tuple[Array, Array]:
        n, count = points.shape[:2]
        points = _numbers(points, n, count * dims.knobs)
        out, ways = _outputs(n, count, count)
        points_at = (address(points), 8 * count * dims.knobs)
        self._call("predict", dims, state, default, rows, n, _of(belief, n), points_at, (count, 0), *ways)
        return out[0], out[1]

    def compare(
        self,
        dims: Dims,
        state: State,
        belief: NativeBelief,
        default: Array,
        points: ArrayLike,
        others: ArrayLike,
        rows: Rows | None = None,
    ) -> tuple[Array, Array]:
        n, d = len(belief), dims.knobs
        points, others = _numbers(points, n, d), _numbers(others, n, d)
        out, ways = _outputs(n, 0, 0)
        ins = (_of(belief, n), (address(points), 8 * d), (address(others), 8 * d))
        self._call("compare", dims, state, default, rows, n, *ins, *ways)
        return out[0], out[1]

    def against(
        self,
        dims: Dims,
        state: State,
        belief: NativeBelief,
        default: Array,
        points: ArrayLike,
        rows: Rows | None = None,
    ) -> tuple[Array, ...]:
        n, d = len(belief), dims.knobs
        points = _numbers(points, n, d)
        out, ways = _outputs(n, 6)
        self._call("against", dims, state, default, rows, n, _of(belief, n), (address(points), 8 * d), *ways)
        return tuple(out[0].T)

    def forecast(
        self,
        dims: Dims,
        state: State,
        belief: NativeBelief,
        default: Array,
        points: ArrayLike,
        y: ArrayLike,
        rows: Rows | None = None,
    ) -> tuple[Array, Array, Array]:
        n, d = len(belief), dims.knobs
        points, y = _numbers(points, n, d), _numbers(y, n, 1)
        out, ways = _outputs(n, 0, 0, E)
        ins = (_of(belief, n), (address(points), 8 * d), (address(y), 8))
        self._call("forecast", dims, state, default, rows, n, *ins, *ways)
        return out[0], out[1], out[2]

    def choose(
        self,
        dims: Dims,
        state: State,
        belief: NativeBelief,
        default: Array,
        draws: ArrayLike,
        rows: Rows | None = None,
    ) -> tuple[Array, NDArray[np.int64], Array, Array]:
        n, d = len(belief), dims.knobs
        width = draws_needed(dims)
        draws = _numbers(draws, n, width)
        out, ways = _outputs(n, d, 0, 0, 0)
        ins = (_of(belief, n), (address(draws), 8 * width))
        self._call("choose", dims, state, default, rows, n, *ins, *ways)
        return out[0], out[1].astype(np.int64), out[2], out[3]

    def best(self, dims: Dims, state: State, belief: NativeBelief, default: Array, rows: Rows | None = None) -> Array:
        n = len(belief)
        out, ways = _outputs(n, dims.knobs)
        self._call("best", dims, state, default, rows, n, _of(belief, n), *ways)
        return out[0]

    def learn(
        self,
        dims: Dims,
        state: State,
        belief: NativeBelief,
        default: Array,
        points: ArrayLike,
        contexts: ArrayLike,
        losses: ArrayLike,
        failed: ArrayLike,
        logs: ArrayLike,
        rows: Rows | None = None,
    ) -> None:
        n = len(belief)
        widths = (dims.knobs, dims.context, dims.columns, 1, E)
        inputs = [_numbers(x, n, w) for x, w in zip((points, contexts, losses, failed, logs), widths, strict=True)]
        ins = [(address(x), 8 * w) for x, w in zip(inputs, widths, strict=True)]
        self._call("learn", dims, state, default, rows, n, _of(belief, n), *ins)

    def ask(
        self, dims: Dims, state: State, default: Array, contexts: ArrayLike, draws: ArrayLike, rows: Rows | None = None
    ) -> tuple[NativeBelief, Array, tuple[Array, ...]]:
        """What `believe` gives, then `choose`, and of these points `against`."""
        n, width = state.size if rows is None else len(rows), draws_needed(dims)
        belief, contexts, draws = NativeBelief(dims, n), _numbers(contexts, n, dims.context), _numbers(draws, n, width)
        out, ways = _outputs(n, dims.knobs, 0, 0, 0, 6)
        ins = (address(contexts), 8 * dims.context), (address(draws), 8 * width), (width, 0), _of(belief, n)
        self._call("ask", dims, state, default, rows, n, *ins, *ways)
        return belief, out[0], tuple(out[4].T)

    def tell(
        self, dims: Dims, state: State, belief: NativeBelief, default: Array, *sample: ArrayLike, rows: Rows | None
    ) -> tuple[tuple[Array, ...], Array, Array]:
        """What `against` gives of points, then mean and variance as of `forecast`, and `learn`.

        sample  points, contexts, losses, failed, and y: the losses by their weights
        """
        n = len(belief)
        widths = (dims.knobs, dims.context, dims.columns, 1, 1)
        inputs = [_numbers(x, n, w) for x, w in zip(sample, widths, strict=True)]
        ins = [(address(x), 8 * w) for x, w in zip(inputs, widths, strict=True)]
        out, ways = _outputs(n, 6, 0, 0)
        self._call("tell", dims, state, default, rows, n, _of(belief, n), *ins, *ways)
        return tuple(out[0].T), out[1], out[2]

    def _call(
        self, name: str, dims: Dims, state: State, default: Array, rows: Rows | None, n: int, *ways: tuple[int, int]
    ) -> None:
        """Each argument comes as its address and its bytes a tuner."""
        where = self._where_dims(dims, default).address
        arrays = self._where_state(dims, state).address
        chosen = self._all_or(rows, state, n)
        numbers = address(chosen)
        function = self._functions[name]
        if n < THREADS_FROM_TUNERS:
            function(where, arrays, numbers, n, *(begin for begin, _ in ways))
            return

        def some(start: int, stop: int) -> None:
            addresses = [begin + start * step for begin, step in ways]
            function(where, arrays, numbers + 8 * start, stop - start, *addresses)

        threads, workers = _threads(os.getpid())
        edges = [n * i // workers for i in range(workers + 1)]
        list(threads.map(some, edges[:-1], edges[1:]))

    def _where_dims(self, dims: Dims, default: Array) -> _Shared:
        known = self._dims
        if known.of[0] is not dims or known.of[1] is not default:
            known = self._dims = dims_struct(dims, default)
        return known

    def _where_state(self, dims: Dims, state: State) -> _Shared:
        known = self._state
        if known.of[0] is not dims or known.of[1] is not state:
            known = self._state = state_struct(dims, state)
        return known

    def _all_or(self, rows: Rows | None, state: State, n: int) -> Rows:
        """Numbers of rows, checked: compiled code trusts them."""
        if rows is None:
            if len(self._rows) != n:
                self._rows = np.arange(n)
            numbers, good = self._rows, n == state.size
        else:
            numbers = np.ascontiguousarray(rows, dtype=np.int64)
            good = len(numbers) == n and (n == 0 or bool(0 <= numbers.min() <= numbers.max() < state.size))
        if not good:
            raise ValueError(f"{n} tuners need as many rows below {state.size}, got {rows}")
        return numbers


def dims_struct(dims: Dims, default: Array) -> _Shared:
    if not Native.serves(dims):
        raise ValueError(f"compiled code takes up to {MOST_KNOBS} knobs, got {dims.knobs}")
    own = _numbers(np.array(default), 1, dims.knobs)
    matrix = np.ascontiguousarray(sketch(dims, np, "cpu")) if dims.context > dims.width else np.zeros(1)
    struct = DimsStruct(
        dims.knobs, dims.context, dims.columns, dims.features, dims.sample, dims.prompt, dims.rows, dims.width,
        dims.rank, dims.coefficients, address(own), address(matrix),
    )  # fmt: skip
    return _Shared((dims, default), ctypes.addressof(struct), (struct, own, matrix))


def state_struct(dims: Dims, state: State) -> _Shared:
    arrays = dict(state.items())
    for name, shape in shapes(dims).items():
        array = arrays[name]
        good = isinstance(array, np.ndarray) and array.dtype == np.float64 and array.flags.c_contiguous
        if not good or array.shape != (state.size, *shape):
            raise ValueError(f"state.{name} must be a contiguous NumPy array of float64, {(state.size, *shape)}")
    struct = StateStruct(*(int(array.ctypes.data) for array in arrays.values()))
    return _Shared((dims, state), ctypes.addressof(struct), (struct, *arrays.values()))


@lru_cache
def belief_layout(dims: Dims) -> dict[str, tuple[slice, tuple[int, ...]]]:
    """Where each array lies in the buffer, and its shape."""
    layout, start = {}, 0
    for name, shape in beliefs.layout(dims).items():
        stop = start + int(np.prod(shape))
        layout[name] = slice(start, stop), shape
        start = stop
    return layout


@lru_cache(maxsize=1)
def _threads(process: int) -> tuple[ThreadPoolExecutor, int]:  # noqa: ARG001 - a fork has none of its parent's threads
    workers = os.cpu_count() or 1
    return ThreadPoolExecutor(workers, thread_name_prefix="rasp-kernel"), workers


def _numbers(values: ArrayLike, n: int, width: int) -> Array:
    """As compiled code reads them."""
    array = np.ascontiguousarray(values, dtype=np.float64)
    if array.size != n * width:
        raise ValueError(f"{n} tuners take {n} x {width} numbers, got an array {array.shape}")
    return array


def _outputs(n: int, *widths: int) -> tuple[list[Array], list[tuple[int, int]]]:
    """Arrays [n, width], or [n] for a width of 0, in one piece of memory; and where they are."""
    memory = np.empty(n * (sum(widths) + widths.count(0)))
    arrays, ways, start, base = [], [], 0, address(memory)
    for width in widths:
        stop = start + n * (width or 1)
        arrays.append(memory[start:stop].reshape(n, width) if width else memory[start:stop])
        ways.append((base + 8 * start, 8 * (width or 1)))
        start = stop
    return arrays, ways


def _of(belief: NativeBelief, n: int) -> tuple[int, int]:
    if len(belief) != n:
        raise ValueError(f"{n} tuners, but the beliefs of {len(belief)}")
    return belief.address, belief.buffer.strides[0]


def address(array: NDArray[Any]) -> int:
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(array))  # type: ignore[arg-type] # three times as fast
    except (TypeError, ValueError):  # read-only, empty, or a tensor
        return int(array.data_ptr() if hasattr(array, "data_ptr") else array.ctypes.data)
