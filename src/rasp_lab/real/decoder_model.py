"""A language model with random weights on a GPU, which works on the chunks of a scheduler. Needs PyTorch and Triton.

Eight layers as in Llama with grouped queries, 0.4 billion weights in bfloat16. It has no positional encoding, which
would take the same time with all settings. The next token is the likeliest one; prompts are random tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import triton
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from rasp_lab.real import paged_attention
from rasp_lab.real.batch_arrays import batch_arrays
from rasp_lab.real.continuous_batching import Chunk
from rasp_lab.real.paged_attention import KV_HEADS, MOST_TOKENS, SHARING, WIDTH, longest_row
from rasp_lab.real.triton_compile import Settings, compile_programs

DEVICE, NUMBERS = "cuda", torch.bfloat16
LAYERS, MLP, VOCABULARY = 8, 5632, 32_000
HEADS = KV_HEADS * SHARING
HIDDEN = HEADS * WIDTH
MOST_BATCH = 8192  # tokens of an iteration
CLOSE = 4e-2  # of numbers of about 1 in bfloat16
SMALL: Settings = {"kv_block": 16, "tile_q": 16, "warps": 4, "stages": 5}  # a program that is not in the space
CHECKED = ((7, 1), (161, 1), (70, 70), (333, 45), (131, 130), (5, 5))  # all tokens of a sequence, and new ones


class Decoder:
    """The model, its cache of so many places, for so many sequences together, and the programs of its attention."""

    def __init__(self, places: int, sequences: int) -> None:
        torch.manual_seed(0)
        self._sequences = sequences
        qkv = HIDDEN + 2 * KV_HEADS * WIDTH
        sides = {"qkv": (HIDDEN, qkv), "o": (HIDDEN, HIDDEN), "up": (HIDDEN, 2 * MLP), "down": (MLP, HIDDEN)}
        self._layers = [
            {name: _random(*side).mul_(side[0] ** -0.5) for name, side in sides.items()} for _ in range(LAYERS)
        ]
        self._words = _random(VOCABULARY, HIDDEN)
        self._cache = torch.zeros(LAYERS, places, 2 * KV_HEADS * WIDTH, dtype=NUMBERS, device=DEVICE)
        self._known = torch.randint(VOCABULARY, ((sequences + 1) * MOST_TOKENS,), device=DEVICE)
        self._tables = {block: _Table(block, sequences) for block in (16, 32, 64, 128)}
        self._checks: dict[int, _Check] = {}

    def compile(self, programs: Sequence[Settings]) -> list[tuple[float, str | None]]:
        """How many milliseconds each program took to compile, and why it cannot be compiled."""
        return compile_programs(paged_attention.warm_up, SMALL, programs)

    def fault(self, params: Settings) -> str | None:
        """Why a compiled program does not run, or that it runs wrongly."""
        block = params["kv_block"]
        if block not in self._checks:
            self._checks[block] = _Check(block)
        try:
            found = self._checks[block].run(params)
        except triton.TritonError as error:  # more shared memory than there is
            return str(error)
        right = torch.allclose(found.float(), self._checks[block].expected, rtol=CLOSE, atol=CLOSE)
        return None if right else "wrong result"

    def warm_up(self) -> None:
        """Loads the kernels of PyTorch for batches of all sizes, the largest first: it gets all memory it needs."""
        params = {"kv_block": 16, "tile_q": 64, "warps": 4, "stages": 2}
        for tokens in sorted({min(MOST_BATCH, int(1.25**i)) for i in range(42)}, reverse=True):
            rows = torch.zeros(tokens, dtype=torch.int64, device=DEVICE)
            tiles = torch.tensor([[token, 1, 0, 0] for token in range(tokens)], device=DEVICE)
            last = rows[: self._sequences]
            spare = last + self._sequences * MOST_TOKENS  # of a slot that no sequence has
            self._forward(tiles, rows, rows, last, spare, self._tables[16].on_gpu, params)
        self._cache.zero_()
        _wait()

    @torch.inference_mode()
    def step(self, chunks: Sequence[Chunk], params: Settings) -> None:
        """Works on a batch to its end."""
        table = self._tables[params["kv_block"]]
        table.note(chunks)
        made = batch_arrays(chunks, table.on_host, params["kv_block"], params["tile_q"] // SHARING, MOST_TOKENS)
        packed = torch.from_numpy(made.packed()).to(DEVICE)
        tiles, known, places, last, following = packed.split(made.sizes())
        try:
            self._forward(tiles.view(-1, 4), known, places, last, following, table.on_gpu, params)
            _wait()
        except torch.OutOfMemoryError as error:
            raise MemoryError(str(error)) from error

    @torch.inference_mode()
    def _forward(
        self, tiles: Tensor, known: Tensor, places: Tensor, last: Tensor, following: Tensor, table: Tensor, params: Any
    ) -> None:
        x = F.embedding(self._known[known], self._words)
        mixed = torch.empty_like(x)
        for layer, cache in zip(self._layers, self._cache, strict=True):
            qkv = _norm(x) @ layer["qkv"]
            cache.index_copy_(0, places, qkv[:, HIDDEN:])
            paged_attention.paged_attention(qkv, cache, table, tiles, mixed, params)
            x = torch.addmm(x, mixed, layer["o"])
            gate, up = (_norm(x) @ layer["up"]).chunk(2, dim=1)
            x = torch.addmm(x, F.silu(gate) * up, layer["down"])
        if len(last):
            self._known[following] = (_norm(x[last]) @ self._words.T).argmax(1)


@dataclass(slots=True)
class _Table:
    """Blocks of the sequences, here and on the GPU, for one size of a block."""

    kv_block: int
    sequences: int
    on_host: NDArray[np.int32] = field(init=False)
    on_gpu: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.on_host = np.zeros((self.sequences, longest_row(self.kv_block)), dtype=np.int32)
        self.on_gpu = torch.zeros(self.on_host.shape, dtype=torch.int32, device=DEVICE)

    def note(self, chunks: Sequence[Chunk]) -> None:
        """Takes down the blocks of sequences that are new."""
        new = [chunk.of for chunk in chunks if chunk.first == 0]
        for sequence in new:
            self.on_host[sequence.slot, : len(sequence.blocks)] = sequence.blocks
        if new:
            self.on_gpu.copy_(torch.from_numpy(self.on_host))


class _Check:
    """A batch of sequences of odd sizes with scattered blocks, and what its attention is."""

    def __init__(self, kv_block: int) -> None:
        rng = np.random.default_rng(0)
        longest, row = longest_row(kv_block), 2 * KV_HEADS * WIDTH
        blocks = rng.permutation(sum(-(-total // kv_block) for total, _ in CHECKED))
        self._cache = torch.full((len(blocks) * kv_block, row), torch.nan, dtype=NUMBERS, device=DEVICE)
        self._qkv = _random(sum(new for _, new in CHECKED), HIDDEN + row)
        self._table = torch.zeros(len(CHECKED), longest, dtype=torch.int32, device=DEVICE)
        self._start = np.cumsum([0, *(new for _, new in CHECKED)])
        expected, used = [], 0
        for i, (total, new) in enumerate(CHECKED):
            own = torch.from_numpy(blocks[used : used + -(-total // kv_block)]).to(DEVICE)
            used += len(own)
            self._table[i, : len(own)] = own
            values = _random(total, row)
            position = torch.arange(total, device=DEVICE)
            self._cache[own[position // kv_block] * kv_block + position % kv_block] = values
            k, v = values.view(total, 2, KV_HEADS, WIDTH).unbind(1)
            q = self._qkv[self._start[i] : self._start[i] + new, :HIDDEN].view(new, HEADS, WIDTH)
            expected.append(paged_attention.reference_attention(q, k, v).flatten(1))
        self.expected = torch.cat(expected)

    def run(self, params: Settings) -> Tensor:
        step = params["tile_q"] // SHARING
        tiles = [
            (self._start[i] + skipped, new - skipped, total - new + skipped, i)
            for i, (total, new) in enumerate(CHECKED)
            for skipped in range(0, new, step)
        ]
        out = torch.full((len(self._qkv), HIDDEN), torch.nan, dtype=NUMBERS, device=DEVICE)
        given = torch.tensor(np.array(tiles, dtype=np.int64), device=DEVICE)
        paged_attention.paged_attention(self._qkv, self._cache, self._table, given, out, params)
        return out


def _norm(x: Tensor) -> Tensor:
    return F.rms_norm(x, (HIDDEN,))


def _wait() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def _random(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=NUMBERS, device=DEVICE)
