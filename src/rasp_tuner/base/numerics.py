"""Small numerics shared by all stages, with their valid ranges: the one place where overflow is dealt with.

symbol   shape    meaning
m        scalar   EMA momentum, in (0, 1)
mu, var  scalar   running mean and variance, started at 0 and 1 (paper, Appendix D)
z        scalar   standardised score (v - mu) / (sigma + EPSILON), with the *updated* moments
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.errors import InvalidSpace, InvalidValue

Array = NDArray[np.float64]

EPSILON = 1e-8  # the paper's epsilon: keeps z finite for a constant metric
MOMENTUM = 0.97  # the paper's m: about 33 steps of memory
SMALLEST = 1e-300  # of what is divided by, or whose logarithm is taken
LARGEST = 1e100  # deviations and contexts saturate here, so that squares and sums of squares stay finite


def logistic(z: float) -> float:
    """1 / (1 + exp(-z)), in [0, 1] for every float but NaN; 1/4-Lipschitz (Eq. logistic_lip)."""
    if z >= 0.0:
        return 1.0 / (1.0 + math.exp(-z))
    grown = math.exp(z)  # never overflows: z < 0
    return grown / (1.0 + grown)


def softmax(logits: Array) -> Array:
    """Positive weights [n] that sum to one; any finite logits, n >= 1."""
    with np.errstate(under="ignore"):  # a weight of zero is the right answer
        shifted = np.exp(logits - logits.max())
    weights: Array = shifted / shifted.sum()
    return weights


def entropy(weights: Array) -> float:
    """H(alpha) = -sum alpha log alpha in nats, with 0 log 0 = 0; between 0 and log n."""
    positive = weights[weights > 0.0]
    return max(0.0, float(-(positive * np.log(positive)).sum()))


@dataclass(slots=True)
class RunningEMA:
    """Exponential moving mean and variance of a stream of numbers (paper, Section RealErrorComposer).

    >>> ema = RunningEMA()
    >>> round(ema.observe(10.0), 3)  # z-score of the value under the moments it has just moved
    4.981
    >>> round(ema.mean, 3), round(ema.var, 3)
    (0.3, 3.793)
    """

    momentum: float = MOMENTUM
    mean: float = 0.0
    var: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.momentum, float) or not 0.0 < self.momentum < 1.0:
            raise InvalidSpace(f"momentum must be a float strictly between 0 and 1, got {self.momentum!r}")

    def observe(self, value: float) -> float:
        """Move the moments towards `value`, mean first, and return its z-score under the new ones."""
        self.mean, self.var = self._moved(value)
        return self._score(value, self.mean, self.var)

    def peek(self, value: float) -> float:
        """What `observe` would return, without moving anything."""
        return self._score(value, *self._moved(value))

    @property
    def moments(self) -> Array:
        """[mean, var]: all there is to remember."""
        return np.array([self.mean, self.var])

    @moments.setter
    def moments(self, values: Array) -> None:
        self.mean, self.var = (float(value) for value in values)

    def _moved(self, value: float) -> tuple[float, float]:
        if not math.isfinite(value):
            raise InvalidValue(f"a moving average takes finite numbers, got {value!r}")
        keep = self.momentum
        mean = keep * self.mean + (1.0 - keep) * value
        return mean, keep * self.var + (1.0 - keep) * _deviation(value, mean) ** 2

    @staticmethod
    def _score(value: float, mean: float, var: float) -> float:
        return _deviation(value, mean) / (math.sqrt(var) + EPSILON)


def _deviation(value: float, mean: float) -> float:
    return min(max(value - mean, -LARGEST), LARGEST)
