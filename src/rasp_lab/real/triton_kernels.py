"""Two Triton kernels of a language model's layers, and a GPU that times them. Importing it needs PyTorch and Triton.

symbol   shape                              meaning
x        [tokens, inputs]                   what enters a layer; every token of a batch is a row
weight   [inputs, outputs]                  of the layer; both sides are multiples of every tile
y        [tokens, outputs]                  x @ weight
q, out   [pairs, queries * sharing, width]  for each request and head of keys; `sharing` query heads use the same keys
k, v     [pairs, keys, width]               the last `queries` of the keys belong to the queries themselves
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Protocol

import torch
import triton
import triton.language as tl
from torch import Tensor

from rasp_lab.real.triton_compile import Settings, compile_programs

DEVICE = "cuda"
INPUTS, OUTPUTS = 4096, 14336
HEADS, SHARING, WIDTH = 8, 4, 128  # heads of keys, heads of queries for each, size of a head
FLAT = 1 << 28  # numbers in a buffer of weights or of keys: far more than the GPU's cache holds
HEAD_START = 2_000_000  # GPU cycles, about a millisecond, in which the host can queue all launches
CLOSE = 2e-2  # of numbers of about 1 in half precision

Shape = Mapping[str, int]


@triton.jit(do_not_specialize=["tokens", "group"])
def _matmul(
    x,
    weight,
    y,
    tokens,
    group,
    inputs: tl.constexpr,
    outputs: tl.constexpr,
    tile_m: tl.constexpr,
    tile_n: tl.constexpr,
    tile_k: tl.constexpr,
):
    """One tile [tile_m, tile_n] of x @ weight."""
    # Tiles are numbered down a band of `group` rows of tiles, then along it: neighbours share what is in the cache.
    bands = group * (outputs // tile_n)
    here = tl.program_id(0)
    top = here // bands * group
    height = min(tl.cdiv(tokens, tile_m) - top, group)
    rows = (top + here % bands % height) * tile_m + tl.arange(0, tile_m)
    columns = here % bands // height * tile_n + tl.arange(0, tile_n)
    depth = tl.arange(0, tile_k)
    real = rows[:, None] < tokens
    left = x + rows[:, None] * inputs + depth[None, :]
    right = weight + depth[:, None] * outputs + columns[None, :]
    total = tl.zeros((tile_m, tile_n), dtype=tl.float32)
    for _ in range(0, inputs, tile_k):
        total = tl.dot(tl.load(left, mask=real, other=0.0), tl.load(right), total)
        left += tile_k
        right += tile_k * outputs
    tl.store(y + rows[:, None] * outputs + columns[None, :], total.to(y.dtype.element_ty), mask=real)


@triton.jit(do_not_specialize=["queries", "keys"])
def _attention(
    q,
    k,
    v,
    out,
    queries,
    keys,
    scale: tl.constexpr,  # of q @ k, times log2(e)
    sharing: tl.constexpr,
    width: tl.constexpr,
    tile_q: tl.constexpr,
    tile_k: tl.constexpr,
):
    """Causal attention of `tile_q` rows: softmax(q @ k) @ v in one pass over the keys, with a running maximum."""
    pair = tl.program_id(1).to(tl.int64)  # all keys together may have more than 2**31 numbers, those of a pair do not
    own_q, own_k = pair * queries * sharing * width, pair * keys * width
    rows = tl.program_id(0) * tile_q + tl.arange(0, tile_q)
    across = tl.arange(0, width)
    real = rows[:, None] < queries * sharing
    place = rows[:, None] * width + across[None, :]
    query = tl.load(q + own_q + place, mask=real, other=0.0)
    sees = keys - queries + rows // sharing  # the last key that a row may look at
    end = min(keys, keys - queries + (tl.program_id(0) * tile_q + tile_q - 1) // sharing + 1)
    highest = tl.full((tile_q,), float("-inf"), dtype=tl.float32)
    weights = tl.zeros((tile_q,), dtype=tl.float32)
    mixed = tl.zeros((tile_q, width), dtype=tl.float32)
    place_k = tl.arange(0, tile_k)[:, None] * width + across[None, :]
    for start in range(0, end, tile_k):
        column = start + tl.arange(0, tile_k)
        there = column[:, None] < keys
        key = tl.load(k + own_k + start * width + place_k, mask=there, other=0.0)
        score = tl.dot(query, tl.trans(key)) * scale
        score = tl.where(column[None, :] <= sees[:, None], score, float("-inf"))
        new = tl.maximum(highest, tl.max(score, 1))
        weight = tl.exp2(score - new[:, None])
        faded = tl.exp2(highest - new)
        weights = weights * faded + tl.sum(weight, 1)
        value = tl.load(v + own_k + start * width + place_k, mask=there, other=0.0)
        mixed = tl.dot(weight.to(value.dtype), value, mixed * faded[:, None])
        highest = new
    tl.store(out + own_q + place, (mixed / weights[:, None]).to(out.dtype.element_ty), mask=real)


def matmul(x: Tensor, weight: Tensor, y: Tensor, params: Settings) -> None:
    """Launches y = x @ weight."""
    (tokens, inputs), outputs = x.shape, weight.shape[1]
    tiles = triton.cdiv(tokens, params["tile_m"]) * (outputs // params["tile_n"])
    _matmul[(tiles,)](x, weight, y, tokens, params["group"], inputs, outputs, **_compiled(params))


def attention(q: Tensor, k: Tensor, v: Tensor, out: Tensor, params: Settings, sharing: int = SHARING) -> None:
    """Launches the attention of q to k and v."""
    (pairs, rows, width), keys = q.shape, k.shape[1]
    tiles = triton.cdiv(rows, params["tile_q"])
    _attention[(tiles, pairs)](q, k, v, out, rows // sharing, keys, _scale(width), sharing, width, **_compiled(params))


def _compiled(params: Settings) -> dict[str, Any]:
    """The settings that a program is compiled for, as Triton calls them."""
    tiles = {name: value for name, value in params.items() if name.startswith("tile_")}
    return {**tiles, "num_warps": params["warps"], "num_stages": params["stages"]}


def _scale(width: int) -> float:
    return math.log2(math.e) / math.sqrt(width)


class Kernel(Protocol):
    """One of the two with its data on the GPU."""

    odd: ClassVar[Shape]  # to check results with: no size is a multiple of a tile

    def calls(self, params: Settings, shape: Shape, count: int) -> list[Callable[[], None]]: ...
    def right(self) -> bool: ...  # after a call with the odd shape
    @staticmethod
    def warm_up(params: Settings) -> None: ...  # compiles and does not run


class Matmul:
    """Tokens times the weights of one layer after another."""

    odd: ClassVar[Shape] = {"tokens": 100}

    def __init__(self, shapes: Sequence[Shape]) -> None:
        self._x = _random(max(shape["tokens"] for shape in shapes), INPUTS)
        self._weights = _random(FLAT // (INPUTS * OUTPUTS), INPUTS, OUTPUTS).mul_(INPUTS**-0.5)
        self._y = torch.empty(len(self._x), OUTPUTS, dtype=torch.float16, device=DEVICE)

    def calls(self, params: Settings, shape: Shape, count: int) -> list[Callable[[], None]]:
        x, y = self._x[: shape["tokens"]], self._y[: shape["tokens"]]
        return [partial(matmul, x, self._weights[i % len(self._weights)], y, params) for i in range(count)]

    def right(self) -> bool:
        count = self.odd["tokens"]
        return _close(self._y[:count], self._x[:count] @ self._weights[0])

    @staticmethod
    def warm_up(params: Settings) -> None:
        half = torch.float16
        _matmul.warmup(half, half, half, 1, 1, INPUTS, OUTPUTS, **_compiled(params), grid=(1,))


class Attention:
    """Queries to the keys and values of one layer after another."""

    odd: ClassVar[Shape] = {"requests": 3, "queries": 50, "keys": 170}

    def __init__(self, shapes: Sequence[Shape]) -> None:
        most = max(shape["requests"] * shape["queries"] for shape in (*shapes, self.odd)) * HEADS * SHARING * WIDTH
        self._q, self._k, self._v = _random(most), _random(FLAT), _random(FLAT)
        self._out = torch.empty_like(self._q)

    def calls(self, params: Settings, shape: Shape, count: int) -> list[Callable[[], None]]:
        return [partial(attention, *self._views(shape, i), params) for i in range(count)]

    def right(self) -> bool:
        q, k, v, out = self._views(self.odd, 0)
        return _close(out, reference_attention(q, k, v, SHARING))

    @staticmethod
    def warm_up(params: Settings) -> None:
        half, sizes = torch.float16, (_scale(WIDTH), SHARING, WIDTH)
        _attention.warmup(half, half, half, half, 1, 1, *sizes, **_compiled(params), grid=(1,))

    def _views(self, shape: Shape, layer: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        pairs, size = shape["requests"] * HEADS, shape["requests"] * HEADS * shape["keys"] * WIDTH
        start = layer % (FLAT // size) * size
        k, v = (flat[start : start + size].view(pairs, shape["keys"], WIDTH) for flat in (self._k, self._v))
        rows = shape["queries"] * SHARING
        q, out = (flat[: pairs * rows * WIDTH].view(pairs, rows, WIDTH) for flat in (self._q, self._out))
        return q, k, v, out


def reference_attention(q: Tensor, k: Tensor, v: Tensor, sharing: int) -> Tensor:
    """What the kernel computes, step by step."""
    queries, keys = q.shape[1] // sharing, k.shape[1]
    last = keys - queries + torch.arange(q.shape[1], device=q.device) // sharing
    score = q.float() @ k.float().transpose(1, 2) / math.sqrt(q.shape[2])
    score = score.masked_fill(torch.arange(keys, device=q.device) > last[:, None], -math.inf)
    return score.softmax(2) @ v.float()


KERNELS: dict[str, Callable[[Sequence[Shape]], Kernel]] = {"matmul": Matmul, "attention": Attention}


class Gpu:
    """The GPU of this machine with the data of one kernel, for batches of the given shapes."""

    def __init__(self, kernel: str, shapes: Sequence[Shape]) -> None:
        self._name, self._kernel = kernel, KERNELS[kernel](shapes)

    def compile(self, programs: Sequence[Settings]) -> list[tuple[float, str | None]]:
        """How many milliseconds each program took to compile, and why it cannot be compiled."""
        small = {**_SMALL[self._name], "warps": 4, "stages": 1}
        return compile_programs(KERNELS[self._name].warm_up, small, programs)  # type: ignore[attr-defined]

    def fault(self, params: Settings) -> str | None:
        """Why a compiled program does not run, or that it runs wrongly."""
        try:
            self._kernel.calls(params, self._kernel.odd, 1)[0]()
        except triton.TritonError as error:  # more shared memory than there is
            return str(error)
        return None if self._kernel.right() else "wrong result"

    def time(self, params: Settings, shape: Shape, launches: int) -> float:
        """Milliseconds of GPU time of so many launches, each on other weights or keys."""
        calls = self._kernel.calls(params, shape, launches)
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        calls[-1]()
        torch.cuda._sleep(HEAD_START)  # so that the GPU never waits for the host
        start.record()
        for call in calls:
            call()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end))


# Programs that are not in the space.
_SMALL = {"matmul": {"tile_m": 16, "tile_n": 32, "tile_k": 32}, "attention": {"tile_q": 16, "tile_k": 16}}


def _random(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float16, device=DEVICE)


def _close(found: Tensor, expected: Tensor) -> bool:
    return torch.allclose(found.float(), expected.float(), rtol=CLOSE, atol=CLOSE)
