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
"""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from rasp_tuner.base.common_constants import NOISE_DEVIATIONS, ODD_DEVIATIONS
from rasp_tuner.base.numerics import LARGEST, SMALLEST, Array
from rasp_tuner.base.state_checks import MOST_SAMPLES, Field, checked
from rasp_tuner.engine.budget import MOST_OF_LEFT, MOST_PRICE, START_STEPS
from rasp_tuner.engine.family import Bill, RunOutcome
from rasp_tuner.engine.objective import Objective
from rasp_tuner.engine.safety import Against
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


class MeasuredBill:
    """Of one tuner with one metric."""

    def __init__(self) -> None:
        self.steps = 0.0  # suggestions answered
        self.level = -LARGEST  # the highest that the default was measured at, as a loss in its own units
        self.closed = self.closed_variance = 0.0  # of blocks that are judged for good
        self.own = self.own_sum = 0.0  # runs of the latest block, and sum of their e
        self.bias_sum = self.bias_weight = 0.0  # of r after all blocks so far, by their precision
        self.after_sum = self.after_runs = 0.0  # of r after it, as of the forecast before these runs
        self.moved = 0.0  # the forecast, by the runs after it
        self.noise = 0.0  # variance of one run as a share, by the model
        self.squares = self.freedom = 0.0  # of runs of the default in a row, around their mean; degrees of freedom

    def learn(
        self,
        objective: Objective,
        trial: RunOutcome,
        at_default: bool,
        offer: Against | None,
        known: bool,
        noise: float,
        wider: float,
    ) -> None:
        """Take in what a suggestion came to. `offer` sets it beside the default; None before the first sample.

        known    whether the default ran in a situation like this one
        noise    variance of one run around its mean
        wider    by which deviations are wider than believed
        """
        y = float(objective.target(trial.losses)) if trial.ended is None else trial.ended
        if offer is None or (at_default and not known):
            self.steps += 1.0
            if at_default and not trial.failed:
                self.level = max(self.level, objective.own_units(y))
            return
        level, unsure = float(offer.level), float(offer.variances[1])
        deviation = float(objective.relative(wider * math.sqrt(noise), level))
        levels = float(objective.own_units(level)), float(objective.own_units(y))
        share = float(objective.relative(y - level, level))
        if at_default:
            self.observe_default(share, deviation**2, levels, unsure / max(unsure + noise, SMALLEST))
        else:
            self.observe_own(share, deviation**2, levels, trial.ended is not None)

    def observe_default(self, share: float, noise: float, levels: tuple[float, float], gain: float) -> None:
        """The default came out `share` above its forecast; of that the forecast learns `gain`.

        noise     variance of a share
        levels    what was forecast, and what came, in the metric's own units
        """
        bounded = self._bounded(share, noise)
        forecast, came = levels
        self.level = max(self.level, forecast + (came - forecast) * (bounded / share if share else 1.0))
        above = bounded + self.moved
        if self.after_runs:
            apart = above - self.after_sum / self.after_runs
            self.squares += apart**2 * self.after_runs / (self.after_runs + 1.0)
            self.freedom += 1.0
        self.after_sum += above
        self.after_runs += 1.0
        self.moved += gain * bounded

    def observe_own(self, share: float, noise: float, levels: tuple[float, float], ended: bool) -> None:
        """Another setting came out `share` above the forecast of the default; arguments as above."""
        bounded, came = self._bounded(share, noise), levels[1]
        if ended:  # that much it cost, however high the forecast of the default may have been
            least = 0.0 if self.level == -LARGEST else (came - self.level) / max(abs(self.level), SMALLEST)
            bounded = min(max(share, bounded, least), MOST_PRICE)
        if self.after_runs:
            self._close()
        self.own += 1.0
        self.own_sum += bounded

    @property
    def mean(self) -> float:
        """Of the bill, in steps of the default's loss."""
        return self.closed + self.own_sum - self.own * self._beside()

    @property
    def deviation(self) -> float:
        """Runs of the default are few, and each counts for whole blocks."""
        return math.sqrt(self.closed_variance + self._block_variance())

    def doubt(self, share: float) -> float:
        """What the bill may be less than its mean."""
        return min(self.deviation, MOST_OF_LEFT * share * START_STEPS)

    def needs_default(self, share: float, bill: Bill | None, wider: float) -> str | None:
        """Why the default should run now, of a budget of so large a share; None if anything may.

        Where the model's own `bill` is surely a gain, its deviation `wider` than believed, nothing needs to be shown.
        """
        if bill is not None and bill.earned - bill.spent > NOISE_DEVIATIONS * wider * math.sqrt(bill.variance):
            return None
        allowed = share * (START_STEPS + self.steps + 1.0)
        if allowed - self.mean + self.doubt(share) <= 0.0:
            return SPENT
        if self.after_runs:
            left = allowed - surely(self.mean, self.deviation**2)
            exact = self.own * self._error() <= max(MOST_OF_LEFT * left, LEAST_LEFT)
            return None if exact or self.after_runs >= self.own else AUDIT
        gained = surely(self.closed, self.closed_variance)
        gained += min(surely(self.mean - self.closed, self._block_variance()), 0.0)
        left = allowed - max(self.mean, gained)
        return AUDIT if self.own * STAKE >= max(left, LEAST_LEFT) else None

    def added_to(self, report: Budget) -> Budget:
        """A report, with what was measured."""
        allowed = report.share * (START_STEPS + self.steps)
        return replace(report, allowed=allowed, measured=self.mean, error=self.deviation)

    def lowered(self, stop: float | None) -> float | None:
        """The stop of a run, but no more than a stake above the highest that the default was measured at."""
        if self.level == -LARGEST:
            return stop
        stake = STAKE + NOISE_DEVIATIONS * math.sqrt(self._noise((STAKE / NOISE_DEVIATIONS) ** 2))
        return min(math.inf if stop is None else stop, self.level + stake * abs(self.level))

    def forget_level(self) -> None:
        """The metric is in another unit now."""
        self.level = -LARGEST

    def merge(self, other: "MeasuredBill") -> None:
        """Take in what another one measured; the latest blocks of both are judged for good."""
        closed = self.mean + other.mean, self.closed_variance + other.closed_variance
        blocks = self._block_variance() + other._block_variance()
        self.level, self.noise = max(self.level, other.level), max(self.noise, other.noise)
        for name in ("steps", "squares", "freedom", "bias_sum", "bias_weight"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self._close()
        self.closed, self.closed_variance = closed[0], closed[1] + blocks

    def state(self) -> dict[str, Array]:
        """Within the bounds of FIELDS: what grew from the absurd numbers of a changed file can be read again."""
        return {name: np.array(float(np.clip(getattr(self, name), f.least, f.most))) for name, f in FIELDS.items()}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Snapshots from before it was built have none, nor have tuners out of a fleet; the first lack some fields."""
        found = {name: state.get(name, blank) for name, blank in MeasuredBill().state().items()}
        for name, array in checked(found, FIELDS, {}).items():
            setattr(self, name, float(array))

    def _bounded(self, share: float, noise: float) -> float:
        """Count a step; its share, unless it is an outlier."""
        self.steps += 1.0
        self.noise = min(noise, MOST_PRICE**2)
        most = min(max(MOST_SHARE, ODD_DEVIATIONS * math.sqrt(self.noise)), MOST_PRICE)
        return min(max(share, -most), most)

    def _close(self) -> None:
        """Judge the latest block for good; the next one begins."""
        self.closed, self.closed_variance = self.mean, self.closed_variance + self._block_variance()
        if self.after_runs:
            weight = 1.0 / (USUAL_ERROR**2 + self._variance())
            self.bias_weight += weight
            self.bias_sum += weight * self.after_sum / self.after_runs
        self.own = self.own_sum = self.after_sum = self.after_runs = self.moved = 0.0

    def _beside(self) -> float:
        """The mean r of the latest block, as far as it is believed."""
        usual = self.bias_sum / (self.bias_weight + USUAL_ERROR**-2)
        if not self.after_runs:
            return usual
        return usual + self._belief() * (self.after_sum / self.after_runs - usual)

    def _block_variance(self) -> float:
        return self._noise() * self.own + (self.own * self._error()) ** 2

    def _error(self) -> float:
        """Deviation of r."""
        return math.sqrt(self._variance() * self._belief()) if self.after_runs else math.sqrt(self._prior())

    def _belief(self) -> float:
        """The weight of what runs of the default show, beside what they showed before."""
        return self._prior() / (self._prior() + self._variance())

    def _prior(self) -> float:
        """Variance of r before any run of the default after a block."""
        return USUAL_ERROR**2 + 1.0 / (self.bias_weight + USUAL_ERROR**-2)

    def _variance(self) -> float:
        return self._noise() / max(self.after_runs, 1.0)

    def _noise(self, most: float = math.inf) -> float:
        """Variance of one run as a share: the model's, up to `most`, and that of runs of the default in a row."""
        return (NOISE_RUNS * min(self.noise, most) + self.squares) / (NOISE_RUNS + self.freedom)


def surely(bill: float, variance: float) -> float:
    """A bill, but for gains that are not sure.

    >>> surely(3.0, 4.0), surely(-3.0, 4.0), surely(-5.0, 4.0)
    (3.0, 0.0, -1.0)
    """
    return max(bill, min(bill + NOISE_DEVIATIONS * math.sqrt(variance), 0.0))
