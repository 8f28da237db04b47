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
from rasp_tuner.engine.kernel.native import ARGUMENTS, NUMBER, POINTER, Native, NativeBelief, StateStruct
from rasp_tuner.engine.kernel.state import EARLY_SAMPLES, WINDOW_SAMPLES, Dims, E, L, State, Tensor, shapes

THREADS, WARP = 128, 32  # in a block, of which each has a tuner; of those that have one together
WARPS = 32  # for each processor of the GPU
ALONE = ("predict", "compare", "against", "forecast", "choose", "best")
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
    tuners: int  # that a block begins with
    threads: int  # in a block
    fast: int = 0  # bytes of the processor's own memory for a block
    numbers: int = 0  # of the GPU's memory for a block
    blocks: int = 0  # at most, where these have such memory


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
        self._run("learn", state, belief.buffer, *(self._numbers(x, state, width) for x, width in given))

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
        blocks = -(-state.size // function.tuners)
        scratch: Tensor | int = 0
        if function.numbers:
            blocks = min(blocks, function.blocks)
            scratch = self._empty(blocks, function.numbers)
        types = [POINTER, POINTER, None, NUMBER, POINTER, *ARGUMENTS[name]]
        values: list[Any] = [self._default, self._sketch, self._arrays(state), state.size, scratch, *given]
        held = [
            value if type_ is None else type_(value.data_ptr() if isinstance(value, torch.Tensor) else value)
            for type_, value in zip(types, values, strict=True)
        ]
        addresses = (ctypes.c_void_p * len(held))(*(ctypes.addressof(value) for value in held))
        with torch.cuda.device(self._device):
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            grid, block = (blocks, 1, 1), (function.threads, 1, 1)
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
    told = torch.cuda.get_device_properties(device)
    asking, learning = _numbers_to_believe(dims), _numbers_to_learn(dims)
    parts = (Part(0, WARP, WARP, asking), Part(1, WARP, WARP, learning), Part(2, 1, THREADS, _numbers_to_choose(dims)))
    version, capability = str(torch.version.cuda), (told.major, told.minor)
    with ThreadPoolExecutor(len(parts)) as pool:
        believe, learn, others = pool.map(lambda part: image(dims, part, capability, version), parts)
    most, fits = WARPS * told.multi_processor_count, 8 * asking <= told.shared_memory_per_block_optin
    with torch.cuda.device(device):
        torch.cuda.current_stream().synchronize()  # the first call of all: from here on there is a context
        found = {name: Function(_loaded(others, name), THREADS, THREADS) for name in ALONE}
        found["learn"] = Function(_loaded(learn, "learn"), 1, WARP, numbers=learning, blocks=most)
        found["believe"] = Function(_loaded(believe, "believe"), 1, WARP, numbers=asking, blocks=most)
        if fits:
            handle = found["believe"].handle
            _checked(_driver().cuFuncSetAttribute(handle, DYNAMIC_SHARED_MEMORY, 8 * asking))
            found["believe"] = Function(handle, 1, WARP, fast=8 * asking)
    return found


def _loaded(made: bytes, name: str) -> ctypes.c_void_p:
    module, handle = ctypes.c_void_p(), ctypes.c_void_p()
    _checked(_driver().cuModuleLoadData(ctypes.byref(module), made))
    _checked(_driver().cuModuleGetFunction(ctypes.byref(handle), module, name.encode()))
    return handle


# Scratch memory of one tuner: at least what the C files ask for. native/device.cu stops if it is too little.


def _numbers_to_believe(dims: Dims) -> int:
    p = dims.features
    return (2 + L) * dims.rows + L * dims.prompt + 5 * p * p + 9 * p


def _numbers_to_choose(dims: Dims) -> int:
    d, p = dims.knobs, dims.features
    return p * p + 4 * p + draws_needed(dims) * (d + 3) + 10 * d + 2 * d * d


def _numbers_to_learn(dims: Dims) -> int:
    d, p, m = dims.knobs, dims.features, dims.coefficients
    small = d + dims.columns + dims.sample + 2 * p + p * p
    trust = L * dims.prompt + L * dims.rows
    track = d + 2 * p * p + 5 * p + dims.rows
    merge = 33 * dims.rows + 32
    early = 2 * EARLY_SAMPLES * (EARLY_SAMPLES + 2) + 16 + dims.context
    side, row, n = min(m, WINDOW_SAMPLES), m + 12, WINDOW_SAMPLES
    fit = n * (3 * d + 6 + dims.rank + row) + max(n, m) + 7 * m + 3 * side * side
    return small + max(trust, track, merge, early, fit)


def _checked(code: int) -> None:
    if code:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(code, ctypes.byref(text))
        raise OSError(f"CUDA: {(text.value or b'error').decode()} ({code})")
