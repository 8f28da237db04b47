"""Charts: a study's history, to which steps are added some at a time: one after another they cost half as much."""

from collections.abc import Mapping
from typing import Any

from rasp_tuner.core.optimizer import Expected
from rasp_tuner.service.study.history import History, Step
from rasp_tuner.tuner import Tuner

MAX_WAITING = 32  # steps
LEAST_LEARNED = 3  # samples, before a default is predicted


class Charts:
    """For one study; used by the writer's thread only."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._waiting: list[Step] = []

    @property
    def history(self) -> History:
        """The history of all steps up to now."""
        waiting, self._waiting = self._waiting, []
        for step in waiting:
            self._history.add_step(step)
        return self._history

    def add(self, step: Step) -> None:
        self._waiting.append(step)
        if len(self._waiting) >= MAX_WAITING:
            _ = self.history

    def expected_of_default(self, tuner: Tuner, context: Any) -> Mapping[str, Expected]:
        """What the default is expected to give, by metric, if the next step is judged; call it before it is learned."""
        step = self._history.trace.steps + len(self._waiting)
        if tuner.learned < LEAST_LEARNED or not self._history.is_judged(step):
            return {}
        return tuner.default_levels(context)
