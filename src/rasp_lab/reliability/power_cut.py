"""A disk that simulates power cuts: unsynced data is lost, which kill -9 alone does not show.

An ext4 file system in a file. What programs write stays in the cache of that file system until they sync; only then it
reaches the file. So a copy of the file, taken right after a kill, is what a disk would hold after a power cut. Needs
root.
"""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

DISK_BYTES = 512 << 20


class PowerCutDisk:
    """Mounted at `place`."""

    def __init__(self, home: Path) -> None:
        self.place, self._home, self._cuts = home / "disk", home, 0
        self.place.mkdir()
        with self._image.open("wb") as file:
            file.truncate(DISK_BYTES)
        sh("mkfs.ext4", "-q", str(self._image))
        self._mount()

    @property
    def _image(self) -> Path:
        return self._home / f"image{self._cuts}"

    def _mount(self) -> None:
        sh("mount", "-o", "loop", str(self._image), str(self.place))

    def cut(self) -> None:
        """Continue with the data that had reached the disk; no process may have files open on it."""
        before = self._image
        self._cuts += 1
        sh("cp", "--sparse=always", str(before), str(self._image))
        sh("umount", str(self.place))
        before.unlink()
        self._mount()

    def close(self) -> None:
        sh("umount", "-l", str(self.place))


def sh(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


@contextlib.contextmanager
def power_cut_disk(home: Path) -> Iterator[PowerCutDisk]:
    made = PowerCutDisk(home)
    try:
        yield made
    finally:
        made.close()
