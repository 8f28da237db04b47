"""ParamBounds: the paper's box of parameters, on plain vectors."""

from collections.abc import Sequence

import numpy as np

from rasp_tuner.base.checks import show, vector, whole
from rasp_tuner.base.numerics import Array
from rasp_tuner.errors import InvalidSpace
from rasp_tuner.space import LARGEST_INT, check_box


class ParamBounds:
    """The box lower <= theta <= upper [d]: clip into it, normalise to [0, 1]^d and back.

    >>> box = ParamBounds([-5.0, 0.0], [5.0, 1.0])
    >>> box.normalize([0.0, 0.25]).tolist()
    [0.5, 0.25]
    """

    def __init__(self, lower: Sequence[float] | Array, upper: Sequence[float] | Array) -> None:
        size = len(lower) if isinstance(lower, Sequence) or np.ndim(lower) == 1 else 0
        if size == 0:
            raise InvalidSpace(f"ParamBounds lower must be a list of at least one number, got {show(lower)}")
        self.lower = vector("ParamBounds lower", lower, size, InvalidSpace)
        self.upper = vector("ParamBounds upper", upper, size, InvalidSpace)
        for i, (low, high) in enumerate(zip(self.lower, self.upper, strict=True)):
            check_box(f"ParamBounds[{i}]", float(low), float(high))

    @classmethod
    def unit(cls, dim: int) -> "ParamBounds":
        size = whole("dim", dim, 1, LARGEST_INT, InvalidSpace)
        return cls(np.zeros(size), np.ones(size))

    @property
    def dim(self) -> int:
        return len(self.lower)

    @property
    def center(self) -> Array:
        return self.denormalize(np.full(self.dim, 0.5))

    def clip(self, theta: Sequence[float] | Array) -> Array:
        return np.clip(vector("theta", theta, self.dim), self.lower, self.upper)

    def normalize(self, theta: Sequence[float] | Array) -> Array:
        """theta~ = (theta - lower) / (upper - lower); theta may lie outside the box."""
        unit: Array = (vector("theta", theta, self.dim) - self.lower) / (self.upper - self.lower)
        return unit

    def denormalize(self, unit: Sequence[float] | Array) -> Array:
        fraction = vector("unit", unit, self.dim)
        theta: Array = self.lower * (1.0 - fraction) + self.upper * fraction
        return theta
