"""Account: what own steps have cost against the default, and what one more may cost: budget, bill, audit and stops."""

import math
from collections.abc import Iterator
from typing import Any, cast

from rasp_tuner.base.numerics import Array
from rasp_tuner.engine import stops
from rasp_tuner.engine.budget import MOST_PRICE, BudgetLedger
from rasp_tuner.engine.family import Belief, Bill, Choice, Family, RunOutcome, SearchBelief, predict_one
from rasp_tuner.engine.measured_bill import AUDIT, LEAST_LEFT, MeasuredBill, MeasuredRun
from rasp_tuner.engine.objective import UNKNOWN_HARM, Objective
from rasp_tuner.engine.safety import Against, cost, within_budget
from rasp_tuner.engine.settings import EngineSettings
from rasp_tuner.engine.stops import STAKE
from rasp_tuner.optimizer.optimizer import Room, Stateful, Waiting
from rasp_tuner.types import Budget


class Account:
    """Of one engine. An offer is a point beside the default; `wider` is the factor of its deviations."""

    def __init__(self, objective: Objective, family: Family[Any], default: Array, settings: EngineSettings) -> None:
        self._objective, self._family, self._default, self._settings = objective, family, default, settings
        self._first_looks = len(default) + 1
        self._ledger = None if settings.budget is None else BudgetLedger(settings.budget)
        self._stops, self._measured = stops.StopRecord(), MeasuredBill()
        self._owed: Bill | None = None  # what own steps have cost, by the latest belief

    @property
    def is_kept(self) -> bool:
        """Whether there is a budget."""
        return self._ledger is not None

    @property
    def is_stopped(self) -> bool:
        """Whether too many runs were ended: only the default runs."""
        return self._ledger is not None and bool(self._stops.many)

    @property
    def is_measured(self) -> bool:
        """Whether runs of the default are set beside own ones: of one metric."""
        return self._ledger is not None and self._objective.one

    def forget_bill(self) -> None:
        """Of a belief that is no more."""
        self._owed = None

    def forget_level(self) -> None:
        """The metric came in another unit."""
        self._measured.forget_level()

    def stake(self, offer: Against, harm_unknown: bool) -> float:
        """What a run may cost more than the default, with one deviation, as a share of its loss; 0 without a budget."""
        if self._ledger is None or offer.deviation == 0.0:
            return 0.0
        least = UNKNOWN_HARM if harm_unknown else 0.0
        return min(max(float(self._objective.relative(offer.mean + offer.deviation, offer.level)), least), MOST_PRICE)

    def allows(self, belief: Belief, point: Array, offer: Against, wider: float, staked: float) -> bool:
        """Whether the bill stays within the budget, with its deviation; or falls. `staked`: by runs under way."""
        ledger, bill = self._ledger, self._bill(belief)
        if ledger is None or offer.deviation == 0.0:
            return True
        if bill is None:
            return bool(within_budget(self._objective, ledger, offer, staked))
        price, worse = self._objective.shares(offer.level, offer.mean, offer.mean + offer.deviation)
        deviation = worse - price
        before = wider * math.sqrt(bill.variance)
        shared = wider**2 * belief.billed(bill, point) * deviation / offer.deviation
        after = math.sqrt(max(before**2 + 2.0 * shared + deviation**2, 0.0))
        price = min(max(price, -MOST_PRICE), MOST_PRICE)
        return bool(ledger.allows(price, after - before, bill.spent - bill.earned + before + staked))

    def audited(self, belief: Belief, choice: Choice, wider: float, waiting: Waiting) -> Choice:
        """The choice; or the default, if its measured cost asks for that."""
        binds = self.is_measured and (self._family.hindsight or self._stops.used) and not belief.lacks_default
        share = self._settings.budget if binds and not self._at_default(choice.point) else None
        why = None if share is None else self._measured.why_default(share, self._bill(belief), wider)
        if why is None and not self._at_default(choice.point) and self._is_unseen(belief, waiting, wider):
            why = AUDIT
        return choice if why is None else Choice(self._default, why, *predict_one(belief, self._default))

    def _is_unseen(self, belief: Belief, waiting: Waiting, wider: float) -> bool:
        """Whether as much may be lost by runs under way as is left, if each loses a stake."""
        unseen = STAKE * (waiting.total - waiting.defaults)
        return unseen >= LEAST_LEFT and not belief.lacks_default and unseen >= self._left(belief, wider)

    def _left(self, belief: Belief, wider: float) -> float:
        """Of the budget, surely."""
        if self._ledger is None:
            return math.inf
        bill, left = self._bill(belief), float(self._ledger.left(self._ledger.steps))
        return left if bill is None else left - (bill.spent - bill.earned + wider * math.sqrt(bill.variance))

    def stop(self, belief: Belief, point: Array, offer: Against, wider: float, room: Room | None) -> float | None:
        """The cost from which on a run of a point should be ended, in the metric's own units; None: it should not."""
        if self._settings.find:
            best = belief.best() if room is None else cast("SearchBelief", belief).best_within(room)
            return stops.stop_behind_best(self._objective, belief, point, best, wider)
        if self._ledger is None or not stops.can_stop(self._objective) or self._at_default(point):
            return None
        stop = stops.stop_of(self._objective, offer, belief.noise, wider, self._left(belief, wider))
        return stops.if_any(self._measured.lowered(stop))

    def note_end(self, trial: RunOutcome, told: float) -> None:
        """Take in whether a run was ended, or should have been; what came, in the metric's own units."""
        measured = not trial.failed and trial.ended is None
        stop = trial.asked.stop if trial.asked is not None and measured else None
        self._stops.observe(trial.ended is not None, stop is not None and told > stop)

    def book(self, trial: RunOutcome, y: float, belief: Belief | None, offer: Against | None, wider: float) -> None:
        """What a run of a suggestion cost, as it is known now; no belief, and no offer, before the first sample."""
        if belief is not None and belief.lacks_default:
            return  # there is nothing that it could cost more than
        objective, hindsight, ended = self._objective, self._family.hindsight, trial.ended
        free = objective.seen <= self._first_looks and not (hindsight and ended is not None)
        if belief is not None and offer is not None and self._ledger is not None and not free:
            if ended is not None:  # what it cost is known
                paid = float(objective.relative(ended - offer.level, offer.level))
            else:  # hindsight: the bill has all but what was ended
                paid = 0.0 if hindsight else cost(objective, offer, y, belief.noise, trial.failed)
            self._ledger.record(paid, times=trial.runs)
        if self.is_measured:
            at_default = self._at_default(trial.point)
            run = MeasuredRun(y if ended is None else ended, at_default, trial.failed, ended is not None)
            if belief is None or offer is None or (at_default and not belief.knows_default):
                self._measured.begin(objective, run)
            else:
                self._measured.learn(objective, run, offer, belief.noise / trial.runs, wider)

    def report(self, wider: float) -> Budget | None:
        """As it is now."""
        if self._ledger is None:
            return None
        bill = self._family.bill(self._objective.prices(MOST_PRICE))
        booked = self._ledger.report()
        if bill is not None:
            booked = self._ledger.report(bill.spent, bill.earned, wider * math.sqrt(bill.variance))
        return self._measured.added_to(booked) if self.is_measured else booked

    def merge(self, other: "Account") -> None:
        if self._ledger is not None and other._ledger is not None:
            self._ledger.merge(other._ledger)
            self._measured.merge(other._measured)

    def parts(self) -> Iterator[tuple[str, Stateful]]:
        yield "stops", self._stops
        if self._ledger is not None:
            yield "budget", self._ledger
            yield "measured", self._measured

    def _at_default(self, point: Array) -> bool:
        return bool(point.tolist() == self._default.tolist())

    def _bill(self, belief: Belief) -> Bill | None:
        if self._owed is None and self._family.hindsight:
            self._owed = self._family.bill(self._objective.prices(MOST_PRICE), belief)
        return self._owed
