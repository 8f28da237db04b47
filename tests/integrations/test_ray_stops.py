"""RaspScheduler: trials of Ray Tune end at their stop, and are learned as at least so bad."""

import pytest

from rasp_tuner import InvalidSpace, InvalidValue
from tests.later import Later

tune = Later("ray.tune", "an extra of its own: pip install 'rasp-tuner[ray-tune]'")
ray_tune = Later("rasp_tuner.integrations.ray_tune")
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # Ray leaves sockets and files to the collector

COSTS = {"a": 1.0, "b": 10.0, "c": 0.5}


def space():
    return {"plan": tune.choice(list(COSTS))}


def searcher(**more):
    search = ray_tune.RaspSearch(**{"default": {"plan": "a"}, "seed": 0, **more})
    search.set_search_properties("cost", "min", space())
    return search


class Trial:
    def __init__(self, trial_id):
        self.trial_id = trial_id


class Controller:
    """What a scheduler sees of Ray: the search, as Ray wraps it."""

    def __init__(self, search):
        self.search_alg = search


def run(search, trial, scheduler, controller):
    """One trial as Ray's loop makes it: it reports its cost in a hundred parts. How many it reported, and its plan."""
    plan = search.suggest(trial)["plan"]
    for part in range(1, 101):
        result = {"cost": COSTS[plan] * part / 100}
        if scheduler.on_trial_result(controller, Trial(trial), result) == scheduler.STOP:
            break
    search.on_trial_complete(trial, result=result)
    return part, plan


def test_a_ruinous_trial_ends_at_its_stop_and_is_learned_as_a_bound():
    search, scheduler = searcher(), ray_tune.RaspScheduler()
    controller = Controller(tune.search.ConcurrencyLimiter(search, max_concurrent=2))
    ran = [run(search, f"t{i}", scheduler, controller) for i in range(20)]
    assert {plan for part, plan in ran if part < 100} == {"b"}
    assert all(part < 20 for part, plan in ran if plan == "b")
    rows = search.tuner.history()
    assert [row["stopped"] for row in rows] == [part < 100 for part, _ in ran]
    assert search.recommend() == {"plan": "c"}


def test_it_needs_our_search_and_a_default():
    with pytest.raises(InvalidSpace, match="search_alg=RaspSearch"):
        ray_tune.RaspScheduler().on_trial_result(Controller(object()), Trial("t"), {"cost": 1.0})
    search = searcher(default=None)
    search.suggest("t0")
    with pytest.raises(InvalidValue, match="default"):
        ray_tune.RaspScheduler().on_trial_result(Controller(search), Trial("t0"), {"cost": 1.0})
    assert ray_tune.RaspScheduler().on_trial_result(Controller(search), Trial("unknown"), {"cost": 1.0}) == "CONTINUE"
    assert ray_tune.RaspScheduler().on_trial_result(Controller(search), Trial("t0"), {"other": 1.0}) == "CONTINUE"
