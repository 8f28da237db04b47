"""A fleet does what as many tuners would do."""

import numpy as np
import pytest
from fleet_worlds import METRICS, SPACE, FleetDraws, Worlds, fleet, teach, tuner

from rasp_tuner import Float, Metric
from rasp_tuner.fleet import Fleet

SETTINGS = {
    "plain": {},
    "no context": {"context": None},
    "no default": {"default": None, "budget": None},
    "careful": {"guard": 0.1, "switching_cost": 0.2},
    "logarithm": {"metrics": {"ms": Metric("min", scale="log")}},
}


@pytest.mark.parametrize("levels", [False, True])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_every_suggestion_is_that_of_a_tuner_with_the_same_draws(settings, levels):
    size, worlds = 3, Worlds(3, levels=levels)
    many, ones = fleet(size, **settings), [tuner(**settings) for _ in range(size)]
    for step in range(40):
        contexts = worlds.contexts()
        given = None if settings.get("context", 2) is None else contexts
        suggested = many.ask(given)
        failed = worlds.rng.random(size) < 0.1
        metrics = worlds.metrics(suggested.points, contexts)
        for i, one in enumerate(ones):
            one._rng = FleetDraws(i, step)
            single = one.ask(None if given is None else given[i])
            ran = {name: float(values[i]) for name, values in suggested.params.items()}
            assert single.params == pytest.approx(ran, rel=1e-6, abs=1e-6), (step, i)
            if failed[i]:
                one.tell_failed(single.id, params=ran)
            else:
                one.tell(single.id, {"ms": float(metrics["ms"][i])}, params=ran)
        many.tell(metrics, failed=failed)
        if step % 5 != 4:
            continue
        best = many.recommend(given)
        for i, one in enumerate(ones):
            single = one.recommend(None if given is None else given[i])
            assert single == pytest.approx({name: float(best[name][i]) for name in best}, rel=1e-6, abs=1e-6)
    assert many.learned.tolist() == [40] * size


def test_two_metrics_and_an_early_failure():
    metrics = {"ms": "min", "rate": Metric("max", weight=2.0)}
    many, ones = fleet(3, metrics=metrics), [tuner(metrics=metrics) for _ in range(3)]
    rng = np.random.default_rng(0)
    for step in range(25):
        contexts = rng.normal(size=(3, 2))
        suggested = many.ask(contexts)
        told = {"ms": 5.0 + (suggested.points**2).sum(axis=1), "rate": rng.random(3) * 100.0}
        failed = np.array([step < 1, step == 5, False])
        many.tell({name: np.where(failed, np.nan, values) for name, values in told.items()}, failed=failed)
        for i, one in enumerate(ones):
            one._rng = FleetDraws(i, step)
            single = one.ask(contexts[i])
            assert single.params == pytest.approx({k: float(v[i]) for k, v in suggested.params.items()}, abs=1e-6)
            if failed[i]:
                one.tell_failed(single.id)
            else:
                one.tell(single.id, {name: float(values[i]) for name, values in told.items()})


def test_what_failed_before_the_first_success_is_learned_after_it():
    many, one = fleet(2), tuner()
    for step in range(70):
        many.ask(np.full((2, 2), float(step)))
        one._rng = FleetDraws(1, step)
        one.tell_failed(one.ask([step, step]).id)
        many.tell({"ms": [7.0, np.inf]}, failed=[False, True])
    assert many[1].slots().contexts.size == 0
    many.ask(np.zeros((2, 2)))
    many.tell({"ms": [7.0, 8.0]})
    one._rng = FleetDraws(1, 70)
    one.tell(one.ask([0.0, 0.0]).id, {"ms": 8.0})
    assert many.learned.tolist() == [71, 71]
    assert many[1].slots().contexts.tolist() == one.slots().contexts.tolist()
    assert len(one.slots().contexts) == 65  # and no more


def test_observing_is_that_of_tuners():
    many, ones, rng = fleet(2), [tuner(), tuner()], np.random.default_rng(1)
    contexts = np.zeros((2, 2))
    for _ in range(12):
        contexts, units = rng.normal(size=(2, 2)), rng.random((2, 3))
        params = {name: [knob.from_unit(u) for u in units[:, k]] for k, (name, knob) in enumerate(SPACE.items())}
        values = 3.0 + ((units - 0.7) ** 2).sum(axis=1)
        many.observe(contexts, params, {"ms": values})
        for i, one in enumerate(ones):
            one.observe(contexts[i], {name: column[i] for name, column in params.items()}, {"ms": values[i]})
    best = many.recommend(contexts)
    for i, one in enumerate(ones):
        assert one.recommend(contexts[i]) == pytest.approx({name: float(best[name][i]) for name in best}, abs=1e-7)


def test_some_tuners_at_a_time_are_all_of_them():
    worlds, whole, parts = Worlds(7), fleet(7), fleet(7)
    for step in range(15):
        contexts = worlds.contexts()
        suggested = whole.ask(contexts)
        metrics = worlds.metrics(suggested.points, contexts)
        whole.tell(metrics)
        for rows in ([5, 1, 3], np.arange(7) % 2 == 0, slice(0, 0)) if step % 2 else (None,):
            own = np.arange(7)[slice(None) if rows is None else rows]
            part = parts.ask(contexts[own], rows)
            assert (part.which == own).all()
            np.testing.assert_allclose(part.points, suggested.points[own], rtol=0.0, atol=1e-9)
            parts.tell({"ms": metrics["ms"][own]}, rows)


def test_a_belief_of_another_moment_is_not_used():
    one, other = fleet(), fleet()
    for taught in (one, other):
        teach(taught, Worlds(4), 8)
    contexts = Worlds(4, 5).contexts()
    params = {name: [knob.from_unit(0.3)] for name, knob in SPACE.items()}
    one.ask(contexts)
    one.observe(contexts[:1], params, {"ms": [9.0]}, [0])
    other.observe(contexts[:1], params, {"ms": [9.0]}, [0])
    other.ask(contexts)
    for taught in (one, other):
        taught.tell({"ms": [11.0, 12.0, 10.5, 11.5]})
    np.testing.assert_allclose(one.ask(contexts).points[1:], other.ask(contexts).points[1:], atol=1e-12)


def test_it_learns():
    worlds, taught = Worlds(20), fleet(20)
    tried = teach(taught, worlds, 30)
    first, last = (np.mean([worlds.regrets(points) for points in some]) for some in (tried[:1], tried[-5:]))
    assert last < 0.2 * first
    assert taught.learned.tolist() == [30] * 20


def test_asking_again_replaces_what_waits():
    many = fleet(1, context=1)
    many.ask([[0.0]])
    many.ask([[5.0]])
    many.tell({"ms": [1.0]})
    assert many[0].slots().contexts.tolist() == [[5.0]]


def test_tuners_come_and_go():
    worlds, many = Worlds(6), fleet(4)
    teach(many, worlds, 5, np.arange(4))
    assert many.add(2).tolist() == [4, 5]
    teach(many, worlds, 2)
    kept = many[3].to_bytes()
    many.remove([0, 4])
    assert len(many) == 4
    assert many.learned.tolist() == [7, 7, 7, 2]
    assert many[2].to_bytes() == kept
    teach(many, Worlds(4), 1)
    many.remove(None)
    assert len(many) == 0
    assert many.ask(np.zeros((0, 2))).points.shape == (0, 3)
    assert many.add().tolist() == [0]
    assert many.ask(np.zeros((1, 2))).params["a"].tolist() == [0.4]


def test_tuners_that_are_added_go_the_way_of_those_that_were_there():
    many, more = fleet(6), fleet(4)
    more.add(2)
    np.testing.assert_array_equal(*(teach(taught, Worlds(6), 8) for taught in (many, more)))


def test_a_number_is_never_used_again():
    """A new tuner must not repeat the draws of one that was removed."""
    many, other = fleet(2), fleet(2)
    many.remove(1)
    many.add()
    probes = [teach(taught, Worlds(2), 2)[1] for taught in (many, other)]
    assert (probes[0][0] == probes[1][0]).all()
    assert (probes[0][1] != probes[1][1]).any()


def test_memory_is_stated_and_bounded():
    many = fleet(3)
    assert 10_000 < many.memory_per_tuner < 300_000
    teach(many, Worlds(3), 5, failures=0.5)
    taken = [*many._tuners.arrays(), *(array for _, array in many._tuners.batch.state.items())]
    assert 0.7 * many.memory_per_tuner < sum(array.nbytes for array in taken) / 3 <= many.memory_per_tuner


def test_tensors_may_come_in():
    torch = pytest.importorskip("torch")
    many = fleet(2)
    points = many.ask(torch.zeros((2, 2)), torch.tensor([0, 1])).points
    assert isinstance(points, np.ndarray)
    many.tell({"ms": torch.ones(2)}, failed=torch.tensor([True, False]))
    assert many.learned.tolist() == [1, 1]


def test_chunks_and_threads_change_nothing(monkeypatch):
    whole = teach(fleet(9), Worlds(9), 6)
    monkeypatch.setattr("rasp_tuner.fleet.device.CPU_CHUNK", 2)
    monkeypatch.setattr("rasp_tuner.fleet.device.CPU_THREAD_FROM", 2)
    monkeypatch.setattr("rasp_tuner.fleet.device._cores", lambda: 3)
    np.testing.assert_allclose(teach(fleet(9), Worlds(9), 6), whole, rtol=0.0, atol=1e-9)


def test_without_context():
    many = Fleet({"x": Float(0.0, 1.0)}, METRICS, default={"x": 0.5}, size=3)
    many.ask()
    many.tell({"ms": [1.0, 2.0, 3.0]})
    assert many.recommend()["x"].tolist() == [0.5] * 3
