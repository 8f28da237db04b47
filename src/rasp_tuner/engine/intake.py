"""Intake: what stands between what tuners are told and what their models learn, so that nothing can blind them.

contexts   scales are learned from contexts within bounds (context_bounds.py)
losses     believed within bounds (loss_bounds.py)
first      the first trials are kept until it is known what is normal: if one was absurd, all are learned again
watch      surprises that would all come from one change of a metric's unit are put aside (unit_watch.py)

tell   losses -> put aside? -> what they prove (the scale of a metric) -> as far as they are believed -> models learn

Written for B tuners, of which one is a case. Few at a time meet any of it: all are looked at together, and what has to
be done is done for some of them.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol, Self

import numpy as np

from rasp_tuner.base.common_constants import FADING_SAMPLES
from rasp_tuner.base.numerics import Array
from rasp_tuner.base.trusted_range import KNOWN_FROM_SAMPLES
from rasp_tuner.contexts.context_bounds import ContextBounds
from rasp_tuner.contexts.context_metric import ALIKE, is_apart
from rasp_tuner.engine.intake_notes import MOST_FIRST, IntakeNotes
from rasp_tuner.engine.kernel.masks import Flags
from rasp_tuner.engine.kernel.state import Dims, Places
from rasp_tuner.engine.loss_bounds import LossBounds
from rasp_tuner.engine.metric_evidence import by_column, changes, hasty, leaps, observe_extreme, says_nothing
from rasp_tuner.engine.objective import Objective
from rasp_tuner.engine.trials import Trials, trials_of
from rasp_tuner.engine.unit_watch import Change, H, UnitWatch


class Learners(Protocol):
    """B tuners, with what is remembered of what they were told, and models that learn."""

    objective: Objective  # of one tuner, or of B
    dims: Dims
    contexts: ContextBounds
    losses: LossBounds
    watch: UnitWatch
    notes: IntakeNotes

    def some(self, places: Places) -> Self:
        """Some of them, which may be copies until they are `put` back."""

    def put(self, places: Places, part: Self) -> None:
        """Take back what `some` gave."""

    def samples(self) -> Array:
        """[B] that their models have learned from."""

    def surprise(self, trials: Trials) -> tuple[Array, Array]:
        """[B] how far targets lie from what was expected of trials, and the deviations of that, calibrated."""

    def likeness(self, contexts: Array) -> Array:
        """[B] how similar the most similar situation is that each has met; they have samples."""

    def met(self) -> list[Array]:
        """Of each, contexts [n, c] that it has met."""

    def differs(self, aside: Array) -> Flags:
        """[B] whether rows [B, H, width] of trials are of settings that ran before, and unlike what came then."""

    def learn_trials(self, trials: Trials, again: bool) -> None:
        """Have the models learn; `again`: what they had learned before, and forgot."""

    def rescaled(self, changed: Flags, again: bool) -> None:
        """Tell the models that metrics of the tuners in a mask [B] are on another scale now."""

    def restate(self, factors: Array, shifts: Array) -> None:
        """See all that models have learned in other units: losses * factors + shifts, [B, C] each."""

    def forget(self) -> None:
        """Have models and objectives know nothing but what others told them."""

    def bound_contexts(self, moved: Places, mend: Places) -> None:
        """Tell models from which contexts scales are learned; some `mend` those of the past."""


def tell(to: Learners, trials: Trials) -> None:
    """Have the models learn from trials as they came; or put them aside, where a metric may have changed its unit."""
    watch, told = to.watch, ~trials.failed
    causes, large = _surprises(to, trials)
    if not large.any() and not watch.count.any():
        learn_losses(to, trials)
        return
    before = watch.count.copy()
    agreeing: Flags = watch.agreeing(causes) & large[:, None]
    held: Flags = np.any(agreeing, axis=1)
    watch.put_aside(trials.rows(), causes, agreeing)
    confirmed = held & watch.confirmed(to.dims.knobs)
    confirmed[confirmed] = ~_elsewhere(to, np.flatnonzero(confirmed))
    confirmed[confirmed] = _differs(to, np.flatnonzero(confirmed))
    full = held & watch.full() & ~confirmed
    released = confirmed | full | (told & ~held & (before > 0.0))
    changed = full | (released & ~held & (before > 1.0))  # but settings not alike: it is the world, so for a while
    to.notes.changed_at[changed] = to.losses.seen[changed]  # nothing is put aside
    absurd = _left_out(to, released & ~held & ~large & (before == 1.0))
    _restate(to, np.flatnonzero(confirmed))
    aside, count, learned = watch.trials.copy(), watch.count.copy(), released & ~absurd
    watch.clear(released)
    for i in range(H):
        _some(to, learned & (count > i), trials_of(aside[:, i], to.dims), learn_losses)
    _some(to, ~held, trials, learn_losses)


def learn_losses(to: Learners, trials: Trials) -> None:
    """Learn from losses: what they prove, then as far as they are believed."""
    to.losses.observe(trials.losses, ~trials.failed)
    _learn_believed(to, trials)
    known = (to.notes.open > 0.0) & (to.losses.seen >= KNOWN_FROM_SAMPLES)
    if known.any():
        _learn_first_again(to, np.flatnonzero(known))


def see(to: Learners, trials: Trials, keep: bool = True) -> None:
    """Take in the contexts of trials that models are about to learn, for the first time; the first ones are kept."""
    notes, bounds = to.notes, to.contexts
    keeps = keep & (notes.open > 0.0) & (notes.kept < MOST_FIRST)
    if keeps.any():
        kept = np.flatnonzero(keeps)
        notes.first[kept, notes.kept[kept].astype(np.int64)] = trials.rows()[kept]
        notes.kept[kept] += 1.0
    before = bounds.least, bounds.most
    new = bounds.observe(trials.contexts, np.ones(len(notes.open), dtype=bool))
    if new is not None:
        moved = ((bounds.least != before[0]) | (bounds.most != before[1])).any(axis=1)
        to.bound_contexts(np.flatnonzero(moved), np.flatnonzero(new.any(axis=1)))


def see_and_learn(to: Learners, trials: Trials) -> None:
    """The same, and have the models learn."""
    see(to, trials)
    to.learn_trials(trials, again=False)


def _surprises(to: Learners, trials: Trials) -> tuple[list[Change], Flags]:
    """How metrics would have had to change to explain the trials; and where [B] such a change is large."""
    seen, objective = to.losses.seen, to.objective
    may = ~trials.failed & (seen >= KNOWN_FROM_SAMPLES) & (seen - to.notes.changed_at > FADING_SAMPLES)
    if not may.any():
        none = np.zeros(len(seen))
        return [Change(none, none + 1.0, none == 0.0, none)] * len(objective.metrics), may
    gap, deviation = to.surprise(trials)
    own = objective.own_rows(trials.losses), to.losses, *map(objective.own_numbers, (gap, deviation))
    causes = changes(objective, *own)
    large = may & (np.abs(gap) > deviation) & np.any([one.large for one in causes], axis=0)
    if large.any():
        places = np.flatnonzero(large)
        large[places] = _familiar(to, places, trials)
    return causes, large


def _familiar(to: Learners, places: Places, trials: Trials) -> Flags:
    """[m] whether some met situations like those of trials; before any sample, none is thought to be special."""
    part, contexts = to.some(places), trials.contexts[places]
    first, near = part.samples() == 0.0, ~part.contexts.new(contexts)
    if (near & ~first).any():
        near &= part.likeness(contexts) >= ALIKE
    familiar: Flags = first | near
    return familiar


def _elsewhere(to: Learners, places: Places) -> Flags:
    """[m] whether what some tuners put aside is of a new situation, which may have a level of its own."""
    if not len(places):
        return np.zeros(0, dtype=bool)
    aside = [trials_of(to.watch.trials[places, i], to.dims).contexts for i in range(H)]
    return np.array([is_apart(*both) for both in zip(np.stack(aside, axis=1), to.some(places).met(), strict=True)])


def _differs(to: Learners, places: Places) -> Flags:
    """[m] whether some tuners know that what they put aside was not always so."""
    return to.some(places).differs(to.watch.trials[places]) if len(places) else np.zeros(0, dtype=bool)


def _left_out(to: Learners, alone: Flags) -> Flags:
    """[B] which of the single trials that were put aside are false: beyond all that is believed, and rare.

    If that happens more often they are learned as far as they are believed: a setting may be ruinous now and then.
    """
    seen, notes = to.losses.seen, to.notes
    absurd = alone & _absurd(to, trials_of(to.watch.trials[:, 0], to.dims))
    rare = absurd & (seen - notes.left_out_at > FADING_SAMPLES)
    notes.left_out_at[absurd] = seen[absurd]
    return rare


def _absurd(to: Learners, trials: Trials) -> Flags:
    """[B] whether a loss lies beyond all that is believed, in a column that counts."""
    outside = to.losses.bounded(trials.losses) != trials.losses
    absurd: Flags = (outside & (to.objective.weights > 0.0)).any(axis=1) & ~trials.failed
    return absurd


def _restate(to: Learners, places: Places) -> None:
    """See all of the past of some tuners in the units that metrics have now."""
    if not len(places):
        return
    part = to.some(places)
    by, plus = by_column(part.objective, *map(part.objective.own_rows, part.watch.change()))
    part.objective.restate(by, plus)
    by, plus = np.atleast_2d(by), np.atleast_2d(plus)
    part.losses.restate(by, plus)
    part.restate(by, plus)
    to.put(places, part)


def _some(to: Learners, which: Flags, trials: Trials, do: Callable[[Learners, Trials], None]) -> None:
    """Do something with some of the tuners, by a mask [B], and their trials."""
    places = np.flatnonzero(which)
    if len(places):
        part = to.some(places)
        do(part, trials.some(places))
        to.put(places, part)


def _learn_believed(to: Learners, trials: Trials, again: bool = False) -> None:
    objective, bounds, told = to.objective, to.losses, ~trials.failed
    own = objective.own_rows(trials.losses)
    leap = told & leaps(objective, bounds, own)
    if leap.any():
        places = np.flatnonzero(leap)
        leap[places] = ~_familiar(to, places, trials)
    changed = told & observe_extreme(objective, bounds, objective.own_numbers(leap), objective.own_numbers(told))
    if changed.any():
        to.rescaled(changed, again)
    losses = bounds.bounded(trials.losses)
    if (losses != trials.losses).any():
        trials = trials.with_losses(losses)
    nothing = told & says_nothing(objective, own)
    learn = _learn_again if again else see_and_learn
    if nothing.any():
        _some(to, ~nothing, trials, learn)
    else:
        learn(to, trials)


def _learn_again(to: Learners, trials: Trials) -> None:
    to.learn_trials(trials, again=True)


def _learn_first_again(to: Learners, places: Places) -> None:
    """Have some learn their first trials again, but those with absurd losses, if there are any; none are kept any more.

    A loss so far off may be false, or a ruinous setting: whoever wants to know must look again.
    """
    part = to.some(places)
    notes, first = part.notes, part.notes.first_trials()
    trials = [replace(one, asked=one.asked & False) for one in first]  # costs are not booked twice
    used = np.arange(len(first)) < notes.kept[:, None]
    false = np.stack([_absurd(part, one) for one in trials], axis=1) & used
    outside = np.stack([part.contexts.outside(one.contexts) for one in trials], axis=1) & used
    again = (false | outside).any(axis=1) | hasty(part.objective, part.losses)
    notes.close()
    to.put(places, part)
    if again.any():
        chosen = places[again]
        part = to.some(chosen)
        part.forget()
        to.put(chosen, part)
    for i, one in enumerate(trials):
        good = again & used[:, i] & ~false[:, i]
        if good.any():
            part = to.some(places[good])
            _learn_first(part, one.some(good))
            to.put(places[good], part)


def _learn_first(to: Learners, trials: Trials) -> None:
    """Have tuners learn one of their first trials; what failed, once anything succeeded."""
    keep = ~trials.failed | (to.objective.seen > 0)
    _some(to, keep, trials, partial(_learn_believed, again=True))
