"""Random worlds: spaces, effects, noise and default are all drawn from a world's seed; the optimum is known exactly.

A domain here is a kind of world, and the seed of a run says which world of that kind. Best and median are those of
SETTINGS random settings. The loss is (f - best) / (median - best), where f is the metric, or its logarithm where the
metric is a cost: 0 is as good as the best of those settings, 1 is the median, and a large world goes below 0. Only in
W_Near and W_Scales the loss is the cost divided by the default's. Regret is exact everywhere.

Constants of the library are chosen on worlds with an even seed ("develop"); worlds with an odd one are for reporting.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from rasp_lab.bench.domains.base import ExperimentDomain
from rasp_lab.bench.domains.landscape import Landscape, draw
from rasp_lab.bench.domains.schedules import check_horizon, generator, recurring, segments
from rasp_tuner.base.checks import show
from rasp_tuner.base.numerics import Array
from rasp_tuner.errors import InvalidValue
from rasp_tuner.space import MOST_DIGITS, Categorical, Float, Int, Knob, Space
from rasp_tuner.types import Metric

Half: TypeAlias = Literal["develop", "report"]

SETTINGS = 3000  # random settings that best and median are taken over
WORLD = 0x301D  # keeps a world's random numbers apart from those of its stream
BLOCK = (5, 20)  # steps that a workload lasts
CONTEXT_SPREAD = 0.05  # around the centres of two workloads, which are 1.4 apart
MEDIAN_TO_BEST = 4.0  # cost of the median setting relative to the best one
NEAR_MEDIAN_TO_BEST = (1.2, 4.0)  # the same where the default is (nearly) optimal, drawn
NEAR_NOISE = (0.1, 0.5)  # of the metric's level, drawn
CHOICE_FEATURES = 4
CHOICE_LEVEL, CHOICE_SLOPE = (
    0.4,
    0.6,
)  # of log(cost): at an average context, and what the context changes

Draw = Callable[[np.random.Generator], list[Knob]]


@dataclass(frozen=True, slots=True)
class Kind:
    """What the worlds of one kind have in common."""

    number: int  # of the random numbers: kinds with the same one share their worlds
    knobs: Draw
    noise: float | tuple[float, float]  # a share of (median - best), or of the cost where `cost`; two are drawn between
    cost: bool = False  # a positive cost in ms with multiplicative noise, not a plain sum of effects
    levels: tuple[float, ...] = (1.0,)  # cost of the best setting, ms; one for each situation
    situation: Literal["one", "drift", "recurring"] = "one"
    useless: bool = False  # half of the knobs do nothing
    near: bool = False  # the default is the optimum, or the best of SETTINGS

    @property
    def situations(self) -> int:
        return 1 if self.situation == "one" else 2

    @property
    def relative(self) -> bool:
        """Whether the loss is the cost relative to the default's."""
        return self.near or self.situation == "recurring"


@dataclass(frozen=True, slots=True)
class Situation:
    """A landscape with its units."""

    landscape: Landscape
    level: float  # cost of the best setting
    best: float  # best and median of the random settings
    median: float
    optimum: Array  # [d] the settings of the least value there is

    def value(self, theta: Array) -> float:
        return float(self.landscape.values(theta[None])[0])

    def share(self, theta: Array) -> float:
        """0 for the best of the random settings, 1 for their median."""
        return (self.value(theta) - self.best) / (self.median - self.best)


@dataclass(frozen=True, slots=True)
class Visit:
    """omega: which situation, and the context as it looks this time."""

    situation: int
    context: Array  # [d_c]


class World(ExperimentDomain[Visit]):
    """The world with this seed, of one kind; `drawn` gives another one."""

    def __init__(self, name: str, kind: Kind, seed: int = 0) -> None:
        self.name, self._kind = name, kind
        rng = _random_numbers(kind.number, seed)
        knobs = kind.knobs(rng)
        self.space = Space({f"k{i}": knob for i, knob in enumerate(knobs)})
        self._metric = "cost_ms" if kind.cost else "value"
        self.metrics = {self._metric: Metric("min")}
        self.context_dim = 2 if kind.situation == "recurring" else 0
        useless = rng.permutation(len(knobs))[: len(knobs) // 2].tolist() if kind.useless else []
        ratio = _between(NEAR_MEDIAN_TO_BEST, rng) if kind.near else MEDIAN_TO_BEST
        self._log_ratio = float(np.log(ratio))
        self._noise = _between(kind.noise, rng) if isinstance(kind.noise, tuple) else kind.noise
        thetas = np.column_stack([_settings(knob, rng) for knob in knobs])
        self._at = [_situation(draw(knobs, rng, useless), level, thetas) for level in self._levels()]
        default = thetas[rng.integers(SETTINGS)]
        if kind.near:
            found = thetas[np.argmin(self._at[0].landscape.values(thetas))]
            default = self._at[0].optimum if rng.uniform() < 0.5 else found
        self._default = default

    def drawn(self, seed: int) -> "World":
        return World(self.name, self._kind, seed)

    def build_sequence(self, horizon: int, seed: int) -> Sequence[Visit]:
        rng, kind = generator(seed), self._kind
        check_horizon(horizon)
        order = recurring(horizon, 2, *BLOCK, rng) if kind.situation == "recurring" else None
        order = order or segments(range(kind.situations), horizon)
        blur = CONTEXT_SPREAD * rng.normal(size=(horizon, self.context_dim))
        return [Visit(now, np.eye(2)[now, : self.context_dim] + shift) for now, shift in zip(order, blur, strict=True)]

    def context_fn(self, omega: Visit) -> Array:
        return omega.context

    def metric_fn(self, theta: Array, omega: Visit, rng: np.random.Generator) -> dict[str, float]:
        at, exact, noise = self._at[omega.situation], self.exact(theta, omega), self._noise * float(rng.normal())
        if self._kind.cost:
            return {self._metric: exact * float(np.exp(noise - self._noise**2 / 2))}  # right on average
        return {self._metric: exact + noise * (at.median - at.best)}

    def exact(self, theta: Array, omega: Visit) -> float:
        """The metric without noise."""
        at = self._at[omega.situation]
        if not self._kind.cost:
            return at.value(theta)
        return at.level * float(np.exp(self._log_ratio * at.share(theta)))

    def true_loss(self, theta: Array, omega: Visit) -> float:
        if self._kind.relative:
            return self.exact(theta, omega) / self.exact(self._default, omega)
        return self._at[omega.situation].share(theta)

    def minimum(self, omega: Visit) -> float:
        return self.true_loss(self._at[omega.situation].optimum, omega)

    def regime(self, omega: Visit) -> int:
        return omega.situation

    @property
    def default(self) -> Array:
        values = {
            name: knob.choices[int(value)] if isinstance(knob, Categorical) else value
            for (name, knob), value in zip(self.space.knobs.items(), self._default.tolist(), strict=True)
        }
        return self.space.to_unit(values)

    def _levels(self) -> tuple[float, ...]:
        given = self._kind.levels
        return given if len(given) == self._kind.situations else given * self._kind.situations


@dataclass(frozen=True, slots=True)
class Instance:
    """omega: one thing to be done, its features, and what each choice costs on it."""

    context: Array  # [CHOICE_FEATURES]
    costs: Array  # [choices]


class Choices(ExperimentDomain[Instance]):
    """One knob of 20 to 40 unordered choices, a fresh instance each step; its features say which choice suits it.

    The default is the choice with the least cost over SETTINGS instances: the best that never looks at the context.
    """

    metrics = {"cost_ms": Metric("min")}  # noqa: RUF012
    context_dim = CHOICE_FEATURES
    noise = 0.1

    def __init__(self, name: str, seed: int = 0) -> None:
        self.name = name
        rng = _random_numbers(9, seed)
        count = int(rng.integers(20, 41))
        self.space = Space({"choice": Categorical([f"c{i}" for i in range(count)])})
        self._logs = CHOICE_LEVEL * rng.normal(size=count)
        self._slopes = CHOICE_SLOPE * rng.normal(size=(CHOICE_FEATURES, count)) / np.sqrt(CHOICE_FEATURES)
        sample = rng.normal(size=(SETTINGS, CHOICE_FEATURES))
        self._best = int(np.exp(self._logs + sample @ self._slopes).mean(axis=0).argmin())

    def drawn(self, seed: int) -> "Choices":
        return Choices(self.name, seed)

    def build_sequence(self, horizon: int, seed: int) -> Sequence[Instance]:
        contexts = generator(seed).normal(size=(check_horizon(horizon), CHOICE_FEATURES))
        return [Instance(c, np.exp(self._logs + c @ self._slopes)) for c in contexts]

    def context_fn(self, omega: Instance) -> Array:
        return omega.context

    def metric_fn(self, theta: Array, omega: Instance, rng: np.random.Generator) -> dict[str, float]:
        return {"cost_ms": float(omega.costs[int(theta[0])] * np.exp(self.noise * rng.normal() - self.noise**2 / 2))}

    def true_loss(self, theta: Array, omega: Instance) -> float:
        """0 for the choice that suits this instance best, 1 for the median one."""
        best = omega.costs.min()
        return float((omega.costs[int(theta[0])] - best) / (np.median(omega.costs) - best))

    def minimum(self, omega: Instance) -> float:
        del omega
        return 0.0

    @property
    def default(self) -> Array:
        return self.space.to_unit({"choice": f"c{self._best}"})


def _discrete(rng: np.random.Generator, least: int = 3) -> list[Knob]:
    return [Int(0, int(rng.integers(1, 5))) for _ in range(rng.integers(least, 12))]


def _unordered(rng: np.random.Generator) -> list[Knob]:
    """Two to five knobs of 3 to 7 choices, and one of 20 to 40."""
    counts = [*rng.integers(3, 8, size=rng.integers(2, 6)), rng.integers(20, 41)]
    return [Categorical([f"c{i}" for i in range(count)]) for count in counts]


def _mixed(rng: np.random.Generator) -> list[Knob]:
    """One to three knobs of each kind."""
    floats, ints, words = rng.integers(1, 4, size=3)
    made: list[Knob] = [Float(0.0, 1.0, digits=MOST_DIGITS) for _ in range(floats)]
    made += [Int(0, int(rng.integers(1, 5))) for _ in range(ints)]
    return made + [Categorical([f"c{i}" for i in range(rng.integers(2, 6))]) for _ in range(words)]


KINDS: dict[str, Kind] = {
    "W_Discrete-0": Kind(1, _discrete, 0.0),
    "W_Discrete-0.02": Kind(1, _discrete, 0.02),
    "W_Discrete-0.3": Kind(1, _discrete, 0.3),
    "W_Discrete-1": Kind(1, _discrete, 1.0),
    "W_Useless": Kind(2, partial(_discrete, least=6), 0.1, useless=True),
    "W_Drift": Kind(3, _discrete, 0.1, situation="drift"),
    "W_Categorical": Kind(4, _unordered, 0.1, cost=True),
    "W_Mixed": Kind(5, _mixed, 0.1, cost=True),
    "W_Near": Kind(6, _mixed, NEAR_NOISE, cost=True, near=True),
    "W_Scales": Kind(7, _mixed, 0.2, cost=True, levels=(1.0, 1000.0), situation="recurring"),
}
CHEAP = 0  # the regime of W_Scales whose costs are a thousandth of the other's
WORLDS: dict[str, Callable[[], ExperimentDomain[Any]]] = {
    **{name: partial(World, name, kind) for name, kind in KINDS.items()},
    "W_Choices": partial(Choices, "W_Choices"),
}


def is_world(domain: str) -> bool:
    """Whether a domain, made harder or not, is a kind of world."""
    return domain.split("+")[0] in WORLDS


def world_seeds(count: int, half: str = "report") -> list[int]:
    """The first seeds of a half: even ones are for choosing constants, odd ones for reporting.

    >>> world_seeds(3, "develop"), world_seeds(3, "report")
    ([0, 2, 4], [1, 3, 5])
    """
    if half not in get_args(Half):
        raise InvalidValue(f"half (--half) must be one of {list(get_args(Half))}, got {show(half)}")
    return [2 * i + (half == "report") for i in range(count)]


def _situation(landscape: Landscape, level: float, thetas: Array) -> Situation:
    seen = landscape.values(thetas)
    return Situation(landscape, level, float(seen.min()), float(np.median(seen)), landscape.optimum())


def _settings(knob: Knob, rng: np.random.Generator) -> Array:
    """Random settings of one knob [SETTINGS]: indices of levels, or numbers that a Float knob takes exactly."""
    if knob.levels is None:
        return np.round(rng.uniform(size=SETTINGS), 2)
    return rng.integers(knob.levels, size=SETTINGS).astype(np.float64)


def _random_numbers(kind: int, seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, WORLD, kind])


def _between(limits: tuple[float, float], rng: np.random.Generator) -> float:
    low, high = limits
    return float(rng.uniform(low, high))
