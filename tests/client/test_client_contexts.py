"""Kinds of context over the client and the command line: as in the library."""

from datetime import UTC, datetime

import numpy as np
import pytest
from typer.testing import CliRunner

from rasp_tuner import Category, Flag, Float, InvalidValue, Name, Number, TimeOfDay, Tuner, Weekday
from rasp_tuner.cli import app
from rasp_tuner.client import Client, RequestRefused
from rasp_tuner.client.fallback import RecommendationCache

SPACE = {"x": Float(0, 1)}
KINDS = {"region": Category(["eu", "us"]), "user": Name(), "cached": Flag(), "at": TimeOfDay(), "day": Weekday()}
KINDS |= {"kb": Number(log=True, missing=4.0), "plan": "category"}


@pytest.fixture
def client(server):
    with Client(server.url, ask_deadline=None, timeout=20) as client:
        yield client


def test_a_study_does_what_a_tuner_does(client):
    study, tuner = client.create("context-kinds", SPACE, {"loss": "min"}, KINDS), Tuner(SPACE, {"loss": "min"}, KINDS)
    for i in range(12):
        moment = datetime(2024, 5, 1 + i, 2 * i, 30, tzinfo=UTC)
        context = {"region": "eu", "user": f"u{i % 3}", "cached": np.bool_(i % 2), "at": moment, "day": moment.date()}
        context |= {"kb": float("nan") if i == 5 else i, "plan": None if i % 2 else np.int64(i)}
        theirs, ours = study.ask(context), tuner.ask(context)
        assert theirs.params == ours.params
        for learner, id in ((study, theirs.id), (tuner, ours.id)):
            learner.tell(id, {"loss": (ours.params["x"] - 0.1 * (i % 3)) ** 2})
    with pytest.raises((InvalidValue, RequestRefused), match="day"):
        study.ask({"day": "someday"})
    with pytest.raises(InvalidValue, match=r"context\['kb'\] must be a finite number"):
        study.ask({"kb": [1]})


def test_a_fallback_finds_the_recommendation_of_the_same_text():
    known = RecommendationCache({"x": 0.0})
    known.remember({"region": "eu", "qps": 1.0, "hot": True}, {"x": 1.0})
    known.remember({"region": "us", "qps": 1.0, "hot": True}, {"x": 2.0})
    assert known.best({"region": "eu", "qps": 1.1, "hot": True}) == {"x": 1.0}
    assert known.best({"region": "us", "qps": 0.9, "hot": True}) == {"x": 2.0}
    assert known.best({"region": None, "qps": 1.0, "hot": True}) == {"x": 0.0}  # neither of the two
    assert known.best({"region": "eu", "qps": 50.0, "hot": True}) == {"x": 0.0}  # nothing is known of such a load


def test_a_load_between_two_known_ones_is_unknown():
    known = RecommendationCache({"x": 0.0})
    for qps, x in ((100.0, 1.0), (900.0, 2.0), (110.0, 1.0), (880.0, 2.0)):
        known.remember({"qps": qps}, {"x": x})
    asked = {qps: known.best({"qps": qps})["x"] for qps in (0.0, 95.0, 120.0, 300.0, 450.0, 700.0, 1000.0, 2000.0)}
    assert asked == {0.0: 0.0, 95.0: 1.0, 120.0: 1.0, 300.0: 0.0, 450.0: 0.0, 700.0: 0.0, 1000.0: 2.0, 2000.0: 0.0}


def test_the_command_line(server, client, monkeypatch, tmp_path):
    monkeypatch.setenv("RASP_URL", server.url)

    def rasp(*words):
        result = CliRunner().invoke(app, list(words))
        assert result.exit_code == 0, result.stderr
        return result.stdout

    file = tmp_path / "study.toml"
    file.write_text(
        'name = "zips"\n[space.x]\ntype = "float"\nlow = 0\nhigh = 1\n[metrics]\nloss = "min"\n'
        '[context]\nzip = "category"\ncached = "flag"\nqps = { kind = "number", log = true }\n'
    )
    assert rasp("study", "create", str(file)).endswith("rasp ask zips zip=... cached=... qps=...\n")
    assert "context  zip (category), cached (flag), qps (number)" in rasp("study", "show", "zips")
    rasp("ask", "zips", "zip=007", "cached=", "qps=1e3")
    rasp("ask", "zips", "zip=7", "cached=true", "qps=.5")
    contexts = [own["context"] for own in client.study("zips").suggestions()]
    assert {"zip": "007", "cached": None, "qps": 1000.0} in contexts
    assert {"zip": 7.0, "cached": "true", "qps": 0.5} in contexts
    assert rasp("study", "forget", "zips", "--where", "zip=007", "--yes").startswith("Erased 1 records of zips")
