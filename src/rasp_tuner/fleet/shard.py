"""Shard: some of the tuners of a fleet, in a process of their own. It does what a fleet does, and what its driver says.

The driver numbers the tuners, decides when one gets a start from the others, and says when to write a snapshot. From
equal states, equal calls lead to equal states: so a shard that was lost comes back by its snapshot and the calls since.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.base.numerics import Array
from rasp_tuner.base.threads import methods_on_one_thread
from rasp_tuner.engine.kernel.state import Places
from rasp_tuner.errors import SnapshotFileError
from rasp_tuner.files import snapshot
from rasp_tuner.fleet.build import Plan, blank
from rasp_tuner.fleet.device import Device
from rasp_tuner.fleet.fleet import Fleet
from rasp_tuner.fleet.fleet_file import pack, unpack
from rasp_tuner.fleet.prior import FleetPrior, Summary, guide, summarise
from rasp_tuner.tuner import Tuner

Change = tuple[str, tuple[Any, ...]]  # a method that changes a shard, and its arguments


@dataclass(frozen=True)
class ShardSettings:
    """How all shards of a fleet begin."""

    device: str
    threads: int
    plan: bytes = b""  # a tuner that knows nothing; a snapshot has its own
    share: bool = True  # the same


@dataclass(frozen=True)
class Census:
    """What a driver knows about a shard and its n tuners."""

    plan: bytes
    share: bool
    number: Places  # [n]
    learned: Places  # [n] samples
    waiting: NDArray[np.bool_]  # [n] whether a suggestion waits for its answer
    guided: NDArray[np.bool_]  # [n] whether it began with what the fleet knew
    issued: int  # numbers given to tuners so far, as far as they know
    failures: int  # most early failures that there is room for
    lineages: Mapping[str, Any]  # by number, of tuners that came from elsewhere: whose samples they hold


@methods_on_one_thread
class Shard(Fleet):
    """Is nothing before `restore`."""

    def __init__(self) -> None:
        pass

    def restore(self, settings: ShardSettings, path: str | None, changes: Sequence[Change]) -> None:
        """Become what these changes make of the snapshot; or of no tuners at all."""
        device = Device(settings.device, settings.threads)
        if path is None:
            plan = Plan(*snapshot.decode(settings.plan))
            self._build(plan, device, blank(plan, device, 0, 0), 0, settings.share, None)
        else:
            try:
                self._read(path, device, False)
            except SnapshotFileError as reason:
                more = "shards on several machines need a folder that all of them reach"
                raise SnapshotFileError(f"{reason}; {more}") from reason
        for method, arguments in changes:
            getattr(self, method)(*arguments)

    def start(self, prior: Mapping[str, Array], rows: Places) -> None:
        """Give these tuners, which have no samples, what all shards have learned."""
        self._prior = FleetPrior.of(prior, self._plan.dims)
        guide(self._prior, self._tuners, rows)

    def add_numbered(self, numbers: Places) -> None:
        """Add new tuners that have these numbers in the whole fleet."""
        more = blank(self._plan, self._device, len(numbers), 0)
        more.records.number[...] = numbers
        self._tuners, self._issued = self._tuners.join(more, blank=True), max(self._issued, int(numbers.max()) + 1)
        self._beliefs = None

    def join(self, arrays: Mapping[str, Array], issued: int, lineages: Mapping[str, Any]) -> None:
        """Add tuners that know something: what `packed` gave."""
        self._lineages |= lineages
        more = unpack(self._plan, len(arrays["records/number"]), arrays)
        self._tuners, self._issued = self._tuners.join(more), issued
        self._beliefs = None

    def packed(self, rows: Places) -> dict[str, Array]:
        """All that these tuners know."""
        return pack(self._tuners.some(rows))

    def summary(self) -> Summary:
        """What its tuners know, for the prior of all."""
        return summarise(self._tuners, self._plan.default)

    def census(self) -> Census:
        records = self._tuners.records
        return Census(
            self._plan.to_bytes(),
            self._share,
            records.number.astype(np.int64),
            self.learned,
            self.pending,
            records.guided > 0.0,
            self._issued,
            records.failed_at.shape[1],
            self._lineages,
        )

    def get_tuner(self, row: int) -> bytes:
        """The snapshot of `fleet[row]`."""
        return self[row].to_bytes()

    def set_tuner(self, row: int, tuner: bytes) -> None:
        self[row] = Tuner.from_bytes(tuner)

    def write_snapshot(self, path: str) -> str | None:
        """Write all that is needed to go on: it is on the disk when this returns None; else it says why not."""
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            self.save(path)
        except OSError as reason:
            return str(reason)
        return None

    def delete_snapshot(self, path: str) -> None:
        """Delete one that a later one has made useless."""
        Path(path).unlink(missing_ok=True)

    def _guide(self, rows: Places) -> None:
        """Nothing here: the driver calls `start`."""


class ShardActor:
    """What Ray runs: a shard behind one method. It starts without one, since an actor that fails cannot say why.

    Not a Shard itself: Ray takes the length and the text of an actor at any time.
    """

    def __init__(self) -> None:
        self._shard = Shard()

    def call(self, method: str, *arguments: Any) -> Any:
        return getattr(self._shard, method)(*arguments)
