"""Wrappers that make any domain harder: noise, outliers, other units of context, a second metric, late answers.

The loss, its minimum and the regimes stay those of the inner domain; only what the agent sees changes.
Wrappers nest: `Delayed(Noisy(domain, 0.5), 3)`.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np

from rasp_lab.bench.domains.base import ExperimentDomain, InvalidConfiguration
from rasp_lab.bench.domains.schedules import not_negative
from rasp_tuner.base.checks import number, show, vector, whole
from rasp_tuner.base.numerics import Array
from rasp_tuner.errors import InvalidValue
from rasp_tuner.types import Metric

Omega = TypeVar("Omega")

REFERENCE_STEPS = 100  # of the stream on which `metric_size` looks; the paper's horizon
OUTLIER_SHARE = 0.1  # of all answers
OUTLIER_SIZE = (5.0, 10.0)  # times the size of the metric under the static default


class Wrapper(ExperimentDomain[Omega]):
    """The inner domain under another name."""

    def __init__(self, inner: ExperimentDomain[Omega], suffix: str) -> None:
        self.inner = inner
        self.name = f"{inner.name}+{suffix}"
        self.space = inner.space
        self.metrics: Mapping[str, Metric] = inner.metrics
        self.context_dim = inner.context_dim
        self.delay = inner.delay
        self.paper_constants = inner.paper_constants

    def build_sequence(self, horizon: int, seed: int) -> Sequence[Omega]:
        return self.inner.build_sequence(horizon, seed)

    def context_fn(self, omega: Omega) -> Array:
        return self.inner.context_fn(omega)

    def metric_fn(self, theta: Array, omega: Omega, rng: np.random.Generator) -> dict[str, float]:
        return self.inner.metric_fn(theta, omega, rng)

    def true_loss(self, theta: Array, omega: Omega) -> float:
        return self.inner.true_loss(theta, omega)

    def minimum(self, omega: Omega) -> float:
        return self.inner.minimum(omega)

    def regime(self, omega: Omega) -> int:
        return self.inner.regime(omega)

    @property
    def default(self) -> Array:
        return self.inner.default


class Noisy(Wrapper[Omega]):
    """Gaussian noise on every metric, of `factor` times its size under the static default."""

    def __init__(self, inner: ExperimentDomain[Omega], factor: float) -> None:
        super().__init__(inner, "noise")
        self._deviation = {name: not_negative("factor", factor) * size for name, size in metric_size(inner).items()}

    def metric_fn(self, theta: Array, omega: Omega, rng: np.random.Generator) -> dict[str, float]:
        seen = self.inner.metric_fn(theta, omega, rng)
        return {name: value + self._deviation[name] * float(rng.normal()) for name, value in seen.items()}


class Outliers(Wrapper[Omega]):
    """One answer in ten is far worse than it should be: every metric by 5 to 10 times its size under the default."""

    def __init__(self, inner: ExperimentDomain[Omega]) -> None:
        super().__init__(inner, "outliers")
        self._size = metric_size(inner)

    def metric_fn(self, theta: Array, omega: Omega, rng: np.random.Generator) -> dict[str, float]:
        seen = self.inner.metric_fn(theta, omega, rng)
        strikes, times = rng.uniform() < OUTLIER_SHARE, float(rng.uniform(*OUTLIER_SIZE))
        if not strikes:
            return seen
        worse = {name: 1.0 if metric.direction == "min" else -1.0 for name, metric in self.metrics.items()}
        return {name: value + worse[name] * times * self._size[name] for name, value in seen.items()}


class Rescaled(Wrapper[Omega]):
    """The context in other units: `scale * c + offset`, numbers or one for each dimension."""

    def __init__(
        self, inner: ExperimentDomain[Omega], scale: float | Sequence[float], offset: float | Sequence[float] = 0.0
    ) -> None:
        super().__init__(inner, "rescaled")
        self._scale = _each("scale", scale, inner.context_dim)
        self._offset = _each("offset", offset, inner.context_dim)

    def context_fn(self, omega: Omega) -> Array:
        context: Array = self._scale * self.inner.context_fn(omega) + self._offset
        return context


class MixedPolarity(Wrapper[Omega]):
    """A second metric that is better when larger: `offset - slope * loss` plus noise."""

    def __init__(
        self,
        inner: ExperimentDomain[Omega],
        offset: float = 100.0,  # e.g. requests per second at no loss
        slope: float = 10.0,  # another scale than the loss has
        noise: float = 0.1,  # in units of the new metric: a hundredth of a loss of 1
        metric: str = "throughput",
    ) -> None:
        super().__init__(inner, "mixed")
        if metric in inner.metrics:
            raise InvalidValue(f"metric must be a new name, got {metric!r}; {inner.name} has {list(inner.metrics)}")
        self._offset, self._slope = number("offset", offset), not_negative("slope", slope)
        self._noise, self._metric = not_negative("noise", noise), metric
        self.metrics = {**inner.metrics, metric: Metric("max")}

    def metric_fn(self, theta: Array, omega: Omega, rng: np.random.Generator) -> dict[str, float]:
        seen = self.inner.metric_fn(theta, omega, rng)
        value = self._offset - self._slope * self.true_loss(theta, omega) + self._noise * float(rng.normal())
        return {**seen, self._metric: value}


class Delayed(Wrapper[Omega]):
    """Answers come `delay` steps late. The runner does the waiting: it reads `delay`."""

    def __init__(self, inner: ExperimentDomain[Omega], delay: int) -> None:
        super().__init__(inner, "delay")
        self.delay += whole("delay", delay, 0, 10**6)


WAYS: dict[str, tuple[Callable[..., Wrapper[Any]], float | None]] = {  # name -> what to wrap in, its usual value
    "noise": (Noisy, 0.5),
    "outliers": (Outliers, None),
    "rescaled": (Rescaled, 1000.0),
    "mixed": (MixedPolarity, None),
    "delay": (Delayed, 5),
}


def harder(domain: ExperimentDomain[Any], way: str) -> Wrapper[Any]:
    """The domain made harder in a way written as "outliers", or with a value as in "noise=0.5"."""
    name, equals, value = way.partition("=")
    wrap, usual = WAYS.get(name, (None, None))
    if wrap is None:
        raise InvalidValue(f"no way to make a domain harder is called {show(name)}; there are {list(WAYS)}")
    if usual is None:
        if equals:
            raise InvalidValue(f"{name} takes no value, got {show(way)}")
        return wrap(domain)
    try:
        chosen = type(usual)(value) if equals else usual
    except ValueError as reason:
        raise InvalidValue(f"{name} must be followed by a number as in {name}={usual:g}, got {show(way)}") from reason
    return wrap(domain, chosen)


def metric_size(domain: ExperimentDomain[Omega]) -> dict[str, float]:
    """The mean size of each metric under the static default; under random settings if that is optimal or cannot run."""
    rng = np.random.default_rng(0)
    stream = domain.build_sequence(REFERENCE_STEPS, 0)
    default = domain.theta(domain.default)
    optimal = all(domain.true_loss(default, omega) <= domain.minimum(omega) for omega in stream)
    seen = [] if optimal else _answers(domain, stream, [default] * len(stream), rng)
    seen = seen or _answers(domain, stream, [domain.theta(rng.uniform(size=domain.space.dim)) for _ in stream], rng)
    return {name: float(np.mean([abs(metrics[name]) for metrics in seen])) for name in domain.metrics}


def _answers(
    domain: ExperimentDomain[Omega], stream: Sequence[Omega], thetas: Sequence[Array], rng: np.random.Generator
) -> list[dict[str, float]]:
    answers = []
    for theta, omega in zip(thetas, stream, strict=True):
        with suppress(InvalidConfiguration):
            answers.append(domain.metric_fn(theta, omega, rng))
    return answers


def _each(field: str, value: float | Sequence[float], length: int) -> Array:
    return vector(field, [value] * length if isinstance(value, (int, float)) else value, length)
