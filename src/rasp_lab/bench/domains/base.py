"""ExperimentDomain: a stream of conditions with a known optimum (paper, Section Benchmarks).

omega is all that the agent cannot influence at a step. It is built in advance from the seed, so every agent meets the
same stream. theta is a vector [d] of knob values in natural units; a categorical knob is the index of its choice.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Generic, TypeVar

import numpy as np

from rasp_tuner.base.numerics import Array
from rasp_tuner.space import Categorical, Space
from rasp_tuner.types import Metric

Omega = TypeVar("Omega")


class InvalidConfiguration(Exception):
    """Raised by `metric_fn` for settings that cannot run: the agent is told of a failure instead of metrics."""


@dataclass(frozen=True, slots=True)
class Task:
    """All an agent may know before it starts."""

    space: Space
    metrics: Mapping[str, Metric]
    context_dim: int
    default: Array  # [d] in the unit box: the settings before tuning
    paper_constants: Mapping[str, float] = field(default_factory=dict)  # what the paper changes in its stack here


class ExperimentDomain(ABC, Generic[Omega]):
    """A named stream. The first four methods are the paper's; `minimum` makes regret exact."""

    name: str
    space: Space
    metrics: Mapping[str, Metric]
    context_dim: int
    paper_constants: Mapping[str, float] = MappingProxyType({})
    delay: int = 0  # steps by which feedback is late

    @abstractmethod
    def build_sequence(self, horizon: int, seed: int) -> Sequence[Omega]:
        """The conditions omega_1 .. omega_T, a pure function of its arguments."""

    @abstractmethod
    def context_fn(self, omega: Omega) -> Array:
        """The context c_t [d_c] that the agent sees."""

    @abstractmethod
    def metric_fn(self, theta: Array, omega: Omega, rng: np.random.Generator) -> dict[str, float]:
        """The noisy metrics that come back; raises InvalidConfiguration where theta cannot run."""

    @abstractmethod
    def true_loss(self, theta: Array, omega: Omega) -> float:
        """f(theta, omega), noise-free; what regret is counted in."""

    @abstractmethod
    def minimum(self, omega: Omega) -> float:
        """The least `true_loss` over all legal theta: never above what any agent reaches."""

    def regime(self, omega: Omega) -> int:
        """Which recurring situation this is; a stream without regimes is one regime."""
        del omega
        return 0

    def drawn(self, seed: int) -> "ExperimentDomain[Omega]":
        """The domain for runs with this seed: itself, unless its space or optimum are drawn anew for each seed."""
        del seed
        return self

    @property
    def default(self) -> Array:
        """The settings before tuning, in the unit box: the middle."""
        return self.space.snap(np.full(self.space.dim, 0.5))

    def task(self) -> Task:
        return Task(self.space, self.metrics, self.context_dim, self.default, self.paper_constants)

    def theta(self, point: Array) -> Array:
        """The vector [d] in natural units of the legal settings nearest to a point of the unit box."""
        params = self.space.from_unit(point)
        return np.array(
            [
                float(knob.choices.index(params[name]) if isinstance(knob, Categorical) else params[name])  # type: ignore[arg-type]
                for name, knob in self.space.knobs.items()
            ]
        )
