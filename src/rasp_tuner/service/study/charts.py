"""Charts: a study's history, to which steps are added some at a time: one after another they cost half as much."""

from rasp_tuner.service.study.history import Step, StudyHistory

MAX_WAITING = 32  # steps


class Charts:
    """For one study; used by the writer's thread only."""

    def __init__(self, history: StudyHistory) -> None:
        self._history = history
        self._waiting: list[Step] = []

    @property
    def history(self) -> StudyHistory:
        """The history of all steps up to now."""
        waiting, self._waiting = self._waiting, []
        for step in waiting:
            self._history.add_step(step)
        return self._history

    def add(self, step: Step) -> None:
        self._waiting.append(step)
        if len(self._waiting) >= MAX_WAITING:
            _ = self.history
