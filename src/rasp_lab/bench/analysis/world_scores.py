"""What runs on random worlds add up to; a row of [worlds, steps] is one world.

share   loss where it is (f - best) / (median - best) of a world; 0: the best of its random settings, 1: the median one
cost    loss where it is the cost relative to the default's: 1 for never changing anything
"""

from typing import NamedTuple

import numpy as np

from rasp_lab.bench.analysis.metrics import Runs
from rasp_lab.bench.domains.worlds import CHEAP
from rasp_tuner.base.numerics import Array

LAST_STEPS = 20  # where an agent ends up
STUCK = 0.5  # a share above this in the last steps
START_STEPS = 50  # of W_Near, in which an agent may look around
MARGIN = 1.02  # times the default's cost: no harm


class Share(NamedTuple):
    """Means over worlds, and on how many of them the last steps are no better than STUCK."""

    mean: float
    last: float
    stuck: int
    worlds: int


class Harm(NamedTuple):
    """Cost from step START_STEPS on where the default is optimal or nearly: the mean, and worlds within MARGIN."""

    mean: float
    within: int
    worlds: int


class Scales(NamedTuple):
    """Mean cost in the cheap and in the dear workload, and of what is recommended in the cheap one at the end."""

    cheap: float
    dear: float
    recommended: float | None  # mean over worlds
    worst: float | None  # of all worlds


def share(r: Runs) -> Share:
    last = r["loss"][:, -LAST_STEPS:].mean(axis=1)
    return Share(float(r["loss"].mean()), float(last.mean()), int((last > STUCK).sum()), len(last))


def harm(r: Runs) -> Harm:
    """Over all steps of a run that is not longer than the start."""
    later = r["loss"][:, START_STEPS if r.horizon > START_STEPS else 0 :].mean(axis=1)
    return Harm(float(later.mean()), int((later <= MARGIN).sum()), len(later))


def scales(r: Runs) -> Scales:
    cheap = r["regime"] == CHEAP
    served = [row[here][-1] for row, here in zip(r["recommended"], cheap, strict=True) if here.any()]
    known = bool(served) and not np.isnan(served).any()
    return Scales(
        _mean_where(r["loss"], cheap),
        _mean_where(r["loss"], ~cheap),
        float(np.mean(served)) if known else None,
        float(np.max(served)) if known else None,
    )


def possible(r: Runs) -> Runs:
    """What the optimum would get on the same worlds."""
    loss = r["loss"] - r["regret"]
    known = {"regime": r["regime"], "loss": loss, "regret": np.zeros_like(loss), "recommended": loss}
    return Runs(r.domain, "optimum", r.horizon, r.seeds, known)


def _mean_where(values: Array, chosen: Array) -> float:
    """The mean over worlds of each world's mean; a short run may not meet a workload at all."""
    means = [row[here].mean() for row, here in zip(values, chosen, strict=True) if here.any()]
    return float(np.mean(means)) if means else float("nan")
