"""The library as it is here, and as it was at another commit: checked out under out/, its C built there."""

import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from rasp_lab import REPOSITORY
from rasp_lab.beds.bed import OUT
from rasp_lab.checkouts import python_path

ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OPENBLAS", "OMP", "MKL")}


@dataclass(frozen=True, slots=True)
class Source:
    """A folder `src` with the product, and a name for the table."""

    name: str
    src: Path
    tree: str  # digest of all files of the product

    @property
    def environment(self) -> dict[str, str]:
        """Of processes that import the product from here, and the laboratory of today."""
        return {**os.environ, **ONE_THREAD, "PYTHONPATH": python_path(self.src)}


def here() -> Source:
    """The library as it is in this working tree, built."""
    return _built("now", REPOSITORY)


def other(name: str) -> Source:
    """The library of a commit, or of a working tree if `name` is a folder."""
    if (Path(name) / "src" / "rasp_tuner").is_dir():
        return _built(name, Path(name).resolve())
    commit = _git("rev-parse", "--verify", f"{name}^{{commit}}")
    folder = OUT / "commits" / commit[:12]
    if not (folder / "src").is_dir():
        _git("worktree", "prune")
        _git("worktree", "add", "--detach", "--force", str(folder), commit)
    return _built(commit[:12], folder)


def before() -> str:
    """The commit to compare with: HEAD if files of the library have changed since, else the one before."""
    return "HEAD" if _git("status", "--porcelain", "--", "src/rasp_tuner") else "HEAD~1"


def _built(name: str, folder: Path) -> Source:
    source = Source(name, folder / "src", _tree(folder))
    code = (
        "from rasp_tuner.engine.kernel import build as b; import sys; sys.exit(None if b.is_current() else b.build())"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=source.environment, cwd=folder)
    return source


def _tree(folder: Path) -> str:
    """A digest of the library's files, with changes that are not committed."""
    digest = hashlib.sha256()
    listed = _git("ls-files", "--cached", "--others", "--exclude-standard", "--", "src/rasp_tuner", folder=folder)
    for name in sorted(set(listed.splitlines())):
        file = folder / name
        if file.is_file():
            digest.update(f"{name}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _git(*words: str, folder: Path = REPOSITORY) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=False)  # noqa: S607
    if done.returncode:
        sys.exit(f"git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()
