"""How often the interval of `Tuner.savings()` is ever wrong, over all looks of a run.

python -m rasp_lab.experiments.savings_coverage                  # the table of docs/SAVINGS.md
python -m rasp_lab.experiments.savings_coverage --runs 50 --steps 300

`ever` is the share of runs in which the true saving lay outside at one look or more: a look after every step. `usual`
is the same for the usual 95% interval of the same sums, which holds at one look only. `proven` is the share of runs in
which a saving was proven, and `at` the median step; where nothing matters, that is an error, and a part of `ever`.
"""

import argparse
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from rasp_tuner import Categorical, Float, Tuner
from rasp_tuner.base.numerics import Array
from rasp_tuner.gain.savings import MIXTURE
from rasp_tuner.optimizer.optimizer import Proposal
from rasp_tuner.space import Knob
from rasp_tuner.types import Why

USUAL = 1.96  # deviations of an interval for one look
SMOOTH: dict[str, Knob] = {f"x{i}": Float(0.0, 1.0) for i in range(3)}
CHOICES: dict[str, Knob] = {"x0": Float(0.0, 1.0), "mode": Categorical(["a", "b", "c"])}
DEFAULT = {"x0": 0.5, "x1": 0.5, "x2": 0.5, "mode": "a"}


class World(NamedTuple):
    """Losses are exp(log + noise); their logarithms at given settings, load and step."""

    knobs: dict[str, Knob]
    log: Callable[[Mapping[str, Any], float, int], float]
    noise: Callable[[np.random.Generator, float, int], float]


def _normal(deviation: float) -> Callable[[np.random.Generator, float, int], float]:
    return lambda rng, _load, _step: deviation * float(rng.normal())


def _tails(rng: np.random.Generator, _load: float, _step: int) -> float:
    return 0.1 * float(rng.standard_t(3))


def _slow_waves(rng: np.random.Generator, _load: float, step: int) -> float:
    return 0.2 * math.sin(step / 30.0) + 0.1 * float(rng.normal())


def _away(params: Mapping[str, Any], best: float) -> float:
    return sum((value - best) ** 2 for name, value in params.items() if name[0] == "x")


def _mode(params: Mapping[str, Any]) -> float:
    return {"a": 0.0, "b": -0.2, "c": 0.3}[params.get("mode", "a")]


WORLDS = {
    "nothing matters, noise 10%": World(SMOOTH, lambda _, load, __: load, _normal(0.1)),
    "nothing matters, noise 50%": World(SMOOTH, lambda _, load, __: load, _normal(0.5)),
    "nothing matters, heavy tails": World(SMOOTH, lambda _, load, __: load, _tails),
    "nothing matters, slow waves": World(SMOOTH, lambda _, load, __: load, _slow_waves),
    "nothing matters, choices": World(CHOICES, lambda _, load, __: load, _normal(0.2)),
    "smooth gain": World(SMOOTH, lambda p, load, _: load + _away(p, 0.7), _normal(0.2)),
    "moving gain": World(SMOOTH, lambda p, load, t: load + _away(p, 0.5 + 0.3 * math.sin(t / 60)), _normal(0.2)),
    "gain by choices": World(CHOICES, lambda p, load, _: load + _mode(p), _normal(0.2)),
}


class Recorded(Tuner):
    """A tuner that shows which suggestion a draw was about."""

    suggested: dict[str, Any] | None = None

    def _drawn(self, suggested: Array, why: Why, share: float) -> Proposal:
        self.suggested = self._space.from_unit(suggested)
        return super()._drawn(suggested, why, share)


class Run(NamedTuple):
    missed: bool
    missed_usual: bool
    proven_at: float
    width: float  # of the last interval
    saved: float


def play(world: World, seed: int, steps: int, holdout: float) -> Run:
    rng = np.random.default_rng([seed, 7])
    default = {name: DEFAULT[name] for name in world.knobs}
    tuner = Recorded(world.knobs, {"ms": "min"}, ["load"], default, seed=seed, holdout=holdout)
    truth, may_run, missed, missed_usual = 0.0, 0.0, False, False
    for step in range(steps):
        load = float(rng.uniform(0.0, 1.0))
        tuner.suggested = None
        asked = tuner.ask([load])
        may_run += 1.0 if tuner.suggested is None or not step else 1.0 - holdout
        if tuner.suggested is not None:
            truth += (1.0 - holdout) * (world.log(default, load, step) - world.log(tuner.suggested, load, step))
        came = world.log(asked.params, load, step) + world.noise(rng, load, step)
        tuner.tell(asked.id, {"ms": math.exp(came)})
        gain = tuner.savings().gain
        if gain.low is None or gain.high is None:
            continue
        true = -math.expm1(-truth / may_run)
        missed |= not gain.low - 1e-12 <= true <= gain.high + 1e-12
        n = tuner._savings.counts.draws
        if n:
            mean, half = -math.log1p(-gain.value), 0.5 * (math.log1p(-gain.low) - math.log1p(-gain.high))
            usual = half * USUAL / math.sqrt((1 + MIXTURE / n) * (math.log((n + MIXTURE) / MIXTURE / 0.05**2)))
            missed_usual |= abs(mean - truth / may_run) > usual + 1e-12
    found = tuner.savings()
    width = math.nan if found.gain.low is None else found.gain.high - found.gain.low
    proven = min(found.better_since or math.inf, found.worse_since or math.inf)
    return Run(missed, missed_usual, proven, width, -math.expm1(-truth / may_run))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--holdout", type=float, nargs="+", default=[0.05, 0.1])
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--only", default="", help="worlds whose name contains this")
    options = parser.parse_args()
    print(f"{options.runs} runs of {options.steps} steps, looked at after every step")
    head = f"| {'world':28} | holdout | ever | usual | proven |   at | saved | width |"
    print(head, "|---|---|---|---|---|---|---|---|", sep="\n")
    for name, world in WORLDS.items():
        if options.only not in name:
            continue
        for holdout in options.holdout:
            seeds = range(options.first_seed, options.first_seed + options.runs)
            runs = [play(world, seed, options.steps, holdout) for seed in seeds]
            ever, usual = (np.mean([getattr(run, one) for run in runs]) for one in ("missed", "missed_usual"))
            proofs = [run.proven_at for run in runs if math.isfinite(run.proven_at)]
            at = f"{np.median(proofs):4.0f}" if proofs else "   -"
            widths, saved = np.nanmedian([run.width for run in runs]), np.mean([run.saved for run in runs])
            print(
                f"| {name:28} | {holdout:7.0%} | {ever:4.1%} | {usual:5.1%} | {len(proofs) / len(runs):6.1%} | {at} |"
                f" {saved:5.1%} | {widths:5.1%} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
