"""Measuring: one setting on one input, run some times, as one value for each metric or as a failure."""

import functools
import inspect
import json
import logging
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rasp_tuner.base.checks import show
from rasp_tuner.errors import InvalidSpace, InvalidValue, TuningStopped
from rasp_tuner.space import Params, Value
from rasp_tuner.study_file.template import fill
from rasp_tuner.tune.command import Command
from rasp_tuner.tune.metric_sources import OF_FUNCTIONS, Reading, hint_of
from rasp_tuner.tune.process import MARK, Finished, run_process
from rasp_tuner.tune.study import TuneStudy

log = logging.getLogger("rasp_tuner.tune")

SIDE_LIMIT_S = 600.0  # for commands that read a metric or a context
LONGEST_TAIL = 1500  # characters of output in a message


@dataclass(frozen=True)
class Measurement:
    """What came of one setting."""

    metrics: dict[str, float] | None  # None: it failed
    seconds: float  # of the longest run
    failure: str = ""
    output: str = ""  # the end of it, if it failed
    missing: str = ""  # a metric that was not found although the run was fine
    stopped: bool = False  # it was ended at its stop: the metrics are at least so bad
    left_behind: int = 0  # processes that it left running; they were ended


@dataclass(frozen=True)
class _Run:
    reading: Reading | None
    seconds: float
    failure: str = ""
    output: str = ""
    late: Reading | None = None  # of a run that took too long, when it was ended
    left_behind: int = 0


class Runner(Protocol):
    """Runs something once."""

    def run(self, values: Mapping[str, Value], limit_s: float | None) -> _Run: ...

    def shown(self, values: Mapping[str, Value]) -> str:
        """What would run, as one would type it."""


def runner_of(study: TuneStudy, function: Callable[..., Any] | None = None) -> Runner:
    """What runs the study: its command, or a Python function."""
    if study.command is not None:
        return CommandRunner(study, study.command)
    return CallRunner(study, function if function is not None else load_function(str(study.call)))


def measure(
    study: TuneStudy,
    runner: Runner,
    params: Params,
    input: str | None,
    run: int,
    limit_s: float | None,
    stop_s: float | None = None,
) -> Measurement:
    """Run a setting: warm-up runs are dropped, of the others the median counts; the first failure is the answer.

    A run that counts is ended at `stop_s`, if that comes before the limit.
    """
    samples: list[dict[str, float]] = []
    longest, left = 0.0, 0
    stops = stop_s is not None and (limit_s is None or stop_s < limit_s)
    for i in range(study.warmup + study.repeats):
        scratch = tempfile.mkdtemp(prefix="rasp-tune-")
        try:
            values = {**placeholder_values(study, params, input), "scratch": scratch, "run": run}
            counts = i >= study.warmup
            ran = runner.run(values, stop_s if stops and counts else limit_s)
            longest, left = max(longest, ran.seconds), max(left, ran.left_behind)
            if ran.late is not None and stop_s is not None and stops and counts:
                return Measurement(read_metrics(study, replace(ran.late, wall_s=stop_s)), longest, stopped=True)
            if ran.reading is None:
                return Measurement(None, longest, ran.failure, ran.output)
            if counts:
                samples.append(read_metrics(study, ran.reading))
        except MetricNotFound as reason:
            return Measurement(None, longest, str(reason), ran.output, missing=reason.name)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    found = {name: statistics.median(sample[name] for sample in samples) for name in study.metrics}
    return Measurement(found, longest, left_behind=left)


def placeholder_values(study: TuneStudy, params: Params, input: str | None) -> dict[str, Value]:
    """What the names in braces stand for; a knob that does not exist here is empty, or None to a function."""
    stand_ins: dict[str, Value] = {"scratch": "SCRATCH", "run": "RUN"}
    absent: Value = None if study.command is None else ""
    return {**dict.fromkeys(study.knobs, absent), **params, **stand_ins, **({} if input is None else {"input": input})}


class MetricNotFound(InvalidValue):
    """A run was fine, but a metric could not be read from it."""

    def __init__(self, name: str, reason: object) -> None:
        super().__init__(f"metric {name!r} was not found: {reason}")
        self.name = name


def read_metrics(study: TuneStudy, reading: Reading) -> dict[str, float]:
    found = {}
    for name, source in study.metrics.items():
        try:
            found[name] = source.read(reading)
        except InvalidValue as reason:
            raise MetricNotFound(name, f"{reason}{hint_of(name, source, study.command is None)}") from reason
    return found


def output_of(text: str, values: Mapping[str, Value], shell: bool) -> str:
    """What a second command prints."""
    command = Command.parse(text, shell)
    try:
        finished = run_process(command.filled(values), limit_s=SIDE_LIMIT_S)
    except TuningStopped as reason:
        raise InvalidValue(str(reason)) from reason
    if finished.exit_code or finished.timed_out:
        raise InvalidValue(
            f"{command.shown(values)!r} failed: {finished.why_failed(SIDE_LIMIT_S)} {tail(finished.stderr)}"
        )
    return finished.stdout


def tail(text: str) -> str:
    """The end of an output, for a message."""
    plain = text.strip()
    return plain if len(plain) <= LONGEST_TAIL else f"... {plain[-LONGEST_TAIL:]}"


class CommandRunner:
    """Runs the study's command, with files written before it."""

    def __init__(self, study: TuneStudy, command: Command) -> None:
        self._study, self._command = study, command
        self._templates = {target: Path(source).read_text() for target, source in study.files.items()}
        self._exit_counts = any(source.kind == "exit" for source in study.metrics.values())

    def shown(self, values: Mapping[str, Value]) -> str:
        settings = [f"{name}={fill(text, values)}" for name, text in self._study.env.items()]
        return " ".join([*settings, self._command.shown(values)])

    def run(self, values: Mapping[str, Value], limit_s: float | None) -> _Run:
        for target, text in self._templates.items():
            Path(fill(target, values)).write_text(fill(text, values))
        env = {name: fill(text, values) for name, text in self._study.env.items()} | {MARK: self._study.name}
        words = self._command.filled(values)
        done = run_process(words, env=env, limit_s=limit_s)
        if done.timed_out or done.exit_code < 0 or (done.exit_code and not self._exit_counts):
            late = self._reading(done, values) if done.timed_out else None
            said = tail(done.stderr) or tail(done.stdout)
            return _Run(None, done.wall_s, done.why_failed(limit_s), said, late)
        said = tail(done.stdout + done.stderr)
        return _Run(self._reading(done, values), done.wall_s, output=said, left_behind=done.left_behind)

    def _reading(self, done: Finished, values: Mapping[str, Value]) -> Reading:
        return Reading(
            done.wall_s,
            done.cpu_s,
            done.memory_mb,
            done.exit_code,
            f"{done.stdout}\n{done.stderr}",
            lambda: _last_line(done.stdout),
            lambda text: output_of(text, values, self._command.shell),
            values,
        )


def _last_line(stdout: str) -> Any:
    lines = [line for line in stdout.splitlines() if line.strip()]
    try:
        return json.loads(lines[-1])
    except (IndexError, ValueError) as reason:
        raise InvalidValue(f"the last line of the output is not JSON: {show(lines[-1] if lines else '')}") from reason


class CallRunner:
    """Calls a Python function in this process."""

    def __init__(self, study: TuneStudy, function: Callable[..., Any]) -> None:
        self._function = function
        self._name = function_name(function).said if study.caller.in_python else str(study.call)
        taken = inspect.signature(function).parameters.values()
        self._takes_all = any(p.kind is p.VAR_KEYWORD for p in taken)
        self._taken = {p.name for p in taken if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        missing = [name for name in study.knobs if name not in self._taken and not self._takes_all]
        if missing:
            raise InvalidSpace(
                f"{self._name} takes no argument {missing[0]!r}, which is a knob; it takes {self._taken}"
            )
        for source in study.metrics.values():
            if source.kind not in (*OF_FUNCTIONS, "json"):
                raise InvalidSpace(
                    f"a Python function has metrics from wall, cpu or what it returns, not {source.kind}"
                )
        known = {*study.knobs, *(["input"] if study.inputs else []), "scratch", "run"}
        needed = [p.name for p in taken if p.default is p.empty and p.name in self._taken and p.name not in known]
        if needed:
            raise InvalidSpace(f"{self._name} needs the argument {needed[0]!r}: add a knob of that name")

    def shown(self, values: Mapping[str, Value]) -> str:
        return f"{self._name}({', '.join(f'{k}={v!r}' for k, v in self._arguments(values).items())})"

    def run(self, values: Mapping[str, Value], limit_s: float | None) -> _Run:  # noqa: ARG002 - cannot be stopped
        arguments = self._arguments(values)
        started, cpu = time.perf_counter(), time.process_time()
        try:
            returned = self._function(**arguments)
        except Exception as error:  # a failure of the user's function is data
            log.debug("%s raised", self._name, exc_info=True)
            return _Run(None, time.perf_counter() - started, f"{type(error).__name__}: {error}")
        wall_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu
        nothing = f"It returned {show(returned)}"
        return _Run(Reading(wall_s, cpu_s, 0.0, 0, "", lambda: returned, lambda _: "", values), wall_s, output=nothing)

    def _arguments(self, values: Mapping[str, Value]) -> dict[str, Value]:
        own = self._taken | ({*values} - {"scratch", "run"} if self._takes_all else set())
        return {name: value for name, value in values.items() if name in own}


def load_function(text: str) -> Callable[..., Any]:
    """The function that `module:function` names."""
    module, colon, name = text.partition(":")
    if not colon or not module or not name:
        raise InvalidSpace(f"a function must look like module:function, got {text!r}")
    try:
        function = getattr(import_module(module), name)
    except (ImportError, AttributeError) as reason:
        raise InvalidSpace(f"cannot load {text!r}: {reason}; is its folder on PYTHONPATH?") from reason
    if not callable(function):
        raise InvalidSpace(f"{text!r} is not a function, it is {show(function)}")
    loaded: Callable[..., Any] = function
    return loaded


class FunctionName(NamedTuple):
    """Of a function."""

    name: str  # of its study
    call: str  # of two functions this differs
    said: str  # in a message


def function_name(function: Callable[..., Any]) -> FunctionName:
    """By the function's own name; a lambda has none, and is called by its file and line.

    >>> function_name(function_name)
    FunctionName(name='function_name', call='rasp_tuner.tune.measure:function_name', said='function_name')
    """
    inner = inspect.unwrap(function)
    while isinstance(inner, functools.partial):
        inner = inspect.unwrap(inner.func)
    if not hasattr(inner, "__qualname__"):  # an object that can be called
        inner = type(inner)
    qualified, code = inner.__qualname__, getattr(inner, "__code__", None)
    file = "" if code is None else Path(code.co_filename).stem
    module = inner.__module__
    if module == "__main__" and file:  # so is every program that is started
        module = file
    name = qualified.rpartition(".")[2]
    if code is None or name != "<lambda>":
        return FunctionName(name.strip("<>"), f"{module}:{qualified}", name.strip("<>"))
    line = code.co_firstlineno
    column = next((place[2] for place in code.co_positions() if place[2]), 0)  # two lambdas may be in one line
    plain = re.sub(r"[^\w.-]+", "-", file).strip("-.") or "lambda"
    return FunctionName(f"{plain}-line-{line}", f"{module}:{qualified} in line {line}, column {column}", "lambda")
