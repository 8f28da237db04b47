"""Situations by their context values: what is recommended there, what it gains, which knobs it comes from."""

import math
import re
from functools import cache

import numpy as np
import pytest

from rasp_tuner import Categorical, Category, Float, Int, Metric, Tuner
from rasp_tuner.gain.versus_default import Gain
from rasp_tuner.report.situation_gains import SituationGain
from rasp_tuner.report.situations import context_words
from rasp_tuner.types import KnobShares

KNOBS = {"cache": Float(1, 64, log=True), "idle": Int(1, 8)}
DEFAULT = {"cache": 8.0, "idle": 4}
BEST = {900.0: 40.0, 100.0: 4.0}


def cost(params, qps):
    """The best cache halves what the default costs at 900, and saves 13% at 100; `idle` does nothing."""
    return 20.0 * (1.0 + 0.3 * math.log(params["cache"] / BEST[qps]) ** 2)


def taught(steps=160, metrics=None, told=None, context=("qps",), **settings):
    tuner, rng = Tuner(KNOBS, metrics or {"ms": "min"}, list(context), DEFAULT, **settings), np.random.default_rng(0)
    for step in range(steps):
        qps = 900.0 if step // 8 % 2 else 100.0
        s = tuner.ask({"qps": qps})
        value = cost(s.params, qps) * math.exp(0.03 * rng.normal())
        tuner.tell(s.id, {"ms": value} if told is None else told(value))
    return tuner


@cache
def usual():
    """The tuner of tests that only look at it."""
    return taught()


def test_each_situation_has_its_values_its_settings_and_its_gain():
    found = {one.label: one for one in usual().situations()}
    assert set(found) == {"qps 100", "qps 900"}
    for label, qps in (("qps 100", 100.0), ("qps 900", 900.0)):
        one = found[label]
        assert one.context == {"qps": qps}
        assert one.params["cache"] == pytest.approx(BEST[qps], rel=0.3)
        truth = 1.0 - cost({"cache": BEST[qps]}, qps) / cost(DEFAULT, qps)
        gain = one.gains["ms"]
        assert gain.low < truth < gain.high
        assert str(one).startswith(f"{label}: cache=")
    assert found["qps 900"].gains["ms"].low > 0.2


def test_the_knob_that_matters_has_the_gain_and_of_an_idle_one_no_effect_is_shown():
    found = usual().situations()
    assert any("idle" in one.changed for one in found)
    for one in found:
        assert one.knobs.shares == {"cache": 1.0}
        assert one.knobs.not_shown == tuple(name for name in one.changed if name == "idle")
        idle = f"; no effect shown: idle (now {one.params['idle']})" if "idle" in one.changed else ""
        assert str(one).endswith(f", from cache 100%{idle}")


def test_what_is_recommended_is_only_what_is_shown_to_matter():
    for one in taught().situations():
        assert list(one.proven) == ["cache"]
        assert one.unproven == {name: value for name, value in one.changed.items() if name == "idle"}
        assert "idle=" not in str(one)
        assert one.to_json()["proven"] == one.proven


def test_where_nothing_is_shown_to_matter_the_default_is_recommended():
    """Two knobs that do nothing: the tuner runs other values of them, and no word calls those a recommendation."""
    space = {"x": Float(0, 1), "y": Int(1, 8), "z": Categorical(["a", "b"])}
    tuner = Tuner(space, {"ms": "min"}, None, {"x": 0.5, "y": 4, "z": "a"}, goal="find", seed=1)
    rng = np.random.default_rng(1)
    for _ in range(40):
        tuner.tell(tuner.ask().id, {"ms": 20.0 * math.exp(0.1 * rng.normal())})
    [one] = tuner.situations()
    assert one.changed
    assert one.proven == {}
    now = ", ".join(f"{name} (now {value})" for name, value in one.changed.items())
    assert str(one) == f"everywhere: the default; no effect shown: {now}"


def test_knobs_that_surely_gain_only_together_are_recommended_together():
    one = situation(KnobShares({}, ("a", "b")), together=True)
    assert str(one) == "everywhere: a=1 b=2; ms 20% better (10 to 30%); which of its knobs matter is not shown"
    apart = situation(KnobShares({}, ("a", "b")))
    assert str(apart) == "everywhere: the default; no effect shown: a (now 1), b (now 2)"


def test_where_no_knob_alone_is_sure_and_all_together_are_they_are_recommended():
    """Only the default and one other setting ran, which is 30% better; runs differ by 10%."""
    space = {"a": Categorical([0, 1]), "b": Categorical([0, 1])}
    tuner, rng = Tuner(space, {"ms": "min"}, None, {"a": 0, "b": 0}, seed=1), np.random.default_rng(4)
    for step in range(60):
        both = step % 2
        tuner.observe(None, {"a": both, "b": both}, {"ms": (7.0 if both else 10.0) * math.exp(0.1 * rng.normal())})
    [one] = tuner.situations()
    assert (one.proven, one.unproven) == ({"a": 1, "b": 1}, {})
    assert one.gains["ms"].low < 0.3 < one.gains["ms"].high
    assert one.to_json()["source"] == "which of its knobs matter is not shown"
    assert str(one).endswith("; which of its knobs matter is not shown")


@pytest.mark.parametrize("seed", [5, 8, 11])
def test_contexts_whose_recommendations_differ_are_not_told_together(seed):
    """`a` has another best value in every region; under noise its effect is not shown in all of them."""
    best = {"eu": 0.1, "us": 0.9, "ap": 0.5}
    space, regions = {"a": Float(0, 1), "m": Categorical(["x", "y"])}, {"region": Category(list(best))}
    tuner, rng = Tuner(space, {"ms": "min"}, regions, {"a": 0.5, "m": "x"}, seed=seed), np.random.default_rng(seed)
    for step in range(60):
        region = list(best)[step // 10 % 3]
        s = tuner.ask({"region": region})
        ms = 10.0 * (1.0 + 3.0 * (s.params["a"] - best[region]) ** 2) * (0.8 if s.params["m"] == "y" else 1.0)
        tuner.tell(s.id, {"ms": ms * math.exp(0.1 * rng.normal())})
    assert {one.label for one in tuner.situations()} == {f"region {region}" for region in best}


def test_where_either_of_two_knobs_suffices_both_are_recommended():
    """Putting one of them back costs nothing, and both together halve the cost."""
    space = {"a": Categorical([0, 1]), "b": Categorical([0, 1])}
    tuner, rng = Tuner(space, {"ms": "min"}, None, {"a": 0, "b": 0}, seed=1), np.random.default_rng(1)
    for step in range(60):
        params = {"a": step % 2, "b": step // 2 % 2}
        tuner.observe(None, params, {"ms": (5.0 if 1 in params.values() else 10.0) * math.exp(0.03 * rng.normal())})
    [one] = tuner.situations()
    assert (one.proven, one.unproven) == (one.changed, {})
    assert one.gains["ms"].low > 0.3


def test_a_knob_that_keeps_a_limit_is_recommended_although_the_goal_shows_no_effect_of_it():
    """`ms` is the same everywhere; only few threads keep the limit of `mb`."""
    metrics = {"ms": "min", "mb": Metric("min", max=40.0)}
    tuner, rng = Tuner({"threads": Categorical([2, 8])}, metrics, None, {"threads": 8}), np.random.default_rng(0)
    for step in range(40):
        threads = 2 if step % 2 else 8
        ms, mb = 20.0 * math.exp(0.02 * rng.normal()), 10.0 * threads * math.exp(0.02 * rng.normal())
        tuner.observe(None, {"threads": threads}, {"ms": ms, "mb": mb})
    [one] = tuner.situations()
    assert (one.proven, one.unproven) == ({"threads": 2}, {})
    assert "no effect shown" not in str(one)


def situation(knobs, together=False):
    changed = {"a": 1, "b": 2}
    gain = Gain("share", 0.2, 0.1, 0.3)
    return SituationGain("everywhere", 1, {}, changed, changed, {"ms": gain}, knobs, {}, {} if together else changed)


@pytest.mark.slow  # five tuners with four knobs
def test_under_noise_no_idle_knob_gets_a_share():
    """Two knobs do something, two nothing; runs differ by 5%."""
    knobs = {"cache": Float(1, 64, log=True), "codec": Categorical(["a", "b", "c"]), "x": Float(0, 1), "y": Int(1, 8)}
    shown: list[str] = []
    for seed in range(5):
        tuner = Tuner(knobs, {"ms": "min"}, None, {"cache": 8.0, "codec": "a", "x": 0.5, "y": 4}, seed=seed)
        rng = np.random.default_rng(seed)
        for _ in range(120):
            s = tuner.ask()
            ms = cost(s.params, 900.0) * (1.0 if s.params["codec"] == "b" else 1.4) * math.exp(0.05 * rng.normal())
            tuner.tell(s.id, {"ms": ms})
        [one] = tuner.situations()
        assert set(one.knobs.shares) | set(one.knobs.not_shown) == set(one.changed)
        shown += one.knobs.shares
    assert min(shown.count("cache"), shown.count("codec")) >= 3
    assert not {"x", "y"} & set(shown)


def test_shares_of_knobs_that_act_together_are_fair_and_add_up():
    """Both must move: either alone does nothing, so each has half."""
    space = {"a": Categorical([0, 1]), "b": Categorical([0, 1])}
    tuner, rng = Tuner(space, {"ms": "min"}, None, {"a": 0, "b": 0}), np.random.default_rng(0)
    for step in range(60):
        params = {"a": step % 2, "b": step // 2 % 2}
        tuner.observe(None, params, {"ms": (5.0 if params == {"a": 1, "b": 1} else 10.0) + 0.05 * rng.normal()})
    [one] = tuner.situations()
    assert one.label == "everywhere"
    assert one.knobs.shares == pytest.approx({"a": 0.5, "b": 0.5}, abs=0.15)


def test_where_noise_hides_what_a_knob_does_no_effect_is_shown():
    """b halves the cost, a saves 10%, and runs differ by 30%."""
    space = {"a": Categorical([0, 1]), "b": Categorical([0, 1])}
    tuner, rng = Tuner(space, {"ms": "min"}, None, {"a": 0, "b": 0}), np.random.default_rng(0)
    for step in range(60):
        params = {"a": step % 2, "b": step // 2 % 2}
        ms = (5.0 if params["b"] else 10.0) * (0.9 if params["a"] else 1.0) * math.exp(0.3 * rng.normal())
        tuner.observe(None, params, {"ms": ms})
    [one] = tuner.situations()
    assert one.changed == {"a": 1, "b": 1}
    assert (one.knobs.shares, one.knobs.not_shown) == ({"b": 1.0}, ("a",))
    assert one.to_json()["knobs"]["words"] == "from b 100%; no effect shown: a"
    assert (one.proven, one.unproven) == ({"b": 1}, {"a": 1})


def test_a_knob_that_makes_it_worse_has_no_share_and_its_effect_is_shown():
    space = {"a": Categorical([0, 1]), "b": Categorical([0, 1]), "c": Categorical([0, 1])}
    tuner, rng = Tuner(space, {"ms": "min"}, None, {"a": 0, "b": 0, "c": 0}), np.random.default_rng(0)
    for step in range(80):
        params = {"a": step % 2, "b": step // 2 % 2, "c": step // 4 % 2}
        ms = (5.0 if params["a"] else 10.0) * (1.5 if params["b"] else 1.0) * math.exp(0.02 * rng.normal())
        tuner.observe(None, params, {"ms": ms})
    why = tuner.explain(tuner.ask_for(None, {"a": 1, "b": 1, "c": 1}).id)
    assert (why.knobs.shares, why.knobs.not_shown) == ({"a": 1.0}, ("c",))


def test_of_several_metrics_each_has_its_gain_and_limits_their_margin():
    metrics = {"ms": "min", "mb": Metric("min", max=900.0)}
    tuner = taught(metrics=metrics, told=lambda value: {"ms": value, "mb": 10.0 * value})
    for one in tuner.situations():
        assert set(one.gains) <= {"ms"}
        assert set(one.margins) == {"mb"}
    both = taught(metrics={"ms": "min", "rps": "max"}, told=lambda value: {"ms": value, "rps": 1000.0 / value})
    assert all(set(one.gains) in ({"ms", "rps"}, set()) for one in both.situations())


def test_settings_that_hardly_differ_are_one_row_and_numbers_that_do_are_about():
    rng = np.random.default_rng(0)
    tuner = Tuner(KNOBS, {"ms": "min"}, {"qps": "number", "region": Category()}, DEFAULT)
    for step in range(160):
        busy = step // 8 % 2
        qps = (900.0 if busy else 100.0) * (1.0 + 0.03 * rng.normal())
        s = tuner.ask({"qps": qps, "region": "eu" if busy else "us"})
        tuner.tell(s.id, {"ms": cost(s.params, 900.0 if busy else 100.0) * math.exp(0.03 * rng.normal())})
    labels = {one.label for one in tuner.situations({"region": ["eu", "us"]})}
    assert len(labels) == 2
    assert any("qps about 900" in label or "qps about 890" in label for label in labels)
    assert {label.rpartition(" ")[2] for label in labels} == {"eu", "us"}


def test_no_range_in_a_label_holds_contexts_with_another_recommendation():
    """Two loads in two regions, and a knob that does nothing: its chance values must not make situations."""
    tuner = cache_study()
    found = tuner.situations({"region": ["eu", "us"]})
    assert 2 <= len(found) <= 5
    for one in found:
        box = re.search(r"qps (?:about )?(\d+)(?: to (\d+))?", one.label)
        low, high = float(box[1]), float(box[2] or box[1])
        assert high < 300.0 or low > 600.0, one.label
        region = one.label.rpartition(" ")[2]
        for qps in np.linspace(low, high, 5):
            cache = tuner.recommend({"qps": qps, "region": one.context["region"]})["cache"]
            if "cache" in one.proven and region in ("eu", "us"):
                assert abs(math.log(cache / one.proven["cache"])) < 0.5, (one.label, qps)


def cache_study():
    rng = np.random.default_rng(5)
    knobs = {"cache": Float(1, 64, log=True), "idle": Float(0.1, 10, log=True), "mode": Categorical(["a", "b"])}
    context = {"qps": "number", "region": "category"}
    tuner = Tuner(knobs, {"ms": "min"}, context, {"cache": 8.0, "idle": 2.0, "mode": "a"})
    for _ in range(130):
        context = {"qps": rng.choice([100, 900]) * rng.uniform(0.9, 1.1), "region": str(rng.choice(["eu", "us"]))}
        s = tuner.ask(context)
        best, slow = 40.0 if context["qps"] > 500 else 2.0, context["region"] == "us" and s.params["mode"] == "a"
        ms = 20.0 + 12.0 * math.log(s.params["cache"] / best) ** 2 + 15.0 * slow
        tuner.tell(s.id, {"ms": ms * math.exp(0.05 * rng.normal())})
    return tuner


def test_a_label_leaves_out_what_lies_among_other_situations():
    def words(own, others):
        return context_words([{"qps": x} for x in own], ["qps"], [{"qps": x} for x in others])

    low, high = [91.0, 95.0, 99.0, 103.0], [810.0, 850.0, 872.0]
    assert words([*low, *high], []) == "qps 91 to 872"
    assert words([*low, *high], [300.0, 500.0]) == "qps about 97 or about 850"
    assert words([109.0, *high], low) == "qps 109 to 872"
    assert words([101.0, *high], low) == "qps about 850"  # one that lies among the others is not what belongs to it


def test_nothing_is_said_before_anything_is_known_and_looking_changes_nothing():
    assert Tuner(KNOBS, {"ms": "min"}, ["qps"], DEFAULT).situations() == []
    tuner = taught(40)
    before = tuner.to_bytes()
    found = tuner.situations()
    assert tuner.to_bytes() == before
    assert found[0].to_json()["words"] == str(found[0])


def test_the_context_report_says_what_would_be_lost_without_the_context():
    report = usual().context_report()
    one_setting = [
        np.mean([math.log(cost({"cache": x}, qps) / cost({"cache": BEST[qps]}, qps)) for qps in BEST])
        for x in np.geomspace(4, 40, 50)
    ]
    lost = report.lost_without
    assert lost.low > 0.0
    assert lost.low < math.expm1(min(one_setting)) < 1.5 * lost.high  # it chooses among recommended settings only
    assert str(report).startswith(f"The context decides: without it you would lose {lost.value:.0%} (")


def test_the_context_report_has_one_verdict():
    """The latest samples of a tuner that has learned its situations show nothing: that is no verdict against it."""
    report = taught().context_report()
    assert report.lost_without.low > 0.0
    assert report.verdict == "helps"
    assert report.p is None or report.p > report.level
    said = str(report)
    assert said == report.words
    assert said.startswith("The context decides: without it you would lose ")
    assert "This rests on all that the tuner has learned." in said
    assert "cannot tell" not in said
    assert "useless" not in said
    assert " 0%" not in said


def test_where_the_same_settings_are_best_nothing_is_lost():
    tuner, rng = Tuner({"a": Categorical([0, 1])}, {"ms": "min"}, ["qps"], {"a": 0}), np.random.default_rng(0)
    for _ in range(120):
        qps = float(rng.integers(2))
        s = tuner.ask({"qps": qps})
        tuner.tell(s.id, {"ms": (5.0 if s.params["a"] else 10.0) * (1.0 + qps) * math.exp(0.03 * rng.normal())})
    report = tuner.context_report()
    assert report.lost_without.value == 0.0
    assert "without it you would lose" not in str(report)


def test_what_is_positive_is_never_expected_to_fall_by_more_than_all_of_it():
    tuner = Tuner({"x": Float(0.0, 1.0)}, {"ms": Metric("min", scale="linear")}, default={"x": 0.0}, seed=0)
    for x, ms in ((0.0, 10.0), (1.0, 1.0), (0.0, 14.0), (1.0, 3.0), (0.0, 6.0), (1.0, 0.5)):
        tuner.observe(None, {"x": x}, {"ms": ms})
    gains = [gain for one in tuner.situations() for gain in one.gains.values()]
    assert gains
    assert all(gain.value < gain.high <= 1.0 for gain in gains)
