"""Shard: some of the tuners of a fleet, as a `Fleet` in a Ray actor.

Its changes are numbered, so that each takes effect once, whatever happened to the actor that it was sent to first.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rasp_tuner.base.numerics import Array
from rasp_tuner.base.threads import methods_on_one_thread
from rasp_tuner.engine.kernel.state import Places
from rasp_tuner.errors import RaspError
from rasp_tuner.files import snapshot
from rasp_tuner.fleet.batch_fleet import BatchFleet
from rasp_tuner.fleet.build import Plan, blank
from rasp_tuner.fleet.device import Device
from rasp_tuner.fleet.fleet_file import pack, unpack
from rasp_tuner.fleet.prior import FleetPrior, Summary, guide, summarise
from rasp_tuner.tuner import Tuner

SNAPSHOT_SAMPLES = 200  # for each tuner of a shard, on average: what a snapshot costs is then small beside it
MOST_CHANGES = 10_000  # between two snapshots: repeating many small calls takes time, too
NAME = re.compile(r"shard-(\d+)-of-(\d+)-(\d+)\.rasp")

Change = tuple[str, tuple[Any, ...]]  # a method of a ShardFleet, and its arguments


@methods_on_one_thread
class ShardFleet(BatchFleet):
    """A fleet whose driver numbers the tuners, and says when one gets a start from the others."""

    def __init__(self, plan: Plan, share: bool, device: Device) -> None:
        self._build(plan, device, blank(plan, device, 0, 0), 0, share, None)

    @classmethod
    def open(cls, path: Path, device: Device) -> "ShardFleet":
        """The one whose snapshot this is."""
        shard = cls.__new__(cls)
        shard._read(path, device, False)
        return shard

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

    def head(self) -> dict[str, Any]:
        """What it knows as a whole."""
        room = self._tuners.records.failed_at.shape[1]  # for early failures
        return {"plan": self._plan.to_bytes(), "share": self._share, "lineages": self._lineages, "failures": room}

    def books(self) -> dict[str, Any]:
        """Of its tuners, arrays [n]; and how many numbers were given to tuners so far, as far as it knows."""
        records = self._tuners.records
        books = {"number": records.number.astype(np.int64), "learned": self.learned, "waiting": self.pending}
        return {**books, "guided": records.guided > 0.0, "issued": self._issued}

    def get_tuner(self, row: int) -> bytes:
        """The snapshot of `fleet[row]`."""
        return self[row].to_bytes()

    def set_tuner(self, row: int, tuner: bytes) -> None:
        self[row] = Tuner.from_bytes(tuner)

    def _guide(self, rows: Places) -> None:
        """Nothing here: the driver calls `start`."""


@dataclass(frozen=True)
class ShardAnswer:
    """What a shard says after a call."""

    done: int  # changes since the fleet began
    saved: int  # of them, those in the latest snapshot
    given: Any = None  # by the last method
    error: RaspError | None = None  # that it raised
    unsaved: str | None = None  # why a snapshot could not be written


@dataclass(eq=False, repr=False)
class Shard:
    """What Ray runs, and starts again with the same arguments when it is lost."""

    plan: bytes | None  # None: there is a snapshot
    share: bool
    device: str
    threads: int
    place: tuple[Path, int, int]  # folder, number, and how many there are
    every: int | None

    def __post_init__(self) -> None:
        self._fleet: ShardFleet | None = None  # made by the first call: an actor that cannot start cannot say why
        self._done = self._saved = 0  # changes; and of them, those in the latest snapshot
        self._tells = self._samples = 0  # calls that told since then; samples that its tuners had learned then

    def run(self, first: int, changes: list[Change], query: Change | None = None, save: bool = False) -> ShardAnswer:
        """Make the changes from number `first` on that it has not made; nothing if it lacks earlier ones."""
        fleet, given, error, unsaved = self._opened(), None, None, None
        if self._done < first:
            return ShardAnswer(self._done, self._saved)
        for method, arguments in changes[self._done - first :]:
            is_ask = method == "ask"  # its answer is in no snapshot, so that none is written between the two
            if is_ask and self._is_due(fleet):
                unsaved = self._save(fleet)
            given, error = _called(fleet, method, arguments)
            self._done += 1
            self._tells += not is_ask and method != "start"
            if not is_ask and self._is_due(fleet):
                unsaved = self._save(fleet)
        if query is not None:
            given, error = _called(fleet, *query)
        if save:
            unsaved = self._save(fleet)
        return ShardAnswer(self._done, self._saved, given, error, unsaved)

    def _opened(self) -> ShardFleet:
        if self._fleet is None:
            device, (folder, number, count) = Device(self.device, self.threads), self.place
            found = snapshots_in(folder, number, count)
            if found:
                self._saved = self._done = max(found)
                self._fleet = ShardFleet.open(found[self._done], device)
            else:
                self._fleet = ShardFleet(Plan(*snapshot.decode(self.plan or b"")), self.share, device)
            self._samples = int(self._fleet.learned.sum())
        return self._fleet

    def _is_due(self, fleet: BatchFleet) -> bool:
        changes = self._done - self._saved
        if self.every is not None:
            return self._tells >= self.every or changes >= 2 * self.every
        samples = int(fleet.learned.sum()) - self._samples
        return samples >= SNAPSHOT_SAMPLES * max(len(fleet), 1) or changes >= MOST_CHANGES

    def _save(self, fleet: BatchFleet) -> str | None:
        """Write all that is needed to go on: it is on the disk when this returns None; else it says why not."""
        folder, number, count = self.place
        path = folder / f"shard-{number:05d}-of-{count:05d}-{self._done:012d}.rasp"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            fleet.save(path)
            for old in snapshots_in(folder, number, count).values():
                if old != path:
                    old.unlink(missing_ok=True)
        except OSError as reason:
            return str(reason)
        self._saved, self._tells, self._samples = self._done, 0, int(fleet.learned.sum())
        return None


def snapshots_in(folder: Path, number: int, count: int) -> dict[int, Path]:
    """Those of one shard, by the changes that they hold."""
    paths = folder.glob(f"shard-{number:05d}-of-{count:05d}-*.rasp")
    return {int(match[3]): path for path in paths if (match := NAME.fullmatch(path.name))}


def _called(fleet: ShardFleet, method: str, arguments: tuple[Any, ...]) -> tuple[Any, RaspError | None]:
    """What a method gives, and what it raises: then it has changed nothing, and counts as done."""
    try:
        return getattr(fleet, method)(*arguments), None
    except RaspError as reason:
        return None, reason
