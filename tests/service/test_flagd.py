"""A policy as flags of flagd, evaluated by flagd's own evaluator from npm: it gives what ours gives."""

import json
import math
import subprocess
from collections import Counter

import npm_packages
import numpy as np
import pytest
from serving import running
from typer.testing import CliRunner

from rasp_tuner import Category, Float, Int, Number, Tuner
from rasp_tuner.cli import app
from rasp_tuner.errors import InvalidValue
from rasp_tuner.policy.evaluate import pick_of
from rasp_tuner.policy.flagd import flagd_flags

KINDS = {
    "qps": Number(), "mem": Number(missing=0.0), "region": Category(["eu", "us", "7"]), "beta": "flag",
    "at": "time of day", "day": "weekday",
}  # fmt: skip


@pytest.fixture(scope="module")
def evaluator():
    """A function that has flagd's evaluator decide: flags and lines -> what it gives for each."""
    folder = npm_packages.installed("flagd")

    def evaluate(flags, lines, tmp_path):
        file = tmp_path / "flags.json"
        file.write_text(json.dumps(flags, separators=(",", ":")))
        words = ["node", str(folder / "evaluate.mjs"), str(file)]
        given = "\n".join(json.dumps(line) for line in lines)
        done = subprocess.run(words, input=given, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return evaluate


def setting(params, weight):
    return {"params": params, "weight": weight, "stake": 0.0}


def leaf(number, *settings):
    return {"leaf": number, "params": settings[0]["params"], "settings": list(settings)}


def knobs(pool, codec="lz4"):
    return {"pool": pool, "codec": codec, "fast": pool > 8, "gone": None}


def a_policy():
    """Every kind of test, of shares, and of knob."""
    tests = [
        {"field": "qps", "at_most": 500.5},
        {"field": "mem", "at_most": 3.0, "missing": True},
        {"field": "region", "in": ["eu", "7"]},
        {"field": "beta", "in": ["true"], "missing": True},
        {"field": "at", "at_most": 43_200.0},
        {"field": "day", "in": ["Saturday", "Sunday"]},
        {"field": "region", "missing": True},
    ]
    tree = leaf(len(tests), setting(knobs(9), 10_000))
    for number, test in reversed(list(enumerate(tests))):
        pool = 2 * number + 1
        shares = (setting(knobs(pool), 6000), setting(knobs(pool, "zstd"), 3999), setting(knobs(60), 1))
        tree = {"if": test, "then": leaf(number, *shares), "else": tree}
    fields = [
        {"name": "qps", "kind": "number"}, {"name": "mem", "kind": "number", "missing": 0.0},
        {"name": "region", "kind": "category"}, {"name": "beta", "kind": "flag"},
        {"name": "at", "kind": "time of day"}, {"name": "day", "kind": "weekday"},
    ]  # fmt: skip
    return {
        "format": "rasp-policy", "version": 1, "context": fields, "default": knobs(16), "tree": tree,
        "explore": {"version": "v1", "salt": "salt"},
    }  # fmt: skip


def contexts(rng, count):
    """Contexts of all kinds; about one in ten is wrong."""
    for i in range(count):
        choices = {
            "qps": [float(rng.uniform(0, 1000)), 500.5, 700, 0],
            "mem": [float(rng.uniform(0, 6)), 3, 0, None],
            "region": ["eu", "us", "7", 7, "asia", None],
            "beta": [True, False, "yes", "no", "On", None, 1, 0],
            "at": [int(rng.integers(86_400)), 43_200, None],
            "day": ["Sunday", "sat", "Monday", "wed", 6, 2, None],
        }
        context = {name: own[rng.integers(len(own))] for name, own in choices.items()}
        if i % 10 == 0:
            wrong = {
                "qps": [None, "many"],
                "mem": ["much"],
                "beta": ["perhaps"],
                "at": [-1, 90_000, "noon"],
                "day": ["x", 9],
            }
            name = list(wrong)[rng.integers(len(wrong))]
            context[name] = wrong[name][rng.integers(len(wrong[name]))]
        yield {name: value for name, value in context.items() if value is not None}


def variant_of(pick):
    if pick.leaf < 0:
        return "default"
    return f"{pick.leaf}.{pick.setting}" + ("" if pick.probability is None else f":{pick.probability:g}")


def test_flagd_gives_what_our_evaluator_gives(evaluator, tmp_path):
    policy, rng = a_policy(), np.random.default_rng(0)
    seen = list(contexts(rng, 4000))
    keys = [None if i % 17 == 0 else f"user-{rng.integers(10**6)}" for i in range(len(seen))]
    picks = [pick_of(policy, context, key) for context, key in zip(seen, keys, strict=True)]
    types = {"web": "object", "web.pool": "number", "web.codec": "string", "web.fast": "boolean"}
    lines = []
    for i, (context, key) in enumerate(zip(seen, keys, strict=True)):
        flag = list(types)[i % 4]
        attributes = {**context, "user_agent": "curl"} | ({} if key is None else {"targetingKey": key})
        lines.append({"flag": flag, "type": types[flag], "context": attributes})
    found = evaluator(flagd_flags(policy, "web"), lines, tmp_path)
    assert len(found) == len(picks)
    for line, pick, one in zip(lines, picks, found, strict=True):
        knob = line["flag"].partition(".")[2]
        wanted = pick.params[knob] if knob else pick.params
        if any(isinstance(line["context"].get(name), str) for name in ("qps", "mem", "at")):
            assert one["reason"] in ("ERROR", "DEFAULT")  # ERROR: the caller's own default runs
            assert pick.leaf < 0
            continue
        assert (one["value"], one["variant"]) == (wanted, variant_of(pick)), line
        assert one["flagMetadata"] == {"policy": "v1", "study": "web"}
        assert one["reason"] == ("DEFAULT" if pick.leaf < 0 else "TARGETING_MATCH")
    seen_leaves = Counter(pick.leaf for pick in picks)
    assert set(seen_leaves) == set(range(-1, 8))
    assert {pick.probability for pick in picks} >= {None, 0.6, 0.3999, 1.0}


def test_shares_are_those_that_the_variants_state_and_a_key_keeps_its_setting(evaluator, tmp_path):
    policy, count = a_policy(), 20_000
    lines = [{"flag": "web", "context": {"qps": 1.0, "targetingKey": f"user-{i}"}} for i in range(count)]
    found = [one["variant"] for one in evaluator(flagd_flags(policy, "web"), [*lines, *lines[:500]], tmp_path)]
    assert found[count:] == found[:500]
    for variant, often in Counter(found[:count]).items():
        stated = float(variant.partition(":")[2])
        assert abs(often / count - stated) < 4.0 * math.sqrt(stated * (1.0 - stated) / count)


def test_the_policy_of_a_tuner_is_decided_by_flagd(evaluator, tmp_path):
    """By the command, from a saved tuner, with a context that is only a number and one that is none at all."""
    rng = np.random.default_rng(1)
    for context in (["qps"], None):
        tuner = Tuner({"pool": Int(1, 64, log=True), "x": Float(0, 1)}, {"p99": "min"}, context=context)
        for _ in range(30):
            qps = float(rng.choice([100.0, 900.0]))
            asked = tuner.ask([qps] if context else None)
            best = 40.0 if qps > 500.0 and context else 4.0
            tuner.tell(asked.id, {"p99": 20.0 + 10.0 * math.log(asked.params["pool"] / best) ** 2})
        tuner.save(tmp_path / "run.rasp")
        files = [str(tmp_path / name) for name in ("run.rasp", "policy.json", "flagd.json")]
        result = CliRunner().invoke(app, ["export", *files[:2], "--flagd", files[2], "--name", "web", "--explore"])
        assert result.exit_code == 0, result.stderr
        assert f"Flags: {files[2]}" in result.stdout
        policy, flags = (json.loads((tmp_path / name).read_text()) for name in ("policy.json", "flagd.json"))
        given = [{"qps": float(rng.uniform(0, 1000))} if context else {} for _ in range(300)]
        lines = [{"flag": "web", "context": {**one, "targetingKey": str(i)}} for i, one in enumerate(given)]
        found = evaluator(flags, lines, tmp_path)
        picks = [pick_of(policy, one, str(i)) for i, one in enumerate(given)]
        assert [one["value"] for one in found] == [pick.params for pick in picks]
        assert [one["variant"] for one in found] == [variant_of(pick) for pick in picks]
        assert len({str(pick.params) for pick in picks}) > 1


def test_a_server_gives_flags_for_flagd_with_an_etag(evaluator, tmp_path, sqlite):
    study = {
        "name": "web", "space": {"pool": {"type": "int", "low": 1, "high": 64}}, "metrics": {"p99": "min"},
        "context": ["qps"], "default": {"pool": 16},
    }  # fmt: skip
    with running(sqlite) as client:
        assert client.post("/v1/studies", json=study).status_code == 201
        first = client.get("/v1/studies/web/flagd")
        assert first.status_code == 200
        again = client.get("/v1/studies/web/flagd", headers={"If-None-Match": first.headers["ETag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert client.get("/v1/studies/web/policy").headers["ETag"] == first.headers["ETag"].replace("-flagd", "")
    (one,) = evaluator(first.json(), [{"flag": "web", "context": {"qps": 1.0, "targetingKey": "a"}}], tmp_path)
    assert one["value"] == {"pool": 16}


def test_names_that_flagd_takes_for_paths_are_refused():
    policy = a_policy()
    policy["context"][0]["name"] = "load.qps"
    with pytest.raises(InvalidValue, match="has a dot in its name"):
        flagd_flags(policy, "web")
