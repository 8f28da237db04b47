"""Past records -> samples to learn from: read, checked, and put in an order of their own.

A value is missing if it is absent, None, NaN, or in a CSV file empty or one of `BLANKS`. Contexts of a kind that may be
missing (contexts/kinds.py) are learned like that; `Number(missing=4.0)` is one. What `missing` makes of all others:

refuse   an error that names the record and the field
drop     the record is left out

The value of a knob that does not exist in its record, because of the record's other values, is not looked at.

A value that is there but illegal (infinite, outside its knob, no number) is refused, or its record left out where
records may be. Records are learned in the order of the field `time`, if that is given, and of a fingerprint of their
values otherwise: shuffled, but always the same way. So it does not matter in which order they came.
"""

import contextlib
import hashlib
import math
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rasp_tuner.base.checks import BLANKS, number, one_of, show
from rasp_tuner.base.numerics import Array
from rasp_tuner.contexts import Category, ContextKind, Name
from rasp_tuner.contexts.context_encoder import ContextEncoder, KindEncoder
from rasp_tuner.errors import InvalidValue
from rasp_tuner.files.csv_file import read_csv
from rasp_tuner.space import Auto, Categorical, Float, Knob, Space

Missing = Literal["refuse", "drop"]
RULES = ("refuse", "drop")

Source = str | os.PathLike[str] | Mapping[str, Sequence[Any]] | Iterable[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class LogReport:
    """What became of the records."""

    used: int
    dropped: int
    order: str
    why: Mapping[str, int] = field(default_factory=dict)  # reason -> records dropped for it

    def __str__(self) -> str:
        reasons = "".join(f"; {count} dropped: {reason}" for reason, count in self.why.items())
        return f"{self.used} records learned in the order of {self.order}{reasons}"


@dataclass(slots=True)
class LogRecord:
    """One record, checked."""

    at: float  # zero where no time is given
    context: Array
    point: Array
    params: Mapping[str, Any]
    metrics: Mapping[str, float]

    def place(self) -> tuple[float, bytes]:
        """What it is sorted by: the time, then the fingerprint."""
        values = np.concatenate([self.context, self.point, list(self.metrics.values())])
        return self.at, hashlib.sha256(values.astype("<f8").tobytes()).digest()


class _Lacks(InvalidValue):
    """A value is missing, or illegal; `reason` is the same for all records with this fault."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


def samples(
    source: Source, space: Space, encoder: ContextEncoder, metrics: Sequence[str], missing: str, time: str | None
) -> tuple[list[LogRecord], LogReport]:
    """The samples in their order, and the report."""
    one_of("missing", missing, RULES)
    found: list[LogRecord] = []
    why: Counter[str] = Counter()
    for i, record in enumerate(_records(source, space, encoder, metrics, time)):
        try:
            found.append(_sample(record, space, encoder, metrics, time))
        except _Lacks as lack:
            if missing == "refuse":
                hint = f"; missing={RULES[1]!r} would leave such records out"
                raise InvalidValue(f"record {i}: {lack}{hint}") from None
            why[lack.reason] += 1
    found.sort(key=LogRecord.place)
    order = "their fingerprints" if time is None else f"the field {time!r}"
    return found, LogReport(len(found), sum(why.values()), order, dict(why))


def _records(
    source: Source, space: Space, encoder: ContextEncoder, metrics: Sequence[str], time: str | None
) -> Iterator[Mapping[str, Any]]:
    """Records with context, params and metrics, whatever they came as."""
    if not isinstance(source, (str, os.PathLike, Mapping)):
        if not isinstance(source, Iterable):
            raise InvalidValue(f"records must be a CSV file, columns or mappings, got {show(source)}")
        yield from source
        return
    if encoder.dim and encoder.names is None:
        raise InvalidValue(f"context must name its columns to be read from a table, got {encoder.dim}")
    names = encoder.names or []
    needed = [*names, *space.knobs, *metrics, *([] if time is None else [time])]
    if isinstance(source, Mapping):
        rows = _columns(source, needed)
    else:
        kinds = encoder.kinds if isinstance(encoder, KindEncoder) else {}
        rows = _file(Path(source), needed, space.knobs, kinds)
    for row in rows:
        yield {
            "context": {name: row[name] for name in names},
            "params": {name: row[name] for name in space.knobs},
            "metrics": {name: row[name] for name in metrics},
            **({} if time is None else {time: row[time]}),
        }


def _columns(source: Mapping[str, Sequence[Any]], needed: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    if lacking := [name for name in needed if name not in source]:
        raise InvalidValue(f"records lacks the columns {show(lacking)}; it has {show(sorted(source))}")
    lengths = {name: len(source[name]) for name in needed}
    if len(set(lengths.values())) > 1:
        raise InvalidValue(f"records must have columns of one length, got {show(lengths)}")
    for values in zip(*(source[name] for name in needed), strict=True):
        yield dict(zip(needed, values, strict=True))


def _file(
    path: Path, needed: Sequence[str], knobs: Mapping[str, Knob], kinds: Mapping[str, ContextKind]
) -> Iterator[Mapping[str, Any]]:
    for row in read_csv(path).columns(needed):
        texts = dict(zip(needed, row, strict=True))
        yield {name: _parsed(text, knobs.get(name), kinds.get(name)) for name, text in texts.items()}


def _parsed(text: str | None, knob: Knob | None, kind: ContextKind | None) -> Any:
    """A field of a file as its knob or kind would have it, or as a number; the text itself if it is neither."""
    if knob is not None and text is not None:
        with contextlib.suppress(InvalidValue):
            return knob.from_text(text)
    if text is None or text.strip().lower() in BLANKS:
        return None
    if isinstance(kind, Category | Name):
        return text  # 007 is not 7
    try:
        value = float(text)
    except ValueError:
        return text
    return value if knob is None or isinstance(knob, Float) or not value.is_integer() else int(value)


def _sample(
    record: Mapping[str, Any],
    space: Space,
    encoder: ContextEncoder,
    metrics: Sequence[str],
    time: str | None,
) -> LogRecord:
    if not isinstance(record, Mapping):
        raise InvalidValue(f"each record must be a mapping with context, params and metrics, got {show(record)}")
    names = encoder.names or range(encoder.dim)
    choice_none = [name for name, knob in space.knobs.items() if _takes_none(knob)]
    lack = "the context is missing"
    context = _values("context", record.get("context"), names, lack, may_lack=encoder.optional)
    given = record.get("params")
    names_in = space.names_in(given) if isinstance(given, Mapping) else list(space.knobs)
    if isinstance(given, Mapping):  # a table has a value for every knob, also for those that do not exist in this row
        given = {name: value for name, value in given.items() if name in names_in or name not in space.knobs}
    params = _values("params", given, names_in, "a parameter is missing", choice_none)
    told = _values("metrics", record.get("metrics"), metrics, "a metric is missing")
    try:
        point = space.to_unit(params)
        seen = encoder.encode(list(context.values()) or None)
        results = {name: number(f"metrics[{name!r}]", value) + 0.0 for name, value in told.items()}
    except InvalidValue as reason:
        raise _Lacks(str(reason), "an illegal value") from None
    seen += 0.0  # no -0.0: equal values, equal fingerprints
    return LogRecord(0.0 if time is None else _moment(time, record.get(time)), seen, point, params, results)


def _values(
    field: str,
    given: Any,
    names: Iterable[Any],
    lack: str,
    may_be_none: Sequence[str] = (),
    may_lack: Collection[str] = (),
) -> dict[Any, Any]:
    """The values under exactly these names, or by position; None where one may be missing, and is."""
    wanted = list(names)
    if isinstance(given, (Sequence, np.ndarray)) and not isinstance(given, (str, bytes)) and len(given) == len(wanted):
        given = dict(zip(wanted, given, strict=True))
    if given is None:
        given = {}
    if not isinstance(given, Mapping):
        raise _Lacks(f"{field} must be a mapping with the names {show(wanted)}, got {show(given)}", "an illegal value")
    unknown = [name for name in given if name not in wanted]
    if unknown:
        raise _Lacks(f"{field} has unknown names {show(unknown)}; it takes {show(wanted)}", "an illegal value")
    values = {name: _there(given.get(name)) for name in wanted}
    legal = {*may_lack, *(name for name in may_be_none if name in given)}
    lacking = [name for name, value in values.items() if value is None and name not in legal]
    if lacking:
        raise _Lacks(f"{field}[{lacking[0]!r}] is missing", lack)
    return values


def _takes_none(knob: Knob) -> bool:
    return knob.word is None if isinstance(knob, Auto) else isinstance(knob, Categorical) and None in knob.choices


def _there(value: Any) -> Any:
    """The value; None if it is a NaN."""
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and math.isnan(value) else value


def _moment(field: str, value: Any) -> float:
    """Seconds, of a number or of a date and time in ISO 8601 (UTC unless it says otherwise)."""
    value = _there(value)
    if value is None:
        raise _Lacks(f"{field} is missing", "the time is missing")
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise _Lacks(
                f"{field} must be a number or an ISO 8601 time, got {show(value)}", "an illegal value"
            ) from None
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    try:
        return number(field, value)
    except InvalidValue as reason:
        raise _Lacks(str(reason), "an illegal value") from None
