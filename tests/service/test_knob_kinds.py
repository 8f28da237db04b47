"""Every kind of knob, conditions and constraints over HTTP: created, asked, told, shown, kept over a restart."""

import pytest
from serving import running

from rasp_tuner import Auto, Bool, Categorical, Float, Int, Optional, PowerOfTwo, Tuner

SPACE = {
    "journal": {"type": "categorical", "choices": ["DELETE", "WAL"]},
    "sync": {"type": "categorical", "choices": ["OFF", "NORMAL", "FULL"], "ordered": True, "when": {"journal": "WAL"}},
    "cache": {"type": "auto", "knob": {"type": "int", "low": 0, "high": 256, "log": True}},
    "limit": {"type": "auto", "knob": {"type": "float", "low": 0.5, "high": 4.0}, "word": -1},
    "mmap": {"type": "optional", "knob": {"type": "power_of_two", "low": 1, "high": 64}},
    "page": {"type": "power_of_two", "low": 512, "high": 65536},
    "ratio": {"type": "float", "low": 0.0, "high": 1.0, "digits": 2},
    "vacuum": {"type": "bool", "when": {"mmap": [None, 8]}},
}
DEFAULT = {"journal": "DELETE", "cache": "auto", "limit": -1, "mmap": None, "page": 4096, "ratio": 0.125} | {
    "vacuum": False
}
STUDY = {
    "name": "db",
    "space": SPACE,
    "metrics": {"ms": "min"},
    "default": DEFAULT,
    "constraints": ["page * cache <= 65536"],
}
KNOBS = {
    "journal": Categorical(["DELETE", "WAL"]),
    "sync": Categorical(["OFF", "NORMAL", "FULL"], ordered=True, when={"journal": "WAL"}),
    "cache": Auto(Int(0, 256, log=True)),
    "limit": Auto(Float(0.5, 4.0), word=-1),
    "mmap": Optional(PowerOfTwo(1, 64)),
    "page": PowerOfTwo(512, 65536),
    "ratio": Float(0, 1, digits=2),
    "vacuum": Bool(when={"mmap": [None, 8]}),
}


def post(client, path, **body):
    return client.post(f"/v1/studies/db/{path}", json=body)


def result(params):
    return {"ms": 5.0 + (params["cache"] == "auto") + params["ratio"] + 0.3 * (params["journal"] == "DELETE")}


def test_a_study_of_all_kinds_is_the_tuner_of_the_library_also_after_a_restart(sqlite):
    tuner = Tuner(KNOBS, {"ms": "min"}, default=DEFAULT, constraints=STUDY["constraints"])
    for start in (0, 20):
        with running(sqlite) as client:
            made = client.post("/v1/studies", json=STUDY)
            assert made.status_code == (200 if start else 201), made.text
            assert made.json()["default"] == DEFAULT
            assert made.json()["constraints"] == STUDY["constraints"]
            assert client.post("/v1/studies", json={**STUDY, "constraints": []}).status_code == 409
            for _ in range(20):
                s, own = post(client, "ask").json(), tuner.ask()
                assert s["params"] == own.params
                assert post(client, "tell", id=s["id"], metrics=result(own.params)).json()["status"] == "learned"
                tuner.tell(own.id, result(own.params))
            assert post(client, "recommend").json()["params"] == tuner.recommend()
            series = client.get("/v1/studies/db/history").json()["series"]
            assert len(series["param:page"]["mean"]) == start + 20
            assert len(series["param:cache"]["mean"]) < start + 20  # "auto" is no number


def test_what_ran_need_not_have_what_does_not_exist_beside_it(sqlite):
    with running(sqlite) as client:
        client.post("/v1/studies", json=STUDY)
        id = post(client, "ask").json()["id"]
        told = post(client, "tell", id=id, metrics={"ms": 1.0}, params={"mmap": 4})
        assert told.json()["status"] == "learned", told.text
        assert post(client, "tell", id=id, metrics={"ms": 1.0}, params={"mmap": 4}).json()["status"] == "duplicate"
        shown = client.get(f"/v1/studies/db/suggestions/{id}").json()
        assert shown["ran"] == {name: value for name, value in DEFAULT.items() if name != "vacuum"} | {"mmap": 4}
        id = post(client, "ask").json()["id"]
        refused = post(client, "tell", id=id, metrics={"ms": 1.0}, params={"journal": "WAL"})
        if "sync" not in client.get(f"/v1/studies/db/suggestions/{id}").json()["params"]:
            assert refused.status_code == 422
            assert "lacks ['sync']" in refused.json()["error"]["message"]


def test_a_request_without_digits_gets_the_usual_ones(sqlite):
    with running(sqlite) as client:
        space = {"x": {"type": "float", "low": 0, "high": 1}, "y": {"type": "auto", "knob": SPACE["limit"]["knob"]}}
        made = client.post("/v1/studies", json={"name": "db", "space": space, "metrics": {"ms": "min"}}).json()
        assert made["space"]["x"]["digits"] == made["space"]["y"]["knob"]["digits"] == 3


@pytest.mark.parametrize(
    ("change", "says", "field"),
    [
        ({"constraints": ["page * cash <= 1"]}, "has no knob 'cash'", "constraints"),
        ({"constraints": ["page <= 512"]}, "is broken by the default", "constraints"),
        ({"constraints": "page <= 512"}, "valid list", "constraints"),
        ({"space": {"x": {"type": "power_of_two", "low": 3, "high": 8}}}, "must be a power of two", "PowerOfTwo"),
        ({"space": {"x": {"type": "bool", "when": {"y": 1}}}}, "must be another knob", "space"),
        ({"space": {"x": {"type": "auto", "knob": SPACE["journal"]}}}, "takes a Float, Int or PowerOfTwo", "Auto"),
        ({"space": {"x": {"type": "float", "high": 1}}}, "missing 1 required positional argument: 'low'", "space"),
        ({"space": {"x": {"type": "int", "low": 1, "high": 9, "choices": [1]}}}, "argument 'choices'", "space"),
        ({"space": {"x": {"type": "int", "low": "1", "high": 9}}}, "space.x.low", "space.x.low"),
        ({"space": {"x": {"type": "float", "low": 0, "high": 1, "log": True}}}, "smallest value", "Float"),
        ({"default": {**DEFAULT, "sync": "OFF"}}, "exists only if 'journal' is 'WAL'", "default"),
    ],
)
def test_what_is_wrong_is_named(sqlite, change, says, field):
    with running(sqlite) as client:
        wanted = {**STUDY, **change}
        if "space" in change:
            wanted = {"name": "db", "metrics": {"ms": "min"}, **change}
        answer = client.post("/v1/studies", json=wanted)
        assert answer.status_code == 422, answer.text
        assert says in answer.json()["error"]["message"]
        assert answer.json()["error"]["field"].startswith(field)
