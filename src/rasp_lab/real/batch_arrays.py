"""The chunks of an iteration as arrays for a model on a GPU."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rasp_lab.real.continuous_batching import Chunk

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Batch:
    """The chunks of an iteration as arrays of one buffer, so that one copy brings them to the GPU."""

    tiles: Ints  # [count, 4], as the kernel wants them
    known: Ints  # [tokens] places of the tokens that are read, in the list of all known tokens
    places: Ints  # [tokens] of their keys and values in the cache
    last: Ints  # rows of the batch from which the next token comes
    next: Ints  # where these tokens are put, in the list of all known tokens

    def packed(self) -> Ints:
        """The buffer. The tiles come first: there it is aligned, as the kernel expects."""
        return np.concatenate([part.ravel() for part in self._parts()])

    def sizes(self) -> list[int]:
        """How many numbers of the buffer belong to each field."""
        return [part.size for part in self._parts()]

    def _parts(self) -> tuple[Ints, ...]:
        return self.tiles, self.known, self.places, self.last, self.next


def batch_arrays(
    chunks: Sequence[Chunk], table: NDArray[np.int32], kv_block: int, tile_tokens: int, longest: int
) -> Batch:
    """What a model needs to know of the chunks.

    `table` [slots, most blocks] has the blocks of each sequence, `tile_tokens` is how many tokens a tile has, and
    `longest` how many places a sequence has in the list of known tokens.
    """
    slots = np.array([chunk.of.slot for chunk in chunks], dtype=np.int64)
    first = np.array([chunk.first for chunk in chunks], dtype=np.int64)
    count = np.array([chunk.count for chunk in chunks], dtype=np.int64)
    gives = np.array([chunk.gives_token for chunk in chunks], dtype=np.bool_)
    start = np.cumsum(count) - count
    position = np.arange(count.sum()) + np.repeat(first - start, count)
    row = np.repeat(slots, count)
    places = table[row, position // kv_block].astype(np.int64) * kv_block + position % kv_block
    each = -(-count // tile_tokens)  # tiles of a chunk
    number = np.arange(each.sum()) - np.repeat(np.cumsum(each) - each, each)  # of a tile in its chunk
    skipped = tile_tokens * number
    tiles = [np.repeat(start, each) + skipped, np.repeat(count, each) - skipped, np.repeat(first, each) + skipped]
    return Batch(
        np.stack([*tiles, np.repeat(slots, each)], axis=1),
        row * longest + position,
        places,
        (start + count - 1)[gives],
        (slots * longest + first + count)[gives],
    )
