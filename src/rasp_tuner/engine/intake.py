"""Intake: what stands between what one tuner is told and what its models learn, so that nothing can blind them.

contexts   scales are learned from contexts within bounds (context_bounds.py)
losses     believed within bounds (loss_bounds.py)
first      the first trials are kept until it is known what is normal: if one was absurd, all are learned again
watch      surprises that would all come from one change of a metric's unit are put aside (unit_watch.py)

tell   losses -> put aside? -> what they prove (the scale of a metric) -> as far as they are believed -> models learn
"""

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from rasp_tuner.core.context_bounds import ContextBounds
from rasp_tuner.core.context_metric import ALIKE
from rasp_tuner.core.numerics import LARGEST, Array
from rasp_tuner.core.optimizer import LearnResult
from rasp_tuner.core.state_checks import MOST_SAMPLES, Field, broken, checked, under
from rasp_tuner.core.trusted_range import AGREE_WITHIN_SAMPLES, KNOWN_FROM_SAMPLES, SHORT
from rasp_tuner.engine.family import Belief, Family, Trial
from rasp_tuner.engine.loss_bounds import LossBounds
from rasp_tuner.engine.metric_evidence import by_column, changes, hasty, leaps, observe_extreme, says_nothing
from rasp_tuner.engine.objective import Objective
from rasp_tuner.engine.unit_watch import SURPRISING_DEVIATIONS, UnitWatch

log = logging.getLogger("rasp_tuner")
ALL = np.ones(1, dtype=bool)  # the one tuner that there is
MOST_FIRST = 24  # trials kept: what fails counts for no metric
LONG_AGO = -AGREE_WITHIN_SAMPLES
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


class Taken(NamedTuple):
    """Trials that are to be learned now, oldest first; before them the metrics have changed so, [K] each, if at all."""

    trials: list[Trial]
    change: tuple[Array, Array] | None = None  # factors, and shifts of their losses


class Intake:
    """Of d knobs, c context dimensions, and the columns of an objective."""

    def __init__(self, default: Array, context_dim: int, objective: Objective) -> None:
        self._sizes = len(default), context_dim, objective.columns
        self.contexts = ContextBounds(context_dim, 1)
        self.losses = LossBounds(objective.logs, 1)
        self.watch = UnitWatch(trial_width(*self._sizes), len(objective.metrics), 1)
        self.first: list[Trial] = []
        self._open = True  # whether more of them are kept
        self._again = False  # whether they are being learned again
        self._left_out_at = LONG_AGO  # samples seen when one was last left out as false
        self._changed_at = LONG_AGO  # and when settings had not changed alike: it is the world that changes

    def tell(self, models: Models, trial: Trial) -> LearnResult:
        """Have the models learn from a trial as it came; or put it aside, if a metric may have changed its unit."""
        objective = models.objective
        if models.family.samples < 2 or not objective.seen:
            return self._tell(models, trial)
        y = float(objective.target(trial.losses))
        gap, deviation = models.surprise(trial, y)
        may_be = abs(gap) > (min(SURPRISING_DEVIATIONS * deviation, 4.0 * abs(y)) if objective.one else deviation)
        if not may_be and not self.watch.count[0] and not self._open and self.losses.usual(trial.losses):
            return models.learn(trial)  # as a rule
        taken = self._taken(models, trial, gap, deviation)
        reason = "" if taken.change is None else self._restate(models, *taken.change)
        result = LearnResult(objective.own_units(y), reason=PUT_ASIDE)
        for one in taken.trials:
            result = self._tell(models, one)
        return result._replace(path="restated", reason=reason) if reason else result

    def see(self, models: Models, trial: Trial) -> None:
        """Take in the context of a trial that models are about to learn, for the first time."""
        if self._again:
            return
        if self._open and len(self.first) < MOST_FIRST:
            self.first.append(trial)
        if len(trial.context) > SHORT or not self.contexts.usual(trial.context):  # of many, some are unusual
            new = self.contexts.observe(trial.context[None], ALL)
            if new is not None:
                self.bound_contexts(models, mend=bool(new.any()))

    def bound_contexts(self, models: Models, mend: bool) -> None:
        """Tell the models from which contexts scales are learned; they `mend` those of the past, if need be."""
        models.family.bound_contexts(self.contexts.least[0], self.contexts.most[0], mend)
        if mend:
            models.stale()

    def merge(self, models: Models, other: "Intake") -> None:
        """Take in what another one has seen, when the models have; of two, nobody knows what came first."""
        aside = [*self.release(), *other.aside()]
        self.contexts.merge(other.contexts)
        self.losses.merge(other.losses)
        self.first, self._open = [], False
        self.bound_contexts(models, mend=True)
        for trial in aside:
            self._tell(models, trial)

    def _tell(self, models: Models, trial: Trial) -> LearnResult:
        """Learn from losses: what they prove, then as far as they are believed."""
        self.losses.observe(trial.losses[None], ALL)
        result = self._learn(models, trial)
        first = self._first_again(models.objective)
        self._again = bool(first)
        if first:
            models.objective.forget()
            models.family.forget()
            models.family.reweigh(models.objective.weights)
            models.stale()
        for one in first:
            again = one._replace(asked=None)  # costs are not booked twice
            if not one.failed:
                self._learn(models, again)
            elif models.objective.seen:
                models.learn(again._replace(losses=models.objective.worst()))
        self._again = False
        return result

    def _learn(self, models: Models, trial: Trial) -> LearnResult:
        objective = models.objective
        leap = leaps(objective, self.losses, trial.losses) and not self._familiar(models, trial.context)
        if observe_extreme(objective, self.losses, leap):
            if not self._again:  # else it was told
                scales = ", ".join(f"{name} {scale}" for name, scale in objective.scales.items())
                log.info("the scale of a metric has changed (values far beyond all before them); now: %s", scales)
            models.family.reweigh(objective.weights)
            models.stale()
        if says_nothing(objective, trial.losses):
            return LearnResult(objective.own_units(objective.target(trial.losses)), reason=SAYS_NOTHING)
        raw = trial.losses[None]
        losses: Array = self.losses.bounded(raw)[0]
        if not np.array_equal(losses, trial.losses):
            losses = losses if self._familiar(models, trial.context) else self.losses.bounded_if_new(raw)[0]
        return models.learn(trial._replace(losses=losses))

    def _restate(self, models: Models, factors: Array, shifts: Array) -> str:
        """See all of the past in the units that metrics have now; what has changed, in words."""
        objective = models.objective
        by, plus = by_column(objective, factors, shifts)
        objective.restate(by, plus)
        models.family.restate(by, plus, objective.weights)
        self.losses.restate(by[None], plus[None])
        models.stale()
        words = [
            f"{name} is {factor:.3g} times what it was" if factor != 1.0 else f"{name} has moved by {shift:.3g}"
            for name, factor, shift in zip(objective.metrics, factors.tolist(), shifts.tolist(), strict=True)
            if factor != 1.0 or shift
        ]
        told = f"{', '.join(words)}, whatever the settings: all that was learned is seen in the new unit"
        log.warning("a metric has changed: %s", told)
        return told

    def _familiar(self, models: Models, context: Array) -> bool:
        """Whether a situation like this one was met; before any sample, none is thought to be special."""
        if not models.family.samples:
            return True
        return not self.contexts.new(context[None])[0] and bool(models.believe(context).similar().max() >= ALIKE)

    def _taken(self, models: Models, trial: Trial, gap: float, deviation: float) -> Taken:
        """What to learn, when a target lies `gap` from where it was expected, with such a deviation.

        Nothing, while it may be that a metric has changed its unit.
        """
        watch, objective, seen, large = self.watch, models.objective, float(self.losses.seen[0]), False
        if abs(gap) > deviation and seen >= KNOWN_FROM_SAMPLES and seen - self._changed_at > AGREE_WITHIN_SAMPLES:
            causes = changes(objective, trial.losses, self.losses, gap, deviation)
            large = any(one.large for one in causes) and self._familiar(models, trial.context)
            agreeing = watch.agreeing(causes) if large else np.zeros((1, 0), dtype=bool)
            if agreeing.any():
                watch.put_aside(_row(trial)[None], causes, agreeing)
                if watch.confirmed(self._sizes[0])[0]:
                    factors, shifts = watch.change()
                    return Taken(self.release(), (factors[0], shifts[0]))
                return Taken(self._of_another_world(self.release()) if watch.full()[0] else [])
        aside = self.release()
        if len(aside) > 1:
            return Taken(self._of_another_world([*aside, trial]))
        return Taken([*(aside if large else self._unless_absurd(aside, objective)), trial])

    def _of_another_world(self, trials: list[Trial]) -> list[Trial]:
        """The same: settings have not changed alike. That may happen again, so nothing is put aside for a while."""
        self._changed_at = float(self.losses.seen[0])
        return trials

    def _unless_absurd(self, trials: list[Trial], objective: Objective) -> list[Trial]:
        """The trial that was put aside, if any; none if it is beyond all that is believed: what came next was normal.

        If that happens more often it is learned as far as it is believed: a setting may be ruinous now and then.
        """
        if not trials or not self._absurd(trials[0], objective):
            return trials
        seen = float(self.losses.seen[0])
        rare, self._left_out_at = seen - self._left_out_at > AGREE_WITHIN_SAMPLES, seen
        return [] if rare else trials

    def _absurd(self, trial: Trial, objective: Objective) -> bool:
        """Whether a loss lies beyond all that is believed, in a column that counts."""
        counts = objective.weights > 0.0
        inside = self.losses.bounded(trial.losses[None])[0]
        return not np.array_equal(inside[counts], trial.losses[counts])

    def release(self) -> list[Trial]:
        """The trials that were put aside, which are so no more."""
        aside = self.aside()
        if aside:
            self.watch.clear(ALL)
        return aside

    def aside(self) -> list[Trial]:
        """The trials that are put aside."""
        return [_trial(row, self._sizes) for row in self.watch.trials[0, : int(self.watch.count[0])]]

    def _first_again(self, objective: Objective) -> list[Trial]:
        """The first trials but those with absurd losses, once it is known what is normal; none if it is all the same.

        A loss so far off may be false, or a ruinous setting: whoever wants to know must look again.
        """
        if not self._open or self.losses.seen[0] < KNOWN_FROM_SAMPLES:
            return []
        trials, self.first, self._open = self.first, [], False
        good = [trial for trial in trials if trial.failed or not self._absurd(trial, objective)]
        absurd = len(good) < len(trials) or hasty(objective, self.losses)
        return good if absurd or any(self.contexts.outside(t.context[None])[0] for t in good) else []

    def state(self) -> dict[str, Array]:
        parts = (("contexts", self.contexts), ("losses", self.losses), ("watch", self.watch))
        rows = [np.append(_row(trial), float(trial.failed)) for trial in self.first]
        return {
            "first": np.array(rows) if rows else np.zeros((0, trial_width(*self._sizes) + 1)),
            "notes": np.array([float(self._open), self._left_out_at, self._changed_at]),
            **{f"{name}/{key}": array for name, part in parts for key, array in part.state().items()},
        }

    def restore(self, state: Mapping[str, Array]) -> None:
        for name, part in (("contexts", self.contexts), ("losses", self.losses), ("watch", self.watch)):
            part.restore(under(f"{name}/", state))
        width = trial_width(*self._sizes) + 1
        fields = {
            "first": Field(("n", width), -LARGEST, LARGEST),
            "notes": Field((3,), LONG_AGO, MOST_SAMPLES, whole=True),
        }
        found = checked(state, fields, {"n": range(MOST_FIRST + 1)})
        check_trials(state, "first", found["first"], self._sizes[0])
        check_trials(state, "watch/trials", self.watch.trials[0], self._sizes[0])
        self.first = [_trial(row, self._sizes)._replace(failed=bool(row[-1])) for row in found["first"]]
        open_, self._left_out_at, self._changed_at = found["notes"].tolist()
        self._open = bool(open_)


def trial_width(knobs: int, context: int, columns: int) -> int:
    """Numbers in the row of a trial."""
    return 2 * knobs + context + columns + 1


def check_trials(state: Mapping[str, Array], name: str, rows: Array, knobs: int) -> None:
    """Nothing, if rows of trials begin with points of the unit box; else a SnapshotError."""
    points = rows[..., :knobs]
    if not ((points >= 0.0) & (points <= 1.0)).all():
        raise broken(state, name, "begin with points of the unit box", points.tolist())


def _row(trial: Trial) -> Array:
    """Point, context, losses, what was asked for, and whether anything was."""
    asked = trial.point if trial.asked is None else trial.asked
    return np.concatenate([trial.point, trial.context, trial.losses, asked, [float(trial.asked is not None)]])


def _trial(row: Array, sizes: tuple[int, int, int]) -> Trial:
    d, c, columns = sizes
    point, context, losses, asked, more = np.split(row, np.cumsum([d, c, columns, d]))
    return Trial(point.copy(), context.copy(), losses.copy(), False, asked.copy() if more[0] else None)
