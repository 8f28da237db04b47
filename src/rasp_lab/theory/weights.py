"""Top-K retrieval with softmax weights, in the perfectly separated case.

The paper: for small tau the largest weight approaches one. Two keys of the active regime may be equally near, and then
it is a half for every tau. What approaches one is the weight of the active regime as a whole.
"""

import math
from collections.abc import Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from rasp_lab.theory.claim import Claim, Trial, require
from rasp_lab.theory.retrieval import in_ball, spread_centers, sufficient_separation
from rasp_tuner.base.numerics import Array, softmax
from rasp_tuner.contexts.distance import euclidean

Owners = NDArray[np.int64]  # of each key, its regime


def bound(gap: float, temperature: float, top_k: int) -> float:
    """The most that can fall on K - 1 keys which are farther than the nearest by at least `gap`."""
    require(gap > 0.0 and temperature > 0.0, "gap > 0 and tau > 0", gap=gap, tau=temperature)
    require(top_k >= 2, "K >= 2", K=top_k)
    others = (top_k - 1) * math.exp(-gap / temperature)
    return others / (1.0 + others)


def top_weights(context: Array, keys: Array, owners: Owners, temperature: float, top_k: int) -> tuple[Array, Owners]:
    """Softmax weights of the K nearest keys, and whose they are."""
    away = euclidean(keys, context)
    nearest = np.argsort(away, kind="stable")[:top_k]
    return softmax(-away[nearest] / temperature), owners[nearest]


def measure(
    context: Array, keys: Array, owners: Owners, gap: float, temperature: float, *, printed: bool, name: str = ""
) -> Trial:
    """K = 3, regime 0 active. Printed: what the largest weight lacks to one. Mended: what regime 0 lacks."""
    weights, owned = top_weights(context, keys, owners, temperature, 3)
    lacking = 1.0 - weights.max() if printed else weights[owned != 0].sum()
    return Trial(float(lacking), bound(gap, temperature, 3), name)


def _trials(rng: np.random.Generator, *, printed: bool) -> Iterator[Trial]:
    while True:
        dim, count, gap = int(rng.integers(1, 5)), int(rng.integers(2, 5)), float(10.0 ** rng.uniform(-1.0, 1.0))
        radius, temperature = float(rng.uniform(0.0, 1.0)), gap / float(rng.uniform(0.1, 10.0))
        centers = spread_centers(rng, count, dim, sufficient_separation(radius, radius) + gap)
        owners = np.repeat(np.arange(count, dtype=np.int64), 1 if rng.uniform() < 0.5 else 2)
        keys = np.array([in_ball(rng, centers[owner], radius) for owner in owners])
        yield measure(in_ball(rng, centers[0], radius), keys, owners, gap, temperature, printed=printed)


def two_equal_keys(*, printed: bool) -> Trial:
    """Keys -1 and 1 of the active regime, context 0, the other regime's key at 6, tau = 1."""
    keys, owners = np.array([[-1.0], [1.0], [6.0]]), np.array([0, 0, 1], dtype=np.int64)
    return measure(np.zeros(1), keys, owners, 5.0, 1.0, printed=printed, name="two keys of the regime equally near")


CLAIMS = (
    Claim(
        "soft weights",
        "paper",
        "1 - max_j alpha_j <= (K-1) e^(-g/tau) / (1 + (K-1) e^(-g/tau)), so -> 0 with tau",
        "wrong keys farther than the nearest right one by g > 0",
        partial(_trials, printed=True),
        (partial(two_equal_keys, printed=True),),
    ),
    Claim(
        "soft weights",
        "mended",
        "weight of wrong regimes <= (K-1) e^(-g/tau) / (1 + (K-1) e^(-g/tau))",
        "wrong keys farther by g > 0; g >= Delta - 4 rho for keys that are contexts",
        partial(_trials, printed=False),
        (partial(two_equal_keys, printed=False),),
    ),
)
