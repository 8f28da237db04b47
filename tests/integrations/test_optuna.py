"""RaspSampler in Optuna's own loops: the same as a tuner's own loop, and nothing lost at the edges."""

import copy
import logging
import math
import pickle
import sys
from datetime import time
from importlib import import_module

import numpy as np
import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState, create_trial

from rasp_tuner import Categorical, Float, Int, InvalidSpace, InvalidValue, MissingExtra, Tuner
from rasp_tuner.integrations.optuna import RaspSampler
from rasp_tuner.integrations.optuna_space import from_knob, hull, knob_of, to_knob

KNOBS = {"a": Float(0.1, 10, log=True), "b": Int(1, 9, step=2), "c": Categorical(["u", "v", "w"])}
SPACE = {
    "a": FloatDistribution(0.1, 10, log=True),
    "b": IntDistribution(1, 9, step=2),
    "c": CategoricalDistribution(["u", "v", "w"]),
}
LOADS = [step * 7 % 5 / 2 for step in range(25)]


@pytest.fixture(autouse=True)
def quiet():
    """Optuna logs each trial."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield
    optuna.logging.set_verbosity(verbosity)


def loss(a, b, c, load):
    return (math.log(a) - load) ** 2 + 0.1 * abs(b - 3) + (c == "u")


def objective(trial):
    """Its order is not that of the knobs."""
    c = trial.suggest_categorical("c", ["u", "v", "w"])
    a, b = trial.suggest_float("a", 0.1, 10, log=True), trial.suggest_int("b", 1, 9, step=2)
    return loss(a, b, c, trial.user_attrs["context"]["load"])


def enqueue(study, loads=LOADS):
    for load in loads:
        study.enqueue_trial({}, user_attrs={"context": {"load": load}})


def run(sampler, function=objective, loads=LOADS, **study):
    study = optuna.create_study(sampler=sampler, **study)
    enqueue(study, loads)
    study.optimize(function, n_trials=len(loads), catch=ArithmeticError)
    return study


def params_of(study):
    return [trial.params for trial in study.trials]


def native(answer, metrics=None, **settings):
    """A tuner's own loop; `answer` tells it what came of a step."""
    goal = {} if settings else {"goal": "find"}
    tuner = Tuner(KNOBS, {"value": "min"} if metrics is None else metrics, ["load"], seed=7, **goal, **settings)
    for step, load in enumerate(LOADS):
        suggestion = tuner.ask({"load": load})
        answer(tuner, step, suggestion, loss(**suggestion.params, load=load))
    return tuner


def always(tuner, step, suggestion, value):
    del step
    tuner.tell(suggestion.id, {"value": value})


def same(sampler, tuner):
    return sampler.tuner.to_bytes() == tuner.to_bytes()


def test_the_same_calls_give_the_same_suggestions_and_the_same_tuner():
    sampler = RaspSampler(context=["load"], seed=7)
    study, asked = run(sampler), []
    tuner = native(lambda tuner, step, s, value: (asked.append(s.params), always(tuner, step, s, value)))
    assert params_of(study) == asked
    assert same(sampler, tuner)
    assert sampler.recommend({"load": 1.0}) == tuner.recommend({"load": 1.0})


def test_a_default_a_space_and_settings_are_the_tuners_own():
    default = {"a": 1.2345, "b": 9, "c": "u"}
    sampler = RaspSampler(SPACE, ["load"], default, seed=7, switching_cost=0.1, guard=0.2)
    study = run(sampler, lambda trial: -objective(trial), direction="maximize")
    assert study.trials[0].params == default

    def answer(tuner, step, suggestion, value):
        always(tuner, step, suggestion, -value)

    assert same(sampler, native(answer, {"value": "max"}, default=default, switching_cost=0.1, guard=0.2))


def crash(trial, value):
    del trial, value
    raise ArithmeticError


def prune(trial, value):
    trial.report(value + 1, step=3)
    trial.report(value, step=5)
    raise optuna.TrialPruned


def prune_at_once(trial, value):
    del trial, value
    raise optuna.TrialPruned


@pytest.mark.parametrize(
    ("end", "settings", "told"),
    [
        (crash, {}, "failed"),
        (crash, {"failed": "ignore"}, "nothing"),
        (prune, {}, "value"),
        (prune, {"pruned": "failed"}, "failed"),
        (prune, {"pruned": "ignore"}, "nothing"),
        (prune_at_once, {}, "failed"),
        (lambda _, value: math.inf * value, {}, "failed"),
        (lambda *_: math.nan, {}, "failed"),
    ],
)
def test_trials_that_fail_or_are_pruned(end, settings, told):
    sampler = RaspSampler(context=["load"], seed=7, **settings)

    def function(trial):
        value = objective(trial)
        return end(trial, value) if trial.number % 5 == 3 else value

    def answer(tuner, step, suggestion, value):
        if step % 5 != 3 or told == "value":
            always(tuner, step, suggestion, value)
        elif told == "failed":
            tuner.tell_failed(suggestion.id)

    run(sampler, function)
    tuner = native(answer)
    assert list(sampler.tuner.history()) == list(tuner.history())
    assert same(sampler, tuner)


def test_several_objectives_are_refused():
    study = optuna.create_study(sampler=RaspSampler(), directions=["minimize", "minimize"])
    with pytest.raises(InvalidSpace, match="2 objectives cannot be tuned: return their weighted sum"):
        study.optimize(lambda trial: (trial.suggest_float("x", 0, 1), 1.0), n_trials=1)
    assert [trial.state for trial in study.trials] == [TrialState.FAIL]


@pytest.mark.parametrize("stop", [1, 9])
def test_a_study_that_is_resumed_goes_on_as_if_it_had_never_stopped(stop, tmp_path):
    def function(trial):
        value = objective(trial)
        if trial.number == 4:
            raise ArithmeticError
        return value + trial.suggest_float("late", 0, 1) if trial.number > 6 else value

    whole = run(RaspSampler(context=["load"], seed=7), function, LOADS[:15])
    storage = JournalStorage(JournalFileBackend(str(tmp_path / "journal")))
    run(RaspSampler(context=["load"], seed=7), function, LOADS[:stop], storage=storage, study_name="s")
    sampler = RaspSampler(context=["load"], seed=7)
    study = optuna.load_study(study_name="s", storage=storage, sampler=sampler)
    enqueue(study, LOADS[stop:15])
    study.optimize(function, n_trials=15 - stop, catch=ArithmeticError)
    assert params_of(study) == params_of(whole)
    assert same(sampler, whole.sampler.tuner)


def test_samplers_of_several_processes_learn_from_each_other():
    storage = optuna.storages.InMemoryStorage()
    samplers = [RaspSampler(SPACE, ["load"], seed=seed) for seed in (1, 2)]
    one, two = (
        optuna.create_study(storage=storage, study_name="s", load_if_exists=True, sampler=sampler)
        for sampler in samplers
    )
    for study in (one, two, one, two):
        enqueue(study, LOADS[:2])
        study.optimize(objective, n_trials=2)
    assert samplers[1].tuner.learned == 8
    assert samplers[0].tuner.learned == 6  # what came since it last looked, it learns at the next trial


def test_trials_of_others_are_learned_whoever_chose_their_parameters():
    sampler = RaspSampler(context=["load"], seed=7)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    enqueue(study, LOADS[:4])
    study.optimize(objective, n_trials=4)
    study.sampler = sampler
    study.add_trial(create_trial(params={"a": 2.0}, distributions={"a": SPACE["a"]}, value=0.5,
                                 user_attrs={"context": {"load": 1}}))  # fmt: skip
    study.enqueue_trial({"a": 3.21, "b": 3, "c": "v"}, user_attrs={"context": {"load": 1}})
    study.enqueue_trial({"a": 4.56}, user_attrs={"context": {"load": 1}})
    study.optimize(objective, n_trials=2)
    assert sampler.tuner.learned == 7
    assert [row["params"]["a"] for row in sampler.tuner.history()][-3:] == [2.0, 3.21, 4.56]
    assert sampler.tuner.asked == 1  # the latest: its other parameters are suggestions


def test_threads_share_one_tuner():
    sampler = RaspSampler(context=["load"], seed=7)
    study = optuna.create_study(sampler=sampler)
    enqueue(study)
    study.optimize(objective, n_trials=len(LOADS), n_jobs=4)
    assert sampler.tuner.learned == len(LOADS)
    assert {trial.state for trial in study.trials} == {TrialState.COMPLETE}


def test_ways_to_give_a_context():
    sampler = RaspSampler(context={"load": "number", "at": "time of day"}, seed=7)
    study, seen = optuna.create_study(sampler=sampler), []

    def function(trial):
        if trial.number == 4:
            trial.set_user_attr("context", {"load": 5})
        value = trial.suggest_float("x", 0, 1)
        seen.append(trial.user_attrs["context"]["load"])
        return value

    with sampler.context({"load": np.float64(1), "at": time(13, 45)}):
        with sampler.context({"load": 2}):
            study.optimize(function, n_trials=1)
        study.optimize(function, n_trials=1)
        study.enqueue_trial({}, user_attrs={"context": {"load": 3}})
        study.optimize(function, n_trials=1)
    sampler.context({"load": 4})
    study.optimize(function, n_trials=1)
    sampler.context(None)
    study.optimize(function, n_trials=1)
    assert seen == [2, 1, 3, 4, 5]
    assert study.trials[1].user_attrs["context"] == {"load": 1.0, "at": "13:45:00"}
    assert [row["context"]["load"] for row in sampler.tuner.history()] == seen
    with pytest.raises(InvalidValue, match=r"context is missing.*set_user_attr"):
        study.optimize(function, n_trials=1)


def test_a_context_may_be_a_vector():
    sampler = RaspSampler(context=2)
    study = optuna.create_study(sampler=sampler)
    with sampler.context(np.array([1.0, 2.0])):
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=2)
    assert [trial.user_attrs["context"] for trial in study.trials] == [[1.0, 2.0]] * 2


@pytest.mark.parametrize("context", [None, {}, {"load": "high"}, {"load": math.nan}, {"qps": 1}, 5, "load"])
@pytest.mark.parametrize("learned", [0, 2])
def test_a_wrong_context_fails_its_trial_and_nothing_else(context, learned):
    sampler = RaspSampler(context=["load"], seed=7)
    study = run(sampler, loads=LOADS[:learned])
    study.enqueue_trial({}, user_attrs={} if context is None else {"context": context})
    with pytest.raises(InvalidValue, match=f"trial {learned}: context"):
        study.optimize(lambda trial: trial.suggest_float("a", 0.1, 10, log=True), n_trials=1)
    assert study.trials[-1].state is TrialState.FAIL
    if context is not None:
        with pytest.raises(InvalidValue, match="context"):
            sampler.context(context)
    enqueue(study, LOADS[learned:5])
    study.optimize(objective, n_trials=5 - learned)
    assert sampler.tuner.learned == 5


def test_a_context_that_nobody_declared_is_refused():
    study = optuna.create_study(sampler=RaspSampler())
    enqueue(study, [1.0])
    with pytest.raises(InvalidValue, match="without context"):
        study.optimize(objective, n_trials=1)


def test_the_space_grows_with_the_trials():
    sampler = RaspSampler(seed=7)

    def function(trial):
        kind = trial.suggest_categorical("kind", ["flat", "round"])
        if kind == "round":
            return (trial.suggest_float("radius", 0, 4) - 1) ** 2
        return 1 + (trial.suggest_int("side", 1, 8) - 2) ** 2 + trial.suggest_int("single", 3, 3)

    study = optuna.create_study(sampler=sampler)
    study.optimize(function, n_trials=60)
    assert sampler.tuner.learned == 60
    best = sampler.recommend()
    assert set(best) == {"kind", "radius", "side"}
    assert best["kind"] == "round"
    assert abs(best["radius"] - 1) < 0.3


def test_ranges_may_change_from_trial_to_trial():
    sampler = RaspSampler(seed=7)

    def function(trial):
        high = 1 + trial.number % 3
        x = trial.suggest_float("x", -high, high)
        y = trial.suggest_int("y", high, 5 * high, step=high)
        z = trial.suggest_float("z", 0, high, step=0.25)
        assert -high <= x <= high
        assert y % high == 0
        assert (4 * z).is_integer()
        return (x - 1.5) ** 2 + abs(y - 6) + z

    study = optuna.create_study(sampler=sampler)
    study.optimize(function, n_trials=40)
    assert sampler.tuner.learned == 40
    assert abs(sampler.recommend()["x"] - 1.5) < 0.3


def test_choices_that_a_knob_cannot_tell_apart():
    sampler = RaspSampler(seed=7)
    choices = [1, True, math.nan, None, "1"]
    study = optuna.create_study(sampler=sampler)
    study.optimize(lambda trial: float(trial.suggest_categorical("c", choices) is not None), n_trials=25)
    assert sampler.tuner.learned == 25
    assert sampler.recommend() == {"c": None}


def test_values_that_cannot_be_learned_are_named_in_the_log(caplog):
    sampler = RaspSampler(seed=7)
    study = optuna.create_study(sampler=sampler)
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=2)
    study.enqueue_trial({"x": 50.0})
    with caplog.at_level(logging.WARNING, "rasp_tuner"):
        with pytest.warns(UserWarning, match="out of range"):
            study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1) - math.inf, n_trials=1)
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "trial 2 of Optuna was not learned",
        "trial 3 of Optuna was not learned",
    ]
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
    assert sampler.tuner.learned == 3
    assert len(study.trials) == 5


def test_a_range_that_is_too_wide_for_a_knob_is_refused():
    study = optuna.create_study(sampler=RaspSampler())
    with pytest.raises(InvalidSpace, match="parameter 'n': Int high"):
        study.optimize(lambda trial: trial.suggest_int("n", 0, 2**60), n_trials=1)
    study.optimize(lambda trial: trial.suggest_int("n", 0, 2**20), n_trials=2)
    assert study.sampler.tuner.learned == 2


def test_a_default_outside_of_the_range_is_refused():
    study = optuna.create_study(sampler=RaspSampler(default={"x": 5, "c": "z"}))
    with pytest.raises(InvalidSpace, match=r"default\['x'\]"):
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
    with pytest.raises(InvalidSpace, match=r"default\['c'\]: value must be one of \['u', 'v'\], got 'z'"):
        study.optimize(lambda trial: trial.suggest_categorical("c", ["u", "v"]), n_trials=1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"search_space": ["x"]}, "search_space"),
        ({"search_space": {"x": Float(0, 1)}}, "search_space.'x'"),
        ({"default": 5}, "default"),
        ({"context": "load"}, "context"),
        ({"seed": -1}, "seed"),
        ({"pruned": "forget"}, "pruned"),
        ({"failed": ["failed"]}, "failed"),
        ({"preset": "fast"}, "preset"),
        ({"guard": 0.1}, "guard"),
        ({"constraints": ["a <= 1"]}, "search_space"),
        ({"search_space": SPACE, "constraints": ["q <= 1"]}, "constraints"),
        ({"search_space": SPACE, "default": {"a": 50}}, r"default\['a'\]"),
        ({"shield": object()}, "shield"),
    ],
)
def test_wrong_settings_are_refused_before_anything_runs(settings, message):
    with pytest.raises(InvalidSpace, match=message):
        RaspSampler(**settings)


def test_a_sampler_is_pickled_and_copied_as_those_of_optuna():
    whole, half = (optuna.create_study(sampler=RaspSampler(context=["load"], seed=5)) for _ in range(2))
    enqueue(whole)
    whole.optimize(objective, n_trials=len(LOADS))
    enqueue(half)
    half.optimize(objective, n_trials=7)
    for _ in range(2):
        half.sampler = pickle.loads(pickle.dumps(copy.deepcopy(half.sampler)))  # noqa: S301  # made here
        half.optimize(objective, n_trials=3)
    assert params_of(half)[:13] == params_of(whole)[:13]
    assert half.sampler.tuner.learned == 13


def test_another_study_starts_from_its_own_trials():
    sampler = RaspSampler(context=["load"], seed=7)
    first, second = run(sampler, loads=LOADS[:5]), run(sampler, loads=LOADS[:5])
    assert params_of(first) == params_of(second)
    assert sampler.tuner.learned == 5


def test_studies_of_one_name_in_two_storages_are_two():
    sampler = RaspSampler(context=["load"], seed=7)
    for _ in range(2):
        run(sampler, loads=LOADS[:3], study_name="same")
    assert sampler.tuner.learned == 3


def test_a_constant_may_become_a_parameter():
    sampler = RaspSampler(seed=7)
    study = optuna.create_study(sampler=sampler)
    for ends in ((1, 1), (1, 1), (3, 8), (3, 8)):
        study.optimize(lambda trial, ends=ends: trial.suggest_int("n", *ends), n_trials=1)
    assert sampler.tuner.learned == 4
    assert [row["params"]["n"] for row in sampler.tuner.history()][:2] == [1, 1]


def test_a_default_that_no_trial_asks_for_is_named_in_the_log(caplog):
    study = optuna.create_study(sampler=RaspSampler(default={"x": 0.25, "cahce_gb": 8}))
    with caplog.at_level(logging.WARNING, "rasp_tuner"):
        study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=2)
    assert study.trials[0].params == {"x": 0.25}
    assert [record.getMessage().split(": ")[1] for record in caplog.records] == ["cahce_gb"]


def test_hyperband_which_shows_a_sampler_one_bracket_at_a_time():
    sampler = RaspSampler(seed=7)
    study = optuna.create_study(sampler=sampler, pruner=optuna.pruners.HyperbandPruner(1, 9, 3))

    def function(trial):
        x = trial.suggest_float("x", 0, 1)
        for step in range(1, 10):
            trial.report(abs(x - 0.3) + 1 / step, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return abs(x - 0.3)

    study.optimize(function, n_trials=20)
    assert sampler.tuner.learned == 20


def test_trials_without_an_end_are_forgotten_and_still_learned(monkeypatch):
    monkeypatch.setattr("rasp_tuner.integrations.optuna.MOST_WAITING", 3)
    sampler = RaspSampler(SPACE, seed=7)
    study = optuna.create_study(sampler=sampler)
    trials = [study.ask(SPACE) for _ in range(6)]
    for trial in trials:
        study.tell(trial, trial.params["a"])
    assert sampler.tuner.learned == 6
    assert sampler.tuner.asked == 9  # again for the three that were forgotten


def test_a_trial_that_outlives_its_suggestion_is_learned():
    sampler = RaspSampler(SPACE, seed=7, failed="ignore", max_pending=2)
    study = optuna.create_study(sampler=sampler)
    long, *others = (study.ask(SPACE) for _ in range(4))
    for trial in others:
        study.tell(trial, state=TrialState.FAIL)
    study.tell(long, 1.0)
    assert sampler.tuner.learned == 1


def test_without_optuna_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    monkeypatch.delitem(sys.modules, "rasp_tuner.integrations.optuna")
    with pytest.raises(MissingExtra, match=r"pip install 'rasp-tuner\[optuna\]'"):
        import_module("rasp_tuner.integrations.optuna")


@st.composite
def distributions(draw):
    if draw(st.booleans()):
        low, step = draw(st.integers(1, 50)), draw(st.integers(1, 7))
        return IntDistribution(low, low + step * draw(st.integers(1, 20)), step=step)
    low, count = draw(st.integers(-50, 50)), draw(st.integers(1, 30))
    step = draw(st.sampled_from([None, 0.1, 0.25, 3.0]))
    return FloatDistribution(low / 10, float(np.round(low / 10 + (step or 0.7) * count, 6)), step=step)


@given(distributions(), st.floats(0, 1))
def test_values_of_knobs_are_legal_in_optuna(distribution, unit):
    knob = knob_of("x", distribution)
    value = from_knob(distribution, knob.from_unit(unit))
    assert distribution._contains(distribution.to_internal_repr(value))
    assert knob.check(to_knob(distribution, value)) == value


@given(distributions(), distributions(), st.floats(0, 1))
def test_a_hull_has_the_values_of_both(one, other, unit):
    if type(one) is type(other):
        both = hull(one, other)
        knob = knob_of("x", both)
        for part in (one, other):
            value = knob_of("x", part).from_unit(unit)
            assert math.isclose(knob.check(value), value, rel_tol=1e-9, abs_tol=1e-9)
