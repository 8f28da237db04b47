"""RayFleet: a fleet whose tuners live in shards, a `Fleet` each, on a Ray cluster; with the calls of `Fleet`.

It does what one `Fleet` with the same seed does, to rounding: draws depend on the numbers of tuners in the whole fleet,
and what tuners learn from each other comes from all shards (prior.py). A tuner's number never changes, and its shard is
the number modulo the count of shards. The fleet and every shard have their tuners in the order of their numbers.
"""

import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.base.checks import whole
from rasp_tuner.base.numerics import Array
from rasp_tuner.contexts.context_encoder import Schema, context_encoder
from rasp_tuner.engine.kernel.state import Places
from rasp_tuner.errors import InvalidSpace, InvalidValue
from rasp_tuner.files import snapshot
from rasp_tuner.fleet import fleet_file, single
from rasp_tuner.fleet.batch_fleet import PRIOR_EVERY, BatchFleet
from rasp_tuner.fleet.build import MOST_TUNERS, Plan, blank
from rasp_tuner.fleet.checks import Checks
from rasp_tuner.fleet.device import Device
from rasp_tuner.fleet.fleet import Contexts, FleetSuggestions, Which
from rasp_tuner.fleet.fleet_file import Progress
from rasp_tuner.fleet.inputs import check_no_control, ends_of, rows_of
from rasp_tuner.fleet.knobs import ContinuousKnobs
from rasp_tuner.fleet.prior import FleetPrior, combine
from rasp_tuner.fleet.shard_group import Cluster, ShardGroup
from rasp_tuner.fleet.tuners import Tuners
from rasp_tuner.space import Knob
from rasp_tuner.tuner import Tuner
from rasp_tuner.types import Direction, Metric

CPU = Device("cpu")  # where the driver checks


class Books:
    """What shards say of the B tuners of a fleet, in the order of their numbers."""

    def __init__(self, found: Sequence[Mapping[str, Any]]) -> None:
        self.issued = max(int(one["issued"]) for one in found)
        self._sizes = [len(one["number"]) for one in found]
        number = np.concatenate([one["number"] for one in found])
        order = np.argsort(number)
        self.number = number[order]
        self.learned, self.waiting, self.guided = (
            np.concatenate([one[name] for one in found])[order] for name in ("learned", "waiting", "guided")
        )
        self._shard = np.repeat(np.arange(len(found)), self._sizes)[order]
        self._place = np.concatenate([np.arange(size) for size in self._sizes])[order]

    def __len__(self) -> int:
        return len(self.number)

    def parts(self, rows: Places) -> "list[ShardPart]":
        """A call for these tuners, by shard."""
        shards = self._shard[rows]
        places = {int(shard): np.flatnonzero(shards == shard) for shard in np.unique(shards)}
        return [ShardPart(shard, self._place[rows[at]], at, self._sizes[shard]) for shard, at in places.items()]


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


class RayFleet:
    """Many tuners of the same kind, on many machines, by the calls of `Fleet`; arrays come back in NumPy.

    A call that raises a RaspError changes nothing. Not thread-safe. A shard whose process or machine is lost comes back
    by itself, with a warning in the log "rasp_tuner.fleet". Acknowledged is a call that returned; a call that was
    interrupted takes effect with the next one.

    While this object lives, nothing acknowledged is lost: it keeps the calls of a shard since its latest snapshot, and
    repeats them. If it is lost, too, `RayFleet.resume(folder)` goes on with the snapshots: of each shard, fewer than
    `snapshot_every` of the latest tells are missing; none with 1.

    space, metrics, context, default, size, settings   as of `Fleet`
    shards          processes; None: one for each CPU of the cluster, or for each GPU
    snapshot_every  calls of tell or observe that reach a shard, after which it writes a snapshot before the call
                    returns. None: when its tuners have learned 200 samples on average since the last one
    folder          of the snapshots, empty or new. Shards on several machines need one that all of them reach. None: a
                    temporary one on the local disk, which goes with this object
    device          of each shard: "cpu" or "cuda"
    address         of the cluster; None: the one that this process uses already, else a new one on this machine
    options         of Ray for the actors, such as {"num_cpus": 1}. By default they reserve next to no CPU, so that a
                    lost shard always finds a place, and one GPU with "cuda"
    """

    def __init__(
        self,
        space: Mapping[str, Knob],
        metrics: Mapping[str, Metric | Direction],
        context: Schema = None,
        default: Mapping[str, object] | None = None,
        size: int = 1000,
        *,
        shards: int | None = None,
        snapshot_every: int | None = None,
        folder: str | os.PathLike[str] | None = None,
        device: str = "cpu",
        address: str | None = None,
        options: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        size = whole("size", size, 0, MOST_TUNERS, InvalidSpace)
        cluster = Cluster(shards, snapshot_every, folder, device, address, options)
        empty = BatchFleet(space, metrics, context, default, 0, **settings)  # checks all of it
        self._build(empty._plan, empty._share, *cluster.start(empty._plan.to_bytes(), empty._share))
        if size:
            self.add(size)
        self._shards.save()

    def _build(self, plan: Plan, share: bool, shards: ShardGroup, end: Callable[[], None]) -> None:
        self._plan, self._share, self._shards = plan, share, shards
        self._end = weakref.finalize(self, end)
        self._prior: FleetPrior | None = None
        self._checks = Checks(plan.metrics, ContinuousKnobs(plan.space), context_encoder(plan.context))

    def close(self) -> None:
        """End the shards; the fleet cannot be used any more. Snapshots in a folder that was given stay there."""
        self._end()

    def __enter__(self) -> "RayFleet":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._books())

    def __repr__(self) -> str:
        books = self._books()
        return (
            f"<RayFleet of {len(books)} tuners in {len(self._shards)} shards knobs={list(self._plan.space.knobs)}"
            f" learned={int(books.learned.sum())} pending={int(books.waiting.sum())}>"
        )

    @property
    def learned(self) -> Places:
        """[B] how many samples each tuner was told or observed."""
        return self._books().learned

    @property
    def pending(self) -> NDArray[np.bool_]:
        """[B] whether a suggestion of the tuner waits for an answer."""
        return self._books().waiting

    def ask(self, contexts: Contexts = None, which: Which = None) -> FleetSuggestions:
        """Parameters to run in these contexts [n, c], one for each tuner."""
        books = self._books()
        rows = rows_of(which, len(books))
        seen = self._checks.contexts(contexts, rows)
        self._start(books, rows)
        parts = books.parts(rows)
        answers = self._shards.change("ask", {part.shard: (seen[part.at], part.which) for part in parts})
        points = _gathered(parts, {shard: answer.points for shard, answer in answers.items()}, self._plan.space.dim)
        stops = _gathered(parts, {shard: answer.stop for shard, answer in answers.items()})
        params = self._params(parts, {shard: answer.params for shard, answer in answers.items()})
        return FleetSuggestions(params, points, rows, stops)

    def tell(
        self,
        metrics: Mapping[str, Any] | None = None,
        which: Which = None,
        failed: Any = None,
        stopped: Any = None,
        *,
        control: Any = None,
    ) -> None:
        """Learn what the waiting suggestions led to, as `Fleet.tell`."""
        check_no_control(control)
        books = self._books()
        rows = rows_of(which, len(books))
        missing = rows[~books.waiting[rows]]
        if missing.size:
            raise InvalidValue(f"tuner {int(missing[0])} has no suggestion that waits for an answer: ask first")
        flags, ended = ends_of(failed, stopped, rows)
        values = self._checks.values(metrics, rows, flags)
        self._start(books, rows)
        parts = books.parts(rows)
        self._shards.change("tell", {p.shard: (_some(values, p), p.which, flags[p.at], ended[p.at]) for p in parts})

    def observe(
        self,
        contexts: Contexts,
        params: Mapping[str, Any],
        metrics: Mapping[str, Any],
        which: Which = None,
        stopped: Any = None,
    ) -> None:
        """Learn from runs nobody asked for, as `Fleet.observe`."""
        books = self._books()
        rows = rows_of(which, len(books))
        seen, given = self._checks.contexts(contexts, rows), self._checks.params(params, rows)
        none, ended = ends_of(None, stopped, rows)
        values = self._checks.values(metrics, rows, none)
        self._start(books, rows)
        calls = {
            p.shard: (seen[p.at], _some(given, p), _some(values, p), p.which, ended[p.at]) for p in books.parts(rows)
        }
        self._shards.change("observe", calls)

    def recommend(self, contexts: Contexts = None, which: Which = None) -> dict[str, Array]:
        """The best parameters [n] by knob for these contexts, without exploring; the default while nothing is known."""
        books = self._books()
        rows = rows_of(which, len(books))
        seen = self._checks.contexts(contexts, rows)
        parts = books.parts(rows)
        answers = self._shards.query("recommend", {part.shard: (seen[part.at], part.which) for part in parts})
        return self._params(parts, answers)

    def add(self, n: int = 1) -> Places:
        """Positions of n new tuners, at the end."""
        n, books, count = whole("n", n, 1, MOST_TUNERS), self._books(), len(self._shards)
        numbers = np.arange(books.issued, books.issued + n)
        shards = np.unique(numbers % count)
        self._shards.change("add_numbered", {int(shard): (numbers[numbers % count == shard],) for shard in shards})
        return np.arange(len(books), len(books) + n)

    def remove(self, which: Which) -> None:
        """Forget these tuners; those after them move up, and stay in their shards."""
        books = self._books()
        self._shards.change("remove", {part.shard: (part.rows,) for part in books.parts(rows_of(which, len(books)))})

    def __getitem__(self, i: int) -> Tuner:
        """A Tuner that knows what tuner i knows, and may go its own way; `fleet[i] = tuner` brings it back."""
        shard, row = self._home(i)
        return Tuner.from_bytes(self._shards.query("get_tuner", {shard: (row,)})[shard])

    def __setitem__(self, i: int, tuner: Tuner) -> None:
        shard, row = self._home(i)
        single.tuners_of(self._plan, tuner, 0.0)  # whether it can be
        self._shards.change("set_tuner", {shard: (row, tuner.to_bytes())})

    def _home(self, i: int) -> tuple[int, int]:
        """Where tuner i lives: the shard, and its position there."""
        books = self._books()
        (part,) = books.parts(rows_of(i, len(books)))
        return part.shard, int(part.rows[0])

    def save(self, path: str | os.PathLike[str], progress: Progress | bool = False) -> None:
        """Write everything to `path`, atomically: the file that one `Fleet` in this state would write."""
        books, heads = self._books(), self._shards.query_all("head")
        failures = max(head["failures"] for head in heads)

        def take(rows: Places) -> Tuners:
            parts = books.parts(rows)
            answers = self._shards.query("packed", {part.shard: (part.rows,) for part in parts})
            tuners = blank(self._plan, CPU, len(rows), 0)
            tuners.make_room_for_failures(failures)
            for part in parts:
                own = fleet_file.unpack(self._plan, len(part.rows), answers[part.shard])
                own.make_room_for_failures(failures)
                tuners.put(part.at, own)
            return tuners

        lineages = {number: lineage for head in heads for number, lineage in head["lineages"].items()}
        header = {"issued": books.issued, "share": self._share, "lineages": lineages}
        prior = {} if self._prior is None else vars(self._prior)
        fleet_file.write_blocks(path, self._plan, (header, prior), (len(books), failures), take, progress)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, progress: Progress | bool = False, **cluster: Any) -> "RayFleet":
        """The fleet that was saved, by a RayFleet or a `Fleet`, in as many shards as are wanted now.

        `cluster`: shards, snapshot_every, folder, device, address and options, as above. The fleet passes through this
        process, which needs room for all of it.
        """
        where = Cluster(**cluster)
        plan, header, prior, tuners = fleet_file.read(path, CPU, progress)
        fleet = cls.__new__(cls)
        fleet._build(plan, header["share"], *where.start(plan.to_bytes(), header["share"]))
        fleet._prior = prior
        records, lineages, joined = tuners.records, header["lineages"], {}
        shards = records.number.astype(np.int64) % len(fleet._shards)
        for shard in range(len(fleet._shards)):
            some = tuners.some(np.flatnonzero(shards == shard))
            names = [str(int(number)) for number in some.records.number]
            own = {name: lineages[name] for name in names if name in lineages}
            joined[shard] = (fleet_file.pack(some), header["issued"], own)
        fleet._shards.change("join", joined)
        fleet._shards.save()
        return fleet

    @classmethod
    def resume(cls, folder: str | os.PathLike[str], **cluster: Any) -> "RayFleet":
        """The fleet whose snapshots are in this folder, after its driver was lost; in as many shards as it had.

        `cluster`: snapshot_every, device, address and options, as above.
        """
        shards, end = Cluster(folder=folder, **cluster).start(None)
        try:
            head = shards.query_all("head")[0]
        except BaseException:
            end()
            raise
        fleet = cls.__new__(cls)
        fleet._build(Plan(*snapshot.decode(head["plan"])), head["share"], shards, end)
        return fleet

    def _books(self) -> Books:
        return Books(self._shards.query_all("books"))

    def _params(self, parts: Sequence[ShardPart], answers: Mapping[int, Mapping[str, Array]]) -> dict[str, Array]:
        return {
            name: _gathered(parts, {shard: params[name] for shard, params in answers.items()})
            for name in self._plan.space.knobs
        }

    def _start(self, books: Books, rows: Places) -> None:
        """Give tuners that have no samples what those of all shards have learned, when a `Fleet` would."""
        fresh = rows[(books.learned[rows] == 0) & ~books.guided[rows]]
        total = float(books.learned.sum())
        if not self._share or not len(fresh) or not total:
            return
        if self._prior is None or total >= PRIOR_EVERY * float(self._prior.samples):
            self._prior = combine(self._shards.query_all("summary"))
        if self._prior.known > 0.0:
            prior = vars(self._prior)
            self._shards.change("start", {part.shard: (prior, part.rows) for part in books.parts(fresh)})


def _some(columns: Mapping[str, Array], part: ShardPart) -> dict[str, Array]:
    return {name: column[part.at] for name, column in columns.items()}


def _gathered(parts: Sequence[ShardPart], answers: Mapping[int, Array], width: int | None = None) -> Array:
    """Places that shards gave, in the order of the call: [n], or [n, width]."""
    size = sum(len(part.at) for part in parts)
    gathered = np.zeros(size if width is None else (size, width))
    for part in parts:
        gathered[part.at] = answers[part.shard]
    return gathered
