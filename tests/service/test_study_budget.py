"""The budget and the scale of a study: how they are given, what is shown of them, and studies that have neither."""

from dataclasses import asdict

import pytest
from serving import STUDY, steps, view

from rasp_tuner import Metric, Tuner
from rasp_tuner.space import Space

BARE = {name: value for name, value in STUDY.items() if name != "default"}
OLD = {**BARE, "guard": 0.1}  # version 0.1 took a guard without a default


def made(client, **changes):
    answer = client.post("/v1/studies", json={**STUDY, **changes})
    assert answer.status_code == 201, answer.text
    return answer.json()


def test_a_study_with_a_default_has_a_budget_unless_told_otherwise(client):
    assert made(client, name="usual")["budget"] == 0.02
    assert made(client, name="none", budget=None)["budget"] is None
    assert made(client, name="own", budget=0.1, guard=0.2)["budget"] == 0.1
    assert client.post("/v1/studies", json={**BARE, "name": "bare"}).json()["budget"] is None
    paper = made(client, name="paper", preset="paper")
    assert (paper["budget"], paper["budget_report"], paper["scales"]) == (None, None, {"p99_ms": "linear"})


@pytest.mark.parametrize("option", ["guard", "budget"])
def test_what_is_measured_against_a_default_needs_one(client, option):
    answer = client.post("/v1/studies", json={**BARE, option: 0.02})
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert error["field"] == option
    assert error["message"].endswith("give that as default")
    assert client.get("/v1/studies").json()["studies"] == []


def test_the_view_and_the_reasons_are_those_of_a_tuner(client):
    metrics = {"p99_ms": {"direction": "min", "scale": "log"}}
    shown = made(client, metrics=metrics)
    assert shown["metrics"]["p99_ms"] == {"direction": "min", "weight": 1.0, "scale": "log"}
    seen = steps(client, 30)
    space = Space.from_json(shown["space"]).knobs
    tuner = Tuner(space, {"p99_ms": Metric("min", scale="log")}, ["qps"], STUDY["default"])
    for i, params in enumerate(seen):
        qps = 9.0 if i % 20 >= 10 else 1.0
        suggestion = tuner.ask({"qps": qps + 0.01 * (i % 7)})
        assert suggestion.params == params
        value = 20.0 + abs(params["pool"] - (40 if qps > 5 else 4)) + params["t"]
        tuner.tell(suggestion.id, {"p99_ms": value})
    budget, shown = tuner.budget(), view(client)
    assert shown["scales"] == {"p99_ms": "log"}
    assert shown["budget_report"] == asdict(budget)
    assert min(budget.steps, budget.spent, budget.earned, budget.left) > 0.0
    reasons = [client.get(f"/v1/studies/web/suggestions/s{i}").json() for i in range(30)]
    better = [reason["why"]["better"] for reason in reasons]
    assert better == [tuner.explain(f"s{i}").better for i in range(30)]
    told = next(reason for reason in reasons if reason["why"]["better"] is not None)
    assert told["why"]["scale"] == "log"
    assert f"Better than the default with a probability of {told['why']['better']:.0%}" in told["explanation"]


def test_prometheus_reads_the_budget_of_those_that_have_one(web):
    web.post("/v1/studies", json={**BARE, "name": "bare"}).raise_for_status()
    steps(web, 12)
    text, report = web.get("/metrics").text, view(web)["budget_report"]
    for part in ("spent", "earned", "left"):
        lines = [line for line in text.splitlines() if line.startswith(f"rasp_budget_{part}")]
        assert lines == [f'rasp_budget_{part}{{study="web"}} {report[part]}']
