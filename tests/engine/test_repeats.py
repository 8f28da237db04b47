"""Runs that were added up: models learn their sum as they would learn each of them."""

import numpy as np
import pytest

from rasp_tuner import Float, Int, Metric, Tuner, presets
from rasp_tuner.engine.kernel import native
from rasp_tuner.errors import InvalidValue

SPACES = {"levels": {"pool": Int(1, 64, log=True)}, "floats": {"pool": Float(1, 64, log=True)}}


def world(pool, qps):
    return 20.0 + 10.0 * np.log(pool / (40.0 if qps > 500.0 else 4.0)) ** 2


def summed(values, params, contexts, **more):
    sums = {"sum": float(np.sum(values)), "squares": float(np.sum(np.square(values)))}
    return {"params": params, "contexts": contexts, "count": len(values), "metrics": {"p99": sums}, **more}


def tuner_of(space, scale="auto", **settings):
    return Tuner(SPACES[space], {"p99": Metric("min", scale=scale)}, context=["qps"], default={"pool": 16}, **settings)


def cells(rng, count, noise=1.0):
    """Settings in two situations, each with what `count` runs came to."""
    for pool in (16, 4, 40, 8, 25, 2, 60):
        for qps in (100.0, 900.0):
            yield {"pool": pool}, [qps], world(pool, qps) + noise * rng.uniform(-1.0, 1.0, size=count)


@pytest.fixture(params=["compiled", "numpy"])
def backend(request, monkeypatch):
    if request.param == "numpy":
        monkeypatch.setattr(native, "available", lambda: False)
    elif not native.available():
        pytest.skip("the kernel is not compiled")


def state_of(tuner):
    return tuner._optimizer.state()


def by_setting(state):
    """Samples and mean losses of each point in each context, over all rows of it."""
    rows = zip(state["family/points"][:, 0], state["family/contexts"][:, 0].round(), strict=True)
    groups = {}
    for i, key in enumerate(rows):
        groups.setdefault(key, []).append(i)
    counts, losses = state["family/counts"], state["family/losses"]
    found = [
        (counts[own].sum(), np.average(losses[own], axis=0, weights=counts[own])) for _, own in sorted(groups.items())
    ]
    return np.array([count for count, _ in found]), np.array([mean for _, mean in found])


@pytest.mark.parametrize(("scale", "apart"), [("linear", 1e-10), ("log", 1e-4)])  # logarithms: as of log-normal values
@pytest.mark.parametrize("count", [2, 7, 40])
def test_rows_of_the_process_are_those_of_the_samples(count, scale, apart):
    """Up to 50 runs: from then on single samples fade, which a sum does not."""
    rng = np.random.default_rng(0)
    one_by_one, added = tuner_of("levels", scale), tuner_of("levels", scale)
    for params, context, values in cells(rng, count):
        for value in values:
            one_by_one.observe(context, params, {"p99": value})
        added.tell_sums([summed(values, params, [context])])
    assert one_by_one.learned == added.learned == 14 * count
    ours, theirs = state_of(added), state_of(one_by_one)
    (counts, means), (single, their_means) = by_setting(ours), by_setting(theirs)
    assert len(ours["family/points"]) == 14
    np.testing.assert_array_equal(counts, single)
    np.testing.assert_allclose(means, their_means, atol=apart)
    joined, scatter, _ = ours["family/repeats"] - theirs["family/repeats"]
    assert 0.0 <= joined < 5.0  # of single samples some were taken for outliers at first, and joined no row
    assert abs(scatter) < 0.2 * theirs["family/repeats"][1] + 1.0


@pytest.mark.parametrize(
    ("backend", "count"), [("numpy", 2), ("numpy", 7), ("compiled", 2), ("compiled", 300)], indirect=["backend"]
)
@pytest.mark.usefixtures("backend")
def test_sums_of_the_quadratics_are_those_of_the_samples(count):
    rng = np.random.default_rng(0)
    one_by_one, added = (tuner_of("floats", preset=presets.default(quadratic=True)) for _ in range(2))
    for i, (params, context, values) in enumerate(cells(rng, count)):
        values = values if i else np.full(count, 30.0)  # sums are relative to the first loss
        for value in values:
            one_by_one.observe(context, params, {"p99": value})
        added.tell_sums([summed(values, params, [context])])
    ours, theirs = state_of(added), state_of(one_by_one)
    assert ours["family/counts"].sum() == theirs["family/counts"].sum() == 14 * count
    sums = [s["family/prompts"].sum(axis=0) for s in (ours, theirs)]
    above, beside = np.triu_indices(5)  # psi = [1, u, u^2, loss, log loss]
    exact = (above < 4) & (beside < 4)
    np.testing.assert_allclose(sums[0][exact], sums[1][exact], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(sums[0][~exact], sums[1][~exact], rtol=0.02)  # as of log-normal values


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("space", SPACES)
def test_forecasts_of_a_sum_and_of_its_samples_agree(space):
    rng = np.random.default_rng(1)
    one_by_one, added = tuner_of(space, "linear"), tuner_of(space, "linear")
    for params, context, values in cells(rng, 30, noise=3.0):
        for value in values:
            one_by_one.observe(context, params, {"p99": value})
        added.tell_sums([summed(values, params, [context])])
    for qps in (100.0, 900.0):
        for pool in (4, 16, 40):
            ours, theirs = (t.what_if([qps], {"pool": pool}).given.metrics["p99"] for t in (added, one_by_one))
            assert ours.mean == pytest.approx(theirs.mean, abs=1.5)  # of about 40: one run scatters by 3
            assert ours.high - ours.low < 7.0  # of one run: 6
            assert ours.low - 1.5 < world(pool, qps) < ours.high + 1.5
        assert added.recommend([qps])["pool"] == pytest.approx(40 if qps > 500 else 4, rel=0.25)


@pytest.mark.parametrize("space", SPACES)
def test_many_runs_count_for_more_than_few(space):
    """Of 10,000 runs whose noise is ten times the difference, the mean decides; of 20 it does not."""
    sure = {}
    for count in (20, 10_000):
        tuner = tuner_of(space)
        for _ in range(3):
            told = []
            for pool, mean in ((16, 100.0), (8, 99.0), (4, 100.0), (32, 103.0)):
                sums = {"sum": mean * count, "squares": (mean**2 + 10.0**2) * count}
                told.append({"params": {"pool": pool}, "contexts": [[0.5]], "count": count, "metrics": {"p99": sums}})
            tuner.tell_sums(told)
        sure[count] = tuner.what_if([0.5], {"pool": 8}).given.better
    assert sure[20] < 0.95 < 0.99 < sure[10_000]


@pytest.mark.parametrize("space", SPACES)
def test_the_budget_books_every_run_of_a_policy(space):
    tuner = tuner_of(space)
    for pool in (16, 8, 16, 8, 16):
        tuner.tell_sums([summed(np.full(100, world(pool, 100.0)), {"pool": pool}, [[100.0]], policy="1a")])
    assert tuner.budget().steps >= 200
    others = tuner_of(space)
    for pool in (16, 8, 16, 8, 16):
        others.tell_sums([summed(np.full(100, world(pool, 100.0)), {"pool": pool}, [[100.0]])])
    assert others.budget().steps == 0  # nobody asked for them


@pytest.mark.parametrize("settings", [{}, {"metrics": {"p99": "min", "cpu": "min"}}])
@pytest.mark.parametrize("space", SPACES)
def test_sums_are_part_of_a_snapshot(space, settings):
    metrics = settings.get("metrics", {"p99": "min"})
    rest = {name: value for name, value in settings.items() if name != "metrics"}
    tuner = Tuner(SPACES[space], metrics, context=["qps"], default={"pool": 16}, **rest)
    rng = np.random.default_rng(0)
    for params, context, values in cells(rng, 5):
        cell = summed(values, params, [context, [context[0] + 1.0]], policy="1a", leaf=0, setting=1, probability=0.5)
        tuner.tell_sums([{**cell, "metrics": dict.fromkeys(metrics, cell["metrics"]["p99"])}])
    twin = Tuner.from_bytes(tuner.to_bytes())
    assert twin.to_bytes() == tuner.to_bytes()
    assert twin.ask([100.0]) == tuner.ask([100.0])
    assert "70 steps" in str(tuner.versus_default()) or "no saving" in str(tuner.versus_default())


GOOD = {"params": {"pool": 4}, "contexts": [[1.0]], "count": 2, "metrics": {"p99": {"sum": 3.0, "squares": 5.0}}}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"count": 0}, r"sums\[1\].count"),
        ({"count": 1.5}, r"sums\[1\].count"),
        ({"metrics": {}}, r"sums\[1\].metrics"),
        ({"metrics": {"p99": 3.0}}, r"sums\[1\].metrics\['p99'\]"),
        ({"metrics": {"p99": {"sum": 3.0}}}, r"sums\[1\].metrics\['p99'\]"),
        ({"metrics": {"p99": {"sum": float("nan"), "squares": 5.0}}}, "finite"),
        ({"metrics": {"p99": {"sum": 3.0, "squares": 4.0}}}, "cannot be those of 2 numbers"),
        ({"contexts": []}, "at least one"),
        ({"contexts": "abc"}, "must be a list"),
        ({"contexts": [["many"]]}, "context"),
        ({"params": {"pool": 100}}, r"sums\[1\].params"),
        ({"params": 3}, "must have params"),
        ({"policy": 3}, "version of a policy"),
        ({"sum": 3}, "no field 'sum'"),
    ],
)
def test_a_wrong_sum_is_refused_and_nothing_is_learned(change, told):
    tuner = tuner_of("levels")
    tuner.tell_sums([GOOD])
    before = tuner.to_bytes()
    with pytest.raises(InvalidValue, match=told):
        tuner.tell_sums([GOOD, {**GOOD, **change}])
    assert tuner.to_bytes() == before


def test_what_cannot_learn_sums_says_so():
    with pytest.raises(InvalidValue, match="paper"):
        Tuner({"x": Float(0, 1)}, {"p99": "min"}, preset="paper").tell_sums([])
    for wrong in ({}, "abc", 3):
        with pytest.raises(InvalidValue, match="list of sums"):
            tuner_of("levels").tell_sums(wrong)
