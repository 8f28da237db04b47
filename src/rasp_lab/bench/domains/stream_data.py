"""The arrays of the tabular streams, checked against SHA256SUMS whenever they are read.

They are part of the package, in rasp_lab/data/streams.
"""

import hashlib
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rasp_lab import HERE
from rasp_tuner.errors import RaspError

FOLDER_VARIABLE = "RASP_STREAM_DATA"  # names a folder that is used in place of the package's
PACKAGE_FOLDER = HERE / "data" / "streams"
SUMS_FILE = "SHA256SUMS"  # the format of the sha256sum command


class CorruptData(RaspError, OSError):
    """A data file does not match its checksum."""


class MissingData(RaspError, FileNotFoundError):
    """A data file is not where it should be."""


def data_folder() -> Path:
    """Where the arrays are: the folder in RASP_STREAM_DATA if it is set, else that of the package."""
    named = os.environ.get(FOLDER_VARIABLE)
    return Path(named) if named else PACKAGE_FOLDER


def load(name: str, folder: Path | None = None) -> dict[str, NDArray[Any]]:
    """The named arrays of <name>.npz."""
    folder, file = folder or data_folder(), f"{name}.npz"
    if not (folder / file).is_file():
        raise _missing(folder / file)
    content = (folder / file).read_bytes()
    expected, found = _sums(folder).get(file), hashlib.sha256(content).hexdigest()
    if found != expected:
        raise CorruptData(f"{folder / file} must have the SHA-256 sum {expected}, got {found}; restore it with git")
    with np.load(io.BytesIO(content)) as arrays:
        return dict(arrays)


def save(name: str, arrays: Mapping[str, NDArray[Any]], folder: Path | None = None) -> None:
    """Write <name>.npz and its checksum; the same arrays give the same bytes."""
    folder, file = folder or data_folder(), f"{name}.npz"
    if not folder.is_dir():
        raise _missing(folder)
    np.savez_compressed(folder / file, **arrays)  # type: ignore[arg-type]
    sums = _sums(folder) | {file: hashlib.sha256((folder / file).read_bytes()).hexdigest()}
    (folder / SUMS_FILE).write_text("".join(f"{sums[key]}  {key}\n" for key in sorted(sums)))


def _missing(path: Path) -> MissingData:
    return MissingData(
        f"stream data {path} is missing: unset {FOLDER_VARIABLE},"
        " or set it to a copy of the folder rasp_lab/data/streams"
    )


def _sums(folder: Path) -> dict[str, str]:
    path = folder / SUMS_FILE
    lines = path.read_text().splitlines() if path.exists() else []
    return {file: digest for digest, file in (line.split() for line in lines)}
