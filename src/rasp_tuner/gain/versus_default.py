"""Versus the default: what a tuner's suggestions have gained, as one figure that every page, command and client shows.

Where a share of the steps runs the default, drawn at random, or each run has a control beside it, the gain is measured
(savings.py). Elsewhere it is a forecast, made here: of each answered suggestion, what the default was expected to give
in the same situation, before the run, less what came. A step that ran the default has gained nothing.

Forecasts of the default may err in the same way at every step, so those errors are added up; the noise of single runs
cancels, so its squares are. Both together are a cautious interval of 95%.

y_i        what came of step i, in the unit of the metric; g_i = s (d_i - y_i), s = -1 where more is better
d_i        what the default was expected to give
e_i, v_i   deviations of the difference between suggestion and default, as believed, and of one run

    gain = sum g_i +- 1.96 (sum e_i + sqrt(sum v_i^2)), as a share of sum |d_i|

A metric that the tuner compares by factors is summed in logarithms instead, so that every step counts the same.
A value that no forecast thought possible (a thousand times the usual level and the noise) is left out, and counted: one
reset counter would else outweigh all other steps. So is a forecast that says nothing, as after such a value.
What lies more than ten times the usual away from the default counts as that far away: one outlier turns no sum, while
a few in a row are the new usual and count in full.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field, fields
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

import numpy as np

from rasp_tuner.base.numerics import Array
from rasp_tuner.base.state_checks import FINITE, MOST_SAMPLES, Field, checked
from rasp_tuner.page.words import TIMES_FROM, counted, times_words

LEVEL = 0.95  # probability of all intervals of a gain
NORMAL_95 = 1.959963984540054  # deviations on either side that hold it
NORMAL_90 = 1.6448536269514722  # the same of the intervals that forecasts come with
LATELY_STEPS = 200  # over which "lately" is summed, with older steps fading
KEEP_A_STEP = 1.0 - 1.0 / LATELY_STEPS
LEAST_OTHER_STEPS = 3  # with other settings than the default, for an interval
SUREST = 1e-9  # probability that is told apart from none
LARGEST = 1e100  # of a number that is summed here, so that no sum of squares is infinite
LARGEST_LOG = 700.0
BELIEVED_TIMES = 1000.0  # the usual level, or the noise: what is further away is no measurement
COUNTED_TIMES = 10.0  # the usual level, or the noise: as far from the default as one value counts
FIRST_STEPS = 32  # that are left out together, where they turn out to have been of no believed size
EACH_STEP_UNTIL, ONE_STEP_IN = 16, 64  # of several metrics: each costs a forecast, so that later some stand for all
SPREAD_STEPS = 2_654_435_769  # times a step, modulo 2**32: spreads steps evenly, so that no period is missed or met


@dataclass(frozen=True, slots=True)
class Gain:
    """What was gained a step, and the interval that holds it; None while too little is known."""

    kind: Literal["share", "difference"]  # of the default's level; or in units of the metric
    value: float
    low: float | None
    high: float | None
    maximised: bool = False

    @property
    def outcome(self) -> Literal["better", "worse", "open"]:
        """What is shown."""
        if self.low is None or self.high is None:
            return "open"
        return "better" if self.low > 0.0 else "worse" if self.high < 0.0 else "open"

    def to_json(self) -> dict[str, Any]:
        """As `from_json` takes it; also in words."""
        return {**asdict(self), "words": str(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Gain":
        """What `to_json` gave; fields that are not known here are left out."""
        return cls(**{one.name: data[one.name] for one in fields(cls) if one.name in data})

    def __str__(self) -> str:
        """In words.

        >>> print(Gain("share", 0.18, 0.12, 0.23)), print(Gain("difference", 3.0, -1.0, 7.0))
        saved 18% (12 to 23%)
        no saving shown yet (between 1 a step lost and 7 a step saved)
        (None, None)
        >>> print(Gain("share", -20.0, -22.0, -18.0))
        came to 21 times the default (19 to 23)
        """
        if self.low is None or self.high is None:
            return "no saving known yet"
        if self.low == self.high == 0.0:
            return "nothing saved or lost: only the default ran"
        if self.outcome == "open":
            return f"no saving shown yet (between {self._signed(self.low)} and {self._signed(self.high)})"
        verb = ("gained" if self.maximised else "saved") if self.outcome == "better" else "lost"
        low, high = sorted(abs(x) for x in (self.low, self.high))
        if self.kind == "share" and self._times(self.value) >= TIMES_FROM:
            least, most = sorted(map(self._times, (self.low, self.high)))
            ends = (times_words(x).removesuffix(" times") for x in (least, most))
            return f"came to {times_words(self._times(self.value))} the default ({' to '.join(ends)})"
        if self.kind == "difference":
            return f"{verb} {abs(self.value):.3g} a step ({low:.3g} to {high:.3g})"
        return f"{verb} {_percent(abs(self.value))}% ({_percent(low)} to {_percent(high)}%)"

    def _times(self, x: float) -> float:
        """A share as a ratio to the default."""
        return 1.0 + x if self.maximised else 1.0 - x

    def _signed(self, x: float) -> str:
        if self.kind == "share" and self._times(x) >= TIMES_FROM:
            return f"{times_words(self._times(x))} the default"
        told = f"{_percent(abs(x))}%" if self.kind == "share" else f"{abs(x):.3g} a step"
        return f"{told} {'lost' if x < 0.0 else 'gained' if self.maximised else 'saved'}"


@dataclass(frozen=True, slots=True)
class VersusDefault:
    """What suggestions have gained against the default, over all steps that count, with those that ran the default.

    `gain` is of the objective: of several metrics the weighted geometric mean of their ratios, None if one of them is
    not positive. `str()` says it in words.
    """

    steps: int  # answered, those of failed runs too; the gain is that of those whose gain is known or estimated
    held_out: int  # of them, runs of the default that were drawn in the place of a suggestion
    paired: int  # runs with a control beside them
    gain: Gain | None
    metrics: dict[str, Gain]  # of each metric
    better_since: int | None = None  # step at which a gain was first proven
    worse_since: int | None = None  # step at which a loss was first proven
    measured: bool = True  # against drawn runs or controls; False: against what the tuner expects of the default
    lately: dict[str, Gain] = field(default_factory=dict)  # of each metric, over about 200 steps; only of forecasts
    left_out: int = 0  # of the steps, those with a value that is not believed, or with no forecast because of one
    failed: int = 0  # of the steps, those whose run failed; a forecast leaves them out, and a measurement does not
    bounded: int = 0  # of the steps, those with a value so far off that it counts as less far

    @property
    def is_known(self) -> bool:
        """Whether there is an interval."""
        return any(gain.low is not None for gain in self.metrics.values())

    @property
    def kind(self) -> str:
        """Of what the gain is a number: "share" of the default's level, or "difference"; empty where there is none."""
        return "" if self.gain is None else self.gain.kind

    def rest_words(self, learned: int) -> str:
        """Why fewer steps count than were learned; empty where all do.

        >>> VersusDefault(25, 0, 0, None, {}).rest_words(30)
        'Runs learned: 30. Of these 25 were suggested and count as steps here; the tuner was only told of the other 5.'
        """
        if learned <= self.steps:
            return ""
        return (
            f"Runs learned: {learned:,}. Of these {self.steps:,} were suggested and count as steps here; the tuner was"
            f" only told of the other {learned - self.steps:,}."
        )

    def to_json(self) -> dict[str, Any]:
        """As `from_json` takes it; also in words."""
        found = {**asdict(self), "gain": None if self.gain is None else self.gain.to_json(), "words": str(self)}
        return found | {
            part: {name: gain.to_json() for name, gain in getattr(self, part).items()} for part in ("metrics", "lately")
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "VersusDefault":
        """What `to_json` gave; fields that are not known here are left out."""
        known = {one.name: data[one.name] for one in fields(cls) if one.name in data}
        for part in ("metrics", "lately"):
            known[part] = {name: Gain.from_json(found) for name, found in known.get(part, {}).items()}
        return cls(**{**known, "gain": None if known["gain"] is None else Gain.from_json(known["gain"])})

    def __str__(self) -> str:
        """In words.

        >>> print(VersusDefault(1200, 60, 0, Gain("share", 0.18, 0.12, 0.23), {}, 310))
        saved 18% (12 to 23%) in 1,200 steps, measured against 60 runs of the default; never proven worse
        >>> print(VersusDefault(90, 0, 0, Gain("share", 0.18, 0.12, 0.23), {}, measured=False))
        saved 18% (12 to 23%) in 90 steps, by forecast of what the default would have given
        >>> print(VersusDefault(90, 0, 0, Gain("share", 0.18, 0.12, 0.23), {}, measured=False, left_out=1))
        saved 18% (12 to 23%) in 90 steps, by forecast of what the default would have given; 1 absurd step left out
        >>> print(VersusDefault(2000, 0, 0, Gain("share", 0.18, 0.12, 0.23), {}, measured=False, failed=9))
        saved 18% (12 to 23%) in 2,000 steps, of which 9 failed, by forecast of what the default would have given
        >>> print(VersusDefault(90, 0, 0, Gain("share", 0.18, 0.12, 0.23), {}, measured=False, bounded=1))
        saved 18% (12 to 23%) in 90 steps, by forecast of what the default would have given; 1 outlier counts as 10 \
times the usual at most
        """
        found = "no joint saving, of metrics that are not all positive," if self.gain is None else str(self.gain)
        failed = f", of which {self.failed:,} failed" if self.failed else ""
        told = f"{found} in {counted(self.steps, 'step')}{failed}"
        if not self.measured:
            absurd = f"; {counted(self.left_out, 'absurd step')} left out" if self.left_out else ""
            counts = "counts" if self.bounded == 1 else "count"
            far = f"{counted(self.bounded, 'outlier')} {counts} as {COUNTED_TIMES:.0f} times the usual at most"
            bounded = f"; {far}" if self.bounded else ""
            return f"{told}, by forecast of what the default would have given{absurd}{bounded}"
        runs = f"{counted(self.held_out, 'run')} of the default" if self.held_out else counted(self.paired, "control")
        ever = "never proven worse" if self.worse_since is None else f"proven worse at step {self.worse_since:,}"
        return f"{told}, measured against {runs}; {ever}"


class StepForecast(NamedTuple):
    """What was expected of one metric before a step ran, in the metric's unit."""

    level: float  # of the default
    shared: float  # deviation of what the suggestion gains on it
    noise: float  # deviation of what comes; at least as far as it came from `expected`
    expected: float | None = None  # of the suggestion, where the noise of one run is not known


class StepGain(NamedTuple):
    """A step beside the default, in one metric and its unit."""

    level: float  # of the default
    gain: float  # positive where the step was better
    weight: int  # steps that it stands for


@dataclass(slots=True)
class _Sums:
    """Of one metric over steps; each step counts `weight` times. Stored in this order in snapshots."""

    weight: float = 0.0
    moved: float = 0.0  # weight of the steps that ran something else than the default
    gain: float = 0.0
    shared: float = 0.0
    squares: float = 0.0
    level: float = 0.0
    size: float = 0.0  # of the level, without its sign
    log_gain: float = 0.0
    log_shared: float = 0.0
    log_squares: float = 0.0

    def add(self, gains: tuple[float, float], found: StepForecast, moved: bool, weight: float, keep: float) -> None:
        """Add a step with its gain, plain and in logarithms; `keep` is what stays of the steps before it."""
        if keep < 1.0:
            self._fade(keep)
        self.weight += weight
        self.level += weight * found.level
        self.size += weight * abs(found.level)
        if not moved:
            return
        self.moved += weight
        self.gain += weight * gains[0]
        self.shared += weight * found.shared
        self.squares += (weight * found.noise) ** 2
        self.log_gain += weight * gains[1]
        unit = max(abs(found.level), 1e-300)
        self.log_shared += weight * min(found.shared / unit, LARGEST_LOG)
        self.log_squares += (weight * min(found.noise / unit, LARGEST_LOG)) ** 2

    def _fade(self, keep: float) -> None:
        """Forget a little; written out, since it is part of every step."""
        self.weight *= keep
        self.moved *= keep
        self.gain *= keep
        self.shared *= keep
        self.squares *= keep * keep
        self.level *= keep
        self.size *= keep
        self.log_gain *= keep
        self.log_shared *= keep
        self.log_squares *= keep * keep

    def log_bounds(self) -> tuple[float, float]:
        """Mean gain of a step in logarithms, and half of its interval."""
        return self.log_gain / self.weight, NORMAL_95 * (self.log_shared + math.sqrt(self.log_squares)) / self.weight

    def report(self, sign: float, by_factors: bool) -> Gain:
        known = self.moved >= LEAST_OTHER_STEPS or self.moved == 0.0
        if by_factors:
            mean, half = self.log_bounds()
            value, low, high = (share_of(sign, x) for x in (mean, mean - half, mean + half))
            return Gain("share", value, low if known else None, high if known else None, sign < 0.0)
        came = self.level - sign * self.gain  # a share of what changes its sign would say nothing
        one_sign = self.size > 0.0 and abs(self.level) > 0.999 * self.size and came * self.level > 0.0
        unit, half = self.size if one_sign else self.weight, NORMAL_95 * (self.shared + math.sqrt(self.squares))
        value, low, high = (x / unit for x in (self.gain, self.gain - half, self.gain + half))
        kind: Literal["share", "difference"] = "share" if one_sign else "difference"
        if one_sign and self.level > 0.0:
            low, high = of_positive(low, high, sign)
        return Gain(kind, value, low if known else None, high if known else None, sign < 0.0)


FORECAST_SUMS = tuple(one.name for one in fields(_Sums))
FORECAST_COUNTS = ("steps", "known", "missed")  # in the order of snapshots
RARE_COUNTS = ("left_out", "failed", "bounded")  # that a snapshot has only where they are not 0


class ForecastLedger:
    """The sums behind a gain by forecast: of each metric, over all steps and lately."""

    def __init__(self, signs: Mapping[str, float]) -> None:
        self._signs = dict(signs)  # 1 of a metric to be minimised, else -1
        self.steps = 0  # answered suggestions that did not fail
        self.failed = 0  # those that did
        self.known, self.missed = 0, 0  # of them, those whose gain is known, and is not
        self.left_out = 0  # steps with a value that is not believed
        self.bounded = 0  # steps with a value that counts as less far from the default than it was
        self._sums = {name: (_Sums(), _Sums()) for name in signs}
        self._positive = dict.fromkeys(signs, True)
        self.latest: dict[str, StepGain] = {}  # of the latest step that was told; not stored

    def stands_for(self, step: int, metrics: int) -> int:
        """How many steps one stands for whose forecast is made now; 0: it needs none."""
        if metrics == 1 or step < EACH_STEP_UNTIL:
            return 1
        return ONE_STEP_IN if step * SPREAD_STEPS % 2**32 < 2**32 // ONE_STEP_IN else 0

    def add(
        self,
        metrics: Mapping[str, float],
        forecasts: Mapping[str, StepForecast],
        is_default: bool,
        weight: int,
        steps: int = 1,
    ) -> None:
        """Count a step, which stands for `weight` steps; one that ran the default needs no forecast.

        `steps`: so many steps that were added up.
        """
        self.latest = {}
        self.steps += steps
        if not weight:
            return
        keep, absurd, bounded = KEEP_A_STEP if weight == 1 else KEEP_A_STEP**weight, 0, 0
        for name in self._signs:
            found = forecasts.get(name)
            y = clipped(float(metrics[name]))
            if found is None and not is_default:
                continue
            noise = 0.0 if found is None else found.noise  # as it was before the run
            found = StepForecast(y, 0.0, 0.0) if found is None else _checked(found, y)
            if not self._is_believed(name, found, y):
                absurd = weight
                continue
            everything, lately = self._sums[name]
            if not is_default and (counted := self._counted(name, found.level, noise, y)) != y:
                y, bounded = counted, weight
            sign, positive = self._signs[name], y > 0.0 and found.level > 0.0
            self._positive[name] &= positive
            plain = 0.0 if is_default else sign * (found.level - y)
            logs = sign * (math.log(found.level) - math.log(y)) if positive and not is_default else 0.0
            everything.add((plain, logs), found, not is_default, weight, 1.0)
            lately.add((plain, logs), found, not is_default, weight, keep)
            self.latest[name] = StepGain(found.level, plain, weight)
        self.left_out += absurd
        self.bounded += bounded
        if self.latest:
            self.known += weight
        else:
            self.missed += weight

    def _is_believed(self, name: str, found: StepForecast, y: float) -> bool:
        """Whether what came of a metric, and what was expected, can be; the first few steps may turn out not to."""
        sums, came, expected = self._sums[name][0], abs(y), max(abs(found.level), found.shared, found.noise)
        usual = sums.size / sums.weight if sums.weight else 0.0
        if usual > BELIEVED_TIMES**2 * max(came, expected) and sums.weight <= FIRST_STEPS:
            self.left_out += int(sums.weight)
            self._sums[name], usual = (_Sums(), _Sums()), 0.0
        return came <= BELIEVED_TIMES * max(usual, expected) and expected <= BELIEVED_TIMES * max(usual, came)

    def _counted(self, name: str, level: float, noise: float, y: float) -> float:
        """The value as far as it counts: not much further from the default's level than what is usual."""
        sums = self._sums[name][0]
        if not sums.weight:
            return y
        came = abs(sums.level - self._signs[name] * sums.gain)  # of all steps, the default's and the others
        room = COUNTED_TIMES * max(abs(level), noise, max(sums.size, came) / sums.weight)
        return min(max(y, level - room), level + room)

    def add_failed(self) -> None:
        """Count a step whose run failed: it is a step, and has no gain."""
        self.failed += 1

    @property
    def seen(self) -> bool:
        """Whether there is anything to keep."""
        return self.steps + self.failed > 0

    def merge(self, other: "ForecastLedger") -> None:
        """Take in the steps of another one, with the same metrics."""
        for count in (*FORECAST_COUNTS, *RARE_COUNTS):
            setattr(self, count, getattr(self, count) + getattr(other, count))
        for name, both in self._sums.items():
            for own, more in zip(both, other._sums[name], strict=True):
                for part in FORECAST_SUMS:
                    setattr(own, part, getattr(own, part) + getattr(more, part))
            self._positive[name] &= other._positive[name]

    def report(self, scales: Mapping[str, str], weights: Mapping[str, float]) -> VersusDefault | None:
        """The gain, each metric on the scale on which it is compared; None while few steps count."""
        if self.known <= self.missed:
            return None
        spans: list[dict[str, Gain]] = [{}, {}]
        for name, both in self._sums.items():
            by_factors = scales.get(name) == "log" and self._positive[name]
            for found, sums in zip(spans, both, strict=True):
                if sums.weight > 0.0:
                    found[name] = sums.report(self._signs[name], by_factors)
        gain = next(iter(spans[0].values())) if len(spans[0]) == 1 else self._joint(spans[0], weights)
        steps, rare = self.steps + self.failed, {name: getattr(self, name) for name in RARE_COUNTS}
        return VersusDefault(steps, 0, 0, gain, spans[0], measured=False, lately=spans[1], **rare)

    def _joint(self, known: Mapping[str, Gain], weights: Mapping[str, float]) -> Gain | None:
        """The weighted mean of logarithms; errors are added up as if all had the same sign."""
        goals = {name: weights[name] for name in known if weights[name] > 0.0}
        if not goals or not all(self._positive[name] for name in goals):
            return None
        total, mean, half = sum(goals.values()), 0.0, 0.0
        for name, weight in goals.items():
            one, wide = self._sums[name][0].log_bounds()
            mean, half = mean + weight / total * one, half + weight / total * wide
        value, low, high = (share_of(1.0, x) for x in (mean, mean - half, mean + half))
        is_known = all(known[name].low is not None for name in goals)
        return Gain("share", value, low if is_known else None, high if is_known else None)

    def state(self) -> dict[str, Array]:
        return {
            **{name: np.array([float(count)]) for name in RARE_COUNTS if (count := getattr(self, name))},
            "counts": np.array([float(getattr(self, count)) for count in FORECAST_COUNTS]),
            "positive": np.array([float(flag) for flag in self._positive.values()]),
            "sums": np.array([[astuple(sums) for sums in both] for both in self._sums.values()]),
        }

    def restore(self, state: Mapping[str, Array]) -> None:
        least = [-FINITE if name in ("gain", "level", "log_gain") else 0.0 for name in FORECAST_SUMS]
        rules = {
            "counts": Field((len(FORECAST_COUNTS),), 0.0, MOST_SAMPLES, whole=True),
            "positive": Field((len(self._signs),), 0.0, 1.0, whole=True),
            "sums": Field((len(self._signs), 2, len(FORECAST_SUMS)), tuple(least), (FINITE,) * len(FORECAST_SUMS)),
        }
        rules |= {name: Field((1,), 0.0, MOST_SAMPLES, whole=True) for name in RARE_COUNTS if name in state}
        read = checked(state, rules, {})
        for name in RARE_COUNTS:
            setattr(self, name, int(read[name][0]) if name in read else 0)
        self.steps, self.known, self.missed = map(int, read["counts"].tolist())
        self._positive = dict(zip(self._signs, (read["positive"] > 0.0).tolist(), strict=True))
        for name, (everything, lately) in zip(self._signs, read["sums"].tolist(), strict=True):
            self._sums[name] = _Sums(*everything), _Sums(*lately)


def believed_deviation(difference: float, better: float | None, otherwise: float) -> float:
    """Of a believed difference, from the probability that it is below zero."""
    apart = 0.0 if better is None else NormalDist().inv_cdf(min(max(better, SUREST), 1.0 - SUREST))
    return abs(difference / apart) if abs(apart) > 1e-6 else otherwise


def of_positive(low: float, high: float, sign: float) -> tuple[float, float]:
    """The ends of a share of what is above zero: it falls by all of it at most; `sign` is -1 where more is better."""
    return (low, min(high, 1.0)) if sign > 0.0 else (max(low, -1.0), high)


def share_of(sign: float, logs: float) -> float:
    """A gain of logarithms as a share of the default's level; `sign` is -1 where more is better."""
    x = min(max(sign * -logs, -LARGEST_LOG), LARGEST_LOG)
    return -sign * math.expm1(x)


def _checked(found: StepForecast, y: float) -> StepForecast:
    """The same in finite numbers, with noise that explains what came."""
    if found.expected is None and abs(found.level) < LARGEST and found.shared < LARGEST and found.noise < LARGEST:
        return found  # the usual case
    noise = found.noise if found.expected is None else max(found.noise, abs(y - found.expected))
    return StepForecast(*map(clipped, (found.level, found.shared, noise)))


def clipped(value: float) -> float:
    return min(max(value, -LARGEST), LARGEST)


def _percent(share: float) -> str:
    percent = 100.0 * share
    return f"{percent:.0f}" if percent >= 9.95 else f"{percent:.1f}"
