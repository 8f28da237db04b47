"""A tuner on a stream of the library's benchmark, through the tuner's public names alone."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rasp_lab.bench.domains.base import ExperimentDomain
from rasp_tuner import Tuner

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Run:
    """What came of each step; all [T]."""

    loss: Array  # without noise, of what ran
    static: Array  # of the default
    least: Array
    regime: Array
    predicted: Array  # what the tuner expected, NaN where it does not say
    deviation: Array
    told: Array  # what came, in the same unit


def play(domain: ExperimentDomain[Any], seed: int, horizon: int, paired: bool = False) -> Run:
    """A run of `horizon` steps; the noise of a step is that of `rasp bench`, whatever the tuner does.

    `paired`: the default runs beside every step, with noise of its own, and is told as its control.
    """
    default = domain.space.from_unit(domain.default)
    still = domain.theta(domain.default)
    tuner = Tuner(domain.space.knobs, domain.metrics, domain.context_dim or None, default, seed=seed)
    rows = []
    for step, omega in enumerate(domain.build_sequence(horizon, seed)):
        suggestion = tuner.ask(domain.context_fn(omega) if domain.context_dim else None)
        theta = domain.theta(domain.space.to_unit(suggestion.params))
        metrics = domain.metric_fn(theta, omega, np.random.default_rng([seed, step, 1]))
        control = domain.metric_fn(still, omega, np.random.default_rng([seed, step, 2])) if paired else None
        tuner.tell(suggestion.id, metrics, control=control)
        why = tuner.explain(suggestion.id, visits=False)
        expected = [np.nan if said is None else said for said in (why.predicted, why.deviation, why.error)]
        losses = domain.true_loss(theta, omega), domain.true_loss(still, omega), domain.minimum(omega)
        rows.append([*losses, domain.regime(omega), *expected])
    return Run(*np.array(rows).T)


def regret(run: Run) -> float:
    """Regret over that of never leaving the default."""
    return float((run.loss - run.least).sum() / (run.static - run.least).sum())


def negative_log_density(run: Run) -> float:
    """Of what came, under the normal distribution that the tuner expected; the mean over all steps with one."""
    known = np.isfinite(run.predicted) & np.isfinite(run.told) & (run.deviation > 0.0)
    z = (run.told - run.predicted)[known] / run.deviation[known]
    return float((0.5 * z**2 + np.log(run.deviation[known]) + 0.5 * np.log(2.0 * np.pi)).mean())
