"""What a tuner knows of more situations than one fit has rows for."""

import numpy as np
import pytest

from rasp_tuner import Categorical, Tuner
from rasp_tuner.engine.gp.family import AWAY_ROWS, MOST_ROWS

KNOBS, VALUES, WIDTH = 6, "abcd", 4
SITUATIONS, STEPS = 20, 25
DEFAULT = {f"k{j}": "b" for j in range(KNOBS)}


class World:
    """Every value of every knob has an effect of its own in each situation; the best is 0."""

    def __init__(self, seed, situations=SITUATIONS):
        self.rng = np.random.default_rng(seed)
        effects = 0.2 * self.rng.normal(size=(situations, KNOBS, len(VALUES)))
        self.effects = effects - effects.min(axis=2, keepdims=True)
        self.contexts = self.rng.normal(size=(situations, WIDTH))
        space = {f"k{j}": Categorical(list(VALUES)) for j in range(KNOBS)}
        self.tuner = Tuner(space, {"ms": "min"}, context=WIDTH, default=DEFAULT, seed=seed)

    def regret(self, params, situation):
        return float(sum(self.effects[situation, j, VALUES.index(v)] for j, v in enumerate(params.values())))

    def step(self, situation):
        suggestion = self.tuner.ask(self.contexts[situation])
        regret = self.regret(suggestion.params, situation)
        self.tuner.tell(suggestion.id, {"ms": np.exp(regret + 0.03 * self.rng.normal())})
        return regret

    def learned(self, steps=STEPS):
        for situation in range(len(self.contexts)):
            for _ in range(steps):
                self.step(situation)
        return self


@pytest.fixture(scope="module")
def world():
    return World(0).learned()


def family(tuner):
    return tuner._optimizer.family


@pytest.mark.slow
def test_a_situation_that_returns_after_many_others_starts_from_what_worked():
    """Also one of more situations than one fit has rows for."""
    world = World(0, situations=30).learned()
    known, usual = (
        sum(world.regret(choose(context), situation) for situation, context in enumerate(world.contexts))
        for choose in (world.tuner.recommend, lambda _: DEFAULT)
    )
    assert known < 0.1 * usual


def test_what_is_asked_of_other_situations_changes_nothing(world):
    before, later = world.tuner.to_bytes(), []
    for looks in (True, False):
        tuner = Tuner.from_bytes(before)
        if looks:
            for context in world.contexts:
                tuner.recommend(context)
        for situation in (0, 7, 0):
            suggestion = tuner.ask(world.contexts[situation])
            tuner.tell(suggestion.id, {"ms": 1.0})
            later.append(suggestion.params)
    assert later[:3] == later[3:]


def test_a_restart_between_an_ask_and_its_tell_changes_nothing(world):
    one = Tuner.from_bytes(world.tuner.to_bytes())
    suggestion = one.ask(world.contexts[0])  # whose rows come back
    two = Tuner.from_bytes(one.to_bytes())
    for tuner in (one, two):
        tuner.tell(suggestion.id, {"ms": 1.0})
    for name, array in family(one).state().items():
        np.testing.assert_array_equal(array, family(two).state()[name])


def test_rows_of_a_situation_come_back_in_place_of_others(world):
    tuner = Tuner.from_bytes(world.tuner.to_bytes())
    rows, here = family(tuner), world.contexts[0]

    def here_in_fit():
        return int((rows.believe(here).kc > 0.9).sum()), int((rows._stored["contexts"] == here).all(axis=1).sum())

    before = rows.state()
    known, fitted = here_in_fit()
    assert known > fitted
    tuner.tell(tuner.ask(here).id, {"ms": 1.0})
    assert here_in_fit()[1] >= known
    after = rows.state()
    assert rows._stored.count == MOST_ROWS
    assert before["own"].sum() + 1.0 == pytest.approx(after["own"].sum())
    assert {tuple(point) for point in before["points"]} <= {tuple(point) for point in after["points"]}


def test_rows_are_bounded_also_with_those_put_away(monkeypatch):
    monkeypatch.setattr("rasp_tuner.engine.gp.family.AWAY_ROWS", 40)
    world = World(1, situations=30)
    for situation in range(30):
        for _ in range(14):
            params = {name: VALUES[world.rng.integers(4)] for name in DEFAULT}
            world.tuner.observe(world.contexts[situation], params, {"ms": 1.0 + world.rng.random()})
    state = family(world.tuner).state()
    assert len(state["points"]) == MOST_ROWS + 40
    again = Tuner.from_bytes(world.tuner.to_bytes())
    for name, array in state.items():
        np.testing.assert_array_equal(array, family(again).state()[name])


@pytest.mark.slow
def test_two_that_put_rows_away_are_merged():
    pair = [World(seed, 18).learned(20) for seed in (0, 1)]
    counts = sum(float(family(world.tuner).state()["counts"].sum()) for world in pair)
    pair[0].tuner.merge(pair[1].tuner)
    merged = family(pair[0].tuner).state()
    assert MOST_ROWS < len(merged["points"]) <= MOST_ROWS + AWAY_ROWS
    assert merged["counts"].sum() == pytest.approx(counts)
