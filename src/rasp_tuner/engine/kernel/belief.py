"""Belief: what the quadratic families of B tuners hold true, each in one context. Symbols as in state.py.

y is relative to the first sample, less the offset. A belief is good until its tuner learns.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rasp_tuner.engine.kernel.state import Dims, E, L, Tensor


@dataclass
class Belief:
    """Every array begins with the axis of tuners."""

    weights: Tensor  # [B, E] of the experts, summing to one
    noises: Tensor  # [B, E] variance of one observation, in units of a^2
    spread: Tensor  # [B] of y
    offset: Tensor  # [B] mean y of all history
    origin: Tensor  # [B] y of the first sample
    a: Tensor  # [B] the curvature all situations share
    moving: Tensor  # [B] 1 where the moving optimum has a fit and a say
    level: Tensor  # [B] the least y of the moving optimum, in units of a, as are its curvatures
    ratio: Tensor  # [B] the curvature that its covariance is in, in units of a
    x: Tensor  # [B, 1 + r] the context in components, after a one
    curvatures: Tensor  # [B, d]
    optimum: Tensor  # [B, d]
    mean: Tensor  # [B, L, p] posterior of the local experts
    S: Tensor  # [B, L, p, p] its covariance, in units of a^2
    G: Tensor  # [B, L, p, p] pooled sums of phi phi'
    b: Tensor  # [B, L, p] of phi y
    rest: Tensor  # [B, L] of y^2
    kernels: Tensor  # [B, L, R] how much each slot counts for each local expert; 0 for a row not in use
    experts: Any = None  # all experts as bowls: what predict.py makes of the above when first asked


def shapes(dims: Dims) -> dict[str, tuple[int, ...]]:
    """Of every array of one tuner's belief, by name."""
    d, p = dims.knobs, dims.features
    return {
        "weights": (E,), "noises": (E,), "spread": (), "offset": (), "origin": (), "a": (), "moving": (), "level": (),
        "ratio": (), "x": (1 + dims.rank,), "curvatures": (d,), "optimum": (d,), "mean": (L, p), "S": (L, p, p),
        "G": (L, p, p), "b": (L, p), "rest": (L,), "kernels": (L, dims.rows),
    }  # fmt: skip


def layout(dims: Dims) -> dict[str, tuple[int, ...]]:
    """The same in the order in which compiled code lays them out, and what it makes once for all that is asked.

    K is the covariance of the moving optimum, and the hint the best point tried in situations like this one.
    """
    return {**shapes(dims), "K": (dims.features, dims.features), "hint": (dims.knobs,)}


@lru_cache
def length(dims: Dims) -> int:
    """Numbers in the belief of one tuner."""
    return sum(math.prod(shape) for shape in layout(dims).values())
