"""TPE by Optuna: multivariate, ask and tell, blind to context."""

import warnings

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.trial import TrialState, create_trial

from rasp_lab.bench.agents.base import Run, ScalarAgent
from rasp_lab.bench.agents.cma import new_seed
from rasp_lab.bench.domains.base import Task
from rasp_tuner.base.numerics import Array
from rasp_tuner.space import Categorical


class Tpe(ScalarAgent):
    """The study holds finished runs only: the sampler is asked itself, since a study's `ask` stores a trial each time.

    So late answers cost nothing, answers that never come leave no trial, and each step is kept once, not twice.
    """

    def __init__(self, task: Task, seed: int) -> None:
        super().__init__(task, seed)
        with warnings.catch_warnings():  # `multivariate` is marked experimental; it is what we want
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            self._sampler = optuna.samplers.TPESampler(
                multivariate=True,
                constant_liar=False,  # it counts running trials, and there are none
                seed=new_seed(self.rng),
            )
        self._storage = optuna.storages.InMemoryStorage()
        self._study = _quiet_study(self._storage)
        self._axes: dict[str, BaseDistribution] = {
            name: CategoricalDistribution(range(knob.levels))
            if isinstance(knob, Categorical) and not knob.ordered  # places of an ordered one are like numbers
            else FloatDistribution(0.0, 1.0)
            for name, knob in task.space.knobs.items()
        }

    def suggest(self, context: Array) -> Array:
        del context
        if self.asked == 0:
            return self.task.default
        # a study remembers the trials of its last ask; a new one on the same storage sees them all
        study = optuna.load_study(study_name=self._study.study_name, storage=self._storage, sampler=self._sampler)
        trial = create_trial(state=TrialState.RUNNING)
        together = self._sampler.infer_relative_search_space(study, trial)
        params = self._sampler.sample_relative(study, trial, together)
        for name, axis in self._axes.items():
            if name not in params:
                params[name] = self._sampler.sample_independent(study, trial, name, axis)
        return np.array([self._to_unit(name, params[name]) for name in self._axes])

    def learn(self, run: Run, loss: float) -> None:
        values = dict(zip(self._axes, run.point.tolist(), strict=True))
        params = {name: self._from_unit(name, unit) for name, unit in values.items()}
        self._study.add_trial(create_trial(params=params, distributions=self._axes, value=loss))

    def _to_unit(self, name: str, value: float) -> float:
        axis = self._axes[name]
        return (value + 0.5) / len(axis.choices) if isinstance(axis, CategoricalDistribution) else value

    def _from_unit(self, name: str, unit: float) -> float:
        axis = self._axes[name]
        return int(unit * len(axis.choices)) if isinstance(axis, CategoricalDistribution) else unit


def _quiet_study(storage: optuna.storages.BaseStorage) -> optuna.Study:
    """A study without the line Optuna logs at its creation; the caller's verbosity is put back."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        return optuna.create_study(storage=storage)
    finally:
        optuna.logging.set_verbosity(verbosity)
