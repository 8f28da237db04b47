"""Reader: contexts, metrics and running parameters of a study, asked of Prometheus; missing data as the study says."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

from rasp_tuner.contexts import Flag, TimeOfDay, Weekday, now
from rasp_tuner.errors import InvalidValue, NoData, QueryFailed, RaspError
from rasp_tuner.space import Params, Value
from rasp_tuner.watch.prometheus import Prometheus, SeriesSample
from rasp_tuner.watch.queries import ContextQuery, MetricQuery, Missing, RunningQuery, count_query, filled, newest_query
from rasp_tuner.watch.study import WatchStudy

log = logging.getLogger("rasp_tuner.watch")

POLLS = 20  # of a value that is waited for, at most one each second
FILLABLE = ("empty", "nan")  # what a number in the study may take the place of

ContextValue: TypeAlias = float | str | bool | None
Part = Literal["query", "canary", "control"]
T = TypeVar("T")


@dataclass(frozen=True)
class Reader:
    """Asks for what a study needs; `pause` waits, and raises if the program is to end."""

    study: WatchStudy
    pause: Callable[[float], None]

    @property
    def prometheus(self) -> Prometheus:
        return self.study.prometheus

    def contexts(self) -> dict[str, ContextValue]:
        """The situation now, as the tuner takes it; None for a value that is missing and may be."""
        return {name: self.context(name, source) for name, source in self.study.contexts.items()}

    def metrics(self, part: Part = "query") -> dict[str, float]:
        """Every metric over the window that ends now; of all instances, of the canaries or of the others."""
        return {name: self.metric(name, source, part) for name, source in self.study.metrics.items()}

    def glance(self, part: Part, window_s: float) -> dict[str, float]:
        """Every metric over so much of the window as is over; nothing is waited for."""
        return {
            name: self.prometheus.one(filled(self._query(source, part), window_s)).value
            for name, source in self.study.metrics.items()
        }

    def running(self) -> Params | None:
        """The parameters that run, by the study's queries for them; None if it has none."""
        if not self.study.running:
            return None
        found = {name: self._running(name, source) for name, source in self.study.running.items()}
        space = self.study.space
        existing = {name: found[name] for name in space.names_in(found)}
        space.to_unit(existing)  # InvalidValue if they are no parameters of this study
        return existing

    def context(self, name: str, source: ContextQuery) -> ContextValue:
        """One context now."""
        if isinstance(source.kind, (TimeOfDay, Weekday)):
            return now().isoformat(timespec="seconds")

        def read() -> ContextValue:
            sample = self._sample(source.query, source.newest or newest_query(source.query))
            return _context_value(source, sample)

        where = f"context {name!r}"
        try:
            return self._waited(where, source.missing, read)
        except NoData as reason:
            if isinstance(source.missing, str) and source.missing != "ignore":
                raise
            if reason.kind not in FILLABLE:
                raise
            log.warning("%s; it counts as missing", reason)
            return None

    def metric(self, name: str, source: MetricQuery, part: Part = "query") -> float:
        """One metric over the window that ends now."""
        query = self._query(source, part)

        def read() -> float:
            self._check_samples(source, source.samples or count_query(query))
            return self._sample(query, source.newest or newest_query(query)).value

        where = f"metric {name!r}" if part == "query" else f"metric {name!r} ({part})"
        try:
            return self._waited(where, source.missing, read)
        except NoData as reason:
            if isinstance(source.missing, str) or reason.kind not in FILLABLE:
                raise
            log.warning("%s; it counts as %g, as the study says", reason, source.missing)
            return source.missing

    @staticmethod
    def _query(source: MetricQuery, part: Part) -> str:
        return {"query": source.query, "canary": source.canary, "control": source.control}[part] or source.query

    def _check_samples(self, source: MetricQuery, query: str | None) -> None:
        window_s = self.study.window_s
        if query is None:
            return
        try:
            count = self.prometheus.one(filled(query, window_s)).value
        except NoData as reason:
            if reason.kind != "empty":
                raise
            count = 0.0
        if count < source.min_samples and not (count == 0.0 and isinstance(source.missing, float)):
            raise NoData(
                "few", f"{count:g} samples in the window of {window_s:g} s, min_samples is {source.min_samples:g}"
            )

    def _sample(self, query: str, newest: str | None) -> SeriesSample:
        sample = self.prometheus.one(filled(query, self.study.window_s))
        if newest is not None:
            self.prometheus.check_age(filled(newest, self.study.window_s))
        return sample

    def _waited(self, where: str, missing: Missing, read: Callable[[], T]) -> T:
        """A value, asked for again and again where the study says to wait; errors name what was read."""
        deadline = time.monotonic() + (self.study.wait_s if missing == "wait" else 0.0)
        said = False
        while True:
            try:
                return read()
            except (NoData, QueryFailed, InvalidValue) as reason:
                if time.monotonic() >= deadline or (isinstance(reason, NoData) and reason.kind == "several"):
                    raise _named(where, reason) from reason
                if not said:
                    log.info("%s: %s; waiting up to %g s", where, reason, self.study.wait_s)
                    said = True
            self.pause(min(1.0, self.study.wait_s / POLLS))

    def _running(self, name: str, source: RunningQuery) -> Value:
        where, knob = f"running {name!r}", self.study.knobs[name]
        try:
            sample = self.prometheus.one(filled(source.query, self.study.window_s))
            text = f"{sample.value:.15g}" if source.label is None else _label(sample, source.label)
            return knob.check(knob.from_text(text))
        except InvalidValue as reason:
            raise InvalidValue(f"{where}: {text} runs, which is no value of the knob: {reason}") from reason
        except (NoData, QueryFailed) as reason:
            raise _named(where, reason) from reason


def _context_value(source: ContextQuery, sample: SeriesSample) -> ContextValue:
    if source.label is not None:
        return _label(sample, source.label)
    if isinstance(source.kind, Flag):
        if sample.value not in (0.0, 1.0):
            raise InvalidValue(f"a flag must be 0 or 1, got {sample.value:g}")
        return bool(sample.value)
    return sample.value


def _label(sample: SeriesSample, label: str) -> str:
    if label not in sample.labels:
        known = ", ".join(name for name in sample.labels if name != "__name__") or "none"
        raise NoData("empty", f"the series has no label {label!r}; its labels: {known}")
    return sample.labels[label]


def _named(where: str, reason: RaspError) -> RaspError:
    """The same error, with what could not be read."""
    if isinstance(reason, NoData):
        return NoData(reason.kind, f"{where}: {reason}")
    return type(reason)(f"{where}: {reason}")


def changed(before: Mapping[str, ContextValue], after: Mapping[str, ContextValue], share: float = 0.2) -> list[str]:
    """Contexts that are not what they were, numbers by more than this share.

    >>> changed({"qps": 100.0, "zone": "a"}, {"qps": 150.0, "zone": "a"})
    ['qps 100 -> 150']
    """
    found = []
    for name, old in before.items():
        new = after.get(name)
        if isinstance(old, float) and isinstance(new, float):
            if abs(new - old) > share * max(abs(old), abs(new)):
                found.append(f"{name} {old:g} -> {new:g}")
        elif old != new:
            found.append(f"{name} {old} -> {new}")
    return found
