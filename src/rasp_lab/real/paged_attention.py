"""Triton attention for the mixed batches of an inference server. Importing it needs PyTorch and Triton.

symbol   shape                      meaning
qkv      [tokens, row]              queries of all heads, then keys, then values of the heads of keys
cache    [places, 2 * heads * W]    keys, then values of a token; block b has the places from b * kv_block on
table    [slots, longest]           block numbers of each sequence
tiles    [count, 4]                 first token of a tile in the batch, tokens of its sequence from there on,
                                    position of the first token in its sequence, row of the table

W is the size of a head; `sharing` heads of queries use the same keys. A tile has tile_q rows: tile_q / sharing tokens
of one sequence. One step along the keys reads one block.
"""

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from rasp_lab.real.llm_windows import MOST_ANSWER, MOST_PROMPT
from rasp_lab.real.triton_compile import Settings

KV_HEADS, SHARING, WIDTH = 4, 4, 128
MOST_TOKENS = MOST_PROMPT + MOST_ANSWER  # of a sequence


@triton.jit
def _paged_attention(
    qkv,
    cache,
    table,
    tiles,
    out,
    scale: tl.constexpr,  # of q @ k, times log2(e)
    kv_heads: tl.constexpr,
    sharing: tl.constexpr,
    width: tl.constexpr,
    longest: tl.constexpr,  # row of the table
    kv_block: tl.constexpr,
    tile_q: tl.constexpr,
):
    """One tile of softmax(q @ k) @ v in one pass over the blocks of its sequence, with a running maximum."""
    tile = tiles + tl.program_id(0) * 4
    head = tl.program_id(1)
    start, count = tl.load(tile), tl.load(tile + 1).to(tl.int32)
    position, sequence = tl.load(tile + 2).to(tl.int32), tl.load(tile + 3).to(tl.int32)
    rows = tl.arange(0, tile_q)
    across = tl.arange(0, width)
    token = rows // sharing
    real = (token < count)[:, None]
    heads = head * sharing + rows % sharing  # of queries
    q_row: tl.constexpr = (kv_heads * sharing + 2 * kv_heads) * width
    place = (start + token)[:, None] * q_row + heads[:, None] * width + across[None, :]
    query = tl.load(qkv + place, mask=real, other=0.0)
    sees = position + token  # the last key that a row may look at
    end = position + tl.minimum(count, tile_q // sharing)  # keys that any row may look at
    highest = tl.full((tile_q,), float("-inf"), dtype=tl.float32)
    weights = tl.zeros((tile_q,), dtype=tl.float32)
    mixed = tl.zeros((tile_q, width), dtype=tl.float32)
    inside = tl.arange(0, kv_block)
    kv_row: tl.constexpr = 2 * kv_heads * width
    place_k = inside[:, None] * kv_row + head * width + across[None, :]
    for number in range(0, tl.cdiv(end, kv_block)):
        column = number * kv_block + inside
        there = (column < end)[:, None]
        block = tl.load(table + sequence * longest + number).to(tl.int64)
        keys = cache + block * (kv_block * kv_row) + place_k
        key = tl.load(keys, mask=there, other=0.0)
        score = tl.dot(query, tl.trans(key)) * scale
        score = tl.where(column[None, :] <= sees[:, None], score, float("-inf"))
        new = tl.maximum(highest, tl.max(score, 1))
        weight = tl.exp2(score - new[:, None])
        faded = tl.exp2(highest - new)
        weights = weights * faded + tl.sum(weight, 1)
        value = tl.load(keys + kv_heads * width, mask=there, other=0.0)
        mixed = tl.dot(weight.to(value.dtype), value, mixed * faded[:, None])
        highest = new
    out_row: tl.constexpr = kv_heads * sharing * width
    place = (start + token)[:, None] * out_row + heads[:, None] * width + across[None, :]
    tl.store(out + place, (mixed / weights[:, None]).to(out.dtype.element_ty), mask=real)


def paged_attention(
    qkv: Tensor,
    cache: Tensor,
    table: Tensor,
    tiles: Tensor,
    out: Tensor,
    params: Settings,
    sizes: tuple[int, int, int] = (KV_HEADS, SHARING, WIDTH),
) -> None:
    """Launches the attention of a batch whose keys and values are in the cache already."""
    grid = (len(tiles), sizes[0])
    _paged_attention[grid](qkv, cache, table, tiles, out, _scale(sizes[2]), *sizes, table.shape[1], **_compiled(params))


def warm_up(params: Settings) -> None:
    """Compiles a program and does not run it."""
    numbers, longest = torch.bfloat16, longest_row(params["kv_block"])
    given = (numbers, numbers, torch.int32, torch.int64, numbers)
    sizes = (_scale(WIDTH), KV_HEADS, SHARING, WIDTH, longest)
    _paged_attention.warmup(*given, *sizes, **_compiled(params), grid=(1,))


def longest_row(kv_block: int) -> int:
    """Blocks of the longest sequence."""
    return -(-MOST_TOKENS // kv_block)


def _compiled(params: Settings) -> dict[str, Any]:
    """The settings that a program is compiled for, as Triton calls them."""
    tiles = {name: params[name] for name in ("kv_block", "tile_q")}
    return {**tiles, "num_warps": params["warps"], "num_stages": params["stages"]}


def _scale(width: int) -> float:
    return math.log2(math.e) / math.sqrt(width)


def reference_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """What the kernel computes for one sequence: q [new, heads, W], k and v [all, heads of keys, W]."""
    (new, heads, width), (total, kv_heads, _) = q.shape, k.shape
    k, v = (x.float().repeat_interleave(heads // kv_heads, 1) for x in (k, v))
    score = torch.einsum("nhw,thw->hnt", q.float(), k) / math.sqrt(width)
    last = total - new + torch.arange(new, device=q.device)
    score = score.masked_fill(torch.arange(total, device=q.device) > last[:, None], -math.inf)
    return torch.einsum("hnt,thw->nhw", score.softmax(2), v)
