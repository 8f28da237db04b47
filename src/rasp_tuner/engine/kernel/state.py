"""State: all that the quadratic family of B tuners knows, as arrays with a leading axis of tuners.

symbol   meaning
B        tuners
d, c, k  knobs; context dimensions; columns of losses
p, q     1 + 2 d features of a point, phi = [1, u, u^2]; q = p + k of a sample, psi = [phi, losses]
L, E     local experts; all experts: the last is an optimum that moves with the context
R        rows for slots: SLOTS, and a few spare ones between merges
w, r, m  a context reduced for the moving optimum: dimensions, components; its coefficients
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rasp_tuner.base.common_constants import EARLY_SAMPLES
from rasp_tuner.base.numerics import Array
from rasp_tuner.base.state_checks import MOST_SAMPLES, Field, fields_of

Places = NDArray[np.int64]  # positions

LOCAL_EXPERTS = ("all history", "recent history", "situations like this one", "the most similar situations")
MOVING_EXPERT = "an optimum that moves with the context"
L = len(LOCAL_EXPERTS)
E = L + 1
SLOTS, SPARE_SLOTS = 192, 8  # that memory has; more that are filled before the nearest become one
WINDOW_SAMPLES = 128  # that the moving optimum is fitted to
RANK, SKETCH_DIMENSIONS = 3, 32  # components of a context; a longer one is first projected at random to so many
NOISES = 9  # variances that are weighed


# what arithmetic can come to, with room: contexts and losses end at 1e100, and are kept relative to the first
FAR, FAR_SQUARE, FAR_SUM = 1e110, 1e221, 1e240  # a difference; its square; as many of these as there may be
FAR_SCALED = 1e170  # divided by a deviation, of which the least is the root of the smallest float
FAR_FITTED, FAR_OPTIMUM = 1e125, 1e30  # what a fit may come to: levels and curvatures; where the optimum lies, in u
LEAST_UNIT = 1e-100  # of what y is divided by
LEAST_NATS, MOST_NATS = -1e6, 100.0  # of scores, whose largest is 0 or near
LARGEST_LEVEL_VARIANCE = 1e12  # of the least y, in units of the curvature squared

_COUNT, _FLAG = (0.0, MOST_SAMPLES, True), (0.0, 1.0, True)


@dataclass(frozen=True)
class Dims:
    """Sizes that all tuners of a state share."""

    knobs: int
    context: int
    columns: int

    @cached_property
    def features(self) -> int:
        """p"""
        return 1 + 2 * self.knobs

    @cached_property
    def sample(self) -> int:
        """q"""
        return self.features + self.columns

    @cached_property
    def prompt(self) -> int:
        """The upper triangle of psi psi', row by row: its first q entries are psi itself."""
        return self.sample * (self.sample + 1) // 2

    @property
    def rows(self) -> int:
        """R"""
        return SLOTS + SPARE_SLOTS

    @property
    def width(self) -> int:
        """w"""
        return min(self.context, SKETCH_DIMENSIONS)

    @property
    def rank(self) -> int:
        """r"""
        return min(self.context, RANK)

    @cached_property
    def coefficients(self) -> int:
        """m: level, curvatures, and where the optimum lies and moves to."""
        return 1 + self.knobs + self.knobs * (1 + self.rank)


@dataclass
class State:
    """Every array is of float64 and begins with the axis of tuners; what a row beyond `count` holds means nothing.

    Beside each stands what it must be of one tuner: its shape, its least and its largest number. A file has no more
    rows R than are in use. The same list in C is written by build.py.
    """

    # slots of memory
    keys: Annotated[Array, Field(("R", "c"), -FAR, FAR)]  # mean context of a slot, relative to the first ever
    prompts: Annotated[Array, Field(("R", "P"), -FAR_SUM, FAR_SUM)]  # sums of the upper triangle of psi psi'
    trust: Annotated[Array, Field((L, "R"), 0.0, 1.0)]  # how far each expert believes a slot's samples
    counts: Annotated[Array, Field(("R",), 1.0, MOST_SAMPLES, whole=True)]  # samples in a slot
    last: Annotated[Array, Field(("R",), *_COUNT)]  # step of its latest sample
    count: Annotated[Array, Field((), 0.0, SLOTS + SPARE_SLOTS - 1.0, whole=True)]  # slots in use
    steps: Annotated[Array, Field((), *_COUNT)]  # samples so far, failures included
    latest: Annotated[Array, Field((), 0.0, SLOTS + SPARE_SLOTS - 1.0, whole=True)]  # the slot of the latest sample
    # contexts
    origin: Annotated[Array, Field(("c",), -FAR, FAR)]  # the first one
    previous: Annotated[Array, Field(("c",), -FAR, FAR)]  # the latest one, relative to the first, as are the next three
    mean: Annotated[Array, Field(("c",), -FAR, FAR)]
    moment: Annotated[Array, Field(("c",), -FAR_SQUARE, FAR_SQUARE)]  # mean square
    changes: Annotated[Array, Field(("c",), 0.0, FAR_SUM)]  # sum of half the squared changes
    distance: Annotated[Array, Field((2,), 0.0, 16.0)]  # mean and mean square of the distance between neighbours
    context_least: Annotated[Array, Field(("c",), -FAR, FAR)]  # these scales see contexts from here
    context_most: Annotated[Array, Field(("c",), -FAR, FAR)]  # to here
    # what all situations share
    curvature: Annotated[Array, Field((), 0.0, FAR)]  # 0 until it is known
    level: Annotated[Array, Field((), -FAR, FAR)]  # of the least y
    level_variance: Annotated[Array, Field((), 0.0, LARGEST_LEVEL_VARIANCE)]  # in units of the curvature squared
    largest: Annotated[Array, Field((), 0.0, FAR)]  # deviation of y, slowly forgotten
    tracked: Annotated[Array, Field((), 0.0, MOST_SAMPLES)]  # samples that these were tracked for
    location: Annotated[Array, Field(("d",), -2.0, 2.0)]  # where optima are expected, in u; 0 is the default
    location_variance: Annotated[Array, Field(("d",), 1e-3, 10.0)]  # of an optimum around that
    # experts
    scores: Annotated[Array, Field((E,), LEAST_NATS, MOST_NATS)]  # evidence
    noises: Annotated[Array, Field((E, NOISES), LEAST_NATS, MOST_NATS)]  # scores of the variances of one observation
    weights: Annotated[Array, Field(("k",), 0.0, FAR_SCALED)]  # y = losses @ weights
    first: Annotated[Array, Field(("k",), -FAR, FAR)]  # losses of the first sample; all are kept relative to them
    suspected: Annotated[Array, Field((), *_FLAG)]  # 1 if the latest sample looked false
    early: Annotated[Array, Field((EARLY_SAMPLES,), 0.0, 2.0, whole=True)]  # of the first: 1 false, 2 failed
    # the moving optimum; the window is a ring by `steps`
    window_points: Annotated[Array, Field((WINDOW_SAMPLES, "d"), -2.0, 2.0)]  # u
    window_contexts: Annotated[Array, Field((WINDOW_SAMPLES, "w"), -FAR, FAR)]
    window_losses: Annotated[Array, Field((WINDOW_SAMPLES, "k"), -FAR, FAR)]
    window_weights: Annotated[Array, Field((WINDOW_SAMPLES,), 0.0, 1.0)]
    reduced_mean: Annotated[Array, Field(("w",), -FAR, FAR)]
    reduced_moments: Annotated[Array, Field(("w", "w"), -FAR_SQUARE, FAR_SQUARE)]
    centre: Annotated[Array, Field(("w",), -FAR, FAR)]
    encode: Annotated[Array, Field(("w", "r"), -FAR_SCALED, FAR_SCALED)]
    theta: Annotated[Array, Field(("m",), -FAR_FITTED, FAR_FITTED)]  # in units of y
    unit: Annotated[Array, Field((), LEAST_UNIT, FAR)]  # curvature of the latest fit, in which the covariance is
    covariance: Annotated[Array, Field(("m", "m"), -1e6, 1e6)]
    fitted: Annotated[Array, Field((), *_FLAG)]  # 1 once there is a fit

    @property
    def size(self) -> int:
        return len(self.steps)

    def items(self) -> Iterator[tuple[str, Array]]:
        """Names and arrays."""
        for field in fields(self):
            yield field.name, getattr(self, field.name)

    def map(self, change: Callable[[Array], Array]) -> "State":
        """A state with every array changed, as by taking some tuners."""
        return State(**{name: change(array) for name, array in self.items()})


FIELDS = fields_of(State)


def shapes(dims: Dims) -> dict[str, tuple[int, ...]]:
    """Of every array of one tuner, by name."""
    known = sizes(dims)
    return {name: tuple(known[n] if isinstance(n, str) else n for n in f.shape) for name, f in FIELDS.items()}


def sizes(dims: Dims) -> dict[str, int]:
    """Of the symbols in FIELDS."""
    return {
        "R": dims.rows, "P": dims.prompt, "d": dims.knobs, "c": dims.context, "k": dims.columns,
        "w": dims.width, "r": dims.rank, "m": dims.coefficients,
    }  # fmt: skip


def blank(dims: Dims, size: int, starts: Mapping[str, ArrayLike]) -> State:
    """B tuners that know nothing: zeros, but for the arrays that `starts` gives one tuner's values of."""
    arrays = {name: np.zeros((size, *shape)) for name, shape in shapes(dims).items()}
    for name, value in starts.items():
        arrays[name][...] = value
    return State(**arrays)
