"""Exporting a policy: a tree that says what the tuner recommends, with its loss, and a tuner that stays as it was."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from rasp_tuner import Bool, Categorical, Category, ContextShield, Float, Int, Metric, Number, Tuner
from rasp_tuner.cli import app
from rasp_tuner.errors import InvalidValue
from rasp_tuner.policy.evaluate import leaf_of, load, params_of
from rasp_tuner.policy.tree import Column, grow, leaves_of
from rasp_tuner.space import Space

KINDS = {"qps": Number(missing=100.0), "region": Category(["eu", "us"]), "tenant": Category()}


def taught(context=KINDS, steps=80, seed=0, **settings):
    """A tuner that was shown what each of two situations wants: 4 below 500 qps or without, else 40."""
    rng = np.random.default_rng(seed)
    tuner = Tuner({"pool": Int(1, 64, log=True), "wait": Float(0, 1)}, {"p99": "min"}, context=context, **settings)
    for step in range(steps):
        qps = None if step % 10 == 0 else float(rng.choice([100.0, 900.0]) + 20.0 * rng.random())
        pool = int(rng.integers(1, 65))
        best = 40.0 if qps is not None and qps > 500.0 else 4.0
        seen = {"qps": qps, "region": "eu", "tenant": str(rng.choice(["a", "b"]))}
        given = {name: seen[name] for name in KINDS} if context is KINDS else [qps or 100.0]
        p99 = 50.0 + 10.0 * np.log(pool / best) ** 2 + 0.1 * rng.normal()
        tuner.observe(given, {"pool": pool, "wait": rng.random()}, {"p99": p99})
    return tuner


@pytest.fixture(scope="module")
def tuner():
    return taught()


def test_a_policy_says_what_the_tuner_recommends(tuner, tmp_path):
    report = tuner.export(tmp_path / "policy.json")
    policy = load(tmp_path / "policy.json")
    assert policy == json.loads(json.dumps(report.policy))
    whole = [{"qps": qps, "region": "eu", "tenant": "a"} for qps in (110.0, 910.0)]
    for context in (*whole, {"qps": 110.0}, {"qps": 910.0}):
        assert params_of(policy, context)["pool"] == pytest.approx(tuner.recommend(context)["pool"], rel=0.3)
    assert params_of(policy, {"qps": "many"}) == policy["default"]
    assert 2 <= report.leaves <= 16
    assert report.grown_from == report.held_out == 40


def test_export_changes_nothing_in_the_tuner(tuner, tmp_path):
    before = tuner.to_bytes()
    first = tuner.export(tmp_path / "policy.json")
    assert tuner.to_bytes() == before
    assert tuner.export(tmp_path / "policy.json") == first
    twin = Tuner.from_bytes(before)
    context = {"qps": 300.0, "region": "us"}
    assert tuner.ask(context) == twin.ask(context)


def test_the_loss_is_what_the_tuner_expects_and_its_words_say_so(tuner, tmp_path):
    report = tuner.export(tmp_path / "policy.json", leaves=1)
    loss = report.loss
    assert 0.0 < loss.mean <= loss.bound  # 4 and 40 have no settings in common
    assert loss.mean <= loss.most
    assert loss.mean_share == pytest.approx(loss.mean / 50.0, rel=0.2)
    assert report.policy["loss"]["mean"] == loss.mean
    words = str(report)
    assert words.startswith(
        "A tree with 1 leaf, grown from 40 contexts. Of some texts of tenant only a hash is on record"
    )
    assert ". On 40 contexts that it was not grown from, it is expected to lose" in words
    assert f"{loss.bound:.3g} ({loss.bound_share:.2%})" in words
    assert tuner.export(tmp_path / "policy.json").loss.bound < loss.mean / 10.0


def test_texts_that_are_hashes_are_named_only_if_they_are_given(tmp_path):
    tuner = Tuner({"x": Float(0, 1)}, {"loss": "min"}, context={"user": "name"})
    rng = np.random.default_rng(0)
    for _ in range(60):
        user, x = str(rng.choice(["ann", "bob"])), rng.random()
        tuner.observe({"user": user}, {"x": x}, {"loss": (x - (0.9 if user == "ann" else 0.1)) ** 2})
    blind = tuner.export(tmp_path / "policy.json")
    assert blind.leaves == 1
    assert str(blind).startswith(
        "A tree with 1 leaf, grown from 30 contexts. Of some texts of user only a hash is on record: it cannot tell"
        " them apart, so all of them get the same settings. Name them by texts={'user': [...]} (rasp export --texts"
        " user=...)."
    )
    for options in ({"texts": {"user": ["ann", "bob"]}}, {"contexts": [{"user": "ann"}, {"user": "bob"}] * 10}):
        report = tuner.export(tmp_path / "policy.json", **options)
        assert report.leaves == 2
        assert report.loss.bound == pytest.approx(0.0, abs=1e-6)
        for user in ("ann", "bob"):
            assert params_of(report.policy, {"user": user}) == tuner.recommend({"user": user})


def test_of_a_category_without_values_the_report_says_how_to_declare_them(tmp_path):
    tuner = Tuner({"x": Float(0, 1)}, {"loss": "min"}, context={"region": "category", "zone": Category(["a", "b"])})
    rng = np.random.default_rng(0)
    for _ in range(60):
        region, x = str(rng.choice(["eu", "us"])), rng.random()
        tuner.observe({"region": region, "zone": "a"}, {"x": x}, {"loss": (x - (0.9 if region == "eu" else 0.1)) ** 2})
    blind = tuner.export(tmp_path / "policy.json")
    assert "(rasp export --texts region=...), or declare region as Category([...])." in str(blind)
    assert str(blind) == blind.policy["words"]
    named = tuner.export(tmp_path / "policy.json", texts={"region": ["eu", "us"]})
    assert named.notes == ()


def test_leaves_keep_conditions_and_constraints(tmp_path):
    space = {"mode": Categorical(["a", "b"]), "n": Int(1, 9), "m": Int(1, 9, when={"mode": "b"}), "fast": Bool()}
    rules = ["n * m <= 20"]
    tuner = Tuner(space, {"loss": "min"}, context=1, constraints=rules, default={"mode": "a", "n": 2, "fast": True})
    rng = np.random.default_rng(0)
    for step in range(40):
        s = tuner.ask([float(step % 2)])
        tuner.tell(s.id, {"loss": (-1) ** step * s.params["n"] - s.params.get("m", 0) + 0.1 * rng.normal()})
    policy = tuner.export(tmp_path / "policy.json").policy
    legal = Space.from_json(policy["knobs"], policy["constraints"], policy["default"])
    for leaf in leaves_of(policy["tree"]):
        assert legal.from_unit(legal.to_unit(leaf["params"])) == leaf["params"]


def test_a_limit_that_the_tuner_keeps_is_kept_by_the_policy(tmp_path):
    metrics = {"cost": "min", "p99": Metric("min", max=60.0)}
    tuner = Tuner({"x": Float(0, 1)}, metrics, context=["load"], default={"x": 1.0})
    rng = np.random.default_rng(0)
    for _ in range(80):
        load, x = float(rng.choice([0.2, 0.8])), rng.random()
        tuner.observe([load], {"x": x}, {"cost": 1.0 + x, "p99": 60.0 + 40.0 * (load - x) + 0.1 * rng.normal()})
    one = tuner.export(tmp_path / "policy.json", leaves=1)
    assert one.loss.limits_broken == 0.0  # dear, but safe
    two = tuner.export(tmp_path / "policy.json")
    assert two.loss.limits_broken == 0.0
    assert two.loss.mean < one.loss.mean


def test_contexts_that_are_not_kept_must_be_given(tmp_path):
    shielded = taught(["qps"], shield=ContextShield({"qps": (0.0, 1000.0)}, key="kept outside, and long"))
    with pytest.raises(InvalidValue, match=r"at least 8 contexts, and there are 0: give more"):
        shielded.export(tmp_path / "policy.json")
    for wrong in (5, "qps", {"qps": 1.0}):
        with pytest.raises(InvalidValue, match="contexts must be a list of contexts"):
            shielded.export(tmp_path / "policy.json", contexts=wrong)
    assert not (tmp_path / "policy.json").exists()
    report = shielded.export(tmp_path / "policy.json", contexts=[[x] for x in np.linspace(0.0, 1000.0, 40)])
    assert report.leaves > 1
    with pytest.raises(InvalidValue, match="leaves must be a whole number"):
        shielded.export(tmp_path / "policy.json", leaves=0)
    with pytest.raises(InvalidValue, match="context"):
        shielded.export(tmp_path / "policy.json", contexts=[{"wrong": 1.0}] * 9)


def test_a_context_that_changes_nothing_grows_no_thicket(tmp_path):
    tuner = Tuner({"x": Float(0, 1)}, {"loss": "min"}, context=["noise"])
    rng = np.random.default_rng(0)
    for x in rng.random(100):
        tuner.observe([rng.normal()], {"x": x}, {"loss": 10.0 + (x - 0.3) ** 2 + 0.1 * rng.normal()})
    assert tuner.export(tmp_path / "policy.json").leaves <= 2


def test_without_context_a_policy_is_one_leaf(tmp_path):
    tuner = Tuner({"x": Float(0, 1)}, {"loss": "min"}, default={"x": 0.5})
    assert tuner.export(tmp_path / "policy.json").policy["tree"]["params"] == {"x": 0.5}
    for x in np.linspace(0.0, 1.0, 20):
        tuner.observe(None, {"x": x}, {"loss": (x - 0.2) ** 2})
    report = tuner.export(tmp_path / "policy.json")
    assert params_of(report.policy) == tuner.recommend()
    assert report.loss.bound == 0.0


def test_the_command_writes_a_policy_and_prints_the_report(tuner, tmp_path):
    tuner.save(tmp_path / "run.rasp")
    files = [str(tmp_path / name) for name in ("run.rasp", "policy.json")]
    result = CliRunner().invoke(app, ["export", *files, "--c", str(tmp_path / "table.h"), "--texts", "tenant=a,b"])
    assert result.exit_code == 0, result.output
    assert str(load(files[1])["words"]) in result.stdout
    assert "static const policy_table policy" in (tmp_path / "table.h").read_text()
    told = json.loads(CliRunner().invoke(app, ["export", *files, "--json"]).stdout)
    assert told["loss"]["mean"] <= told["loss"]["bound"]
    wrong = CliRunner().invoke(app, ["export", *files, "--leaves", "0"])
    assert (wrong.exit_code, wrong.stdout) == (1, "")


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_tree_costs_no_more_than_one_leaf_and_more_leaves_never_cost_more(data):
    n, k = data.draw(st.integers(2, 20)), data.draw(st.integers(1, 4))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    costs = rng.random((n, k))
    numbers = data.draw(st.lists(st.none() | st.integers(0, 5).map(float), min_size=n, max_size=n))
    texts = data.draw(st.lists(st.sampled_from(["a", "b", "c", None, float("inf")]), min_size=n, max_size=n))
    columns = [
        Column({"name": "x", "kind": "number", "missing": 0.0}, numbers),
        Column({"name": "t", "kind": "category"}, texts),
    ]
    before = np.inf
    for leaves in (1, 2, 4, 8):
        tree = grow(columns, costs, [0] * n, leaves)
        found = list(leaves_of(tree))
        assert 1 <= len(found) <= leaves
        assert sum(leaf["share"] for leaf in found) == pytest.approx(1.0)
        policy = {"context": [column.field for column in columns], "tree": with_params(tree)}
        total = sum(
            costs[i, leaf_of(policy, {"x": x, "t": t})["params"]]
            for i, (x, t) in enumerate(zip(numbers, texts, strict=True))
        )
        assert total <= before + 1e-9
        before = total
    assert before <= costs.sum(axis=0).min() + 1e-9


def with_params(tree):
    for leaf in leaves_of(tree):
        leaf["params"] = leaf["candidate"]
    return tree
