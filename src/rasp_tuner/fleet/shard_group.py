"""ShardGroup: the shards of a fleet as Ray actors, which come back when they are lost.

Of each shard the driver keeps the latest snapshot's path and the changes that were acknowledged since then. An actor
that dies is replaced by one that begins with the snapshot, repeats these changes and then does the call that was lost
with the old one. Each call so takes effect once, whatever happened to the actor that it was sent to first.
"""

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from rasp_tuner.base.checks import show
from rasp_tuner.errors import MissingExtra, SnapshotFileError
from rasp_tuner.fleet.shard import Change, ShardActor, ShardSettings

log = logging.getLogger("rasp_tuner.fleet")
ATTEMPTS = 4  # to get an answer, each by a new actor
SNAPSHOT_SAMPLES = 200.0  # for each tuner of a shard, on average: what a snapshot costs is then small beside it
LEAST_SAMPLES = 0.02  # that a call counts for each tuner: repeating many small calls takes time, too
TELLS = ("tell", "observe", "add_numbered", "remove", "join", "set_tuner")  # what a snapshot must not be far behind of
NAME = re.compile(r"shard-(\d+)-of-(\d+)-(\d+)\.rasp")


def load_ray() -> ModuleType:
    """Ray, or an error that says how to install it."""
    try:
        import ray
    except ModuleNotFoundError as reason:
        raise MissingExtra("RayFleet needs ray, which is not installed: pip install 'rasp-tuner[ray]'") from reason
    return ray


@dataclass(frozen=True)
class Call:
    """Arguments for one shard."""

    arguments: tuple[Any, ...]
    part: float = 1.0  # of its tuners that are concerned


@dataclass
class Member:
    """A shard as its driver sees it."""

    snapshot: str | None = None
    actor: Any = None  # None: must be started
    node: str | None = None  # where it was started
    avoided: str | None = None  # where not to start it
    changes: list[Change] = field(default_factory=list)  # acknowledged since the snapshot
    done: int = 0  # changes acknowledged ever
    tells: float = 0.0  # since the snapshot: calls, or samples for each tuner
    others: float = 0.0


class ShardGroup:
    """Calls go to all shards at once; answers come back by shard.

    snapshot_every  tells of a shard after which it writes a snapshot; None: SNAPSHOT_SAMPLES for each of its tuners
    options         of Ray for its actors; without a strategy, actors go where there are the fewest for each CPU
    """

    def __init__(
        self,
        settings: ShardSettings,
        members: list[Member],
        folder: Path,
        snapshot_every: int | None,
        options: Mapping[str, Any],
    ) -> None:
        self._ray: Any = load_ray()
        self._settings, self._members, self._folder, self._every = settings, members, folder, snapshot_every
        self._actor_class, self._options = self._ray.remote(ShardActor), dict(options)

    def __len__(self) -> int:
        return len(self._members)

    def change(self, method: str, calls: Mapping[int, Call]) -> dict[int, Any]:
        """What a method that changes shards gives; it is kept, and a snapshot written where one is due."""
        answers = self._run(method, calls, kept=True)
        self.snapshot(shard for shard in calls if self._due(self._members[shard]))
        return answers

    def query(self, method: str, calls: Mapping[int, Call]) -> dict[int, Any]:
        """What a method that changes nothing gives."""
        return self._run(method, calls)

    def query_all(self, method: str) -> list[Any]:
        """The same of all shards, in order."""
        answers = self._run(method, {shard: Call(()) for shard in range(len(self))})
        return [answers[shard] for shard in range(len(self))]

    def snapshot(self, shards: Iterable[int]) -> None:
        """Have these write a snapshot each; they need not repeat what came before it."""
        paths = {shard: str(self._folder / self._name(shard)) for shard in shards}
        answers = self._run("write_snapshot", {shard: Call((path,)) for shard, path in paths.items()})
        for shard, path in paths.items():
            member = self._members[shard]
            if answers[shard] is not None:  # nothing is lost while the driver lives
                log.error(
                    "shard %d wrote no snapshot; changes are kept in memory until it does: %s", shard, answers[shard]
                )
                continue
            if member.snapshot not in (None, path) and member.actor is not None:
                member.actor.call.remote("delete_snapshot", member.snapshot)
            member.snapshot, member.changes, member.tells, member.others = path, [], 0.0, 0.0

    def close(self) -> None:
        """End all actors; snapshots stay."""
        for member in self._members:
            self._end(member)

    def _name(self, shard: int) -> str:
        return f"shard-{shard:05d}-of-{len(self):05d}-{self._members[shard].done:012d}.rasp"

    def _due(self, member: Member) -> bool:
        limit = SNAPSHOT_SAMPLES if self._every is None else self._every
        return member.tells >= limit or member.others >= 2.0 * limit

    def _run(self, method: str, calls: Mapping[int, Call], kept: bool = False) -> dict[int, Any]:
        answers: dict[int, Any] = {}
        errors = self._ray.exceptions
        left = dict(calls)
        try:
            for attempt in range(1, ATTEMPTS + 1):
                sent = {shard: self._send(shard, method, call.arguments) for shard, call in left.items()}
                for shard, references in sent.items():
                    try:
                        answers[shard] = self._ray.get(references)[-1]
                    except errors.RayTaskError:
                        raise  # the method's own
                    except errors.RayError as reason:
                        self._lose(shard, reason, attempt)
                        continue
                    if kept:
                        self._keep(self._members[shard], method, left[shard])
                left = {shard: call for shard, call in left.items() if shard not in answers}
                if not left:
                    break
        finally:
            for shard in calls:
                if shard not in answers:  # whether it did the call is not known: its next one begins without
                    self._end(self._members[shard])
        return answers

    def _send(self, shard: int, method: str, arguments: tuple[Any, ...]) -> list[Any]:
        """References of what comes back, of which the last is the answer."""
        member, references = self._members[shard], []
        if member.actor is None:
            member.actor = self._actor_class.options(**self._options, **self._place(member)).remote()
            references = [member.actor.call.remote("restore", self._settings, member.snapshot, member.changes)]
        return [*references, member.actor.call.remote(method, *arguments)]

    def _place(self, member: Member) -> dict[str, Any]:
        """Where to start it: Ray itself would not spread actors that reserve nothing."""
        if "scheduling_strategy" in self._options:
            return {}
        cpus = {node["NodeID"]: node["Resources"].get("CPU", 0.0) for node in self._ray.nodes() if node["Alive"]}
        member.node = None
        taken = [other.node for other in self._members]
        free = [node for node, count in cpus.items() if count > 0.0 and node != member.avoided] or list(cpus)
        member.node = min(free, key=lambda node: ((taken.count(node) + 1) / max(cpus[node], 1e-3), node))
        affinity = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(member.node, soft=False)
        return {"scheduling_strategy": affinity}

    def _lose(self, shard: int, reason: Exception, attempt: int) -> None:
        member = self._members[shard]
        self._end(member)
        died = isinstance(reason, self._ray.exceptions.ActorDiedError)  # else its node may be gone, too
        member.avoided = None if died and attempt == 1 else member.node
        if attempt == ATTEMPTS:
            reason.add_note(f"shard {shard} was lost {attempt} times in one call; other shards may have done it")
            raise reason
        log.warning(
            "shard %d of %d was lost; it starts again from %s and repeats %d changes (%s)",
            shard, len(self), member.snapshot or "nothing", len(member.changes), str(reason).partition("\n")[0],
        )  # fmt: skip

    def _keep(self, member: Member, method: str, call: Call) -> None:
        member.changes.append((method, call.arguments))
        member.done += 1
        weight = 1.0 if self._every is not None else max(call.part, LEAST_SAMPLES)
        if method in TELLS:
            member.tells += weight
        else:
            member.others += weight

    def _end(self, member: Member) -> None:
        if member.actor is not None and self._ray.is_initialized():
            self._ray.kill(member.actor)
        member.actor = None


def found_in(folder: Path) -> list[Member]:
    """The shards whose latest snapshots are in a folder, in order; none if there are no snapshots."""
    found = [(NAME.fullmatch(path.name), path) for path in folder.glob("shard-*.rasp")] if folder.is_dir() else []
    latest: dict[int, tuple[int, Path]] = {}
    counts = set()
    for match, path in found:
        if match is not None:
            shard, count, done = (int(digits) for digits in match.groups())
            counts.add(count)
            latest[shard] = max(latest.get(shard, (-1, path)), (done, path))
    if len(counts) > 1 or (counts and sorted(latest) != list(range(max(counts)))):
        raise SnapshotFileError(f"{show(str(folder))} does not hold the snapshots of one whole fleet")
    return [Member(str(path), done=done) for _, (done, path) in sorted(latest.items())]
