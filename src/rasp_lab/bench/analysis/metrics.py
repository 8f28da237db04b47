"""What a set of runs adds up to (paper, Section Baselines and Metrics).

R_T is the cumulative regret of a run. A ratio is its mean over seeds divided by that of the static default: below one
is better than doing nothing. Adaptation speed is the first step from which the rolling mean of the true loss over
ADAPT_WINDOW steps stays within ADAPT_SHARE of the way from the best agent's level to the static default's. A seed that
never gets there counts as later than every other, so the median over seeds is known once half of them are there.
"""

import csv
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rasp_lab.bench.domains import SYNTHETIC
from rasp_lab.bench.runner.protocol import COLUMNS, FIRST_COLUMNS
from rasp_tuner.base.numerics import Array
from rasp_tuner.errors import InvalidValue

ADAPT_WINDOW = 10  # the paper's W
ADAPT_SHARE = 0.1  # the paper's alpha, as a share of the gap between static and best: the best loss itself may be zero
MEND = "run the same `rasp bench` again, which writes it anew"
UNPAIRED = "unpaired"  # a column of runs whose seeds are not known one by one
NORMAL_50, NORMAL_90 = 0.6744897501960817, 1.6448536269514722  # two-sided quantiles of the normal distribution


class Adaptation(NamedTuple):
    """On how many seeds an agent adapts, and at which step; None if half of them or more never do."""

    reached: int
    seeds: int
    median_step: float | None


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
    """The runs of a steps.csv, in its order; a table that is not whole is refused."""
    try:
        file = path.open(newline="")
    except OSError as reason:
        raise InvalidValue(f"cannot read {path}: {reason}; run `rasp bench --out DIR` first, to its end") from reason
    grouped: dict[tuple[str, str, int], dict[int, array[float]]] = {}  # numbers at once: text would fill memory
    with file:
        reader = csv.reader(file)
        try:
            header = next(reader, [])
            for row in reader if header in (COLUMNS, FIRST_COLUMNS) else ():
                cell = grouped.setdefault((row[0], row[1], int(row[2])), {})
                numbers = cell.setdefault(int(row[3]), array("d"))
                numbers.extend(float(value) if value else np.nan for value in row[4:])
        except (ValueError, IndexError, csv.Error) as reason:
            raise InvalidValue(f"{path} is damaged in line {reader.line_num}: {reason}; {MEND}") from reason
    if header not in (COLUMNS, FIRST_COLUMNS):
        raise InvalidValue(f"{path} is not a step table of this version: its columns are {header}")
    for (domain, agent, horizon), by_seed in grouped.items():
        for seed, numbers in by_seed.items():
            if len(numbers) != horizon * (len(header) - 4):
                raise InvalidValue(f"{path} must have {horizon} whole rows of {agent} on {domain}, seed {seed}; {MEND}")
    return [_runs(domain, agent, horizon, by_seed, header[4:]) for (domain, agent, horizon), by_seed in grouped.items()]


def _runs(domain: str, agent: str, horizon: int, by_seed: Mapping[int, "array[float]"], names: Sequence[str]) -> Runs:
    seeds = tuple(sorted(by_seed))
    table = np.array([by_seed[seed] for seed in seeds]).reshape(len(seeds), -1, len(names))
    columns = {name: table[:, :, i] for i, name in enumerate(names)}
    return Runs(domain, agent, horizon, seeds, {"recommended": np.full(table.shape[:2], np.nan), **columns})


def select(runs: Iterable[Runs], *, domain: str, agent: str, horizon: int) -> Runs | None:
    """The one that matches, if there is one."""
    wanted = (domain, agent, horizon)
    return next((r for r in runs if (r.domain, r.agent, r.horizon) == wanted), None)


def shared_totals(ours: Runs, theirs: Runs) -> tuple[Array, Array]:
    """R_T of both, over the seeds both ran, in the same order: the same streams and noise."""
    both = [seed for seed in ours.seeds if seed in theirs.seeds]
    own, other = ([r.totals[r.seeds.index(seed)] for seed in both] for r in (ours, theirs))
    return np.array(own), np.array(other)


def ratios(runs: Iterable[Runs], horizon: int) -> dict[str, dict[str, float]]:
    """agent -> domain -> mean regret relative to the static default, over the seeds both ran."""
    at_horizon = [r for r in runs if r.horizon == horizon]
    static = {r.domain: r for r in at_horizon if r.agent == "static"}
    table: dict[str, dict[str, float]] = {}
    for r in at_horizon:
        if r.domain in static:
            own, base = shared_totals(r, static[r.domain])
            ratio = float(own.mean() / base.mean()) if base.sum() > 0 else float("nan")
            table.setdefault(r.agent, {})[r.domain] = ratio
    return table


def geometric_mean(values: Iterable[float]) -> float:
    """exp of the mean log; NaN for no values; zero if one is zero."""
    array = np.array(list(values))
    if len(array) == 0 or np.isnan(array).any():
        return float("nan")
    return float(np.exp(np.log(array).mean())) if np.all(array > 0) else 0.0


def geometric_means(runs: Iterable[Runs], horizon: int) -> dict[str, float]:
    """Geometric mean of the ratios over the paper's nine domains, of each agent that ran on all nine.

    If every domain is made harder in the same way, the nine are those made harder, too.
    """
    found = ratios(runs, horizon)
    ways = {"+".join(domain.split("+")[1:]) for row in found.values() for domain in row}
    suffix = f"+{way}" if len(ways) == 1 and (way := ways.pop()) else ""
    nine = [domain + suffix for domain in SYNTHETIC]
    table = {agent: row for agent, row in found.items() if set(nine) <= set(row)}
    return {agent: geometric_mean(row[domain] for domain in nine) for agent, row in table.items()}


def rolling_mean(values: Array, window: int = ADAPT_WINDOW) -> Array:
    """Means over `window` steps [seeds, steps - window + 1]; over all of them where there are fewer."""
    window = min(window, values.shape[1])
    sums = np.cumsum(np.pad(values, ((0, 0), (1, 0))), axis=1)
    means: Array = (sums[:, window:] - sums[:, :-window]) / window
    return means


def adaptation(r: Runs, best_level: float, static_level: float) -> Adaptation | None:
    """When the rolling loss comes near the best and stays; None if the static default leaves no gap to close."""
    if static_level <= best_level:
        return None
    limit = best_level + ADAPT_SHARE * (static_level - best_level)
    steps = []
    for curve in rolling_mean(r["loss"]):
        above = np.flatnonzero(curve > limit)
        first = 0 if len(above) == 0 else int(above[-1]) + 1
        steps.append(first + min(ADAPT_WINDOW, r["loss"].shape[1]) if first < len(curve) else np.inf)
    median = float(np.median(steps))
    return Adaptation(int(np.isfinite(steps).sum()), len(steps), median if np.isfinite(median) else None)


def regret_after_switches(r: Runs) -> list[list[tuple[int, float]]]:
    """Of each seed, block after block: the regime, and the mean regret of the first ADAPT_WINDOW steps in it."""
    told = []
    for regimes, regret in zip(r["regime"], r["regret"], strict=True):
        starts = [0, *(np.flatnonzero(np.diff(regimes)) + 1)]
        ends = [*starts[1:], len(regimes)]
        first = [regret[i : min(i + ADAPT_WINDOW, end)] for i, end in zip(starts, ends, strict=True)]
        told.append([(int(regimes[i]), float(cost.mean())) for i, cost in zip(starts, first, strict=True)])
    return told


def settled_level(r: Runs) -> float:
    """Mean loss over the last fifth of the steps: where the agent ends up."""
    tail = max(1, r["loss"].shape[1] // 5)
    return float(r["loss"][:, -tail:].mean())


def second_half_ratio(r: Runs) -> float:
    """Regret of the second half of the steps relative to the first: below one, what was learned paid."""
    half = r["regret"].shape[1] // 2
    first = float(r["regret"][:, :half].sum())
    return float(r["regret"][:, -half:].sum()) / first if first > 0 else float("nan")


def calibration(*runs: Runs) -> dict[str, float] | None:
    """Mean negative log-likelihood and coverage of the 50% and 90% intervals over all steps; None without forecasts."""
    error, predicted, deviation = (
        np.concatenate([r[name].ravel() for r in runs]) for name in ("error", "predicted", "deviation")
    )
    gap, deviation = error - predicted, np.maximum(deviation, 1e-6)
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


def latency(*runs: Runs) -> dict[str, float]:
    """Median and 99th percentile of ask + tell over all steps, in milliseconds."""
    step = np.concatenate([(r["ask_ms"] + r["tell_ms"]).ravel() for r in runs])
    return {"median_ms": float(np.median(step)), "p99_ms": float(np.percentile(step, 99))}
