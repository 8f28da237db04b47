"""The committed arrays of the tabular streams, checked against data/SHA256SUMS whenever they are read."""

import hashlib
import io
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.errors import RaspError

DATA = Path(str(files("rasp_tuner.bench"))) / "data"
SUMS = "SHA256SUMS"  # the format of the sha256sum command


class CorruptData(RaspError, OSError):
    """A committed array file is not the one its checksum was taken of."""


def load(name: str, folder: Path = DATA) -> dict[str, NDArray[Any]]:
    """The named arrays of data/<name>.npz."""
    file = f"{name}.npz"
    content = (folder / file).read_bytes()
    expected, found = _sums(folder).get(file), hashlib.sha256(content).hexdigest()
    if found != expected:
        raise CorruptData(f"{file} must have the SHA-256 sum {expected}, got {found}; install the package again")
    with np.load(io.BytesIO(content)) as arrays:
        return dict(arrays)


def save(name: str, arrays: Mapping[str, NDArray[Any]], folder: Path = DATA) -> None:
    """Write data/<name>.npz and its checksum; the same arrays give the same bytes."""
    file = f"{name}.npz"
    np.savez_compressed(folder / file, **arrays)  # type: ignore[arg-type]
    sums = _sums(folder) | {file: hashlib.sha256((folder / file).read_bytes()).hexdigest()}
    (folder / SUMS).write_text("".join(f"{sums[key]}  {key}\n" for key in sorted(sums)))


def _sums(folder: Path) -> dict[str, str]:
    path = folder / SUMS
    lines = path.read_text().splitlines() if path.exists() else []
    return {file: digest for digest, file in (line.split() for line in lines)}
