"""FleetIntake: what engine/intake.py does for one tuner, for many at once: absurd values, and metrics in other units.

Few tuners at a time meet any of it. So all are looked at together, and what has to be done is done for some of them.

symbol   meaning
n        tuners that are told
W        numbers in the row of a trial: point, context, losses, what was asked for, and whether anything was
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rasp_tuner.core.context_metric import ALIKE
from rasp_tuner.core.numerics import Array
from rasp_tuner.core.trusted_range import AGREE_WITHIN_SAMPLES, KNOWN_FROM_SAMPLES
from rasp_tuner.engine.intake import MOST_FIRST
from rasp_tuner.engine.kernel.batch import Beliefs
from rasp_tuner.engine.kernel.believe import believe
from rasp_tuner.engine.kernel.learn import start
from rasp_tuner.engine.kernel.masks import Flags
from rasp_tuner.engine.kernel.restate import mend_scales, restate
from rasp_tuner.engine.kernel.state import Dims, Places, State, blank
from rasp_tuner.engine.metric_evidence import by_column, changes, hasty, leaps, observe_extreme, says_nothing
from rasp_tuner.engine.quadratic.family import PRIOR
from rasp_tuner.engine.safety import LEAST_VARIANCE
from rasp_tuner.engine.unit_watch import Change, H
from rasp_tuner.fleet.tuners import Tuners

log = logging.getLogger("rasp_tuner.fleet")
KEPT = ("weights", "context_least", "context_most", *PRIOR)  # by a tuner that learns its first trials again


@dataclass(frozen=True)
class Trials:
    """One of each of n tuners."""

    points: Array  # [n, d]
    contexts: Array  # [n, c]
    losses: Array  # [n, C]; of failures the worst seen
    failed: Flags  # [n]
    asked: Flags  # [n] whether it was a suggestion, which a budget counts

    def some(self, places: Places | Flags) -> "Trials":
        return Trials(*(array[places] for array in vars(self).values()))

    def rows(self) -> Array:
        """[n, W]"""
        asked = self.asked[:, None].astype(np.float64)
        return np.concatenate([self.points, self.contexts, self.losses, self.points, asked], axis=1)


def trials_of(rows: Array, dims: Dims) -> Trials:
    """What `Trials.rows` gave; none of them failed."""
    ends = np.cumsum([dims.knobs, dims.context, dims.columns, dims.knobs])
    points, contexts, losses, _, asked = np.split(rows, ends, axis=1)
    return Trials(points, contexts, losses, np.zeros(len(rows), dtype=bool), asked[:, 0] > 0.0)


class FleetIntake:
    """Has tuners learn trials: `learn(tuners, trials, beliefs)` is what comes after it."""

    def __init__(self, dims: Dims, default: Array, learn: Callable[[Tuners, Trials, Beliefs | None], None]) -> None:
        self._dims, self._default, self._learn = dims, default, learn

    def tell(self, tuners: Tuners, trials: Trials, beliefs: Beliefs | None) -> None:
        """Have the tuners learn; or put trials aside, where a metric may have changed its unit."""
        watch, told = tuners.watch, ~trials.failed
        causes, large = self._surprises(tuners, trials, beliefs)
        if not large.any() and not watch.count.any():
            self._tell(tuners, trials, beliefs)
            return
        before = watch.count.copy()
        agreeing = watch.agreeing(causes) & large[:, None]
        held = agreeing.any(axis=1)
        watch.put_aside(trials.rows(), causes, agreeing)
        confirmed = held & watch.confirmed(self._dims.knobs)
        full = held & watch.full() & ~confirmed
        released = confirmed | full | (told & ~held & (before > 0.0))
        changed = full | (released & ~held & (before > 1.0))  # but not alike: it is the world
        tuners.notes.changed_at[changed] = tuners.losses.seen[changed]
        absurd = self._left_out(tuners, released & ~held & ~large & (before == 1.0))
        self._restate(tuners, np.flatnonzero(confirmed))
        aside, counts = watch.trials.copy(), np.where(released & ~absurd, watch.count, 0.0)
        watch.clear(released)
        for i in range(H):
            self._tell_some(tuners, np.flatnonzero(counts > i), trials_of(aside[:, i], self._dims))
        places = np.flatnonzero(~held)
        if len(places):
            self._tell_some(tuners, places, trials)

    def check_points(self, tuners: Tuners, points: Array, best: Callable[[Places], Array]) -> Array:
        """Points [n, d] to try; where trials are put aside, what shows whether a metric has changed its unit.

        `best` gives the best points known of some tuners.
        """
        places = np.flatnonzero(tuners.watch.count > 0.0)
        if not len(places):
            return points
        part = tuners.some(places)
        own, others = part.watch.at_default(self._default)
        check = best(places)
        check[(others > 1.0) & (own == 0.0)] = self._default
        stuck = (own > 1.0) & (others == 0.0) & (check == self._default).all(axis=1)
        for i in np.flatnonzero(stuck):
            check[i] = self._best_tried(part.some(np.array([i])))
        points = points.copy()
        points[places] = check
        return points

    def _best_tried(self, one: Tuners) -> Array:
        """[d] the best of the latest points of a tuner that are not the default; else the default."""
        seen = int(min(one.known("steps")[0], one.known("window_points").shape[1]))
        u, losses = one.known("window_points")[0, :seen], one.known("window_losses")[0, :seen]
        tried = (u != 0.0).any(axis=1)
        if not tried.any():
            return self._default
        y = losses[tried] @ one.objective.weights[0]
        best: Array = self._default + 0.5 * u[tried][int(y.argmin())]
        return best

    def _surprises(self, tuners: Tuners, trials: Trials, beliefs: Beliefs | None) -> tuple[list[Change], Flags]:
        """How metrics would have had to change to explain the trials; and where [n] such a change is large."""
        seen = tuners.losses.seen
        may = ~trials.failed & (seen >= KNOWN_FROM_SAMPLES) & (seen - tuners.notes.changed_at > AGREE_WITHIN_SAMPLES)
        none = np.zeros(tuners.size)
        if not may.any():
            return [Change(none, none + 1.0, none == 0.0, none)] * len(tuners.objective.metrics), may
        believed = tuners.believe(trials.contexts) if beliefs is None else beliefs
        means, variances = believed.predict(trials.points[:, None])
        unsure = np.sqrt(np.maximum(variances[:, 0] + believed.noise(), LEAST_VARIANCE))
        deviation = unsure * np.maximum(tuners.calibration.factor, 1.0)
        gap = (trials.losses * tuners.objective.weights).sum(axis=1) - means[:, 0]
        causes = changes(tuners.objective, trials.losses, tuners.losses, gap, deviation)
        large = may & (np.abs(gap) > deviation) & np.any([one.large for one in causes], axis=0)
        places = np.flatnonzero(large)
        large[places] = self._familiar(tuners, places, trials.contexts[places])
        return causes, large

    def _familiar(self, tuners: Tuners, places: Places, contexts: Array) -> Flags:
        """Whether situations like these were met by some tuners; before any sample, none is thought to be special."""
        if not len(places):
            return np.zeros(0, dtype=bool)
        part = tuners.some(places)
        state = part.batch.take(part.rows)
        similar = believe(self._dims, state, self._default, contexts).kernels[:, 2].max(axis=1)
        familiar: Flags = (state.steps == 0.0) | (~part.contexts.new(contexts) & (similar >= ALIKE))
        return familiar

    def _left_out(self, tuners: Tuners, alone: Flags) -> Flags:
        """[n] which of the single trials that were put aside are false: beyond all that is believed, and rare."""
        seen, notes = tuners.losses.seen, tuners.notes
        absurd = alone & self._absurd(tuners, trials_of(tuners.watch.trials[:, 0], self._dims))
        rare = absurd & (seen - notes.left_out_at > AGREE_WITHIN_SAMPLES)
        notes.left_out_at[absurd] = seen[absurd]
        return rare

    @staticmethod
    def _absurd(tuners: Tuners, trials: Trials) -> Flags:
        """[n] whether a loss lies beyond all that is believed, in a column that counts."""
        outside = tuners.losses.bounded(trials.losses) != trials.losses
        absurd: Flags = (outside & (tuners.objective.weights > 0.0)).any(axis=1) & ~trials.failed
        return absurd

    def _restate(self, tuners: Tuners, places: Places) -> None:
        """See all of the past of some tuners in the units that metrics have now."""
        if not len(places):
            return
        part = tuners.some(places)
        by, plus = by_column(part.objective, *part.watch.change())
        part.objective.restate(by, plus)
        part.losses.restate(by, plus)
        state = part.batch.take(part.rows)
        restate(self._dims, state, np.arange(len(places)), by, plus, part.objective.weights)
        part.batch.put(part.rows, state)
        tuners.put(places, part)
        log.warning("a metric of %d tuners has changed: all that they learned is seen in the new unit", len(places))

    def _tell_some(self, tuners: Tuners, places: Places, trials: Trials) -> None:
        if len(places):
            part = tuners.some(places)
            self._tell(part, trials.some(places), None)
            tuners.put(places, part)

    def _tell(self, tuners: Tuners, trials: Trials, beliefs: Beliefs | None) -> None:
        """Learn from losses: what they prove, then as far as they are believed."""
        tuners.losses.observe(trials.losses, ~trials.failed)
        self._learn_believed(tuners, trials, beliefs)
        known = (tuners.notes.open > 0.0) & (tuners.losses.seen >= KNOWN_FROM_SAMPLES)
        if known.any():
            self._learn_first_again(tuners, np.flatnonzero(known))

    def _learn_believed(self, tuners: Tuners, trials: Trials, beliefs: Beliefs | None, again: bool = False) -> None:
        learn = self._learn if again else self.see_and_learn
        objective, bounds, told = tuners.objective, tuners.losses, ~trials.failed
        leap = told & leaps(objective, bounds, trials.losses)
        places = np.flatnonzero(leap)
        leap[places] = ~self._familiar(tuners, places, trials.contexts[places])
        changed = observe_extreme(objective, bounds, leap, told)
        if changed.any():
            tuners.reweigh(changed)
            beliefs = None
        losses = np.where(trials.failed[:, None], trials.losses, bounds.bounded(trials.losses))
        places = np.flatnonzero((losses != trials.losses).any(axis=1))
        new = places[~self._familiar(tuners, places, trials.contexts[places])]
        losses[new] = bounds.bounded_if_new(trials.losses)[new]
        nothing = told & says_nothing(objective, trials.losses)
        trials = Trials(trials.points, trials.contexts, losses, trials.failed, trials.asked)
        if not nothing.any():
            learn(tuners, trials, beliefs)
            return
        places = np.flatnonzero(~nothing)
        if len(places):
            part = tuners.some(places)
            learn(part, trials.some(places), None)
            tuners.put(places, part)

    def see_and_learn(self, tuners: Tuners, trials: Trials, beliefs: Beliefs | None) -> None:
        """Take in contexts, and have the tuners learn."""
        notes, bounds = tuners.notes, tuners.contexts
        kept = np.flatnonzero((notes.open > 0.0) & (notes.kept < MOST_FIRST))
        if len(kept):
            rows = np.concatenate([trials.rows(), trials.failed[:, None]], axis=1)
            notes.first[kept, notes.kept[kept].astype(np.int64)] = rows[kept]
            notes.kept[kept] += 1.0
        before = bounds.least, bounds.most
        new = bounds.observe(trials.contexts, np.ones(tuners.size, dtype=bool))
        if new is not None:
            moved = np.flatnonzero(((bounds.least != before[0]) | (bounds.most != before[1])).any(axis=1))
            tuners.batch.write("context_least", tuners.rows[moved], bounds.least[moved])
            tuners.batch.write("context_most", tuners.rows[moved], bounds.most[moved])
            mend = tuners.rows[new.any(axis=1)]
            if len(mend):
                state = tuners.batch.take(mend)
                mend_scales(self._dims, state, np.arange(len(mend)))
                tuners.batch.put(mend, state)
                beliefs = None
        self._learn(tuners, trials, beliefs)

    def _learn_first_again(self, tuners: Tuners, places: Places) -> None:
        """Have some tuners learn their first trials again, where one was absurd; they are kept no more."""
        part = tuners.some(places)
        first, notes, n = part.notes.first.copy(), part.notes, np.arange(MOST_FIRST)
        used = n < notes.kept[:, None]
        trials = [self._first(first[:, i]) for i in range(MOST_FIRST)]
        false = np.stack([self._absurd(part, one) for one in trials], axis=1) & used
        outside = np.stack([part.contexts.outside(one.contexts) for one in trials], axis=1) & used
        again = (false | outside).any(axis=1) | hasty(part.objective, part.losses)
        notes.open[...], notes.kept[...], notes.first[...] = 0.0, 0.0, 0.0
        tuners.put(places, part)
        chosen = np.flatnonzero(again)
        if len(chosen):
            self._forget(tuners, places[chosen])
        for i, one in enumerate(trials if len(chosen) else []):
            good = again & used[:, i] & ~false[:, i]
            self._learn_first(tuners, places[good], one.some(good))

    def _first(self, rows: Array) -> Trials:
        made = trials_of(rows[:, :-1], self._dims)
        return Trials(made.points, made.contexts, made.losses, rows[:, -1] > 0.0, made.asked & False)

    def _learn_first(self, tuners: Tuners, places: Places, trials: Trials) -> None:
        """Have some tuners learn one of their first trials; what failed, once anything succeeded."""
        seen = tuners.objective.seen[places] > 0
        keep = np.flatnonzero(~trials.failed | seen)
        if not len(keep):
            return
        part, trials = tuners.some(places[keep]), trials.some(keep)
        losses = np.where(trials.failed[:, None], part.objective.worst(), trials.losses)
        again = Trials(trials.points, trials.contexts, losses, trials.failed, trials.asked)
        self._learn_believed(part, again, None, again=True)
        tuners.put(places[keep], part)

    def _forget(self, tuners: Tuners, places: Places) -> None:
        """Have some tuners know nothing but what others told them."""
        part = tuners.some(places)
        part.objective.forget()
        state: State = blank(self._dims, len(places), start(self._dims))
        for name in KEPT:
            getattr(state, name)[...] = part.known(name)
        state.weights[...] = part.objective.weights
        part.batch.put(part.rows, state)
        tuners.put(places, part)
