"""EvidenceGate: one mixture of all families' experts, weighted by the density they gave to what came back.

An expert that uses an uninformative context predicts no better than the one that ignores context, and gets little
weight: that cures the paper's adversarial case. Between families there is a prior besides, which is not forgotten,
because density is not decision quality.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rasp_tuner.core.numerics import Array, softmax
from rasp_tuner.core.state_checks import Field, checked, under
from rasp_tuner.engine.evidence import Evidence, log_mean
from rasp_tuner.engine.family import Belief, Choice, Comparison, Family, Forecast, Trial, compared, predict_one

LEAST_NATS, MOST_NATS = -1e6, 100.0  # of scores: their largest is 0 or near


class Mixture(NamedTuple):
    """What several families hold true in one context: a `Belief`, too."""

    beliefs: tuple[Belief, ...]
    shares: Array  # [F] how much weight each family has

    @property
    def weights(self) -> Array:
        """[E] of every expert of every family, summing to one."""
        return np.concatenate([share * b.weights for share, b in zip(self.shares, self.beliefs, strict=True)])

    @property
    def noise(self) -> float:
        """Variance of one observation of y around its mean."""
        return sum(float(share) * belief.noise for share, belief in zip(self.shares, self.beliefs, strict=True))

    def predict(self, points: Array) -> tuple[Array, Array]:
        """Mean [n] of y at points [n, d], and its variance: the experts' own and their disagreement."""
        means, variances = (np.stack(a) for a in zip(*(belief.predict(points) for belief in self.beliefs), strict=True))
        return self._mixed(means, variances)

    def compare(self, point: Array, other: Array) -> tuple[float, float]:
        """Mean and variance of y at `point` [d] less y at `other`."""
        means, variances = np.array([belief.compare(point, other) for belief in self.beliefs]).T
        mean, variance = self._mixed(means[:, None], variances[:, None])
        return float(mean[0]), float(variance[0])

    def against(self, point: Array, default: Array) -> Comparison:
        """`predict` at two points [d], and `compare` of them."""
        return compared(self, point, default)

    def forecast(self, point: Array, y: float) -> Forecast:
        """What was expected at `point` [d], where y came out."""
        parts = tuple([belief.forecast(point, y) for belief in self.beliefs])
        means, variances = np.array([p.mean for p in parts]), np.array([p.variance for p in parts])
        mean, variance = self._mixed(means[:, None], variances[:, None])
        return Forecast(float(mean[0]), float(variance[0]), np.concatenate([p.log_densities for p in parts]), parts)

    def choose(self, rng: np.random.Generator) -> Choice:
        """The choice of one family, drawn by its share; what is expected of it is what all expect."""
        drawn = int((self.shares.cumsum() < rng.random()).sum())
        choice = self.beliefs[min(drawn, len(self.beliefs) - 1)].choose(rng)
        mean, variance = predict_one(self, choice.point)
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
    def uses_blas(self) -> bool:
        return any(family.uses_blas for family in self.families)

    @property
    def samples(self) -> int:
        """How many were learned from, failures included."""
        return self.families[0].samples

    def believe(self, context: Array) -> Belief:
        """What all families hold true; of a family without rivals what it does itself."""
        if len(self.families) == 1:
            sole: Belief = self.families[0].believe(context)
            return sole
        beliefs = tuple([family.believe(context) for family in self.families])
        return Mixture(beliefs, softmax(self._odds + self._evidence.scores))

    def score(self, belief: Belief, forecast: Forecast) -> None:
        """Weigh the families by how likely the answer was to each."""
        if isinstance(belief, Mixture):
            parts = zip(forecast.families, belief.beliefs, strict=True)
            self._evidence.observe(np.array([log_mean(own.log_densities, b.weights) for own, b in parts]))

    def learn(self, trial: Trial, belief: Belief | None, forecast: Forecast | None) -> None:
        """Have every family take in one trial, with what it believed and forecast of it."""
        for i, family in enumerate(self.families):
            if isinstance(belief, Mixture):
                family.learn(trial, belief.beliefs[i], None if forecast is None else forecast.families[i])
            else:  # there is one family, or nothing is believed yet
                family.learn(trial, belief, forecast)

    def reweigh(self, weights: Array) -> None:
        for family in self.families:
            family.reweigh(weights)

    def restate(self, factors: Array, shifts: Array, weights: Array) -> None:
        for family in self.families:
            family.restate(factors, shifts, weights)

    def forget(self) -> None:
        self._evidence = Evidence(np.zeros(len(self.families)))
        for family in self.families:
            family.forget()

    def bound_contexts(self, least: Array, most: Array, mend: bool) -> None:
        for family in self.families:
            family.bound_contexts(least, most, mend)

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
        scores = checked(state, {"scores": Field((len(self.families),), LEAST_NATS, MOST_NATS)}, {})
        for i, family in enumerate(self.families):
            family.restore(under(f"{i}/", state))
        self._evidence.scores = scores["scores"]
