"""What the dashboard draws: bounded, exact where it says so, and the same after every restart."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving import STUDY, NoLog, ask, plain_client, running, steps, tell

from rasp_tuner.contexts.regimes import MAX_SEGMENTS, RegimeTimeline
from rasp_tuner.service.limits import Limits
from rasp_tuner.service.study.definition import StudyDefinition
from rasp_tuner.service.study.live_study import LiveStudy
from rasp_tuner.service.study.trace import MAX_BUCKETS, Trace


@given(st.integers(1, 6_000), st.integers(1, 1_024))
@settings(max_examples=30)
def test_a_trace_of_any_length_keeps_means_and_extremes(count, points):
    values = np.sin(np.arange(count) * 0.37) * np.arange(count)
    trace = Trace(["a", "silent"])
    for value in values:
        trace.add(np.array([value, np.nan]))
    drawn = trace.window(points).points("a")
    width = trace.window(points).bucket
    assert trace.used <= MAX_BUCKETS
    assert len(drawn["step"]) <= points
    assert drawn["step"] == list(range(0, count, width))
    for i, start in enumerate(drawn["step"]):
        piece = values[start : start + width]
        assert drawn["mean"][i] == pytest.approx(piece.mean(), abs=1e-9)
        assert (drawn["min"][i], drawn["max"][i]) == (piece.min(), piece.max())
    assert trace.window(points).points("silent")["step"] == []
    looked_at = Trace(["a", "silent"])
    for i, value in enumerate(values):
        looked_at.add(np.array([value, np.nan]))
        if i % 7 == 0:
            looked_at.window(points)
    assert all(np.array_equal(array, looked_at.state()[name]) for name, array in trace.state().items())
    again = Trace(["a", "silent"])
    again.restore(trace.state(), trace.series)
    assert again.window(points).points("a") == drawn


def test_a_trace_takes_what_numbers_there_are():
    trace = Trace(["a"])
    for value in (1e308, -1e308, np.inf, np.nan, 5e-324):
        trace.add(np.array([value]))
    assert len(trace.window(600).points("a")["mean"]) == 3
    json.dumps(trace.window(600).points("a"), allow_nan=False)


def labels(contexts):
    regimes = RegimeTimeline(contexts.shape[1])
    for context in contexts:
        regimes.add(context)
    out = np.full(len(contexts), -1)
    for label, start, end in regimes.segments:
        out[start : end + 1] = label
    assert (out >= 0).all()
    assert len(regimes.segments) <= MAX_SEGMENTS
    return out


# not (1, 3): regimes that change at every step look like noise, and do not stand out from noise
@pytest.mark.parametrize(("stay", "noise_dimensions"), [(1, 0), (25, 0), (25, 3)])
def test_regimes_are_told_apart(stay, noise_dimensions):
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 600 // stay).repeat(stay)
    contexts = np.array([[0.0, 0.0], [10.0, 3.0], [20.0, -5.0]])[truth] + rng.normal(size=(600, 2)) * 0.5
    contexts = np.concatenate([contexts, rng.normal(size=(600, noise_dimensions))], axis=1)
    found = labels(contexts)
    agreement = sum(np.bincount(truth[found == label]).max() for label in set(found.tolist()))
    assert agreement / len(truth) > 0.95
    assert len(set(found[100:].tolist())) <= 6


def test_regimes_of_one_situation_are_one():
    found = labels(np.full((100, 2), 3.0))
    assert set(found.tolist()) == {0}
    assert set(labels(np.zeros((50, 0))).tolist()) == {0}


def test_regimes_are_bounded_and_take_any_numbers():
    rng = np.random.default_rng(1)
    found = labels(rng.normal(size=(3_000, 2)) * 10.0 ** rng.integers(-100, 100, (3_000, 1)))
    assert len(set(found.tolist())) <= 12


def test_history_of_a_study(web):
    steps(web, 14)
    web.post("/v1/studies/web/tell_failed", json={"id": ask(web)["id"], "reason": "x"})
    drawn = web.get("/v1/studies/web/history?points=10").json()
    assert drawn["steps"] == 15
    assert drawn["bucket"] == 2
    named = ["error", "gain", "novelty", "metric:p99_ms", "default:p99_ms", "gain:p99_ms", "param:pool", "param:t"]
    assert set(drawn["series"]) == set(named)
    for series in drawn["series"].values():
        assert len(series["step"]) == len(series["mean"]) == len(series["min"]) == len(series["max"]) <= 10
        assert all(
            low <= mean <= high for low, mean, high in zip(series["min"], series["mean"], series["max"], strict=True)
        )
    assert drawn["regimes"][-1]["to"] == 14
    assert any(mark["kind"] == "failed" and mark["step"] == 14 for mark in drawn["events"])
    assert len(drawn["calibration"]["expected"]) == len(drawn["calibration"]["observed"]) > 0


def test_the_gain_is_what_the_default_would_have_cost_more():
    """Against a world where it is known: the default costs 50 everywhere, the best setting nothing."""
    wire = {"space": {"x": {"type": "float", "low": 0, "high": 10}}, "default": {"x": 0.0}}
    live = LiveStudy(1, StudyDefinition.from_wire({**STUDY, **wire}), 0.0)
    truth = 0.0
    for i in range(150):
        event = live.ask({"qps": 1.0}, float(i))
        loss = 0.5 * (event.body["params"]["x"] - 10.0) ** 2
        truth += 50.0 - loss
        live.tell(f"s{event.ask}", float(i), NoLog(), {"p99_ms": loss})
    assert live.history.gain == pytest.approx(truth, rel=0.1)
    level = live.history.chart_data(600)["series"]["default:p99_ms"]["mean"][-1]
    assert level == pytest.approx(50.0, rel=0.1)


def test_a_watching_page_hears_of_steps(sqlite):
    with running(sqlite) as client:
        client.post("/v1/studies", json=STUDY)
        assert client.get("/v1/studies/none/live").status_code == 404
        with client.stream("GET", "/v1/studies/web/live") as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            lines = stream.iter_lines()
            assert next(lines).startswith(":")
            with plain_client(client.base_url) as other:
                for _ in range(3):
                    tell(other, ask(other)["id"], 7.0)
            rows = []
            for number, line in enumerate(lines):
                if line.startswith("data: "):
                    rows.append(json.loads(line[6:]))
                    if rows[-1]["tells"] == 3:
                        break
                assert number < 200
            assert rows[-1]["metrics"] == {"p99_ms": 7.0}
            assert rows[-1]["step"] == 2
            assert len(rows) <= 7


def test_watchers_are_bounded(sqlite):
    with running(sqlite, limits=Limits(streams=1)) as client:
        client.post("/v1/studies", json=STUDY)
        with client.stream("GET", "/v1/studies/web/live") as stream:
            lines = stream.iter_lines()  # kept: the connection ends with it
            next(lines)
            assert client.get("/v1/studies/web/live").status_code == 503


def test_prometheus_reads_counts_and_weights(web):
    steps(web, 6)
    tell(web, "s99")
    text = web.get("/metrics").text
    for line in (
        'rasp_asks_total{study="web"} 6.0',
        'rasp_tells_total{study="web"} 6.0',
        'rasp_late_total{study="web"} 0.0',
        'rasp_pending{study="web"} 0.0',
        'rasp_rejected_total{code="unknown_suggestion"} 1.0',
        'rasp_step_seconds_count{kind="tell"} 6.0',
        'rasp_regret_against_default{study="web"}',
    ):
        assert line in text
