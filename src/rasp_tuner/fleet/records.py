"""Records: which suggestions of B tuners wait for an answer, and what failed early, as arrays [B, ...].

symbol   meaning
B        tuners
d, c     knobs; context dimensions
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rasp_tuner.base.numerics import LARGEST, Array
from rasp_tuner.base.state_checks import MOST_SAMPLES, Field, broken, checked
from rasp_tuner.engine.engine import EARLY_FAILURES
from rasp_tuner.engine.kernel.state import Dims

GIVEN, LOCATED = 1.0, 2.0  # of `guided`: a start was given; and it says where optima lie

_COUNT = (0.0, MOST_SAMPLES, True)
FIELDS = {  # what files may say
    "number": Field(("B",), *_COUNT),
    "asks": Field(("B",), *_COUNT),
    "learned": Field(("B",), *_COUNT),
    "waiting": Field(("B",), 0.0, 1.0, whole=True),
    "point": Field(("B", "d"), 0.0, 1.0),
    "context": Field(("B", "c"), -LARGEST, LARGEST),
    "current": Field(("B", "d"), 0.0, 1.0),
    "guided": Field(("B",), 0.0, LOCATED, whole=True),
    "failures": Field(("B",), 0.0, EARLY_FAILURES, whole=True),
    "failed_at": Field(("B", "F", "d + c"), -LARGEST, LARGEST),
}


@dataclass
class Records:
    """Every array is of float64; flags are 0 or 1."""

    number: Array  # [B] of the tuner in this fleet, for its draws: never used again
    asks: Array  # [B] suggestions made
    learned: Array  # [B] samples told or observed
    waiting: Array  # [B] whether a suggestion waits for its answer
    point: Array  # [B, d] that suggestion, in the unit box
    context: Array  # [B, c] what it was made for
    current: Array  # [B, d] the latest suggestion that was answered
    guided: Array  # [B] whether it began with what the fleet knew: 0, GIVEN or LOCATED
    failures: Array  # [B] that came before anything succeeded
    failed_at: Array  # [B, F, d + c] their points and contexts; F grows with the most that any tuner has


def restored(state: Mapping[str, Array], size: int, dims: Dims) -> Records:
    """Records of so many tuners, as a file says."""
    d, c = dims.knobs, dims.context
    sizes: dict[str, int | range] = {"B": size, "d": d, "c": c, "F": range(EARLY_FAILURES + 1), "d + c": d + c}
    arrays = checked(state, FIELDS, sizes)
    failed_at, points = arrays["failed_at"], arrays["failed_at"][:, :, :d]
    if not ((points >= 0.0) & (points <= 1.0)).all():
        raise broken(state, "failed_at", "begin with points of the unit box", points.tolist())
    if (arrays["failures"] > failed_at.shape[1]).any():
        raise broken(state, "failures", f"be at most {failed_at.shape[1]}", arrays["failures"].max())
    return Records(**arrays)


def blank(size: int, default: Array, context: int, first: int) -> Records:
    """Of tuners that know nothing, numbered from `first` on; `default` [d]."""
    d, zeros = len(default), np.zeros
    return Records(
        number=np.arange(first, first + size, dtype=np.float64),
        asks=zeros(size),
        learned=zeros(size),
        waiting=zeros(size),
        point=np.tile(default, (size, 1)),
        context=zeros((size, context)),
        current=np.tile(default, (size, 1)),
        guided=zeros(size),
        failures=zeros(size),
        failed_at=zeros((size, 0, d + context)),
    )
