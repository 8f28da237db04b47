"""The loop: choose what to run next, measure it, write it down, learn from it. A resumed study replays its journal."""

import logging
import math
import statistics
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rasp_tuner.contexts import ContextKind, kind_json, kind_of
from rasp_tuner.errors import InvalidValue, TuningStopped
from rasp_tuner.page.words import duration_words
from rasp_tuner.space import Params, Value
from rasp_tuner.study_file.journal import Journal
from rasp_tuner.tune.changed_space import as_run_now
from rasp_tuner.tune.context_sources import ContextReading, ContextSource, ContextValue, for_tuner, kind_for
from rasp_tuner.tune.measure import Measurement, Runner, measure, output_of, placeholder_values
from rasp_tuner.tune.study import StopRules, TuneStudy
from rasp_tuner.tuner import Tuner

log = logging.getLogger("rasp_tuner.tune")

CONTROL_EVERY = 8  # suggestions, after which the default runs once more
HOPELESS_RUNS = 3  # failures at the very start after which to stop
AUTO_TIMEOUT = (10.0, 5.0)  # times the default's longest run on this input, plus seconds
SHORTEST_STOP_S = 0.2  # less is not worth ending a run for


def timeout_words(study: TuneStudy) -> str:
    """How long a run may take."""
    times, more = AUTO_TIMEOUT
    return duration_words(study.timeout_s) if study.timeout_s else f"{times:g} times the default's time plus {more:g} s"


def deviation_within(groups: Collection[Sequence[float]]) -> float | None:
    """By how much values of one group differ; None where no group has two."""
    spare = sum(len(own) - 1 for own in groups)
    return math.sqrt(sum(len(own) * statistics.pvariance(own) for own in groups) / spare) if spare else None


@dataclass(frozen=True, slots=True)
class Run:
    """One line of the journal: a setting that was measured."""

    step: int
    is_control: bool  # the default, run to compare with
    input: str | None
    context: dict[str, ContextValue]
    params: Params
    metrics: dict[str, float] | None
    seconds: float
    spent_s: float  # by the whole study so far
    failure: str = ""
    stopped: bool = False  # ended at its stop: the metrics are at least so bad
    beside: dict[str, float] | None = None  # metrics of the default, run beside it on the same input

    def to_json(self) -> dict[str, Any]:
        told = {name: getattr(self, name) for name in self.__dataclass_fields__}
        told |= {"seconds": round(self.seconds, 6), "spent_s": round(self.spent_s, 3)}
        told["control"] = told.pop("is_control")
        return {"kind": "run", **{name: value for name, value in told.items() if name != "beside" or value is not None}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Run":
        told = {name: data[name] for name in cls.__dataclass_fields__ if name in data}
        return cls(is_control=data["control"], **told)


class Session:
    """A study at work: its tuner, its runs so far, and the journal that holds them."""

    def __init__(
        self, study: TuneStudy, runner: Runner, journal: Journal, context: Mapping[str, Any] | None = None
    ) -> None:
        self.study, self.runner, self.journal = study, runner, journal
        self.inputs = study.find_inputs()
        self._readers = dict(context or {})  # context name -> a function, in the place of a source
        self.runs: list[Run] = []
        self._kinds = self._context_kinds()
        self.tuner = Tuner(
            study.knobs,
            {name: source.metric for name, source in study.metrics.items()},
            self._kinds or None,
            study.default,
            seed=study.seed,
            goal="find" if study.budget is None else "live",
            budget=study.budget,
            constraints=study.constraints,
            max_change=study.max_change,
        )
        self.left_behind = 0  # processes that a run of this session left running; they were ended
        self.left_out = 0  # runs of before that do not count with the knobs of today
        self._replay()
        self.resumed = len(self.runs)
        self._before_s = self.runs[-1].spent_s if self.runs else 0.0
        self._started = time.monotonic()

    def _replay(self) -> None:
        """Learn the runs in the journal; of those before the knobs changed, the ones that still count."""
        changes, definition = len(self.journal.of_kind("study")), {}
        for entry in self.journal.entries:
            if entry["kind"] == "study":
                definition, changes = entry["definition"], changes - 1
            elif entry["kind"] == "run" and not changes:
                run = Run.from_json(entry)
                self._learn(run, None if run.is_control else self.tuner.ask(self.given(run.context)).id)
            elif entry["kind"] == "run":
                run = Run.from_json(entry)
                params = as_run_now(run.params, definition, self.study)
                if params is None:
                    self.left_out += 1
                else:
                    self._learn(replace(run, step=len(self.runs), params=params), None)

    @property
    def spent_s(self) -> float:
        """By the study, in earlier sessions too."""
        return self._before_s + time.monotonic() - self._started

    def is_over(self, limits: StopRules) -> bool:
        """Whether the limits say that enough was measured."""
        if limits.steps is not None and len(self.runs) >= limits.steps:
            return True
        return limits.time_s is not None and self.spent_s >= limits.time_s

    def step(self) -> Run:
        """Measure one setting. It counts once the journal has it."""
        is_control, input = self._plan()
        context = self.read_context(input)
        suggestion = None if is_control else self.tuner.ask(self.given(context))
        params = dict(self.study.default) if suggestion is None else suggestion.params
        stop_s = None if suggestion is None else self.stop_of(suggestion.stop)
        done, beside = self._measured(params, input, stop_s)
        run = Run(
            len(self.runs), is_control, input, context, params, done.metrics, done.seconds, self.spent_s, done.failure,
            done.stopped, beside,
        )  # fmt: skip
        self.left_behind = max(self.left_behind, done.left_behind)
        self._stop_if_hopeless(run, done)
        self.journal.append(run.to_json())
        self._learn(run, None if suggestion is None else suggestion.id)
        log.info(
            "run %d%s: %s -> %s%s",
            run.step,
            " (default)" if is_control else "",
            params,
            done.failure or done.metrics,
            " (stopped)" if done.stopped else "",
        )
        return run

    def _measured(
        self, params: Params, input: str | None, stop_s: float | None
    ) -> tuple[Measurement, dict[str, float] | None]:
        """What came of a setting; where runs are paired, and it is not the default, also of the default beside it.

        Which of the two comes first changes from step to step, so that neither is warmed up by the other.
        """
        own = (self.study, self.runner, params, input, len(self.runs), self.limit_of(input), stop_s)
        if not self.study.paired or params == self.study.default:
            return measure(*own), None
        default = (self.study, self.runner, dict(self.study.default), input, len(self.runs), self.limit_of(input))
        if len(self.runs) % 2:
            done = measure(*own)
            return done, measure(*default).metrics
        beside = measure(*default).metrics
        return measure(*own), beside

    def read_context(self, input: str | None) -> dict[str, ContextValue]:
        """The situation now."""
        values: dict[str, Value] = {} if input is None else {"input": input}
        shell = self.study.command is not None and self.study.command.shell
        reading = ContextReading(values, lambda text: output_of(text, values, shell))
        found: dict[str, ContextValue] = {}
        sources: dict[str, ContextSource | Callable[[], ContextValue]] = {**self.study.contexts, **self._readers}
        for name, source in sources.items():
            try:
                found[name] = source.read(reading) if isinstance(source, ContextSource) else source()
            except InvalidValue as reason:
                if not self.runs:
                    raise TuningStopped(f"context {name!r} cannot be read: {reason}") from reason
                log.warning("context %r is missing: %s", name, reason)
                found[name] = None
        return found

    def given(self, context: Mapping[str, ContextValue]) -> dict[str, ContextValue] | None:
        """A context as the tuner takes it."""
        return for_tuner(context, self._kinds)

    def _context_kinds(self) -> dict[str, ContextKind]:
        """What kind each context is: by its first value, and from then on by the journal."""
        for entry in self.journal.of_kind("contexts"):
            return {name: kind_of(name, kind) for name, kind in entry["kinds"].items()}
        first = self.read_context(self.inputs[0] if self.inputs else None)
        kinds = {name: kind_for(self.study.contexts.get(name), value) for name, value in first.items()}
        if kinds:
            self.journal.append({"kind": "contexts", "kinds": {name: kind_json(k) for name, k in kinds.items()}})
        return kinds

    def limit_of(self, input: str | None) -> float | None:
        """Seconds that a run on this input may take; without a timeout, many times what the default took."""
        if self.study.timeout_s is not None or self.study.command is None:
            return self.study.timeout_s
        times, more = AUTO_TIMEOUT
        known = [run.seconds for run in self.runs if run.is_control and run.input == input and run.metrics]
        return times * max(known) + more if known else None

    def stop_of(self, stop: float | None) -> float | None:
        """Seconds after which a suggestion is ended, by the value of the metric that it should be ended at."""
        return None if stop is None or not self.study.can_stop else max(stop, SHORTEST_STOP_S)

    def noise(self) -> float | None:
        """By how much equal runs differ: the deviation of log(metric), from settings that ran again; None: none did."""
        groups: dict[tuple[str | None, str], list[float]] = {}
        for run in self.runs:
            value = (run.metrics or {}).get(self.study.objective, 0.0)
            if value > 0.0 and not run.stopped:
                groups.setdefault((run.input, repr(run.params)), []).append(math.log(value))
        return deviation_within(groups.values())

    def _plan(self) -> tuple[bool, str | None]:
        """Whether the default runs next, and on which input: on every new one first, and now and then after that.

        Then it is the input on which it ran least: its runs are what all others there are compared with.
        """
        latest = self.runs[-1] if self.runs else None
        failed = latest is not None and not latest.is_control and (latest.stopped or not latest.metrics)
        if self.study.redo and latest is not None and failed and latest.beside is None:
            return True, latest.input  # its work was not done
        suggested = [run for run in self.runs if not run.is_control]
        input = self.inputs[len(suggested) % len(self.inputs)] if self.inputs else None
        usual = Counter(run.input for run in self.runs if run.is_control)
        if not usual[input]:
            return True, input
        if self.study.paired:
            return False, input
        since = 0
        for run in reversed(self.runs):
            if run.is_control:
                break
            since += 1
        if since < CONTROL_EVERY:
            return False, input
        return True, min(self.inputs, key=lambda one: usual[one], default=None)

    def _learn(self, run: Run, id: str | None) -> None:
        """Tell the tuner; the same for a run of today and for one from the journal."""
        context = self.given(run.context)
        if id is not None and run.metrics is not None:
            self.tuner.tell(id, run.metrics, run.params, stopped=run.stopped, control=run.beside)
        elif id is not None:
            self.tuner.tell_failed(id, run.failure, run.params)
        elif run.metrics is not None:
            self.tuner.observe(context, run.params, run.metrics, stopped=run.stopped)
        else:
            self.tuner.observe_failed(context, run.params)
        self.runs.append(run)

    def _stop_if_hopeless(self, run: Run, done: Measurement) -> None:
        """A study whose first runs all fail is wrong, not slow."""
        if any(earlier.metrics for earlier in self.runs) or run.metrics is not None:
            return
        shown = self.runner.shown(placeholder_values(self.study, run.params, run.input))
        what, said = "command", f"\nIt said:\n{done.output}" if done.output else "\nIt printed nothing."
        if self.study.command is None:
            what, said = "call", f"\n{done.output}" if done.output else ""
        if done.missing:
            raise TuningStopped(f"{done.failure}.\nThe {what} was: {shown}{said}")
        if len(self.runs) + 1 >= HOPELESS_RUNS:
            raise TuningStopped(
                f"all of the first {len(self.runs) + 1} runs failed: {done.failure}."
                f"\nThe last {what} was: {shown}{said}"
                f"\nTry it by hand; once it works, start over with {self.study.caller.option('fresh', True)}"
            )
