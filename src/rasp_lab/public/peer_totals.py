"""What runs of peers came to, as a table that is committed: they do not depend on our engine, and take hours.

A run counts while the package that made it has the same version, and the code that plays it has not changed.
"""

import csv
import hashlib
import io
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path

from rasp_lab.public import kernels, peers, protocols, serving, tables
from rasp_lab.public.cells import OURS, Cell
from rasp_lab.public.measures import Total, Totals
from rasp_tuner.files.snapshot import write as write_whole

PLACE = Path("results", "public", "peers.csv")  # beside the page
HEAD = ("protocol", "set", "agent", "seed", "measure", "count", "mean", "made by")
PACKAGES = {"TPE": "optuna", "CMA-ES": "cmaes"} | dict.fromkeys(kernels.STRATEGIES, "kernel_tuner")
PLAYED_BY = {"serving": serving, "kernels": kernels}  # else protocols


@cache
def made_by(protocol: str, agent: str) -> str:
    """The package and its version, if there is one, and a digest of the code that plays it."""
    modules = (tables, peers, PLAYED_BY.get(protocol, protocols))
    code = b"\0".join(Path(str(module.__file__)).read_bytes() for module in modules)
    package = PACKAGES.get(agent)
    digest = hashlib.sha256(code).hexdigest()[:8]
    return digest if package is None else f"{package} {version(package)}, {digest}"


def read(file: Path) -> dict[Cell, Totals]:
    """The runs that still count; none if there is no such file."""
    found: dict[Cell, dict[str, Total]] = {}
    if not file.is_file():
        return {}
    with file.open(newline="") as lines:
        for row in csv.DictReader(lines):
            if row["made by"] == made_by(row["protocol"], row["agent"]):
                cell = Cell(row["protocol"], row["set"], row["agent"], int(row["seed"]))
                found.setdefault(cell, {})[row["measure"]] = Total(int(row["count"]), float(row["mean"]))
    return dict(found)


def write(found: Mapping[Cell, Totals], file: Path) -> None:
    """Those that are not ours, and those that the file has and that still count."""
    every = {**read(file), **{cell: own for cell, own in found.items() if not cell.agent.startswith(OURS)}}
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(HEAD)
    for cell in sorted(every):
        for measure, (count, mean) in every[cell].items():
            lines.writerow([*cell, measure, count, f"{mean:.6f}", made_by(cell.protocol, cell.agent)])
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, text.getvalue().encode())
