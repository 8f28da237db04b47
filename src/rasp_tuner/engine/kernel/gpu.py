"""Gpu: the kernel compiled for a GPU, on states in tensors there; the same functions as on arrays, for all of a state.

One thread computes one tuner. Work is queued on torch's current stream, in order with torch's own.
"""

import ctypes
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from rasp_tuner.engine.kernel import torch_namespace
from rasp_tuner.engine.kernel.belief import length
from rasp_tuner.engine.kernel.choose import draws_needed
from rasp_tuner.engine.kernel.gpu_compile import CompileError, Part, image
from rasp_tuner.engine.kernel.moving import sketch
from rasp_tuner.engine.kernel.native import ARGUMENTS as TAKEN
from rasp_tuner.engine.kernel.native import NUMBER, POINTER, Native, NativeBelief
from rasp_tuner.engine.kernel.shared_structs import StateStruct
from rasp_tuner.engine.kernel.state import EARLY_SAMPLES, WINDOW_SAMPLES, Dims, E, L, State, Tensor, shapes

THREADS, WARP = 128, 32  # in a block, of which each has a tuner; of those that have one together
NAMES = (
    ("believe", "renew_trust"),
    ("judge", "take_in"),
    ("choose", "best"),
    ("predict", "compare", "against", "forecast"),
)
ALONE = (1, 2, 3)  # of these parts of native/device.cu: one thread has a tuner
ARGUMENTS = {**TAKEN, "judge": [POINTER] * 5, "renew_trust": [POINTER], "take_in": [POINTER] * 6}
MOST_SCRATCH = 1 / 3  # of a GPU's memory
DYNAMIC_SHARED_MEMORY = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


def why_not(dims: Dims, default: Tensor) -> str | None:
    """Why tensors that are where the default is cannot be computed with; None if they can."""
    if not default.is_cuda or torch.version.cuda is None:
        return "not on a GPU of NVIDIA"
    if not Native.serves(dims):
        return "too many knobs"
    try:
        _functions(dims, default.device.index)
    except (CompileError, OSError) as reason:
        return str(reason)
    return None


class Function(NamedTuple):
    """A function that was loaded to a GPU, and how it is started."""

    handle: ctypes.c_void_p
    lanes: int  # that work on a tuner together
    fast: int  # bytes of the processor's own memory for these


class Gpu:
    """The functions for spaces of one size with one default."""

    def __init__(self, dims: Dims, default: Tensor) -> None:
        self._dims, self._default, self._device = dims, default, default.device
        self._functions = _functions(dims, default.device.index)
        self._sketch = sketch(dims, torch_namespace, default.device) if dims.context > dims.width else default

    def believe(self, state: State, contexts: Tensor) -> NativeBelief:
        belief = NativeBelief(self._dims, buffer=self._empty(state.size, length(self._dims)))
        self._run("believe", state, self._numbers(contexts, state, self._dims.context), belief.buffer)
        return belief

    def predict(self, state: State, belief: NativeBelief, points: Tensor) -> tuple[Tensor, Tensor]:
        count = points.shape[1]
        means, variances = (self._empty(state.size, count) for _ in range(2))
        points = self._numbers(points, state, count * self._dims.knobs)
        self._run("predict", state, belief.buffer, points, count, means, variances)
        return means, variances

    def compare(self, state: State, belief: NativeBelief, points: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
        means, variances = (self._empty(state.size) for _ in range(2))
        both = [self._numbers(x, state, self._dims.knobs) for x in (points, others)]
        self._run("compare", state, belief.buffer, *both, means, variances)
        return means, variances

    def against(self, state: State, belief: NativeBelief, points: Tensor) -> tuple[Tensor, ...]:
        out = self._empty(state.size, 6)
        self._run("against", state, belief.buffer, self._numbers(points, state, self._dims.knobs), out)
        return tuple(out.T)

    def forecast(self, state: State, belief: NativeBelief, points: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        means, variances, logs = self._empty(state.size), self._empty(state.size), self._empty(state.size, E)
        points, y = self._numbers(points, state, self._dims.knobs), self._numbers(y, state, 1)
        self._run("forecast", state, belief.buffer, points, y, means, variances, logs)
        return means, variances, logs

    def choose(self, state: State, belief: NativeBelief, draws: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        points = self._empty(state.size, self._dims.knobs)
        sources, means, variances = (self._empty(state.size) for _ in range(3))
        draws = self._numbers(draws, state, draws_needed(self._dims))
        self._run("choose", state, belief.buffer, draws, points, sources, means, variances)
        return points, sources.to(torch.int64), means, variances

    def best(self, state: State, belief: NativeBelief) -> Tensor:
        points = self._empty(state.size, self._dims.knobs)
        self._run("best", state, belief.buffer, points)
        return points

    def learn(
        self,
        state: State,
        belief: NativeBelief,
        points: Tensor,
        contexts: Tensor,
        losses: Tensor,
        failed: Tensor,
        logs: Tensor,
    ) -> None:
        dims = self._dims
        widths = (dims.knobs, dims.context, dims.columns, 1, E)
        given = zip((points, contexts, losses, failed, logs), widths, strict=True)
        points, contexts, losses, failed, logs = (self._numbers(x, state, width) for x, width in given)
        trust = self._empty(state.size)
        self._run("judge", state, belief.buffer, points, losses, logs, trust)
        self._run("renew_trust", state, belief.buffer)
        self._run("take_in", state, belief.buffer, points, contexts, losses, failed, trust)

    def _empty(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.float64, device=self._device)

    def _numbers(self, values: Tensor, state: State, width: int) -> Tensor:
        """As compiled code reads them."""
        array = values.to(device=self._device, dtype=torch.float64).contiguous()
        if array.numel() != state.size * width:
            raise ValueError(f"{state.size} tuners take {state.size} x {width} numbers, got {tuple(array.shape)}")
        return array

    def _run(self, name: str, state: State, *given: Tensor | int) -> None:
        """Queue a function; tensors that are given must live until this returns: torch reuses memory in order."""
        if state.size == 0:
            return
        function = self._functions[name]
        threads = THREADS if function.lanes == 1 else function.lanes
        blocks = -(-state.size * function.lanes // threads)
        types = [POINTER, POINTER, None, NUMBER, *ARGUMENTS[name]]
        values: list[Any] = [self._default, self._sketch, self._arrays(state), state.size, *given]
        held = [
            value if type_ is None else type_(value.data_ptr() if isinstance(value, torch.Tensor) else value)
            for type_, value in zip(types, values, strict=True)
        ]
        addresses = (ctypes.c_void_p * len(held))(*(ctypes.addressof(value) for value in held))
        with torch.cuda.device(self._device):
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            grid, block = (blocks, 1, 1), (threads, 1, 1)
            _checked(_driver().cuLaunchKernel(function.handle, *grid, *block, function.fast, stream, addresses, None))

    def _arrays(self, state: State) -> StateStruct:
        arrays = dict(state.items())
        for name, shape in shapes(self._dims).items():
            array, wanted = arrays[name], (state.size, *shape)
            good = array.dtype == torch.float64 and array.is_contiguous() and array.device == self._device
            if not good or tuple(array.shape) != wanted:
                raise ValueError(f"state.{name} must be a contiguous tensor of float64 on {self._device}, {wanted}")
        return StateStruct(*(array.data_ptr() for array in arrays.values()))


@lru_cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


@lru_cache
def _functions(dims: Dims, device: int) -> dict[str, Function]:
    """Compiled, or read from the cache, and loaded to the GPU."""
    told: Any = torch.cuda.get_device_properties(device)
    numbers = (_numbers_to_believe(dims), _numbers_to_learn(dims), _numbers_to_choose(dims), _numbers_to_predict(dims))
    parts = [Part(i, 1 if i in ALONE else WARP, numbers[i]) for i in range(len(NAMES))]
    threads = told.multi_processor_count * told.max_threads_per_multi_processor  # CUDA keeps room for all it could run
    if 8 * threads * max(part.numbers for part in parts if part.lanes == 1) > MOST_SCRATCH * told.total_memory:
        raise CompileError("scratch memory would take too much of this GPU")
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
    """And to renew trust."""
    p, slots, sums = dims.features, L * dims.rows, L * dims.prompt
    believe = max(sums, 2 * dims.rows) + max(_numbers_to_estimate(dims), slots) + 3 * p * p + (2 * L + 3) * p
    return max(believe, sums + slots)


def _numbers_to_estimate(dims: Dims) -> int:
    return 2 * dims.features**2 + 5 * dims.features


def _numbers_to_learn(dims: Dims) -> int:
    d, p, m = dims.knobs, dims.features, dims.coefficients
    beside = d + dims.columns + dims.sample + 2 * p + p * p
    track = d + max(_numbers_to_estimate(dims), dims.rows)
    trust = L * dims.prompt + L * dims.rows
    merge = 48 * dims.rows
    early = 2 * EARLY_SAMPLES * (EARLY_SAMPLES + 2) + 16 + dims.context
    side, row, n = min(m, WINDOW_SAMPLES), m + 12, WINDOW_SAMPLES
    fit = n * (3 * d + 6 + dims.rank + row) + max(n, m) + 7 * m + 3 * side * side
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
