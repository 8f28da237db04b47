"""OpenTelemetry: spans and numbers of a real server; nothing of it is loaded where nobody asks for it."""

import gzip
import http.server
import subprocess
import sys
import threading

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from serving import STUDY, Process, ask, plain_client, running, steps, tell, wait_for
from sqlalchemy.exc import OperationalError

from rasp_tuner.service.http.open_telemetry import OpenTelemetry
from rasp_tuner.service.telemetry import otlp_wanted

CLIENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"  # a span of the client, as W3C writes it


class Watched:
    """A server whose spans and numbers stay in this process."""

    def __init__(self):
        self.spans, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        traces = TracerProvider()
        traces.add_span_processor(SimpleSpanProcessor(self.spans))
        self.otel = OpenTelemetry(traces, MeterProvider([self.reader]))

    def named(self, name, count=1):
        """Finished spans of that name; the writer makes its own after the answer."""
        found = []

        def there():
            found[:] = [span for span in self.spans.get_finished_spans() if span.name == name]
            return len(found) >= count

        wait_for(there, f"a span {name}", 10.0)
        return found

    def numbers(self):
        data = self.reader.get_metrics_data()
        return {
            metric.name: {tuple(sorted(point.attributes.items())): point for point in metric.data.data_points}
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@pytest.fixture
def watched():
    return Watched()


def test_a_tell_is_one_trace_through_writer_and_storage(sqlite, watched):
    with running(sqlite, otel=watched.otel) as client:
        client.post("/v1/studies", json=STUDY)
        asked = ask(client)
        watched.named("commit", 2)
        watched.spans.clear()
        body = {"id": asked["id"], "metrics": {"p99_ms": 5.0}}
        assert client.post("/v1/studies/web/tell", json=body, headers={"traceparent": CLIENT}).status_code == 200
        [commit] = watched.named("commit")
        [whole] = watched.named("POST /v1/studies/{name}/tell")
        [wait], [work] = watched.named("wait"), watched.named("work")
    assert f"{whole.context.trace_id:032x}" == CLIENT.split("-")[1]
    assert f"{whole.parent.span_id:016x}" == CLIENT.split("-")[2]
    assert whole.attributes["http.response.status_code"] == 200
    assert whole.attributes["rasp.study"] == "web"
    for child in (wait, work, commit):
        assert child.parent.span_id == whole.context.span_id
    assert whole.start_time <= wait.start_time <= wait.end_time == work.start_time
    assert work.end_time <= commit.start_time < commit.end_time
    assert (commit.attributes["db.system.name"], commit.attributes["rasp.commit.jobs"]) == ("sqlite", 1)


def test_no_value_of_a_user_is_in_a_span(sqlite, watched):
    with running(sqlite, otel=watched.otel) as client:
        client.post("/v1/studies", json=STUDY)
        client.post("/v1/studies/web/ask?q=sesame", json={"context": {"qps": 12345.5}}, headers={"x": "sesame"})
        watched.named("commit", 2)
        said = "".join(span.to_json() for span in watched.spans.get_finished_spans())
    assert "sesame" not in said
    assert "12345.5" not in said  # the digits alone may be part of an id


def test_what_fails_is_marked(sqlite, watched):
    with running(sqlite, otel=watched.otel) as client:
        client.post("/v1/studies", json=STUDY)
        asked = ask(client)
        assert tell(client, "s99").status_code == 404
        [told] = watched.named("POST /v1/studies/{name}/tell")
        assert told.status.status_code == StatusCode.UNSET  # a client's mistake is no fault of the server
        assert told.attributes["http.response.status_code"] == 404
        [*_, work] = watched.named("work", 3)
        assert (work.status.status_code, work.status.description) == (StatusCode.ERROR, "UnknownSuggestion")

        def full(_):
            raise OperationalError("", {}, Exception("disk is full"))

        watched.spans.clear()
        client.service.store.append_alone = full
        assert tell(client, asked["id"]).status_code == 503
        [told], [commit] = watched.named("POST /v1/studies/{name}/tell"), watched.named("commit")
        assert (told.status.status_code, commit.status.status_code) == (StatusCode.ERROR, StatusCode.ERROR)
        assert commit.status.description == "the database cannot be written"


def test_numbers_are_those_of_prometheus(sqlite, watched):
    with running(sqlite, otel=watched.otel) as client:
        client.post("/v1/studies", json=STUDY)
        steps(client, 5)
        assert client.get("/v1/studies/none").json()["error"]["code"] == "unknown_study"
        numbers = watched.numbers()
        text = client.get("/metrics").text
    assert numbers["rasp_tells"][("study", "web"),].value == 5
    assert 'rasp_tells_total{study="web"} 5.0' in text
    assert numbers["rasp_studies_in_memory"][()].value == 1
    assert numbers["rasp_rejected"][("code", "unknown_study"),].value == 1
    assert numbers["rasp_step_seconds"][("kind", "tell"),].count == 5
    assert numbers["rasp_commit_seconds"][()].count >= 5
    requests = numbers["http.server.request.duration"]
    assert (
        sum(point.count for labels, point in requests.items() if ("http.route", "/v1/studies/{name}/ask") in labels)
        == 5
    )
    shown = {line.split("{")[0].split(" ")[0].removesuffix("_total") for line in text.splitlines() if line[0] != "#"}
    missing = {name for name in shown if not name.endswith(("_bucket", "_sum", "_count", "_created"))} - set(numbers)
    assert missing == set()


class Receiver:
    """A collector that takes OTLP over HTTP."""

    def __init__(self):
        received = self.received = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                body = gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body
                kinds = {"/v1/traces": ExportTraceServiceRequest, "/v1/metrics": ExportMetricsServiceRequest}
                received.append(kinds[self.path].FromString(body))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def of(self, kind):
        return [request for request in self.received if isinstance(request, kind)]


def test_rasp_serve_sends_both_to_a_collector(tmp_path, monkeypatch):
    receiver = Receiver()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    server = Process(tmp_path / "data", forked=False)
    with plain_client(server.url) as client:
        client.post("/v1/studies", json=STUDY)
        steps(client, 2)
    said, status = server.stop()
    receiver.server.shutdown()
    receiver.server.server_close()
    assert (status, "Traceback" in said) == (0, False), said
    [first, *_] = receiver.of(ExportTraceServiceRequest)
    resource = {each.key: each.value.string_value for each in first.resource_spans[0].resource.attributes}
    assert (resource["service.name"], resource["deployment.environment.name"]) == ("rasp-tuner", "test")
    spans = [
        span
        for request in receiver.of(ExportTraceServiceRequest)
        for part in request.resource_spans
        for scope in part.scope_spans
        for span in scope.spans
    ]
    [told, _] = [span for span in spans if span.name == "POST /v1/studies/{name}/tell"]
    assert {span.name for span in spans if span.parent_span_id == told.span_id} == {"wait", "work", "commit"}
    [*_, last] = receiver.of(ExportMetricsServiceRequest)
    names = {metric.name for part in last.resource_metrics for scope in part.scope_metrics for metric in scope.metrics}
    assert {"rasp_asks", "rasp_storage_failing", "http.server.request.duration"} <= names


@pytest.mark.parametrize(
    ("environment", "traces", "metrics"),
    [
        ({}, False, False),
        ({"OTEL_SERVICE_NAME": "web"}, False, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "true"}, False, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_METRICS_EXPORTER": "none"}, True, False),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, True, False),
        ({"OTEL_METRICS_EXPORTER": "otlp"}, False, True),
    ],
)
def test_the_standard_variables_decide(environment, traces, metrics):
    assert (otlp_wanted("TRACES", environment), otlp_wanted("METRICS", environment)) == (traces, metrics)


def test_nothing_of_it_is_loaded_unless_a_variable_asks_for_it():
    script = (
        "import sys; from rasp_tuner.service import server; server.open_telemetry();"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def test_a_missing_package_is_said_and_the_server_serves_on(tmp_path, monkeypatch):
    (tmp_path / "opentelemetry.py").write_text("raise ModuleNotFoundError(name='opentelemetry')")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{':'.join(sys.path)}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    server = Process(tmp_path / "data", forked=False)
    said, status = server.stop()
    assert status == 0
    assert "pip install 'rasp-tuner[otel]'" in said
