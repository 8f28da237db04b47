"""Lemma "distance contraction": a projected gradient step shortens the way to the minimiser by a fixed factor.

The paper's factor q on squared distances is right, its proof only for interior minimisers. kappa^2 <= q is sharper.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from rasp_lab.theory.claim import Claim, Trial, require
from rasp_lab.theory.problems import Regime, draw_regime, project, quadratic_1d
from rasp_tuner.base.numerics import Array


@dataclass(frozen=True, slots=True)
class DescentConstants:
    """The constants of projected gradient descent with step eta on mu-strongly convex, L-smooth functions."""

    mu: float
    smoothness: float
    step: float

    def __post_init__(self) -> None:
        require(0.0 < self.mu <= self.smoothness, "0 < mu <= L", mu=self.mu, L=self.smoothness)
        inside = 0.0 < self.step < 2.0 / self.smoothness
        require(inside, "the step must lie strictly between 0 and 2 / L", step=self.step, L=self.smoothness)

    @classmethod
    def on(cls, *regimes: Regime, relative_step: float) -> "DescentConstants":
        """With the constants all these regimes share; `relative_step` is eta L."""
        mu, smoothness = min(r.mu for r in regimes), max(r.smoothness for r in regimes)
        return cls(mu, smoothness, relative_step / smoothness)

    @property
    def q(self) -> float:
        """The paper's factor 1 - mu eta (2 - eta L) on squared distances, in [0, 1)."""
        return 1.0 - self.mu * self.step * (2.0 - self.step * self.smoothness)

    @property
    def kappa(self) -> float:
        """The largest |1 - eta h| over curvatures h in [mu, L], in [0, 1): the factor on distances."""
        return max(abs(1.0 - self.step * self.mu), abs(1.0 - self.step * self.smoothness))

    def move(self, point: Array, gradient: Array) -> Array:
        return project(point - self.step * gradient)


def draw_relative_step(rng: np.random.Generator) -> float:
    """eta L in (0, 2); often exactly 1, the usual choice."""
    return 1.0 if rng.uniform() < 0.25 else float(rng.uniform(0.05, 1.95))


def draw_start(rng: np.random.Generator) -> tuple[Regime, DescentConstants, Array]:
    """A regime of one to four dimensions, a step and a point of Theta."""
    regime = draw_regime(rng, int(rng.integers(1, 5)), interior=bool(rng.integers(2)))
    return (
        regime,
        DescentConstants.on(regime, relative_step=draw_relative_step(rng)),
        rng.uniform(-1.0, 1.0, regime.dim),
    )


def contraction(regime: Regime, descent: DescentConstants, point: Array, *, printed: bool, name: str = "") -> Trial:
    factor = np.sqrt(descent.q) if printed else descent.kappa
    after = regime.distance(descent.move(point, regime.gradient(point)))
    return Trial(after, float(factor * regime.distance(point)), name)


def _trials(rng: np.random.Generator, *, printed: bool) -> Iterator[Trial]:
    while True:
        yield contraction(*draw_start(rng), printed=printed)


def equal_curvature(*, printed: bool) -> Trial:
    """Where mu = L both factors are the same and exact."""
    regime = quadratic_1d(0.25)
    descent = DescentConstants.on(regime, relative_step=0.5)
    return contraction(regime, descent, np.array([1.0]), printed=printed, name="a bowl with mu = L")


WHERE = "mu-strongly convex, L-smooth, 0 < eta < 2/L, minimiser anywhere in Theta"
CLAIMS = (
    Claim(
        "contraction",
        "paper",
        "|w' - w*|^2 <= q |w - w*|^2",
        WHERE,
        partial(_trials, printed=True),
        (partial(equal_curvature, printed=True),),
    ),
    Claim(
        "contraction",
        "mended",
        "|w' - w*| <= kappa |w - w*|, kappa^2 <= q",
        WHERE,
        partial(_trials, printed=False),
        (partial(equal_curvature, printed=False),),
    ),
)
