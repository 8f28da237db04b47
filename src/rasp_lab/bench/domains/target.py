"""TargetDomain: the loss depends on where theta lies from a target that omega sets, as in all synthetic domains.

symbol   shape   meaning
T        scalar  horizon, steps
c        [d_c]   context
target   [d]     theta*, the settings that are best under omega; may lie outside the box
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rasp_lab.bench.domains.base import ExperimentDomain
from rasp_lab.bench.domains.schedules import check_horizon, generator
from rasp_tuner.base.numerics import Array
from rasp_tuner.space import MOST_DIGITS, Float, Space
from rasp_tuner.types import Metric


@dataclass(frozen=True, slots=True)
class Condition:
    """omega: what the agent sees, what it should find, and which situation this is."""

    context: Array  # [d_c]
    target: Array  # [d] in natural units
    regime: int = 0


Shape = Callable[[Array], float]  # theta - target [d] -> loss
Stream = Callable[[int, np.random.Generator], list[Condition]]  # horizon, generator -> omega_1 .. omega_T


class TargetDomain(ExperimentDomain[Condition]):
    """A stream whose loss is `shape(theta - target)`; its one metric is the loss plus Gaussian noise.

    The minimum is taken at the target clipped into the box. That is exact when the shape grows with a sum of one
    convex term a coordinate, each least at 0, or when the target is inside the box and the shape least at 0.
    """

    def __init__(
        self, name: str, box: Mapping[str, tuple[float, float]], metric: str, shape: Shape, noise: float, stream: Stream
    ) -> None:
        self.name = name
        self.space = Space({knob: Float(low, high, digits=MOST_DIGITS) for knob, (low, high) in box.items()})
        self.metrics = {metric: Metric("min")}
        self.context_dim = len(stream(1, generator(0))[0].context)
        self._low, self._high = np.array(list(box.values())).T
        self._metric, self._shape, self._noise, self._stream = metric, shape, noise, stream

    def build_sequence(self, horizon: int, seed: int) -> Sequence[Condition]:
        return self._stream(check_horizon(horizon), generator(seed))

    def context_fn(self, omega: Condition) -> Array:
        return omega.context

    def metric_fn(self, theta: Array, omega: Condition, rng: np.random.Generator) -> dict[str, float]:
        return {self._metric: self.true_loss(theta, omega) + self._noise * float(rng.normal())}

    def true_loss(self, theta: Array, omega: Condition) -> float:
        return self._shape(theta - omega.target)

    def minimum(self, omega: Condition) -> float:
        return self.true_loss(np.clip(omega.target, self._low, self._high), omega)

    def regime(self, omega: Condition) -> int:
        return omega.regime


def squares(weights: Array) -> Shape:
    """The shape sum_i weights_i x_i^2."""
    return lambda x: float(weights @ x**2)


def saturating(weights: Array) -> Shape:
    """The shape 1 - exp(-sum_i weights_i x_i^2): a reward lost, at most 1."""
    return lambda x: float(-np.expm1(-(weights @ x**2)))


def cube(dim: int, low: float = 0.0, high: float = 1.0) -> dict[str, tuple[float, float]]:
    """The box [low, high]^dim with the knobs x1, x2, ..."""
    return {f"x{i + 1}": (low, high) for i in range(dim)}


def natural(box: Mapping[str, tuple[float, float]], unit: Array) -> Array:
    """Points [n, d] of the unit box in the box's own units."""
    low, high = np.array(list(box.values())).T
    points: Array = low + unit * (high - low)
    return points


def widths(box: Mapping[str, tuple[float, float]]) -> Array:
    """How wide the box is along each knob [d]."""
    return np.array([high - low for low, high in box.values()])


def visits(regimes: Sequence[int], contexts: Array, targets: Array) -> list[Condition]:
    """One condition a step, from its regime, its context (rows of [T, d_c]) and the targets [regimes, d]."""
    return [Condition(context, targets[r], r) for r, context in zip(regimes, contexts, strict=True)]
