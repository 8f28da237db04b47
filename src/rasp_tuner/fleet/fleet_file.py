"""The file of a fleet: snapshots (files/snapshot.py), one after the other, each with its length before it.

layout   8 bytes   magic
         frame     a tuner of this fleet that knows nothing: space, metrics, context, settings
         frame     what the fleet knows as a whole, and how many tuners there are
         frames    some of the tuners each: arrays with a leading axis of tuners; of memory only the slots in use
Written piece by piece, so that a large fleet needs no second room in memory.
"""

import math
import os
import secrets
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from rasp_tuner.base.checks import flag, show, whole
from rasp_tuner.base.numerics import Array
from rasp_tuner.base.state_checks import MOST_SAMPLES, broken, under
from rasp_tuner.engine.engine import EARLY_FAILURES
from rasp_tuner.engine.kernel.convert import SLOTS, from_packed, to_packed
from rasp_tuner.engine.kernel.state import Dims, Places, shapes
from rasp_tuner.errors import RaspError, SnapshotError, SnapshotFileError
from rasp_tuner.files import snapshot
from rasp_tuner.fleet.build import MOST_TUNERS, Plan, blank
from rasp_tuner.fleet.device import Device
from rasp_tuner.fleet.prior import FleetPrior
from rasp_tuner.fleet.records import restored
from rasp_tuner.fleet.tuners import Tuners
from rasp_tuner.records.lineage import Lineage
from rasp_tuner.tuner import Tuner

Progress = Callable[[int, int], object]
MAGIC = b"RASPFLT1"
BLOCK_TUNERS = 1000  # in one frame
_LENGTH = struct.Struct("<Q")


def write(
    path: str | os.PathLike[str],
    plan: Plan,
    whole: tuple[Mapping[str, Any], Mapping[str, Array]],
    tuners: Tuners,
    progress: Progress | bool,
) -> None:
    """Write the fleet so that after a crash `path` holds either the old file or the new one, whole."""
    write_blocks(path, plan, whole, (tuners.size, tuners.records.failed_at.shape[1]), tuners.some, progress)


def write_blocks(
    path: str | os.PathLike[str],
    plan: Plan,
    whole: tuple[Mapping[str, Any], Mapping[str, Array]],
    shape: tuple[int, int],
    take: Callable[[Places], Tuners],
    progress: Progress | bool,
) -> None:
    """The same for tuners that come some at a time; `shape`: how many, and the most early failures of any."""
    write_frames(path, MAGIC, _frames(plan, whole, shape, take, shown(progress, "saving")))


def write_frames(path: str | os.PathLike[str], magic: bytes, frames: Iterable[bytes]) -> None:
    """Write a file that is whole or not there."""
    target = snapshot_path(path)
    temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(magic)
            for frame in frames:
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
) -> tuple[Plan, dict[str, Any], FleetPrior | None, Tuners]:
    """Plan, header and prior of the fleet as a whole, and its tuners; all of it checked."""
    told = shown(progress, "loading")
    with reading(path, MAGIC) as file:
        plan = Plan.of(Tuner.from_bytes(frame_of(file)))
        header, arrays = snapshot.decode(frame_of(file))
        prior = FleetPrior.of(arrays, plan.dims) if arrays else None
        most = os.fstat(file.fileno()).st_size // (8 * _least_numbers(plan.dims))  # before room is asked for
        size = whole("size", header["size"], 0, min(most, MOST_TUNERS))
        failures = whole("failures", header["failures"], 0, EARLY_FAILURES)
        _check_header(plan, header)
        tuners = blank(plan, device, size, 0)
        tuners.make_room_for_failures(failures)
        for start in range(0, size, BLOCK_TUNERS):
            stop = min(start + BLOCK_TUNERS, size)
            _, block = snapshot.decode(frame_of(file))
            part = unpack(plan, stop - start, block)
            part.make_room_for_failures(failures)
            tuners.put(np.arange(start, stop), part)
            told(stop, size)
    return plan, header, prior, tuners


@contextmanager
def reading(path: str | os.PathLike[str], magic: bytes) -> Iterator[BinaryIO]:
    """The file of a fleet, after its magic; what goes wrong inside, or is left over, is an error of the file."""
    target = snapshot_path(path)
    try:
        with target.open("rb") as file:
            if file.read(len(magic)) != magic:
                raise SnapshotError(f"{show(str(target))} is not the file of a fleet")
            yield file
            if file.read(1):
                raise SnapshotError("the file of the fleet goes on after its end")
    except OSError as reason:
        if isinstance(reason, RaspError):
            raise
        raise SnapshotFileError(f"cannot read {show(str(target))}: {reason}") from reason
    except (RaspError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as reason:
        if isinstance(reason, SnapshotError):
            raise
        kind = "" if isinstance(reason, RaspError) else f"{type(reason).__name__}: "
        raise SnapshotError(f"the file does not describe a fleet: {kind}{reason}") from reason


def magic_of(path: str | os.PathLike[str], known: Sequence[bytes]) -> bytes:
    """Which of these the file begins with; the first if it cannot be read: whoever reads it says why."""
    try:
        with snapshot_path(path).open("rb") as file:
            begins = file.read(max(map(len, known)))
    except OSError:
        return known[0]
    return next((magic for magic in known if begins.startswith(magic)), known[0])


def _check_header(plan: Plan, header: Mapping[str, Any]) -> None:
    """What is said of the fleet as a whole, besides its size."""
    whole("issued", header["issued"], header["size"], MOST_SAMPLES)
    flag("share", header["share"], SnapshotError)
    if not isinstance(header["lineages"], dict):
        raise SnapshotError(f"lineages must be by number, got {show(header['lineages'])}")
    for lineage in header["lineages"].values():
        Lineage.rebuild(plan.seed, lineage, sum(lineage["held"].values()))


def _least_numbers(dims: Dims) -> int:
    """That a tuner takes in a file, without slots."""
    return sum(math.prod(shape) for name, shape in shapes(dims).items() if name not in SLOTS)


def pack(part: Tuners) -> dict[str, Array]:
    """Arrays of some tuners; of memory only the slots in use."""
    arrays = {f"state/{name}": array for name, array in to_packed(part.batch.take(part.rows)).items()}
    for name, its in part.stateful().items():
        arrays |= {f"{name}/{key}": array for key, array in its.state().items()}
    return arrays | {f"records/{name}": array for name, array in vars(part.records).items()}


def unpack(plan: Plan, size: int, arrays: Mapping[str, Array]) -> Tuners:
    """What `pack` gave, checked, on this machine."""
    part = blank(plan, Device("cpu"), size, 0)
    state = from_packed(plan.dims, size, under("state/", arrays))
    for name, its in part.stateful().items():
        its.restore(under(f"{name}/", arrays))
    if not np.array_equal(state.weights, part.objective.weights):
        raise broken(arrays, "state/weights", "be those of the metrics", state.weights.tolist())
    if (part.objective.seen > state.steps).any():
        raise broken(arrays, "objective/seen", "be at most the number of steps", arrays["objective/seen"].tolist())
    part.batch.put(part.rows, state)
    part.records = restored(under("records/", arrays), size, plan.dims)
    return part


def _frames(
    plan: Plan,
    whole: tuple[Mapping[str, Any], Mapping[str, Array]],
    shape: tuple[int, int],
    take: Callable[[Places], Tuners],
    told: Progress,
) -> Iterator[bytes]:
    (header, arrays), (size, failures) = whole, shape
    yield plan.to_bytes()
    yield snapshot.encode({**header, "size": size, "failures": failures}, arrays)
    for start in range(0, size, BLOCK_TUNERS):
        stop = min(start + BLOCK_TUNERS, size)
        yield snapshot.encode({}, pack(take(np.arange(start, stop))))
        told(stop, size)


def frame_of(file: BinaryIO) -> bytes:
    length = file.read(_LENGTH.size)
    if len(length) == _LENGTH.size:
        (count,) = _LENGTH.unpack(length)
        if count <= os.fstat(file.fileno()).st_size:  # a damaged length would be room asked for
            frame = file.read(count)
            if len(frame) == count:
                return frame
    raise SnapshotError("the file of the fleet is truncated")


def shown(progress: Progress | bool, verb: str) -> Progress:
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
