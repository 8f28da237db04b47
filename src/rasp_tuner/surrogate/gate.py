"""EvidenceGate: one mixture of all families' experts, weighted by the density they gave to what came back.

Context that says nothing loses this race to the expert that ignores context; that cures the paper's adversarial case.
Between families a prior speaks too, and is not forgotten: density is not decision quality.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rasp_tuner.numerics import Array, softmax, under
from rasp_tuner.surrogate.base import Belief, Family
from rasp_tuner.surrogate.evidence import Evidence
from rasp_tuner.types import Prediction


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

    def predict(self, points: Array) -> Prediction:
        """Mean of y at points [n, d]; its variance counts the experts' own doubt and their disagreement."""
        weights, parts = self.weights, [belief.predict(points) for belief in self.beliefs]
        means, variances = (a[0] if len(a) == 1 else np.concatenate(a) for a in zip(*parts, strict=True))
        mean = weights @ means
        variance = weights @ (variances + (means - mean) ** 2)
        return Prediction(mean, variance, np.broadcast_to(weights, (len(points), len(weights))))

    def noise(self) -> float:
        """Variance of one observation of y around its mean."""
        return float(self.weights @ np.concatenate([belief.noise for belief in self.beliefs]))

    def choose(self, rng: np.random.Generator) -> tuple[Array, str]:
        """The choice of one family, drawn by its share."""
        drawn = int((self.shares.cumsum() < rng.random()).sum()) if len(self.shares) > 1 else 0
        return self.beliefs[min(drawn, len(self.beliefs) - 1)].choose(rng)

    def best(self) -> Array | None:
        """The best point known to the family that counts most."""
        return self.beliefs[int(self.shares.argmax())].best()

    def log_densities(self, point: Array, y: float) -> Array:
        """[F] log p(y) of each family."""
        return np.array([_log_mean(b.log_density(point, y), b.weights) for b in self.beliefs])

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
        shares = softmax(self._odds + self._evidence.scores)
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


def _log_mean(logs: Array, weights: Array) -> float:
    top = float(logs.max())
    mean = float(weights @ np.exp(logs - top))  # zero if all the weight lies elsewhere
    return top + float(np.log(max(mean, 1e-300)))
