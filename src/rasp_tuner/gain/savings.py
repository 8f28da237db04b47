"""Savings: the gain of suggestions against the default, with an interval that holds at every look.

A share p of the steps runs the default instead of the suggestion, drawn at random. With y the loss that came, and the
forecasts d of the default and s of the suggestion that were made before the run, the gain of a step is estimated by

    default drawn      (1 - p) (d - s + (y - d) / p)
    suggestion drawn   (1 - p) (d - s) - (y - s)
    with a control c   (1 - p) (d - s) + c - y - (d - s)       the suggestion ran, and beside it the default
    no draw            0: what was suggested is the default

The mean of each is what the step saved, however wrong the forecasts are (augmented inverse propensity weights); good
forecasts only make the interval narrow. The sum less its mean is a martingale, of variance V after n draws. Its
interval is the asymptotic confidence sequence of Waudby-Smith et al. (arXiv:2103.06476, 2210.10768), a mixture over
all sizes of a gain (Robbins; Howard et al. 2021):

    |sum - truth| <= sqrt(V / n (n + k) log((n + k) / (k a^2)))    in all steps at once, with probability 1 - a

The gain is told for a step that may run its suggestion: the sum over the steps that were not, on average, held out.

Losses are logarithms where a metric is positive: then every step counts the same, whatever the load, one absurd value
moves little, and the gain is a share. Other metrics are compared by differences, in their own unit. A value counts as a
thousand times all that was seen before at most.
"""

import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, fields, replace
from typing import NamedTuple

import numpy as np

from rasp_tuner.base.checks import number, show
from rasp_tuner.base.numerics import LARGEST, Array
from rasp_tuner.base.state_checks import FINITE, MOST_SAMPLES, Field, broken, checked
from rasp_tuner.errors import InvalidSpace
from rasp_tuner.gain.versus_default import LEVEL, Gain, VersusDefault, share_of
from rasp_tuner.types import Explanation, Outlook, Why

TIGHTEST_DRAWS = 500  # draws after which the interval is as narrow, for its level, as it can be
_LOG = -2.0 * math.log(1.0 - LEVEL)
MIXTURE = TIGHTEST_DRAWS / (_LOG + math.log(_LOG + 1.0))  # k
MOST_TIMES = 1000.0  # all that was seen before, or its logarithm: as much as one value counts at most
LEAST_RUNS = 5  # of the default and of suggestions, before there is an interval
PRIOR_RUNS = 5.0  # of the default with the scatter of suggestions, that its own scatter is averaged with
LEAST_HOLDOUT, MOST_HOLDOUT = 0.01, 0.5  # of all steps
HELD_OUT = "default (holdout)"  # the source of such a suggestion
MOST_HELD_OUT = 0.99  # of one ask, as of a canary that seldom runs


def checked_holdout(value: object, has_default: bool, most: float = MOST_HOLDOUT) -> float | None:
    """The share of steps that run the default, or an InvalidSpace."""
    if value is None:
        return None
    share = number("holdout", value, InvalidSpace)
    if not LEAST_HOLDOUT <= share <= most:
        raise InvalidSpace(
            f"holdout must be a share of steps from {LEAST_HOLDOUT} to {most}, or None, got {show(value)}"
        )
    if not has_default:
        raise InvalidSpace(f"holdout={share!r} is measured against what runs today: give it as default={{...}}")
    return share


class Drawn(NamedTuple):
    """Why a suggestion was made, and that the draw let it run, or put the default in its place."""

    why: Why
    propensity: float  # of what ran
    held_out: bool

    @property
    def stop(self) -> float | None:
        """The default runs to its end."""
        return None if self.held_out else self.why.stop

    @property
    def stake(self) -> float:
        return 0.0 if self.held_out else self.why.stake

    def outlook(self) -> Outlook | None:
        return self.why.outlook()

    def explanation(self) -> Explanation:
        why = self.why.explanation()
        if not self.held_out:
            return replace(why, propensity=self.propensity)
        return replace(
            why,
            source=HELD_OUT,
            predicted=why.level,
            better=None,
            stop=None,
            stake=0.0,
            propensity=self.propensity,
            instead=why.predicted,
        )


class Draw(NamedTuple):
    """What was drawn for a step, and what was expected before it ran."""

    held_out: bool  # whether the default ran in the place of a suggestion
    share: float  # p; 0 where nothing was drawn, and a control says what the default gives
    suggestion: float | None  # loss expected, in the units of the one metric; None where that is not known
    default: float | None


@dataclass(slots=True)
class GainSums:
    """Sums over steps of one loss on one scale. Stored in this order in snapshots."""

    seen: float = 0.0  # values
    mean: float = 0.0
    least: float = 0.0
    most: float = 0.0
    total: float = 0.0  # of estimated gains
    held_squares: float = 0.0  # of what the draw of the default added, over p
    run_squares: float = 0.0  # of what that of a suggestion added
    pair_squares: float = 0.0

    def forecast(self, told: float | None) -> float:
        """A forecast within what has been seen; without one the mean."""
        return self.mean if told is None else min(max(told, self.least), self.most)

    def believed(self, y: float, is_log: bool) -> float:
        """A value as far as it is believed, after all that was seen."""
        if not self.seen:
            return y
        room = math.log(MOST_TIMES) if is_log else MOST_TIMES * max(abs(self.least), abs(self.most))
        return min(max(y, self.least - room), self.most + room) if room else y

    def see(self, y: float) -> None:
        """Remember a value, for the steps after it."""
        self.seen += 1.0
        self.mean += (y - self.mean) / self.seen
        self.least = y if self.seen == 1.0 else min(self.least, y)
        self.most = y if self.seen == 1.0 else max(self.most, y)

    def add(self, draw: Draw, y: float, control: float | None, suggestion: float | None, default: float | None) -> None:
        """Count a step that was drawn, or that has a control."""
        d, s, p = self.forecast(default), self.forecast(suggestion), draw.share
        self.total += (1.0 - p) * (d - s)
        if draw.held_out and control is None:
            left = (1.0 - p) / p * (y - d)
            self.held_squares += left * left
        elif draw.held_out:
            left = 0.0  # two runs of the default
        elif control is None:
            left = s - y
            self.run_squares += left * left
        else:
            left = control - y - (d - s)
            self.pair_squares += left * left
        self.total += left


SAVINGS_SUMS = tuple(one.name for one in fields(GainSums))


@dataclass(slots=True)
class _Counts:
    """Of steps. Stored in this order in snapshots."""

    steps: float = 0.0
    held: float = 0.0  # runs of the default that were drawn, without a control
    run: float = 0.0  # runs of suggestions that were drawn, without a control
    pairs: float = 0.0  # runs with a control that were not held out
    better_since: float = 0.0  # step; 0: never
    worse_since: float = 0.0

    @property
    def draws(self) -> float:
        return self.held + self.run + self.pairs


SAVINGS_COUNTS = tuple(one.name for one in fields(_Counts))


@dataclass(slots=True)
class _Chances:
    """Sums over draws, whose p may differ. Stored in this order in snapshots."""

    held_out: float = 0.0  # of p: as many suggestions do not run
    default: float = 0.0  # the same of draws without a control
    odds_squares: float = 0.0  # of ((1 - p) / p)^2 of those

    def add(self, p: float, with_control: bool) -> None:
        self.held_out += p
        if not with_control:
            self.default += p
            self.odds_squares += ((1.0 - p) / p) ** 2


@dataclass
class SavingsLedger:
    """The sums behind a measured gain: of each metric, and of the objective if there are several."""

    signs: Mapping[str, float]  # 1 of a metric to be minimised, else -1
    counts: _Counts = field(default_factory=_Counts)
    chances: _Chances = field(default_factory=_Chances)
    failed: int = 0  # of the steps that count
    sums: dict[str, tuple[GainSums, GainSums]] = field(init=False)  # logarithms, and as they are
    positive: dict[str, bool] = field(init=False)

    def __post_init__(self) -> None:
        names = [*self.signs, *([""] if len(self.signs) > 1 else [])]  # "": the objective
        self.sums = {name: (GainSums(), GainSums()) for name in names}
        self.positive = dict.fromkeys(self.signs, True)

    @property
    def seen(self) -> bool:
        """Whether there is anything to keep."""
        return next(iter(self.sums.values()))[1].seen > 0.0

    def add(
        self,
        draw: Draw | None,
        metrics: Mapping[str, float] | None,
        control: Mapping[str, float] | None,
        weights: Mapping[str, float],
        stopped: bool = False,
    ) -> None:
        """Count a step that was answered; `draw` is None where the default ran and nothing was drawn.

        A run that failed has no metrics, and counts as the worst of what has been seen; so does one that was stopped
        before. The first value only shows the level, unless it is the default's.
        """
        counts, seen = self.counts, self.seen
        counts.steps += draw is None or seen
        self.failed += metrics is None and (draw is None or seen)
        if draw is not None and seen:
            counts.held += draw.held_out and control is None
            counts.run += not draw.held_out and control is None
            counts.pairs += not draw.held_out and control is not None
            self.chances.add(draw.share, control is not None)
        for name in self.signs:
            for value in () if metrics is None else (metrics[name], *(() if control is None else (control[name],))):
                self.positive[name] &= float(value) > 0.0
        values, controls = self._losses(metrics, weights), None if control is None else self._losses(control, weights)
        for name, both in self.sums.items():
            for scale, sums in enumerate(both):
                y, c = values[name][scale], None if controls is None else controls[name][scale]
                y = (sums.most if sums.seen else None) if metrics is None else y
                if y is None:
                    continue
                y = sums.believed(max(y, sums.most) if stopped and sums.seen else y, scale == 0)
                c = None if c is None else sums.believed(c, scale == 0)
                if draw is not None and sums.seen:
                    sums.add(draw, y, c, *self._forecasts(draw, scale))
                sums.see(y)
                if c is not None:
                    sums.see(c)
        self._note_proofs()

    def merge(self, other: "SavingsLedger") -> None:
        """Take in the steps of another one, with the same metrics."""
        for one in ("steps", "held", "run", "pairs"):
            setattr(self.counts, one, getattr(self.counts, one) + getattr(other.counts, one))
        self.failed += other.failed
        self.chances = _Chances(*map(sum, zip(astuple(self.chances), astuple(other.chances), strict=True)))
        for name, both in self.sums.items():
            for own, more in zip(both, other.sums[name], strict=True):
                _merge(own, more)
        for name in self.positive:
            self.positive[name] &= other.positive[name]
        self._note_proofs()

    def report(self) -> VersusDefault | None:
        """None while nothing counts."""
        counts = self.counts
        if not counts.steps:
            return None
        metrics = {name: self._gain(name) for name in self.signs}
        first = next(iter(metrics.values()))
        gain: Gain | None = first if len(metrics) == 1 else None
        if len(metrics) > 1 and all(self.positive.values()):
            gain = self._gain("")
        better, worse = (int(step) or None for step in (counts.better_since, counts.worse_since))
        draws = int(counts.held), int(counts.pairs)
        return VersusDefault(int(counts.steps), *draws, gain, metrics, better, worse, failed=self.failed)

    def state(self) -> dict[str, Array]:
        return {
            **({"failed": np.array([float(self.failed)])} if self.failed else {}),
            "counts": np.array(astuple(self.counts)),
            "chances": np.array(astuple(self.chances)),
            "positive": np.array([float(flag) for flag in self.positive.values()]),
            "sums": np.array([[astuple(sums) for sums in both] for both in self.sums.values()]),
        }

    def restore(self, state: Mapping[str, Array]) -> None:
        squares = ("held_squares", "run_squares", "pair_squares")
        least = [0.0 if name in ("seen", *squares) else -FINITE for name in SAVINGS_SUMS]
        most = [2.0 * MOST_SAMPLES if name == "seen" else FINITE for name in SAVINGS_SUMS]
        rules = {
            "counts": Field((len(SAVINGS_COUNTS),), 0.0, MOST_SAMPLES, whole=True),
            "chances": Field((3,), 0.0, FINITE),
            "positive": Field((len(self.signs),), 0.0, 1.0, whole=True),
            "sums": Field((len(self.sums), 2, len(SAVINGS_SUMS)), tuple(least), tuple(most)),
        }
        if "failed" in state:
            rules["failed"] = Field((1,), 0.0, MOST_SAMPLES, whole=True)
        read = checked(state, rules, {})
        self.failed = int(read["failed"][0]) if "failed" in read else 0
        self.counts = _Counts(*read["counts"].tolist())
        self.chances = _Chances(*read["chances"].tolist())
        drawn = self.counts.held + self.counts.run
        if self.chances.default > drawn or bool(self.chances.default) != bool(drawn):
            raise broken(state, "chances", "be of the draws that were counted", read["chances"].tolist())
        self.positive = dict(zip(self.signs, (read["positive"] > 0.0).tolist(), strict=True))
        for name, (logs, plain) in zip(self.sums, read["sums"].tolist(), strict=True):
            self.sums[name] = GainSums(*logs), GainSums(*plain)

    def _losses(
        self, metrics: Mapping[str, float] | None, weights: Mapping[str, float]
    ) -> dict[str, tuple[float | None, float | None]]:
        """Logarithms and plain losses by metric; None where there is none."""
        if metrics is None:
            return dict.fromkeys(self.sums, (None, None))
        found: dict[str, tuple[float | None, float | None]] = {}
        for name, sign in self.signs.items():
            value = float(metrics[name])
            found[name] = _log(sign, sign * value), min(max(sign * value, -LARGEST), LARGEST)
        if "" in self.sums:
            logs = {name: found[name][0] for name in self.signs if weights[name] > 0.0}
            total = sum(weights[name] for name in logs)
            known = [weights[name] / total * log for name, log in logs.items() if log is not None]
            found[""] = (math.fsum(known) if len(known) == len(logs) else None), None
        return found

    def _forecasts(self, draw: Draw, scale: int) -> tuple[float | None, float | None]:
        """Of suggestion and default; those of several metrics are of a sum, and of no use here."""
        if len(self.signs) > 1:
            return None, None
        if scale:
            return draw.suggestion, draw.default
        sign = next(iter(self.signs.values()))
        suggestion, default = (None if one is None else _log(sign, one) for one in (draw.suggestion, draw.default))
        return suggestion, default

    def _gain(self, name: str) -> Gain:
        """Of one metric, or of the objective."""
        is_log = all(self.positive.values()) if name == "" else self.positive[name]
        sums, steps = self.sums[name][0 if is_log else 1], self.counts.steps - self.chances.held_out
        half, sign = self._half_width(sums), 1.0 if name == "" else self.signs[name]
        ends = [sums.total / steps] if half is None else [(sums.total + side * half) / steps for side in (0.0, -1.0, 1)]
        told = [share_of(sign, x) if is_log else x for x in ends]
        low, high = (None, None) if half is None else (told[1], told[2])
        return Gain("share" if is_log else "difference", told[0], low, high, sign < 0.0)

    def _half_width(self, sums: GainSums) -> float | None:
        """Of the interval around the sum of gains."""
        counts, n = self.counts, self.counts.draws
        if not n:
            return 0.0  # only the default ran
        drawn, variance = counts.held + counts.run, sums.pair_squares
        if drawn:
            if min(counts.held, counts.run) < LEAST_RUNS:
                return None
            run, odds_squares = sums.run_squares / counts.run, self.chances.odds_squares / drawn
            held = (sums.held_squares + PRIOR_RUNS * odds_squares * run) / (counts.held + PRIOR_RUNS)
            variance += self.chances.default * held + (drawn - self.chances.default) * run
        elif counts.pairs < LEAST_RUNS:
            return None
        return math.sqrt(variance / n * (n + MIXTURE) * (math.log((n + MIXTURE) / MIXTURE) + _LOG))

    def _note_proofs(self) -> None:
        counts, name = self.counts, next(reversed(self.sums))
        if not counts.steps or (name == "" and not all(self.positive.values())):
            return
        outcome = self._gain(name).outcome
        if outcome == "better":
            counts.better_since = counts.better_since or counts.steps
        elif outcome == "worse":
            counts.worse_since = counts.worse_since or counts.steps


def _merge(own: GainSums, more: GainSums) -> None:
    if not more.seen:
        return
    seen = own.seen + more.seen
    own.least = min(own.least, more.least) if own.seen else more.least
    own.most = max(own.most, more.most) if own.seen else more.most
    own.mean += (more.mean - own.mean) * more.seen / seen
    own.seen = seen
    for name in ("total", "held_squares", "run_squares", "pair_squares"):
        setattr(own, name, getattr(own, name) + getattr(more, name))


def _log(sign: float, loss: float) -> float | None:
    """The loss on a logarithmic scale, of a loss that is negative where more of its metric is better."""
    return sign * math.log(sign * loss) if sign * loss > 0.0 else None
