"""Who plays the public tables: ours, and real packages that get the row nearest to what they ask for.

A peer knows nothing of other contexts: it starts anew in each. Random search draws rows that were measured.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import cmaes
import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from rasp_lab.public.tables import Array, Mask, Table
from rasp_tuner.space import Categorical

SIGMA = 0.3  # of the box: what cmaes and pycma advise where the optimum may be anywhere


class Peer(Protocol):
    """A search in one context."""

    def ask(self, open_rows: Mask) -> int:
        """A row, of those that are open [n]."""

    def tell(self, row: int, cost: float) -> None: ...


class Random:
    def __init__(self, table: Table, seed: int) -> None:
        del table
        self._rng = np.random.default_rng(seed)

    def ask(self, open_rows: Mask) -> int:
        return int(self._rng.choice(np.flatnonzero(open_rows)))

    def tell(self, row: int, cost: float) -> None:
        """Nothing is learned."""


class Default:
    """What runs today, always."""

    def __init__(self, table: Table, seed: int) -> None:
        del seed
        self._row = table.default

    def ask(self, open_rows: Mask) -> int:
        del open_rows
        return self._row

    def tell(self, row: int, cost: float) -> None:
        """Nothing is learned."""


class Tpe:
    """Optuna's TPE, multivariate, told what ran; it starts at the default."""

    def __init__(self, table: Table, seed: int) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._table = table
        sampler = optuna.samplers.TPESampler(multivariate=True, seed=seed)
        self._study = optuna.create_study(sampler=sampler)
        self.axes: dict[str, BaseDistribution] = {
            name: CategoricalDistribution(list(range(len(knob.choices))))
            if isinstance(knob, Categorical)
            else IntDistribution(0, int(knob.levels or 1) - 1)
            for name, knob in table.knobs.items()
        }
        self._first = True

    def ask(self, open_rows: Mask) -> int:
        if self._first:
            self._first = False
            return self._table.nearest(self._table.places[self._table.default], open_rows)
        trial = self._study.ask(self.axes)
        self._study.tell(trial, state=TrialState.FAIL)  # another setting may run: that one is told
        return self._table.nearest(np.array([trial.params[name] for name in self.axes], dtype=float), open_rows)

    def tell(self, row: int, cost: float) -> None:
        value = float(np.log(cost))
        self._study.add_trial(create_trial(params=self.params_of(row), distributions=self.axes, value=value))

    def begin_with(self, trials: Sequence[FrozenTrial]) -> None:
        """Know these, and have no need of the default."""
        self._study.add_trials(trials)
        self._first = False

    def params_of(self, row: int) -> dict[str, int]:
        return dict(zip(self.axes, self._table.places[row].astype(int).tolist(), strict=True))


class CmaEs:
    """The package cmaes in the box of levels, from the default; a point runs as the nearest row."""

    def __init__(self, table: Table, seed: int) -> None:
        self._table, self._span = table, np.maximum(table.levels - 1, 1)
        box = np.tile([0.0, 1.0], (len(self._span), 1))
        start = table.places[table.default] / self._span
        self._cma: Any = cmaes.CMA(mean=start, sigma=SIGMA, bounds=box, seed=seed)
        self._drawn: Array = start
        self._done: list[tuple[Array, float]] = []

    def ask(self, open_rows: Mask) -> int:
        self._drawn = self._cma.ask()
        return self._table.nearest(np.round(self._drawn * self._span), open_rows)

    def tell(self, row: int, cost: float) -> None:
        del row
        self._done.append((self._drawn, float(np.log(cost))))
        if len(self._done) == self._cma.population_size:
            self._cma.tell(self._done)
            self._done = []


PEERS: dict[str, Callable[[Table, int], Peer]] = {"random": Random, "TPE": Tpe, "CMA-ES": CmaEs, "default": Default}
