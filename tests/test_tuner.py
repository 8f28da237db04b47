from functools import cache

import numpy as np
import pytest

from rasp_tuner import (
    AlreadyAnswered,
    Categorical,
    ExpiredSuggestion,
    Float,
    Int,
    InvalidSpace,
    InvalidValue,
    Metric,
    Tuner,
    UnknownSuggestion,
    presets,
)

SPACE = {"pool": Int(1, 64, log=True), "timeout_s": Float(0.1, 10.0), "codec": Categorical(["lz4", "zstd"])}
METRICS = {"p99_ms": "min", "throughput": Metric("max", weight=0.5)}
TODAY = {"pool": 8, "timeout_s": 1.0, "codec": "lz4"}
GOOD = {"p99_ms": 181.2, "throughput": 92.0}
QUIET, BUSY = {"qps": 0.0, "payload_kb": 0.0}, {"qps": 10.0, "payload_kb": 10.0}


def tuner(**changes):
    settings = {
        "space": SPACE,
        "metrics": METRICS,
        "context": ["qps", "payload_kb"],
        "default": TODAY,
        "preset": "paper",
    }
    return Tuner(**{**settings, **changes})


def legal(params):
    return set(params) == set(SPACE) and all(SPACE[name].to_unit(value) is not None for name, value in params.items())


def test_the_documented_loop():
    t = tuner(preset="default", seed=0)
    s = t.ask({"qps": 420.0, "payload_kb": 3.2})
    t.tell(s.id, GOOD)
    s = t.ask([420.0, 3.2])
    t.tell(s.id, GOOD)
    assert t.learned == 2
    assert legal(s.params)


def test_the_first_suggestion_is_what_runs_today():
    t = tuner()
    s = t.ask(QUIET)
    assert s.params == TODAY
    assert t.explain(s.id).source == "default"
    assert t.ask(QUIET).params != TODAY  # a second worker explores


def test_without_a_default_it_starts_in_the_middle():
    assert tuner(default=None).ask(QUIET).params == {"pool": 8, "timeout_s": 5.05, "codec": "zstd"}


def test_after_a_warm_start_the_first_suggestion_may_move():
    t = tuner()
    t.observe(QUIET, TODAY, GOOD)
    assert t.explain(t.ask(QUIET).id).source != "default"


def test_every_suggestion_is_legal():
    t = tuner()
    for i in range(200):
        s = t.ask([float(i % 7), 1.0])
        assert legal(s.params)
        t.tell(s.id, {"p99_ms": float(i % 13), "throughput": 1.0})


def test_context_free_tuning():
    t = Tuner({"x": Float(0, 1)}, {"m": "min"}, preset="paper")
    for _ in range(5):
        s = t.ask()
        t.tell(s.id, {"m": s.params["x"]})
    assert 0.0 <= t.recommend()["x"] <= 1.0


def test_tells_may_come_late_and_in_any_order():
    t = tuner()
    suggestions = [t.ask([float(i), 0.0]) for i in range(6)]
    assert [s.id for s in t.pending] == [s.id for s in suggestions]
    for i in (3, 0, 5, 1):
        t.tell(suggestions[i].id, GOOD)
    assert [s.id for s in t.pending] == [suggestions[2].id, suggestions[4].id]
    assert t.pending[0] == suggestions[2]
    assert t.learned == 4


def test_answers_are_filed_under_the_context_that_was_asked_about():
    t = tuner()
    quiet, busy = t.ask(QUIET), t.ask(BUSY)
    assert quiet.params != busy.params  # or this would show nothing
    t.tell(busy.id, {"p99_ms": 1.0, "throughput": 1.0})
    t.tell(quiet.id, {"p99_ms": 1.0, "throughput": 1.0})
    assert t.recommend(BUSY) == busy.params
    assert t.recommend(QUIET) == quiet.params


@pytest.mark.parametrize("answer", ["tell", "tell_failed"])
def test_each_suggestion_is_answered_once(answer):
    t = tuner()
    s = t.ask(QUIET)
    t.tell(s.id, GOOD)
    before = t.to_bytes()
    with pytest.raises(AlreadyAnswered, match=f"{s.id!r} was answered before"):
        t.tell(s.id, GOOD) if answer == "tell" else t.tell_failed(s.id, "late")
    assert t.to_bytes() == before


def test_unknown_ids_are_refused_by_name():
    t = tuner()
    t.ask(QUIET)
    before = t.to_bytes()
    for call in (lambda: t.tell("s9", GOOD), lambda: t.tell_failed("s9", "x"), lambda: t.explain("s9")):
        with pytest.raises(UnknownSuggestion, match="'s9'"):
            call()
    assert t.to_bytes() == before


def test_pending_suggestions_are_bounded_and_the_oldest_expires():
    t = tuner(max_pending=3)
    ids = [t.ask(QUIET).id for _ in range(5)]
    assert [s.id for s in t.pending] == ids[2:]
    with pytest.raises(ExpiredSuggestion, match="observe"):
        t.tell(ids[0], GOOD)


def test_a_failure_is_learned_from_but_never_recommended():
    t = tuner()
    s = t.ask(QUIET)
    t.tell(s.id, GOOD)
    bad = t.ask(QUIET)
    t.tell_failed(bad.id, "out of memory")
    told = t.explain(bad.id)
    assert (told.path, told.failure, told.error) == ("fast", "out of memory", 1.0)
    assert t.recommend(QUIET) == s.params
    assert t.learned == 2


def test_long_failure_reasons_are_cut():
    t = tuner()
    s = t.ask(QUIET)
    t.tell_failed(s.id, "x" * 10_000)
    assert len(t.explain(s.id).failure) == 500


def test_recommend_knows_only_the_default_at_first_and_the_best_later():
    t = tuner()
    assert t.recommend(QUIET) == TODAY
    better = {"pool": 32, "timeout_s": 3.3, "codec": "zstd"}
    t.observe(QUIET, TODAY, {"p99_ms": 5.0, "throughput": 1.0})
    t.observe(QUIET, better, {"p99_ms": -5.0, "throughput": 9.0})
    t.observe(QUIET, {**TODAY, "pool": 1}, {"p99_ms": 50.0, "throughput": 0.0})
    assert t.recommend(QUIET) == better


def test_when_an_old_situation_returns_what_worked_then_is_recommended():
    t = tuner()
    for context, pool in ((QUIET, 2), (BUSY, 60)):
        for tried in (1, 2, 8, 60):
            t.observe(context, {**TODAY, "pool": tried}, {"p99_ms": abs(tried - pool), "throughput": 0.0})
    for _ in range(20):
        t.tell(t.ask(BUSY).id, {"p99_ms": 30.0, "throughput": 0.0})
    assert t.recommend(QUIET)["pool"] == 2
    assert t.recommend(BUSY)["pool"] == 60


def test_recommend_and_explain_change_nothing():
    t = tuner()
    for _ in range(20):
        s = t.ask(QUIET)
        t.tell(s.id, GOOD)
    before = t.to_bytes()
    t.recommend(BUSY)
    t.explain(s.id)
    repr(t)
    assert t.to_bytes() == before


def test_explain_speaks_in_plain_words():
    t = tuner()
    first = t.ask(QUIET)
    assert str(t.explain(first.id)) == (
        "Runs the default. Chosen because nothing is known yet. How good it is will be known once it has run."
    )
    t.tell(first.id, GOOD)
    second = t.ask(QUIET)
    why = t.explain(second.id)
    assert any(one.startswith("The situation (") and one.endswith(" is partly known.") for one in why.details)
    assert "the objective is expected to be" in str(why)
    t.tell(second.id, GOOD)
    assert t.explain(second.id).details[-1] == "It was learned by the fast path: nothing unusual."
    t.tell_failed(t.ask(QUIET).id, "oom\nkilled")
    assert str(t.explain("s2")).endswith("t failed: oom killed.")
    t.tell_failed(t.ask(QUIET).id)
    assert str(t.explain("s3")).endswith("t failed: no reason given.")


def test_contexts_of_any_size_do_no_lasting_harm():
    t = Tuner({"a": Float(0, 1)}, {"m": "min"}, context=1, preset="paper")
    for i in range(200):
        t.observe([1e80 * (i % 3)], {"a": 0.5}, {"m": 1.0 if i % 40 else 1e6})
    assert 0.0 <= t.ask([0.0]).params["a"] <= 1.0
    assert Tuner.from_bytes(t.to_bytes()).learned == 200


def test_explain_adds_up():
    t = tuner()
    for i in range(30):
        t.tell(t.ask([float(i), 0.0]).id, GOOD)
    why = t.explain(t.ask(QUIET).id)
    assert sum(why.weights) == pytest.approx(1.0)
    assert why.confidence == max(why.weights)
    assert len(why.gate) == 6
    assert sum(why.gate) == pytest.approx(1.0)
    assert why.deviation >= 0.0


def test_the_callers_objects_are_neither_kept_nor_changed():
    t = tuner()
    context, metrics = np.array([1.0, 2.0]), dict(GOOD)
    s = t.ask(context)
    context[:] = 99.0
    s.params["pool"] = 12345
    t.tell(s.id, metrics)
    assert metrics == GOOD
    assert t.recommend([1.0, 2.0]) == TODAY


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"space": {}}, "space must map"),
        ({"space": None}, "space must map"),
        ({"metrics": {}}, "metrics must map"),
        ({"metrics": {"m": "low"}}, r"metrics\['m'\] must be 'min', 'max' or a Metric, got 'low'; .*weight=0.5"),
        ({"context": "qps"}, "context must be a list of names"),
        ({"default": {"pool": 8}}, r"default lacks \['timeout_s', 'codec'\]"),
        ({"default": {**TODAY, "pool": 100}}, r"default\['pool'\]: value must lie in \[1, 64\], got 100"),
        ({"default": 7}, "default must be a mapping"),
        ({"preset": "fastest"}, "preset must be one of"),
        ({"seed": -1}, "seed must be a whole number"),
        ({"seed": 1.5}, "seed must be a whole number"),
        ({"seed": None}, "seed must be a whole number"),
        ({"max_pending": 0}, "max_pending must be a whole number"),
    ],
)
def test_ill_defined_tuners_are_refused(changes, says):
    with pytest.raises(InvalidSpace, match=says):
        tuner(**changes)


@pytest.mark.parametrize("reason", [None, 5, b"x", ["x"]])
def test_failure_reasons_are_strings(reason):
    t = tuner()
    s = t.ask(QUIET)
    with pytest.raises(InvalidValue, match="reason must be a string"):
        t.tell_failed(s.id, reason)
    assert len(t.pending) == 1


def test_only_answered_suggestions_of_its_own_move_the_current_point():
    """With `stay` = 1 and a tiny step, candidates lie around the current point and nowhere else (but for the hint)."""
    t = Tuner({"x": Float(0, 1)}, {"m": "min"}, default={"x": 0.2}, preset=presets.paper(stay=1.0, base_step=1e-6))
    t.tell(t.ask().id, {"m": 1.0})
    t.observe(None, {"x": 0.9}, {"m": 5.0})
    t.tell_failed(t.ask().id)
    near = [t.ask().params["x"] for _ in range(20)]
    assert all(abs(x - 0.2) < 1e-4 for x in near)


def test_different_seeds_suggest_differently_and_equal_seeds_alike():
    def trace(seed):
        t = tuner(seed=seed)
        out = []
        for _ in range(10):
            s = t.ask(QUIET)
            t.tell(s.id, GOOD)
            out.append(s.params)
        return out

    assert trace(1) == trace(1)
    assert trace(1) != trace(2)


def test_flash_and_isp_step_is_reachable():
    t = tuner(preset=presets.paper(base_step=0.25))
    t.tell(t.ask(QUIET).id, GOOD)
    moves = [abs(SPACE["timeout_s"].to_unit(t.ask(QUIET).params["timeout_s"]) - (1.0 - 0.1) / 9.9) for _ in range(60)]
    assert max(moves) > 0.15 * 1.1


RAN = {"pool": 16, "timeout_s": 2.5, "codec": "zstd"}


def taught(preset="default", **changes):
    """A tuner that knows a little, with one suggestion out."""
    t = tuner(preset=preset, **changes)
    for i in range(12):
        s = t.ask([float(i % 2), 0.0])
        t.tell(s.id, {"p99_ms": 20.0 + s.params["timeout_s"] + 0.1 * s.params["pool"], "throughput": 90.0 + i % 3})
    return t, t.ask(QUIET)


@cache
def taught_once():
    """Such a tuner, saved, and the suggestion."""
    t, s = taught()
    return t.to_bytes(), s


def known(t):
    """What it expects; what it suggests also depends on what it could not have."""
    found = [t.what_if(QUIET, {**RAN, "pool": pool}).given.metrics["p99_ms"].mean for pool in (1, 4, 16)]
    return [t.recommend(QUIET), *found]


def test_it_learns_from_what_ran():
    (told, s), (observed, _), (suggested, _) = (taught(budget=None) for _ in range(3))  # only what was asked for costs
    usual = {"p99_ms": 23.0, "throughput": 91.0}
    assert s.params != RAN
    told.tell(s.id, usual, RAN)
    observed.observe(QUIET, RAN, usual)
    suggested.tell(s.id, usual)
    seen = known(told)
    assert seen == known(observed)
    assert seen != known(suggested)


def test_a_failure_is_of_what_ran_too():
    (told, s), (observed, _), (suggested, _) = taught(), taught(), taught()
    told.tell_failed(s.id, "out of memory", params=RAN)
    observed.observe_failed(QUIET, RAN)
    suggested.tell_failed(s.id, "out of memory")
    seen = known(told)
    assert seen == known(observed)
    assert seen != known(suggested)
    assert (told.explain(s.id).ran, told.explain(s.id).failure) == (RAN, "out of memory")


def test_knobs_that_are_left_out_ran_as_suggested():
    (part, s), (full, _) = taught(), taught()
    part.tell(s.id, GOOD, {"pool": np.int64(16)})
    full.tell(s.id, GOOD, {**s.params, "pool": 16})
    assert part.explain(s.id).ran == {**s.params, "pool": 16}
    assert part.to_bytes() == full.to_bytes()


@pytest.mark.parametrize("preset", ["default", "paper"])
def test_telling_that_the_suggestion_ran_changes_nothing(preset):
    tuners = [taught(preset) for _ in range(3)]
    for (t, s), params in zip(tuners, (None, {}, tuners[0][1].params), strict=True):
        t.tell(s.id, GOOD, params)
        assert t.explain(s.id).ran is None
    assert len({t.to_bytes() for t, _ in tuners}) == 1


@pytest.mark.parametrize("answer", [lambda t, id, p: t.tell(id, GOOD, p), lambda t, id, p: t.tell_failed(id, "", p)])
@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"pool": 65}, r"params\['pool'\]: value must lie in \[1, 64\], got 65"),
        ({**RAN, "codec": "gzip"}, r"params\['codec'\]: value must be one of"),
        ({"pool": 8.5}, r"params\['pool'\]: value must be a whole number, got 8.5"),
        ({"timeout_s": float("nan")}, r"params\['timeout_s'\]: value must be a finite number, got nan"),
        ({"threads": 4}, r"params has unknown names \['threads'\]"),
        ([16, 2.5, "zstd"], "params must be a mapping"),
        ("pool", "params must be a mapping"),
    ],
)
def test_what_cannot_have_run_is_refused_and_changes_nothing(answer, params, says):
    before, s = taught_once()
    t = Tuner.from_bytes(before)
    with pytest.raises(InvalidValue, match=says):
        answer(t, s.id, params)
    assert t.to_bytes() == before


def test_wrong_metrics_beside_what_ran_change_nothing():
    t, s = taught()
    before = t.to_bytes()
    with pytest.raises(InvalidValue, match="metrics"):
        t.tell(s.id, {"p99_ms": 1.0}, RAN)
    assert t.to_bytes() == before


def test_what_ran_is_where_the_system_is_now():
    """With `stay` = 1 and a tiny step, candidates lie around the current point and nowhere else (but for the hint)."""
    t = Tuner({"x": Float(0, 1)}, {"m": "min"}, default={"x": 0.2}, preset=presets.paper(stay=1.0, base_step=1e-6))
    t.tell(t.ask().id, {"m": 1.0})
    t.tell(t.ask().id, {"m": 5.0}, {"x": 0.6})
    near = [t.ask().params["x"] for _ in range(20)]
    assert all(abs(x - 0.6) < 1e-4 for x in near)


def test_a_change_is_priced_from_what_ran():
    t, s = taught(switching_cost=1e6, budget=None)
    t.tell(s.id, GOOD, RAN)
    assert [t.ask(QUIET).params for _ in range(3)] == [RAN] * 3


def test_explain_says_what_ran():
    t, s = taught()
    t.tell(s.id, GOOD, {"timeout_s": 2.5, "pool": 16})
    why = t.explain(s.id)
    assert f"with other settings: pool=16, timeout_s=2.5, codec={s.params['codec']}" in str(why)
    why.ran["pool"] = 1  # a copy
    assert t.explain(s.id).ran["pool"] == 16
    assert Tuner.from_bytes(t.to_bytes()).explain(s.id) == t.explain(s.id)
