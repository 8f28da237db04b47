"""Regret of RaspSampler in Optuna's own `study.optimize`, beside a tuner's own loop and TPE, on contextual streams.

Regret is given relative to never changing anything, mean over seeds and its standard error; all meet the same contexts
and the same noise. TPE does not see the context.

    python -m rasp_lab.experiments.optuna_regret            # about two minutes; prints the table of docs/OPTUNA.md
    python -m rasp_lab.experiments.optuna_regret --seeds 2 --steps 50
"""

import argparse
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import optuna

from rasp_lab.bench import domains
from rasp_lab.bench.domains.base import ExperimentDomain
from rasp_tuner import Float, Tuner
from rasp_tuner.integrations.optuna import RaspSampler
from rasp_tuner.space import Params

DOMAINS = ("3_Robot_ISP_Tuning", "6_Smooth_Quadratic", "8_Server_Flash_Crowd", "H1_Recurring_Regimes")


class Stream:
    """The steps of a domain with one metric, and the regret that builds up."""

    def __init__(self, name: str, steps: int, seed: int) -> None:
        self.world: ExperimentDomain[Any] = domains.create(name).drawn(seed)
        self.seed, self.regret = seed, 0.0
        self.conditions = self.world.build_sequence(steps, seed)
        self.knobs = {  # as a user would write them; those of the benchmark have more digits
            name: Float(knob.low, knob.high, knob.log)
            for name, knob in self.world.space.knobs.items()
            if isinstance(knob, Float)
        }
        self.contexts = [self.world.context_fn(omega).tolist() for omega in self.conditions]

    def run(self, step: int, params: Params) -> dict[str, float]:
        """The metrics of a step."""
        omega, theta = self.conditions[step], self.world.theta(self.world.space.to_unit(params))
        self.regret += self.world.true_loss(theta, omega) - self.world.minimum(omega)
        return self.world.metric_fn(theta, omega, np.random.default_rng([self.seed, step]))


def still(stream: Stream) -> None:
    params = stream.world.space.from_unit(stream.world.default)
    for step in range(len(stream.contexts)):
        stream.run(step, params)


def native(stream: Stream) -> None:
    world = stream.world
    default = world.space.from_unit(world.default)
    tuner = Tuner(stream.knobs, world.metrics, world.context_dim, default, seed=stream.seed)
    for step, context in enumerate(stream.contexts):
        suggestion = tuner.ask(context)
        tuner.tell(suggestion.id, stream.run(step, suggestion.params))


def rasp(stream: Stream) -> None:
    default = stream.world.space.from_unit(stream.world.default)
    optimize(stream, RaspSampler(None, stream.world.context_dim, default, seed=stream.seed, goal="live"))


def tpe(stream: Stream) -> None:
    with warnings.catch_warnings():  # `multivariate` is marked experimental
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(multivariate=True, seed=stream.seed)
    optimize(stream, sampler, first=stream.world.space.from_unit(stream.world.default))


def optimize(stream: Stream, sampler: optuna.samplers.BaseSampler, first: Params | None = None) -> None:
    """One call of `study.optimize`; the contexts wait in the study's queue."""
    (metric,) = stream.world.metrics.values()
    direction = "minimize" if metric.direction == "min" else "maximize"
    study = optuna.create_study(sampler=sampler, direction=direction)
    for step, context in enumerate(stream.contexts):
        study.enqueue_trial(dict(first or {}) if step == 0 else {}, user_attrs={"context": context})

    def objective(trial: optuna.Trial) -> float:
        knobs = stream.knobs.items()
        params = {name: trial.suggest_float(name, knob.low, knob.high, log=knob.log) for name, knob in knobs}
        (value,) = stream.run(trial.number, params).values()
        return value

    study.optimize(objective, n_trials=len(stream.contexts))


LOOPS: dict[str, Callable[[Stream], None]] = {
    "own loop": native,
    "RaspSampler": rasp,
    "TPE": tpe,
}


def relative_regret(name: str, loop: Callable[[Stream], None], steps: int, seed: int) -> float:
    """Regret of a loop over that of standing still."""
    tuned, untouched = Stream(name, steps, seed), Stream(name, steps, seed)
    loop(tuned)
    still(untouched)
    return tuned.regret / untouched.regret


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--domains", nargs="+", default=DOMAINS)
    chosen = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    print(f"Optuna {optuna.__version__}; regret over that of the default; {chosen.steps} steps, {chosen.seeds} seeds")
    print(f"| domain | {' | '.join(LOOPS)} | RaspSampler / own loop |")
    print("|---|" + "---:|" * (len(LOOPS) + 1))
    ratios = []
    for name in chosen.domains:
        found = {
            label: np.array([relative_regret(name, loop, chosen.steps, seed) for seed in range(chosen.seeds)])
            for label, loop in LOOPS.items()
        }
        cells = [f"{x.mean():.3f} +- {x.std(ddof=1) / np.sqrt(len(x)):.3f}" for x in found.values()]
        ratios.append(found["RaspSampler"].mean() / found["own loop"].mean())
        print(f"| {name} | {' | '.join(cells)} | {ratios[-1]:.3f} |", flush=True)
    print(f"geometric mean of the last column: {np.exp(np.mean(np.log(ratios))):.3f}")


if __name__ == "__main__":
    main()
