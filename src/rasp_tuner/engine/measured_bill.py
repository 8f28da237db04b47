"""MeasuredBill: what own steps have cost, as it was measured; the part of the budget that does not rest on the model.

Own runs are set beside runs of the default after them. The model only says what the default is forecast to come to in
each situation; if that is wrong, runs of the default show it, and what they show is taken off.

symbol   meaning
block    own runs one after another, n of them, with no run of the default between
e        how far an own run came out above the forecast of the default, as a share of it
r        the same of a run of the default; its mean over the m after a block
bill     sum of e - n r, over all blocks, in steps of the default's loss

r = bias + an error of each block, both N(0, USUAL_ERROR^2): a model that cannot say how good the default is has it
wrong every time in the same way, so that the few noisy runs after each block say more together than alone. Runs of the
default in a row count together, each as if the forecast had learned nothing from those before it. A block is judged
anew with each of them, until the next own run. Where the default did not run yet in a situation like this one, its
first run says nothing about others.

The default runs where
    audit    n stakes come to what is left: so much may have been lost unseen. In a block that goes on, only that part
             of a gain is left to be spent which is sure, as long as nobody knows r.
    again    an audit leaves an error that is large beside what is left
    spent    the bill, less its error, leaves nothing

An own run counts MOST_SHARE or a few deviations at most, either way, or what it cost when it was ended.
All figures are numbers (scalar_or_batch.py): floats of one tuner, or arrays [B].
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from rasp_tuner.base.common_constants import NOISE_DEVIATIONS, ODD_DEVIATIONS
from rasp_tuner.base.numerics import LARGEST, SMALLEST, Array
from rasp_tuner.base.state_checks import MOST_SAMPLES, Field
from rasp_tuner.engine.budget import MOST_OF_LEFT, MOST_PRICE, START_STEPS
from rasp_tuner.engine.family import Bill
from rasp_tuner.engine.objective import Objective
from rasp_tuner.engine.safety import Against
from rasp_tuner.engine.scalar_or_batch import Condition, Number, chosen, numbers_of, restored, saved
from rasp_tuner.engine.stops import STAKE
from rasp_tuner.types import Budget

MOST_SHARE = 0.5  # of one run, or odd deviations: more is an outlier
USUAL_ERROR = 0.2  # of a forecast of the default, as a share: always, and in one block
NOISE_RUNS = 3.0  # that the model's variance of one run counts for, beside what runs of the default show
LEAST_LEFT = 1.0  # step of the default's loss: audits are not more frequent or more exact, however little is left
AUDIT = "default (its own cost is measured again)"
SPENT = "default (the budget is spent, as measured)"

FIELDS = {  # all are zero until something was told, but the level
    name: Field((), 0.0, MOST_SAMPLES, whole=True) for name in ("steps", "own", "after_runs", "freedom")
}
FIELDS |= {name: Field((), 0.0, LARGEST) for name in ("closed_variance", "noise", "squares", "bias_weight")}
FIELDS |= {
    name: Field((), -LARGEST, LARGEST) for name in ("closed", "own_sum", "bias_sum", "after_sum", "moved", "level")
}


class MeasuredRun(NamedTuple):
    """A suggestion that was answered."""

    y: Number  # what it came to, or where it was ended
    at_default: Condition
    failed: Condition
    ended: Condition


class MeasuredBill:
    """Of tuners with one metric."""

    def __init__(self, zero: Number = 0.0) -> None:
        self.steps = zero  # suggestions answered
        self.level = zero - LARGEST  # the highest that the default was measured at, as a loss in its own units
        self.closed = self.closed_variance = zero  # of blocks that are judged for good
        self.own = self.own_sum = zero  # runs of the latest block, and sum of their e
        self.bias_sum = self.bias_weight = zero  # of r after all blocks so far, by their precision
        self.after_sum = self.after_runs = zero  # of r after it, as of the forecast before these runs
        self.moved = zero  # the forecast, by the runs after it
        self.noise = zero  # variance of one run as a share, by the model
        self.squares = self.freedom = zero  # of runs of the default in a row, around their mean; degrees of freedom

    def begin(self, objective: Objective, run: MeasuredRun, told: Condition = True) -> None:
        """Take in what a suggestion came to that cannot be set beside the default; of the tuners that were told."""
        n = numbers_of(self.steps)
        level = n.maximum(self.level, objective.own_units(run.y))
        self.level = chosen(told & run.at_default & n.logical_not(run.failed), level, self.level)
        self.steps = chosen(told, self.steps + 1.0, self.steps)

    def learn(
        self,
        objective: Objective,
        run: MeasuredRun,
        offer: Against,
        noise: Number,
        wider: Number,
        told: Condition = True,
    ) -> None:
        """Take in what a suggestion came to; `offer` sets it beside the default.

        noise    variance of one run around its mean
        wider    by which deviations are wider than believed
        """
        n, level, unsure = numbers_of(self.steps), offer.level, offer.variances[1]
        deviation, share = objective.shares(level, wider * n.sqrt(noise), run.y - level)
        levels = objective.own_units(level), objective.own_units(run.y)
        at_default = told & run.at_default
        own = told & n.logical_not(run.at_default)
        if n.any(at_default):
            gain = unsure / n.clip(unsure + noise, SMALLEST, None)
            self.observe_default(share, deviation**2, levels, gain, at_default)
        if n.any(own):
            self.observe_own(share, deviation**2, levels, run.ended, own)

    def observe_default(
        self, share: Number, noise: Number, levels: tuple[Number, Number], gain: Number, told: Condition = True
    ) -> None:
        """The default came out `share` above its forecast; of that the forecast learns `gain`.

        noise     variance of a share
        levels    what was forecast, and what came, in the metric's own units
        """
        n, (forecast, came) = numbers_of(self.steps), levels
        bounded, after = self._bounded(share, noise, told), self.after_runs
        part = n.where(share == 0.0, 1.0, bounded / n.where(share == 0.0, 1.0, share))
        above = bounded + self.moved
        apart = above - self.after_sum / n.clip(after, 1.0, None)
        self._put(
            told,
            level=n.maximum(self.level, forecast + (came - forecast) * part),
            squares=self.squares + apart**2 * after / (after + 1.0),
            freedom=self.freedom + n.clip(after, None, 1.0),
            after_sum=self.after_sum + above,
            after_runs=after + 1.0,
            moved=self.moved + gain * bounded,
        )

    def observe_own(
        self, share: Number, noise: Number, levels: tuple[Number, Number], ended: Condition, told: Condition = True
    ) -> None:
        """Another setting came out `share` above the forecast of the default; arguments as above."""
        n, came = numbers_of(self.steps), levels[1]
        bounded = self._bounded(share, noise, told)
        if n.any(ended):  # that much it cost, however high the forecast of the default may have been
            over = (came - self.level) / n.clip(n.abs(self.level), SMALLEST, None)
            least = n.where(self.level == -LARGEST, 0.0, over)
            paid = n.clip(n.maximum(n.maximum(share, bounded), least), None, MOST_PRICE)
            bounded = n.where(ended, paid, bounded)
        judged = told & (self.after_runs > 0.0)
        if n.any(judged):
            self._close(judged)
        self._put(told, own=self.own + 1.0, own_sum=self.own_sum + bounded)

    @property
    def mean(self) -> Number:
        """Of the bill, in steps of the default's loss."""
        return self._judged()[0]

    @property
    def deviation(self) -> Number:
        """Runs of the default are few, and each counts for whole blocks."""
        return numbers_of(self.steps).sqrt(self.closed_variance + self._judged()[1])

    def why_default(self, share: float, bill: Bill | None, wider: float) -> str | None:
        """Why the default of one tuner should run now, of a budget of so large a share; None if anything may.

        Where the model's own `bill` is surely a gain, its deviation `wider` than believed, nothing needs to be shown.
        """
        if bill is not None and bill.earned - bill.spent > NOISE_DEVIATIONS * wider * math.sqrt(bill.variance):
            return None
        spent, audit = self.needs_default(share)
        if spent:
            return SPENT
        return AUDIT if audit else None

    def needs_default(self, share: float) -> tuple[Condition, Condition]:
        """Whether the default should run now, of a budget of so large a share: since that is spent; to be measured."""
        n, (mean, block, error) = numbers_of(self.steps), self._judged()
        allowed = share * (START_STEPS + self.steps + 1.0)
        variance = self.closed_variance + block
        spent = allowed - mean + n.clip(n.sqrt(variance), None, MOST_OF_LEFT * share * START_STEPS) <= 0.0
        left = allowed - surely(mean, variance)
        exact = self.own * error <= n.clip(MOST_OF_LEFT * left, LEAST_LEFT, None)
        again = n.logical_not(exact | (self.after_runs >= self.own))
        gained = surely(self.closed, self.closed_variance) + n.clip(surely(mean - self.closed, block), None, 0.0)
        left = allowed - n.maximum(mean, gained)
        unseen = self.own * STAKE >= n.clip(left, LEAST_LEFT, None)
        return spent, n.where(self.after_runs > 0.0, again, unseen)

    def added_to(self, report: Budget) -> Budget:
        """A report, with what was measured."""
        allowed = report.share * (START_STEPS + self.steps)
        return replace(report, allowed=allowed, measured=self.mean, error=self.deviation)

    def lowered(self, stop: Number) -> Number:
        """The stop of a run, but no more than a stake above the highest that the default was measured at."""
        n = numbers_of(self.steps)
        stake = STAKE + NOISE_DEVIATIONS * n.sqrt(self._noise((STAKE / NOISE_DEVIATIONS) ** 2))
        return n.where(self.level == -LARGEST, stop, n.minimum(stop, self.level + stake * n.abs(self.level)))

    def forget_level(self) -> None:
        """The metric is in another unit now."""
        self.level = 0.0 * self.steps - LARGEST

    def merge(self, other: "MeasuredBill") -> None:
        """Take in what another one measured, each of one tuner; the latest blocks of both are judged for good."""
        closed = self.mean + other.mean, self.closed_variance + other.closed_variance
        blocks = self._judged()[1] + other._judged()[1]
        self.level, self.noise = max(self.level, other.level), max(self.noise, other.noise)
        for name in ("steps", "squares", "freedom", "bias_sum", "bias_weight"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self._close(True)
        self.closed, self.closed_variance = closed[0], closed[1] + blocks

    def state(self) -> dict[str, Array]:
        """Within the bounds of FIELDS: what grew from the absurd numbers of a changed file can be read again."""
        return {
            name: np.array(np.clip(saved([getattr(self, name)])[0, ...], field.least, field.most))
            for name, field in FIELDS.items()
        }

    def restore(self, state: Mapping[str, Array]) -> None:
        for name, (number,) in restored(state, FIELDS, self.steps).items():
            setattr(self, name, number)

    def _put(self, told: Condition, **new: Number) -> None:
        """Change what is kept of the tuners that were told."""
        for name, number in new.items():
            setattr(self, name, chosen(told, number, getattr(self, name)))

    def _bounded(self, share: Number, noise: Number, told: Condition) -> Number:
        """Count a step; its share, unless it is an outlier."""
        n = numbers_of(self.steps)
        noise = n.clip(noise, None, MOST_PRICE**2)
        self._put(told, steps=self.steps + 1.0, noise=noise)
        most = n.clip(ODD_DEVIATIONS * n.sqrt(noise), MOST_SHARE, MOST_PRICE)
        return n.minimum(n.maximum(share, -most), most)

    def _close(self, told: Condition) -> None:
        """Judge the latest block for good; the next one begins."""
        n, after, zero = numbers_of(self.steps), self.after_runs, 0.0 * self.steps
        mean, block, _ = self._judged()
        runs = n.clip(after, 1.0, None)
        weight = n.where(after > 0.0, 1.0 / (USUAL_ERROR**2 + self._noise() / runs), 0.0)
        self._put(
            told,
            closed=mean,
            closed_variance=self.closed_variance + block,
            bias_weight=self.bias_weight + weight,
            bias_sum=self.bias_sum + weight * self.after_sum / runs,
        )
        self._put(told, own=zero, own_sum=zero, after_sum=zero, after_runs=zero, moved=zero)

    def _judged(self) -> tuple[Number, Number, Number]:
        """Mean of the bill, variance of its latest block, and deviation of r there."""
        n, noise = numbers_of(self.steps), self._noise()
        certain, after = self.bias_weight + USUAL_ERROR**-2, self.after_runs
        usual, prior = self.bias_sum / certain, USUAL_ERROR**2 + 1.0 / certain  # r before runs of the default show it
        runs = n.clip(after, 1.0, None)
        belief = n.where(after > 0.0, prior / (prior + noise / runs), 0.0)  # the weight of what they show
        error = n.sqrt(n.where(after > 0.0, noise / runs * belief, prior))
        beside = usual + belief * (self.after_sum / runs - usual)
        mean = self.closed + self.own_sum - self.own * beside
        return mean, noise * self.own + (self.own * error) ** 2, error

    def _noise(self, most: float | None = None) -> Number:
        """Variance of one run as a share: the model's, up to `most`, and that of runs of the default in a row."""
        noise = self.noise if most is None else numbers_of(self.steps).clip(self.noise, None, most)
        return (NOISE_RUNS * noise + self.squares) / (NOISE_RUNS + self.freedom)


def surely(bill: Number, variance: Number) -> Number:
    """A bill, but for gains that are not sure.

    >>> surely(3.0, 4.0), surely(-3.0, 4.0), surely(-5.0, 4.0)
    (3.0, 0.0, -1.0)
    """
    n = numbers_of(bill)
    return n.maximum(bill, n.clip(bill + NOISE_DEVIATIONS * n.sqrt(variance), None, 0.0))
