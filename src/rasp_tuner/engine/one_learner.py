"""OneLearner: one tuner as the intake sees it: what it remembers of what it was told, and the models that learn.

Made for every call: were it kept by the models, they would keep each other alive.
"""

import logging
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from rasp_tuner.core.numerics import Array
from rasp_tuner.core.optimizer import LearnResult, Stateful
from rasp_tuner.core.state_checks import under
from rasp_tuner.engine import intake
from rasp_tuner.engine.context_bounds import ContextBounds
from rasp_tuner.engine.family import Belief, Family, Trial
from rasp_tuner.engine.intake_notes import IntakeNotes
from rasp_tuner.engine.kernel.masks import Flags
from rasp_tuner.engine.kernel.state import Places
from rasp_tuner.engine.loss_bounds import LossBounds
from rasp_tuner.engine.objective import Objective
from rasp_tuner.engine.trials import Sizes, Trials, check_trials, trials_of
from rasp_tuner.engine.trusted_range import SHORT
from rasp_tuner.engine.unit_watch import SURPRISING_DEVIATIONS, UnitWatch

log = logging.getLogger("rasp_tuner")
PUT_ASIDE = "put aside: it is far from what was expected, and the next runs show whether the metric has changed"
SAYS_NOTHING = "left out: a first value of 0 or less, where all were above it, may be false"


class Models(Protocol):
    """What learns."""

    objective: Objective
    family: Family[Any]

    def believe(self, context: Array) -> Belief:
        """What is held true in a context."""

    def surprise(self, trial: Trial, y: float) -> tuple[float, float]:
        """How far a target lies from what was expected of a trial, and the deviation of that, calibrated."""

    def learn(self, trial: Trial) -> LearnResult:
        """Take in a trial."""

    def stale(self) -> None:
        """What was believed is so no more, though nothing was learned."""


class IntakeState:
    """What one tuner remembers of what it was told."""

    def __init__(self, sizes: Sizes, objective: Objective) -> None:
        self.sizes = sizes
        self.contexts = ContextBounds(sizes.context, 1)
        self.losses = LossBounds(objective.logs, 1)
        self.watch = UnitWatch(sizes.width, len(objective.metrics), 1)
        self.notes = IntakeNotes.blank(sizes, 1)

    def aside(self) -> list[Trials]:
        """Those that are put aside, oldest first."""
        rows = self.watch.trials[:, : int(self.watch.count[0])].copy()
        return [trials_of(rows[:, i], self.sizes) for i in range(rows.shape[1])]

    def _ranges(self) -> tuple[tuple[str, Stateful], ...]:
        return ("contexts", self.contexts), ("losses", self.losses), ("watch", self.watch)

    def state(self) -> dict[str, Array]:
        ranges = {f"{name}/{key}": array for name, part in self._ranges() for key, array in part.state().items()}
        return {**self.notes.one(), **ranges}

    def restore(self, state: Mapping[str, Array]) -> None:
        for name, part in self._ranges():
            part.restore(under(f"{name}/", state))
        self.notes.restore_one(state)
        check_trials(state, "first", self.notes.first[0], self.sizes.knobs)
        check_trials(state, "watch/trials", self.watch.trials[0], self.sizes.knobs)


class OneLearner:
    """For one call."""

    def __init__(self, models: Models, state: IntakeState) -> None:
        self._models, self._state, self.objective, self.sizes = models, state, models.objective, state.sizes
        self.contexts, self.losses, self.watch, self.notes = state.contexts, state.losses, state.watch, state.notes
        self._result: LearnResult | None = None  # of the latest trial that was learned
        self._restated = ""  # how a metric has changed, in words

    def tell(self, trial: Trial) -> LearnResult:
        """Have the models learn from a trial as it came; or put it aside, if a metric may have changed its unit."""
        models, objective, y = self._models, self.objective, float(self.objective.target(trial.losses))
        self._result, self._restated = None, ""
        if models.family.samples < 2 or not objective.seen or not self._may_be_restated(trial, y):  # as a rule
            if not self.notes.open[0] and self.losses.usual(trial.losses):
                return self.learn_as_told(trial)
            intake.learn_losses(self, Trials.of(trial))
        else:
            intake.tell(self, Trials.of(trial))
        aside = PUT_ASIDE if self.watch.count[0] else SAYS_NOTHING
        result = self._result or LearnResult(objective.own_units(y), reason=aside)
        return result._replace(path="restated", reason=self._restated) if self._restated else result

    def _may_be_restated(self, trial: Trial, y: float) -> bool:
        """Whether a target is so far from what was expected that a metric may have changed its unit, or just has."""
        gap, deviation = self._models.surprise(trial, y)
        least = min(SURPRISING_DEVIATIONS * deviation, 4.0 * abs(y)) if self.objective.one else deviation
        return abs(gap) > least or bool(self.watch.count[0])

    def learn_as_told(self, trial: Trial) -> LearnResult:
        """Have the models learn a trial that is as usual, or failed."""
        usual = not self.notes.open[0] and len(trial.context) <= SHORT and self.contexts.usual(trial.context)
        if not usual:  # of many numbers some are unusual
            intake.see(self, Trials.of(trial))
        return self._models.learn(trial)

    def merge(self, other: IntakeState) -> None:
        """Take in what another one has seen, when the models have; of two, nobody knows what came first."""
        aside = [*self._state.aside(), *other.aside()]
        self.watch.clear(np.ones(1, dtype=bool))
        self.contexts.merge(other.contexts)
        self.losses.merge(other.losses)
        self.notes.close()
        first = np.zeros(1, dtype=np.int64)
        self.bound_contexts(first, first)
        for trials in aside:
            intake.learn_losses(self, trials)

    def some(self, places: Places) -> "OneLearner":
        del places  # the only one
        return self

    def put(self, places: Places, part: "OneLearner") -> None:
        """It is this one."""

    def samples(self) -> Array:
        return np.array([float(self._models.family.samples)])

    def surprise(self, trials: Trials) -> tuple[Array, Array]:
        trial = trials.one()
        gap, deviation = self._models.surprise(trial, float(self.objective.target(trial.losses)))
        return np.array([gap]), np.array([deviation])

    def likeness(self, contexts: Array) -> Array:
        return np.array([self._models.believe(contexts[0]).similar().max()])

    def learn(self, trials: Trials, again: bool) -> None:
        result = self._models.learn(trials.one())
        self._result = self._result if again else result

    def reweigh(self, changed: Flags, again: bool) -> None:
        del changed
        if not again:  # else it was told
            scales = ", ".join(f"{name} {scale}" for name, scale in self.objective.scales.items())
            log.info("the scale of a metric has changed (values far beyond all before them); now: %s", scales)
        self._reweigh_models()

    def restate(self, factors: Array, shifts: Array) -> None:
        by, shift = (changed[0].tolist() for changed in self.watch.change())
        self._models.family.restate(factors[0], shifts[0], self.objective.weights)
        self._models.stale()
        words = [
            f"{name} is {times:.3g} times what it was" if times != 1.0 else f"{name} has moved by {plus:.3g}"
            for name, times, plus in zip(self.objective.metrics, by, shift, strict=True)
            if times != 1.0 or plus
        ]
        self._restated = f"{', '.join(words)}, whatever the settings: all that was learned is seen in the new unit"
        log.warning("a metric has changed: %s", self._restated)

    def forget(self) -> None:
        self.objective.forget()
        self._models.family.forget()
        self._reweigh_models()

    def bound_contexts(self, moved: Places, mend: Places) -> None:
        if len(moved) or len(mend):
            self._models.family.bound_contexts(self.contexts.least[0], self.contexts.most[0], bool(len(mend)))
        if len(mend):
            self._models.stale()

    def _reweigh_models(self) -> None:
        self._models.family.reweigh(self.objective.weights)
        self._models.stale()
