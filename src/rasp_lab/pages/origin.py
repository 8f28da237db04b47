"""Which engine the figures of a page were measured with: its version, commit, date and a hash of its files.

`docs/results/origins.json` has it for every page with measured figures. The head of the page repeats it, and says so
when the engine of today is another one. A page is in that file or in WITHOUT_FIGURES: a new page has to decide.
"""

import hashlib
import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

from rasp_lab import REPOSITORY
from rasp_tuner import __version__
from rasp_tuner.errors import InvalidValue

ENGINE = Path("src/rasp_tuner/engine")
ORIGINS = Path("docs/results/origins.json")
SOURCES = frozenset({".py", ".c", ".h", ".cu"})
SHOWN_DIGITS = 12  # of a hash: two engines with the same ones are not to be feared
NO_ENGINE = "none"  # of a commit that had no engine/ folder yet
WITHOUT_ENGINE = "apart"  # of figures that no engine moves: agents of the paper, peers
NO_COMMIT = "unknown"
OLDER = "**Measured with an older engine.**"
START = "*Figures"  # of the line in the head of a page
WITHOUT_FIGURES = frozenset(  # pages whose numbers no engine moves, or that tests compare with a run
    {
        "API.md",
        "ARCHITECTURE.md",
        "CLIENT.md",
        "ENGINE.md",
        "ENGINE_CONSTANTS.md",
        "KERNEL_TUNER.md",
        "MCP.md",
        "MLFLOW.md",
        "OPENFEATURE.md",
        "OPERATIONS.md",
        "OPERATORS.md",
        "POLICY.md",
        "RAY_TUNE.md",
        "THEORY.md",
        "TUTORIAL.md",
        "WATCH.md",
        "index.md",
    }
)


@dataclass(frozen=True)
class Origin:
    """Where figures come from. `what` names them where a page has figures of several times."""

    version: str
    commit: str
    day: str
    engine: str
    what: str = ""

    def is_older(self, today: str) -> bool:
        """Whether the engine has changed since; `today` is its hash now."""
        return self.engine not in (today, WITHOUT_ENGINE)

    def __str__(self) -> str:
        of = f" of {self.what}" if self.what else ""
        engine = "without the engine" if self.engine == WITHOUT_ENGINE else f"engine {self.engine}"
        return f"{of}: rasp-tuner {self.version}, commit {self.commit}, {self.day}, {engine}"


Origins = Mapping[str, tuple[Origin, ...]]  # by page


def engine_hash(root: Path = REPOSITORY) -> str:
    """A hash of names and contents of all source files of the engine below `root`."""
    files = (file for file in (root / ENGINE).rglob("*") if file.suffix in SOURCES)
    return _digest((file.relative_to(root / ENGINE).as_posix(), file.read_bytes()) for file in files)


def engine_hash_at(commit: str, root: Path = REPOSITORY) -> str:
    """The same of a commit; NO_ENGINE if it had no such folder."""
    names = _git(root, "ls-tree", "-r", "--name-only", commit, "--", str(ENGINE)).decode().splitlines()
    files = [Path(name) for name in names if Path(name).suffix in SOURCES]
    if not files:
        return NO_ENGINE
    contents = ((f.relative_to(ENGINE).as_posix(), _git(root, "show", f"{commit}:{f.as_posix()}")) for f in files)
    return _digest(contents)


def origin_of(commit: str = "HEAD", what: str = "", root: Path = REPOSITORY) -> Origin:
    """The origin of figures that were measured with this commit, or with the working tree if it is HEAD."""
    if not (root / ".git").exists():  # an installed laboratory
        return Origin(__version__, NO_COMMIT, date.today().isoformat(), engine_hash(root), what)
    short, day = _git(root, "show", "-s", "--format=%h %as", commit).decode().split()
    if commit == "HEAD":
        return Origin(__version__, short, day, engine_hash(root), what)
    text = _git(root, "show", f"{commit}:src/rasp_tuner/__init__.py").decode()
    version = text.partition('__version__ = "')[2].partition('"')[0]
    return Origin(version, short, day, engine_hash_at(commit, root), what)


def load(root: Path = REPOSITORY) -> Origins:
    """What is recorded for every page."""
    return {
        page: tuple(Origin(**found) for found in origins)
        for page, origins in json.loads((root / ORIGINS).read_text()).items()
    }


def record(page: str, origin: Origin, root: Path = REPOSITORY) -> None:
    """Keep this as the origin of the page's figures, instead of the one with the same `what`."""
    known = dict(load(root)) if (root / ORIGINS).is_file() else {}
    others = tuple(o for o in known.get(page, ()) if o.what and origin.what and o.what != origin.what)
    known[page] = (*others, origin)
    ordered = {name: [asdict(o) for o in known[name]] for name in sorted(known)}
    (root / ORIGINS).write_text(json.dumps(ordered, indent=1) + "\n")


def head(page: str, root: Path = REPOSITORY) -> str:
    """The line in the head of the page."""
    if page not in (known := load(root)):
        raise InvalidValue(f"{ORIGINS} has no entry for {page}: python -m rasp_lab.pages --record {page}")
    return head_of(known[page], engine_hash(root))


def head_of(origins: Sequence[Origin], today: str) -> str:
    """The line for figures of these origins; `today` is the engine's hash now."""
    said = f"{START}{';'.join(map(str, origins)) or ': of an engine that was not noted'}.*"
    return said if origins and not any(o.is_older(today) for o in origins) else f"{said} {OLDER}"


def with_head(text: str, line: str) -> str:
    """The page with this line below its title, instead of the one that it has."""
    title, *rest = text.split("\n\n")
    if rest and rest[0].startswith(START):
        rest = rest[1:]
    return "\n\n".join([title, line, *rest])


def _digest(files: Iterable[tuple[str, bytes]]) -> str:
    digest = hashlib.sha256()
    for name, content in sorted(files):
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:SHOWN_DIGITS]


def _git(root: Path, *words: str) -> bytes:
    return subprocess.run(["git", "-C", str(root), *words], check=True, capture_output=True).stdout  # noqa: S607
