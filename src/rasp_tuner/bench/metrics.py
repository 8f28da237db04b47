"""What a set of runs adds up to (paper, Section Baselines and Metrics).

R_T is the cumulative regret of a run. A ratio is its mean over seeds divided by that of the static default: below one
is better than doing nothing. Adaptation speed is the first step from which the rolling mean of the true loss over
ADAPT_WINDOW steps stays within ADAPT_SHARE of the way from the best agent's level to the static default's.
"""

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rasp_tuner.bench.protocol import COLUMNS
from rasp_tuner.errors import InvalidValue
from rasp_tuner.numerics import Array

ADAPT_WINDOW = 10  # the paper's W
ADAPT_SHARE = 0.1  # the paper's alpha, as a share of the gap between static and best: the best loss itself may be zero
NORMAL_50, NORMAL_90 = 0.6744897501960817, 1.6448536269514722  # two-sided quantiles of the normal distribution


@dataclass(frozen=True, slots=True)
class Runs:
    """All seeds of one agent on one domain at one horizon; every array is [seeds, steps], missing values are NaN."""

    domain: str
    agent: str
    horizon: int
    seeds: tuple[int, ...]
    columns: Mapping[str, Array]

    def __getitem__(self, column: str) -> Array:
        return self.columns[column]

    @property
    def totals(self) -> Array:
        """Cumulative regret R_T [seeds]."""
        total: Array = self["regret"].sum(axis=1)
        return total


def load(path: Path) -> list[Runs]:
    """The runs of a steps.csv, in its order."""
    try:
        with path.open(newline="") as file:
            reader = csv.reader(file)
            header = next(reader, [])
            if header[: len(COLUMNS)] != COLUMNS:
                raise InvalidValue(f"{path} is not a step table of this version: its columns are {header}")
            grouped: dict[tuple[str, str, int], dict[int, list[list[str]]]] = {}
            for row in reader:
                cell = grouped.setdefault((row[0], row[1], int(row[2])), {})
                cell.setdefault(int(row[3]), []).append(row)
    except OSError as reason:
        raise InvalidValue(f"cannot read {path}: {reason}; run `rasp bench --out DIR` first") from reason
    return [_runs(domain, agent, horizon, by_seed) for (domain, agent, horizon), by_seed in grouped.items()]


def _runs(domain: str, agent: str, horizon: int, by_seed: Mapping[int, list[list[str]]]) -> Runs:
    seeds = tuple(sorted(by_seed))
    table = np.array(
        [[[float(value) if value else np.nan for value in row[4:]] for row in by_seed[seed]] for seed in seeds]
    )
    return Runs(domain, agent, horizon, seeds, {name: table[:, :, i] for i, name in enumerate(COLUMNS[4:])})


def select(runs: Iterable[Runs], *, domain: str, agent: str, horizon: int) -> Runs | None:
    """The one that matches, if there is one."""
    wanted = (domain, agent, horizon)
    return next((r for r in runs if (r.domain, r.agent, r.horizon) == wanted), None)


def ratios(runs: Iterable[Runs], horizon: int) -> dict[str, dict[str, float]]:
    """agent -> domain -> mean regret relative to the static default, over the seeds both ran."""
    at_horizon = [r for r in runs if r.horizon == horizon]
    static = {r.domain: r for r in at_horizon if r.agent == "static"}
    table: dict[str, dict[str, float]] = {}
    for r in at_horizon:
        if r.domain in static:
            shared = [seed for seed in r.seeds if seed in static[r.domain].seeds]
            own = np.mean([r.totals[r.seeds.index(seed)] for seed in shared])
            base = np.mean([static[r.domain].totals[static[r.domain].seeds.index(seed)] for seed in shared])
            table.setdefault(r.agent, {})[r.domain] = float(own / base) if base > 0 else float("nan")
    return table


def geometric_mean(values: Iterable[float]) -> float:
    """exp of the mean log; NaN for no values; zero if one is zero."""
    array = np.array(list(values))
    if len(array) == 0 or np.isnan(array).any():
        return float("nan")
    return float(np.exp(np.log(array).mean())) if np.all(array > 0) else 0.0


def rolling_mean(values: Array, window: int = ADAPT_WINDOW) -> Array:
    """Means over `window` steps [seeds, steps - window + 1]; over all of them where there are fewer."""
    window = min(window, values.shape[1])
    sums = np.cumsum(np.pad(values, ((0, 0), (1, 0))), axis=1)
    means: Array = (sums[:, window:] - sums[:, :-window]) / window
    return means


def adaptation_steps(r: Runs, best_level: float, static_level: float) -> float | None:
    """Mean over seeds of the first step from which the rolling loss stays near the best; None if a seed never does."""
    limit = best_level + ADAPT_SHARE * (static_level - best_level)
    steps = []
    for curve in rolling_mean(r["loss"]):
        above = np.flatnonzero(curve > limit)
        first = 0 if len(above) == 0 else int(above[-1]) + 1
        if first >= len(curve):
            return None
        steps.append(first + min(ADAPT_WINDOW, r["loss"].shape[1]))
    return float(np.mean(steps))


def settled_level(r: Runs) -> float:
    """Mean loss over the last fifth of the steps: where the agent ends up."""
    tail = max(1, r["loss"].shape[1] // 5)
    return float(r["loss"][:, -tail:].mean())


def calibration(r: Runs) -> dict[str, float] | None:
    """Mean negative log-likelihood and coverage of the 50% and 90% intervals; None where nothing was predicted."""
    gap, deviation = r["error"] - r["predicted"], np.maximum(r["deviation"], 1e-6)
    known = ~np.isnan(gap) & ~np.isnan(deviation)
    if not known.any():
        return None
    z = np.abs(gap[known] / deviation[known])
    nll = 0.5 * z**2 + np.log(deviation[known]) + 0.5 * np.log(2 * np.pi)
    return {
        "nll": float(nll.mean()),
        "coverage_50": float((z <= NORMAL_50).mean()),
        "coverage_90": float((z <= NORMAL_90).mean()),
    }


def latency(r: Runs) -> dict[str, float]:
    """Median and 99th percentile of ask + tell, in milliseconds."""
    step = r["ask_ms"] + r["tell_ms"]
    return {"median_ms": float(np.median(step)), "p99_ms": float(np.percentile(step, 99))}
