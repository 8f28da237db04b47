"""GpuBatch: the kernel compiled for a GPU, on a state that stays there. What is given and comes back travels each time.

One thread computes one tuner, or a warp does. torch owns the memory, and its current stream the order of work.
"""

import ctypes
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike

from rasp_tuner.base.common_constants import EARLY_SAMPLES
from rasp_tuner.base.numerics import Array
from rasp_tuner.engine.kernel import native
from rasp_tuner.engine.kernel.batch import BesideDefault, ExpectedLosses
from rasp_tuner.engine.kernel.belief import length, places
from rasp_tuner.engine.kernel.choose import draws_needed
from rasp_tuner.engine.kernel.draws import DrawKeys
from rasp_tuner.engine.kernel.gpu_compile import CompiledPart, CompileError, image
from rasp_tuner.engine.kernel.learn import start
from rasp_tuner.engine.kernel.moving import sketch
from rasp_tuner.engine.kernel.native import ARGUMENTS as TAKEN
from rasp_tuner.engine.kernel.native import NUMBER, POINTER, as_given
from rasp_tuner.engine.kernel.native_batch import BESIDE, CompiledBeliefs, Given
from rasp_tuner.engine.kernel.shared_structs import MOST_COMPILED_KNOBS, StateStruct
from rasp_tuner.engine.kernel.state import WINDOW_SAMPLES, Dims, E, L, Places, State, shapes

THREADS, WARP = 128, 32  # in a block, of which each has a tuner; of those that have one together
NAMES = (("believe",), ("learn",), ("draw", "choose", "best"), ("predict", "against", "forecast"))
ALONE = (1, 2, 3)  # of these parts of native/device.cu: one thread has a tuner
ARGUMENTS = {**TAKEN, "draw": [NUMBER, POINTER, POINTER, POINTER]}
MOST_SCRATCH = 1 / 3  # of a GPU's memory
MOST_LOCKED = 1 << 26  # bytes of one array that are locked in memory to be read from a GPU
DYNAMIC_SHARED_MEMORY = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


class Function(NamedTuple):
    """A function that was loaded to a GPU, and how it is started."""

    handle: ctypes.c_void_p
    lanes: int  # that work on a tuner together
    fast: int  # bytes of the processor's own memory for these


def blank_batch(dims: Dims, default: Array, size: int, name: str) -> "GpuBatch":
    """Tuners that know nothing, on the GPU of this name; a CompileError says why there can be none."""
    if not native.wanted():
        raise CompileError("compiled code is turned off by RASP_NATIVE=0, and a GPU runs nothing else")
    if not native.serves(dims):
        raise CompileError(f"a GPU takes up to {MOST_COMPILED_KNOBS} knobs, got {dims.knobs}")
    try:
        device = _device(name)
        return GpuBatch(dims, default, device, _blank(dims, size, device))
    except (OSError, AssertionError, RuntimeError) as reason:  # AssertionError: a torch that was built without CUDA
        raise CompileError(str(reason)) from reason


class GpuBatch:
    """B tuners of one size with one default."""

    def __init__(self, dims: Dims, default: Array, device: torch.device, arrays: dict[str, torch.Tensor]) -> None:
        self.dims, self.default, self.device, self._arrays = dims, default, device, arrays
        self._functions = _functions(dims, device.index)
        self._default = self.sent(default)
        self._sketch = self.sent(sketch(dims)) if dims.context > dims.width else self._default
        self._struct = StateStruct(*(array.data_ptr() for array in arrays.values()))
        self._all = torch.arange(self.size, device=device)

    @property
    def size(self) -> int:
        return len(self._arrays["steps"])

    def believe(self, contexts: ArrayLike, rows: Places | None = None) -> "GpuBeliefs":
        there = self._rows(rows)
        beliefs = GpuBeliefs(self, there, self.empty(len(there), length(self.dims)))
        self.launch("believe", there, self.given(contexts, len(there), self.dims.context), beliefs.buffer)
        return beliefs

    def ask(
        self, contexts: ArrayLike, keys: DrawKeys, rows: Places | None = None
    ) -> tuple["GpuBeliefs", Array, BesideDefault]:
        beliefs = self.believe(contexts, rows)
        n, there = len(beliefs.rows), beliefs.rows
        drawn, points, told = (self.empty(n, width) for width in (draws_needed(self.dims), self.dims.knobs, BESIDE))
        numbers, asks = (self.given(values, n, 1) for values in (keys.numbers, keys.asks))
        self.launch("draw", there, keys.mixed_seed, numbers, asks, drawn)
        self.launch("choose", there, beliefs.buffer, drawn, points, *(self.empty(n) for _ in range(3)))
        self.launch("against", there, beliefs.buffer, points, told)
        return beliefs, fetched(points), BesideDefault(*fetched(told).T)

    def read(self, name: str, rows: Places) -> Array:
        return fetched(self._arrays[name][self._rows(rows)])

    def write(self, name: str, rows: Places, values: ArrayLike) -> None:
        self._arrays[name][self._rows(rows)] = self.sent(values)

    def take(self, rows: Places) -> State:
        there = self._rows(rows)
        return State(**{name: fetched(array[there]) for name, array in self._arrays.items()})

    def put(self, rows: Places, state: State) -> None:
        there = self._rows(rows)
        for name, array in state.items():
            self._arrays[name][there] = self.sent(array)

    def grown(self, more: int) -> "GpuBatch":
        new = _blank(self.dims, more, self.device)
        return self._with({name: torch.cat([array, new[name]]) for name, array in self._arrays.items()})

    def kept(self, rows: Places) -> "GpuBatch":
        there = self._rows(rows)
        return self._with({name: array[there] for name, array in self._arrays.items()})

    def _with(self, arrays: dict[str, torch.Tensor]) -> "GpuBatch":
        return GpuBatch(self.dims, self.default, self.device, arrays)

    def _rows(self, rows: Places | None) -> torch.Tensor:
        """Numbers of rows, there: compiled code trusts them."""
        if rows is None:
            return self._all
        if len(rows) and not 0 <= rows.min() <= rows.max() < self.size:
            raise ValueError(f"tuners need rows below {self.size}, got {rows}")
        return torch.tensor(rows, dtype=torch.int64, device=self.device)

    def empty(self, *shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=torch.float64, device=self.device)

    def sent(self, values: ArrayLike) -> torch.Tensor:
        """A copy there."""
        return torch.tensor(np.asarray(values, dtype=np.float64), device=self.device)

    def given(self, values: ArrayLike, n: int, width: int) -> torch.Tensor:
        """[n, width] numbers there, as compiled code reads them."""
        return self.sent(as_given(values, n, width))

    def launch(self, name: str, rows: torch.Tensor, *given: torch.Tensor | int) -> None:
        """Queue a function; tensors that are given must live until this returns: torch reuses memory in order."""
        n = len(rows)
        if n == 0:
            return
        function = self._functions[name]
        threads = THREADS if function.lanes == 1 else function.lanes
        blocks = -(-n * function.lanes // threads)
        types = [POINTER, POINTER, POINTER, NUMBER, *ARGUMENTS[name]]
        values = [self._default, self._sketch, rows, n, *given]
        held = [
            type_(value.data_ptr() if isinstance(value, torch.Tensor) else value)
            for type_, value in zip(types, values, strict=True)
        ]
        held.insert(2, self._struct)
        addresses = (ctypes.c_void_p * len(held))(*(ctypes.addressof(value) for value in held))
        with torch.cuda.device(self.device):
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            grid, block = (blocks, 1, 1), (threads, 1, 1)
            _checked(_driver().cuLaunchKernel(function.handle, *grid, *block, function.fast, stream, addresses, None))


class GpuBeliefs(CompiledBeliefs):
    def __init__(self, batch: GpuBatch, rows: torch.Tensor, buffer: torch.Tensor) -> None:
        self._dims, self._batch, self.rows, self.buffer = batch.dims, batch, rows, buffer

    def noise(self) -> Array:
        own = places(self._dims)
        head = fetched(self.buffer[:, : own["a"][0].stop])
        weights, noises, a = (head[:, own[name][0]] for name in ("weights", "noises", "a"))
        noise: Array = (weights * noises).sum(axis=1) * a[:, 0] ** 2
        return noise

    def tell(
        self, points: ArrayLike, contexts: ArrayLike, losses: ArrayLike, failed: ArrayLike, y: ArrayLike
    ) -> ExpectedLosses:
        batch, rows, own, n = self._batch, self.rows, self.buffer, len(self.rows)
        samples = self._samples(points, contexts, losses, failed, y)
        at, where, lost, crashed, target = (batch.given(values, n, width) for values, width in samples)
        told, logs = batch.empty(n, BESIDE), batch.empty(n, E)
        mean, variance = batch.empty(n), batch.empty(n)
        batch.launch("against", rows, own, at, told)
        batch.launch("forecast", rows, own, at, target, mean, variance, logs)
        batch.launch("learn", rows, own, at, where, lost, crashed, logs)
        return ExpectedLosses(BesideDefault(*fetched(told).T), fetched(mean), fetched(variance))

    def some(self, places: Places) -> "GpuBeliefs":
        there = torch.tensor(places, device=self._batch.device)
        return GpuBeliefs(self._batch, self.rows[there], self.buffer[there])

    def _run(self, name: str, given: Sequence[Given], widths: Sequence[int], count: int | None = None) -> list[Array]:
        n = len(self.rows)
        inputs = [self._batch.given(values, n, width) for values, width in given]
        outputs = [self._batch.empty(n, width) if width else self._batch.empty(n) for width in widths]
        self._batch.launch(name, self.rows, self.buffer, *inputs, *([] if count is None else [count]), *outputs)
        return [fetched(output) for output in outputs]


def fetched(tensor: torch.Tensor) -> Array:
    """A copy in NumPy."""
    if tensor.is_cuda and tensor.nbytes <= MOST_LOCKED:
        locked = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)  # a GPU writes there at full speed
        return np.asarray(locked.copy_(tensor).numpy())
    return np.asarray(tensor.cpu().numpy())


def _device(name: str) -> torch.device:
    """The GPU, with its number."""
    if torch.version.cuda is None:
        raise CompileError("this torch was built for no GPU of NVIDIA")
    device = torch.device(name)
    return torch.device("cuda", torch.cuda.current_device()) if device.index is None else device


def _blank(dims: Dims, size: int, device: torch.device) -> dict[str, torch.Tensor]:
    arrays = {
        name: torch.zeros((size, *shape), dtype=torch.float64, device=device) for name, shape in shapes(dims).items()
    }
    for name, value in start(dims).items():
        arrays[name][...] = torch.tensor(np.asarray(value), dtype=torch.float64, device=device)
    return arrays


@lru_cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


@lru_cache
def _functions(dims: Dims, device: int) -> dict[str, Function]:
    """Compiled, or read from the cache, and loaded to the GPU."""
    told: Any = torch.cuda.get_device_properties(device)
    numbers = (_numbers_to_believe(dims), _numbers_to_learn(dims), _numbers_to_choose(dims), _numbers_to_predict(dims))
    parts = [CompiledPart(i, 1 if i in ALONE else WARP, numbers[i]) for i in range(len(NAMES))]
    threads = told.multi_processor_count * told.max_threads_per_multi_processor  # CUDA keeps room for all it could run
    if 8 * threads * max(part.numbers for part in parts if part.lanes == 1) > MOST_SCRATCH * told.total_memory:
        raise CompileError(f"{dims.knobs} knobs take too much scratch memory on this GPU")
    version, capability = str(torch.version.cuda), (told.major, told.minor)
    with ThreadPoolExecutor(len(parts)) as pool:
        made = list(
            pool.map(
                lambda part: image(dims, part, THREADS if part.lanes == 1 else part.lanes, capability, version), parts
            )
        )
    found = {}
    with torch.cuda.device(device):
        torch.cuda.current_stream().synchronize()  # the first call of all: from here on there is a context
        for part, code, names in zip(parts, made, NAMES, strict=True):
            fast = 8 * part.numbers if part.lanes > 1 else 0
            if fast > told.shared_memory_per_block_optin:
                raise CompileError("too many knobs for the fast memory of this GPU")
            for name in names:
                handle = _loaded(code, name)
                if fast:
                    _checked(_driver().cuFuncSetAttribute(handle, DYNAMIC_SHARED_MEMORY, fast))
                found[name] = Function(handle, part.lanes, fast)
    return found


def _loaded(made: bytes, name: str) -> ctypes.c_void_p:
    module, handle = ctypes.c_void_p(), ctypes.c_void_p()
    _checked(_driver().cuModuleLoadData(ctypes.byref(module), made))
    _checked(_driver().cuModuleGetFunction(ctypes.byref(handle), module, name.encode()))
    return handle


# Scratch memory of one tuner: at least what the C files ask for. native/device.cu stops if it is too little.


def _numbers_to_believe(dims: Dims) -> int:
    p, slots, sums = dims.features, L * dims.rows, L * dims.prompt
    return max(sums, 2 * dims.rows) + max(_numbers_to_estimate(dims), slots) + 3 * p * p + (2 * L + 3) * p


def _numbers_to_estimate(dims: Dims) -> int:
    return (dims.features + 3) ** 2 + dims.features


def _numbers_to_learn(dims: Dims) -> int:
    d, p, m = dims.knobs, dims.features, dims.coefficients
    beside = d + dims.columns + dims.sample + 2 * p + p * p
    track = d + max(_numbers_to_estimate(dims), dims.rows)
    trust = L * (dims.prompt + dims.rows + dims.sample)
    merge = 48 * dims.rows
    early = EARLY_SAMPLES**2 + (EARLY_SAMPLES + 2) ** 2 + 4 * EARLY_SAMPLES + 16 + dims.context
    row, n = m + 12, WINDOW_SAMPLES
    fit = n * (3 * d + 6 + dims.rank + row) + 6 * m + 2 * m * m
    return beside + max(track, trust, merge, early, fit)


def _numbers_to_choose(dims: Dims) -> int:
    d, p = dims.knobs, dims.features
    return p * p + 4 * p + draws_needed(dims) * (d + 3) + 10 * d + 2 * d * d


def _numbers_to_predict(dims: Dims) -> int:
    return dims.features**2 + 2 * dims.features + 2 * dims.knobs


def _checked(code: int) -> None:
    if code:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(code, ctypes.byref(text))
        raise OSError(f"CUDA: {(text.value or b'error').decode()} ({code})")
