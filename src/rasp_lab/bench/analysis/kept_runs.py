"""What a page of results needs of a run, in one row: the runs of peers, which take hours, are kept so.

A run is cut into two parts: halves, or what its world is scored by (world_scores). A row keeps the sum of the regret
and the mean of the loss of each. `as_runs` spreads them over the steps again: sums and means over the run and its parts
come back; what happened at a single step does not.

A row may also be the mean of several seeds, with the deviation of its regret: what an earlier page printed.
"""

import csv
import hashlib
import io
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import rasp_tuner.paper
from rasp_lab import HERE
from rasp_lab.bench.agents import AGENTS
from rasp_lab.bench.analysis.metrics import UNPAIRED, Runs, calibration
from rasp_lab.bench.analysis.world_scores import LAST_STEPS, START_STEPS
from rasp_lab.bench.domains.worlds import CHEAP, is_world
from rasp_lab.bench.runner.protocol import Cell
from rasp_lab.pages import origin
from rasp_tuner.base.numerics import Array
from rasp_tuner.files.snapshot import write as write_whole

OF_ENGINE = ("rasp", "rasp-no-memory")  # agents whose runs are of no use once the engine has changed
PACKAGES = {  # module of an agent -> the packages that choose for it
    "cma": ("cmaes",),
    "warm_cma": ("cmaes",),
    "gp_ucb": ("scipy",),
    "turbo": ("scipy",),
    "botorch": ("botorch", "gpytorch", "torch"),
    "tpe": ("optuna",),
    "vw": ("vowpalwabbit",),
    "rasp": ("rasp-tuner", "torch"),
}
Flags = NDArray[np.bool_]
SHOWN_DIGITS = 12  # of a hash
FORECASTS = ("nll", "coverage_50", "coverage_90")


class KeptRun(NamedTuple):
    """One run. `made_by` says which packages and which code, or which engine, it is of."""

    domain: str
    agent: str
    horizon: int
    seed: int
    made_by: str
    steps: int  # of its first part
    regret: float  # of the first part
    later_regret: float
    loss: float
    later_loss: float
    recommended: float = float("nan")  # loss of what would be served at the end, where workloads differ in scale
    nll: float = float("nan")
    coverage_50: float = float("nan")
    coverage_90: float = float("nan")
    seeds: int = 1  # from `seed` on, of a mean
    deviation: float = float("nan")  # over them, of the whole regret

    @property
    def cells(self) -> list[Cell]:
        return [Cell(self.domain, self.agent, self.seed + i, self.horizon) for i in range(self.seeds)]


def kept(run: Runs, made_by: str) -> KeptRun:
    """The row of a run of one seed."""
    first = _first_part(run)
    regret, loss = run["regret"][0], run["loss"][0]
    served = run["recommended"][0][run["regime"][0] == CHEAP] if run.domain.startswith("W_Scales") else []
    said = calibration(run) or {}
    (early, late), (loss_early, loss_late) = (
        [float(regret[part].sum()) for part in (first, ~first)],
        [float(loss[part].mean()) if part.any() else float("nan") for part in (first, ~first)],
    )
    last = float(served[-1]) if len(served) else float("nan")
    nll, half, most = (said.get(name, float("nan")) for name in FORECASTS)
    made = run.domain, run.agent, run.horizon, run.seeds[0], made_by, int(first.sum())
    return KeptRun(*made, early, late, loss_early, loss_late, last, nll, half, most)


def as_runs(rows: Iterable[KeptRun]) -> list[Runs]:
    """Runs whose sums and means are those of the rows."""
    grouped: dict[tuple[str, str, int], list[KeptRun]] = {}
    for row in rows:
        grouped.setdefault((row.domain, row.agent, row.horizon), []).append(row)
    made = []
    for (domain, agent, horizon), found in grouped.items():
        found = _each_seed(sorted(found, key=lambda row: row.seed))
        shape = len(found), horizon
        first = np.arange(horizon) < np.array([[row.steps] for row in found])
        columns = {
            "regret": _spread(first, [(r.regret / max(r.steps, 1), r.later_regret / _rest(r)) for r in found]),
            "loss": _spread(first, [(row.loss, row.later_loss) for row in found]),
            "regime": np.where(first, CHEAP, CHEAP + 1) if domain.startswith("W_Scales") else np.zeros(shape),
            "recommended": np.broadcast_to([[row.recommended] for row in found], shape),
        }
        if not is_world(domain):
            del columns["loss"]  # nobody may look for the step at which it fell
        if any(row.deviation == row.deviation for row in found):
            columns[UNPAIRED] = first
        made.append(Runs(domain, agent, horizon, tuple(row.seed for row in found), columns))
    return made


def merged(before: Iterable[KeptRun], runs: Iterable[KeptRun]) -> list[KeptRun]:
    """Rows and new runs, which take the place of rows; a mean stays until all of its seeds ran."""
    single = {row.cells[0]: row for row in (*before, *runs) if row.seeds == 1}
    means = [row for row in before if row.seeds > 1 and not single.keys() >= set(row.cells)]
    covered = {cell for row in means for cell in row.cells}
    return [*means, *(row for cell, row in single.items() if cell not in covered)]


def _each_seed(rows: Sequence[KeptRun]) -> list[KeptRun]:
    """A row for each seed; those of a mean have its mean and its deviation, in no order that means anything."""
    made = []
    for row in rows:
        total = row.regret + row.later_regret
        apart = np.linspace(-1.0, 1.0, row.seeds) if row.seeds > 1 and total > 0.0 else np.zeros(row.seeds)
        scale = row.deviation / total / float(apart.std(ddof=1)) if apart.any() else 0.0
        for i, share in enumerate(1.0 + scale * apart):
            own = {"regret": row.regret * share, "later_regret": row.later_regret * share}
            made.append(row._replace(seed=row.seed + i, **own))
    return made


def made_by(agent: str) -> str:
    """Which engine an agent of it is, or the packages and a hash of the code of another."""
    if agent in OF_ENGINE:
        return f"engine {origin.engine_hash()}"
    packages = PACKAGES.get(str(AGENTS[agent]).partition(":")[0], ("numpy",))
    return f"{', '.join(f'{name} {_version(name)}' for name in packages)}; code {_code()}"


@cache
def _code() -> str:
    """A hash of the domains, the protocol, the peers and the paper's preset."""
    bench, digest = HERE / "bench", hashlib.sha256()
    folders = bench / "domains", bench / "agents", Path(rasp_tuner.paper.__file__).parent
    for file in (
        bench / "runner" / "protocol.py",
        *(file for folder in folders for file in sorted(folder.glob("*.py"))),
    ):
        digest.update(file.name.encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:SHOWN_DIGITS]


def read(file: Path) -> list[KeptRun]:
    """The rows of a file that `write` wrote; none if it is not there."""
    if not file.is_file():
        return []
    head, *rows = csv.reader(io.StringIO(file.read_text(encoding="utf-8")))
    whole = {"horizon", "seed", "steps", "seeds"}

    def value(name: str, text: str) -> str | int | float:
        if name in ("domain", "agent", "made_by"):
            return text
        return int(text) if name in whole else float(text or "nan")

    return [KeptRun(**{name: value(name, text) for name, text in zip(head, row, strict=True)}) for row in rows]  # type: ignore[arg-type]


def write(file: Path, rows: Sequence[KeptRun]) -> None:
    """One line a run, in the order of their names; seven digits are enough for every table."""
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    out.writerow(KeptRun._fields)
    for row in sorted(rows, key=lambda row: (row.horizon, row.domain, row.agent, row.seed)):
        out.writerow([_shown(value) for value in row])
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, text.getvalue().encode())


def rounded(row: KeptRun) -> KeptRun:
    """The row as it reads back."""
    floats = {name: value for name, value in row._asdict().items() if isinstance(value, float)}
    return row._replace(**{name: float(_shown(value) or "nan") for name, value in floats.items()})  # type: ignore[arg-type]


def _first_part(run: Runs) -> Flags:
    """Which steps are in it [T]."""
    steps = np.arange(run.horizon)
    if run.domain.startswith("W_Scales"):
        first: Flags = run["regime"][0] == CHEAP
        return first
    if run.domain.startswith("W_Near"):
        return np.asarray(steps < START_STEPS)
    return np.asarray(steps < (run.horizon - LAST_STEPS if is_world(run.domain) else run.horizon // 2))


def _rest(row: KeptRun) -> int:
    return max(row.horizon - row.steps, 1)


def _spread(first: Flags, values: Sequence[tuple[float, float]]) -> Array:
    early, late = np.array(values).T[:, :, None]
    spread: Array = np.where(first, early, late)
    return spread


def _shown(value: object) -> str:
    if isinstance(value, float):
        return "" if value != value else f"{value:.7g}"
    return str(value)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
