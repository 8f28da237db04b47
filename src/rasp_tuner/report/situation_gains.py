"""Gains by situation: what a situation is, what is recommended there, what that gains, and which knobs it comes from.

All by what the tuner believes now.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from rasp_tuner.base.checks import printable
from rasp_tuner.base.numerics import Array
from rasp_tuner.gain.versus_default import NORMAL_95, Gain, believed_deviation, of_positive, share_of
from rasp_tuner.optimizer.optimizer import Expected
from rasp_tuner.page.words import TIMES_FROM, settings_words, times_words, value_words
from rasp_tuner.report.knob_shares import knob_shares, put_back, surely_more
from rasp_tuner.report.situations import context_words, grouped, same_settings
from rasp_tuner.space import Params
from rasp_tuner.tuner_forecasts import TunerForecasts
from rasp_tuner.types import KnobShares, Margin
from rasp_tuner.types.knob_shares import NO_EFFECT

NAMES_IN_LABEL = 4
SAME_SETTINGS = 0.05  # of the range of every knob: settings this close are told as the same
# Probability that settings beat the default, 3.5 deviations: the best of so many often looks good by two or three.
SURELY_BETTER = 0.9998
SEEMS_WORSE = 1.0  # deviations from which on settings of another situation do not stand for those of this one
KEPT_LESS = 0.05  # of the probability that a limit is kept: a knob that lowers it so much is needed
MOST_COMMON = 12  # settings that are looked at for all contexts


@dataclass(frozen=True, slots=True)
class SituationGain:
    """One situation; `str()` of it is a sentence."""

    label: str  # its contexts in words; "everywhere" where all get the same settings
    contexts: int  # met, of those that were looked at
    context: dict[str, Any]  # one that stands for it
    params: Params  # recommended there
    changed: Params  # those that are not as in the default
    gains: dict[str, Gain]  # of each metric, by forecast; empty while too little is known, and for the default
    knobs: KnobShares  # which of the changes the gain comes from
    margins: dict[str, Margin] = field(default_factory=dict)  # how far the settings keep metrics from their limits
    unproven: Params = field(default_factory=dict)  # changed knobs of which nothing shows an effect: chance chose them

    @property
    def proven(self) -> Params:
        """The changed knobs that are shown to matter: what words recommend."""
        return {name: value for name, value in self.changed.items() if name not in self.unproven}

    def to_json(self) -> dict[str, Any]:
        """All of it as JSON; `words` is the sentence."""
        gains = {name: {**gain.to_json(), "words": expected_words(gain)} for name, gain in self.gains.items()}
        more = {"gains": gains, "knobs": self.knobs.to_json(), "proven": self.proven}
        return {**asdict(self), **more, "source": self.source_words(), "words": str(self)}

    def __str__(self) -> str:
        """In words.

        >>> gain = Gain("share", 0.56, 0.5, 0.61)
        >>> print(SituationGain("qps about 900", 3, {}, {"cache": 40, "n": 4}, {"cache": 40, "n": 4}, {"ms": gain},
        ...     KnobShares({"cache": 1.0}, ("n",)), unproven={"n": 4}))
        qps about 900: cache=40; ms 56% better (50 to 61%), from cache 100%; no effect shown: n (now 4)
        """
        told = f"{self.label}: {settings_words(self.proven) if self.proven else 'the default'}"
        return printable("; ".join([told, *([said] if (said := self.gain_words()) else [])]))

    def gain_words(self) -> str:
        """What the recommended settings gain and which knobs that comes from, then the knobs without a shown effect."""
        parts = []
        if self.proven and self.gains:
            gains = ", ".join(f"{name} {expected_words(gain)}" for name, gain in self.gains.items())
            parts = [f"{gains}, {self.source_words()}"] if self.knobs.shares else [gains, self.source_words()]
        return "; ".join(filter(None, [*parts, idle_words(self.unproven)]))

    def source_words(self) -> str:
        """Which of the recommended knobs the gain comes from; empty where nothing is known, and of one knob alone."""
        if self.knobs.shares or not self.gains:
            return self.knobs.shares_words()
        return "which of its knobs matter is not shown" if len(self.proven) > 1 else ""


def expected_words(gain: Gain) -> str:
    """A forecast gain, short.

    >>> [expected_words(Gain("share", 0.2, low, 0.3)) for low in (0.1, -0.1)]
    ['20% better (10 to 30%)', '20% better (not sure: 10% worse to 30% better)']
    >>> expected_words(Gain("share", -20.0, -22.0, -18.0))
    '21 times the default (19 to 23 times)'
    """

    def times(x: float) -> float:
        """The ratio to the default."""
        return 1.0 + x if gain.maximised else 1.0 - x

    def size(x: float) -> str:
        return f"{abs(x):.0%}" if gain.kind == "share" else f"{abs(x):.3g}"

    def signed(x: float) -> str:
        if gain.kind == "share" and times(x) >= TIMES_FROM:
            return f"{times_words(times(x))} the default"
        return f"{size(x)} {'better' if x >= 0.0 else 'worse'}"

    if gain.low is None or gain.high is None:
        return signed(gain.value)
    if gain.outcome == "open":
        return f"{signed(gain.value)} (not sure: {signed(gain.low)} to {signed(gain.high)})"
    if gain.kind == "share" and times(gain.value) >= TIMES_FROM:
        low, high = sorted(map(times, (gain.low, gain.high)))
        return f"{signed(gain.value)} ({times_words(low).removesuffix(' times')} to {times_words(high)})"
    low, high = sorted(map(abs, (gain.low, gain.high)))
    return f"{signed(gain.value)} ({size(low).rstrip('%')} to {size(high)})"


def situation_gains(
    belief: TunerForecasts, contexts: Sequence[Array], decoded: Sequence[dict[str, Any]]
) -> list[SituationGain]:
    """The situations that these contexts make up, the most frequent first."""
    points = _alike([belief.recommended(context) for context in contexts])
    recommended = [belief.space.from_unit(point) for point in points]
    varying = [name for name in decoded[0] if len({str(context[name]) for context in decoded}) > 1] if decoded else []
    default, found = belief.space.from_unit(belief.default), []
    for members, typical in _groups(belief, contexts, points, recommended, decoded):
        own = [decoded[i] for i in members]
        others = [decoded[i] for i in sorted(set(range(len(decoded))) - set(members))]
        label = context_words(own, varying[:NAMES_IN_LABEL], others) if others else ""
        changed = {name: value for name, value in recommended[typical].items() if default.get(name) != value}
        gains = gains_at(belief, contexts[typical], points[typical]) if changed else {}
        knobs = knob_shares(belief, contexts[typical], points[typical]) if gains else KnobShares()
        context, params = decoded[typical], recommended[typical]
        margins = belief.optimizer.margins(contexts[typical], points[typical])
        idle = _unproven(belief, contexts[typical], points[typical], knobs, margins)
        unproven = {name: value for name, value in changed.items() if name in idle}
        label = label or "everywhere"
        found.append(SituationGain(label, len(members), context, params, changed, gains, knobs, margins, unproven))
    return found


def _groups(
    belief: TunerForecasts,
    contexts: Sequence[Array],
    points: Sequence[Array],
    recommended: Sequence[Params],
    decoded: Sequence[dict[str, Any]],
) -> list[tuple[list[int], int]]:
    """Contexts that are told together: the same settings of what is recommended, and others serve as well."""
    proven = list(points)
    for members in same_settings(recommended):
        context, point = contexts[members[0]], points[members[0]]
        unproven = unproven_at(belief, context, point)
        for i in members:
            proven[i] = put_back(belief, point, unproven)
    proven = _alike(proven)
    kept: dict[bytes, list[Array]] = {}
    told = []
    for context, point, own in zip(contexts, points, proven, strict=True):
        others = kept.setdefault(own.tobytes(), [])
        found = next((other for other in others if _serves(belief, context, other, point)), None)
        others += [point] if found is None else []
        told.append(point if found is None else found)
    return grouped(decoded, [belief.space.from_unit(point) for point in told], np.stack(proven))


def _serves(belief: TunerForecasts, context: Array, other: Array, own: Array) -> bool:
    """Whether the settings of another situation do not seem to be worse here than what is recommended."""
    expect = belief.optimizer.model.expect
    return np.array_equal(other, own) or not surely_more(expect(context, other), expect(context, own), SEEMS_WORSE)


def unproven_at(belief: TunerForecasts, context: Array, point: Array) -> list[str]:
    """Knobs that a point moves although nothing shows an effect of them; none where too little is known."""
    if belief.optimizer.model.expect(context, point) is None:
        return []
    return _unproven(
        belief, context, point, knob_shares(belief, context, point), belief.optimizer.margins(context, point)
    )


def _unproven(
    belief: TunerForecasts, context: Array, point: Array, knobs: KnobShares, margins: Mapping[str, Margin]
) -> list[str]:
    """Knobs without a shown effect that no limit needs; none where all of them surely gain together."""
    if not knobs.not_shown:
        return []
    better = None if knobs.shares else belief.optimizer.model.probability_better(context, point)
    if better is not None and better >= SURELY_BETTER:
        return []

    def is_needed(name: str) -> bool:
        """Whether a limit is kept less often without the change."""
        without = belief.optimizer.margins(context, put_back(belief, point, [name])) if margins else {}
        return any(own.kept - without[metric].kept > KEPT_LESS for metric, own in margins.items() if metric in without)

    return [name for name in knobs.not_shown if not is_needed(name)]


def idle_words(unproven: Params) -> str:
    """Knobs without a shown effect, each with the value that chance chose; empty without any."""
    now = ", ".join(f"{name} (now {value_words(value)})" for name, value in unproven.items())
    return f"{NO_EFFECT}: {now}" if now else ""


def lost_without_context(belief: TunerForecasts, contexts: Sequence[Array], metric: str) -> Gain | None:
    """What one setting for all of these contexts would lose against the recommended ones, by forecast.

    The one setting is the best of those that are recommended somewhere. None where a share says nothing.
    """
    points = _alike([belief.recommended(context) for context in contexts])
    owner = [point.tobytes() for point in points]
    common = {key: owner.count(key) for key in dict.fromkeys([*owner, belief.default.tobytes()])}
    kept = sorted(common, key=lambda key: -common[key])[:MOST_COMMON]
    shared = [np.frombuffer(key) for key in kept]
    sign = belief.optimizer.metrics[metric].sign
    losses, deviations = [], []
    for context, point in zip(contexts, points, strict=True):
        own, *others = [found.get(metric) for found in belief.levels(context, [point, *shared])]
        known = [one for one in others if one is not None]
        if own is None or len(known) < len(shared) or min(own.mean, *(one.mean for one in known)) <= 0.0:
            return None
        losses.append([sign * (math.log(one.mean) - math.log(own.mean)) for one in known])
        deviations.append([math.hypot(one.deviation / one.mean, own.deviation / own.mean) for one in known])
    means = np.mean(losses, axis=0)
    best = int(means.argmin())
    mean, half = float(means[best]), NORMAL_95 * float(np.mean(deviations, axis=0)[best])
    half = 0.0 if all(key == kept[best] for key in owner) else half  # it is recommended everywhere
    value, low, high = (sign * math.expm1(sign * x) for x in (mean, mean - half, mean + half))
    return Gain("share", value, low, high)


def _alike(points: Sequence[Array]) -> list[Array]:
    """The same points [d], each as the first one that it hardly differs from: nobody needs two rows for those."""
    kept: list[Array] = []
    found = []
    for point in points:
        same = [one for one in kept if np.abs(one - point).max(initial=0.0) <= SAME_SETTINGS]
        kept += [] if same else [point]
        found.append(same[0] if same else point)
    return found


def gains_at(belief: TunerForecasts, context: Array, point: Array) -> dict[str, Gain]:
    """What a point is expected to gain on the default in a context, by metric."""
    (levels, own), optimizer = belief.levels(context, [belief.default, point]), belief.optimizer
    goals = {name: metric.sign for name, metric in optimizer.metrics.items() if name in levels and metric.weight > 0.0}
    better = optimizer.model.probability_better(context, point) if len(goals) == 1 else None
    return {name: _gain(levels[name], own[name], better, sign, optimizer.scales[name]) for name, sign in goals.items()}


def _gain(default: Expected, own: Expected, better: float | None, sign: float, scale: str) -> Gain:
    """What `own` gains on the default, with an interval of 95%."""
    by_factors = scale == "log" and min(default.mean, own.mean) > 0.0
    if by_factors:
        mean = sign * (math.log(default.mean) - math.log(own.mean))
        otherwise = math.hypot(default.deviation / default.mean, own.deviation / own.mean)
        half = NORMAL_95 * believed_deviation(mean, better, otherwise)
        value, low, high = (share_of(sign, x) for x in (mean, mean - half, mean + half))
        return Gain("share", value, low, high, sign < 0.0)
    mean = sign * (default.mean - own.mean)
    half = NORMAL_95 * believed_deviation(mean, better, math.hypot(default.deviation, own.deviation))
    unit = abs(default.mean)
    if default.mean * own.mean <= 0.0:  # a share says nothing
        return Gain("difference", mean, mean - half, mean + half, sign < 0.0)
    low, high = (mean - half) / unit, (mean + half) / unit
    if default.mean > 0.0:
        low, high = of_positive(low, high, sign)
    return Gain("share", mean / unit, low, high, sign < 0.0)
