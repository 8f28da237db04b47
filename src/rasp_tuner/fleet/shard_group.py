"""ShardGroup: a driver's side of the shards of a fleet: where they run, and the calls that they are sent.

The driver keeps the changes of a shard that came after its latest snapshot. From equal states, equal changes lead to
equal states: so a shard that was lost, which Ray starts again with its snapshot, is sent the changes that it lacks.
"""

import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from rasp_tuner.base.checks import show, whole
from rasp_tuner.errors import InvalidSpace, InvalidValue, MissingExtra, SnapshotFileError
from rasp_tuner.fleet.shard import NAME, Change, Shard, ShardAnswer

log = logging.getLogger("rasp_tuner.fleet")
MOST_SHARDS = 10_000
LEAST_CPU = 0.001  # that a shard reserves: Ray does not spread actors that reserve nothing
MOST_RETRIES = 3  # of a call whose shard is lost


@dataclass
class Member:
    """A shard as its driver sees it."""

    actor: Any
    changes: list[Change] = field(default_factory=list)  # after the latest snapshot
    saved: int = 0  # changes before them
    done: int = 0  # changes that it is known to have made


class ShardGroup:
    """Calls go to all shards at once; answers come back by shard."""

    def __init__(self, ray: Any, actors: list[Any]) -> None:
        self._ray, self._members = ray, [Member(actor) for actor in actors]

    def __len__(self) -> int:
        return len(self._members)

    def change(self, method: str, calls: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
        """What a method that changes shards gives. Where it raises, the change is made up for by the next call."""
        for shard, arguments in calls.items():
            self._members[shard].changes.append((method, arguments))
        return self._run(dict.fromkeys(calls))

    def query(self, method: str, calls: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
        """What a method that changes nothing gives."""
        return self._run({shard: (method, arguments) for shard, arguments in calls.items()})

    def query_all(self, method: str) -> list[Any]:
        """The same of all shards, in order."""
        return list(self.query(method, dict.fromkeys(range(len(self)), ())).values())

    def save(self) -> None:
        """Have all write a snapshot."""
        self._run(dict.fromkeys(range(len(self))), save=True)

    def close(self) -> None:
        """End all actors; snapshots stay."""
        if self._ray.is_initialized():
            for member in self._members:
                self._ray.kill(member.actor)

    def _run(self, queries: Mapping[int, Change | None], save: bool = False) -> dict[int, Any]:
        sent = {shard: self._send(self._members[shard], query, save) for shard, query in queries.items()}
        answers = {shard: self._received(shard, reference, queries[shard], save) for shard, reference in sent.items()}
        for answer in answers.values():
            if answer.error is not None:
                raise answer.error
        return {shard: answer.given for shard, answer in answers.items()}

    @staticmethod
    def _send(member: Member, query: Change | None, save: bool) -> Any:
        return member.actor.run.remote(member.done, member.changes[member.done - member.saved :], query, save)

    def _received(self, shard: int, reference: Any, query: Change | None, save: bool) -> ShardAnswer:
        member = self._members[shard]
        answer: ShardAnswer = self._ray.get(reference)
        while answer.done < member.done:
            if answer.done < member.saved:
                raise SnapshotFileError(
                    f"shard {shard} was lost, and its snapshot is not where it was started again: shards on several"
                    " machines need a folder that all of them reach"
                )
            member.done = answer.done
            repeated = member.saved + len(member.changes) - answer.done
            log.warning("shard %d of %d was lost; it repeats %d changes", shard, len(self), repeated)
            answer = self._ray.get(self._send(member, query, save))
        if answer.unsaved is not None:  # nothing is lost while the driver lives
            log.error("shard %d wrote no snapshot; changes are kept in memory until it does: %s", shard, answer.unsaved)
        member.done = answer.done
        del member.changes[: max(answer.saved - member.saved, 0)]
        member.saved = max(member.saved, answer.saved)
        return answer


@dataclass(frozen=True)
class Cluster:
    """Where the shards run, and where they keep their snapshots: as `RayFleet` explains."""

    shards: int | None = None
    snapshot_every: int | None = None
    folder: str | os.PathLike[str] | None = None
    device: str = "cpu"
    address: str | None = None
    options: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.shards is not None:
            whole("shards", self.shards, 1, MOST_SHARDS, InvalidSpace)
        if self.snapshot_every is not None:
            whole("snapshot_every", self.snapshot_every, 1, 10**9, InvalidSpace)
        if not isinstance(self.device, str):
            raise InvalidSpace(f"device must be 'cpu', 'cuda' or 'cuda:' and a number, got {show(self.device)}")

    def start(self, plan: bytes | None, share: bool = True) -> tuple[ShardGroup, Callable[[], None]]:
        """Shards without tuners, or without a plan those that go on with their snapshots; and what ends them."""
        found = 0 if self.folder is None else shards_in(Path(self.folder))
        if plan is None and not found:
            raise InvalidValue(f"{str(self.folder)!r} holds no snapshots of a fleet")
        if plan is not None and found:
            raise InvalidValue(
                f"{str(self.folder)!r} holds the snapshots of a fleet: RayFleet.resume goes on with them"
            )
        ray: Any = load_ray()
        started_here = not ray.is_initialized()
        if started_here:
            dashboard = False if self.address is None else None
            ray.init(address=self.address, log_to_driver=False, include_dashboard=dashboard)
        on_gpu, resources = self.device.startswith("cuda"), ray.cluster_resources()
        cores, gpus = (max(1, int(resources.get(name, 1))) for name in ("CPU", "GPU"))
        folder = Path(tempfile.mkdtemp(prefix="rasp-fleet-") if self.folder is None else self.folder).resolve()
        count = found or self.shards or (gpus if on_gpu else cores)
        usual = {"num_cpus": LEAST_CPU, "num_gpus": int(on_gpu), "scheduling_strategy": "SPREAD"}
        lasting = {"max_restarts": -1, "max_task_retries": MOST_RETRIES}
        actor = ray.remote(Shard).options(**usual, **lasting, **(self.options or {}))
        threads = max(1, cores // count)
        places = [(folder, number, count) for number in range(count)]
        group = ShardGroup(
            ray, [actor.remote(plan, share, self.device, threads, place, self.snapshot_every) for place in places]
        )

        def end() -> None:
            group.close()
            if self.folder is None:
                shutil.rmtree(folder, ignore_errors=True)
            if started_here:
                ray.shutdown()

        return group, end


def load_ray() -> ModuleType:
    """Ray, or an error that says how to install it."""
    try:
        import ray
    except ModuleNotFoundError as reason:
        raise MissingExtra("RayFleet needs ray, which is not installed: pip install 'rasp-tuner[ray]'") from reason
    return ray


def shards_in(folder: Path) -> int:
    """How many shards have snapshots in a folder; 0 if there are none."""
    names = [match for path in folder.glob("shard-*.rasp") if (match := NAME.fullmatch(path.name))]
    counts, shards = ({int(match[group]) for match in names} for group in (2, 1))
    if len(counts) > 1 or (counts and shards != set(range(max(counts)))):
        raise SnapshotFileError(f"{show(str(folder))} does not hold the snapshots of one whole fleet")
    return len(shards)
