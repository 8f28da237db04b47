"""EvidenceGate: one mixture of all families' experts, weighted by the density they gave to what came back.

Context that says nothing loses this race to the expert that ignores context; that cures the paper's adversarial case.
Between families a prior speaks too, and is not forgotten: density is not decision quality.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rasp_tuner.core.numerics import Array, softmax, under
from rasp_tuner.engine.evidence import Evidence, log_mean
from rasp_tuner.engine.family import Belief, Choice, Family

SOLE = np.ones(1)  # share of a family without rivals


@dataclass(frozen=True)
class Mixture:
    """What all families hold true in one context."""

    beliefs: tuple[Belief, ...]
    shares: Array  # [F] how much each family counts

    @cached_property
    def weights(self) -> Array:
        """[E] of every expert of every family, summing to one."""
        if len(self.beliefs) == 1:
            return self.beliefs[0].weights
        return np.concatenate([share * b.weights for share, b in zip(self.shares, self.beliefs, strict=True)])

    def predict(self, points: Array) -> tuple[Array, Array]:
        """Mean [n] of y at points [n, d], and its variance: the experts' own doubt and their disagreement."""
        if len(self.beliefs) == 1:
            return self.beliefs[0].predict(points)
        means, variances = (np.stack(a) for a in zip(*(belief.predict(points) for belief in self.beliefs), strict=True))
        mean: Array = self.shares @ means
        variance: Array = self.shares @ (variances + (means - mean) ** 2)
        return mean, variance

    def noise(self) -> float:
        """Variance of one observation of y around its mean."""
        if len(self.beliefs) == 1:
            return self.beliefs[0].noise
        return sum(float(share) * belief.noise for share, belief in zip(self.shares, self.beliefs, strict=True))

    def choose(self, rng: np.random.Generator) -> Choice:
        """The choice of one family, drawn by its share; what is expected of it is what all expect."""
        if len(self.beliefs) == 1:
            return self.beliefs[0].choose(rng)
        drawn = int((self.shares.cumsum() < rng.random()).sum())
        choice = self.beliefs[min(drawn, len(self.beliefs) - 1)].choose(rng)
        mean, variance = self.predict(choice.point[None])
        return choice._replace(mean=float(mean[0]), variance=float(variance[0]))

    def best(self) -> Array | None:
        """The best point known to the family that counts most."""
        return self.beliefs[int(self.shares.argmax())].best()

    def log_densities(self, point: Array, y: float) -> Array:
        """[F] log p(y) of each family."""
        return np.array([log_mean(b.log_density(point, y), b.weights) for b in self.beliefs])

    def similar(self) -> Array:
        return self.beliefs[0].similar()


class EvidenceGate:
    """Families of experts side by side: all learn from every sample, those that predicted it well speak louder."""

    def __init__(self, families: Sequence[Family], odds: Sequence[float]) -> None:
        self.families = tuple(families)
        self.experts = tuple(name for family in families for name in family.experts)
        self._odds = np.array(odds)  # nats for each family before anything is seen
        self._evidence = Evidence(np.zeros(len(self.families)))

    def believe(self, context: Array) -> Mixture:
        shares = SOLE if len(self.families) == 1 else softmax(self._odds + self._evidence.scores)
        return Mixture(tuple(family.believe(context) for family in self.families), shares)

    def learn(self, point: Array, context: Array, values: Array, failed: bool, densities: Array | None) -> None:
        """Fast path; `densities` [F] are those of this sample, None while nothing was believed."""
        if densities is not None and not failed:
            self._evidence.observe(densities)
        for family in self.families:
            family.learn(point, context, values, failed)

    def relearn(self) -> None:
        for family in self.families:
            family.relearn()

    def reweigh(self, weights: Array) -> None:
        for family in self.families:
            family.reweigh(weights)

    def state(self) -> dict[str, Array]:
        parts = {f"{i}/{name}": a for i, family in enumerate(self.families) for name, a in family.state().items()}
        return {"scores": self._evidence.scores, **parts}

    def restore(self, state: Mapping[str, Array]) -> None:
        self._evidence.restore(state)
        for i, family in enumerate(self.families):
            family.restore(under(f"{i}/", state))
