"""Stops and the contract of a fleet: those of as many tuners."""

import math

import numpy as np
import pytest
from fleet_worlds import FleetDraws, fleet, tuner

from rasp_tuner import InvalidValue, Metric
from rasp_tuner.fleet import Fleet

SIZE = 4
SETTINGS = {
    "plain": {},
    "no context": {"context": None},
    "careful": {"guard": 0.3, "switching_cost": 0.05},
    "logarithm": {"metrics": {"ms": Metric("min", scale="log")}},
    "no budget": {"default": None, "budget": None},
}


class Costs:
    """What points [n, d] cost: the default 10, which others beat for the first tuners only; now and then much more."""

    def __init__(self, seed=0, spikes=0.1, gaining=1):
        self.rng, self.spikes, self.gaining = np.random.default_rng(seed), spikes, gaining

    def contexts(self):
        return self.rng.normal(size=(SIZE, 2))

    def of(self, points, default):
        far = np.abs(points - default).sum(axis=1)
        costs = np.where(far == 0.0, 10.0, np.where(np.arange(SIZE) < self.gaining, 10.0 - 2.0 * far, 11.0 + 8.0 * far))
        costs = np.where(self.rng.random(SIZE) < self.spikes, 3.0 * costs, costs)
        return costs * np.exp(0.03 * self.rng.normal(size=SIZE))


class Pair:
    """A fleet and as many tuners with its draws, side by side."""

    def __init__(self, **settings):
        self.many, self.ones = fleet(SIZE, **settings), [tuner(**settings) for _ in range(SIZE)]
        self.blind, self.steps, self.sources = settings.get("context", 2) is None, 0, []

    def step(self, costs, ends):
        """One step of all, in which runs are ended or not; how many were."""
        contexts = costs.contexts()
        given = [None] * SIZE if self.blind else contexts
        suggested = self.many.ask(None if self.blind else contexts)
        came = costs.of(suggested.points, self.many._plan.default)
        ended = ends & (came >= suggested.stop)
        told = np.where(ended, suggested.stop, came)
        for i, one in enumerate(self.ones):
            one._rng = FleetDraws(i, self.steps)
            single = one.ask(given[i])
            ran = {name: float(values[i]) for name, values in suggested.params.items()}
            assert single.params == pytest.approx(ran, rel=1e-6, abs=1e-6), (self.steps, i)
            stop = math.inf if single.stop is None else single.stop
            assert suggested.stop[i] == pytest.approx(stop, rel=1e-6), (self.steps, i)
            self.sources.append(one.explain(single.id).source)
            one.tell(single.id, {"ms": float(told[i])}, ran, stopped=bool(ended[i]))
        self.many.tell({"ms": told}, stopped=ended)
        self.steps += 1
        return int(ended.sum())

    def check_books(self):
        for i, one in enumerate(self.ones):
            own, theirs = self.many[i].budget(), one.budget()
            assert (own is None) == (theirs is None)
            if own is not None and theirs is not None:
                names = ("steps", "spent", "earned", "left", "allowed", "measured", "error")
                mine, other = ([getattr(budget, name) for name in names] for budget in (own, theirs))
                assert mine == pytest.approx(other, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_fleet_whose_runs_are_ended_is_as_many_tuners(settings):
    pair, costs = Pair(**settings), Costs()
    ended = sum(pair.step(costs, True) for _ in range(60))
    pair.check_books()
    if settings.get("budget", 1) is None:
        assert ended == 0
    else:
        assert ended > 10
        assert "default (the latest runs were stopped)" in pair.sources
        assert "default (its own cost is measured again)" in pair.sources


def test_audits_begin_after_a_calm_time():
    pair, costs = Pair(), Costs(gaining=SIZE, spikes=0.0)
    for _ in range(70):
        assert pair.step(costs, False) == 0
    pair.check_books()
    audits = [at // SIZE for at, source in enumerate(pair.sources) if "measured again" in source]
    assert audits
    assert min(audits) >= 60


def test_there_are_none_while_runs_go_on_beyond_their_stops():
    pair, costs = Pair(), Costs()
    for _ in range(70):
        pair.step(costs, False)
    pair.check_books()
    assert not any("measured" in source for source in pair.sources)


def test_where_a_run_was_ended_it_is_learned_as_that_or_worse():
    """Also before anything else is known, and from a run that nobody asked for."""
    many, ones, rng = fleet(2), [tuner(), tuner()], np.random.default_rng(0)
    names = list(many._plan.space.knobs)
    for step in range(14):
        contexts, units = rng.normal(size=(2, 2)), rng.random((2, len(names)))
        params = {name: many._plan.space.knobs[name].from_unit(units[:, k][0]) for k, name in enumerate(names)}
        columns = {name: np.full(2, value) for name, value in params.items()}
        came, stopped = 10.0 + rng.random(2), np.array([step % 3 == 0, step % 2 == 1])
        many.observe(contexts, columns, {"ms": came}, stopped=stopped)
        for i, one in enumerate(ones):
            one.observe(contexts[i], params, {"ms": float(came[i])}, stopped=bool(stopped[i]))
    for i, one in enumerate(ones):
        assert many[i].recommend(contexts[i]) == pytest.approx(one.recommend(contexts[i]), rel=1e-6)
        states = [tuner._optimizer.state() for tuner in (many[i], one)]
        for name in ("family/window_losses", "stops/ended", "stops/count", "calibration/factor", "objective/seen"):
            np.testing.assert_allclose(states[0][name], states[1][name], rtol=1e-6, err_msg=name)


def test_several_metrics_have_no_stop_but_may_be_told_as_ended():
    metrics = {"ms": "min", "rate": "max"}
    many, ones, rng = fleet(2, metrics=metrics), [tuner(metrics=metrics) for _ in range(2)], np.random.default_rng(3)
    for step in range(20):
        contexts = rng.normal(size=(2, 2))
        suggested = many.ask(contexts)
        assert np.isinf(suggested.stop).all()
        told, stopped = {"ms": 5.0 + rng.random(2), "rate": 9.0 + rng.random(2)}, rng.random(2) < 0.3
        many.tell(told, stopped=stopped)
        for i, one in enumerate(ones):
            one._rng = FleetDraws(i, step)
            single = one.ask(contexts[i])
            assert single.params == pytest.approx({k: float(v[i]) for k, v in suggested.params.items()}, abs=1e-6)
            one.tell(single.id, {name: float(v[i]) for name, v in told.items()}, stopped=bool(stopped[i]))


def played(steps=25, many=None):
    """A fleet some of whose runs were ended, with suggestions that wait."""
    many, costs = fleet(SIZE) if many is None else many, Costs(5)
    for _ in range(steps):
        suggested = many.ask(costs.contexts())
        came = costs.of(suggested.points, many._plan.default)
        many.tell({"ms": np.minimum(came, suggested.stop)}, stopped=came >= suggested.stop)
    return many, many.ask(costs.contexts())


def test_a_saved_fleet_goes_on_with_its_stops_and_its_bill(tmp_path):
    many, suggested = played()
    assert np.isfinite(suggested.stop).any()
    many.save(tmp_path / "fleet.rasp")
    again = Fleet.load(tmp_path / "fleet.rasp")
    for one in (many, again):
        one.tell({"ms": np.full(SIZE, 30.0)})
    for i in range(SIZE):
        assert many[i].budget() == again[i].budget()
    (points, stops), (others, same) = ((s.points, s.stop) for _, s in (played(30, many), played(30, again)))
    assert (points == others).all()
    assert (stops == same).all()


def test_a_tuner_out_of_a_fleet_has_the_stop_of_what_waits_and_brings_it_back():
    many, suggested = played()
    i = int(np.flatnonzero(np.isfinite(suggested.stop))[0])
    one = many[i]
    (id,) = (waiting.id for waiting in one.pending)
    assert one.should_stop(id, {"ms": 1.01 * float(suggested.stop[i])})
    assert not one.should_stop(id, {"ms": 0.99 * float(suggested.stop[i])})
    before = one.budget()
    many[i] = one
    assert many[i].budget() == before
    assert many[i].to_bytes() == one.to_bytes()


def test_some_tuners_at_a_time_have_the_stops_of_all():
    whole, parts, costs = fleet(SIZE), fleet(SIZE), Costs(7)
    for _ in range(30):
        contexts = costs.contexts()
        suggested = whole.ask(contexts)
        came = costs.of(suggested.points, whole._plan.default)
        ended = came >= suggested.stop
        told = np.minimum(came, suggested.stop)
        whole.tell({"ms": told}, stopped=ended)
        for rows in ([2, 0], [1, 3]):
            some = parts.ask(contexts[rows], rows)
            assert some.stop == pytest.approx(suggested.stop[rows], rel=1e-9)
            parts.tell({"ms": told[rows]}, rows, stopped=ended[rows])


@pytest.mark.parametrize(
    ("ends", "says"),
    [
        ({"stopped": True}, "stopped must hold 2 times True or False, got True"),
        ({"stopped": [True]}, "stopped must hold 2 times"),
        ({"stopped": [1, 0]}, "stopped must hold 2 times"),
        ({"stopped": ["yes", "no"]}, "stopped must hold 2 times"),
        ({"failed": [False, True], "stopped": [True, True]}, "both True for tuner 1"),
        ({"control": {"ms": [1.0, 2.0]}}, "a fleet takes no control"),
    ],
)
def test_wrong_masks_are_said_and_change_nothing(ends, says):
    many = fleet(2)
    many.ask(np.zeros((2, 2)))
    with pytest.raises(InvalidValue, match=says):
        many.tell({"ms": [1.0, 2.0]}, **ends)
    assert many.pending.all()
    assert many.learned.tolist() == [0, 0]
    if "control" not in ends and "failed" not in ends:
        params = {name: np.full(2, value) for name, value in many[0].default.items()}
        with pytest.raises(InvalidValue, match=says):
            many.observe(np.zeros((2, 2)), params, {"ms": [1.0, 2.0]}, **ends)
    many.tell({"ms": [1.0, 2.0]}, stopped=[False, True])


def test_the_contract_holds_for_a_fleet_in_a_world_that_nothing_beats():
    """True bills, in steps of the default's cost: as many tuners' with stops; without, far more."""
    peaks = {}
    for ends in (True, False):
        many, rng, bill = fleet(6, context=None), np.random.default_rng(2), np.zeros(6)
        for _ in range(150):
            suggested = many.ask()
            other = (suggested.points != many._plan.default).any(axis=1)
            cost = np.where(other, 1.5, 1.0) * np.exp(0.03 * rng.normal(size=6))
            ended = ends & (cost >= suggested.stop)
            many.tell({"ms": np.where(ended, suggested.stop, cost)}, stopped=ended)
            bill += np.where(ended, suggested.stop, cost) - 1.0
        peaks[ends] = bill.max()
    assert peaks[True] < 12.0
    assert peaks[False] > 2.0 * peaks[True]
