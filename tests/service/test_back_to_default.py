"""A study that was sent back to its default, who did it, and the list of studies."""

import json

import pytest
from serving import STUDY, NoLog, definition, play, running, steps, view, whole

from rasp_tuner.service.limits import Limits
from rasp_tuner.service.storage.store import Store
from rasp_tuner.service.study import study_snapshot
from rasp_tuner.service.study.definition import StudyDefinition
from rasp_tuner.service.study.events import Event
from rasp_tuner.service.study.live_study import LiveStudy
from rasp_tuner.tuner import Tuner


def away_from_default(live):
    """Teach it something better than its default."""
    for i in range(40):
        asked = live.ask({"qps": 1.0}, float(i))
        loss = abs(asked.body["params"]["pool"] - 40) + 1.0
        live.tell(f"s{asked.ask}", float(i), NoLog(), {"p99_ms": float(loss)})
    return live


def test_asks_get_the_default_until_it_is_unfrozen_and_a_replay_does_the_same():
    live = away_from_default(LiveStudy(1, StudyDefinition.from_wire(STUDY), 0.0))
    default = live.definition.default
    assert live.recommend({"qps": 1.0})["params"] != default
    frozen = live.freeze(True, 50.0, default=True, by="ab12")
    assert frozen.body == {"at": "default", "by": "ab12"}
    assert live.freeze(True, 51.0, default=True, by="other") is None
    assert live.ask({"qps": 1.0}, 52.0).body["params"] == default
    restored = study_snapshot.restore(study_snapshot.capture(live)(), 1, live.definition, 0.0)
    assert whole(restored) == whole(live)
    assert restored.ask({"qps": 1.0}, 53.0).body["params"] == default
    seen = restored.view(60.0)
    assert (seen["frozen"], seen["serves"], seen["switched"]) == (True, "default", {"by": "ab12", "at": 50.0})
    restored.freeze(True, 61.0, by="cd34")
    assert restored.view(62.0)["serves"] == "recommendation"
    restored.freeze(False, 63.0, by="cd34")
    assert restored.view(64.0)["serves"] == "suggestions"
    assert [mark["kind"] for mark in restored.history.marks if "by" in mark] == ["default", "freeze", "unfreeze"]


def test_logs_with_a_study_at_its_default_are_replayed_bit_for_bit():
    live = LiveStudy(1, definition(), 0.0)
    events = play(live, 60)
    events.append(live.freeze(True, 1e3, default=True, by="ab12"))
    events += play(live, 40, seed=1)
    again = LiveStudy(1, live.definition, 0.0)
    for event in events:
        again.apply(event)
    assert whole(again) == whole(live)
    assert again.counts.diverged == 0


@pytest.mark.parametrize("body", [{"at": "nowhere"}, {"by": 7}, {"by": "x" * 65}])
def test_an_event_that_no_server_wrote_is_refused(body):
    live = LiveStudy(1, definition(), 0.0)
    with pytest.raises(ValueError, match="event 1"):
        live.apply(Event(1, "freeze", 0.0, body))
    live.apply(Event(1, "freeze", 0.0, {}))  # of version 0.1
    assert live.view(1.0)["switched"] == {"by": None, "at": 0.0}


def test_a_tuner_goes_back_to_its_default_and_remembers_that_in_a_snapshot():
    tuner = StudyDefinition.from_wire(STUDY).tuner()
    tuner.freeze(default=True)
    assert tuner.ask({"qps": 1.0}).params == STUDY["default"]
    again = Tuner.from_bytes(tuner.to_bytes())
    assert again.frozen_at_default
    assert again.to_bytes() == tuner.to_bytes()
    again.freeze()
    assert not again.frozen_at_default


def test_the_server_says_who_did_it_and_when(sqlite):
    with running(sqlite) as client:
        client.post("/v1/studies", json=STUDY)
        steps(client, 6)
        answer = client.post("/v1/studies/web/freeze", json={"at": "default"}).json()
        assert (answer["frozen"], answer["serves"], answer["switched"]["by"]) == (True, "default", "local")
        asked = client.post("/v1/studies/web/ask", json={"context": {"qps": 1.0}}).json()
        assert asked["params"] == STUDY["default"]
        assert view(client)["switched"] == answer["switched"]
        assert client.post("/v1/studies/web/freeze", json={"at": "moon"}).status_code == 422
        assert client.post("/v1/studies/web/unfreeze", json={}).json()["serves"] == "suggestions"
    store = Store(sqlite)
    assert [line["action"] for line in store.audit(10)][:2] == ["study unfrozen", "study frozen at default"]
    store.close()


def test_the_list_comes_in_pages_sorted_and_sifted(sqlite):
    with running(sqlite, limits=Limits(studies=300)) as client:
        for i in range(12):
            client.post("/v1/studies", json={**STUDY, "name": f"study-{i:02d}"}).raise_for_status()
        steps(client, 9, study="study-07")
        steps(client, 2, study="study-03")

        def names(**query):
            found = client.get("/v1/studies", params=query).json()
            assert len(json.dumps(found)) < 100_000
            return [study["name"] for study in found["studies"]], found["total"], found["loading"]

        assert names()[1:] == (12, 0)
        assert names(limit=5, offset=10) == (["study-10", "study-11"], 12, 0)
        assert names(limit=2, sort="recent") == (["study-03", "study-07"], 12, 0)
        assert names(limit=1, sort="learned") == (["study-07"], 12, 0)
        gains = {name: view(client, name)["versus_default"]["gain"]["value"] for name in ("study-03", "study-07")}
        assert gains["study-03"] != gains["study-07"]
        worst_first = sorted(gains, key=gains.__getitem__)
        assert names(limit=2, sort="gain")[0] == worst_first  # the others have none
        assert names(limit=3, sort="alerts")[1] == 12
        assert names(limit=5, find="DY-1") == (["study-10", "study-11"], 2, 0)
        for wrong in ("limit=0", "limit=10001", "offset=-1", "sort=size", "limit=x"):
            assert client.get(f"/v1/studies?{wrong}").status_code == 422
