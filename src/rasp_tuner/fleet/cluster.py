"""Cluster: where the shards of a fleet run, and where they keep their snapshots."""

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rasp_tuner.base.checks import show, whole
from rasp_tuner.errors import InvalidSpace, InvalidValue
from rasp_tuner.fleet.shard import ShardSettings
from rasp_tuner.fleet.shard_group import Member, ShardGroup, found_in, load_ray, log

MOST_SHARDS = 10_000


@dataclass(frozen=True)
class Cluster:
    """As `RayFleet` explains them."""

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

    def start(self, plan: bytes, share: bool) -> tuple[ShardGroup, Callable[[], None]]:
        """Shards without tuners, and what ends them."""
        if self.folder is not None and found_in(Path(self.folder)):
            raise InvalidValue(
                f"{str(self.folder)!r} holds the snapshots of a fleet: RayFleet.resume goes on with them"
            )
        return self._connect(plan, share, None)

    def resume(self) -> tuple[ShardGroup, Callable[[], None]]:
        """Shards that go on with their snapshots, and what ends them."""
        members = [] if self.folder is None else found_in(Path(self.folder))
        if not members:
            raise InvalidValue(f"{str(self.folder)!r} holds no snapshots of a fleet")
        return self._connect(b"", True, members)

    def _connect(self, plan: bytes, share: bool, members: list[Member] | None) -> tuple[ShardGroup, Callable[[], None]]:
        ray: Any = load_ray()
        started_here = not ray.is_initialized()
        if started_here:
            dashboard = False if self.address is None else None
            ray.init(address=self.address, log_to_driver=False, include_dashboard=dashboard)
        on_gpu, resources = self.device.startswith("cuda"), ray.cluster_resources()
        cores, gpus = (max(1, int(resources.get(name, 1))) for name in ("CPU", "GPU"))
        members = members or [Member() for _ in range(self.shards or (gpus if on_gpu else cores))]
        own_folder = _temporary(ray) if self.folder is None else None
        settings = ShardSettings(self.device, max(1, cores // len(members)), plan, share)
        options: dict[str, Any] = {"num_cpus": 0, "num_gpus": int(on_gpu), **(self.options or {})}
        if on_gpu or self.options:
            options.setdefault("scheduling_strategy", "SPREAD")
        folder = own_folder or Path(self.folder or "").resolve()
        group = ShardGroup(settings, members, folder, self.snapshot_every, options)

        def end() -> None:
            group.close()
            if own_folder is not None:
                shutil.rmtree(own_folder, ignore_errors=True)
            if started_here:
                ray.shutdown()

        return group, end


def _temporary(ray: Any) -> Path:
    """A folder on the local disk."""
    if len({node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}) > 1:
        log.warning("the cluster has several machines: give a folder that all reach, or no shard survives its machine")
    return Path(tempfile.mkdtemp(prefix="rasp-fleet-"))
