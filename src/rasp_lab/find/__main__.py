"""Does a tuner find what is there? Replays measured tables, and counts how often the setting that it would recommend
after a number of runs is over 5% from the best of its input.

    python -m rasp_lab.find                                  # the table of gcc flags in this folder; some minutes
    python -m rasp_lab.find --data FOLDER --half develop     # tables of a folder
    python -m rasp_lab.find --seeds 3 --methods find,random --noises 0.05

Of a table only its rows can run. A search is told which they are, as random search is ("untold" is not); TPE is not,
and gets the nearest row. "all" is one study for all inputs in turn, "each" one study for each input, with as many runs
on every input. Noise is a factor exp(deviation x normal). Random search never tries a setting twice; it and TPE, one
for each input, choose the setting with the least measured cost.
"""

import argparse
import math
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rasp_lab.find.worlds import World, formulas, gcc_flags, stored
from rasp_tuner import Tuner
from rasp_tuner.contexts import Category
from rasp_tuner.space import Categorical, Float, Int, Knob, Params
from rasp_tuner.types import Goal, Metric

MISSED = 1.05


class Outcome(NamedTuple):
    """Of one input."""

    ratio: float  # cost of the chosen setting over the least one
    tried: int  # different settings


class Replay:
    """A world with noise."""

    def __init__(self, world: World, noise: float, seed: int) -> None:
        self.world, self._noise = world, noise
        self._rng = np.random.default_rng([seed, round(1e6 * noise), 77])
        self.tried: list[set[tuple[object, ...]]] = [set() for _ in world.least]

    def run(self, input: int, params: Params) -> float:
        self.tried[input].add(tuple(params.values()))
        return self.world.cost(input, params) * math.exp(self._noise * self._rng.standard_normal())

    def outcome(self, input: int, params: Params) -> Outcome:
        ratio = self.world.cost(input, params) / float(self.world.least[input])
        return Outcome(max(ratio, 1.0), len(self.tried[input]))


def by_tuner(replay: Replay, runs: int, seed: int, together: bool, goal: Goal, told: bool = True) -> list[Outcome]:
    """`told`: a search knows which settings can run, as random search does."""
    world, inputs = replay.world, range(len(replay.world.least))
    outcomes = []
    for group in [list(inputs)] if together else [[i] for i in inputs]:
        options: dict[str, Any] = {"budget": 1e9} if goal == "live" else {"goal": goal}
        metric = {"time_s": Metric("min", scale="log")}
        schema = {"input": Category()} if together else None
        tuner = Tuner(world.knobs, metric, schema, world.default, seed=seed * 1000 + group[0], **options)
        listed = None if world.rows is None or goal == "live" or not told else tuner.listed(world.rows)
        for step in range(runs * len(group)):
            input = group[step % len(group)]
            suggestion = tuner.ask({"input": str(input)} if together else None, among=listed)
            ran = world.ran(suggestion.params)
            tuner.tell(suggestion.id, {"time_s": replay.run(input, ran)}, ran)
        for input in group:
            best = tuner.recommend({"input": str(input)} if together else None)
            outcomes.append(replay.outcome(input, world.ran(best)))
    return outcomes


def by_chance(replay: Replay, runs: int, seed: int) -> list[Outcome]:
    world, outcomes = replay.world, []
    for input in range(len(world.least)):
        drawn = world.drawn(np.random.default_rng([seed, input, 5]), runs)
        seen = [(replay.run(input, row), i, row) for i, row in enumerate([world.default, *drawn][:runs])]
        outcomes.append(replay.outcome(input, min(seen)[2]))
    return outcomes


def by_tpe(replay: Replay, runs: int, seed: int) -> list[Outcome]:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    world, outcomes = replay.world, []
    for input in range(len(world.least)):
        study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed * 1000 + input))
        study.enqueue_trial(dict(world.default))
        rows: list[Params] = []

        def objective(trial: optuna.Trial, input: int = input, rows: list[Params] = rows) -> float:
            rows.append(world.ran({name: drawn(trial, name, knob) for name, knob in world.knobs.items()}))
            return replay.run(input, rows[-1])

        study.optimize(objective, n_trials=runs)
        outcomes.append(replay.outcome(input, rows[study.best_trial.number]))
    return outcomes


def drawn(trial: Any, name: str, knob: Knob) -> Any:
    if isinstance(knob, Categorical):
        return trial.suggest_categorical(name, list(knob.choices))
    if isinstance(knob, Float):
        return trial.suggest_float(name, knob.low, knob.high, log=knob.log)
    if isinstance(knob, Int):
        return trial.suggest_int(name, knob.low, knob.high, log=knob.log)
    raise TypeError(knob)


METHODS = {
    "find, all": lambda replay, runs, seed: by_tuner(replay, runs, seed, True, "find"),
    "find, each": lambda replay, runs, seed: by_tuner(replay, runs, seed, False, "find"),
    "untold, all": lambda replay, runs, seed: by_tuner(replay, runs, seed, True, "find", False),
    "live, all": lambda replay, runs, seed: by_tuner(replay, runs, seed, True, "live"),
    "live, each": lambda replay, runs, seed: by_tuner(replay, runs, seed, False, "live"),
    "random": by_chance,
    "TPE": by_tpe,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with tables/*.npz; else the gcc flags of this folder")
    parser.add_argument("--formulas", action="store_true", help="small made-up systems instead of tables")
    parser.add_argument("--half", choices=("develop", "report"), default="develop", help="of the tables in --data")
    parser.add_argument("--runs", type=int, default=20, help="on each input")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--noises", default="0.002,0.05")
    parser.add_argument("--methods", default=",".join(name.replace(", ", "-") for name in METHODS))
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if args.formulas:
        worlds = [formulas(seed) for seed in range(args.seeds)]
    else:
        worlds = [[gcc_flags()] if args.data is None else stored(args.data, args.half)] * args.seeds
    report(worlds, args)


def report(worlds: list[list[World]], args: argparse.Namespace) -> None:
    """`worlds` has those of every seed."""
    for noise in map(float, args.noises.split(",")):
        total: dict[str, list[Outcome]] = {}
        for at, world in enumerate(worlds[0]):
            print(f"{world.name}: {len(world.least)} inputs, {args.runs} runs on each, noise {noise:.1%}")
            for name in [name.replace("-", ", ") for name in args.methods.split(",")]:
                found = [
                    outcome
                    for seed in range(args.seeds)
                    for outcome in METHODS[name](Replay(worlds[seed][at], noise, seed), args.runs, seed)
                ]
                total.setdefault(name, []).extend(found)
                print(line(name, found), flush=True)
        if len(worlds[0]) > 1:
            print(f"all, noise {noise:.1%}")
            for name, found in total.items():
                print(line(name, found))


def line(name: str, found: list[Outcome]) -> str:
    missed = sum(outcome.ratio > MISSED for outcome in found)
    ratio = math.exp(float(np.mean([math.log(outcome.ratio) for outcome in found])))
    tried = float(np.mean([outcome.tried for outcome in found]))
    worst = max(outcome.ratio for outcome in found)
    return (
        f"  {name:12} over 5% from the best: {missed:3} of {len(found)}   cost over the best: {ratio:.3f}"
        f" (worst {worst:.2f})   settings tried on an input: {tried:.1f}"
    )


if __name__ == "__main__":
    main()
