"""`rasp serve --open run.rasp`: a saved tuner as a study."""

import os
import re
import subprocess
import sys

import httpx
import numpy as np
import pytest
from serving import NoLog, Process, running, steps, view, whole
from typer.testing import CliRunner

from rasp_tuner import Auto, Bool, Category, ContextShield, Float, Int, Metric, Tuner, presets
from rasp_tuner.cli import app
from rasp_tuner.errors import InvalidValue
from rasp_tuner.service.storage.opening import open_tuner
from rasp_tuner.service.storage.store import Store
from rasp_tuner.service.storage.study_loader import load_study
from rasp_tuner.service.study import study_snapshot

SPACE = {"pool": Int(1, 64, log=True), "t": Float(0.1, 10.0)}
TODAY = {"pool": 8, "t": 1.0}
NDJSON = {"content-type": "application/x-ndjson"}


def taught(count=40, metrics=None, **settings):
    tuner, rng = Tuner(SPACE, metrics or {"p99_ms": "min"}, ["qps"], TODAY, **settings), np.random.default_rng(0)
    for step in range(count):
        qps = 9.0 if step % 20 >= 10 else 1.0
        s = tuner.ask({"qps": qps})
        if step == 7:
            tuner.tell_failed(s.id, "out of memory")
            continue
        value = 20.0 + abs(s.params["pool"] - (40 if qps > 5 else 4)) + s.params["t"] + float(rng.normal())
        tuner.tell(s.id, dict.fromkeys(metrics or {"p99_ms": "min"}, value))
    return tuner


def opened(url, tuner, name="run"):
    store = Store(url)
    try:
        open_tuner(store, tuner.to_bytes(), name)
    finally:
        store.close()


def loaded(url, name="run", snapshots=True):
    """The study as a server would load it, by its snapshot or by its log alone."""
    store = Store(url)
    try:
        (row,) = [row for row in store.studies() if row.name == name]
        if not snapshots:
            store.snapshots = lambda _: iter(())
        return load_study(store, row)
    finally:
        store.close()


def test_the_study_goes_on_as_the_tuner_would(database):
    tuner = taught()
    opened(database, tuner)
    with running(database) as client:
        seen = view(client, "run")
        assert (seen["learned"], seen["asks"], seen["tells"], seen["failures"]) == (40, 40, 39, 1)
        assert (seen["pending"], seen["expired"], seen["default"]) == (0, 0, TODAY)
        assert seen["budget_report"]["steps"] == tuner.budget().steps
        for step in range(5):
            theirs = tuner.ask({"qps": 9.0})
            ours = client.post("/v1/studies/run/ask", json={"context": {"qps": 9.0}}).json()
            assert (ours["id"], ours["params"]) == (theirs.id, theirs.params)
            metrics = {"p99_ms": 30.0 + step}
            assert client.post("/v1/studies/run/tell", json={"id": ours["id"], "metrics": metrics}).json() == {
                "id": theirs.id,
                "status": "learned",
                "late": False,
            }
            tuner.tell(theirs.id, metrics)
        body = {"context": {"qps": 1.0}}
        assert client.post("/v1/studies/run/recommend", json=body).json()["params"] == tuner.recommend({"qps": 1.0})
    live = loaded(database)
    assert live.tuner.recommend({"qps": 9.0}) == tuner.recommend({"qps": 9.0})


def test_what_the_snapshot_remembers_is_listed_and_charted(sqlite):
    tuner = taught()
    opened(sqlite, tuner)
    with running(sqlite) as client:
        listed = client.get("/v1/studies/run/suggestions").json()["suggestions"]
        assert [s["id"] for s in listed] == [f"s{i}" for i in reversed(range(40))]
        newest = listed[0]
        why = tuner.explain("s39")
        assert (newest["params"], newest["metrics"]) == (why.params, {"p99_ms": why.error})
        assert newest["explanation"] == str(why)
        assert (listed[32]["status"], listed[32]["reason"]) == ("failed", "out of memory")
        charts = client.get("/v1/studies/run/history").json()
        assert charts["steps"] == 40
        assert len(charts["series"]["metric:p99_ms"]["mean"]) == 39
        assert charts["calibration"]["count"] > 20
        assert charts["regimes"] == []
        assert {"step": 7, "kind": "failed"}.items() <= charts["events"][0].items()
        before = charts["gain_total"]
        steps(client, 3, study="run")
        charts = client.get("/v1/studies/run/history").json()
        assert (charts["steps"], charts["regimes"][0]["from"], charts["regimes"][-1]["to"]) == (43, 40, 42)
        assert charts["gain_total"] != before
        slots = client.get("/v1/studies/run/memory").json()["slots"]
        assert all(0 <= slot["last_visit"] < 43 for slot in slots)


def test_the_log_alone_rebuilds_it_bit_for_bit(sqlite):
    opened(sqlite, taught())
    with running(sqlite) as client:
        steps(client, 12, study="run")
    assert whole(loaded(sqlite)) == whole(loaded(sqlite, snapshots=False))


def test_it_can_be_exported_imported_and_partly_erased(sqlite):
    opened(sqlite, taught())
    with running(sqlite) as client:
        steps(client, 12, study="run")
        exported = client.get("/v1/studies/run/export").content
        made = client.post("/v1/studies/import?name=copy", content=exported, headers=NDJSON)
        assert made.status_code == 201, made.text
        assert (view(client, "copy")["learned"], view(client, "copy")["tells"]) == (52, 51)
        erased = client.post("/v1/studies/run/forget", json={"ids": ["s45"]}).json()
        assert erased["erased"] == 1
        assert view(client, "run")["learned"] == 51
        steps(client, 3, study="run")
        assert view(client, "run")["learned"] == 54


def test_suggestions_that_waited_count_as_expired_and_cannot_be_answered(sqlite):
    tuner = taught()
    waiting = tuner.ask({"qps": 9.0})
    opened(sqlite, tuner)
    with running(sqlite) as client:
        seen = view(client, "run")
        assert (seen["asks"], seen["pending"], seen["expired"]) == (41, 0, 1)
        assert client.get("/v1/studies/run/suggestions").json()["suggestions"][0]["status"] == "expired"
        answer = client.post("/v1/studies/run/tell", json={"id": waiting.id, "metrics": {"p99_ms": 1.0}})
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_suggestion")
        assert steps(client, 1, study="run")


TUNERS = {
    "several metrics": lambda: taught(metrics={"p99_ms": "min", "cost": Metric("min", weight=2.0)}),
    "limit": lambda: taught(metrics={"p99_ms": "min", "memory": Metric("min", max=100)}),
    "paper": lambda: taught(5, preset="paper"),
    "screened": lambda: taught(screen=True, guard=0.5, switching_cost=0.25, seed=7),
    "new": lambda: taught(0),
    "observed": lambda: observed(),
    "kinds": lambda: Tuner(
        {"cache": Auto(Int(1, 64)), "level": Int(1, 9, when={"on": [True]}), "on": Bool()},
        {"ms": "max"},
        {"region": Category()},
        constraints=["level <= 8"],
    ),
}


def observed():
    tuner = taught(0)
    for i in range(10):
        tuner.observe({"qps": 1.0}, {"pool": 1 + i, "t": 1.0}, {"p99_ms": 20.0 + i})
    return tuner


@pytest.mark.parametrize("kind", TUNERS)
def test_tuners_of_all_kinds_can_be_opened(sqlite, kind):
    tuner = TUNERS[kind]()
    opened(sqlite, tuner)
    live = loaded(sqlite)
    assert live.tuner.to_bytes() == tuner.to_bytes()
    seen = live.view(0.0)
    assert seen["learned"] == tuner.learned == seen["tells"] + seen["failures"] + seen["observations"]
    assert seen["asks"] == seen["pending"] + seen["expired"] + seen["tells"] + seen["failures"]
    context = {"region": "eu"} if kind == "kinds" else {"qps": 1.0}
    theirs = tuner.ask(context)
    assert live.ask(context, 1e9).body["params"] == theirs.params
    metrics = dict.fromkeys(live.definition.metrics, 25.0)
    live.tell(theirs.id, 1e9, NoLog(), metrics)
    tuner.tell(theirs.id, metrics)
    assert live.tuner.to_bytes() == tuner.to_bytes()
    assert study_snapshot.restore(study_snapshot.capture(live)(), 1, live.definition, 0.0).tuner.asked == tuner.asked


def test_the_same_file_again_goes_on_and_another_one_needs_another_name(sqlite):
    tuner = taught()
    opened(sqlite, tuner)
    with running(sqlite) as client:
        steps(client, 2, study="run")
    opened(sqlite, tuner)
    assert loaded(sqlite).tuner.learned == 42
    with pytest.raises(InvalidValue, match=r"there is a study 'run' already.*--name"):
        opened(sqlite, taught(3))
    opened(sqlite, taught(3), "other")
    assert loaded(sqlite, "other").tuner.learned == 3


def test_a_tuner_with_constants_of_its_own_is_refused(sqlite):
    with pytest.raises(InvalidValue, match="another preset than a study can have"):
        opened(sqlite, Tuner(SPACE, {"ms": "min"}, preset=presets.paper(base_step=0.25)))


def rasp(*words):
    return CliRunner().invoke(app, list(map(str, words)))


def test_what_cannot_be_opened_is_said_in_one_line(tmp_path):
    text, shielded, plain = tmp_path / "notes.txt", tmp_path / "shielded.rasp", tmp_path / "run.rasp"
    text.write_text("no snapshot")
    Tuner(SPACE, {"ms": "min"}, ["qps"], TODAY, shield=ContextShield({"qps": (0.0, 10.0)}, key="k" * 32)).save(shielded)
    taught(3).save(plain)
    for words, said in (
        (["--open", tmp_path / "none.rasp"], "none.rasp"),
        (["--open", text], "not a RASP-Tuner snapshot"),
        (["--open", shielded], "a tuner with a shield"),
        (["--open", plain, "--name", "a/b"], "name must be"),
    ):
        refused = rasp("serve", "--port", 0, *words)
        assert (refused.exit_code, refused.stderr.count("\n")) == (1, 1), refused.stderr
        assert said in refused.stderr
    assert rasp("serve").exit_code == 2
    assert rasp("serve", "--data", tmp_path, "--name", "web").exit_code == 2


def test_the_command_prints_the_page_and_serves_it(tmp_path):
    file = tmp_path / "my run.rasp"
    taught().save(file)
    server = Process(tmp_path / "data", "--open", str(file), "--without-browser")
    try:
        with httpx.Client(base_url=server.url) as client:
            assert view(client, "my-run")["learned"] == 40
            assert client.get("/studies/my-run").status_code == 200
    finally:
        said, status = server.stop()
    assert (f"{server.url}/studies/my-run" in said, "is gone" in said, status) == (True, False, 0)


def test_without_a_folder_nothing_is_left_behind(tmp_path):
    file = tmp_path / "run.rasp"
    taught(3).save(file)
    command = [sys.executable, "-m", "rasp_tuner", "serve", "--open", file, "--port", "0", "--without-browser"]
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        said = process.stderr.readline()  # once it answers
        page = re.search(r"http://[^ ]+", said)[0]
        assert httpx.get(page).status_code == 200
        assert len(list(temporary.iterdir())) == 1
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert f"run.rasp is at {page} until Ctrl-C; what it learns here is gone" in said
    assert list(temporary.iterdir()) == []
