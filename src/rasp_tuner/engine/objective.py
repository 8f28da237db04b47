"""Objective: metrics -> the one target that the engine minimises.

symbol    shape    meaning
B         scalar   tuners; one tuner has no such axis
K, C      scalar   metrics; columns of losses: a metric on scale "auto" has two, linear and log, any other has one
losses    [B, C]   lower is better
weights   [B, C]   target = losses @ weights; zero for the column that its metric does not use

What is known is kept by metric and column, each a number (scalar_or_batch.py): a float of one tuner, or an
array [B].
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.base.numerics import LARGEST, SMALLEST, Array
from rasp_tuner.base.state_checks import MOST_SAMPLES, Field, broken
from rasp_tuner.engine.family import Prices
from rasp_tuner.engine.scalar_or_batch import (
    Condition,
    Number,
    Tensor,
    chosen,
    columns_of,
    found_among,
    numbers_of,
    restored,
    rows_of,
    saved,
)
from rasp_tuner.engine.scale import LEAST_LOGS_GAIN, levels_apart
from rasp_tuner.errors import InvalidValue
from rasp_tuner.optimizer.metric_table import MetricTable, reweighed
from rasp_tuner.types import Direction, Metric, Scale

UNKNOWN_HARM = 1.0  # of a loss, by which a run may be worse than what is known: ended, failed, or a first look
ROUNDING = 1e-10  # of a metric's mean: a smaller deviation is none
LEVEL_SPREAD = 0.5  # deviation of log(what the default would have come to), if levels are to differ
LEAST_LOG = math.log(SMALLEST)
LARGEST_RATIO = 1e6  # of a loss to that of the default, when they are compared
MOST_LOG_RATIO = math.log(LARGEST_RATIO)
LEVELS = ("levels/count", "levels/mean", "levels/squares")  # in a snapshot
FAR_SUM = 1e217  # of squares of losses, as many as there may be
LEAST_DEVIATION = 1e-170  # a smaller one is 0, since its square is
FARTHEST_LOG = 800.0  # of any float


class Objective(MetricTable):
    """Metrics as losses, and the weights that turn all of history into one target.

    The target of a single metric is that metric, or its logarithm. With several, each counts by its weight over its
    standard deviation, which is looked at again whenever the number of samples has doubled. In between, old and new
    targets are computed in exactly the same way.

    logs_first  whether metrics on "auto" are compared by their logarithms for as long as they are positive
    zero        0.0 for one tuner; zeros [B] for B of them, in the kind of array and on the device to be used
    """

    def __init__(
        self, metrics: Mapping[str, Metric | Direction], *, logs_first: bool = False, zero: Number = 0.0
    ) -> None:
        super().__init__(metrics)
        n, self._zero, self.logs_first = numbers_of(zero), zero, logs_first
        self.batch = not isinstance(zero, float)  # whether it is of many tuners
        own = [(k, log) for k, metric in enumerate(self.metrics.values()) for log in _columns(metric.scale)]
        self.table = tuple(own)  # of each column: whose it is, and whether it is a logarithm
        self.linear = tuple((c, k) for c, (k, log) in enumerate(own) if not log)
        self.signs = tuple(1.0 if metric.direction == "min" else -1.0 for metric in self.metrics.values())
        self.sign = self.signs[0]  # of the metric, if there is one
        self.one = len(self.metrics) == 1
        self.one_open = self.one and len(own) == 2  # one metric, on "auto"; several keep their first scale
        self._only_positive = tuple(name for name, metric in self.metrics.items() if metric.scale == "log")
        self._mean, self._squares = [zero] * len(own), [zero] * len(own)  # squares: summed, around it
        self._deviations = [zero + 1.0] * len(own)  # that a column is divided by
        logs = ("log", "auto") if logs_first else ("log",)
        yes, no = zero == 0.0, zero != 0.0
        self.uses_log = [yes if metric.scale in logs else no for metric in self.metrics.values()]  # [K]
        self.positive = [yes] * len(self.metrics)  # [K] whether all values were above zero
        self._levels = [zero] * 3  # of log(target of the default): count, mean, sum of squares around it
        self.seen: Number = 0 if isinstance(zero, float) else n.astype(zero, n.int64)
        self.set_weights()

    @property
    def scales(self) -> dict[str, str]:
        """On which scale each metric of one tuner is compared now: "linear" or "log"."""
        return {name: "log" if log else "linear" for name, log in zip(self.metrics, self.uses_log, strict=True)}

    @property
    def columns(self) -> int:
        """C."""
        return len(self.table)

    def own_rows(self, rows: Array) -> Tensor:
        """Rows [B, .] of all tuners as they are used here: of one tuner its row."""
        return rows if self.batch else rows[0]

    def own_numbers(self, array: NDArray[Any]) -> Any:
        """Numbers or conditions [B] of all tuners as they are used here: of one tuner a float or bool."""
        return array if self.batch else array.item()

    @property
    def logs(self) -> list[bool]:
        """[C] which columns are logarithms."""
        return [log for _, log in self.table]

    def set_weights(self) -> None:
        n = numbers_of(self._zero)
        total, given = sum(m.weight for m in self.metrics.values()), [m.weight for m in self.metrics.values()]
        weights = []
        for (k, log), deviation in zip(self.table, self._deviations, strict=True):
            used = self.uses_log[k] if log else n.logical_not(self.uses_log[k])
            weights.append(n.where(used, given[k] / total / deviation, 0.0))
        self.column_weights, self._unit = weights, None
        self.weights: Tensor = rows_of(weights)
        counts = [c for c, weight in enumerate(weights) if isinstance(weight, float) and weight > 0.0]
        self._only = (counts[0], weights[counts[0]]) if len(counts) == 1 else None  # the one column that counts
        # what was tiny and is huge now has a finite target
        self._limits = [LARGEST * n.clip(deviation, None, 1.0) for deviation in self._deviations]

    def to_minimise(self, values: Mapping[str, float]) -> Array:
        """Checked metrics of one tuner as losses [C]."""
        given = self.check(values)
        for name in self._only_positive:
            if given[name] <= 0.0:
                raise InvalidValue(f"metrics[{name!r}] must be above 0, since its scale is 'log'; got {given[name]!r}")
        losses: Array = self.losses_of(list(given.values()))
        return losses

    def of_repeats(self, means: Mapping[str, float], variances: Mapping[str, float]) -> tuple[Array, Array]:
        """Mean losses [C] of many runs of one tuner, and the variance of one run's [C].

        Exact where a metric counts as it is. Of logarithms a mean and a variance say both if values are log-normal.
        """
        losses, scatter = self.to_minimise(means).copy(), np.zeros(self.columns)
        given, names = self.check(means), list(self.metrics)
        for c, ((k, log), limit) in enumerate(zip(self.table, self._limits, strict=True)):
            mean, variance = given[names[k]], variances[names[k]]
            scatter[c] = variance
            if log:
                scatter[c] = math.log1p(variance / mean / mean) if mean > 0.0 else 0.0
                losses[c] = min(max(losses[c] - 0.5 * self.signs[k] * scatter[c], -limit), limit)
        return losses, np.minimum(scatter, LARGEST)

    def losses_of(self, values: Sequence[Number]) -> Tensor:
        """Losses [C], or [B, C], of K finite values; those that are on scale "log" for good are above zero."""
        n, losses = numbers_of(self._zero), []
        for (k, log), limit in zip(self.table, self._limits, strict=True):
            loss = _log(values[k]) if log else values[k]
            losses.append(n.clip(self.signs[k] * loss, -limit, limit))
        return rows_of(losses)

    def target(self, losses: Tensor) -> Number:
        """losses [C] @ weights [C]; of many, for each."""
        if self._only is not None:
            return float(losses[self._only[0]]) * self._only[1]
        if losses.ndim == 1:
            return float(losses @ self.weights)
        return numbers_of(self._zero).sum(losses * self.weights, axis=-1)

    def target_of(self, value: float) -> float:
        """The target that a value of the one metric comes to; beyond all others if the scale has no such value."""
        if self.uses_log[0] and value <= 0.0:
            return -self.signs[0] * LARGEST
        return float(self.target(self.losses_of([value])))

    @property
    def is_log(self) -> Condition:
        """Whether there is one metric, and it is compared by its logarithm."""
        return self.one and self.uses_log[0]

    def of_error(self, error: float) -> Array:
        """Losses [C] of an error that was composed elsewhere."""
        log = math.log(error) if error > 0.0 else LEAST_LOG
        return np.array([log if is_log else error for _, is_log in self.table])

    def observe(self, losses: Tensor, told: Condition = True) -> Condition:
        """Take in one sample [C], or [B, C] of the tuners that were told; whether it changed the weights.

        `observe_extreme` must have seen it before.
        """
        n, known = numbers_of(self._zero), self.seen + 1
        for c, loss in enumerate(columns_of(losses)):
            old = self._mean[c], self._squares[c]
            gap = loss - old[0]
            mean = old[0] + gap / known
            square = n.abs(n.clip(gap, -LARGEST, LARGEST) * n.clip(loss - mean, -LARGEST, LARGEST))
            new = mean, old[1] + square
            if told is not True:
                new = chosen(told, new[0], old[0]), chosen(told, new[1], old[1])
            self._mean[c], self._squares[c] = new
        self.seen, self._unit = chosen(told, known, self.seen), None
        if self.one:
            return told & (known < 0)
        known = self.seen
        doubled = told & (known >= 2) & ((known & (known - 1)) == 0)
        if n.any(doubled):
            for c in range(self.columns):
                self._deviations[c] = chosen(doubled, self._unit_of(c, known), self._deviations[c])
            self.set_weights()
        return doubled

    def _unit_of(self, c: int, seen: Number) -> Number:
        """The deviation of a column over so many samples; 1 if that is but rounding."""
        n = numbers_of(self._zero)
        spread = n.sqrt(self._squares[c] / n.clip(seen, 1, None))
        return n.where(spread > ROUNDING * n.abs(self._mean[c]), spread, 1.0)

    def forget(self) -> None:
        """Be as new, with the weights that metrics have now."""
        vars(self).update(vars(Objective(self.metrics, logs_first=self.logs_first, zero=self._zero)))

    def restate(self, factors: Tensor, shifts: Tensor) -> None:
        """All losses so far become losses * factors + shifts, [C] or [B, C] each.

        Of several metrics the target stays what it was.
        """
        n = numbers_of(self._zero)
        for c, (factor, shift) in enumerate(zip(columns_of(factors), columns_of(shifts), strict=True)):
            self._mean[c] = factor * self._mean[c] + shift
            self._squares[c] = factor * factor * self._squares[c]
            if not self.one:
                self._deviations[c] = n.where(self.seen >= 2, factor * self._deviations[c], self._deviations[c])
        if self.one and not self.table[0][1]:
            count, mean, squares = self._levels
            self._levels = [count, n.where(count > 0.0, mean + n.log(columns_of(factors)[0]), mean), squares]
        self.set_weights()

    @property
    def may_rescale(self) -> Condition:
        """Whether the scale is open: of one metric on "auto" that was never 0 or less."""
        return self.one_open & self.positive[0]

    def observe_level(self, default: Number, told: Condition = True) -> None:
        """Take in the target that the default would have come to in the situation of a sample."""
        n, level = numbers_of(self._zero), self.sign * self.own_units(default)
        counts = told & (level > 0.0)
        if counts is False:
            return
        count, mean, squares = self._levels
        log = n.log(n.where(counts, level, 1.0))
        gap = log - mean
        moved = mean + gap / (count + 1.0)
        new = [count + 1.0, moved, squares + gap * (log - moved)]
        self._levels = new if counts is True else [chosen(counts, a, b) for a, b in zip(new, self._levels, strict=True)]

    def choose_scale(
        self, contexts: Tensor, losses: Tensor, used: Tensor | None = None, looked: Condition = True
    ) -> Condition:
        """Look again at the scale, by the latest samples [n, .] and their losses [n, C]; whether it changed.

        A logarithm is for levels that differ by factors between situations; not while one of the samples has none.
        Contexts are in units of their metric (contexts/context_metric.py).
        Of B tuners all have a first axis; `used` [B, n] says which samples there are, `looked` whose turn it is.
        """
        n, now = numbers_of(self._zero), self.uses_log[0]
        logs = self.sign * losses[..., 1]
        if used is None:
            used = np.ones(len(logs), dtype=bool)
        without = (used & (logs < LEAST_LOG + 1.0)).any(axis=-1)
        looked = looked & n.logical_not(now) & n.logical_not(without if self.batch else bool(without))
        count, _, squares = self._levels
        spread = looked & (squares > LEVEL_SPREAD**2 * count)
        changed = looked if self.logs_first else found_among(spread, levels_apart, contexts, logs, used)
        if n.any(changed):
            self.uses_log[0] = now | changed
            self.set_weights()
        return changed

    def follow(self, logs_gain: float) -> bool:
        """Of one tuner: compare its metric on the scale that the evidence is for; whether that is another one.

        `logs_gain` is log evidence.
        """
        if abs(logs_gain) < LEAST_LOGS_GAIN or self.uses_log[0] == (logs_gain > 0.0):
            return False
        self.uses_log[0] = logs_gain > 0.0
        self.set_weights()
        return True

    def own_units(self, target: Number) -> Number:
        """A target as a loss in the metric's own units; of several metrics the target itself."""
        return in_own_units(target, self.uses_log[0], self.sign) if self.one else target

    def own_units_of(self, name: str, target: float) -> float:
        """A target to which only this metric counts, as a loss in its own units."""
        k = list(self.metrics).index(name)
        column = next(c for c, (own, log) in enumerate(self.table) if own == k and log == self.uses_log[k])
        loss: float = in_own_units(target / self.column_weights[column], self.uses_log[k], self.signs[k])
        return loss

    def relative(self, gap: Number, level: Number) -> Number:
        """A difference of targets as a share of the loss at `level`: 0.1 is ten percent worse.

        Where a share has no meaning, since the metric changes its sign, of its deviation instead.
        """
        return self.shares(level, gap)[0]

    def shares(self, level: Number, *gaps: Number) -> list[Number]:
        """`relative` of every gap."""
        n, log = numbers_of(level), self.is_log
        factors = [] if log is False else [n.expm1(n.clip(gap, None, MOST_LOG_RATIO)) for gap in gaps]
        if log is True:
            return factors
        typical = self._typical()
        unit = n.maximum(n.abs(level), typical) if self.one else typical
        unit = n.clip(unit, SMALLEST, None)
        shares = [n.clip(gap / unit, None, LARGEST_RATIO) for gap in gaps]
        return shares if log is False else [n.where(log, a, b) for a, b in zip(factors, shares, strict=True)]

    def gap(self, share: Number, level: Number) -> Number:
        """The difference of targets that `relative` calls this share."""
        n, log = numbers_of(level), self.is_log
        if log is True:
            return n.log1p(share)
        typical = self._typical()
        unit = n.clip(n.maximum(n.abs(level), typical) if self.one else typical, SMALLEST, None)
        return share * unit if log is False else n.where(log, n.log1p(share), share * unit)

    def prices(self, most: float) -> Prices:
        """Of one tuner: as `relative`, within `most` either way."""
        return Prices(self.is_log, self.one, float(self._typical()), SMALLEST, MOST_LOG_RATIO, most)

    def _typical(self) -> Number:
        """`_typical_loss`, kept until something is observed."""
        if self._unit is None:
            self._unit = self._typical_loss()
        return self._unit

    def _typical_loss(self) -> Number:
        """Of one metric its deviation; of several the size of their target, of which a share is taken."""
        n, unit = numbers_of(self._zero), self._zero
        seen = n.clip(self.seen, 1, None)
        for c, (_, log) in enumerate(self.table):
            spread = n.sqrt(self._squares[c] / seen)
            if not self.one:
                spread = 1.0 if log else n.maximum(n.abs(self._mean[c]), spread)
            unit = unit + self.column_weights[c] * spread
        return unit

    def moved(self, losses: Tensor, more: Number) -> Tensor:
        """Losses [C], or [B, C], whose target is larger by this: each column moves by its weight."""
        n, weights = numbers_of(self._zero), self.column_weights
        step = more / sum(weight * weight for weight in weights)
        values: list[Number] = [0.0 * step] * len(self.metrics)
        for (k, log), loss, weight in zip(self.table, columns_of(losses), weights, strict=True):
            moved = self.signs[k] * (loss + weight * step)
            value = n.exp(n.clip(moved, -700.0, 700.0)) if log else moved
            values[k] = chosen(self.uses_log[k] == log, value, values[k])
        return self.losses_of(values)

    def of_failure(self, level: Number) -> Tensor:
        """Losses [C], or [B, C], that a failure counts as where the target of the default is `level`.

        Twice what the default comes to: the run is lost, and the default must run after it. What is far worse would
        be a cliff that no model of a metric has, and then nothing near it is known any more.
        """
        n, mean, losses = numbers_of(self._zero), rows_of(self._mean), []
        seen = n.clip(self.seen, 1, None)
        levels = self.moved(mean, level - self.target(mean))
        columns = zip(self.table, columns_of(levels), self._mean, self._squares, strict=True)
        for (_, log), loss, usual, squares in columns:
            if log:  # the usual one, where the level has none
                loss = n.where(n.abs(loss) < -LEAST_LOG, loss, usual) + math.log1p(UNKNOWN_HARM)
            else:
                loss = loss + UNKNOWN_HARM * n.maximum(n.abs(loss), n.sqrt(squares / seen))
            losses.append(n.clip(loss, -LARGEST, LARGEST))
        return rows_of(losses)

    def reweigh(self, weights: Mapping[str, float]) -> None:
        """Other weights from now on, for some or all metrics."""
        self.metrics = reweighed(self.metrics, weights)
        self.set_weights()

    def merge(self, other: "Objective") -> None:
        """Take in all that another one saw; each is of one tuner, and the weights given to metrics stay.

        Metrics are compared by their logarithms if both were; whoever knows the samples may look again.
        """
        if self.seen == 0 or other.seen == 0:
            if other.seen:
                self.restore(other.state())
            return
        (n, m), total = (self.seen, other.seen), self.seen + other.seen
        for c in range(self.columns):
            mean = (n * self._mean[c] + m * other._mean[c]) / total
            apart = min(abs(other._mean[c] - self._mean[c]), LARGEST)
            self._squares[c] += other._squares[c] + n * (m / total) * apart**2
            self._mean[c] = mean
            if not self.one:
                self._deviations[c] = self._unit_of(c, total)
        both = zip(self.uses_log, other.uses_log, strict=True), zip(self.positive, other.positive, strict=True)
        self.uses_log, self.positive = ([a and b for a, b in pairs] for pairs in both)
        (count, level, squares), (more, others, scatter) = self._levels, other._levels
        share = more / max(count + more, 1.0)
        apart = count * share * (others - level) ** 2
        self._levels = [count + more, (1.0 - share) * level + share * others, squares + scatter + apart]
        self.seen = total
        self.set_weights()

    def state(self) -> dict[str, Array]:
        """Everything learned; of B tuners each array has a last axis of tuners."""
        of_columns = {"mean": self._mean, "squares": self._squares, "scales": self._deviations}
        lists = {**of_columns, "log": self.uses_log, "positive": self.positive}
        numbers = {"seen": self.seen, **dict(zip(LEVELS, self._levels, strict=True))}
        alone = {name: saved([number])[0, ...] for name, number in numbers.items()}
        return {name: saved(own) for name, own in lists.items()} | alone

    def restore(self, state: Mapping[str, Array]) -> None:
        n, loss, count = numbers_of(self._zero), 2.0 * LARGEST, Field((), 0.0, MOST_SAMPLES, whole=True)
        columns, metrics = (self.columns,), (len(self.metrics),)
        fields = {
            "mean": Field(columns, -loss, loss),
            "squares": Field(columns, 0.0, FAR_SUM),
            "scales": Field(columns, LEAST_DEVIATION, FAR_SUM),
            "log": Field(metrics, 0.0, 1.0, whole=True),
            "positive": Field(metrics, 0.0, 1.0, whole=True),
            "seen": count,
            **dict(zip(LEVELS, (count, Field((), -FARTHEST_LOG, FARTHEST_LOG), Field((), 0.0, FAR_SUM)), strict=True)),
        }
        read = restored(state, fields, self._zero)
        for (name, metric), log in zip(self.metrics.items(), state["log"], strict=True):
            if metric.scale != "auto" and not np.all(log == float(metric.scale == "log")):
                raise broken(state, "log", f"say that {name!r} is on scale {metric.scale!r}", log)
        self._mean, self._squares, self._deviations = (read[name] for name in ("mean", "squares", "scales"))
        self.uses_log, self.positive = ([value > 0.0 for value in read[name]] for name in ("log", "positive"))
        (seen,) = read["seen"]
        self.seen = int(seen) if isinstance(seen, float) else n.astype(seen, n.int64)
        self._levels = [read[name][0] for name in LEVELS]
        self.set_weights()


def in_own_units(target: Number, is_log: Condition, sign: float) -> Number:
    """A target, or what it is the logarithm of: a loss, which is negative if more of the metric is better."""
    if is_log is False:
        return target
    n = numbers_of(target)
    return n.where(is_log, sign * n.exp(n.clip(sign * target, -700.0, 700.0)), target)


def _columns(scale: Scale) -> tuple[bool, ...]:
    """Whether each column of a metric on this scale is a logarithm."""
    return (False, True) if scale == "auto" else (scale == "log",)


def _log(value: Number) -> Number:
    """The logarithm; the least one of what has none. NumPy's also for one tuner: losses have the bits of many."""
    if isinstance(value, float):
        return float(np.log(value)) if value > 0.0 else LEAST_LOG
    n = numbers_of(value)
    return n.where(value > 0.0, n.log(n.where(value > 0.0, value, 1.0)), LEAST_LOG)
