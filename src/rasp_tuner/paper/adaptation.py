"""HybridAdaptation: fast path or slow path, and why (paper, Section Hybrid Adaptation).

The paper names the triggers (z_err and the disagreement v against their moving averages) but not the thresholds. Both
are two standard deviations here. Since all averages start at variance 1, far above that of errors and disagreements,
neither can be reached in the first fifty steps (docs/PAPER.md).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rasp_tuner.base.numerics import LARGEST, MOMENTUM, Array, RunningEMA, logistic
from rasp_tuner.base.state_checks import MOMENTS, MOST_SAMPLES, Field, broken, checked

ANOMALY_THRESHOLD = 2.0  # z_err above this: the error is out of the ordinary
DISAGREEMENT_THRESHOLD = 2.0  # z-score of v above this: the experts are


@dataclass(frozen=True, slots=True)
class PathDecision:
    """By which path to learn from a sample, and the reason in words."""

    path: Literal["fast", "slow"]
    reason: str


class HybridAdaptation:
    """Judges each sample; remembers only the moving average of disagreement."""

    def __init__(
        self,
        anomaly_threshold: float = ANOMALY_THRESHOLD,
        disagreement_threshold: float = DISAGREEMENT_THRESHOLD,
        momentum: float = MOMENTUM,
    ) -> None:
        self.anomaly_threshold = anomaly_threshold
        self.disagreement_threshold = disagreement_threshold
        self.disagreement_ema = RunningEMA(momentum)

    def doubt(self, variance: float) -> float:
        """u_t in [0, 1]: disagreement relative to its moving average, which stays as it is."""
        return logistic(self.disagreement_ema.peek(variance))

    def judge(self, anomaly: float, variance: float) -> PathDecision:
        """The path for a sample with anomaly score z_err, predicted with disagreement `variance`."""
        disagreement = self.disagreement_ema.observe(variance)
        if anomaly > self.anomaly_threshold:
            return PathDecision("slow", f"unusual error (z = {anomaly:.1f})")
        if disagreement > self.disagreement_threshold:
            return PathDecision("slow", f"experts disagree (z = {disagreement:.1f})")
        return PathDecision("fast", "nothing unusual")

    def state(self) -> dict[str, Array]:
        return {"disagreement": self.disagreement_ema.moments}

    def restore(self, state: Mapping[str, Array]) -> None:
        self.disagreement_ema.moments = checked(state, {"disagreement": MOMENTS}, {})["disagreement"]


class ReplayBuffer:
    """The latest `size` samples (point [d], context [d_c], error), first in first out."""

    def __init__(self, dim: int, context_dim: int, size: int) -> None:
        self.points = np.zeros((size, dim))
        self.contexts = np.zeros((size, context_dim))
        self.errors = np.zeros(size)
        self.added = 0

    def __len__(self) -> int:
        return min(self.added, len(self.errors))

    def add(self, point: Array, context: Array, error: float) -> None:
        row = self.added % len(self.errors)
        self.points[row], self.contexts[row], self.errors[row] = point, context, error
        self.added += 1

    def recent(self) -> tuple[Array, Array, Array]:
        """Contexts, points and errors, oldest first; copies."""
        rows = np.arange(self.added - len(self), self.added) % len(self.errors)
        return self.contexts[rows], self.points[rows], self.errors[rows]

    def draw(self, count: int, rng: np.random.Generator) -> list[int]:
        """Rows of a mini-batch: the newest sample, then others at random without repetition."""
        newest = (self.added - 1) % len(self.errors)
        others = np.delete(np.arange(len(self)), newest)
        picked = rng.permutation(others)[: count - 1]
        return [newest, *picked.tolist()]

    def state(self) -> dict[str, Array]:
        count = len(self)
        return {
            "points": self.points[:count],
            "contexts": self.contexts[:count],
            "errors": self.errors[:count],
            "added": np.array(float(self.added)),
        }

    def restore(self, state: Mapping[str, Array]) -> None:
        (size, dim), context_dim = self.points.shape, self.contexts.shape[1]
        fields = {
            "points": Field(("n", dim), 0.0, 1.0),
            "contexts": Field(("n", context_dim), -LARGEST, LARGEST),
            "errors": Field(("n",), 0.0, 1.0),
            "added": Field((), 0.0, MOST_SAMPLES, whole=True),
        }
        read = checked(state, fields, {"n": range(size + 1)})
        added, count = int(read["added"]), len(read["errors"])
        if min(added, size) != count:
            raise broken(state, "added", f"be the number of samples, {count}, or more once there are {size}", added)
        self.added = added
        self.points[:count], self.contexts[:count], self.errors[:count] = (
            read[name] for name in ("points", "contexts", "errors")
        )
