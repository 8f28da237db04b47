"""goal="find": a number of runs, then the best setting found is used."""

import itertools
import math
import random

import numpy as np
import pytest

from rasp_tuner import Bool, Categorical, Float, Int, InvalidSpace, InvalidValue, Tuner
from rasp_tuner.contexts import Category
from rasp_tuner.engine.gp import knobs as gp_knobs
from rasp_tuner.types import Metric

FLAGS = {"level": Categorical(["2", "1", "3", "s"]), "math": Bool(), "cpu": Bool(), "loops": Bool()}
PLAIN = {"level": "2", "math": False, "cpu": False, "loops": False}


def seconds(params, input):
    """One flag makes each program several times faster, and the other one slower."""
    good, bad = ("math", "cpu") if input == "dot" else ("cpu", "math")
    slow = {"1": 1.2, "s": 1.4}.get(params["level"], 1.0)
    return 0.2 * slow * (0.2 if params[good] else 1.0) * (1.5 if params[bad] else 1.0)


def searched(runs, noise=0.0, seed=0, cost=seconds, knobs=FLAGS, default=PLAIN, inputs=("dot", "sort")):
    tuner = Tuner(knobs, {"time_s": Metric("min", scale="log")}, {"input": Category()}, default, seed=seed, goal="find")
    rng, ran = np.random.default_rng(seed), {input: [] for input in inputs}
    for step in range(runs):
        input = inputs[step % len(inputs)]
        suggestion = tuner.ask({"input": input})
        ran[input].append(suggestion.params)
        tuner.tell(suggestion.id, {"time_s": cost(suggestion.params, input) * math.exp(noise * rng.normal())})
    return tuner, ran


def test_every_value_of_a_small_knob_runs_on_every_input():
    _, ran = searched(16)
    for settings in ran.values():
        assert settings[0] == PLAIN
        assert {params["level"] for params in settings} == {"2", "1", "3", "s"}
        assert all({params[name] for params in settings} == {False, True} for name in ("math", "cpu", "loops"))


def test_hardly_anything_runs_twice_while_there_is_something_new():
    _, ran = searched(40)
    for settings in ran.values():
        assert len({tuple(params.values()) for params in settings}) >= 18


@pytest.mark.parametrize("seed", range(3))
def test_each_input_gets_what_is_best_there(seed):
    tuner, ran = searched(40, noise=0.05, seed=seed)
    for input, settings in ran.items():
        best = tuner.recommend({"input": input})
        assert seconds(best, input) == pytest.approx(0.04)
        assert best in settings


def test_what_was_measured_here_outweighs_what_was_measured_elsewhere():
    """Bad news about a flag on one input is no news about another one, where it ran."""
    tuner = Tuner(FLAGS, {"time_s": Metric("min", scale="log")}, {"input": Category()}, PLAIN, goal="find")
    rng = np.random.default_rng(3)
    for step in range(24):
        params = {**PLAIN, "math": step % 2 == 1, "loops": bool(rng.integers(2))}
        tuner.observe({"input": f"other{step % 4}"}, params, {"time_s": 0.2 * (1.5 if params["math"] else 1.0)})
    fast = {**PLAIN, "math": True}
    tuner.observe({"input": "here"}, PLAIN, {"time_s": 0.195})
    for value in (0.043, 0.0425):
        tuner.observe({"input": "here"}, fast, {"time_s": value})
    assert tuner.recommend({"input": "here"}) == fast
    expected = tuner.what_if({"input": "here"}, fast).given.metrics["time_s"]
    assert 0.04 < expected.mean < 0.047


def test_switches_that_only_help_together_are_found():
    knobs = {"a": Bool(), "b": Bool()}

    def cost(params, input):
        on = int(params["a"]) + int(params["b"])
        return ((1.0, 0.5, 1.0), (1.0, 1.3, 0.5))[input == "sort"][on]

    default = {"a": False, "b": False}
    tuner, _ = searched(12, noise=0.02, cost=cost, knobs=knobs, default=default)
    assert [cost(tuner.recommend({"input": name}), name) for name in ("dot", "sort")] == [0.5, 0.5]


def test_continuous_knobs_and_wide_ones():
    knobs = {"x": Float(0, 1), "y": Float(0, 1), "n": Int(1, 100_000, log=True)}

    def cost(params, input):
        middle = 0.3 if input == "dot" else 0.8
        return math.exp((params["x"] - middle) ** 2 + (params["y"] - 0.6) ** 2 + 0.01 * math.log(params["n"] / 50) ** 2)

    tuner, _ = searched(60, noise=0.002, cost=cost, knobs=knobs, default={"x": 0.5, "y": 0.5, "n": 1000})
    for input in ("dot", "sort"):
        assert cost(tuner.recommend({"input": input}), input) < 1.01


def test_a_run_is_ended_once_it_is_clearly_behind_the_best():
    tuner, _ = searched(20, noise=0.001)
    best = seconds(tuner.recommend({"input": "dot"}), "dot")
    suggestion = tuner.ask({"input": "dot"})
    assert best < suggestion.stop < 1.5 * best
    assert tuner.should_stop(suggestion.id, {"time_s": 1.6 * best})


def test_it_goes_on_from_a_file_as_if_nothing_had_happened():
    tuner, _ = searched(15)
    twin = Tuner.from_bytes(tuner.to_bytes())
    for step in range(6):
        one, two = tuner.ask({"input": "dot"}), twin.ask({"input": "dot"})
        assert one == two
        for each in (tuner, twin):
            each.tell(one.id, {"time_s": 0.1 + 0.01 * step})


def test_without_compiled_code_it_looks_at_the_same(monkeypatch):
    _, compiled = searched(24, noise=0.01)
    monkeypatch.setattr(gp_knobs, "ready", lambda: False)
    _, plain = searched(24, noise=0.01)
    assert plain == compiled


def test_a_setting_that_failed_is_not_recommended():
    tuner = Tuner({"mode": Categorical(["a", "b", "c"])}, {"time_s": "min"}, None, {"mode": "a"}, goal="find")
    for _ in range(8):
        suggestion = tuner.ask()
        if suggestion.params["mode"] == "b":
            tuner.tell_failed(suggestion.id)
        else:
            tuner.tell(suggestion.id, {"time_s": 1.0 if suggestion.params["mode"] == "a" else 0.9})
    assert tuner.recommend() == {"mode": "c"}


@pytest.mark.parametrize("option", [{"guard": 0.1}, {"budget": 0.5}, {"switching_cost": 1.0}])
def test_options_about_the_way_are_refused(option):
    with pytest.raises(InvalidSpace, match="does not count with goal='find'"):
        Tuner({"x": Float(0, 1)}, {"y": "min"}, default={"x": 0.5}, goal="find", **option)


def test_an_unknown_goal_is_refused():
    with pytest.raises(InvalidSpace, match='goal must be "live" or "find", got \'seek\''):
        Tuner({"x": Float(0, 1)}, {"y": "min"}, goal="seek")


def test_only_listed_settings_run():
    tuner = Tuner(FLAGS, {"time_s": "min"}, default=PLAIN, goal="find")
    rows = [{**PLAIN, "level": level, "math": math} for level in ("1", "3", "s") for math in (False, True)]
    listed, ran = tuner.listed(rows), []
    for _ in range(6):
        fresh = np.array([row not in ran for row in rows])
        suggestion = tuner.ask(among=listed.where(fresh))
        ran.append(suggestion.params)
        tuner.tell(suggestion.id, {"time_s": seconds(suggestion.params, "dot")})
    assert sorted(map(str, ran)) == sorted(map(str, rows))
    with pytest.raises(InvalidValue, match="no setting is left"):
        listed.where(np.zeros(6, dtype=bool))
    assert tuner.ask(among=rows).params in rows  # all are known: one of them runs again
    assert seconds(tuner.recommend(among=rows), "dot") == pytest.approx(0.04)


def test_a_default_that_cannot_run_is_not_recommended():
    """In a situation that nobody has seen, too: of what can run there the best that keeps the limit, by the others."""
    knobs = {"size": Categorical([1, 2, 4, 8, 16], ordered=True), "kind": Categorical(["a", "b"])}
    metrics = {"ms": Metric("min", scale="log"), "mb": Metric("min", max=10.0)}
    tuner = Tuner(knobs, metrics, {"load": "number"}, goal="find")
    for load in range(4):
        for size in (1, 2, 4, 8, 16):
            for kind in ("a", "b"):
                told = {"ms": (load + 1.0) * (30.0 - size + 5.0 * (kind == "b")), "mb": float(size)}
                tuner.observe({"load": load}, {"size": size, "kind": kind}, told)
    some = [{"size": size, "kind": kind} for size in (1, 8, 16) for kind in ("a", "b")]
    assert tuner.recommend({"load": 4}, among=some) == {"size": 8, "kind": "a"}
    assert tuner.recommend({"load": 4}, among=[{"size": 16, "kind": "b"}]) == {"size": 16, "kind": "b"}
    tuner.freeze()
    assert tuner.ask({"load": 4}, among=some).params == {"size": 8, "kind": "a"}


def test_a_long_list_is_searched_by_what_was_learned():
    """Of 4,096 settings one in 64 is fast: 30 looks find it, where 30 at random would not."""
    knobs = {f"k{i}": Bool() for i in range(12)}
    rng = np.random.default_rng(5)
    rows = [dict(zip(knobs, map(bool, row), strict=True)) for row in rng.integers(0, 2, (1500, 12))]
    tuner = Tuner(knobs, {"time_s": Metric("min", scale="log")}, default=rows[0], goal="find", seed=1)
    listed = tuner.listed(rows)
    for _ in range(30):
        suggestion = tuner.ask(among=listed)
        assert suggestion.params in rows
        time = 2.0 ** sum(suggestion.params[f"k{i}"] != (i % 2 == 0) for i in range(6))
        tuner.tell(suggestion.id, {"time_s": time})
    best = tuner.recommend(among=rows)
    assert [best[f"k{i}"] for i in range(6)] == [True, False, True, False, True, False]


@pytest.mark.parametrize(
    ("among", "words"),
    [
        ([], "at least one setting"),
        ({"level": "2"}, "among must be a list of settings"),
        ([PLAIN, {**PLAIN, "level": "9"}], r"among\[1\]\['level'\]"),
    ],
)
def test_a_list_that_is_wrong_is_refused_in_words(among, words):
    tuner = Tuner(FLAGS, {"time_s": "min"}, default=PLAIN, goal="find")
    with pytest.raises(InvalidValue, match=words):
        tuner.ask(among=among)


def test_a_list_keeps_constraints_and_needs_a_search():
    rule = {"constraints": ["a + b <= 5"], "default": {"a": 1, "b": 1}}
    tuner = Tuner({"a": Int(0, 9), "b": Int(0, 9)}, {"time_s": "min"}, goal="find", **rule)
    with pytest.raises(InvalidValue, match="break constraints"):
        tuner.ask(among=[{"a": 4, "b": 4}])
    assert tuner.ask(among=[{"a": 2, "b": 3}, {"a": 0, "b": 1}]).params == {"a": 0, "b": 1}  # nearest to the default
    with pytest.raises(InvalidValue, match='goal="find"'):
        Tuner({"a": Int(0, 9)}, {"time_s": "min"}).ask(among=[{"a": 1}])


def test_a_listed_setting_runs_also_after_failures():
    tuner = Tuner(FLAGS, {"time_s": "min"}, default=PLAIN, goal="find")
    rows = [{**PLAIN, "level": "s", "math": True}, {**PLAIN, "level": "3", "loops": True}]
    for _ in range(6):  # before anything succeeded points are drawn at random
        suggestion = tuner.ask(among=rows)
        assert suggestion.params in rows
        tuner.tell_failed(suggestion.id, "no")


def test_a_listed_search_keeps_limits():
    metrics = {"time_s": "min", "mb": Metric("min", max=55.0)}
    tuner = Tuner({"size": Int(1, 10)}, metrics, default={"size": 1}, goal="find")
    rows = [{"size": size} for size in range(1, 11)]
    sizes = []
    for _ in range(24):
        suggestion = tuner.ask(among=rows)
        size = suggestion.params["size"]
        sizes.append(size)
        tuner.tell(suggestion.id, {"time_s": 1.0 / size, "mb": 10.0 * size})
    assert np.mean(np.array(sizes[12:]) <= 5) >= 0.75


def test_asks_in_flight_get_different_looks():
    tuner, _ = searched(8)
    asked = [tuner.ask({"input": "dot"}).params for _ in range(6)]
    assert len({tuple(params.values()) for params in asked}) == 6


def test_asks_in_flight_are_spread():
    """A run that waits will tell about its neighbours, too: the next look goes elsewhere."""

    def asked(waiting):
        knobs = {"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)}
        tuner = Tuner(knobs, {"time_s": "min"}, default={"x": 0.5, "y": 0.5}, goal="find", seed=3)
        for x, y in [(0.5, 0.5), (0.1, 0.1), (0.9, 0.1), (0.1, 0.9), (0.9, 0.9)]:
            tuner.observe(None, {"x": x, "y": y}, {"time_s": 1.0 + (x - 0.7) ** 2 + (y - 0.3) ** 2})
        points = []
        for _ in range(6):
            suggestion = tuner.ask()
            points.append(list(suggestion.params.values()))
            if not waiting:
                tuner.withdraw(suggestion.id)
        gaps = np.linalg.norm(np.array(points)[:, None] - np.array(points), axis=-1)
        return float(gaps[np.triu_indices(6, 1)].min())

    assert asked(waiting=True) > 3.0 * asked(waiting=False)


def test_an_ask_in_another_situation_is_no_news_here():
    tuner, _ = searched(8)
    other, _ = searched(8)
    other.ask({"input": "sort"})
    other._rng = np.random.default_rng(0)
    tuner._rng = np.random.default_rng(0)
    assert tuner.ask({"input": "dot"}).params == other.ask({"input": "dot"}).params


def within(knobs, default, metrics, work, runs, inputs=("a",), seed=0, noise=0.0):
    """A search under limits: the tuner, and what ran on each input."""
    tuner = Tuner(knobs, metrics, {"input": Category()}, default, goal="find", seed=seed)
    rng, ran = np.random.default_rng(seed), {input: [] for input in inputs}
    for step in range(runs):
        input = inputs[step % len(inputs)]
        suggestion = tuner.ask({"input": input})
        ran[input].append(suggestion.params)
        found = work(suggestion.params, input)
        tuner.tell(suggestion.id, {name: value * math.exp(noise * rng.normal()) for name, value in found.items()})
    return tuner, ran


PRESETS = {
    "preset": Categorical(["a", "b", "c", "d", "e", "f"], ordered=True),
    "window": Int(0, 9),
    "threads": Int(1, 4),
}
USUAL = {"preset": "d", "window": 2, "threads": 1}
SPEED = {"a": 0.2, "b": 0.3, "c": 0.5, "d": 0.7, "e": 1.0, "f": 1.6}
SIZE = {"a": 4.0, "b": 2.0, "c": 1.3, "d": 1.05, "e": 1.0, "f": 0.95}


def packed(params, input):
    """Fast presets and many threads are large; a wide window is small, and slow far from 3."""
    more = 0.05 if input == "b" else 0.0
    return {
        "cost": SPEED[params["preset"]] * (1.0 + 0.02 * (params["window"] - 3) ** 2) / params["threads"] ** 0.5,
        "size": SIZE[params["preset"]] - 0.05 * params["window"] + 0.03 * params["threads"] + more,
    }


def best_packed(most, input):
    every = [
        {"preset": preset, "window": window, "threads": threads}
        for preset in SPEED
        for window in range(10)
        for threads in range(1, 5)
    ]
    return min(packed(params, input)["cost"] for params in every if packed(params, input)["size"] <= most)


@pytest.mark.parametrize("limit", [{"max": 1.235}, {"at_most": "1.255 default"}])
@pytest.mark.parametrize("seed", range(2))
def test_with_a_limit_the_best_that_keeps_it_is_found(limit, seed):
    metrics = {"cost": Metric("min", scale="log"), "size": Metric("min", weight=0.0, **limit)}
    tuner, ran = within(PRESETS, USUAL, metrics, packed, 60, ("a", "b"), seed)
    for input, settings in ran.items():
        most = limit.get("max", 1.255 * packed(USUAL, input)["size"])
        found = packed(tuner.recommend({"input": input}), input)
        assert found["size"] <= most
        assert found["cost"] <= 1.02 * best_packed(most, input)
        assert len({tuple(params.values()) for params in settings}) >= 28


def test_where_the_default_breaks_a_limit_what_keeps_it_is_looked_for():
    metrics = {"cost": Metric("min", scale="log"), "size": Metric("min", weight=0.0, max=0.755)}
    tuner, ran = within(PRESETS, {**USUAL, "preset": "a"}, metrics, packed, 40)
    first = next(i for i, params in enumerate(ran["a"]) if packed(params, "a")["size"] <= 0.755)
    assert first <= 16  # one setting in six keeps it, and none with another preset alone
    found = packed(tuner.recommend({"input": "a"}), "a")
    assert found["size"] <= 0.755
    assert found["cost"] <= 1.02 * best_packed(0.755, "a")


@pytest.mark.parametrize("seed", range(2))
def test_while_nothing_keeps_a_limit_what_is_cheap_and_may_keep_it_runs_next(seed):
    """The dearest kind costs 128 times the cheapest one, and is only a little surer to keep the limit."""
    kinds, rng = "abcdefgh", np.random.default_rng(seed)
    metrics = {"cost": Metric("min", scale="log"), "ms": Metric("min", weight=0.0, scale="log", max=30.0)}
    tuner = Tuner({"kind": Categorical([*kinds])}, metrics, {"load": Category()}, goal="find")

    def told(kind):
        place = kinds.index(kind)
        return {"cost": 2.0**place, "ms": 45.0 if kind == "e" else 29.0 - 2.0 * place}

    for load in range(8):
        for kind in kinds:
            noisy = {**told(kind), "ms": told(kind)["ms"] * math.exp(0.2 * rng.normal())}
            tuner.observe({"load": str(load)}, {"kind": kind}, noisy)
    first = tuner.ask({"load": "new"})
    assert first.params["kind"] == "e"  # the default, which breaks the limit
    tuner.tell(first.id, told("e"))
    assert tuner.ask({"load": "new"}).params["kind"] in "abcd"


def test_with_a_limit_on_continuous_knobs():
    def work(params, input):
        del input
        return {
            "cost": math.exp(2.0 * (params["x"] - 1.0) ** 2 + (params["y"] - 0.3) ** 2),
            "size": 0.2 + params["x"] + 0.5 * (params["y"] - 0.5) ** 2,
        }

    metrics = {"cost": Metric("min", scale="log"), "size": Metric("min", weight=0.0, max=0.8)}
    knobs, default = {"x": Float(0, 1), "y": Float(0, 1)}, {"x": 0.2, "y": 0.5}
    tuner, _ = within(knobs, default, metrics, work, 30)
    found = work(tuner.recommend({"input": "a"}), "a")
    assert found["size"] <= 0.8
    assert found["cost"] < 1.02 * math.exp(2.0 * 0.41**2)  # near x = 0.59, y = 0.4


def test_what_lies_on_a_limit_is_not_run_for_ever():
    """Noise alone decides whether such a setting keeps it: more runs would not tell."""
    metrics = {"cost": "min", "size": Metric("min", weight=0.0, max=5.0)}
    knobs, default = {"size": Int(1, 10), "mode": Categorical([*"abcdefgh"])}, {"size": 1, "mode": "a"}

    def work(params, input):
        del input
        return {"cost": 1.0 / params["size"] + 0.01 * ord(params["mode"]), "size": float(params["size"])}

    _, ran = within(knobs, default, metrics, work, 40, noise=0.01)
    runs = [tuple(params.values()) for params in ran["a"]]
    assert max(map(runs.count, runs)) <= 4


def test_a_run_is_ended_behind_the_best_that_keeps_the_limits():
    """The fastest setting breaks the limit: to be slower than that is no reason to end a run."""
    metrics = {"cost": "min", "size": Metric("min", weight=0.0, max=2.0)}
    tuner = Tuner({"mode": Categorical([*"abcdef"])}, metrics, default={"mode": "a"}, goal="find")
    for mode, cost, size in [("a", 1.0, 1.0), ("b", 0.1, 9.0), ("c", 0.8, 1.0), ("d", 1.2, 1.1)]:
        for _ in range(2):
            tuner.observe(None, {"mode": mode}, {"cost": cost, "size": size})
    suggestion = tuner.ask()
    assert suggestion.params["mode"] in "ef"
    assert 0.8 < suggestion.stop < 1.2
    assert tuner.recommend() == {"mode": "c"}
    assert tuner.ask_for(None, {"mode": "e"}).stop is None


def test_asks_in_flight_with_limits_get_different_looks():
    metrics = {"cost": Metric("min", scale="log"), "size": Metric("min", weight=0.0, max=1.2)}
    tuner, _ = within(PRESETS, USUAL, metrics, packed, 12)
    asked = [tuner.ask({"input": "a"}).params for _ in range(5)]
    assert len({tuple(params.values()) for params in asked}) == 5


def test_a_long_list_is_searched_within_limits():
    knobs = {f"k{i}": Bool() for i in range(12)}
    rng = np.random.default_rng(5)
    rows = [dict(zip(knobs, map(bool, row), strict=True)) for row in rng.integers(0, 2, (1800, 12))]
    metrics = {"cost": Metric("min", scale="log"), "size": Metric("min", weight=0.0, max=4.5)}
    default = min(rows, key=lambda row: sum(row.values()))
    tuner = Tuner(knobs, metrics, default=default, goal="find", seed=1)
    listed, kept = tuner.listed(rows), []
    for _ in range(40):
        suggestion = tuner.ask(among=listed)
        on = sum(suggestion.params.values())
        tuner.tell(suggestion.id, {"cost": 2.0 ** -sum(suggestion.params[f"k{i}"] for i in range(6)), "size": 1.0 * on})
        kept.append((on <= 4, sum(suggestion.params[f"k{i}"] for i in range(6))))
    assert max(speed for fine, speed in kept if fine) == 4  # the best there is within the limit


@pytest.mark.parametrize("levels", [11, 30, 99])
def test_what_is_known_without_noise_does_not_run_again(levels):
    """Also where a value's place in the box has rounding errors, or many values are taken for a continuum."""
    tuner = Tuner({"x": Int(0, levels)}, {"loss": "min"}, {"input": Category()}, {"x": 5}, goal="find")
    ran = {"a": [], "b": []}
    for step in range(60):
        input = "ab"[step % 2]
        suggestion = tuner.ask({"input": input})
        x = suggestion.params["x"]
        ran[input].append(x)
        tuner.tell(suggestion.id, {"loss": 0.21 if x == 7 else 1.0 + 0.001 * x})
    for input, values in ran.items():
        assert len(set(values)) == min(30, levels + 1)
        assert levels > 11 or tuner.recommend({"input": input}) == {"x": 7}


def test_what_is_far_better_elsewhere_is_looked_at_soon():
    tuner = Tuner({"x": Int(0, 11)}, {"loss": "min"}, {"input": Category()}, {"x": 5}, goal="find")
    for x in (5, 0, 11, 2, 9):
        for input in "ab":
            tuner.observe({"input": input}, {"x": x}, {"loss": 1.0 + 0.001 * x})
    tuner.observe({"input": "b"}, {"x": 7}, {"loss": 0.21})
    looks = []
    for _ in range(3):
        suggestion = tuner.ask({"input": "a"})
        looks.append(suggestion.params["x"])
        tuner.tell(suggestion.id, {"loss": 0.21 if looks[-1] == 7 else 1.0 + 0.001 * looks[-1]})
    assert 7 in looks


@pytest.mark.parametrize("idle", [2, 3])
@pytest.mark.parametrize("edge", [0.0, 1.0])
def test_what_lies_between_two_bad_ends_is_found_beside_idle_knobs(idle, edge):
    left = []
    for seed in (2, 4):  # of six, those that missed it before a search saw what lies between
        rng = np.random.default_rng(seed)
        best, names = rng.uniform(0.2, 0.8), [f"k{i}" for i in range(1 + idle)]
        tuner = Tuner(
            {name: Float(0, 1) for name in names},
            {"s": "min"},
            None,
            dict.fromkeys(names, edge),
            seed=seed,
            goal="find",
        )
        for _ in range(40):
            own = tuner.ask()
            tuner.tell(own.id, {"s": math.exp(0.6 * (own.params["k0"] - best) ** 2 + 0.02 * rng.normal())})
        left.append((tuner.recommend()["k0"] - best) ** 2 / (edge - best) ** 2)
    assert max(left) < 0.2  # of what the default costs more than the best


@pytest.mark.parametrize("listed", [True, False])
def test_a_choice_that_others_spoilt_runs_beside_good_ones(listed):
    """`cpu` alone is five times faster; it ran only beside what slows all down, and the others change nothing."""
    knobs = {"level": Categorical(["2", "1", "3", "s"]), "without": Categorical(["", "vectors", "inline"])}
    knobs |= {"cpu": Bool(), "math": Bool(), "loops": Bool()}

    def cost(params):
        slow = {"1": 15.0, "s": 28.5}.get(params["level"]) or {"vectors": 16.0}.get(params["without"])
        return slow or (1.4 if params["cpu"] else 7.0)

    def flags(level, on="", without=""):
        return {"level": level, "without": without} | {name: name in on for name in ("cpu", "math", "loops")}

    tuner = Tuner(knobs, {"time_s": Metric("min", scale="log")}, default=flags("2"), goal="find")
    ran = [
        flags("2"),
        flags("3", "", "inline"),
        flags("3", "cpu loops", "vectors"),
        flags("1", "math loops", "vectors"),
    ]
    ran += [flags("3", "math"), flags("3", "math loops", "inline"), flags("2", "math", "inline")]
    ran += [flags("s", "math", "inline"), flags("1", "cpu math"), flags("2", "loops", "inline")]
    for params in ran:
        tuner.observe(None, params, {"time_s": cost(params)})
    values = itertools.product("213s", ["", "vectors", "inline"], *[[False, True]] * 3)
    rows = tuner.listed([dict(zip(knobs, row, strict=True)) for row in values]) if listed else None
    times = []
    for _ in range(4):
        suggestion = tuner.ask(among=rows)
        times.append(cost(suggestion.params))
        tuner.tell(suggestion.id, {"time_s": times[-1]})
    assert min(times) == 1.4


@pytest.mark.parametrize("seed", [4, 5, 9])
def test_all_of_few_settings_run_once_before_any_runs_again(seed):
    """One of 17 is twenty times faster, another one on each input; a smooth model does not expect it anywhere."""
    rng = random.Random(seed)
    best = dict(zip("ab", rng.sample([x for x in range(17) if x != 8], 2), strict=True))
    metric = {"time_s": Metric("min", scale="log")}
    tuner = Tuner({"x": Int(0, 16)}, metric, {"input": Category()}, {"x": 8}, seed=seed, goal="find")
    ran = {"a": [], "b": []}
    for step in range(40):
        input = "ab"[step % 2]
        suggestion = tuner.ask({"input": input})
        ran[input].append(suggestion.params["x"])
        level = 0.05 if ran[input][-1] == best[input] else 1.0
        tuner.tell(suggestion.id, {"time_s": level * rng.lognormvariate(0.0, 0.03)})
    for input, values in ran.items():
        assert len(set(values)) >= 16
        assert best[input] not in values[:-1] or tuner.recommend({"input": input}) == {"x": best[input]}
