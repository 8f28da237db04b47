"""OFREP: events with names and details at the edges, and keys that no flag can have."""

import itertools

import pytest
from ofrep_calls import HOST, error, evaluate, evaluate_all, track
from serving import STUDY, running, view

from rasp_tuner.service.storage.store import sqlite_url

numbers = itertools.count()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with running(sqlite_url(tmp_path_factory.mktemp("events"))) as client:
        yield client


@pytest.fixture
def made(shared):
    """A function that makes a study of its own, and gives its name once a flag of it was evaluated."""

    def make(**changes):
        name = f"web{next(numbers)}"
        shared.post("/v1/studies", json={**STUDY, "name": name, **changes}).raise_for_status()
        evaluate(shared, name, HOST).raise_for_status()
        return name

    return make


def test_metrics_may_have_the_names_of_other_fields(shared, made):
    name = made(metrics={"value": "min", "variant": "min", "failed": "max"})
    answer = track(shared, name, HOST, value=1.0, variant=2.0, failed=3.0)
    assert (answer.json()["variant"], answer.json()["status"]) == ("s0", "learned")


@pytest.mark.parametrize("nothing", [None, False])
def test_what_did_not_fail_may_say_so(shared, made, nothing):
    assert track(shared, made(), HOST, value=1.0, failed=nothing, variant=None).json()["status"] == "learned"


def test_a_failure_under_a_metric_that_is_not_there_is_refused(shared, made):
    name = made()
    assert error(track(shared, f"{name}.p98_ms", HOST, failed="out of memory")) == (400, "GENERAL")
    assert view(shared, name)["failures"] == 0
    assert track(shared, f"{name}.p99_ms", HOST, failed="out of memory").json()["status"] == "learned"


def test_a_second_outcome_is_told_what_to_do(shared, made):
    name = made()
    track(shared, name, HOST, value=1.0)
    told = track(shared, name, HOST, value=2.0)
    assert error(told) == (409, "GENERAL")
    assert told.json()["errorDetails"].endswith("with other values; evaluate the flag again before its next outcome")
    by_variant = track(shared, name, value=2.0, variant="s0")
    assert by_variant.json()["errorDetails"].endswith("with other values")


@pytest.mark.parametrize("key", ["a" * 257, "." * 1_000, "%F0%9F%90%8D" * 300])
def test_a_key_that_is_too_long_is_no_flag(shared, key):
    assert error(evaluate(shared, key, HOST)) == (404, "FLAG_NOT_FOUND")


@pytest.mark.parametrize("value", [["NZ"], {"a": 1}])
def test_a_context_that_is_no_plain_value_is_called_by_what_it_may_be(shared, made, value):
    name = made(context={"country": {"kind": "category"}})
    answer = evaluate(shared, name, {"country": value})
    assert error(answer) == (400, "INVALID_CONTEXT")
    assert "context['country'] must be a number, a text, a boolean or a time" in answer.json()["errorDetails"]


def test_a_key_that_could_be_two_flags_is_one_in_all_flags(sqlite):
    with running(sqlite) as client:
        knob = {"type": "float", "low": 0, "high": 1}
        for name, knobs in {"app": ["db", "db.size", "rest"], "app.db": ["size"]}.items():
            wanted = {"name": name, "space": dict.fromkeys(knobs, knob), "metrics": {"ms": "min"}}
            client.post("/v1/studies", json=wanted).raise_for_status()
        flags = evaluate_all(client, {"targetingKey": "host-7"}).json()["flags"]
        assert [flag["key"] for flag in flags] == ["app", "app.rest", "app.db", "app.db.size"]
        for flag in flags:
            assert evaluate(client, f"{flag['key']}?by=policy", {"targetingKey": "host-7"}).json() == flag
