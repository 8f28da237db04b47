"""Bad input at every edge of `rasp watch`: a typed message, nothing learned, the last good parameters in place."""

import contextlib
import json
import socket
import threading
import time

import pytest
from watch_running import FakePrometheus, vector

from rasp_tuner.errors import NoData, QueryFailed
from rasp_tuner.watch import watch
from rasp_tuner.watch.prometheus import Prometheus


def result(kind, value):
    return {"status": "success", "data": {"resultType": kind, "result": value}}


def slow():
    time.sleep(0.5)
    return 1.0


BAD_ANSWERS = {
    "missing series": (vector(), NoData, r"gives no series: is the name right"),
    "several series": (
        vector(1, 2, 3),
        NoData,
        r"gives 3 series, such as \{i=\"0\"\} and \{i=\"1\"\}: .*sum\(\.\.\.\)",
    ),
    "NaN": (vector("NaN"), NoData, "gives nan, which is no finite number"),
    "infinite": (vector("+Inf"), NoData, "gives inf, which is no finite number"),
    "an old answer": (vector(1.0, at=1e9), NoData, r"was answered for a moment \d+ s ago.*clock"),
    "an answer from the future": (vector(1.0, at=4e9), NoData, r"\d+ s from now"),
    "a range": (result("matrix", []), QueryFailed, r"gives a matrix: put rate"),
    "a native histogram": (
        result("vector", [{"metric": {}, "histogram": [1, {}]}]),
        QueryFailed,
        r"native histograms: use histogram_quantile",
    ),
    "a number that is no text": (
        result("vector", [{"metric": {}, "value": [1, 5]}]),
        QueryFailed,
        "not what Prometheus",
    ),
    "a text that is no number": (result("vector", [{"metric": {}, "value": [1, "x"]}]), QueryFailed, "not what Prom"),
    "labels of a wrong type": (result("vector", [{"metric": 5, "value": [1, "5"]}]), QueryFailed, "not what Prom"),
    "no data": ({"status": "success"}, QueryFailed, "not what Prometheus gives"),
    "no JSON": ((200, b"<html>hello</html>"), QueryFailed, "not as Prometheus does: '<html>hello</html>'"),
    "a list": ((200, b"[]"), QueryFailed, "not as Prometheus does"),
    "nothing": ((200, b""), QueryFailed, "status 200 and not as Prometheus does: 'nothing'"),
    "deep JSON": ((200, b"[" * 100_000), QueryFailed, "not as Prometheus does"),
    "too much": ((200, b" " * 5_000_000), QueryFailed, "more than 4,000,000 bytes"),
    "a wrong page": ((404, b"not found"), QueryFailed, "status 404.*is the address right"),
    "an error page": ((503, b"overloaded"), QueryFailed, "status 503"),
    "a redirect": ((302, b""), QueryFailed, "answers 302, a redirect: give the address"),
    "a refused query": (
        (400, json.dumps({"status": "error", "errorType": "bad_data", "error": "parse error"}).encode()),
        QueryFailed,
        "Prometheus refuses the query `loss`: bad_data: parse error",
    ),
    "a slow answer": (slow, QueryFailed, "no answer from Prometheus .*took longer than 0.3 s"),
}


@pytest.fixture(scope="module")
def fake():
    found = FakePrometheus()
    yield found
    found.close()


@pytest.mark.parametrize("case", BAD_ANSWERS)
def test_a_bad_answer_is_a_typed_error_that_says_what_to_do(fake, case):
    fake.answers["loss"], error, words = BAD_ANSWERS[case]
    with pytest.raises(error, match=words):
        Prometheus(fake.url, timeout_s=0.3).one("loss")


@pytest.mark.parametrize(
    "case", ["missing series", "several series", "NaN", "an old answer", "no JSON", "a number that is no text"]
)
def test_after_a_bad_answer_nothing_is_learned_and_the_last_good_parameters_are_in_place(world, caplog, case):
    watch(world.study(), steps=3, folder=world.out)
    known, good = world.entries(), world.status()["last_good"]
    world.prometheus.answers["loss"] = BAD_ANSWERS[case][0]
    done = watch(world.study(), steps=2, folder=world.out)
    assert (done.tried, done.measured) == (2, 0)
    assert world.entries() == known
    assert {"x": world.x} == good
    assert "step not counted, nothing learned: metric 'loss': " in caplog.text
    assert f"In place are the last good parameters: x={world.x}" in caplog.text
    assert "metric 'loss'" in world.status()["problem"]
    world.prometheus.answers["loss"] = world.loss
    assert watch(world.study(), steps=1, folder=world.out).measured == 1
    assert world.entries()[: len(known)] == known


def test_a_dead_endpoint(world, caplog):
    study = world.study()  # with its address
    watch(study, steps=3, folder=world.out)
    before = world.x
    world.prometheus.close()
    assert watch(study, steps=2, folder=world.out).measured == 0
    assert "context 'load': no answer from Prometheus at http://127.0.0.1:" in caplog.text
    assert "is it running there?" in caplog.text
    assert world.x == before


def test_a_server_that_does_not_speak_http():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def talk():
            connection, _ = server.accept()
            connection.recv(100)
            connection.sendall(b"SSH-2.0-OpenSSH\r\n")
            connection.close()

        threading.Thread(target=talk, daemon=True).start()
        with pytest.raises(QueryFailed, match="does not speak HTTP"):
            Prometheus(f"http://127.0.0.1:{server.getsockname()[1]}", timeout_s=2.0).one("x")


@pytest.mark.parametrize(
    "start",
    [
        b"HTTP/1.1 200 OK\r\nX-Slow: ",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
    ids=["headers", "body", "chunks"],
)
def test_a_server_that_sends_a_byte_now_and_then(start):
    """Each byte comes in time, the answer never does."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def trickle():
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(1000)
                connection.sendall(start)
                while not ended.wait(0.02):
                    connection.sendall(b"0")

        thread = threading.Thread(target=trickle, daemon=True)
        thread.start()
        giving_up = threading.Timer(10.0, ended.set)
        giving_up.start()
        with pytest.raises(QueryFailed, match=r"it took longer than 0\.3 s to answer"):
            Prometheus(f"http://127.0.0.1:{server.getsockname()[1]}", timeout_s=0.3).one("x")
        assert not ended.is_set()
        giving_up.cancel()
        ended.set()
        thread.join()


def test_samples_that_are_too_old(world, caplog):
    study = world.study(prometheus={"url": world.prometheus.url, "max_age": "10s"})
    world.prometheus.answers["max(timestamp(loss))"] = lambda: time.time() - 60.0
    assert watch(study, steps=1, folder=world.out).measured == 0
    assert "metric 'loss': the newest sample is 60 s old, max_age is 10 s" in caplog.text
    world.prometheus.answers["max(timestamp(loss))"] = lambda: time.time() + 60.0
    assert watch(study, steps=1, folder=world.out).measured == 0
    assert "metric 'loss': the newest sample is of a moment 60 s from now" in caplog.text


def test_too_few_samples_in_the_window(world, caplog):
    query = "avg_over_time(loss[{window}])"
    study = world.study(metrics={"loss": {"query": query, "min_samples": 5}})
    world.prometheus.answers["avg_over_time(loss[5ms])"] = 3.0
    world.prometheus.answers["max(count_over_time(loss[5ms]))"] = 4
    assert watch(study, steps=1, folder=world.out).measured == 0
    assert "metric 'loss': 4 samples in the window of 0.005 s, min_samples is 5" in caplog.text
    world.prometheus.answers["max(count_over_time(loss[5ms]))"] = 5
    assert watch(study, steps=1, folder=world.out).measured == 1


def test_missing_data_may_be_waited_for(world):
    study = world.study(missing="wait", wait=2)
    answers = iter([vector(), vector("NaN"), (503, b"")])
    world.prometheus.answers["loss"] = lambda: next(answers, 4.0)
    assert watch(study, steps=1, folder=world.out).measured == 1
    assert world.entries()[0]["metrics"] == {"loss": 4.0}


def test_a_number_may_stand_for_missing_data_but_not_for_a_dead_endpoint(world, caplog):
    metrics = {"loss": {"query": "loss"}, "errors": {"query": "errors", "missing": 0}}
    study = world.study(metrics=metrics)
    assert watch(study, steps=1, folder=world.out).measured == 1
    assert world.entries()[0]["metrics"]["errors"] == 0.0
    assert "it counts as 0, as the study says" in caplog.text
    world.prometheus.answers["errors"] = (503, b"")
    assert watch(study, steps=1, folder=world.out).measured == 0


def test_a_missing_context_skips_counts_as_its_usual_value_or_is_ignored(world, caplog):
    del world.prometheus.answers["load"]
    assert watch(world.study(), steps=1, folder=world.out / "a").measured == 0
    assert "context 'load': the query `load` gives no series" in caplog.text
    assert not (world.folder / "settings.json").exists() or world.x == 15
    contexts = {
        "load": {"query": "load", "missing": 3.0},
        "zone": {"query": "info", "label": "zone", "missing": "ignore"},
        "hour": "time:hour",
    }
    assert watch(world.study(contexts=contexts), steps=2, folder=world.out).measured == 2
    assert world.entries()[0]["context"]["load"] is None
    assert world.entries()[0]["context"]["zone"] is None
    world.prometheus.answers["info"] = lambda: vector(1, labels={"zone": "eu"})
    world.prometheus.answers["load"] = 5.0
    assert watch(world.study(contexts=contexts), steps=1, folder=world.out).measured == 1
    assert world.entries()[-1]["context"]["zone"] == "eu"
    world.prometheus.answers["info"] = lambda: vector(1, labels={"other": "eu"})
    contexts["zone"]["missing"] = "skip"
    assert watch(world.study(contexts=contexts), steps=1, folder=world.out).measured == 0
    assert "the series has no label 'zone'; its labels: other, i" in caplog.text


def test_a_metric_that_the_tuner_refuses_is_not_counted(world, caplog):
    study = world.study(metrics={"loss": {"query": "loss", "scale": "log"}})
    watch(study, steps=2, folder=world.out)
    world.prometheus.answers["loss"] = -1.0
    assert watch(study, steps=1, folder=world.out).measured == 0
    assert len(world.entries()) == 2
    assert "step not counted" in caplog.text
    world.prometheus.answers["loss"] = world.loss
    assert watch(study, steps=1, folder=world.out).measured == 1


def test_a_context_that_changes_during_the_window_is_noted_and_the_one_at_its_start_counts(world, caplog):
    values = iter([100.0, 900.0])
    world.prometheus.answers["load"] = lambda: next(values)
    watch(world.study(), steps=1, folder=world.out)
    [entry] = world.entries()
    assert (entry["context"], entry["after"]) == ({"load": 100.0}, {"load": 900.0})
    assert "the context changed during the window: load 100 -> 900" in caplog.text


def test_a_step_during_which_the_context_changes_may_be_skipped(world, caplog):
    watch(world.study(), steps=3, folder=world.out)
    values = iter([100.0, 900.0, 900.0])
    world.prometheus.answers["load"] = lambda: next(values, 900.0)
    done = watch(world.study(on_change="skip"), steps=2, folder=world.out)
    assert (done.tried, done.measured) == (2, 1)
    assert "step not counted, nothing learned: the context changed during the window: load 100 -> 900" in caplog.text
    assert "In place are the last good" not in caplog.text
    assert len(world.entries()) == 4


def test_tokens_come_from_the_environment_and_are_written_nowhere(world, monkeypatch, caplog):
    fields = {"url": world.prometheus.url, "token_env": "PROM_TOKEN", "headers": {"X-Team": "shop"}}
    monkeypatch.setenv("PROM_TOKEN", "very-secret")
    assert watch(world.study(prometheus=fields), steps=1, folder=world.out).measured == 1
    assert world.prometheus.headers[0]["Authorization"] == "Bearer very-secret"
    assert world.prometheus.headers[0]["X-Team"] == "shop"
    for path in world.out.iterdir():
        assert b"very-secret" not in path.read_bytes()
    monkeypatch.delenv("PROM_TOKEN")
    assert watch(world.study(prometheus=fields), steps=1, folder=world.out).measured == 0
    assert "the environment variable PROM_TOKEN is not set" in caplog.text


@pytest.mark.parametrize("secret", ["two\nlines", "hünter2", "nul\x01l"])
def test_a_token_that_cannot_be_sent_is_named_and_not_shown(world, monkeypatch, caplog, secret):
    fields = {"url": world.prometheus.url, "token_env": "PROM_TOKEN"}
    monkeypatch.setenv("PROM_TOKEN", secret)
    assert watch(world.study(prometheus=fields), steps=1, folder=world.out).measured == 0
    assert "the environment variable PROM_TOKEN must hold plain ASCII on one line" in caplog.text
    assert secret not in caplog.text
    assert repr(secret)[1:-1] not in caplog.text
