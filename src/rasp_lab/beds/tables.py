"""Measured tables, of a folder that is not part of the repository: a suggestion runs as the nearest measured row.

A file `tables/*.npz` has X [n, d] measured settings in the unit box, `levels` [d, most] their legal values (padded with
NaN), `cat` [d] which knobs are unordered, L [m, n] log(cost / least cost) in each of m contexts, `base` [m] the
logarithm of that least cost, `ctx` [m, d_c], `default` [d], `iid` whether each step has a fresh context, else they last
`block` / 2 to 1.5 `block` steps, and `ctxnoise` the deviation added to contexts. The tuner is told the cost, with
noise; regret is in logarithms.
"""

from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rasp_lab.beds.bed import Bed, Measure, Options, Values
from rasp_tuner import Categorical, Int, Tuner
from rasp_tuner.space import Knob, Params

STEPS = 300
NOISE = 0.02  # deviation of a measured log(cost)
HARM = np.log(1.1)  # over 10% worse than the default

Array = NDArray[np.float64]


class Table:
    """Settings are vectors of level numbers [d]."""

    def __init__(self, file: Path) -> None:
        with np.load(file) as found:
            self.loss, self.base, self.contexts = (found[name].astype(float) for name in ("L", "base", "ctx"))
            self.iid, self.block, self.blur = bool(found["iid"]), int(found["block"]), float(found["ctxnoise"])
            self.unordered = found["cat"].astype(bool)
            self._levels = [row[~np.isnan(row)] for row in found["levels"].astype(float)]
            self.rows = self._numbers(found["X"].astype(float))  # [n, d]
            self.default = self._numbers(found["default"].astype(float)[None])[0]
        self._nearest: dict[tuple[int, ...], int] = {}
        self.standing = self.nearest(self.default)

    @property
    def space(self) -> dict[str, Knob]:
        def knob(count: int, unordered: bool) -> Knob:
            return Categorical([f"c{i}" for i in range(count)]) if unordered else Int(0, count - 1)

        return {
            f"k{i}": knob(len(levels), cat)
            for i, (levels, cat) in enumerate(zip(self._levels, self.unordered, strict=True))
        }

    def params(self, setting: Array) -> Params:
        return {
            f"k{i}": f"c{int(v)}" if cat else int(v)
            for i, (v, cat) in enumerate(zip(setting, self.unordered, strict=True))
        }

    def setting(self, params: Params) -> Array:
        return np.array([float(str(value).removeprefix("c")) for value in params.values()])

    def nearest(self, setting: Array) -> int:
        """The measured row nearest to a setting; two levels of an unordered knob are as far apart as any knob goes."""
        key = tuple(setting.astype(int).tolist())
        if key not in self._nearest:
            widths = np.array([max(len(levels) - 1, 1) for levels in self._levels])
            gaps = np.where(self.unordered, self.rows != setting, (self.rows - setting) / widths)
            self._nearest[key] = int((gaps**2).sum(axis=1).argmin())
        return self._nearest[key]

    def sequence(self, steps: int, rng: np.random.Generator) -> list[int]:
        """Which context each step has."""
        found: list[int] = []
        while len(found) < steps:
            length = 1 if self.iid else int(rng.integers(self.block // 2, 3 * self.block // 2 + 1))
            found += [int(rng.integers(len(self.loss)))] * length
        return found[:steps]

    def _numbers(self, points: Array) -> Array:
        return np.column_stack(
            [np.abs(points[:, [i]] - levels).argmin(axis=1) for i, levels in enumerate(self._levels)]
        ).astype(float)


def cells(options: Options) -> list[str]:
    """Names of tables: of the sorted list every other one is to choose by, the others to report."""
    names = sorted(file.stem for file in _folder(options).glob("*.npz"))
    if options.half == "all":
        return names
    return names[options.half == "report" :: 2]


def missing(options: Options) -> str | None:
    if options.data is None:
        return "no measured tables: give their folder with --data DIR"
    return None if any(_folder(options).glob("*.npz")) else f"no *.npz in {_folder(options)}"


def run(cell: str, seed: int, options: Options) -> Values:
    table = _read(_folder(options) / f"{cell}.npz")
    rng = np.random.default_rng([seed, 7])
    order = table.sequence(STEPS, rng)
    blur = table.blur * rng.normal(size=(STEPS, table.contexts.shape[1]))
    noise = NOISE * rng.normal(size=STEPS)
    tuner = Tuner(table.space, {"cost": "min"}, table.contexts.shape[1], table.params(table.default), seed=seed)
    loss = []
    for step, here in enumerate(order):
        suggestion = tuner.ask(table.contexts[here] + blur[step])
        row = table.nearest(table.setting(suggestion.params))
        ran = table.params(table.rows[row])
        metrics = {"cost": float(np.exp(table.loss[here, row] + table.base[here] + noise[step]))}
        tuner.tell(suggestion.id, metrics, None if ran == suggestion.params else ran)
        loss.append(table.loss[here, row])
    still = table.loss[order, table.standing]
    return {
        "regret / static": float(np.sum(loss) / still.sum()),
        "steps over 10% worse": float(np.mean(loss - still > HARM)),
    }


def _folder(options: Options) -> Path:
    return Path(options.data or ".") / "tables"


@cache
def _read(file: Path) -> Table:
    return Table(file)


BED = Bed(
    "tables",
    4,
    {"regret / static": Measure(wanted=0.4), "steps over 10% worse": Measure("mean", wanted=0.03)},
    cells,
    run,
    missing=missing,
)
