"""Concentration of the EMA mean, and what the EMA variance estimates.

The paper's tail bound of the mean is right. Of the variance it says that similar arguments apply; its mean can be said
exactly, and its limit is 2 m^2 / (1 + m) times the variance of the metric, not that variance.
All probabilities and means here are exact: closed forms, or all 2^t paths of fair coins.
"""

import math
from collections.abc import Iterator
from itertools import product

import numpy as np

from rasp_lab.theory.claim import Claim, Trial, require
from rasp_tuner.base.numerics import Array, RunningEMA


def spread(momentum: float, steps: int) -> float:
    """(1 - m)^2 sum_{j < t} m^(2j): the variance of the EMA mean in units of that of the metric."""
    require(0.0 < momentum < 1.0 and steps >= 1, "0 < m < 1 and t >= 1", m=momentum, t=steps)
    return (1.0 - momentum) ** 2 * (1.0 - momentum ** (2 * steps)) / (1.0 - momentum**2)


def mean_tail(deviation: float, momentum: float, steps: int, scale: float = 1.0) -> float:
    """P(|mu_t - E mu_t| >= deviation) <= 2 exp(-deviation^2 / (2 scale^2 spread))."""
    require(deviation > 0.0 and scale > 0.0, "deviation > 0 and scale > 0", deviation=deviation, scale=scale)
    return 2.0 * math.exp(-(deviation**2) / (2.0 * scale**2 * spread(momentum, steps)))


def mean_variance(momentum: float, steps: int, start: float, variance: float, offset: float) -> float:
    """E sigma^2_t for i.i.d. metrics of this variance whose mean is `offset` away from mu_0; sigma^2_0 = start."""
    m, value = momentum, start
    for j in range(1, steps + 1):
        earlier = 1.0 + (spread(m, j - 1) if j > 1 else 0.0)  # v_j - mu_j = m (v_j - mu_{j-1})
        value = m * value + (1.0 - m) * m**2 * (variance * earlier + m ** (2 * (j - 1)) * offset**2)
    return value


def variance_limit(momentum: float) -> float:
    """The limit of E sigma^2_t in units of the metric's variance."""
    require(0.0 < momentum < 1.0, "0 < m < 1", m=momentum)
    return 2.0 * momentum**2 / (1.0 + momentum)


def coin_paths(momentum: float, steps: int, shift: float = 0.0) -> tuple[Array, Array]:
    """Mean and variance [2^t] of a RunningEMA after every path of coins shift +- 1."""
    ends = []
    for path in product((shift - 1.0, shift + 1.0), repeat=steps):
        ema = RunningEMA(momentum)
        for value in path:
            ema.observe(value)
        ends.append(ema.moments)
    means, variances = np.array(ends).T
    return means, variances


def _mean(rng: np.random.Generator) -> Iterator[Trial]:
    """Gaussian metrics and fair coins by turns; both are sub-Gaussian with parameter 1."""
    while True:
        m, steps = float(rng.uniform(0.3, 0.995)), int(rng.integers(1, 400))
        deviation = math.sqrt(spread(m, steps)) * float(rng.uniform(0.1, 6.0))
        yield Trial(math.erfc(deviation / math.sqrt(2.0 * spread(m, steps))), mean_tail(deviation, m, steps))
        m, steps = float(rng.uniform(0.3, 0.995)), int(rng.integers(1, 9))
        means, _ = coin_paths(m, steps)
        reached = float(rng.choice(np.abs(means[means != 0.0])))
        yield Trial(float((np.abs(means) >= reached - 1e-12).mean()), mean_tail(reached, m, steps))


def _variance(rng: np.random.Generator) -> Iterator[Trial]:
    while True:
        m, steps, shift = float(rng.uniform(0.3, 0.995)), int(rng.integers(1, 8)), float(rng.uniform(-3.0, 3.0))
        _, variances = coin_paths(m, steps, shift)
        sides = float(variances.mean()), mean_variance(m, steps, 1.0, 1.0, shift)
        yield Trial(max(sides), min(sides))  # an equality: off by anything breaks it


CLAIMS = (
    Claim(
        "EMA mean",
        "paper",
        "P(|mu_t - E mu_t| >= eps) <= 2 exp(-eps^2 / (2 s^2 (1-m)^2 sum m^(2j)))",
        "i.i.d. sub-Gaussian metrics with parameter s^2",
        _mean,
    ),
    Claim(
        "EMA variance",
        "mended",
        "E sigma^2_t = m^t sigma^2_0 + ..., with limit 2 m^2/(1+m) Var v",
        "i.i.d. metrics with finite variance",
        _variance,
        instances=100,
    ),
)
