"""RaspPruner: trials of Optuna end at their stop, and are learned as at least so bad."""

import optuna
import pytest
from optuna.distributions import CategoricalDistribution
from optuna.storages import InMemoryStorage
from optuna.trial import TrialState

from rasp_tuner import InvalidSpace
from rasp_tuner.integrations.optuna import RaspPruner, RaspSampler

COSTS = {"a": 1.0, "b": 10.0, "c": 0.5}
SPACE = {"plan": CategoricalDistribution(list(COSTS))}


@pytest.fixture(autouse=True)
def quiet():
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield
    optuna.logging.set_verbosity(verbosity)


def objective(trial):
    cost = COSTS[trial.suggest_categorical("plan", list(COSTS))]
    for part in range(1, 101):
        trial.report(cost * part / 100, part)
        if trial.should_prune():
            raise optuna.TrialPruned
    return cost


def study_of(sampler, **more):
    return optuna.create_study(sampler=sampler, pruner=RaspPruner(), **more)


@pytest.mark.parametrize("pruned", ["value", "failed", "ignore"])
def test_a_ruinous_trial_ends_at_its_stop(pruned):
    study = study_of(RaspSampler(SPACE, default={"plan": "a"}, seed=0, pruned=pruned))
    study.optimize(objective, n_trials=20)
    ended = [trial for trial in study.trials if trial.state is TrialState.PRUNED]
    assert ended
    assert "b" in {trial.params["plan"] for trial in ended}
    assert all(trial.value < 2.0 for trial in ended)
    assert study.sampler.recommend() == {"plan": "c"}
    rows = study.sampler.tuner.history()
    assert [row["stopped"] for row in rows] == [trial.state is TrialState.PRUNED for trial in study.trials]
    assert not any(row["failed"] for row in rows)


def test_a_resumed_study_goes_on_as_if_it_had_never_stopped():
    storage, seed = InMemoryStorage(), {"seed": 3}
    first = study_of(RaspSampler(SPACE, default={"plan": "a"}, **seed), storage=storage, study_name="s")
    first.optimize(objective, n_trials=6)
    again = optuna.load_study(
        study_name="s", storage=storage, sampler=RaspSampler(SPACE, default={"plan": "a"}, **seed), pruner=RaspPruner()
    )
    again.optimize(objective, n_trials=6)
    whole = study_of(RaspSampler(SPACE, default={"plan": "a"}, **seed))
    whole.optimize(objective, n_trials=12)
    assert [(t.params, t.value) for t in again.trials] == [(t.params, t.value) for t in whole.trials]
    assert any(trial.state is TrialState.PRUNED for trial in whole.trials)


@pytest.mark.parametrize(
    ("sampler", "more", "words"),
    [
        (RaspSampler(SPACE), {}, "default"),
        (RaspSampler(SPACE, default={"plan": "a"}, goal="live", budget=None), {}, "default"),
        (RaspSampler(SPACE, default={"plan": "a"}), {"direction": "maximize"}, "minimised"),
        (optuna.samplers.RandomSampler(), {}, "RaspSampler"),
    ],
    ids=["no default", "no budget", "maximised", "another sampler"],
)
def test_where_no_trial_can_have_a_stop_it_says_so(sampler, more, words):
    study = study_of(sampler, **more)
    with pytest.raises(InvalidSpace, match=words):
        study.optimize(objective, n_trials=1)
