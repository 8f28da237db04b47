"""Other readings of the paper: its preset with what its text leaves open done otherwise (docs/PAPER.md).

A reading is a preset of the laboratory, "paper-reading": the constants of preset `paper`, and three of its own.

ema_start      0: moving averages start at mean 0 and variance 1, as in Appendix D; 1: at the first value and variance
               1; 2: they are corrected for their start, as Adam's are
random_choice  1: one of the same candidates at random instead of the one with the least LCB
always_slow    1: the slow path at every step, so prompts are never updated
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np

from rasp_lab.bench.agents.rasp import Rasp
from rasp_lab.bench.domains.base import Task
from rasp_tuner.base.checks import number
from rasp_tuner.base.numerics import Array, RunningEMA
from rasp_tuner.errors import InvalidSpace, InvalidValue
from rasp_tuner.optimizer import preset as presets
from rasp_tuner.optimizer.preset import Metrics, PresetKind, Setting, Settings
from rasp_tuner.paper import PAPER
from rasp_tuner.paper.adaptation import HybridAdaptation, PathDecision
from rasp_tuner.paper.algorithm import PaperOptimizer
from rasp_tuner.paper.candidates import CandidatePolicy, RankedPoints
from rasp_tuner.paper.preset import KIND as PAPER_KIND
from rasp_tuner.paper.surrogate import Prediction
from rasp_tuner.space import Layout

NAME = "paper-reading"
OPEN_CHOICES: Mapping[str, float] = {"ema_start": 0, "random_choice": 0, "always_slow": 0}
MOST_CHOICES = {"ema_start": 2, "random_choice": 1, "always_slow": 1}


@dataclass(frozen=True, slots=True)
class ReadingOptimizer(PaperOptimizer):
    """The paper's stages, some of them others. Readings are for benchmarks: a snapshot of one is refused."""

    def state(self) -> dict[str, Array]:
        """Nothing: what other averages and networks know has no place in the paper's arrays."""
        return {}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Only a copy that is asked for forecasts comes here, and the paper has none."""
        del state


class FirstValueEMA(RunningEMA):
    """Starts at the first value and variance 1."""

    started = False

    def observe(self, value: float) -> float:
        score = RunningEMA.observe(self, value)
        self.started = True
        return score

    def _moved(self, value: float) -> tuple[float, float]:
        return RunningEMA._moved(self, value) if self.started else (value, self.var)


class CorrectedEMA(RunningEMA):
    """Weights that add up to one from the first value on: sums are divided by 1 - m^t."""

    seen = 0

    def observe(self, value: float) -> float:
        score = RunningEMA.observe(self, value)
        self.seen += 1
        return score

    def _moved(self, value: float) -> tuple[float, float]:
        """Moments that are corrected already: the old ones count as much as the values they were made of."""
        if not math.isfinite(value):
            raise InvalidValue(f"a moving average takes finite numbers, got {value!r}")
        fresh = (1.0 - self.momentum) / (1.0 - self.momentum ** (self.seen + 1))
        mean = self.mean + fresh * (value - self.mean)
        return mean, (1.0 - fresh) * self.var + fresh * (value - mean) ** 2


@dataclass(frozen=True, slots=True)
class RandomChoice(CandidatePolicy):
    """The same candidates, in random order, of which the first is taken."""

    def propose(self, base: Array, gradient: Array, hint: Array | None, rng: np.random.Generator) -> RankedPoints:
        found = CandidatePolicy.propose(self, base, gradient, hint, rng)
        order = rng.permutation(len(found.points))
        return RankedPoints(found.points[order], tuple(found.sources[i] for i in order))

    def select(self, prediction: Prediction) -> int:
        del prediction
        return 0


class AlwaysSlow(HybridAdaptation):
    """Every sample is an emergency."""

    def judge(self, anomaly: float, variance: float) -> PathDecision:
        super().judge(anomaly, variance)
        return PathDecision("slow", "at every step")


EMAS: tuple[Callable[[float], RunningEMA], ...] = (RunningEMA, FirstValueEMA, CorrectedEMA)


def check_choice(key: str, value: object) -> Setting:
    if key not in OPEN_CHOICES:
        return PAPER_KIND.check(key, value)
    given = number(f"setting {key!r}", value, InvalidSpace)
    if given not in range(MOST_CHOICES[key] + 1):
        raise InvalidSpace(f"setting {key!r} must be a whole number from 0 to {MOST_CHOICES[key]}, got {given!r}")
    return int(given)


def build(
    settings: Settings, layout: Layout, context_dim: int, metrics: Metrics, rng: np.random.Generator
) -> ReadingOptimizer:
    """Preset `paper` with other parts where the settings ask for them."""
    own = {name: settings[name] for name in PAPER}
    built = cast("PaperOptimizer", PAPER_KIND.build(own, layout, context_dim, metrics, rng))
    start_averages(built, EMAS[int(settings["ema_start"] or 0)])
    policy, adaptation = built.policy, built.adaptation
    if settings["random_choice"]:
        policy = RandomChoice(policy.base_step, policy.kappa, policy.stay, policy.perturbations)
    if settings["always_slow"]:
        adaptation = AlwaysSlow()
        adaptation.disagreement_ema = built.adaptation.disagreement_ema
    return ReadingOptimizer(
        built.composer, built.memory, built.surrogate, policy, adaptation, built.replay, built.batch_size
    )


def start_averages(built: PaperOptimizer, make: Callable[[float], RunningEMA]) -> None:
    """Give every moving average of the stack another start."""
    momentum = built.memory.distance_ema.momentum
    composer = built.composer
    composer.emas = {name: make(momentum) for name in composer.emas}
    composer.error_ema, built.memory.distance_ema = make(momentum), make(momentum)
    built.adaptation.disagreement_ema = make(momentum)


presets.register(NAME, lambda: PresetKind({**PAPER, **OPEN_CHOICES}, check_choice, build, PAPER_KIND.least_numbers))

FIRST_VALUE = {"ema_start": 1.0}
TRAINED = {
    "ema_start": 2.0,
    "anomaly_threshold": 1.0,
    "disagreement_threshold": 1.0,
    "full_steps": 20.0,
    "full_rate": 1e-3,  # ten times the paper's, as is the next one
    "prompt_rate": 5e-2,
    "kappa": 0.5,
    "perturbations": 62.0,  # with the gradient step and the hint 64 candidates
}


class Reading(Rasp):
    """`Rasp` with a reading's constants; `settings` change more of them."""

    def __init__(
        self,
        task: Task,
        seed: int,
        *,
        reading: Mapping[str, float],
        settings: Mapping[str, float] | None = None,
        preset: str = NAME,
    ) -> None:
        super().__init__(task, seed, preset=preset, settings={**reading, **(settings or {})})


no_surrogate = partial(Reading, reading={"random_choice": 1.0})
first_value = partial(Reading, reading=FIRST_VALUE)
always_slow = partial(Reading, reading={"always_slow": 1.0})
trained = partial(Reading, reading=TRAINED)
