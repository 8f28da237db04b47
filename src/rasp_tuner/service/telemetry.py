"""Telemetry: metrics for Prometheus. Counts come from the studies themselves, so they survive a restart."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from rasp_tuner.service.storage.transaction import MORE, UnitOfWork
from rasp_tuner.service.study.live_study import LiveStudy

HISTOGRAM_BUCKETS_S = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0)
OTLP_SIGNALS = ("TRACES", "METRICS")

GAUGES = {  # of the server itself
    "rasp_waiting": "Orders that wait for the writer.",
    "rasp_damaged_studies": "Studies that cannot be loaded.",
    "rasp_loading_studies": "Studies not loaded since the start.",
    "rasp_storage_failing": "1 while the database cannot be written.",
    "rasp_streams": "Pages that watch.",
    "rasp_studies_owned": "Studies that this server has.",
    "rasp_lease_held": "1 while no other server may take them.",
    "rasp_leases_lost": "Studies that another server took, so far.",
    "rasp_studies_in_memory": "Studies with series of their own.",
    "rasp_studies_with_alerts": "Studies with something wrong, in memory or not.",
    "rasp_study_loads": "Studies read from disk since the start.",
}


def otlp_wanted(signal: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether OpenTelemetry's standard variables ask for one of OTLP_SIGNALS to be sent."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporter = environment.get(f"OTEL_{signal}_EXPORTER")
    if exporter is not None:
        return "otlp" in exporter.split(",")
    return any(environment.get(f"OTEL_EXPORTER_OTLP_{part}ENDPOINT") for part in ("", f"{signal}_"))


class Telemetry:
    """One registry for each server; `text` is the answer to /metrics."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._rejected = Counter("rasp_rejected", "Requests refused, by code.", ["code"], registry=self._registry)
        self._steps = Histogram(
            "rasp_step_seconds", "Time the tuner takes.", ["kind"], buckets=HISTOGRAM_BUCKETS_S, registry=self._registry
        )
        self.ask: Callable[[float], object] = self._steps.labels("ask").observe
        self.tell: Callable[[float], object] = self._steps.labels("tell").observe
        self.commits = Histogram(
            "rasp_commit_seconds", "Time a commit takes.", buckets=HISTOGRAM_BUCKETS_S, registry=self._registry
        )
        self._gauges = {name: Gauge(name, text, registry=self._registry) for name, text in GAUGES.items()}
        self.forwarded = Counter("rasp_forwarded", "Requests sent on to another server.", registry=self._registry)

    def count_rejected(self, code: str) -> None:
        """Count a refused request."""
        self._rejected.labels(code).inc()

    def families(self, gauges: Mapping[str, float] | None, studies: Sequence[dict[str, Any]]) -> Iterator[Metric]:
        """All that `text` says, as objects of the Prometheus client; without values to know their names."""
        for name, gauge in self._gauges.items() if gauges else ():
            gauge.set((gauges or {})[name])
        yield from self._registry.collect()
        yield from _StudyCollector(studies).collect()

    def text(self, gauges: Mapping[str, float], studies: Sequence[dict[str, Any]]) -> bytes:
        """The exposition format; `gauges` has a value for each of GAUGES, `studies` the `study_numbers` of each."""
        for name, gauge in self._gauges.items():
            gauge.set(gauges[name])
        registry = CollectorRegistry()
        registry.register(_StudyCollector(studies))
        return generate_latest(self._registry) + generate_latest(registry)


def study_numbers(live: LiveStudy, now: float) -> dict[str, Any]:
    """The numbers of one study."""
    view = live.view(now)
    return {
        **view,
        "alerts": len(view["alerts"]),
        "held": view["coverage"]["held"],
        "regret": -live.history.gain,
        "diverged": live.counts.diverged,
        "problems": list(live.problems),
    }


class NumbersRead:
    """Reads the numbers of the studies in memory, in pieces; `run` is a job of the writer.

    Those that were put away are counted only: thousands of them would make too many series.
    """

    def __init__(self) -> None:
        self.numbers: list[dict[str, Any]] = []
        self.with_alerts = 0  # studies, also of those that were put away
        self._left: list[str] | None = None

    def run(self, work: UnitOfWork) -> Any:
        cache = work.cache
        if self._left is None:
            self._left = list(cache.live)[::-1]
            self.with_alerts = sum(summary.places["alerts"] < 0.0 for summary in cache.away.values())
        while self._left and not work.piece_ends():
            live = cache.live.get(self._left.pop())
            if live is not None:
                self.numbers.append(study_numbers(live, work.now))
                self.with_alerts += self.numbers[-1]["alerts"] > 0
        return MORE if self._left else None


class _StudyCollector:
    """A Prometheus collector over numbers that were read before."""

    def __init__(self, studies: Sequence[dict[str, Any]]) -> None:
        self._studies = studies

    def collect(self) -> Iterator[Metric]:
        counters = {
            "asks": "Suggestions handed out.",
            "tells": "Metrics told.",
            "failures": "Failures told.",
            "observations": "Observations taken.",
            "late": "Answers that came after their lease.",
            "diverged": "Replayed asks that came out otherwise; 0 unless the library or the machine has changed.",
        }
        for name, text in counters.items():
            counter = CounterMetricFamily(f"rasp_{name}", text, labels=["study"])
            for study in self._studies:
                counter.add_metric([study["name"]], study[name])
            yield counter
        gauges = {
            "pending": "Suggestions not answered yet.",
            "expired": "Suggestions not answered within their lease.",
            "frozen": "1 while the study does not explore.",
            "failure_share": "Share of the latest runs that failed.",
            "alerts": "Things that are wrong with the study; its page says which.",
            "regret": "What came less what was expected of the default, summed over all steps; below 0 is better."
            " An outlier counts as ten times the usual at most.",
        }
        for name, text in gauges.items():
            title = "rasp_regret_against_default" if name == "regret" else f"rasp_{name}"
            yield _gauge(title, text, {study["name"]: study[name] for study in self._studies})
        held = {study["name"]: study["held"] for study in self._studies if study["held"] is not None}
        yield _gauge("rasp_coverage", "Share of outcomes within the intervals that should hold 0.9 of them.", held)
        budget = {
            "spent": "What suggestions have cost more than the default; 1 is what one run of the default costs.",
            "earned": "What suggestions have surely saved against the default; 1 is what one run of the default costs.",
            "left": "What suggestions may still cost more than the default; 1 is what one run of the default costs.",
        }
        reports = {
            study["name"]: study["budget_report"] for study in self._studies if study["budget_report"] is not None
        }
        for name, text in budget.items():
            yield _gauge(f"rasp_budget_{name}", text, {study: report[name] for study, report in reports.items()})
        waits = {study["name"]: study["waiting"] for study in self._studies if study["approve_s"] is not None}
        yield _gauge("rasp_waiting_for_approval", "Suggestions that wait for a person.", waits)
        yield from self._gains()
        problems = GaugeMetricFamily(
            "rasp_study_problem",
            "1 for what is wrong with a study; its view says it in words.",
            labels=["study", "problem"],
        )
        for study in self._studies:
            for problem in study["problems"]:
                problems.add_metric([study["name"], problem], 1.0)
        yield problems

    def _gains(self) -> Iterator[GaugeMetricFamily]:
        """The figure that pages and clients show, with the ends of its interval of 95%."""
        for kind, title, text in (
            ("share", "rasp_gain_share", "as a share of the default's level"),
            ("difference", "rasp_gain", "in the unit of the metric"),
        ):
            gauge = GaugeMetricFamily(
                title,
                f"Gain of a step over the default, {text}; measured with a holdout or controls, else a forecast.",
                labels=["study", "metric", "how", "bound"],
            )
            for study in self._studies:
                versus = study["versus_default"] or {"metrics": {}, "measured": False}
                how = "measured" if versus["measured"] else "forecast"
                for metric, gain in versus["metrics"].items():
                    for bound in ("low", "value", "high"):
                        if gain["kind"] == kind and gain[bound] is not None:
                            gauge.add_metric([study["name"], metric, how, bound], gain[bound])
            yield gauge


def _gauge(title: str, text: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    """One value for each study."""
    gauge = GaugeMetricFamily(title, text, labels=["study"])
    for study, value in values.items():
        gauge.add_metric([study], float(value))
    return gauge
