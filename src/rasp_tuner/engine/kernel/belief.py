"""Belief: what the quadratic families of B tuners hold true, each in one context. Symbols as in state.py.

y is relative to the first sample, less the offset. A belief is good until its tuner learns.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from rasp_tuner.base.numerics import Array
from rasp_tuner.engine.kernel.state import Dims, E, L, Places


class Experts(NamedTuple):
    """All experts in one context, as bowls; a moving optimum without a say is the blind expert once more."""

    mean: Array  # [B, E, p] of the coefficients, in units of y
    S: Array  # [B, E, p, p] their covariance, in units of a^2
    along: Array  # [B, d, p] covariance of the moving optimum with its bowl, in units of a
    location: Array  # [B, d, d] covariance of the moving optimum


@dataclass
class SlotBelief:
    """Every array begins with the axis of tuners."""

    weights: Array  # [B, E] of the experts, summing to one
    noises: Array  # [B, E] variance of one observation, in units of a^2
    spread: Array  # [B] of y
    offset: Array  # [B] mean y of all history
    origin: Array  # [B] y of the first sample
    a: Array  # [B] the curvature all situations share
    moving: Array  # [B] 1 where the moving optimum has a fit and a say
    level: Array  # [B] the least y of the moving optimum, in units of a, as are its curvatures
    ratio: Array  # [B] the curvature that its covariance is in, in units of a
    x: Array  # [B, 1 + r] the context in components, after a one
    curvatures: Array  # [B, d]
    optimum: Array  # [B, d]
    mean: Array  # [B, L, p] posterior of the local experts
    S: Array  # [B, L, p, p] its covariance, in units of a^2
    G: Array  # [B, L, p, p] pooled sums of phi phi'
    b: Array  # [B, L, p] of phi y
    rest: Array  # [B, L] of y^2
    kernels: Array  # [B, L, R] how much each slot counts for each local expert; 0 for a row not in use
    experts: Experts | None = None  # what predict.py makes of the above when first asked

    def some(self, rows: Places) -> "SlotBelief":
        """That of some of the tuners."""
        return SlotBelief(**{name: getattr(self, name)[rows] for name in vars(self) if name != "experts"})


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


@lru_cache
def places(dims: Dims) -> dict[str, tuple[slice, tuple[int, ...]]]:
    """Where each array lies in the buffer of compiled code, and its shape."""
    found, start = {}, 0
    for name, shape in layout(dims).items():
        stop = start + math.prod(shape)
        found[name] = slice(start, stop), shape
        start = stop
    return found


class BeliefBuffer:
    """Beliefs of n tuners as compiled code lays them out; its arrays, named as in `SlotBelief`, are views."""

    def __init__(self, dims: Dims, buffer: Array) -> None:
        self._dims, self.buffer = dims, buffer
        self.experts: Experts | None = None  # as of a SlotBelief: the functions in NumPy take this one, too

    def __getattr__(self, name: str) -> Array:
        layout = {} if name.startswith("_") else places(self._dims)
        if name not in layout:
            raise AttributeError(f"a belief has no array {name!r}")
        part, shape = layout[name]
        return self.buffer[:, part].reshape(len(self.buffer), *shape)
