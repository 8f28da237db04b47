"""A GPU kernel (dedispersion) on six GPUs: Kernel Tuner's own strategies beside ours, in its simulation of past runs.

The score is the one of the package autotuning_methodology: 0 is random search, 1 the optimum at once. With F(t) the
best that was found after t seconds of evaluations, and B(t) what random search is expected to have found by then,

    score = mean over t of (B(t) - F(t)) / (B(t) - optimum)

and t goes from the time that random search needs for half of the way from the median to the optimum to the time that it
needs for 95% of it. After M evaluations B is the value of rank M (N + 1) / (M + 1) of all N, from the worst on.
"""

import contextlib
import csv
import io
import json
import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rasp_lab.public.cells import LATER, OURS, Cell, Row
from rasp_lab.public.tables import Array

GPUS = ("A100", "A4000", "A6000", "MI250X", "W6600", "W7800")
TUNED = "genetic algorithm, tuned"
STRATEGIES: dict[str, tuple[str, dict[str, Any]]] = {
    "genetic algorithm": ("genetic_algorithm", {}),
    TUNED: ("genetic_algorithm", {"method": "single_point", "popsize": 20, "maxiter": 150, "mutation_chance": 5}),
    "simulated annealing": ("simulated_annealing", {}),
    "dual annealing": ("dual_annealing", {}),
    "differential evolution": ("diff_evo", {}),
    "particle swarm": ("pso", {}),
    "firefly": ("firefly_algorithm", {}),
    "random sample": ("random_sample", {}),
}
AGENTS = (OURS, LATER, *STRATEGIES)
RULES = ["32 <= block_size_x * block_size_y <= 1024"]
RULES += [f"tile_stride_{axis} < 1 or tile_size_{axis} > 1" for axis in "xy"]
BEFORE = 200  # evaluations on each of the five other GPUs
SPARE = 1.25  # evaluations beyond those of random search: who picks quick configurations has time for more
POINTS = 1000  # of the time axis


class Kernel(NamedTuple):
    """n configurations, all of which ran on all GPUs."""

    knobs: list[str]  # d
    settings: NDArray[np.int64]  # [n, d]
    gpus: list[str]  # g
    time: Array  # [g, n] milliseconds
    seconds: Array  # [g, n] what an evaluation takes: to compile, to verify, to measure
    span: dict[str, tuple[int, int]]  # evaluations of random search at both ends of the axis, by GPU

    def values(self) -> dict[str, list[int]]:
        return {name: np.unique(own).tolist() for name, own in zip(self.knobs, self.settings.T, strict=True)}


@cache
def kernel(folder: Path) -> Kernel:
    with np.load(folder / "kernel_hub" / "dedispersion.npz") as file:
        parts = (file["time_ms"].astype(float), file["eval_s"].astype(float))
        knobs, settings, gpus = file["knobs"].tolist(), file["settings"].astype(np.int64), file["gpus"].tolist()
    with (folder / "kernel_hub" / "spaces.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    span = {row["gpu"]: (int(row["cutoff50_evals"]), int(row["cutoff95_evals"])) for row in rows}
    return Kernel(knobs, settings, gpus, *parts, span)


def tune(cell: Cell, folder: Path) -> list[Row]:
    """One row: the score, and after how many evaluations the search ended."""
    data = kernel(folder)
    rng = np.random.default_rng([cell.seed, data.gpus.index(cell.set)])
    others = [gpu for gpu in rng.permutation(data.gpus).tolist() if gpu != cell.set]
    most = int(SPARE * data.span[cell.set][1])
    with TemporaryDirectory() as place:
        if cell.agent in STRATEGIES:
            name, options = STRATEGIES[cell.agent]
            ran = evaluated(data, cell.set, name, options, most, int(rng.integers(2**31)), Path(place))
        else:
            from rasp_tuner.integrations.kernel_tuner import RaspStrategy  # an extra

            ours = RaspStrategy(seed=cell.seed)
            for gpu in others if cell.agent == LATER else ():
                evaluated(data, gpu, ours, {}, BEFORE, 0, Path(place))
            ran = evaluated(data, cell.set, ours, {}, most, 0, Path(place))
    return [{"score": score(data, cell.set, ran), "evaluations": float(len(ran))}]


def evaluated(
    data: Kernel, gpu: str, strategy: Any, options: dict[str, Any], most: int, seed: int, place: Path
) -> list[int]:
    """The rows that a strategy evaluates, each once, in their order."""
    from kernel_tuner import tune_kernel  # an extra, which takes seconds

    random.seed(seed)  # Kernel Tuner's strategies draw from the global generators
    np.random.seed(seed)  # noqa: NPY002
    file = place / f"{gpu}.json"
    if not file.is_file():
        file.write_text(json.dumps(cache_file(data, gpu)))
    with contextlib.redirect_stdout(io.StringIO()):
        results, _ = tune_kernel(
            "k", "void k() {}", (1,), [], data.values(), lang="C", cache=str(file), simulation_mode=True, quiet=True,
            strategy=strategy, restrictions=RULES, strategy_options={"max_fevals": most, **options},
        )  # fmt: skip
    row_of = {tuple(setting): i for i, setting in enumerate(data.settings.tolist())}
    return list(dict.fromkeys(row_of[tuple(result[name] for name in data.knobs)] for result in results))


def cache_file(data: Kernel, gpu: str) -> dict[str, Any]:
    """Kernel Tuner's file of runs that were measured."""
    at = data.gpus.index(gpu)
    timings = dict.fromkeys(("verification_time", "benchmark_time", "strategy_time", "framework_time"), 0)
    entries = {}
    cells = zip(data.settings.tolist(), data.time[at].tolist(), data.seconds[at].tolist(), strict=True)
    for setting, time, seconds in cells:
        own = dict(zip(data.knobs, setting, strict=True))
        entry = {**own, "time": time, "times": [time], "compile_time": 1000 * seconds, **timings}
        entries[",".join(map(str, setting))] = entry | {"timestamp": "2026-01-01 00:00:00+00:00"}
    head = {"device_name": gpu, "kernel_name": "k", "problem_size": [1], "tune_params_keys": data.knobs}
    return head | {"tune_params": data.values(), "objective": "time", "schema_version": "1.0.0", "cache": entries}


def score(data: Kernel, gpu: str, ran: Sequence[int]) -> float:
    """Of a search that evaluates these rows; before its first evaluation ends it has the median."""
    at = data.gpus.index(gpu)
    time, seconds = data.time[at], data.seconds[at]
    start, end = (evals * float(seconds.mean()) for evals in data.span[gpu])
    axis = np.linspace(start, end, POINTS)
    random_search = baseline(time, axis / float(seconds.mean()))
    best = np.minimum.accumulate(time[list(ran)])
    done = np.searchsorted(np.cumsum(seconds[list(ran)]), axis, side="right")
    found = np.where(done > 0, best[np.maximum(done, 1) - 1], np.median(time))
    return float(np.mean((random_search - found) / (random_search - time.min())))


def baseline(time: Array, evaluations: Array) -> Array:
    """What random search without replacement is expected to have found after some evaluations."""
    worst_first = np.sort(time)[::-1]
    n = len(time)
    rank = np.round(evaluations * (n + 1) / (evaluations + 1)).astype(int)
    found: Array = worst_first[np.clip(rank, 1, n) - 1]
    return found
