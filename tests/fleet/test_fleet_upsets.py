"""Absurd values and other units: a fleet does what as many tuners would do, and its tuners come back from them."""

import numpy as np
import pytest
from fleet_worlds import FleetDraws, Worlds, fleet, tuner

STEPS = 90
UPSETS = {
    "contexts": {"contexts": {0: 1e9, 7: 1e9, 40: -65535.0}},
    "the first metric": {"values": {0: 1e9}},
    "an early metric": {"values": {5: -1e6}},
    "a late metric": {"values": {45: 1e9, 70: 0.0}},
    "often": {"values": {45: 1e9, 50: 1e8, 60: 1e-9}},
    "unit": {"factors": {50: 1000.0}},
    "unit, smaller": {"factors": {40: 1.0 / 60.0}},
    "a world that changes": {"flips": 50},
}


class UpsetWorlds(Worlds):
    """Bowls of which the odd tuners see what goes wrong, by step."""

    def __init__(self, size, contexts=None, values=None, factors=None, flips=-1, **settings):
        super().__init__(size, **settings)
        self.upset, self.factor, self.flips = (contexts or {}, values or {}, factors or {}), 1.0, flips
        self.odd = np.arange(size) % 2 == 1

    def at(self, step, points):
        """Metrics as they are told."""
        _, values, factors = self.upset
        self.factor *= factors.get(step, 1.0)
        if step == self.flips:
            self.optima[self.odd] = 1.0 - self.optima[self.odd]
        costs = 1.0 + 40.0 * self.regrets(points) * (1.0 + self.noise * self.rng.normal(size=len(points)))
        costs = np.where(self.odd, self.factor, 1.0) * costs
        return np.where(self.odd & (step in values), values.get(step, 0.0), costs)

    def told(self, step, contexts):
        """Contexts as they are told."""
        absurd = self.upset[0]
        return np.where((self.odd & (step in absurd))[:, None], absurd.get(step, 0.0), contexts)


@pytest.mark.parametrize("upset", UPSETS.values(), ids=UPSETS)
def test_every_suggestion_is_that_of_a_tuner_with_the_same_draws(upset):
    size = 2
    worlds = UpsetWorlds(size, **upset)
    many, ones = fleet(size), [tuner() for _ in range(size)]
    for step in range(STEPS):
        contexts = worlds.told(step, worlds.contexts())
        suggested = many.ask(contexts)
        failed = worlds.rng.random(size) < 0.05
        ms = worlds.at(step, suggested.points)
        for i, one in enumerate(ones):
            one._rng = FleetDraws(i, step)
            single = one.ask(contexts[i])
            ran = {name: float(values[i]) for name, values in suggested.params.items()}
            assert single.params == pytest.approx(ran, rel=1e-5, abs=1e-5), (step, i)
            if failed[i]:
                one.tell_failed(single.id, params=ran)
            else:
                one.tell(single.id, {"ms": float(ms[i])}, params=ran)
        many.tell({"ms": ms}, failed=failed)
    for i, one in enumerate(ones):
        states = one._optimizer.state(), many[i]._optimizer.state()
        for name in ("intake/losses/ends", "intake/contexts/ends", "intake/watch/count", "objective/log"):
            np.testing.assert_allclose(states[1][name], states[0][name], rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("name", ["contexts", "a late metric", "unit"])
def test_tuners_come_back(name):
    worlds, size = UpsetWorlds(10, **UPSETS[name]), 10
    many, regrets = fleet(size), []
    for step in range(150):
        contexts = worlds.told(step, worlds.contexts())
        points = many.ask(contexts).points
        regrets.append(worlds.regrets(points))
        many.tell({"ms": worlds.at(step, points)})
    upset, clean = (np.mean(regrets[100:], axis=0)[worlds.odd == odd].mean() for odd in (True, False))
    default = worlds.regrets(np.full((size, 3), 0.5)).mean()
    assert clean < 0.1 * default
    assert upset < clean + 0.02 * default


def test_what_is_put_aside_is_saved_and_travels(tmp_path):
    worlds, many = UpsetWorlds(4, factors={40: 1000.0}), fleet(4)
    for step in range(43):
        contexts = worlds.contexts()
        many.tell({"ms": worlds.at(step, many.ask(contexts).points)})
    assert many[1]._optimizer.watch.count[0] == 3.0
    many.save(tmp_path / "fleet")
    again = type(many).load(tmp_path / "fleet")
    again[1] = again[1]
    for step in range(43, 60):
        contexts = worlds.contexts()
        points = many.ask(contexts).points
        np.testing.assert_array_equal(again.ask(contexts).points, points)
        told = {"ms": worlds.at(step, points)}
        many.tell(told)
        again.tell(told)
    assert many[1]._optimizer.watch.count[0] == 0.0
