"""Intake: what stands between what one tuner is told and what its models learn, so that nothing can blind them.

contexts   scales are learned from contexts within bounds (context_bounds.py)
losses     believed within bounds (loss_bounds.py)
first      the first trials are kept until it is known what is normal: if one was absurd, all are learned again
watch      surprises that would all come from one change of a metric's unit are put aside (unit_watch.py)
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.core.numerics import Array
from rasp_tuner.core.state_checks import Field, checked, under
from rasp_tuner.engine.context_bounds import ContextBounds
from rasp_tuner.engine.family import Trial
from rasp_tuner.engine.loss_bounds import LossBounds
from rasp_tuner.engine.objective import Objective
from rasp_tuner.engine.trusted_range import AGREE_WITHIN_SAMPLES, KNOWN_FROM_SAMPLES
from rasp_tuner.engine.unit_watch import UnitWatch

ALL = np.ones(1, dtype=bool)  # the one tuner that there is
MOST_FIRST = 64  # trials kept: what fails counts for no metric
LONG_AGO = -AGREE_WITHIN_SAMPLES


class Taken(NamedTuple):
    """Trials that are to be learned now, oldest first; before them the metrics have changed so, [K] each, if at all."""

    trials: list[Trial]
    change: tuple[Array, Array] | None = None  # factors, and shifts of their losses


class Intake:
    """Of d knobs, c context dimensions, and the columns of an objective."""

    def __init__(self, default: Array, context_dim: int, objective: Objective) -> None:
        self._sizes = len(default), context_dim, objective.columns
        one = np.zeros(1)
        self.contexts = ContextBounds(context_dim, one)
        self.losses = LossBounds(objective.logs, one)
        self.watch = UnitWatch(_width(self._sizes), len(objective.metrics), one)
        self.first: list[Trial] = []
        self._open = True  # whether more of them are kept
        self._left_out_at = LONG_AGO  # samples seen when one was last left out as false
        self._changed_at = LONG_AGO  # and when settings had not changed alike: it is the world that changes

    def believed(self, trial: Trial, familiar: Callable[[Array], bool]) -> Trial:
        """A trial whose losses are believed as far as they can be: further where the situation is not familiar."""
        raw = trial.losses[None]
        losses: Array = self.losses.bounded(raw)[0]
        if not np.array_equal(losses, trial.losses) and not familiar(trial.context):
            losses = self.losses.bounded_if_new(raw)[0]
        return trial._replace(losses=losses)

    def observe_context(self, context: Array) -> NDArray[np.bool_] | None:
        """Take in a context [c]; which dimensions [1, c] are bounded from now on, None if no bounds have changed."""
        new: NDArray[np.bool_] | None = self.contexts.observe(context[None], ALL)
        return new

    def observe_losses(self, losses: Array) -> None:
        """Take in losses [C] as they came."""
        self.losses.observe(losses[None], ALL)

    def take(
        self, trial: Trial, objective: Objective, gap: float, deviation: float, familiar: Callable[[Array], bool]
    ) -> Taken:
        """What to learn, when a target lies `gap` from where it was expected, with such a deviation.

        Nothing, while it may be that a metric has changed its unit.
        """
        watch, seen, large = self.watch, float(self.losses.seen[0]), False
        if abs(gap) > deviation and seen >= KNOWN_FROM_SAMPLES and seen - self._changed_at > AGREE_WITHIN_SAMPLES:
            changes = objective.changes(trial.losses, self.losses, gap, deviation)
            large = any(one.large for one in changes) and familiar(trial.context)
            agreeing = watch.agreeing(changes) if large else np.zeros((1, 0))
            if agreeing.any():
                watch.put_aside(_row(trial)[None], changes, agreeing)
                if watch.confirmed(self._sizes[0])[0]:
                    factors, shifts = watch.change()
                    return Taken(self.release(), (factors[0], shifts[0]))
                if not watch.full()[0]:
                    return Taken([])
                *aside, trial = self.release()
                return Taken(self._of_another_world([*aside, trial]))
        aside = self.release()
        if len(aside) > 1:
            return Taken(self._of_another_world([*aside, trial]))
        return Taken([*(aside if large else self._unless_absurd(aside, objective)), trial])

    def _of_another_world(self, trials: list[Trial]) -> list[Trial]:
        """The same, to be learned: settings have not changed alike. It may be so again, so nothing is put aside soon."""
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
        counts: NDArray[np.bool_] = objective.weights > 0.0
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

    def keep_first(self, trial: Trial) -> None:
        """Keep a trial as it came, while it is not known what is normal."""
        if self._open and len(self.first) < MOST_FIRST:
            self.first.append(trial)

    def absurd_first(self, objective: Objective) -> list[Trial]:
        """The first trials but those with absurd losses, once it is known what is normal; none if it is all the same.

        A loss so far off may be false, or a ruinous setting: whoever wants to know must look again.
        """
        if not self._open or self.losses.seen[0] < KNOWN_FROM_SAMPLES:
            return []
        trials, self.first, self._open = self.first, [], False
        good = [trial for trial in trials if trial.failed or not self._absurd(trial, objective)]
        absurd = len(good) < len(trials) or objective.hasty(self.losses)
        return good if absurd or any(self.contexts.outside(t.context[None])[0] for t in good) else []

    def merge(self, other: "Intake") -> None:
        """Take in what another one has seen; of two, nobody knows what came first."""
        self.contexts.merge(other.contexts)
        self.losses.merge(other.losses)
        self.first, self._open = [], False

    def restate(self, factors: Array, shifts: Array) -> None:
        """Losses have become losses * factors + shifts, [C] each."""
        self.losses.restate(factors[None], shifts[None])

    def state(self) -> dict[str, Array]:
        parts = (("contexts", self.contexts), ("losses", self.losses), ("watch", self.watch))
        rows = [np.append(_row(trial), float(trial.failed)) for trial in self.first]
        return {
            "first": np.array(rows) if rows else np.zeros((0, _width(self._sizes) + 1)),
            "since": np.array([self._left_out_at, self._changed_at]),
            **{f"{name}/{key}": array for name, part in parts for key, array in part.state().items()},
        }

    def restore(self, state: Mapping[str, Array]) -> None:
        for name, part in (("contexts", self.contexts), ("losses", self.losses), ("watch", self.watch)):
            part.restore(under(f"{name}/", state))
        fields = {"first": Field(("n", _width(self._sizes) + 1)), "since": Field((2,))}
        found = checked(state, fields, {"n": range(MOST_FIRST + 1)})
        self.first = [_trial(row, self._sizes)._replace(failed=bool(row[-1])) for row in found["first"]]
        self._open = bool(self.losses.seen[0] < KNOWN_FROM_SAMPLES)
        self._left_out_at, self._changed_at = found["since"].tolist()


def _width(sizes: tuple[int, int, int]) -> int:
    """Numbers in the row of a trial."""
    d, c, columns = sizes
    return 2 * d + c + columns + 1


def _row(trial: Trial) -> Array:
    """Point, context, losses, what was asked for, and whether anything was."""
    asked = trial.point if trial.asked is None else trial.asked
    return np.concatenate([trial.point, trial.context, trial.losses, asked, [float(trial.asked is not None)]])


def _trial(row: Array, sizes: tuple[int, int, int]) -> Trial:
    d, c, columns = sizes
    point, context, losses, asked, more = np.split(row, np.cumsum([d, c, columns, d]))
    return Trial(point.copy(), context.copy(), losses.copy(), False, asked.copy() if more[0] else None)
