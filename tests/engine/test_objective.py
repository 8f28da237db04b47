"""The target of metrics: their scales, deviations and weights; alone, and through the public Tuner."""

import numpy as np
import pytest

from rasp_tuner import Categorical, Float, Int, InvalidValue, Metric, Tuner
from rasp_tuner.engine.objective import LEAST_LOG, Objective
from rasp_tuner.engine.scale import levels_apart

LOWER, HIGHER = Metric("min", scale="linear"), Metric("max", scale="linear")


def test_metrics_become_losses_where_lower_is_better():
    objective = Objective({"ms": LOWER, "tps": Metric("max", weight=3.0, scale="linear")})
    assert objective.to_minimise({"tps": 5.0, "ms": 2.0}).tolist() == [2.0, -5.0]
    assert objective.weights.tolist() == [0.25, 0.75]
    with pytest.raises(InvalidValue, match="lacks"):
        objective.to_minimise({"ms": 2.0})
    assert objective.seen == 0


def test_the_target_of_one_metric_is_that_metric():
    objective = Objective({"ms": Metric("min", weight=7.0, scale="linear")})
    for value in (1.0, 5.0, 100.0, -3.0):
        assert not objective.observe(objective.to_minimise({"ms": value}))
    assert objective.weights.tolist() == [1.0]


def test_several_metrics_are_weighed_by_their_deviation_looked_at_when_samples_double():
    objective, rng = Objective({"a": LOWER, "b": LOWER}), np.random.default_rng(0)
    values = rng.normal(size=(40, 2)) * [1.0, 1000.0] + [0.0, 5e4]
    changed = [objective.observe(objective.to_minimise({"a": a, "b": b})) for a, b in values]
    assert [i + 1 for i, did in enumerate(changed) if did] == [2, 4, 8, 16, 32]
    assert objective.weights == pytest.approx(0.5 / values[:32].std(axis=0))


def test_a_constant_metric_does_not_divide_by_zero():
    objective = Objective({"a": LOWER, "b": LOWER})
    for value in range(8):
        objective.observe(objective.to_minimise({"a": float(value), "b": 0.1}))
    assert objective.weights[1] == 0.5


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_a_failure_counts_as_twice_what_the_default_comes_to(scale):
    objective = Objective({"ms": Metric("min", scale=scale)})
    for ms in (2.0, 3.0, 4.0):
        objective.observe(objective.to_minimise({"ms": ms}))
    level = objective.target(objective.to_minimise({"ms": 5.0}))
    assert objective.of_failure(level) == pytest.approx(objective.to_minimise({"ms": 10.0}))


def test_a_failure_is_worse_by_a_deviation_where_the_default_comes_to_nothing():
    objective = Objective({"drift": LOWER})
    for drift in (-3.0, 3.0):
        objective.observe(objective.to_minimise({"drift": drift}))
    assert objective.of_failure(0.0) == pytest.approx([3.0])


def test_a_failure_is_worse_in_every_metric():
    objective = Objective({"a": LOWER, "b": HIGHER})
    for a, b in ((1.0, 4.0), (3.0, 2.0), (2.0, 9.0)):
        objective.observe(objective.to_minimise({"a": a, "b": b}))
    usual = objective.to_minimise({"a": 2.0, "b": 5.0})
    assert (objective.of_failure(objective.target(usual)) > usual).all()


def test_weights_may_change_for_some_metrics_and_bad_ones_change_nothing():
    objective = Objective({"a": LOWER, "b": HIGHER})
    objective.reweigh({"b": 3.0})
    assert objective.weights.tolist() == [0.25, 0.75]
    bad = [
        ({"c": 1.0}, "no metric 'c'"),
        ({"a": 2.0, "b": -1.0}, "weights.'b'"),
        ([1.0], "must map"),
        (None, "must map"),
    ]
    for weights, says in bad:
        with pytest.raises(InvalidValue, match=says):
            objective.reweigh(weights)
    assert objective.weights.tolist() == [0.25, 0.75]
    assert objective.metrics["b"] == Metric("max", 3.0, "linear")


def test_an_objective_restored_is_the_same():
    objective, other = (Objective({"a": "min", "b": "max"}) for _ in range(2))
    for t in range(11):
        objective.observe(objective.to_minimise({"a": t**2, "b": -t}))
    other.restore({name: array.copy() for name, array in objective.state().items()})
    for part in (objective, other):
        for t in range(11):
            part.observe(part.to_minimise({"a": -t, "b": t**2}))
    assert np.array_equal(objective.weights, other.weights)
    assert np.array_equal(objective.of_failure(1.0), other.of_failure(1.0))
    assert objective.seen == other.seen == 22


def test_a_metric_that_differs_by_rounding_alone_does_not_outweigh_the_other():
    objective = Objective({"a": LOWER, "b": LOWER})
    for a, b in ((0.1 + 0.2, 5.0), (0.3, 7.0)):
        objective.observe(objective.to_minimise({"a": a, "b": b}))
    assert objective.weights.tolist() == [0.5, 0.5]


def test_a_metric_whose_scale_is_open_has_a_column_for_each():
    objective = Objective({"ms": Metric("min"), "tps": HIGHER, "cost": Metric("max", scale="log")})
    assert objective.columns == 4
    losses = objective.to_minimise({"ms": np.e, "tps": 5.0, "cost": np.e**2})
    assert losses == pytest.approx([np.e, 1.0, -5.0, -2.0])
    assert objective.scales == {"ms": "linear", "tps": "linear", "cost": "log"}
    assert objective.weights == pytest.approx([1 / 3, 0.0, 1 / 3, 1 / 3])  # a column that is not used weighs nothing
    assert objective.to_minimise({"ms": -1.0, "tps": 0.0, "cost": 1.0})[:2].tolist() == [-1.0, LEAST_LOG]


@pytest.mark.parametrize("value", [0.0, -3.0])
def test_a_log_scale_refuses_what_has_no_logarithm(value):
    tuner = Tuner({"x": Float(0, 1)}, {"ms": Metric("min", scale="log")})
    s = tuner.ask()
    before = tuner.to_bytes()
    with pytest.raises(InvalidValue, match=r"metrics\['ms'\] must be above 0, since its scale is 'log'"):
        tuner.tell(s.id, {"ms": value})
    assert tuner.to_bytes() == before
    tuner.tell(s.id, {"ms": 1e-300})


def loads(tuner, steps, told=lambda ms: ms, seed=0):
    """Two workloads whose milliseconds differ a thousandfold; how many times the best each step takes."""
    rng, ratios, scales = np.random.default_rng(seed), [], []
    for step in range(steps):
        heavy = step // 5 % 2
        s = tuner.ask([float(heavy)])
        ratio = 1.0 + 3.0 * (s.params["x"] - (0.8 if heavy else 0.2)) ** 2 + 0.5 * (s.params["c"] != "ab"[heavy])
        ms = 1000.0**heavy * ratio * np.exp(0.02 * rng.normal())
        tuner.tell(s.id, {"ms": told(float(ms))})
        ratios.append(ratio)
        scales.append(tuner.scales["ms"])
    return np.array(ratios), scales


def two_loads(seed=0, scale="auto", useless=0, **options):
    space = {"x": Float(0.0, 1.0), "c": Categorical(["a", "b"])} | {f"u{i}": Float(0.0, 1.0) for i in range(useless)}
    return Tuner(space, {"ms": Metric("min", scale=scale)}, context=1, seed=seed, **options)


def test_workloads_a_thousandfold_apart_are_compared_by_factors():
    """Milliseconds as they are serve nearly as well as logarithms made by hand, also where knobs are continuous."""
    raw, by_hand = [], []
    for seed in range(3):
        ratios, scales = loads(two_loads(seed, useless=1), 80, seed=seed)
        assert set(scales[24:]) == {"log"}
        raw.append(ratios[24:].mean())
        told = loads(two_loads(seed, "linear", useless=1), 80, lambda ms: float(np.log(ms)), seed)[0]
        by_hand.append(told[24:].mean())
    assert np.mean(raw) - 1.0 < 1.5 * (np.mean(by_hand) - 1.0) + 0.02


def switches(metrics, told, steps=30):
    """Six switches, each of which multiplies both metrics by a factor of its own; the suggestions, and the tuner.

    Later, rounding decides between looks that are worth the same.
    """
    space = {f"k{i}": Int(0, 1) for i in range(6)}
    tuner = Tuner(space, metrics, default=dict.fromkeys(space, 0), seed=1)
    rng, asked = np.random.default_rng(1), []
    for _ in range(steps):
        s = tuner.ask()
        asked.append(s.params)
        on = np.array(list(s.params.values()))
        logs = 5.0 - on @ [1.0, -0.7, 0.3, 0.0, 0.5, -2.0], on @ [0.1, 0.4, 0.0, -0.3, 0.0, 1.0]
        values = np.exp(logs + 0.02 * rng.normal(size=2))
        tuner.tell(s.id, {name: told(float(value)) for name, value in zip(metrics, values, strict=False)})
    return asked, tuner


@pytest.mark.parametrize("names", [("ms",), ("ms", "mb")])
def test_among_switches_metrics_are_compared_by_factors_from_the_start(names):
    asked, tuner = switches(dict.fromkeys(names, "min"), lambda value: value)
    assert tuner.scales == dict.fromkeys(names, "log")
    assert asked == switches(dict.fromkeys(names, Metric("min", scale="log")), lambda value: value)[0]
    assert asked != switches(dict.fromkeys(names, LOWER), lambda value: value)[0]
    restored = Tuner.from_bytes(tuner.to_bytes())
    assert restored.scales == tuner.scales
    assert restored.ask().params == tuner.ask().params


def test_among_switches_a_metric_below_zero_is_learned_as_it_is():
    _, tuner = switches({"ms": "min", "mb": "min"}, lambda value: value, steps=10)
    tuner.tell(tuner.ask().id, {"ms": 3.0, "mb": -5.0})
    assert tuner.scales == {"ms": "log", "mb": "log"}  # one value proves nothing
    tuner.tell(tuner.ask().id, {"ms": 3.0, "mb": -4.0})
    assert tuner.scales == {"ms": "log", "mb": "linear"}
    _, tuner = switches({"ms": "min"}, lambda value: value, steps=10)
    for scale, told in (("log", "left out"), ("linear", "it came to ms -5")):
        s = tuner.ask()
        tuner.tell(s.id, {"ms": -5.0})
        assert tuner.scales == {"ms": scale}
        assert told in f"{tuner.explain(s.id)} {tuner.explain(s.id).details}"
    assert tuner.explain(s.id).error == -5.0


def test_the_first_value_may_be_below_zero():
    asked, tuner = switches({"ms": "min"}, lambda value: -value)
    assert tuner.scales == {"ms": "linear"}
    assert asked == switches({"ms": LOWER}, lambda value: -value)[0]


def test_levels_in_order_that_are_many_are_no_switches():
    tuner = Tuner({"a": Int(0, 40), "b": Int(0, 40), "c": Int(0, 1)}, {"ms": "min"})
    tuner.tell(tuner.ask().id, {"ms": 1.0})
    assert tuner.scales == {"ms": "linear"}


def test_a_cost_that_goes_to_zero_is_found_where_knobs_have_levels():
    """Its logarithm has no bottom: with it, the best recommended of these costs 2 on average."""
    found = []
    for seed in range(4):
        space = {"x": Float(-3, 3), "y": Int(1, 15), "z": Float(0, 3, step=0.25)}
        tuner = Tuner(space, {"cost": "min"}, default={"x": 0.0, "y": 3, "z": 1.5}, seed=seed)

        def cost(params):
            return (params["x"] - 1.5) ** 2 + abs(params["y"] - 6) + params["z"]

        for _ in range(40):
            s = tuner.ask()
            tuner.tell(s.id, {"cost": cost(s.params)})
        found.append(cost(tuner.recommend()))
    assert np.mean(found) < 0.2


def test_a_metric_that_falls_to_zero_is_linear_for_ever():
    tuner = two_loads()
    assert loads(tuner, 40)[1][-1] == "log"
    for scale in ("log", "linear"):  # one value proves nothing
        tuner.observe([0.0], {"x": 0.5, "c": "a"}, {"ms": 0.0})
        assert tuner.scales == {"ms": scale}
    assert set(loads(tuner, 40)[1]) == {"linear"}
    assert set(loads(Tuner.from_bytes(tuner.to_bytes()), 20)[1]) == {"linear"}


@pytest.mark.parametrize("zero", [False, True])
def test_what_has_no_logarithm_is_not_looked_at_on_a_log_scale(zero):
    """One value of zero proves nothing, but on a log scale it would be the best ever by hundreds of nats."""
    rng, objective = np.random.default_rng(0), Objective({"ms": Metric("min")})
    contexts = np.repeat([[0.0], [1.0]], 16, axis=0)
    values = 1000.0 ** contexts[:, 0] * rng.uniform(1.0, 2.0, 32)
    values[5] *= not zero
    losses = np.array([objective.to_minimise({"ms": value}) for value in values.tolist()])
    for value in values[values > 0.0].tolist():
        objective.observe_level(value)
    assert objective.choose_scale(contexts, losses) is not zero
    assert objective.scales == {"ms": "linear" if zero else "log"}


@pytest.mark.parametrize("apart", [False, True])
def test_levels_differ_also_where_one_situation_is_rare(apart):
    """Few are like a rare one, and its nearest eight are of other situations; without contexts there are none."""
    rng, rare = np.random.default_rng(0), np.arange(48) % 12 == 11
    logs = np.where(rare, np.log(10.0), 0.0) + 0.1 * rng.normal(size=48)
    contexts = 6.0 * rare[:, None] * float(apart)
    assert levels_apart(contexts[None], logs[None], np.ones((1, 48), dtype=bool)).tolist() == [apart]


@pytest.mark.parametrize("seed", range(2))
def test_distances_to_zero_stay_linear(seed):
    tuner = Tuner({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)}, {"gap": "min"}, seed=seed)
    for _ in range(60):
        s = tuner.ask()
        tuner.tell(s.id, {"gap": (s.params["x"] - 0.3) ** 2 + (s.params["y"] - 0.6) ** 2 + 1e-9})
    assert tuner.scales == {"gap": "linear"}


def test_errors_and_forecasts_are_in_units_of_the_metric_on_any_scale():
    for direction, sign in (("min", 1.0), ("max", -1.0)):
        objective = Objective({"m": Metric(direction, scale="log")})
        target = float(objective.to_minimise({"m": 250.0}) @ objective.weights)
        assert objective.own_units(target) == pytest.approx(sign * 250.0)
        assert np.isfinite(objective.own_units(1e9))
    assert Objective({"m": LOWER}).own_units(-7.0) == -7.0
    tuner = two_loads()
    loads(tuner, 40)
    s = tuner.ask([1.0])
    tuner.tell(s.id, {"ms": 1234.5})
    why = tuner.explain(s.id)
    assert (why.scale, why.error) == ("log", pytest.approx(1234.5))
    assert 500.0 < why.predicted < 5000.0
    assert 500.0 < tuner.expected_of_default([1.0]) < 5000.0


def test_a_snapshot_keeps_the_scale():
    tuner = two_loads()
    loads(tuner, 40)
    other = Tuner.from_bytes(tuner.to_bytes())
    assert other.scales == tuner.scales == {"ms": "log"}
    assert loads(other, 20)[0].tolist() == loads(tuner, 20)[0].tolist()
    assert other.to_bytes() == tuner.to_bytes()


def test_a_gap_is_a_share_of_the_default_on_any_scale():
    for scale in ("linear", "log"):
        objective = Objective({"ms": Metric("min", scale=scale)})
        low, high = (float(objective.to_minimise({"ms": ms}) @ objective.weights) for ms in (200.0, 220.0))
        assert objective.relative(high - low, low) == pytest.approx(0.1)


@pytest.mark.parametrize("seed", range(3))
def test_logarithms_are_taken_where_they_explain_more(seed):
    """No context, no choices: p99 of a queue is a product of factors; a distance that vanishes has no logarithm."""

    def after(steps, outcome):
        knobs = {"pool": Int(2, 200, log=True), "batch": Int(1, 64, log=True)}
        tuner = Tuner(knobs, {"ms": "min"}, default={"pool": 10, "batch": 4}, seed=seed)
        rng = np.random.default_rng(seed)
        for _ in range(steps):
            s = tuner.ask()
            tuner.tell(s.id, {"ms": outcome(apart(s.params), rng.normal())})
        return tuner

    def apart(params):
        return np.log(params["pool"] / 40.0) ** 2 + 0.4 * np.log(params["batch"] / 16.0) ** 2

    assert after(24, lambda gap, noise: 20.0 * np.exp(gap + 0.1 * noise)).scales == {"ms": "log"}
    distance = after(80, lambda gap, noise: gap + 0.01 * abs(noise))
    assert apart(distance.recommend()) < 0.05
