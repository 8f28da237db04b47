"""Records: which suggestions of B tuners wait for an answer, and what failed early, as arrays [B, ...].

symbol   meaning
B        tuners
d, c     knobs; context dimensions
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from rasp_tuner.base.numerics import LARGEST, Array
from rasp_tuner.base.state_checks import FINITE, MOST_SAMPLES, Field, broken, checked, fields_of
from rasp_tuner.engine.engine import EARLY_FAILURES
from rasp_tuner.engine.kernel.state import Dims

GIVEN, LOCATED = 1.0, 2.0  # of `guided`: a start was given; and it says where optima lie
NO_STOP = FINITE  # a cost that no run comes to: files hold nothing infinite

_COUNT, _FLAG = (0.0, MOST_SAMPLES, True), (0.0, 1.0, True)


@dataclass
class Records:
    """Every array is of float64; flags are 0 or 1. Beside each stands what a file may say."""

    number: Annotated[Array, Field(("B",), *_COUNT)]  # of the tuner in this fleet, for its draws: never used again
    asks: Annotated[Array, Field(("B",), *_COUNT)]  # suggestions made
    learned: Annotated[Array, Field(("B",), *_COUNT)]  # samples told or observed
    waiting: Annotated[Array, Field(("B",), *_FLAG)]  # whether a suggestion waits for its answer
    point: Annotated[Array, Field(("B", "d"), 0.0, 1.0)]  # that suggestion, in the unit box
    context: Annotated[Array, Field(("B", "c"), -LARGEST, LARGEST)]  # what it was made for
    stop: Annotated[Array, Field(("B",), -NO_STOP, NO_STOP)]  # the cost from which on it should be ended
    current: Annotated[Array, Field(("B", "d"), 0.0, 1.0)]  # the latest suggestion that was answered
    guided: Annotated[Array, Field(("B",), 0.0, LOCATED, whole=True)]  # 0, GIVEN or LOCATED: by what the fleet knew
    failures: Annotated[Array, Field(("B",), 0.0, EARLY_FAILURES, whole=True)]  # that came before anything succeeded
    failed_at: Annotated[Array, Field(("B", "F", "d + c"), -LARGEST, LARGEST)]  # their points and contexts; F grows


FIELDS = fields_of(Records)


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
    d = len(default)
    sizes = {"B": size, "d": d, "c": context, "F": 0, "d + c": d + context}
    records = Records(**{name: np.zeros([sizes[str(n)] for n in field.shape]) for name, field in FIELDS.items()})
    records.number[:] = np.arange(first, first + size)
    records.point[:] = records.current[:] = default
    records.stop[:] = NO_STOP
    return records
