"""The file of a fleet: snapshots (core/snapshot.py), one after the other, each with its length before it.

layout   8 bytes   magic
         frame     a tuner of this fleet that knows nothing: space, metrics, context, settings
         frame     what the fleet knows as a whole, and how many tuners there are
         frames    some of the tuners each: arrays with a leading axis of tuners; of memory only the slots in use
Written piece by piece, so that a large fleet needs no second room in memory.
"""

import os
import secrets
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rasp_tuner.core import snapshot
from rasp_tuner.core.checks import show
from rasp_tuner.core.numerics import Array
from rasp_tuner.core.state_checks import under
from rasp_tuner.errors import RaspError, SnapshotError, SnapshotFileError
from rasp_tuner.fleet.build import Plan, blank
from rasp_tuner.fleet.device import Device, host
from rasp_tuner.fleet.tuners import Tuners

Progress = Callable[[int, int], object]
MAGIC = b"RASPFLT1"
BLOCK_TUNERS = 1000  # in one frame
SLOTS = ("keys", "prompts", "counts", "last")  # arrays [B, R, ...] of which only rows in use mean anything
_LENGTH = struct.Struct("<Q")


def write(
    path: str | os.PathLike[str],
    plan: Plan,
    whole: tuple[Mapping[str, Any], Mapping[str, Array]],
    tuners: Tuners,
    progress: Progress | bool,
) -> None:
    """Write the fleet so that after a crash `path` holds either the old file or the new one, whole."""
    write_blocks(path, plan, whole, (tuners.size, tuners.records.failed_at.shape[1]), tuners.take, progress)


def write_blocks(
    path: str | os.PathLike[str],
    plan: Plan,
    whole: tuple[Mapping[str, Any], Mapping[str, Array]],
    shape: tuple[int, int],
    take: Callable[[slice], Tuners],
    progress: Progress | bool,
) -> None:
    """The same for tuners that come some at a time; `shape`: how many, and the most early failures of any."""
    target = snapshot_path(path)
    told = _progress(progress, "saving")
    temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(MAGIC)
            for frame in _frames(plan, whole, shape, take, told):
                file.write(_LENGTH.pack(len(frame)))
                file.write(frame)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except OSError as reason:
        raise SnapshotFileError(f"cannot write {show(str(target))}: {reason}") from reason
    finally:
        temporary.unlink(missing_ok=True)


def read(
    path: str | os.PathLike[str], device: Device, progress: Progress | bool
) -> tuple[Plan, dict[str, Any], dict[str, Array], Tuners]:
    """Plan, header and arrays of the fleet as a whole, and its tuners."""
    told = _progress(progress, "loading")
    target = snapshot_path(path)
    try:
        with target.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise SnapshotError(f"{show(str(target))} is not the file of a fleet")
            plan = Plan(*snapshot.decode(_frame(file)))
            header, arrays = snapshot.decode(_frame(file))
            size = int(header["size"])
            if size > os.fstat(file.fileno()).st_size:
                raise SnapshotError(f"the file of the fleet is too small for {size} tuners")
            tuners = blank(plan, device, size, 0)
            tuners.make_room_for_failures(int(header["failures"]))
            for start in range(0, size, BLOCK_TUNERS):
                stop = min(start + BLOCK_TUNERS, size)
                _, block = snapshot.decode(_frame(file))
                tuners.put(device.index(np.arange(start, stop)), unpack(plan, device, stop - start, block))
                told(stop, size)
            if file.read(1):
                raise SnapshotError("the file of the fleet goes on after its end")
    except OSError as reason:
        if isinstance(reason, RaspError):
            raise
        raise SnapshotFileError(f"cannot read {show(str(target))}: {reason}") from reason
    except (ValueError, KeyError, TypeError, AttributeError) as reason:
        if isinstance(reason, RaspError):
            raise
        raise SnapshotError(f"the file does not describe a fleet: {show(reason)}") from reason
    return plan, header, arrays, tuners


def pack(part: Tuners) -> dict[str, Array]:
    """Arrays of some tuners, in NumPy; of memory only the slots in use."""
    state = {name: host(array) for name, array in part.state.items()}
    used = np.arange(state["counts"].shape[1]) < state["count"][:, None]
    for name in SLOTS:
        state[name] = state[name][used]
    state["trust"] = np.swapaxes(state["trust"], 1, 2)[used]
    arrays = {f"state/{name}": array for name, array in state.items()}
    for name, its in (("objective", part.objective), ("calibration", part.calibration), ("budget", part.budget)):
        if its is not None:
            arrays |= {f"{name}/{key}": array for key, array in its.state().items()}
    return arrays | {f"records/{name}": host(array) for name, array in vars(part.records).items()}


def unpack(plan: Plan, device: Device, size: int, arrays: Mapping[str, Array]) -> Tuners:
    """What `pack` gave."""
    part = blank(plan, device, size, 0)
    saved = under("state/", arrays)
    used = np.arange(plan.dims.rows) < saved["count"][:, None]
    for name, array in part.state.items():
        filled = host(array).copy()
        if name in SLOTS:
            filled[used] = saved[name]
        elif name == "trust":
            np.swapaxes(filled, 1, 2)[used] = saved[name]
        elif filled.shape != saved[name].shape:
            raise ValueError(f"state/{name} must have the shape {filled.shape}, got {saved[name].shape}")
        else:
            filled = saved[name]
        setattr(part.state, name, device.put(filled))
    part.objective.restore(under("objective/", arrays))
    part.calibration.restore(under("calibration/", arrays))
    if part.budget is not None:
        part.budget.restore(under("budget/", arrays))
    for name in vars(part.records):
        setattr(part.records, name, device.put(arrays[f"records/{name}"]))
    return part


def _frames(
    plan: Plan,
    whole: tuple[Mapping[str, Any], Mapping[str, Array]],
    shape: tuple[int, int],
    take: Callable[[slice], Tuners],
    told: Progress,
) -> Iterator[bytes]:
    (header, arrays), (size, failures) = whole, shape
    yield plan.to_bytes()
    yield snapshot.encode({**header, "size": size, "failures": failures}, arrays)
    for start in range(0, size, BLOCK_TUNERS):
        stop = min(start + BLOCK_TUNERS, size)
        yield snapshot.encode({}, pack(take(slice(start, stop))))
        told(stop, size)


def _frame(file: Any) -> bytes:
    length = file.read(_LENGTH.size)
    if len(length) == _LENGTH.size:
        (count,) = _LENGTH.unpack(length)
        if count <= os.fstat(file.fileno()).st_size:  # a damaged length would be room asked for
            frame: bytes = file.read(count)
            if len(frame) == count:
                return frame
    raise SnapshotError("the file of the fleet is truncated")


def _progress(progress: Progress | bool, verb: str) -> Progress:
    """What to call with tuners done and to do."""
    if callable(progress):
        return progress
    return _bar(verb) if progress else lambda *_: None


def _bar(verb: str) -> Progress:
    def show_bar(done: int, total: int) -> None:
        width = 30 * done // max(total, 1)
        end = "\n" if done == total else ""
        sys.stderr.write(f"\r{verb} [{'#' * width}{'.' * (30 - width)}] {done}/{total} tuners{end}")
        sys.stderr.flush()

    return show_bar


def snapshot_path(path: object) -> Path:
    name = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(name, str) or not name or "\0" in name:
        raise SnapshotFileError(f"a path must be a non-empty string or path, got {show(path)}")
    return Path(name).resolve()
