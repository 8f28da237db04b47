"""What an agent is, and the record of open suggestions that most of them share."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rasp_lab.bench.domains.base import Task
from rasp_tuner.base.checks import show
from rasp_tuner.base.numerics import Array
from rasp_tuner.errors import UnknownSuggestion
from rasp_tuner.paper.composer import RealErrorComposer

MAX_PENDING = 1000  # unanswered suggestions kept; the oldest is dropped beyond that, as in `Tuner`


class Agent(Protocol):
    """Two verbs, as in the library: `ask` never learns, `tell` does; answers may come late and in any order."""

    def ask(self, context: Array) -> tuple[str, Array]:
        """An id to answer with, and a point [d] of the unit box to run in this context [d_c]."""

    def tell(self, id: str, metrics: Mapping[str, float]) -> None:
        """What came of the suggestion `id`."""

    def tell_failed(self, id: str) -> None:
        """The suggestion `id` could not run."""


Factory = Callable[[Task, int], Agent]


@dataclass(frozen=True, slots=True)
class Run:
    """One suggestion that was made."""

    id: str
    context: Array  # [d_c]
    drawn: Array  # [d] what `suggest` gave, clipped into the box
    point: Array  # [d] the legal point nearest to it: what ran


class ScalarAgent(ABC):
    """An agent that minimises one number: remembers what it asked, and folds metrics into that number.

    A single metric is passed on as it is, negated where more is better. Several are composed as in the paper; with
    `composed` a single one is, too. A failure counts as the worst number seen so far; failures before any number wait
    for it.
    """

    def __init__(self, task: Task, seed: int, *, composed: float = 0.0) -> None:
        self.task = task
        self.dim = task.space.dim
        self.rng = np.random.default_rng(seed)
        self.asked = 0
        self._composer = RealErrorComposer(task.metrics)
        self._composed = bool(composed)
        self._pending: dict[str, Run] = {}
        self._failed: deque[Run] = deque(maxlen=MAX_PENDING)
        self._worst: float | None = None

    @abstractmethod
    def suggest(self, context: Array) -> Array:
        """A point [d] near the unit box; must not learn."""

    @abstractmethod
    def learn(self, run: Run, loss: float) -> None:
        """Take in one finished run."""

    @property
    def next_id(self) -> str:
        """The id under which the next suggestion goes out."""
        return str(self.asked)

    def ask(self, context: Array) -> tuple[str, Array]:
        drawn = np.clip(self.suggest(context), 0.0, 1.0)
        run = Run(self.next_id, np.array(context), drawn, self.task.space.snap(drawn))
        self.asked += 1
        self._pending[run.id] = run
        if len(self._pending) > MAX_PENDING:
            del self._pending[next(iter(self._pending))]
        return run.id, run.point.copy()

    def tell(self, id: str, metrics: Mapping[str, float]) -> None:
        self._check(id)
        loss = self._fold(metrics)
        self._worst = loss if self._worst is None else max(self._worst, loss)
        self.learn(self._pending.pop(id), loss)
        while self._failed:
            self.learn(self._failed.popleft(), self._worst)

    def tell_failed(self, id: str) -> None:
        self._check(id)
        run = self._pending.pop(id)
        if self._worst is None:
            self._failed.append(run)
        else:
            self.learn(run, self._worst)

    def _check(self, id: str) -> None:
        if id not in self._pending:
            raise UnknownSuggestion(f"no suggestion {show(id)} waits for an answer")

    def _fold(self, metrics: Mapping[str, float]) -> float:
        values = self._composer.check(metrics)
        if self._composed or len(values) > 1:
            return self._composer.compose(values)
        ((name, value),) = values.items()
        return value if self.task.metrics[name].direction == "min" else -value
