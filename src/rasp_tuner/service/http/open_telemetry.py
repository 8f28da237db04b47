"""OpenTelemetry: traces of requests through the writer and the database, and the numbers of /metrics, sent by OTLP.

Loaded only where OTEL_* variables ask for it (`otlp_wanted`); otherwise no line of it runs. The span of a request has
children: `wait` for the writer, `work`, and `commit`, which it may share with other requests.
"""

import asyncio
import functools
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context, get_current
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import CallbackOptions, NoOpMeterProvider, Observation
from opentelemetry.metrics import MeterProvider as Meters
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import NoOpTracerProvider, SpanKind, StatusCode
from opentelemetry.trace import TracerProvider as Tracers
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from rasp_tuner import __version__
from rasp_tuner.service.http.gateway import Gateway
from rasp_tuner.service.http.route import Request, Response, Route
from rasp_tuner.service.service import Service
from rasp_tuner.service.storage.transaction import MORE, JobChanges, UnitOfWork
from rasp_tuner.service.storage.writer import Writer, WriterJob
from rasp_tuner.service.telemetry import otlp_wanted

NAME = "rasp-tuner"
PROPAGATOR = TraceContextTextMapPropagator()
PARENT_HEADERS = (b"traceparent", b"tracestate")
NUMBERS_S = 1.0  # for which numbers that were read are used: all instruments are asked in turn
ANSWER_S = 5.0  # that the server has to give its numbers


class OpenTelemetry:
    """Where spans and numbers of one server go."""

    def __init__(self, traces: Tracers | None = None, metrics: Meters | None = None) -> None:
        """By default as the variables say; tests give their own."""
        environment = os.environ
        said = f"{environment.get('OTEL_SERVICE_NAME', '')},{environment.get('OTEL_RESOURCE_ATTRIBUTES', '')}"
        named = bool(environment.get("OTEL_SERVICE_NAME")) or "service.name=" in said
        resource = Resource.create({"service.version": __version__, **({} if named else {"service.name": NAME})})
        if traces is None and otlp_wanted("TRACES"):
            traces = TracerProvider(resource=resource)
            traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        if metrics is None and otlp_wanted("METRICS"):
            metrics = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())], resource)
        self._traces, self._metrics = traces or NoOpTracerProvider(), metrics or NoOpMeterProvider()
        self._meter = self._metrics.get_meter(NAME, __version__)
        self._read_at, self._numbers = -NUMBERS_S, dict[str, list[Observation]]()
        tracer = self._traces.get_tracer(NAME, __version__)
        seconds = self._meter.create_histogram("http.server.request.duration", "s", "Time of a request.")
        self.gateway = functools.partial(TracedGateway, tracer, seconds.record)
        self.writer = functools.partial(TracedWriter, tracer)

    def start(self, service: Service) -> None:
        """Send the numbers of a service; called on its event loop."""
        ask = functools.partial(self._read, service, asyncio.get_running_loop())
        for family in service.telemetry.families(None, ()):
            if family.type in ("counter", "gauge"):
                make = getattr(self._meter, f"create_observable_{family.type}")
                make(family.name, [functools.partial(ask, family.name)], description=family.documentation)
        telemetry = service.telemetry
        steps = self._meter.create_histogram("rasp_step_seconds", "s", "Time the tuner takes.")
        commits = self._meter.create_histogram("rasp_commit_seconds", "s", "Time a commit takes.")
        telemetry.ask = _both(telemetry.ask, functools.partial(steps.record, attributes={"kind": "ask"}))
        telemetry.tell = _both(telemetry.tell, functools.partial(steps.record, attributes={"kind": "tell"}))
        service.writer.committed = _both(service.writer.committed, commits.record)

    def _read(
        self, service: Service, loop: asyncio.AbstractEventLoop, name: str, _: CallbackOptions
    ) -> Iterable[Observation]:
        """The numbers of one instrument; called by the reader's thread."""
        if time.monotonic() - self._read_at >= NUMBERS_S:
            gauges, studies = asyncio.run_coroutine_threadsafe(service.numbers(), loop).result(ANSWER_S)
            self._numbers = {
                family.name: [
                    Observation(sample.value, sample.labels)
                    for sample in family.samples
                    if not sample.name.endswith("_created")
                ]
                for family in service.telemetry.families(gauges, studies)
            }
            self._read_at = time.monotonic()
        return self._numbers.get(name, ())

    def close(self) -> None:
        """Send what is left; called before the writer stops, for it gives the last numbers."""
        for provider in (self._metrics, self._traces):
            if isinstance(provider, MeterProvider | TracerProvider):
                provider.shutdown()


def _both(first: Callable[[float], object], second: Callable[[float], object]) -> Callable[[float], None]:
    def observe(seconds: float) -> None:
        first(seconds)
        second(seconds)

    return observe


class TracedGateway(Gateway):
    """Makes a span of every request that was admitted, below that of its client if it names one."""

    def __init__(self, tracer: trace.Tracer, record: Callable[..., None], *rest: Any) -> None:
        super().__init__(*rest)
        self._tracer, self._record = tracer, record

    async def answer(self, route: Route, request: Request) -> Response:
        given = {
            name.decode(): request.headers[name].decode("latin-1") for name in PARENT_HEADERS if name in request.headers
        }
        about = {"http.request.method": request.method, "http.route": route.path}
        study = {"rasp.study": request.parameters["name"]} if "name" in request.parameters else {}
        started = time.perf_counter()
        with self._tracer.start_as_current_span(
            f"{request.method} {route.path}", PROPAGATOR.extract(given), SpanKind.SERVER, {**about, **study}
        ) as span:
            sent: dict[str, str] = {}
            PROPAGATOR.inject(sent)  # another server that answers this request goes on with this trace
            request.headers = {**request.headers, **{name.encode(): value.encode() for name, value in sent.items()}}
            response = await super().answer(route, request)
            span.set_attribute("http.response.status_code", response.status)
            if response.status >= 500:
                span.set_status(StatusCode.ERROR)
        self._record(time.perf_counter() - started, {**about, "http.response.status_code": response.status})
        return response


class TracedRun:
    """The function of a job, with the times at which it was put, begun and ended."""

    __slots__ = ("_run", "began_ns", "context", "ended_ns", "put_ns")

    def __init__(self, run: Callable[[UnitOfWork], Any], context: Context) -> None:
        self._run, self.context = run, context
        self.put_ns = self.ended_ns = time.time_ns()
        self.began_ns = 0

    def __call__(self, work: UnitOfWork) -> Any:
        self.began_ns = self.began_ns or time.time_ns()
        try:
            return self._run(work)
        finally:
            self.ended_ns = time.time_ns()


class TracedWriter(Writer):
    """Makes spans of what a request waits for. They are made once it is answered, from the times that were noted."""

    def __init__(self, tracer: trace.Tracer, *rest: Any) -> None:
        super().__init__(*rest)
        self._tracer = tracer
        self._commit_ns = 0, 0

    def put(self, job: WriterJob) -> None:
        if trace.get_current_span().is_recording():
            job.run = TracedRun(job.run, get_current())
        super().put(job)

    def _commit(self, work: UnitOfWork) -> set[int] | None:
        began = time.time_ns()
        refused = super()._commit(work)
        self._commit_ns = began, time.time_ns()
        return refused

    def _finish(self, work: UnitOfWork, done: Sequence[tuple[WriterJob, JobChanges, Any]]) -> None:
        super()._finish(work, done)
        shared: dict[str, str | int] = {
            "db.system.name": self.store.url.get_backend_name(),
            "rasp.commit.jobs": len(done),
        }
        for job, _, outcome in done:
            if not isinstance(job.run, TracedRun) or outcome is MORE:
                continue
            run = job.run
            self._span("wait", run.context, (run.put_ns, run.began_ns))
            failed = type(outcome).__name__ if isinstance(outcome, Exception) else None
            self._span("work", run.context, (run.began_ns, run.ended_ns), {}, failed)
            if job.writes and (work.wrote or self.failing):
                self._span("commit", run.context, self._commit_ns, shared, self.failing)

    def _span(
        self,
        name: str,
        context: Context,
        times_ns: tuple[int, int],
        attributes: Mapping[str, str | int] | None = None,
        failed: str | None = None,
    ) -> None:
        span = self._tracer.start_span(name, context, attributes=dict(attributes or {}), start_time=times_ns[0])
        if failed is not None:
            span.set_status(StatusCode.ERROR, failed)
        span.end(times_ns[1])
