"""Noisy retrieval: contexts are Gaussian around their center, c = mu_r + xi with xi ~ N(0, sigma^2 I_d).

The paper's chain, P(wrong) <= P(|xi| >= Delta/2) <= exp(-(Delta/(2 sigma) - sqrt d)^2 / 2), is right. It grows with the
dimension only because it asks |xi| to be small in all directions, while just the R - 1 directions towards other keys
matter. The bound of those has no dimension in it, and allows keys off their centers.
All probabilities here are exact: no sampling.
"""

import math
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from rasp_lab.theory.claim import Claim, Trial, require


def normal_tail(x: float) -> float:
    """Q(x) = P(N(0, 1) >= x)."""
    return 0.5 * math.erfc(x / math.sqrt(2.0))


def chi_tail(dim: int, radius: float) -> float:
    """P(|xi| >= radius) for xi ~ N(0, I_dim): each two dimensions add a term to that of one or two.

    >>> round(chi_tail(2, 2.0), 6), round(chi_tail(3, 2.0), 6)
    (0.135335, 0.261464)
    """
    require(dim >= 1 and radius > 0.0, "dim >= 1 and radius > 0", dim=dim, radius=radius)
    half = radius * radius / 2.0
    tail = math.exp(-half) if dim % 2 == 0 else 2.0 * normal_tail(radius)
    for d in range(2 - dim % 2, dim, 2):
        tail += math.exp(d / 2.0 * math.log(half) - half - math.lgamma(d / 2.0 + 1.0))
    return min(tail, 1.0)


def printed_bound(separation: float, noise: float, dim: int) -> float:
    """exp(-u) with sigma (sqrt d + sqrt(2u)) = Delta / 2: there is a u > 0 only if Delta > 2 sigma sqrt d."""
    margin = separation / (2.0 * noise) - math.sqrt(dim)
    require(margin > 0.0, "Delta > 2 sigma sqrt d", Delta=separation, sigma=noise, d=dim)
    return math.exp(-margin * margin / 2.0)


def bound(separation: float, noise: float, regimes: int, key_radius: float = 0.0) -> float:
    """(R - 1) Q((Delta/2 - rho_k) / sigma), for keys within rho_k of their centers and any dimension."""
    margin = separation / 2.0 - key_radius
    require(margin > 0.0, "Delta > 2 rho_k", Delta=separation, rho_k=key_radius)
    require(noise > 0.0 and regimes >= 2, "sigma > 0 and R >= 2", sigma=noise, R=regimes)
    return (regimes - 1) * normal_tail(margin / noise)


def wrong_on_a_line(keys: Sequence[float], center: float, active: int, noise: float) -> float:
    """P(wrong) exactly, for keys on a line in a space of any dimension: c must stay between two midpoints."""
    mine = keys[active]
    above = min((k for k in keys if k > mine), default=math.inf)
    below = max((k for k in keys if k < mine), default=-math.inf)
    high, low = ((mine + k) / 2.0 for k in (above, below))
    return normal_tail((high - center) / noise) + normal_tail((center - low) / noise)


def _chi(rng: np.random.Generator) -> Iterator[Trial]:
    while True:
        dim, u = int(rng.integers(1, 200)), float(rng.uniform(0.01, 15.0))
        yield Trial(chi_tail(dim, math.sqrt(dim) + math.sqrt(2.0 * u)), math.exp(-u))


def _trials(rng: np.random.Generator, *, printed: bool) -> Iterator[Trial]:
    while True:
        count, noise = int(rng.integers(2, 7)), float(rng.uniform(0.2, 3.0))
        dim, active = int(rng.integers(1, 50)), int(rng.integers(count))
        least = 2.0 * noise * math.sqrt(dim) if printed else 0.5 * noise
        separation = least + noise * float(rng.uniform(0.01, 8.0))
        centers = separation * np.arange(count)
        if printed:
            measured = wrong_on_a_line(centers.tolist(), centers[active], active, noise)
            yield Trial(measured, printed_bound(separation, noise, dim))
        else:
            radius = float(rng.choice([0.0, 0.3])) * separation
            keys = centers + rng.uniform(-radius, radius, count)
            measured = wrong_on_a_line(keys.tolist(), centers[active], active, noise)
            yield Trial(measured, bound(separation, noise, count, radius))


def two_regimes() -> Trial:
    """With two regimes the mended bound is the probability itself, in a thousand dimensions as in one."""
    return Trial(wrong_on_a_line([0.0, 4.0], 0.0, 0, 1.0), bound(4.0, 1.0, 2), "two regimes 4 sigma apart, any d")


CLAIMS = (
    Claim(
        "noisy retrieval, chi tail",
        "paper",
        "P(|xi| >= sigma (sqrt d + sqrt(2u))) <= exp(-u)",
        "xi ~ N(0, sigma^2 I_d), u > 0",
        _chi,
        instances=1000,
    ),
    Claim(
        "noisy retrieval",
        "paper",
        "P(wrong) <= exp(-(Delta/(2 sigma) - sqrt d)^2 / 2)",
        "keys at centers, Delta > 2 sigma sqrt d",
        partial(_trials, printed=True),
        instances=1000,
    ),
    Claim(
        "noisy retrieval",
        "mended",
        "P(wrong) <= (R - 1) Q((Delta/2 - rho_k) / sigma), Q the normal tail",
        "keys within rho_k of centers, Delta > 2 rho_k, any d",
        partial(_trials, printed=False),
        (two_regimes,),
        1000,
    ),
)
