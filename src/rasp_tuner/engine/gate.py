"""EvidenceGate: one mixture of all families' experts, weighted by the density they gave to what came back.

An expert that uses an uninformative context predicts no better than the one that ignores context, and gets little
weight: that cures the paper's adversarial case. Between families there is a prior besides, which is not forgotten,
because density is not decision quality.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rasp_tuner.core.numerics import Array, softmax, under
from rasp_tuner.engine.evidence import Evidence, log_mean
from rasp_tuner.engine.family import Belief, Choice, Comparison, Family, Forecast, Trial, compared

SOLE = np.ones(1)  # share of a family without rivals


class MixtureForecast(NamedTuple):
    """What the mixture expected of one observation, and how likely the answer was to each of F families."""

    mean: float
    variance: float  # of the mean, disagreement between families included, noise left out
    families: tuple[Forecast, ...]
    weights: tuple[Array, ...]  # of every family's experts
    shares: Array  # [F] of the families

    @property
    def log_densities(self) -> Array:
        """[F] log p(y)."""
        parts = zip(self.families, self.weights, strict=True)
        return np.array([log_mean(forecast.log_densities, weights) for forecast, weights in parts])

    @property
    def log_density(self) -> float:
        """Of the mixture."""
        logs = self.log_densities
        return float(logs[0]) if len(logs) == 1 else log_mean(logs, self.shares)


class Mixture(NamedTuple):
    """What all families hold true in one context."""

    beliefs: tuple[Belief, ...]
    shares: Array  # [F] how much weight each family has

    @property
    def weights(self) -> Array:
        """[E] of every expert of every family, summing to one."""
        if len(self.beliefs) == 1:
            return self.beliefs[0].weights
        return np.concatenate([share * b.weights for share, b in zip(self.shares, self.beliefs, strict=True)])

    @property
    def noise(self) -> float:
        """Variance of one observation of y around its mean."""
        if len(self.beliefs) == 1:
            return self.beliefs[0].noise
        return sum(float(share) * belief.noise for share, belief in zip(self.shares, self.beliefs, strict=True))

    def predict(self, points: Array) -> tuple[Array, Array]:
        """Mean [n] of y at points [n, d], and its variance: the experts' own and their disagreement."""
        if len(self.beliefs) == 1:
            return self.beliefs[0].predict(points)
        means, variances = (np.stack(a) for a in zip(*(belief.predict(points) for belief in self.beliefs), strict=True))
        return self._mixed(means, variances)

    def predict_one(self, point: Array) -> tuple[float, float]:
        """The same at one point [d], as numbers."""
        mean, variance = self.predict(point[None])
        return float(mean[0]), float(variance[0])

    def compare(self, point: Array, other: Array) -> tuple[float, float]:
        """Mean and variance of y at `point` [d] less y at `other`."""
        parts = [belief.compare(point, other) for belief in self.beliefs]
        if len(parts) == 1:
            return parts[0]
        means, variances = np.array(parts).T
        mean, variance = self._mixed(means[:, None], variances[:, None])
        return float(mean[0]), float(variance[0])

    def against(self, point: Array, default: Array) -> Comparison:
        """`predict` at two points [d], and `compare` of them."""
        return self.beliefs[0].against(point, default) if len(self.beliefs) == 1 else compared(self, point, default)

    def forecast(self, point: Array, y: float) -> MixtureForecast:
        """What was expected at `point` [d], where y came out."""
        parts = tuple([belief.forecast(point, y) for belief in self.beliefs])
        weights = tuple([belief.weights for belief in self.beliefs])
        if len(parts) == 1:
            return MixtureForecast(parts[0].mean, parts[0].variance, parts, weights, self.shares)
        means, variances = np.array([p.mean for p in parts]), np.array([p.variance for p in parts])
        mean, variance = self._mixed(means[:, None], variances[:, None])
        return MixtureForecast(float(mean[0]), float(variance[0]), parts, weights, self.shares)

    def choose(self, rng: np.random.Generator) -> Choice:
        """The choice of one family, drawn by its share; what is expected of it is what all expect."""
        if len(self.beliefs) == 1:
            return self.beliefs[0].choose(rng)
        drawn = int((self.shares.cumsum() < rng.random()).sum())
        choice = self.beliefs[min(drawn, len(self.beliefs) - 1)].choose(rng)
        mean, variance = self.predict_one(choice.point)
        return choice._replace(mean=mean, variance=variance)

    def best(self) -> Array | None:
        """The best point known to the family that has the most weight."""
        return self.beliefs[int(self.shares.argmax())].best()

    def similar(self) -> Array:
        return self.beliefs[0].similar()

    def _mixed(self, means: Array, variances: Array) -> tuple[Array, Array]:
        """Mean and variance [n] of the mixture, from those of its families [F, n]."""
        mean: Array = self.shares @ means
        variance: Array = self.shares @ (variances + (means - mean) ** 2)
        return mean, variance


class EvidenceGate:
    """Families of experts side by side: all learn from every sample, those that predicted it well get more weight."""

    def __init__(self, families: Sequence[Family[Any]], odds: Sequence[float]) -> None:
        self.families = tuple(families)
        self.experts = tuple(name for family in families for name in family.experts)
        self._odds = np.array(odds)  # nats for each family before anything is seen
        self._evidence = Evidence(np.zeros(len(self.families)))

    @property
    def samples(self) -> int:
        """How many were learned from, failures included."""
        return self.families[0].samples

    def believe(self, context: Array) -> Mixture:
        shares = SOLE if len(self.families) == 1 else softmax(self._odds + self._evidence.scores)
        return Mixture(tuple([family.believe(context) for family in self.families]), shares)

    def score(self, forecast: MixtureForecast) -> None:
        """Weigh the families by how likely the answer was to each."""
        if len(self.families) > 1:  # else its share is all there is
            self._evidence.observe(forecast.log_densities)

    def learn(self, trial: Trial, belief: Mixture | None, forecast: MixtureForecast | None) -> None:
        """Have every family take in one trial, with what it believed and forecast of it."""
        for i, family in enumerate(self.families):
            own = None if belief is None else belief.beliefs[i]
            family.learn(trial, own, None if forecast is None else forecast.families[i])

    def reweigh(self, weights: Array) -> None:
        for family in self.families:
            family.reweigh(weights)

    def merge(self, other: "EvidenceGate", weights: Array, first: bool) -> None:
        """Take in what another gate learned; the losses of both have these weights [C] from now on."""
        n, m = self.samples, other.samples
        self._evidence.scores = (n * self._evidence.scores + m * other._evidence.scores) / max(n + m, 1)
        for family, theirs in zip(self.families, other.families, strict=True):
            family.merge(theirs, weights, first)

    def state(self) -> dict[str, Array]:
        parts = {f"{i}/{name}": a for i, family in enumerate(self.families) for name, a in family.state().items()}
        return {"scores": self._evidence.scores, **parts}

    def restore(self, state: Mapping[str, Array]) -> None:
        # version 0.1 had one family more, the first, in spaces of many levels with unordered knobs
        gone = max(len(state["scores"]) - len(self.families), 0)
        self._evidence.restore(state["scores"][gone:])
        for i, family in enumerate(self.families):
            family.restore(under(f"{i + gone}/", state))
