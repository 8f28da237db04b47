"""TPE by Optuna: multivariate, ask and tell, blind to context."""

import warnings

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.trial import TrialState, create_trial

from rasp_tuner.bench.agents.base import Run, ScalarAgent
from rasp_tuner.bench.agents.cma import new_seed
from rasp_tuner.bench.domains.base import Task
from rasp_tuner.numerics import Array
from rasp_tuner.space import Categorical


class Tpe(ScalarAgent):
    """The study holds finished runs only: a trial that Optuna hands out is closed at once and told as a run of its own.

    So late answers cost nothing, and answers that never come leave no trial running.
    """

    def __init__(self, task: Task, seed: int) -> None:
        super().__init__(task, seed)
        with warnings.catch_warnings():  # `multivariate` is marked experimental; it is what we want
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(multivariate=True, seed=new_seed(self.rng))
        self._study = _quiet_study(sampler)
        self._axes: dict[str, BaseDistribution] = {
            name: CategoricalDistribution(range(knob.levels))
            if isinstance(knob, Categorical)
            else FloatDistribution(0.0, 1.0)
            for name, knob in task.space.knobs.items()
        }

    def suggest(self, context: Array) -> Array:
        del context
        if self.asked == 0:
            return self.task.default
        trial = self._study.ask(self._axes)
        self._study.tell(trial, state=TrialState.FAIL)
        return np.array([self._to_unit(name, value) for name, value in trial.params.items()])

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


def _quiet_study(sampler: optuna.samplers.BaseSampler) -> optuna.Study:
    """A study without the line Optuna logs at its creation; the caller's verbosity is put back."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        return optuna.create_study(sampler=sampler)
    finally:
        optuna.logging.set_verbosity(verbosity)
