"""Many asks before the first answer: as many clients, threads or machines make them."""

from collections import deque

import numpy as np
import pytest

from rasp_tuner import Categorical, Float, Tuner

VALUES = ["a", "b", "c", "d"]
KNOBS = [f"k{j}" for j in range(6)]
DEFAULT = dict.fromkeys(KNOBS, "b")
ALLOWANCE = 6.0  # of a new tuner, in steps of the default's cost
STEPS = 256


class World:
    """Every value of every knob multiplies the cost."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng([seed, 3])
        effects = 0.3 * self.rng.standard_normal((len(KNOBS), len(VALUES)))
        self.effects = effects - effects[:, 1:2]  # of the default: none

    def cost(self, params: dict) -> float:
        return float(
            np.exp(sum(row[VALUES.index(params[knob])] for knob, row in zip(KNOBS, self.effects, strict=True)))
        )

    def measured(self, cost: float) -> dict[str, float]:
        return {"ms": cost * float(np.exp(0.1 * self.rng.standard_normal()))}


def tuner_of(seed: int, **options) -> Tuner:
    return Tuner(dict.fromkeys(KNOBS, Categorical(VALUES)), {"ms": "min"}, default=DEFAULT, seed=seed, **options)


def play(seed: int, at_once: int, all_together: bool = False) -> np.ndarray:
    """Costs [STEPS] of what ran, in those of the default, where so many asks are out at a time."""
    world, tuner, out, costs = World(seed), tuner_of(seed), deque(), []
    for step in range(STEPS):
        if len(out) >= at_once and (step % at_once == 0 or not all_together):
            for _ in range(len(out) if all_together else 1):
                tuner.tell(*out.popleft())
        asked = tuner.ask()
        costs.append(world.cost(asked.params))
        out.append((asked.id, world.measured(costs[-1])))
    return np.array(costs)


def peak(costs: np.ndarray) -> float:
    return float((np.cumsum(costs - 1.0) - 0.02 * np.arange(1, STEPS + 1)).max())


@pytest.mark.parametrize("all_together", [False, True])
def test_what_waits_is_counted_by_the_budget(all_together):
    """Nobody knew of the other 31: each alone was within the budget."""
    runs = [play(seed, 32, all_together) for seed in range(5)]
    assert np.mean([peak(costs) for costs in runs]) <= ALLOWANCE
    assert max(peak(costs) for costs in runs) <= 2.5 * ALLOWANCE  # one ruinous look costs several steps


def test_it_learns_although_answers_are_late():
    assert np.mean([play(seed, 8)[STEPS // 2 :].mean() for seed in range(4)]) <= 0.5


def test_no_new_setting_runs_twice_before_its_first_answer():
    tuner, world = tuner_of(0, budget=None), World(0)
    for _ in range(4):
        out = [tuner.ask() for _ in range(24)]
        new = [tuple(asked.params.values()) for asked in out if tuner.explain(asked.id).source.endswith("moved")]
        assert len(new) == len(set(new))
        for asked in out:
            tuner.tell(asked.id, world.measured(world.cost(asked.params)))


def test_asks_that_are_never_answered_are_forgotten():
    """Half of the clients die: the others learn as ever."""
    costs, world, tuner = [], World(1), tuner_of(1)
    for step in range(2 * STEPS):
        asked = tuner.ask()
        if step % 2:
            costs.append(world.cost(asked.params))
            tuner.tell(asked.id, world.measured(costs[-1]))
    assert np.mean(costs[-STEPS // 4 :]) <= 0.5


def test_who_observes_what_was_asked_for_learns_as_ever():
    """An ask whose outcome is told without its id waits for ever."""
    costs, world, tuner = [], World(2), tuner_of(2)
    for _ in range(STEPS):
        params = tuner.ask().params
        costs.append(world.cost(params))
        tuner.observe(None, params, world.measured(costs[-1]))
    assert np.mean(costs[-STEPS // 4 :]) <= 0.5


def test_who_also_observes_what_nobody_asked_for_keeps_the_budget():
    """A monitor that logs the default answers for none of those that wait; nor does a control beside a run."""
    counted = []
    for logs in (False, True):
        world, tuner, out, costs = World(0), tuner_of(0), deque(), []
        for _ in range(STEPS):
            if len(out) >= 32:
                tuner.tell(*out.popleft(), control=world.measured(1.0) if logs else None)
                if logs:
                    tuner.observe(None, DEFAULT | {"k0": "d"}, world.measured(world.cost(DEFAULT | {"k0": "d"})))
            asked = tuner.ask()
            costs.append(world.cost(asked.params))
            out.append((asked.id, world.measured(costs[-1])))
        counted.append(peak(np.array(costs)))
    assert max(counted) <= 2.5 * ALLOWANCE


@pytest.mark.parametrize("at_once", [1, 32])
def test_another_unit_is_noticed_while_suggestions_wait(at_once):
    """Settings of knobs on a continuum hardly ever run twice."""
    rng, out = np.random.default_rng(0), deque()
    tuner = Tuner({"a": Float(0.0, 1.0), "b": Float(0.0, 1.0)}, {"ms": "min"}, default={"a": 0.2, "b": 0.8}, seed=0)
    for step in range(260):
        if len(out) >= at_once:
            tuner.tell(*out.popleft())
        asked = tuner.ask()
        cost = 1.0 + 4.0 * (asked.params["a"] - 0.6) ** 2 + 4.0 * (asked.params["b"] - 0.4) ** 2
        out.append((asked.id, {"ms": cost * float(np.exp(0.05 * rng.standard_normal())) * (1e3 if step >= 160 else 1)}))
    assert tuner.expected_of_default(None) == pytest.approx(2280.0, rel=0.3)


def test_a_saved_tuner_knows_what_waits(tmp_path):
    world, tuner = World(3), tuner_of(3)
    for _ in range(30):
        asked = tuner.ask()
        tuner.tell(asked.id, world.measured(world.cost(asked.params)))
    for _ in range(5):
        tuner.ask()
    tuner.observe(None, DEFAULT, world.measured(1.0))
    tuner.save(tmp_path / "tuner.npz")
    again = Tuner.load(tmp_path / "tuner.npz")
    assert [again.ask().params for _ in range(20)] == [tuner.ask().params for _ in range(20)]
