"""Proposition "composer" and its one-step stability, on the product's own RealErrorComposer.

The proposition holds, at one time and for one past. The stability bound sets aside that a value moves its own moments:
with sigma_t from *after* the step it can fail, with sigma_{t-1} from *before* it holds, with a factor sqrt(m) to spare.
"""

import math
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from rasp_lab.theory.claim import Claim, Trial, require
from rasp_tuner.base.numerics import EPSILON, MOMENTUM
from rasp_tuner.paper.composer import RealErrorComposer
from rasp_tuner.types import Metric


def stability(share: float, change: float, sigma: float, momentum: float = 1.0) -> float:
    """share sqrt(m) |Delta| / (4 (sigma + eps)): how far one metric can move the error; the paper has no sqrt(m)."""
    require(0.0 < share <= 1.0 and sigma >= 0.0, "0 < share <= 1 and sigma >= 0", share=share, sigma=sigma)
    return share * math.sqrt(momentum) * abs(change) / (4.0 * (sigma + EPSILON))


def composed(metrics: dict[str, Metric], past: Sequence[Sequence[float]], last: Sequence[float], m: float) -> float:
    """The error of the last values, after this past."""
    composer = RealErrorComposer(metrics, m)
    for values in past:
        composer.compose(dict(zip(metrics, values, strict=True)))
    return composer.compose(dict(zip(metrics, last, strict=True)))


def _proposition(rng: np.random.Generator) -> Iterator[Trial]:
    """(i) the error against one; (ii) the error of a better set of metrics against that of a worse, same past."""
    while True:
        count = int(rng.integers(1, 5))
        names = [str(i) for i in range(count)]
        metrics = {n: Metric("min" if rng.uniform() < 0.5 else "max", float(10.0 ** rng.uniform(-3, 3))) for n in names}
        scale = 10.0 ** rng.uniform(-3, 6, size=count)
        past = rng.normal(size=(int(rng.integers(0, 30)), count)) * scale
        better = rng.normal(size=count) * scale
        turn = np.array([1.0 if metric.direction == "min" else -1.0 for metric in metrics.values()])
        worse = better + turn * rng.exponential(size=count) * scale * 10.0 ** rng.uniform(-3, 1)
        errors = [composed(metrics, past.tolist(), last.tolist(), MOMENTUM) for last in (better, worse)]
        yield Trial(errors[1], 1.0)
        yield Trial(errors[0], errors[1])


def stability_trial(
    past: Sequence[float], value: float, change: float, momentum: float, *, printed: bool, name: str = ""
) -> Trial:
    """How far `change` in the last value moves the error, against the bound with the sigma of either version."""
    before = RealErrorComposer({"v": "min"}, momentum)
    for v in past:
        before.compose({"v": v})
    sigma = math.sqrt(before.emas["v"].var)
    error = before.compose({"v": value})
    after = composed({"v": Metric("min")}, [[v] for v in past], [value + change], momentum)
    if printed:
        return Trial(abs(after - error), stability(1.0, change, math.sqrt(before.emas["v"].var)), name)
    return Trial(abs(after - error), stability(1.0, change, sigma, momentum), name)


def _stability(rng: np.random.Generator, *, printed: bool) -> Iterator[Trial]:
    while True:
        momentum, scale = float(rng.uniform(0.5, 0.99)), float(10.0 ** rng.uniform(-3, 3))
        past = (rng.normal(size=int(rng.integers(0, 20))) * scale).tolist()
        value, change = (float(x) * scale for x in rng.normal(size=2) * 10.0 ** rng.uniform(-2, 3, size=2))
        yield stability_trial(past, value, change, momentum, printed=printed)


def far_outlier(*, printed: bool) -> Trial:
    """m = 0.8, fresh moments: from a value far above to one 60 below, sigma_t is that of the far one."""
    return stability_trial([], 1e6, -1e6 - 60.0, 0.8, printed=printed, name="m = 0.8, from 10^6 to -60")


def error_across_time() -> Trial:
    """One metric that *is* the loss: 2 at first, 9 after fifty tens. The smaller loss has the larger error."""
    metrics = {"loss": Metric("min")}
    early = composed(metrics, [], [2.0], MOMENTUM)
    late = composed(metrics, [[10.0]] * 50, [9.0], MOMENTUM)
    return Trial(early, late, "loss 2 at t = 1, loss 9 after fifty of 10")


def _across(rng: np.random.Generator) -> Iterator[Trial]:
    while True:
        past = (rng.normal(size=40) + float(rng.uniform(0.0, 5.0))).tolist()
        early, late = (rng.integers(1, 20), rng.integers(20, 40))
        metrics = {"loss": Metric("min")}
        low, high = sorted((past[early], past[late]))
        errors = {past[t]: composed(metrics, [[v] for v in past[:t]], [past[t]], MOMENTUM) for t in (early, late)}
        yield Trial(errors[low], errors[high])


CLAIMS = (
    Claim(
        "composer",
        "paper",
        "0 <= e_t <= 1; e_t grows with the loss if every badness does",
        "positive weights; one time t, one past",
        _proposition,
    ),
    Claim(
        "composer, across time",
        "paper's use",
        "f(theta_s) <= f(theta_t) implies e_s <= e_t",
        "not claimed, but memory compares the errors of different times; one metric, the loss itself",
        _across,
        (error_across_time,),
    ),
    Claim(
        "composer stability",
        "paper",
        "|change of e_t| <= w_k/sum w |Delta| / (4 (sigma_t + eps))",
        "any momentum 0 < m < 1, sigma_t after the step",
        partial(_stability, printed=True),
        (partial(far_outlier, printed=True),),
        600,
    ),
    Claim(
        "composer stability",
        "mended",
        "|change of e_t| <= w_k/sum w sqrt(m) |Delta| / (4 (sigma_{t-1} + eps))",
        "any momentum 0 < m < 1, sigma_{t-1} before the step",
        partial(_stability, printed=False),
        (partial(far_outlier, printed=False),),
        600,
    ),
)
