"""One step of a study: read the situation, choose, hand over, let it settle, measure, learn.

The situation is read before the parameters are chosen, and it is what the outcome is learned for. It is read again at
the end: what has changed meanwhile is noted, in the journal and in the log.

While a suggestion runs, looks inside its window say whether it is so bad that it should be ended. A look after a share
f of the window sees v, measured over that part. If the rest were as the default, the window would come to
level + f (v - level): what the run has cost by then. It only grows while the run is worse than the default, and its
noise is less than that of a whole window. From the suggestion's stop on the run is ended (docs/STOPS.md).
"""

import logging
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from rasp_tuner.errors import InvalidValue, NoData, QueryFailed, SinkFailed
from rasp_tuner.optimizer.metric_table import beside_control
from rasp_tuner.optimizer.optimizer import Expected
from rasp_tuner.page.words import number_words, settings_words
from rasp_tuner.space import Params
from rasp_tuner.types import Metric, Suggestion
from rasp_tuner.watch.delivery import Delivery
from rasp_tuner.watch.memory import WatchMemory
from rasp_tuner.watch.reader import ContextValue, Reader, changed
from rasp_tuner.watch.study import Mode, WatchStudy

log = logging.getLogger("rasp_tuner.watch")

Role = Literal["suggestion", "default", "observed", "frozen"]
Context = dict[str, ContextValue]
Levels = Mapping[str, Expected]  # what the default is expected to give, in a situation


class Ended(NamedTuple):
    """A run that was ended."""

    after_s: float  # of its window
    metrics: dict[str, float]  # what the window came to by then
    control: dict[str, float] | None


class Stepper:
    """Does the steps of one mode. What cannot be read or handed over raises, and nothing is learned."""

    def __init__(
        self, study: WatchStudy, mode: Mode, memory: WatchMemory, delivery: Delivery, pause: Callable[[float], None]
    ) -> None:
        self.study, self.mode, self.memory, self.delivery = study, mode, memory, delivery
        self.reader, self._pause = Reader(study, pause), pause
        self.by_instances = mode == "canary" and study.has_canaries
        self._asked: dict[str, Any] | None = None  # of a step that does not count: a replay asks as often

    @property
    def held_out(self) -> float | None:
        """The probability with which a step runs the default instead; None where each has a control, or none does."""
        if self.by_instances:
            return None
        return 1.0 - self.study.share if self.mode == "canary" else self.study.holdout or None

    def run(self) -> dict[str, Any]:
        """The line of the journal of one step, which was learned and is on disk."""
        context = self.reader.contexts()
        try:
            entry, id = self._watched(context) if self.mode == "shadow" else self._applied(context)
            self.memory.learn(entry, id)
        except Exception:
            if self._asked is not None:
                self.memory.write(self._asked)
            raise
        finally:
            self._asked = None
        self.memory.write(entry)
        return entry

    def _applied(self, context: Context) -> tuple[dict[str, Any], str | None]:
        """A step that runs a suggestion or the default."""
        held_out = None if self.memory.state.rolled_back else self.held_out
        tuner = self.memory.tuner
        suggestion = tuner.ask(context or None, holdout=held_out)
        self._asked = {"kind": "asked", "context": context, "holdout": held_out}
        role, params = self._role(suggestion.id), suggestion.params
        moved = self.delivery.put(params)
        self._pause(self.study.settle_s if moved else 0.0)
        if role != "suggestion":
            self._pause(self.study.window_s)
        elif (ended := self._wait(suggestion, context)) is not None:
            return {**self._ended(context, params, ended), "holdout": held_out}, suggestion.id
        metrics = self.reader.metrics("canary" if self.by_instances else "query")
        control = self.reader.metrics("control") if self.by_instances else None
        ran = self.reader.running()
        if ran is not None and ran != params:
            log.warning("what runs is %s, not what was handed over: it is learned as such", settings_words(ran))
        entry = self._entry(role, context, params, ran if ran != params else None, metrics, control)
        return {**entry, "holdout": held_out}, suggestion.id

    def _wait(self, suggestion: Suggestion, context: Context) -> Ended | None:
        """Wait for the end of the window; what a run had come to that should be ended before it."""
        window_s, every_s = self.study.window_s, self.study.look_every_s
        expected = self.memory.tuner.default_levels(context or None).get(self.study.objective)
        began = time.monotonic()
        while suggestion.stop is not None and expected is not None and every_s is not None:
            if time.monotonic() - began + every_s >= window_s:
                break
            self._pause(every_s)
            ended = self._look(suggestion.id, expected.mean, min(time.monotonic() - began, window_s))
            if ended is not None:
                return ended
        self._pause(max(window_s - (time.monotonic() - began), 0.0))
        return None

    def _look(self, id: str, level: float, after_s: float) -> Ended | None:
        """One look inside the window; None: go on, also where there is nothing to see yet.

        `level`: what the default is expected to give of the objective in this situation.
        """
        name = self.study.objective
        try:
            metrics = self.reader.glance("canary" if self.by_instances else "query", after_s)
            control = self.reader.glance("control", after_s) if self.by_instances else None
        except (NoData, QueryFailed, InvalidValue) as reason:
            log.debug("a look inside the window saw nothing: %s", reason)
            return None
        beside = level if control is None else control[name]
        came = beside + after_s / self.study.window_s * (metrics[name] - beside)
        # as it would be had the control given what is expected
        here = came if control is None else beside_control(came, beside, level)
        if not self.memory.tuner.should_stop(id, {name: here}):
            return None
        return Ended(after_s, {**metrics, name: came}, control)

    def _ended(self, context: Context, params: Params, ended: Ended) -> dict[str, Any]:
        """A step that was ended inside its window: the last good parameters come back at once."""
        good = self.memory.state.good
        try:
            self.delivery.put(good)
            log.warning(
                "ended after %.3g s of its window: %s; back to %s", ended.after_s, *map(settings_words, (params, good))
            )
        except SinkFailed as reason:
            log.error("a run was ended, and what was good before could not be put in place: %s", reason)
        entry = self._entry("suggestion", context, params, None, ended.metrics, ended.control)
        return {**entry, "good": False, "stopped": ended.after_s}

    def _watched(self, context: Context) -> tuple[dict[str, Any], None]:
        """A step of a shadow: what runs is measured, nothing is changed."""
        wanted = self.memory.tuner.ask(context or None).params
        self._pause(self.study.window_s)
        metrics = self.reader.metrics()
        params = self.reader.running() or self._in_place()
        entry = self._entry("observed", context, params, None, metrics, None)
        return {**entry, "would_try": wanted}, None

    def _in_place(self) -> Params:
        state = self.memory.state
        if state.in_place_mode == "canary" and self.study.has_canaries:
            return dict(self.study.default)  # only the canaries got something else
        if state.in_place is None:
            raise NoData(
                "empty",
                "nobody knows which parameters run, since a sink failed half way: put the default in place and start"
                " over, or add queries for what runs under [running]",
            )
        return dict(state.in_place)

    def _role(self, id: str) -> Role:
        if self.memory.state.rolled_back:
            return "frozen"
        return "default" if self.memory.tuner.is_held_out(id) else "suggestion"

    def _entry(
        self,
        role: Role,
        context: Context,
        params: Params,
        ran: Params | None,
        metrics: dict[str, float],
        control: dict[str, float] | None,
    ) -> dict[str, Any]:
        levels = self.memory.tuner.default_levels(context or None)
        kinds = {name: source.metric for name, source in self.study.metrics.items()}
        broken = broken_limits(kinds, metrics, levels, control)
        is_default = (ran or params) == self.study.default
        return {
            "kind": "step",
            "step": self.memory.state.steps,
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "mode": self.mode,
            "role": role,
            "context": context,
            "after": self._context_after(context),
            "params": params,
            "ran": ran,
            "metrics": metrics,
            "control": control,
            "broken": broken,
            "good": role != "observed" and (is_default or not (broken or is_worse(kinds, metrics, levels))),
        }

    def _context_after(self, before: Context) -> Context | None:
        """The situation at the end of the window; None if it cannot be read then."""
        try:
            after = self.reader.contexts()
        except (NoData, QueryFailed, InvalidValue) as reason:
            log.info("the context at the end of the window could not be read: %s", reason)
            return None
        timeless = [name for name, source in self.study.contexts.items() if not source.query.startswith("time:")]
        if moved := ", ".join(changed({name: before[name] for name in timeless}, after)):
            if self.study.on_change == "skip":
                raise NoData("changed", f"the context changed during the window: {moved}")
            log.info("the context changed during the window: %s; the one at its start counts", moved)
        return after


def broken_limits(
    metrics: Mapping[str, Metric],
    values: Mapping[str, float],
    levels: Levels,
    control: Mapping[str, float] | None = None,
) -> dict[str, str]:
    """The metrics that passed their limit, each in words; one relative to the default counts where that is known.

    >>> broken_limits({"p99": Metric("min", max=200)}, {"p99": 231.0}, {})
    {'p99': 'p99 is 231, its limit 200'}
    """
    found = {}
    for name, metric in metrics.items():
        level = control[name] if control is not None else levels[name].mean if name in levels else None
        if (bound := metric.bound(level)) is not None and metric.breaks(values[name], level):
            found[name] = f"{name} is {number_words(values[name])}, its limit {number_words(bound)}"
    return found


def is_worse(metrics: Mapping[str, Metric], values: Mapping[str, float], levels: Levels) -> bool:
    """Whether a metric to be improved came out worse than the default would have, nine times in ten."""
    for name, metric in metrics.items():
        if metric.weight and name in levels:
            worst = levels[name].high if metric.direction == "min" else levels[name].low
            if metric.sign * values[name] > metric.sign * worst:
                return True
    return False
