"""History: the data of a study's charts. Computed from events alone, bounded in size, saved with the snapshot.

The gain of a step is the error expected of the default in the step's context, minus the measured error. The expectation
is the engine's prediction just before it learned the step; under preset "paper" it is the mean error of the default's
own runs. After 128 steps the gain is computed for one step in four and counted four times.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rasp_tuner.core.context_encoder import context_encoder
from rasp_tuner.core.numerics import Array
from rasp_tuner.service.study.definition import StudyDefinition
from rasp_tuner.service.study.regimes import RegimeTimeline
from rasp_tuner.service.study.trace import Trace, bounded
from rasp_tuner.tuner import Tuner
from rasp_tuner.types import Explanation

MAX_MARKS = 300  # newest events shown on the timeline
GAIN_EACH_STEP_UNTIL = 128  # steps; later the gain is computed for one step in GAIN_EVERY_STEPS and scaled up
GAIN_EVERY_STEPS = 4
NOVELTY_THRESHOLD = 0.7  # a step above it is marked; the paper's threshold
COVERAGE_LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
HALF_WIDTHS = (0.1257, 0.2533, 0.3853, 0.5244, 0.6745, 0.8416, 1.0364, 1.2816, 1.6449, 1.9600)  # normal quantiles


class History:
    """Series, regimes, marks, calibration. Every event that changes the tuner is passed to `add_step` or `add_mark`."""

    def __init__(self, definition: StudyDefinition, experts: Sequence[str]) -> None:
        self._definition, self.experts = definition, tuple(experts)
        self._encoder = context_encoder(definition.context)
        self._choices = {name: knob.get("choices") for name, knob in definition.space.items()}
        series = ["error", "gain", "novelty"]
        series += [f"metric:{name}" for name in definition.metrics]
        series += [f"default:{name}" for name in definition.metrics]
        series += [f"param:{name}" for name in definition.space]
        self.trace = Trace([*series, *(f"gate:{i}" for i in range(len(self.experts)))])
        self._shown = series
        self.regimes = RegimeTimeline(self._encoder.dim)
        self.marks: list[dict[str, Any]] = []
        self.gain = 0.0  # summed over all steps
        self.calibration = [0] * (1 + len(COVERAGE_LEVELS))  # number of forecasts, then how many fell within each level
        self._default_runs: dict[str, list[float]] = {}  # [count, mean] of "error" and of each metric at the default
        self.latest: dict[str, Any] = {}

    def expected_default_error(self, tuner: Tuner, context: Any) -> float | None:
        """The error expected of the default; call it before the step is learned."""
        step = self.trace.steps
        if tuner.learned < 3 or not _has_gain(step):
            return None
        expected = tuner.expected_of_default(context)
        if expected is None and "error" in self._default_runs:
            return self._default_runs["error"][1]
        return expected

    def add_step(
        self,
        at: float,
        context: Any,
        params: Mapping[str, Any],
        metrics: Mapping[str, float] | None,
        why: Explanation | None,
        expected: float | None,
        *,
        late: bool = False,
        known_context: bool = True,
    ) -> None:
        """Add a step: a sample that was told or observed, or that failed (`metrics` None)."""
        step = self.trace.steps
        error = self._error(metrics, why)
        gain = None if error is None or expected is None else bounded(expected) - bounded(error)
        novelty = None if why is None or not why.gate else why.novelty
        self._update_counts(metrics, error, params, why)
        values = [error, gain, novelty]
        values += [None if metrics is None else metrics.get(name) for name in self._definition.metrics]
        values += [self._default_level(name, expected) for name in self._definition.metrics]
        values += [self._param_as_number(name, params) for name in self._definition.space]
        gate = list(why.gate) if why is not None and len(why.gate) == len(self.experts) else [None] * len(self.experts)
        self.trace.add(np.array([*values, *gate], dtype=np.float64))
        self.gain = bounded(self.gain + (gain or 0.0) * (1 if step < GAIN_EACH_STEP_UNTIL else GAIN_EVERY_STEPS))
        regime = self.regimes.add(self._encoder.encode(context)) if known_context else None
        if metrics is None:
            self._mark(step, at, "failed")
        if late:
            self._mark(step, at, "late")
        if why is not None and why.path == "slow":
            self._mark(step, at, "slow")
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
            "regime": regime,
            "path": "observed" if why is None else why.path,
            "failed": metrics is None,
            "late": late,
            "gate": gate if gate and gate[0] is not None else None,
        }

    def add_earlier_step(self, at: float, why: Explanation) -> dict[str, float] | None:
        """Add a step by the explanation that a saved tuner has of it; its metrics, as far as known; None if it failed.

        Its context is not known, and of several metrics only the error is.
        """
        params, metrics = why.params if why.ran is None else why.ran, None
        if why.failure is None:
            sign = 1.0 if why.direction == "min" else -1.0
            metrics = {} if why.metric is None or why.error is None else {why.metric: sign * why.error}
        expected = why.level if _has_gain(self.trace.steps) else None
        self.add_step(at, None, params or {}, metrics, why, expected, known_context=False)
        self.latest = {}  # nothing has happened here yet
        return metrics

    def add_mark(self, at: float, kind: str) -> None:
        """Add an event that is no step: freeze, unfreeze."""
        self._mark(self.trace.steps, at, kind)

    def chart_data(self, points: int) -> dict[str, Any]:
        """The answer to GET history."""
        steps, weights = self.trace.means([f"gate:{i}" for i in range(len(self.experts))], points)
        total, before = self.calibration[0], self.trace.steps - self.regimes.steps  # steps without a context
        return {
            "steps": self.trace.steps,
            "bucket": self.trace.width * self.trace.group(points),
            "gain_total": self.gain,
            "series": {name: self.trace.series_points(name, points) for name in self._shown},
            "gate": {"experts": list(self.experts), "step": steps, "weights": weights},
            "regimes": [
                {"regime": label, "from": before + start, "to": before + end}
                for label, start, end in self.regimes.segments
            ],
            "events": list(self.marks),
            "calibration": {
                "expected": list(COVERAGE_LEVELS) if total else [],
                "observed": [within / total for within in self.calibration[1:]] if total else [],
                "count": total,
            },
        }

    def memory_map(self, tuner: Tuner) -> dict[str, Any]:
        """The answer to GET memory: the slots on the two axes along which they differ most."""
        slots = tuner.slots()
        x, explained = _principal_axes(slots.contexts)
        regimes = self.regimes.nearest_labels(slots.contexts)
        latest = self.trace.steps - 1
        return {
            "slots": [
                {
                    "x": float(x[i, 0]),
                    "y": float(x[i, 1]),
                    "visits": float(slots.visits[i]),
                    "regime": regimes[i],
                    "last_visit": None if np.isnan(slots.last[i]) else max(int(latest - slots.last[i]), 0),
                }
                for i in range(len(regimes))
            ],
            "explained": explained,
        }

    def to_json(self) -> dict[str, Any]:
        """A copy of all state except the arrays."""
        return {
            "marks": list(self.marks),
            "gain": self.gain,
            "calibration": list(self.calibration),
            "default_runs": {name: list(run) for name, run in self._default_runs.items()},
            "latest": dict(self.latest),
            "regimes": self.regimes.to_json(),
        }

    def state(self) -> dict[str, Array]:
        trace = {f"trace/{name}": array for name, array in self.trace.state().items()}
        return trace | {f"regimes/{name}": array for name, array in self.regimes.state().items()}

    def restore(self, data: Mapping[str, Any], state: Mapping[str, Array]) -> None:
        self.marks, self.gain, self.calibration = list(data["marks"]), data["gain"], list(data["calibration"])
        self._default_runs = {name: list(run) for name, run in data["default_runs"].items()}
        self.latest = dict(data["latest"])
        self.trace.restore({name[6:]: array for name, array in state.items() if name.startswith("trace/")})
        regimes = {name[8:]: array for name, array in state.items() if name.startswith("regimes/")}
        self.regimes.restore(data["regimes"], regimes)

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

    def _update_counts(
        self,
        metrics: Mapping[str, float] | None,
        error: float | None,
        params: Mapping[str, Any],
        why: Explanation | None,
    ) -> None:
        if metrics is None or error is None:
            return
        if params == self._definition.default:
            for name, value in {"error": error, **metrics}.items():
                count, mean = self._default_runs.get(name, [0, 0.0])
                self._default_runs[name] = [count + 1, mean + (bounded(value) - mean) / (count + 1)]
        if why is not None and why.predicted is not None and why.deviation and why.ran is None:
            far = abs(error - why.predicted) / why.deviation
            self.calibration[0] += 1
            for i, width in enumerate(HALF_WIDTHS):
                self.calibration[1 + i] += far <= width

    def _default_level(self, name: str, expected: float | None) -> float | None:
        """The default's expected metric: predicted if there is one metric, else the mean of its runs so far."""
        if len(self._definition.metrics) == 1 and self._definition.preset == "default":
            return expected if expected is None or self._definition.metrics[name]["direction"] == "min" else -expected
        run = self._default_runs.get(name)
        return None if run is None else run[1]

    def _param_as_number(self, name: str, params: Mapping[str, Any]) -> float:
        """A parameter as a number; for a categorical knob, the index of the choice; NaN for a word, or none at all."""
        if name not in params:
            return math.nan
        value, choices, spec = params[name], self._choices[name], self._definition.space[name]
        if choices is not None:
            return float(choices.index(value))
        return math.nan if "knob" in spec and value == spec.get("word") else float(value)

    def _mark(self, step: int, at: float, kind: str) -> None:
        self.marks.append({"step": step, "at": at, "kind": kind})
        del self.marks[:-MAX_MARKS]


def _has_gain(step: int) -> bool:
    return step < GAIN_EACH_STEP_UNTIL or step % GAIN_EVERY_STEPS == 0


def _principal_axes(contexts: Array) -> tuple[Array, float]:
    """Standardised contexts [n, d_c] on their first two principal axes [n, 2], and the explained share of variance."""
    n = len(contexts)
    flat = np.zeros((n, 2))
    if n < 2 or not contexts.shape[1]:
        return flat, 1.0
    spread = contexts.std(axis=0)
    centred = np.where(spread > 0.0, (contexts - contexts.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0), 0.0)
    _, sizes, axes = np.linalg.svd(centred, full_matrices=False)
    total = float((sizes**2).sum())
    if total <= 0.0:
        return flat, 1.0
    for i, axis in enumerate(axes[:2]):
        sign = 1.0 if axis[int(np.abs(axis).argmax())] >= 0.0 else -1.0  # so that the map does not flip
        flat[:, i] = centred @ axis * sign
    return flat, float((sizes[:2] ** 2).sum()) / total
