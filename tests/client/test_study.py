"""The client against a real server: it is the library, over HTTP."""

import gc
import json
import subprocess
import sys
import threading
import time
from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from rasp_tuner import (
    AlreadyAnswered,
    Categorical,
    Float,
    Int,
    InvalidSpace,
    InvalidValue,
    Metric,
    Tuner,
    UnknownSuggestion,
)
from rasp_tuner.client import Client, Conflict, RequestRefused, UnknownStudy, is_fallback
from rasp_tuner.types import KnobShares

SPACE = {
    "pool": Int(1, 64, log=True),
    "timeout_s": Float(0.1, 10.0, log=True),
    "codec": Categorical(["lz4", "zstd", None, 3]),
}
METRICS = {"p99_ms": "min", "throughput": Metric("max", weight=0.5)}
DEFAULT = {"pool": 8, "timeout_s": 1.0, "codec": "lz4"}
names = (f"study-{i}" for i in count())


def undated(why):
    """An explanation without moments, which a tuner in this process does not know."""
    return why if why.seen is None else replace(why, seen=replace(why.seen, at=None, last_at=None))


@pytest.fixture
def client(server):
    with Client(server.url, ask_deadline=None, timeout=20) as client:
        yield client


@pytest.fixture
def study(client):
    return client.create(next(names), SPACE, METRICS, ["qps"], DEFAULT)


def run(params, busy):
    queue = abs(np.log(params["pool"] / (40 if busy else 4))) + 0.1 * abs(np.log(params["timeout_s"]))
    queue += 0.2 * (params["codec"] != "zstd")
    return {"p99_ms": 20.0 + 10 * queue, "throughput": 900.0 - queue}


def test_it_answers_what_a_tuner_in_this_process_would(study):
    tuner = Tuner(SPACE, METRICS, ["qps"], DEFAULT)
    for step in range(30):
        context = {"qps": 9.0 if step % 10 > 4 else 1.0}
        ours, theirs = study.ask(context), tuner.ask(context)
        assert ours == theirs
        metrics = run(ours.params, context["qps"] > 5)
        assert study.tell(ours.id, metrics).status == "learned"
        tuner.tell(theirs.id, metrics)
        assert undated(study.explain(ours.id)) == tuner.explain(theirs.id)
    assert study.recommend({"qps": 9.0}) == tuner.recommend({"qps": 9.0})


def test_create_again_is_the_same_study_and_another_definition_a_conflict(client, study):
    study.ask({"qps": 1.0})
    assert client.create(study.name, SPACE, METRICS, ["qps"], DEFAULT).view()["asks"] == 1
    with pytest.raises(Conflict, match=study.name):
        client.create(study.name, SPACE, METRICS, ["qps"], DEFAULT, seed=3)
    assert study.name in [view["name"] for view in client.studies()]


def test_budget_and_scales_are_those_of_a_tuner_in_this_process(client):
    metrics = {"p99_ms": Metric("min", scale="log")}
    study = client.create(next(names), SPACE, metrics, ["qps"], DEFAULT, budget=0.05)
    tuner = Tuner(SPACE, metrics, ["qps"], DEFAULT, budget=0.05)
    for step in range(20):
        context = {"qps": 9.0 if step % 10 > 4 else 1.0}
        ours, theirs = study.ask(context), tuner.ask(context)
        told = {"p99_ms": run(ours.params, context["qps"] > 5)["p99_ms"]}
        study.tell(ours.id, told)
        tuner.tell(theirs.id, told)
    assert study.budget() == tuner.budget()
    assert study.budget().share == 0.05
    assert study.scales == tuner.scales == {"p99_ms": "log"}
    assert client.create(next(names), SPACE, metrics, ["qps"], DEFAULT, budget=None).budget() is None
    with pytest.raises(InvalidSpace, match="give that as default"):
        client.create(next(names), SPACE, metrics, ["qps"], budget=0.05)


def test_savings_and_controls_are_those_of_a_tuner_in_this_process(client):
    study = client.create(next(names), SPACE, METRICS, ["qps"], DEFAULT, holdout=0.4)
    tuner = Tuner(SPACE, METRICS, ["qps"], DEFAULT, holdout=0.4)
    assert study.versus_default() is None
    for step in range(40):
        context = {"qps": 9.0 if step % 10 > 4 else 1.0}
        ours, theirs = study.ask(context), tuner.ask(context)
        assert ours == theirs
        metrics, control = (run(params, context["qps"] > 5) for params in (ours.params, DEFAULT))
        beside = control if step >= 30 else None
        if step % 2:
            study.tell(ours.id, metrics, control=beside)
        else:
            told = {"id": ours.id, "metrics": metrics, **({} if beside is None else {"control": beside})}
            assert study.tell_batch([told])[0].status == "learned"
        tuner.tell(theirs.id, metrics, control=beside)
    assert study.versus_default() == tuner.versus_default()
    assert tuner.savings().held_out > 0
    assert tuner.savings().paired > 0
    last = study.ask({"qps": 1.0})
    with pytest.raises(InvalidValue, match="control"):
        study.tell(last.id, metrics, control={"other": 1.0})
    study.tell_later(last.id, metrics, control=control)
    assert study.flush()
    assert study.suggestion(last.id)["control"] == control


def test_a_definition_can_be_given_as_the_wire_has_it(client):
    wire = {"x": {"type": "float", "low": 0.0, "high": 1.0, "step": 0.25}, "y": Int(0, 3)}
    study = client.create(
        next(names), wire, {"loss": {"direction": "min"}}, 2, {"x": 0.5, "y": 1}, lease_s=60.0, guard=0.1
    )
    assert study.view()["space"]["y"] == {"type": "int", "low": 0, "high": 3, "log": False, "step": 1}
    assert study.view()["lease_s"] == 60.0
    assert study.ask(np.array([1, 2], dtype=np.int32)).params == {"x": 0.5, "y": 1}


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"space": {}}, InvalidSpace, "space"),
        ({"space": {"x": {"type": "int", "low": 3, "high": 1}}}, InvalidSpace, "low"),
        ({"metrics": {"p99_ms": "lowest"}}, InvalidSpace, "p99_ms"),
        ({"default": {"pool": 8}}, InvalidSpace, "default"),
        ({"default": {"pool": object()}}, InvalidValue, "pool"),
        ({"preset": "magic"}, InvalidSpace, "preset"),
        ({"nonsense": 1}, InvalidSpace, "nonsense"),
        ({"name": "a/b"}, InvalidSpace, "name"),
    ],
)
def test_a_bad_definition_names_the_field(client, change, error, words):
    given = {"name": next(names), "space": SPACE, "metrics": METRICS, "default": DEFAULT, **change}
    with pytest.raises(error, match=words):
        client.create(**given)


def test_bad_input_raises_the_librarys_errors_and_changes_nothing(study):
    suggestion = study.ask({"qps": 1.0})
    before = study.view()
    with pytest.raises(InvalidValue, match="context"):
        study.ask({"load": 1.0})
    with pytest.raises(InvalidValue, match="context"):
        study.ask("qps")
    with pytest.raises(InvalidValue, match="throughput"):
        study.tell(suggestion.id, {"p99_ms": 3.0})
    with pytest.raises(InvalidValue, match="p99_ms"):
        study.tell(suggestion.id, {"p99_ms": float("nan"), "throughput": 1.0})
    with pytest.raises(UnknownSuggestion, match="s99"):
        study.tell("s99", {"p99_ms": 3.0, "throughput": 1.0})
    with pytest.raises(UnknownSuggestion):
        study.explain("not-an-id")
    with pytest.raises(InvalidValue, match="id"):
        study.tell(7, {"p99_ms": 3.0, "throughput": 1.0})
    with pytest.raises(InvalidValue, match="pool"):
        study.observe({"qps": 1.0}, {**DEFAULT, "pool": 65}, {"p99_ms": 3.0, "throughput": 1.0})
    assert study.view() == before


def test_a_tell_counts_once(study):
    suggestion = study.ask({"qps": 1.0})
    metrics = {"p99_ms": np.float32(3.0), "throughput": 1}
    assert study.tell(suggestion.id, metrics).status == "learned"
    assert study.tell(suggestion.id, metrics).status == "duplicate"
    with pytest.raises(AlreadyAnswered):
        study.tell(suggestion.id, {"p99_ms": 4.0, "throughput": 1})
    with pytest.raises(AlreadyAnswered):
        study.tell_failed(suggestion.id, "no")
    assert study.view()["tells"] == 1


def test_the_other_calls(study):
    first, second = study.ask_batch([{"qps": 1.0}, {"qps": 2.0}])
    third = study.ask([3.0])
    metrics = {"p99_ms": 3.0, "throughput": 1.0}
    results = study.tell_batch([{"id": first.id, "metrics": metrics}, {"id": "s99", "metrics": metrics}])
    assert [result.status for result in results] == ["learned", "rejected"]
    assert "s99" in results[1].error
    assert [result.status for result in study.tell_batch({first.id: metrics})] == ["duplicate"]
    assert study.tell_failed(second.id, "out of memory").status == "learned"
    assert study.observe({"qps": 5.0}, {**DEFAULT, "pool": np.int64(9)}, metrics, key="run 1") == "learned"
    assert study.observe({"qps": 5.0}, {**DEFAULT, "pool": 9}, metrics, key="run 1") == "duplicate"
    assert study.observe({"qps": 5.0}, {**DEFAULT, "pool": 9}, metrics) == "learned"
    study.freeze()
    view = study.view()
    assert view["frozen"]
    assert [view[name] for name in ("asks", "tells", "failures", "observations", "pending")] == [3, 1, 1, 2, 1]
    study.unfreeze()
    assert not study.view()["frozen"]
    assert [(s["id"], s["status"]) for s in study.suggestions(2)] == [(third.id, "pending"), (second.id, "failed")]
    assert study.history(10)["steps"] == 4
    assert "out of memory" in str(study.explain(second.id))


def test_tell_later_is_sent_in_the_background(client, study):
    suggestion = study.ask({"qps": 1.0})
    assert study.tell_later(suggestion.id, {"p99_ms": 3.0, "throughput": 1.0}).status == "queued"
    assert client.flush(10)
    assert study.view()["tells"] == 1
    study.tell_later(suggestion.id, {"p99_ms": 4.0, "throughput": 1.0})  # refused: it was told otherwise
    assert client.flush(10)
    assert client.dropped == 1


def test_an_unknown_study(client, study):
    with pytest.raises(UnknownStudy, match="nowhere"):
        client.study("nowhere")
    study.delete()
    with pytest.raises(UnknownStudy):
        study.ask({"qps": 1.0})


def test_many_threads_share_a_study(server, study):
    with Client(server.url, ask_deadline=10.0, timeout=30) as client:
        shared = client.study(study.name)
        failures = []

        def work():
            try:
                for _ in range(15):
                    suggestion = shared.ask({"qps": 1.0})
                    assert not is_fallback(suggestion.id)
                    shared.tell(suggestion.id, {"p99_ms": 3.0, "throughput": 1.0})
            except Exception as error:  # noqa: BLE001 - shown below
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []
    view = study.view()
    assert (view["asks"], view["tells"], view["pending"]) == (120, 120, 0)


def test_live_rows_come_as_steps_are_told(study):
    rows = study.live()
    assert next(rows)["observations"] == 0  # where the study stands
    got = []
    watching = threading.Thread(target=lambda: got.append(next(rows)))
    watching.start()
    while watching.is_alive():
        study.observe({"qps": 1.0}, DEFAULT, {"p99_ms": 3.0, "throughput": 1.0})
        watching.join(0.1)
    rows.close()
    assert got[0]["metrics"] == {"p99_ms": 3.0, "throughput": 1.0}
    assert got[0]["observations"] >= 1


def test_what_the_client_itself_refuses(server):
    for url in (
        "127.0.0.1:8321",
        "ftp://x",
        "http://",
        "http://x:y",
        "http://x:99999",
        "http://[::1",
        "http://a:b@c",
        3,
    ):
        with pytest.raises(InvalidValue, match="url must look like"):
            Client(url)
    for key in ("", "rasp_a_b\n", "two words", "rasp_\u00e9", 7):
        with pytest.raises(InvalidValue, match="key must be one word"):
            Client(server.url, key)
    with pytest.raises(InvalidValue, match="timeout"):
        Client(server.url, timeout=0)
    with pytest.raises(InvalidValue, match="ask_deadline"):
        Client(server.url, ask_deadline=-1)
    client = Client(server.url, "rasp_1_secret")
    assert "secret" not in repr(client)
    client.close()
    with pytest.raises(RequestRefused, match="closed"):
        client.studies()


def test_a_client_made_before_a_fork_works_in_the_child(server, study):
    code = """
import os, sys
from rasp_tuner.client import Client, is_fallback
client = Client(sys.argv[1], ask_deadline=5.0)
study = client.study(sys.argv[2])
[study.ask({"qps": 1.0}) for _ in range(3)]  # its threads and connections are there
child = os.fork()
suggestion = study.ask({"qps": 1.0})
assert not is_fallback(suggestion.id), suggestion
study.tell_later(suggestion.id, {"p99_ms": 3.0, "throughput": 1.0})
assert client.flush(10)
if child:
    sys.exit(os.waitpid(child, 0)[1])
"""
    words = [sys.executable, "-W", "ignore", "-c", code, server.url, study.name]
    result = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert (study.view()["asks"], study.view()["tells"]) == (5, 2)


def test_what_ran_is_learned_as_a_tuner_in_this_process_would(client, study):
    tuner = Tuner(SPACE, METRICS, ["qps"], DEFAULT)
    tells = [
        lambda id, metrics, ran: study.tell(id, metrics, ran).status,
        lambda id, metrics, ran: study.tell_later(id, metrics, params=ran).status,
        lambda id, metrics, ran: study.tell_batch([{"id": id, "metrics": metrics, "params": ran}])[0].status,
    ]
    for step in range(15):
        context = {"qps": 9.0 if step % 10 > 4 else 1.0}
        ours, theirs = study.ask(context), tuner.ask(context)
        assert ours == theirs
        ran = {"pool": np.int64(2 ** (step % 7)), "codec": None} if step % 5 else None
        metrics = run({**ours.params, **(ran or {})}, context["qps"] > 5)
        assert tells[step % 3](ours.id, metrics, ran) in ("learned", "queued")
        assert client.flush(10)
        tuner.tell(theirs.id, metrics, ran)
        assert undated(study.explain(ours.id)) == tuner.explain(theirs.id)
    assert study.recommend({"qps": 9.0}) == tuner.recommend({"qps": 9.0})


def test_it_says_which_knobs_a_gain_comes_from_where_a_tuner_in_this_process_would(client):
    knobs, rng = {"cache": Int(1, 64, log=True), "idle": Categorical(["a", "b"])}, np.random.default_rng(0)
    default = {"cache": 8, "idle": "a"}
    given = knobs, {"ms": "min"}, ["qps"], default
    tuner, study = Tuner(*given), client.create(next(names), *given)
    for step in range(40):
        params = {"cache": [8, 64][step % 2], "idle": "ab"[step // 2 % 2]}
        ms = 10.0 / params["cache"] * float(np.exp(0.05 * rng.normal()))
        for one in (tuner, study):
            one.observe({"qps": 1.0}, params, {"ms": ms})
    for one in (tuner, study):
        one.freeze()
    here, there = tuner.explain(tuner.ask({"qps": 1.0}).id), study.explain(study.ask({"qps": 1.0}).id)
    assert here.knobs.shares == {"cache": 1.0}
    assert there.knobs == here.knobs
    [found] = study.situations()
    assert KnobShares.from_json(found["knobs"]) == tuner.situations()[0].knobs
    assert str(found) == str(tuner.situations()[0])
    assert json.loads(json.dumps(found)) == found


def test_what_ran_counts_once_and_is_checked(study):
    first, second, third = (study.ask({"qps": 1.0}) for _ in range(3))
    metrics = {"p99_ms": 3.0, "throughput": 1.0}
    assert study.tell(first.id, metrics, {"pool": 16}).status == "learned"
    assert study.tell(first.id, metrics, {"pool": 16}).status == "duplicate"
    with pytest.raises(AlreadyAnswered):
        study.tell(first.id, metrics)
    assert study.tell_failed(second.id, "crash", {"pool": 64}).status == "learned"
    assert study.explain(second.id).ran["pool"] == 64
    before = study.view()
    for params, words in (({"pool": 65}, "pool"), ({"pool": object()}, "pool"), ({"no": 1}, "no"), ([1], "params")):
        with pytest.raises(InvalidValue, match=words):
            study.tell(third.id, metrics, params)
        with pytest.raises(InvalidValue, match=words):
            study.tell_failed(third.id, params=params)
    assert study.view() == before


def test_a_limit_travels_and_the_recommendation_names_its_margin(client):
    metrics = {"cost": "min", "p99_ms": Metric("min", max=200.0), "rate": Metric("max", at_least="0.5 default")}
    study = client.create(next(names), {"x": Float(0.0, 1.0)}, metrics, None, {"x": 0.9})
    tuner = Tuner({"x": Float(0.0, 1.0)}, metrics, None, {"x": 0.9})
    for _ in range(15):
        ours, theirs = study.ask(), tuner.ask()
        assert ours == theirs
        x = ours.params["x"]
        told = {"cost": x, "p99_ms": 100.0 / (0.1 + x), "rate": 10.0 + x}
        study.tell(ours.id, told)
        tuner.tell(theirs.id, told)
    assert study.margins() == tuner.margins()
    assert set(study.margins()) == {"p99_ms", "rate"}
    with pytest.raises(InvalidSpace, match="has no min"):
        client.create(
            next(names), {"x": Float(0.0, 1.0)}, {"cost": "min", "p99_ms": {"direction": "min", "min": 3}}, None
        )


def client_threads():
    return [thread for thread in threading.enumerate() if thread.name == "rasp-client"]


@pytest.mark.parametrize("closed", [True, False])
def test_the_thread_of_a_client_ends_with_it(server, closed):
    before = len(client_threads())
    client = Client(server.url)
    views, at_work = client.studies(), client_threads()
    assert len(at_work) == before + 1
    if closed:
        client.close()
        client.close()  # once more does no harm
    del client, views
    gc.collect()
    for thread in at_work[before:]:
        thread.join(60.0)
    assert len(client_threads()) == before


def test_a_call_that_waits_ends_when_another_thread_closes_the_client(bad_server):
    client, ended = Client(bad_server(lambda _: time.sleep(600)).url, timeout=500), []

    def wait():
        try:
            client.studies()
        except RequestRefused as error:
            ended.append(str(error))

    waiting = threading.Thread(target=wait)
    waiting.start()
    while not client_threads():
        time.sleep(0.01)
    time.sleep(0.2)
    client.close()
    waiting.join(60.0)
    assert ended == [f"this client of {client.url} was closed"]
