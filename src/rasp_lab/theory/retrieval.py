"""Lemma "perfect retrieval": the nearest key belongs to the active regime if centers are far enough apart.

The paper asks for more than 2 rho between centers, with contexts and keys anywhere within rho of theirs, and ends with
|c - k_s| > 2 rho, which does not follow. With keys within rho_k, more than 2 (rho + rho_k) is enough, and less is not.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np

from rasp_lab.theory.claim import Claim, Trial, require
from rasp_tuner.base.numerics import Array
from rasp_tuner.contexts.distance import euclidean


def sufficient_separation(radius: float, key_radius: float) -> float:
    """The separation above which retrieval is perfect: 4 rho for keys that are contexts, 2 rho for keys at centers."""
    require(radius >= 0.0 and key_radius >= 0.0, "radii are not negative", radius=radius, key_radius=key_radius)
    return 2.0 * (radius + key_radius)


def worst_distance_ratio(separation: float, radius: float, key_radius: float) -> float:
    """A distance ratio (right key over nearest wrong key) that is never exceeded; below one."""
    holds = separation > sufficient_separation(radius, key_radius)
    require(holds, "separation > 2 (rho + rho_k)", separation=separation, rho=radius, rho_k=key_radius)
    return (radius + key_radius) / (separation - radius - key_radius)


def retrieval_trial(context: Array, keys: Array, regime: int, name: str = "") -> Trial:
    """Measured: the distance to the right key. Bound: that to the nearest wrong one, for retrieval to be right."""
    away = euclidean(keys, context)
    return Trial(float(away[regime]), float(np.delete(away, regime).min()), name)


def spread_centers(rng: np.random.Generator, count: int, dim: int, separation: float) -> Array:
    """Random centers [count, dim], the closest two exactly `separation` apart."""
    centers = rng.normal(size=(count, dim))
    closest = min(float(euclidean(centers[:i], centers[i]).min()) for i in range(1, count))
    return centers * (separation / closest)


def in_ball(rng: np.random.Generator, center: Array, radius: float) -> Array:
    """A point of the ball; often one on its surface, where the worst cases are."""
    direction = rng.normal(size=len(center))
    share = 1.0 if rng.uniform() < 0.5 else rng.uniform() ** (1 / len(center))
    return center + radius * share * direction / np.linalg.norm(direction)


def _trials(rng: np.random.Generator, *, printed: bool) -> Iterator[Trial]:
    """rho = 1; keys are contexts, and in the mended version sometimes closer to their centers."""
    while True:
        count, dim = int(rng.integers(2, 7)), int(rng.integers(1, 5))
        key_radius = 1.0 if printed else float(rng.choice([0.0, 0.5, 1.0]))
        least = 2.0 if printed else sufficient_separation(1.0, key_radius)
        centers = spread_centers(rng, count, dim, least * (1.0 + 10.0 ** rng.uniform(-4.0, 0.0)))
        keys = np.array([in_ball(rng, center, key_radius) for center in centers])
        regime = int(rng.integers(count))
        yield retrieval_trial(in_ball(rng, centers[regime], 1.0), keys, regime)


def three_radii_apart() -> Trial:
    """rho = 1, centers 0 and 3, keys -1 and 2, context 1: the right key is 2 away, the wrong one 1."""
    return retrieval_trial(
        np.array([1.0]), np.array([[-1.0], [2.0]]), 0, "centers 0 and 3, rho = 1, keys -1 and 2, context 1"
    )


def just_enough() -> Trial:
    """The same with the second regime moved to 4.01: right by a hair."""
    return retrieval_trial(
        np.array([1.0]), np.array([[-1.0], [3.01]]), 0, "centers 0 and 4.01, keys -1 and 3.01, context 1"
    )


CLAIMS = (
    Claim(
        "perfect retrieval",
        "paper",
        "|c - k_r| < |c - k_s| for all s != r",
        "centers > 2 rho apart; contexts and keys within rho of theirs",
        partial(_trials, printed=True),
        (three_radii_apart,),
        1000,
    ),
    Claim(
        "perfect retrieval",
        "mended",
        "|c - k_r| < |c - k_s| for all s != r",
        "centers > 2 (rho + rho_k) apart; contexts within rho, keys within rho_k",
        partial(_trials, printed=False),
        (just_enough,),
        1000,
    ),
)
