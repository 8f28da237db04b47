"""History: the data of a study's charts. Computed from events alone, bounded in size, saved with the snapshot.

The gain of a step is what the tuner counted for it (gain/versus_default.py): what the default was expected to give in
the step's context, less what came. What nobody asked for has none.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from rasp_tuner.base.numerics import Array
from rasp_tuner.base.state_checks import under
from rasp_tuner.contexts.context_encoder import context_encoder
from rasp_tuner.contexts.regimes import RegimeTimeline
from rasp_tuner.gain.versus_default import LATELY_STEPS, StepGain
from rasp_tuner.history.recovery import FAILED
from rasp_tuner.history.visits import StepSeen
from rasp_tuner.service.study.definition import StudyDefinition
from rasp_tuner.service.study.study_visits import StudyVisits
from rasp_tuner.service.study.trace import LatestSteps, Trace, TraceWindow, bounded
from rasp_tuner.types import Explanation, Why

MAX_MARKS = 300  # newest events shown on the timeline
NOVELTY_THRESHOLD = 0.7  # a step above it is marked; the paper's threshold
COVERAGE_LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
HALF_WIDTHS = (0.1257, 0.2533, 0.3853, 0.5244, 0.6745, 0.8416, 1.0364, 1.2816, 1.6449, 1.9600)  # normal quantiles


class ToldStep(NamedTuple):
    """What happened: a sample that was told or observed, or that failed (`metrics` None)."""

    at: float
    context: Any
    params: Mapping[str, Any]
    metrics: Mapping[str, float] | None
    why: Why | None  # as it was chosen; None of an observation
    gains: Mapping[str, StepGain]  # beside the default, by metric; empty where that is not known
    late: bool = False
    relevance: Array | None = None  # of each dimension of the context, as learned by then


class StudyHistory:
    """Series, regimes, marks, calibration. Every event that changes the tuner is passed to `add_step` or `add_mark`."""

    def __init__(self, definition: StudyDefinition) -> None:
        self._definition = definition
        self._one_metric = len(definition.metrics) == 1
        self._encoder = context_encoder(definition.context)
        self._choices = {name: knob.get("choices") for name, knob in definition.space.items()}
        self._shown = _shown_series(definition) + [f"gain:{name}" for name in definition.metrics]
        series = ["at", *self._shown]
        self.trace, self.latest_steps = Trace(series), LatestSteps(series)
        self.regimes, self.visits = RegimeTimeline(self._encoder.dim), StudyVisits(definition.space)
        self.marks: list[dict[str, Any]] = []
        self.gain = 0.0  # summed over all steps
        self.failure_share = 0.0  # of the latest steps, with older ones fading
        self.calibration = [0] * (1 + len(COVERAGE_LEVELS))  # number of forecasts, then how many fell within each level
        self.latest: dict[str, Any] = {}

    def add_step(self, told: ToldStep) -> None:
        """Add a step."""
        at, context, params, metrics, reasons, gains, late, relevance = told
        why = None if reasons is None else reasons.explanation()
        step, names = self.trace.steps, self._definition.metrics
        regime = self._regime(context, relevance)
        error = self._error(metrics, why)
        if why is not None and not self.regimes.stray:
            value = None if self._definition.preset == "paper" else error  # its errors are relative to their time
            seen = StepSeen(step, at, FAILED if metrics is None else value, dict(params))
            self.visits.add(self.regimes.situations[regime], seen)
        gain = self._joint(gains)
        novelty = None if why is None or not why.gate else why.novelty
        self._update_counts(metrics, error, why)
        values = [at, error, gain, novelty]
        values += [None if metrics is None else metrics.get(name) for name in names]
        values += [gains[name].level if name in gains else None for name in names]
        values += [self._param_as_number(name, params) for name in self._definition.space]
        values += [gains[name].gain if name in gains else None for name in names]
        row = np.array(values, dtype=np.float64)
        self.trace.add(row)
        self.latest_steps.add(row)
        self.gain = bounded(self.gain + (gain or 0.0) * max((one.weight for one in gains.values()), default=0))
        if metrics is None:
            self._mark(step, at, "failed")
        if late:
            self._mark(step, at, "late")
        if why is not None and why.path == "slow":
            self._mark(step, at, "slow")
        if why is not None and why.path == "restated":
            self._mark(step, at, "restated", words=why.reason)
        if novelty is not None and novelty > NOVELTY_THRESHOLD:
            self._mark(step, at, "novel")
        self.latest = {
            "step": step,
            "at": at,
            "error": error,
            "gain": gain,
            "gain_total": self.gain,
            "novelty": novelty,
            "metrics": metrics,
            "params": params,
            "regime": self.regimes.situations[regime],
            "path": "observed" if why is None else why.path,
            "failed": metrics is None,
            "late": late,
        }

    def add_mark(self, at: float, kind: str, by: str | None = None) -> None:
        """Add an event that is no step: freeze, default, unfreeze, approved, refused."""
        self._mark(self.trace.steps, at, kind, by)

    def chart_data(self, points: int, since: float | None = None) -> dict[str, Any]:
        """The answer to GET history; `since`: only steps from that moment on, in unix seconds."""
        window = self.trace.window(points) if since is None else self._window_since(since, points)
        total = self.calibration[0]
        times = window.points("at")
        return {
            "steps": self.trace.steps,
            "first": window.first,
            "bucket": window.bucket,
            "times": {"step": times["step"], "first": times["min"], "last": times["max"]},
            "gain_total": self.gain,
            "series": {name: window.points(name) for name in self._shown},
            "regimes": [
                {"regime": label, "from": start, "to": end} for label, start, end in self.regimes.situation_segments()
            ],
            "situations": self.visits.situations_met(),
            "events": sorted([*self.marks, *self.visits.events()], key=lambda event: int(event["step"])),
            "calibration": {
                "expected": list(COVERAGE_LEVELS) if total else [],
                "observed": [within / total for within in self.calibration[1:]] if total else [],
                "count": total,
            },
        }

    def _window_since(self, since: float, points: int) -> TraceWindow:
        """The newest steps one by one if they reach back so far, else buckets."""
        start = self.latest_steps.first_reaching("at", since)
        if start > self.latest_steps.first or self.latest_steps.first == 0:
            return self.latest_steps.window(points, start)
        return self.trace.window(points, self.trace.first_reaching("at", since))

    def summary(self) -> dict[str, Any]:
        """What a study's view says of its history; `held`: outcomes within intervals that should hold nine in ten."""
        forecasts, within = self.calibration[0], self.calibration[1 + COVERAGE_LEVELS.index(0.9)]
        return {
            "failure_share": self.failure_share,
            "coverage": {"forecasts": forecasts, "held": within / forecasts if forecasts else None},
        }

    def to_json(self) -> dict[str, Any]:
        """A copy of all state except the arrays."""
        return {
            "marks": list(self.marks),
            "gain": self.gain,
            "failure_share": self.failure_share,
            "calibration": list(self.calibration),
            "series": list(self.trace.series),
            "latest": dict(self.latest),
            "regimes": self.regimes.to_json(),
            "visits": self.visits.to_json(),
        }

    def state(self) -> dict[str, Array]:
        parts = {"trace": self.trace.state(), "newest": self.latest_steps.state(), "regimes": self.regimes.state()}
        return {f"{part}/{name}": array for part, arrays in parts.items() for name, array in arrays.items()}

    def restore(self, data: Mapping[str, Any], state: Mapping[str, Array]) -> None:
        self.marks, self.calibration = list(data["marks"]), list(data["calibration"])
        self.latest = dict(data["latest"])
        self.gain, self.failure_share, series = data["gain"], data["failure_share"], data["series"]
        self.trace.restore(under("trace/", state), series)
        self.latest_steps.restore(under("newest/", state) or {"values": np.zeros((0, 0))}, self.trace.steps)
        self.regimes.restore(data["regimes"], under("regimes/", state))
        self.visits.restore(data["visits"])

    def _regime(self, context: Any, relevance: Array | None) -> int:
        regime = self.regimes.add(self._encoder.encode(context), relevance)
        for gone, kept in self.regimes.joined:
            self.visits.merge(gone, kept)
        return regime

    def with_visits(self, why: Explanation, context: Any, asked_at: float) -> Explanation:
        """An explanation that says, with dates, whether the situation had been seen before."""
        if context is None or not self._encoder.dim:
            return why
        regime = self.situation(context)
        waits, step = why.path == "pending", self.trace.steps
        return replace(why, seen=None if regime is None else self.visits.seen(regime, step, asked_at, waits))

    def situation(self, context: Any) -> int | None:
        """The situation that a context belongs to; None if it is far from all that were met."""
        return self.regimes.known_situation(self._encoder.encode_readonly(context)) if self._encoder.dim else None

    def _joint(self, gains: Mapping[str, StepGain]) -> float | None:
        """One number for all metrics: the gain itself of one; of several the weighted mean of their shares."""
        if self._one_metric:
            return next((one.gain for one in gains.values()), None)
        total, sum_of_weights = 0.0, 0.0
        for name, spec in self._definition.metrics.items():
            weight = float(spec["weight"])
            if weight == 0.0:
                continue
            if name not in gains or (gains[name].gain != 0.0 and gains[name].level == 0.0):
                return None
            total += weight * gains[name].gain / (abs(gains[name].level) or 1.0)
            sum_of_weights += weight
        return bounded(total / sum_of_weights) if sum_of_weights else None

    def _error(self, metrics: Mapping[str, float] | None, why: Explanation | None) -> float | None:
        if metrics is None:
            return None  # a failure has no error value
        if why is not None:
            return why.error
        return self._single_metric_error(metrics)

    def _single_metric_error(self, metrics: Mapping[str, float]) -> float | None:
        """The error of an observation; known only if the study has one metric, which is then the engine's target."""
        if len(metrics) > 1 or self._definition.preset != "default":
            return None
        name, value = next(iter(metrics.items()))
        return float(value) if self._definition.metrics[name]["direction"] == "min" else -float(value)

    def _update_counts(self, metrics: Mapping[str, float] | None, error: float | None, why: Explanation | None) -> None:
        self.failure_share += (float(metrics is None) - self.failure_share) / min(self.trace.steps + 1, LATELY_STEPS)
        if metrics is None:
            return
        if error is None or why is None or why.ran is not None:
            return
        if why.predicted is not None and why.deviation:
            far = abs(error - why.predicted) / why.deviation
            self.calibration[0] += 1
            for i, width in enumerate(HALF_WIDTHS):
                self.calibration[1 + i] += far <= width

    def _param_as_number(self, name: str, params: Mapping[str, Any]) -> float:
        """A parameter as a number; for a categorical knob, the index of the choice; NaN for a word, or none at all."""
        if name not in params:
            return math.nan
        value, choices, spec = params[name], self._choices[name], self._definition.space[name]
        if choices is not None:
            return float(choices.index(value))
        return math.nan if "knob" in spec and value == spec.get("word") else float(value)

    def _mark(self, step: int, at: float, kind: str, by: str | None = None, words: str | None = None) -> None:
        more = {name: text for name, text in (("by", by), ("words", words)) if text is not None}
        self.marks.append({"step": step, "at": at, "kind": kind, **more})
        del self.marks[:-MAX_MARKS]


def _shown_series(definition: StudyDefinition) -> list[str]:
    """The series of a chart, but for the gains by metric, in the order of their columns in snapshots."""
    series = ["error", "gain", "novelty"]
    series += [f"metric:{name}" for name in definition.metrics]
    series += [f"default:{name}" for name in definition.metrics]
    return series + [f"param:{name}" for name in definition.space]
