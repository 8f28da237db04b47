"""Snapshots: one JSON header, raw float64 arrays, a checksum. Nothing is pickled; equal state gives equal bytes.

layout   8 bytes   magic
         4 bytes   format version, little endian
         8 bytes   length of the header
         header    JSON, UTF-8, with the name and shape of every array, and on how many BLAS threads they were computed
         arrays    little-endian float64, one after the other
         32 bytes  SHA-256 of all of the above
"""

import hashlib
import json
import math
import os
import secrets
import stat
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rasp_tuner.base.checks import show
from rasp_tuner.base.numerics import Array
from rasp_tuner.base.threads import BLAS_THREADS
from rasp_tuner.errors import SnapshotError, SnapshotFileError

MAGIC = b"RASPTUNE"
VERSION = 1
_PREFIX = struct.Struct("<8sIQ")
_DIGEST = 32


def encode(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> bytes:
    """The snapshot of a JSON-able header and named arrays, as bytes."""
    table = [[name, list(array.shape)] for name, array in arrays.items()]
    noted = {"arrays": table, **header, "numerics": {"blas_threads": BLAS_THREADS}}
    text = json.dumps(noted, allow_nan=False).encode()  # order is kept: it is the knobs' order
    data = b"".join(array.astype("<f8").tobytes() for array in arrays.values())
    body = _PREFIX.pack(MAGIC, VERSION, len(text)) + text + data
    return body + hashlib.sha256(body).digest()


def decode(data: bytes | bytearray | memoryview) -> tuple[dict[str, Any], dict[str, Array]]:
    """Header and arrays of a snapshot, or a `SnapshotError` that says what is wrong with the bytes."""
    if isinstance(data, (bytearray, memoryview)):
        data = bytes(data)
    if not isinstance(data, bytes) or not data or data[: len(MAGIC)] != MAGIC[: len(data)]:
        start = data[:16] if isinstance(data, bytes) else data
        raise SnapshotError(f"not a RASP-Tuner snapshot: it starts with {show(start)}")
    if len(data) < _PREFIX.size + _DIGEST:
        raise SnapshotError(f"the snapshot is truncated: {len(data)} bytes do not even hold its frame")
    _, version, length = _PREFIX.unpack_from(data)
    if version > VERSION:
        raise SnapshotError(
            f"the snapshot has format version {version}, this library reads up to {VERSION}: upgrade rasp-tuner"
        )
    if version < 1:
        raise SnapshotError(f"the snapshot has format version {version}, which never existed")
    body = data[:-_DIGEST]
    if hashlib.sha256(body).digest() != data[-_DIGEST:]:
        raise SnapshotError("the snapshot is truncated or damaged: its checksum does not match")
    try:
        header = json.loads(body[_PREFIX.size : _PREFIX.size + length], parse_constant=_not_finite)
        arrays, offset = {}, _PREFIX.size + length
        for name, shape in header.pop("arrays"):
            if not all(type(length) is int and length >= 0 for length in shape) or name in arrays:
                raise ValueError(f"array {name!r} has the shape {shape}, or comes twice")
            count = math.prod(shape)
            arrays[name] = np.frombuffer(body, "<f8", count, offset).astype(np.float64).reshape(shape)
            offset += 8 * count
            if not np.all(np.isfinite(arrays[name])):
                raise ValueError(f"array {name!r} holds a number that is not finite")
        if offset != len(body):
            raise ValueError(f"{len(body) - offset} bytes belong to no array")
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as reason:
        raise SnapshotError(f"the snapshot's frame is sound but its content is not: {reason}") from reason
    return header, arrays


def _not_finite(word: str) -> float:
    raise ValueError(f"{word} in the header is no finite number")


def write(path: str | os.PathLike[str], data: bytes) -> None:
    """Write `data` so that after a crash `path` holds either the old file or the new one, whole.

    A link is followed; the file keeps its mode, and a new one gets the usual one.
    """
    target = _path(path)
    try:
        target = target.resolve()
        if target.exists() and not target.is_file():
            raise SnapshotFileError(f"cannot write {show(str(target))}: it is there and not a regular file")
        temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                if target.exists():
                    os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode))
                os.fsync(file.fileno())
            temporary.replace(target)
            os.fsync(folder)  # the rename itself must survive a crash
        finally:
            temporary.unlink(missing_ok=True)
            os.close(folder)
    except (OSError, UnicodeError) as reason:
        if isinstance(reason, SnapshotFileError):
            raise
        raise SnapshotFileError(f"cannot write {show(str(target))}: {reason}") from reason


def read(path: str | os.PathLike[str]) -> bytes:
    target = _path(path)
    try:
        return target.read_bytes()
    except (OSError, UnicodeError) as reason:
        raise SnapshotFileError(f"cannot read snapshot {show(str(target))}: {reason}") from reason


def _path(path: object) -> Path:
    name = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(name, str) or not name or "\0" in name:
        raise SnapshotFileError(f"a snapshot path must be a non-empty string or path, got {show(path)}")
    return Path(name)
