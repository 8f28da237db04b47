"""MeasuredBill: what own steps have cost, as it was measured; the part of the budget that does not rest on the model.

Own runs are compared with runs of the default before and after them. The model only says what the default was forecast
to come to in each situation; if that is wrong, runs of the default show it, and what they show is taken off.

    own runs   a block of n, one after another. Each came out e above the forecast of the default, as a share of it.
    default    its runs before and after a block: r above their own forecast. Both ends of a block are averaged: the
               forecast may have moved from one to the other, for it learns from own runs, too.
    bill       sum of e - n (r before + r after) / 2, over all blocks

Several runs of the default in a row count together, each as if the forecast had not yet learned from those before it.
A block is judged anew with every run of the default that follows it, until the next own run.

The default runs
    audit      where n stakes come to what is left: as much may have been lost unseen
    again      while the error of the audit is large beside what is left
    spent      where what is left is less than the stake of one more run, by a bound of the bill from below

Shares are within MOST_PRICE. All figures are in steps of the default's loss.
"""

import math
from collections.abc import Mapping

import numpy as np

from rasp_tuner.core.numerics import Array
from rasp_tuner.core.state_checks import MOST_SAMPLES, Field, checked
from rasp_tuner.engine.budget import MOST_PRICE, START_STEPS
from rasp_tuner.engine.stops import STAKE

SURE_DEVIATIONS = 1.0  # by which the bill must exceed what is allowed
MOST_DOUBT = 0.5  # of the allowance, that the error of what was measured is taken for
MOST_SHARE, MOST_DEVIATIONS = 0.5, 3.0  # of one run: more is an outlier
NOISE_RUNS = 3.0  # that the model's variance of one run counts for
FORGOTTEN_STEPS = 4.0  # in which the forecast may have moved away from the runs before
LEAST_LEFT = 1.0  # audits are not more frequent, however little is left
AUDIT = "default (its own cost is measured again)"
SPENT = "default (the budget is spent, as measured)"

_SUM = MOST_PRICE * MOST_SAMPLES
FIELDS = {
    "steps": Field((), 0.0, MOST_SAMPLES, whole=True),
    "closed": Field((), -2.0 * _SUM, 2.0 * _SUM),
    "closed_variance": Field((), 0.0, math.inf),
    "own": Field((), 0.0, MOST_SAMPLES, whole=True),
    "own_sum": Field((), -_SUM, _SUM),
    "before": Field((), -_SUM, _SUM),
    "before_runs": Field((), 0.0, MOST_SAMPLES, whole=True),
    "after_sum": Field((), -_SUM * MOST_SAMPLES, _SUM * MOST_SAMPLES),
    "after_runs": Field((), 0.0, MOST_SAMPLES, whole=True),
    "moved": Field((), -_SUM, _SUM),
    "noise": Field((), 0.0, MOST_PRICE**2),
    "squares": Field((), 0.0, math.inf),
    "freedom": Field((), 0.0, MOST_SAMPLES, whole=True),
}


class MeasuredBill:
    """Of one tuner."""

    def __init__(self) -> None:
        self.steps = 0.0
        self.closed = self.closed_variance = 0.0  # of blocks that are judged for good
        self.own = self.own_sum = 0.0  # runs of the latest block, and of e
        self.unproven = 0.0  # gains of the latest block, where the default was never measured to be so bad
        self.top = -math.inf  # the worst that the default was measured at
        self.before = self.before_runs = 0.0  # mean r before it, as of today's forecast; and of how many runs
        self.after_sum = self.after_runs = 0.0  # of r after it, as of the forecast before these runs
        self.moved = 0.0  # the forecast, by the runs after it
        self.noise = 0.0  # variance of one run, by the model
        self.squares = self.freedom = 0.0  # of runs of the default in a row, around their mean; degrees of freedom

    def observe(self, share: float, is_default: bool, gain: float, noise: float, level: float, came: float) -> None:
        """A suggestion came out `share` above the forecast of the default.

        gain    how much of it the forecast learns, where the default ran
        noise   variance of one run as a share, as it is known now
        """
        self.steps += 1.0
        self.noise = min(noise, MOST_PRICE**2)
        most = min(max(MOST_SHARE, MOST_DEVIATIONS * math.sqrt(self.noise)), MOST_PRICE)
        share = min(max(share, -most), most)
        if is_default:
            self.top = max(self.top, came)
            above = share + self.moved
            if self.after_runs:
                apart = above - self.after_sum / self.after_runs
                self.squares += apart**2 * self.after_runs / (self.after_runs + 1.0)
                self.freedom += 1.0
            self.after_sum += above
            self.after_runs += 1.0
            self.moved += gain * share
            return
        if self.after_runs:
            self.closed, self.closed_variance = self.mean, self.variance
            self.before, self.before_runs = self.after_sum / self.after_runs - self.moved, self.after_runs
            self.own = self.own_sum = self.unproven = self.after_sum = self.after_runs = self.moved = 0.0
        self.own += 1.0
        self.own_sum += share
        if share > 0.0 or level > self.top + STAKE * abs(self.top):
            self.unproven -= min(share, 0.0)

    @property
    def mean(self) -> float:
        """Of the bill."""
        return self.closed + self.own_sum - self.own * self._beside()

    @property
    def variance(self) -> float:
        """The runs of the default are few, and count for whole blocks."""
        return self.closed_variance + self._noise() * self.own + self._unsure() ** 2

    def needs_default(self, share: float, stake: float = STAKE) -> str | None:
        """Why the default should run now; None if anything may."""
        allowed = share * (START_STEPS + self.steps + 1.0)
        doubt = min(SURE_DEVIATIONS * math.sqrt(self.variance), MOST_DOUBT * share * START_STEPS)
        left = allowed - (self.mean if self.after_runs else self.mean + self.unproven)
        if left + doubt < stake:
            return SPENT
        if not self.after_runs:
            return AUDIT if self.own * stake >= max(left, LEAST_LEFT) else None
        enough = self.after_runs >= self.own or self._unsure() <= max(0.5 * left, LEAST_LEFT)
        return None if enough else AUDIT

    def _beside(self) -> float:
        """How far the default was above its forecast in the latest block."""
        before, after = self._weights()
        return before * self.before + (after * self.after_sum / self.after_runs if self.after_runs else 0.0)

    def _unsure(self) -> float:
        """Deviation of the latest block's bill, by the runs of the default beside it."""
        before, after = self._weights()
        spread = before**2 / max(self.before_runs, 1.0) + after**2 / max(self.after_runs, 1.0)
        return self.own * math.sqrt(self._noise() * spread)

    def _noise(self) -> float:
        """Variance of one run: the model's, and soon that of runs of the default in a row."""
        return (NOISE_RUNS * self.noise + self.squares) / (NOISE_RUNS + self.freedom)

    def _weights(self) -> tuple[float, float]:
        """Of the runs of the default before the latest block, and of those after it."""
        if not self.before_runs or not self.after_runs:
            return (0.0, 1.0) if self.after_runs else (1.0, 0.0)
        before = 0.5 * min(FORGOTTEN_STEPS / max(self.own, 1.0), 1.0)
        return before, 1.0 - before

    def merge(self, other: "MeasuredBill") -> None:
        """Take in what another one measured; its latest block is judged for good."""
        self.closed += other.mean
        self.closed_variance += other.variance
        self.steps += other.steps

    def state(self) -> dict[str, Array]:
        return {name: np.array(float(getattr(self, name))) for name in FIELDS}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Snapshots before it was built have none, nor have tuners out of a fleet."""
        read = checked(state, FIELDS, {}) if "steps" in state else {}
        for name in FIELDS:
            setattr(self, name, float(read[name]) if read else 0.0)
