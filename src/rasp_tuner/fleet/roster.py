"""Roster: what the driver of a fleet in shards knows about its tuners, and which shard each of them lives in.

A tuner's number never changes, and its shard is the number modulo the count of shards. The fleet and every shard have
their tuners in the order of their numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rasp_tuner.engine.kernel.state import Places
from rasp_tuner.fleet.shard import Census
from rasp_tuner.fleet.shard_group import Call


@dataclass(frozen=True)
class ShardPart:
    """What of a call is for one shard."""

    shard: int
    rows: Places  # positions in the shard
    at: Places  # places among the arguments
    size: int  # tuners in the shard

    @property
    def which(self) -> Places | None:
        """The same as `rows`, as short as it can be: it is kept until the next snapshot."""
        return None if len(self.rows) == self.size and bool((np.diff(self.rows) > 0).all()) else self.rows

    def call(self, *arguments: Any) -> Call:
        return Call(arguments, len(self.rows) / self.size)


class Roster:
    """Of B tuners in so many shards; none to begin with."""

    def __init__(self, shards: int) -> None:
        self._shards = shards
        self.issued = 0  # numbers given to tuners so far
        none = np.zeros(0, dtype=np.int64)
        self.take_over(none, none, none > 0, none > 0)

    def take_over(self, number: Places, learned: Places, waiting: Any, guided: Any) -> None:
        """Become the roster of these tuners [B], in the order of their numbers."""
        self.number, self.learned = number, learned  # samples that it was told or observed
        self.waiting, self.guided = waiting, guided  # for an answer; whether it began with what the fleet knew
        self._shard = number % self._shards
        self._sizes = np.bincount(self._shard, minlength=self._shards)
        order = np.argsort(self._shard, kind="stable")
        self._place = np.empty_like(order)
        self._place[order] = np.arange(len(order)) - np.repeat(np.cumsum(self._sizes) - self._sizes, self._sizes)

    def update(self, found: Sequence[Census]) -> None:
        """Become what the shards say."""
        names = ("number", "learned", "waiting", "guided")
        columns = [np.concatenate([getattr(census, name) for census in found]) for name in names]
        order = np.argsort(columns[0])
        self.take_over(*(column[order] for column in columns))
        self.issued = max(self.issued, *(census.issued for census in found))

    def new_numbers(self, n: int) -> dict[int, Places]:
        """Numbers of the next n tuners, by shard."""
        numbers = np.arange(self.issued, self.issued + n)
        return {int(shard): numbers[numbers % self._shards == shard] for shard in np.unique(numbers % self._shards)}

    def add(self, n: int) -> None:
        numbers = np.arange(self.issued, self.issued + n)
        self.issued += n
        no = numbers < 0
        columns = ((self.number, numbers), (self.learned, 0 * numbers), (self.waiting, no), (self.guided, no))
        self.take_over(*(np.concatenate([old, new]) for old, new in columns))

    def remove(self, rows: Places) -> None:
        columns = (self.number, self.learned, self.waiting, self.guided)
        self.take_over(*(np.delete(column, rows) for column in columns))

    def parts(self, rows: Places) -> list[ShardPart]:
        """A call for these tuners, by shard."""
        shards = self._shard[rows]
        places = {int(shard): np.flatnonzero(shards == shard) for shard in np.unique(shards)}
        return [ShardPart(shard, self._place[rows[at]], at, int(self._sizes[shard])) for shard, at in places.items()]
