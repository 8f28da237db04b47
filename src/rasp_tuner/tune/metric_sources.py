"""Where metrics come from: `time_s:min`, `speed:max=regex:([0-9.]+) MB/s`. One row of KINDS for each kind of source."""

import difflib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from rasp_tuner.base.checks import show
from rasp_tuner.errors import InvalidSpace, InvalidValue
from rasp_tuner.space import Value
from rasp_tuner.study_file.template import fill
from rasp_tuner.types import Metric

BUILT_IN = {"time_s": "wall", "wall_s": "wall", "cpu_s": "cpu", "memory_mb": "memory", "exit_code": "exit"}
ALIASES = {
    **{"time": "time_s", "seconds": "time_s", "runtime": "time_s", "wall": "time_s", "cpu": "cpu_s"},
    **{"memory": "memory_mb", "mem": "memory_mb", "rss": "memory_mb", "exit": "exit_code"},
}  # what people write for those
EXAMPLES = (
    "time_s:min, 'memory_mb:min*0.5', 'speed:max=regex:([0-9.]+) MB/s' or 'size:min<=1.05 default=size:{scratch}/out'"
)
_NAME = re.compile(r"[\w.%/-]+")
_WORDS = re.compile(
    r"(?P<goal>\w*)\s*(?:\*\s*(?P<weight>[^<>=]+?))?\s*(?:(?P<sign><=|>=)(?P<limit>[^=]+?))?\s*(?:=\s*(?P<source>.*))?",
    re.DOTALL,
)
_LIMIT = re.compile(r"(?P<name>[\w.%/-]+)\s*(?P<sign><=|>=)\s*(?P<value>[^=]+)")
OF_FUNCTIONS = ("wall", "cpu")  # kinds that are measured of a Python function
MOST_NAMED = 12  # names of a result in a message
SMALLEST_TIME_S = 1e-6  # a CPU time of zero has no logarithm


@dataclass(frozen=True)
class Reading:
    """What there is to read after one run."""

    wall_s: float
    cpu_s: float
    memory_mb: float
    exit_code: int
    output: str  # stdout, then stderr
    document: Callable[[], Any]  # the JSON on the last line; what a Python function has returned
    output_of: Callable[[str], str]  # runs a second command
    values: Mapping[str, Value]  # of placeholders


@dataclass(frozen=True, slots=True)
class MetricSource:
    """A metric as the tuner takes it, and where it comes from."""

    kind: str
    detail: str
    metric: Metric

    def read(self, reading: Reading) -> float:
        """The metric's value; InvalidValue if it is not there or no finite number."""
        value = KINDS[self.kind](self.detail, reading)
        if not math.isfinite(value):
            raise InvalidValue(f"it is {value}")
        return value

    @property
    def is_time(self) -> bool:
        return self.kind in ("wall", "cpu")

    def __str__(self) -> str:
        """In words: "CPU time, as low as possible"."""
        source = NAMES.get(self.kind) or IN_WORDS[self.kind].format(self.detail)
        metric, limit = self.metric, self.metric.limit
        low = metric.direction == "min"
        said = [source]
        if metric.weight or limit is None:
            said.append(
                f"as {'low' if low else 'high'} as possible"
                + ("" if metric.weight == 1.0 else f", weight {metric.weight:g}")
            )
        if limit is not None:
            said.append(self.limit_words)
        return ", ".join(said)

    @property
    def limit_words(self) -> str:
        """As "at most 1.05 times the default's"; empty where there is no limit."""
        limit = self.metric.limit
        if limit is None:
            return ""
        of_default = " times the default's" if limit.relative else ""
        return f"at {'most' if self.metric.direction == 'min' else 'least'} {limit.value:g}{of_default}"


def split_metric(text: str) -> tuple[str, str]:
    """A metric's name and what a study file has for it.

    >>> split_metric("speed:max=json:result.mb_s")
    ('speed', 'max=json:result.mb_s')
    """
    name, colon, rest = text.partition(":")
    if "=" in name or not colon:  # no goal
        name, equals, source = text.partition("=")
        return name, f"min{equals}{source}"
    return name, rest


def with_limits(metrics: Mapping[str, Any], limits: Sequence[str]) -> dict[str, Any]:
    """Metrics as a study file has them, with limits that were given apart: `size<=1.05 default`, `fps>=30`.

    >>> with_limits({"time_s": "min", "size": "min=size:out"}, ["size<=1.05 default", "memory_mb<=500"])
    {'time_s': 'min', 'size': 'min<=1.05 default=size:out', 'memory_mb': 'min<=500'}
    """
    found = dict(metrics) or {"time_s": "min"}
    for text in limits:
        match = _LIMIT.fullmatch(text.strip())
        if match is None:
            raise InvalidSpace(f"--limit must look like 'size<=1.05 default', memory_mb<=500 or fps>=30, got {text!r}")
        name, sign, value = match["name"], match["sign"], match["value"]
        spec = _WORDS.fullmatch(given) if isinstance(given := found.get(name, ""), str) else None
        if spec is None or spec["sign"]:
            raise InvalidSpace(f"--limit {text}: metric {name!r} has a limit or a table of its own; change that")
        if sign == "<=" and spec["goal"] == "max":
            raise InvalidSpace(f"--limit {text}: {name!r} is to be high ({name}:max), so its limit is {name}>=...")
        source, weight = f"={spec['source']}" if spec["source"] else "", f"*{own}" if (own := spec["weight"]) else ""
        found[name] = f"{'min' if sign == '<=' else 'max'}{weight}{sign}{value}{source}"
    return found


def metric_of(name: str, spec: object) -> MetricSource:
    """A metric from words such as `max=regex:([0-9.]+) MB/s`, or from a table {goal, from, ...} with fields of Metric.

    A weight stands after the goal, then a limit: `min*0.5`, `min<=200`, `max>=30=regex:([0-9.]+) fps`.

    >>> metric_of("time_s", "min").kind
    'wall'
    >>> metric_of("speed", "max=json:result.mb_s").detail
    'result.mb_s'
    """
    if isinstance(spec, str):
        spec = _spec_of(name, spec)
    elif isinstance(spec, Metric):
        spec = {field: own for field, own in spec.to_json().items() if (field, own) != ("scale", "auto")}
        spec["goal"] = spec.pop("direction")
    if not isinstance(spec, Mapping) or not _NAME.fullmatch(name):
        raise InvalidSpace(f"a metric must look like {EXAMPLES}, got {show(name)}: {show(spec)}")
    fields = dict(spec)
    goal, source = fields.pop("goal", "min"), fields.pop("from", "")
    kind, _, detail = str(source).partition(":")
    if not kind:  # a name alone: one of ours, or a key of the JSON on the last line
        kind, detail = (BUILT_IN[name], "") if name in BUILT_IN else ("json", name)
    if kind not in KINDS:
        raise InvalidSpace(f"metric {name!r} must come from one of {', '.join(KINDS)}, as in {EXAMPLES}, got {kind!r}")
    if (detail == "") != (kind in NAMES):
        raise InvalidSpace(f"metric {name!r} from {kind!r} must look like {EXAMPLES}, got {show(source)}")
    if kind == "regex":
        _pattern(detail)
    scale = "log" if kind in ("wall", "cpu", "memory") else "auto"
    try:
        return MetricSource(kind, detail, Metric(goal, **{"scale": scale, **fields}))
    except TypeError as reason:
        raise InvalidSpace(f"metric {name!r} takes goal, from and the fields of Metric: {reason}") from reason


def check_alias(name: str, spec: object) -> None:
    """Refuse a name that was probably meant for a metric of ours, where a key of the output would be read.

    >>> check_alias("time", "min=json:time")
    """
    if name in ALIASES and isinstance(spec, str) and not _spec_of(name, spec)["from"]:
        raise InvalidSpace(
            f"metric {name!r}: did you mean {ALIASES[name]}, which is measured? For a key {name!r} of the JSON that the"
            f" command prints, say {name}:{spec}=json:{name}"
        )


def hint_of(name: str, source: MetricSource, of_function: bool) -> str:
    """What was probably meant by a metric that no result has: a measured one; else nothing.

    >>> hint_of("time_ms", metric_of("time_ms", "min"), True)
    '; did you mean time_s, which is measured?'
    """
    measured = [own for own, kind in BUILT_IN.items() if not of_function or kind in OF_FUNCTIONS]
    close = [ALIASES.get(name), *difflib.get_close_matches(name, measured, 1, 0.75)]
    meant = next((own for own in close if own in measured), None)
    return f"; did you mean {meant}, which is measured?" if meant and source.detail == name else ""


def _spec_of(name: str, text: str) -> dict[str, object]:
    """The table that a metric in words stands for."""
    match = _WORDS.fullmatch(text)
    if match is None:
        raise InvalidSpace(f"metric {name!r} must look like {EXAMPLES}, got {show(text)}")
    goal, sign, limit = match["goal"] or "min", match["sign"], (match["limit"] or "").strip()
    fields: dict[str, object] = {"goal": goal, "from": match["source"] or ""}
    if match["weight"]:
        fields["weight"] = _plain_number(match["weight"], f"the weight of metric {name!r}", f"{name}:min*0.5")
    if limit:
        relative = "default" in limit
        word = ("at_most" if relative else "max") if sign == "<=" else ("at_least" if relative else "min")
        examples = f"{name}:min<=200, or '{name}:min<=1.05 default' for at most 5% more than the default's"
        own = limit.replace("default", " default").split()
        fields[word] = " ".join(own) if relative else _plain_number(limit, f"the limit of metric {name!r}", examples)
    return fields


def _plain_number(text: str, what: str, examples: str) -> float:
    try:
        return _number(text)
    except InvalidValue as reason:
        raise InvalidSpace(f"{what} must be a number without a unit, as in {examples}; got {text!r}") from reason


def _pattern(detail: str) -> re.Pattern[str]:
    try:
        return re.compile(detail, re.MULTILINE)
    except re.error as reason:
        raise InvalidSpace(f"the regular expression {show(detail)} is wrong: {reason}") from reason


def _from_regex(detail: str, reading: Reading) -> float:
    matches = list(_pattern(detail).finditer(reading.output))
    if not matches:
        raise InvalidValue(f"the regular expression {detail!r} matches nothing in the output")
    last = matches[-1]
    return _number(last[1] if last.re.groups else last[0])


def _from_json(detail: str, reading: Reading) -> float:
    found = reading.document()
    if isinstance(found, (int, float, np.bool_)):
        return _number(found)  # a number alone is the metric
    for key in detail.split("."):
        try:
            found = found[int(key)] if isinstance(found, list) else found[key]
        except (KeyError, IndexError, ValueError, TypeError) as reason:
            if isinstance(found, Mapping) and found:
                names = ", ".join(map(show, list(found)[:MOST_NAMED])) + ", ..." * (len(found) > MOST_NAMED)
                raise InvalidValue(f"the result has no {key!r}, only {names}") from reason
            raise InvalidValue(f"{show(found)} has no {key!r}") from reason
    return _number(found)


def read_elsewhere(kind: str, detail: str, values: Mapping[str, Value], output_of: Callable[[str], str]) -> str:
    """What a second command prints, what a file holds, or how large it is."""
    if kind == "command":
        return output_of(detail)
    path = Path(fill(detail, values))
    try:
        return str(path.stat().st_size) if kind == "size" else path.read_text()
    except OSError as reason:
        raise InvalidValue(str(reason)) from reason


def _from_elsewhere(kind: str) -> Callable[[str, Reading], float]:
    return lambda detail, reading: _number(read_elsewhere(kind, detail, reading.values, reading.output_of))


def _number(value: object) -> float:
    if isinstance(value, (bool, np.bool_)):
        raise InvalidValue(f"it is {str(value).lower()}, which is not a number: print 1 or 0 if that is meant")
    try:
        return float(cast(Any, value))
    except (TypeError, ValueError) as reason:
        raise InvalidValue(f"{show(value)} is not a number") from reason


NAMES = {"wall": "wall time", "cpu": "CPU time", "memory": "peak memory", "exit": "exit code"}  # need no detail
IN_WORDS = {
    "regex": "the last match of {} in the output",
    "json": "{} in its result",
    "command": "what {} prints",
    "file": "the number in {}",
    "size": "the size of {}",
}
KINDS: dict[str, Callable[[str, Reading], float]] = {
    "wall": lambda _, reading: reading.wall_s,
    "cpu": lambda _, reading: max(reading.cpu_s, SMALLEST_TIME_S),
    "memory": lambda _, reading: reading.memory_mb,
    "exit": lambda _, reading: float(reading.exit_code),
    "regex": _from_regex,
    "json": _from_json,
    **{kind: _from_elsewhere(kind) for kind in ("command", "file", "size")},
}
