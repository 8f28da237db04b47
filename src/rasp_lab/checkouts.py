"""The product of another checkout beside the laboratory of this one."""

import os
import tempfile
from pathlib import Path

from rasp_lab import HERE, REPOSITORY

LINKS = REPOSITORY / "out" / "lab"


def python_path(src: str | Path) -> str:
    """PYTHONPATH of a process that imports `rasp_tuner` from the folder `src`, and `rasp_lab` from here.

    A folder `src` holds both packages. So a folder with a link to this laboratory comes first.
    """
    return os.pathsep.join([str(_linked()), str(src)])


def _linked() -> Path:
    link = LINKS / HERE.name
    if not (link.is_symlink() and link.resolve() == HERE.resolve()):
        LINKS.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=LINKS) as folder:
            made = Path(folder) / HERE.name
            made.symlink_to(HERE, target_is_directory=True)
            made.replace(link)  # two processes may do it at once
    return LINKS
