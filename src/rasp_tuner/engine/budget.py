"""BudgetLedger: what suggestions have cost and gained against the default, and whether one more may be tried.

The contract, as of conservative bandits (arXiv 1611.06426, 2002.03221): the sum of losses stays within 1 + share of
what the default would have cost, plus a start-up allowance, as far as the model can tell. The allowance is the budget
of START_STEPS steps. The first looks, as many as there are knobs and one, are not refused. A family that judges in
hindsight has them on its bill, and all other steps; then the ledger counts steps. Of the others it books all but them.
All figures are in steps of the default's loss: a run 30% worse than the default costs 0.3. One run books MOST_PRICE at
most: a single ruinous look does not end all exploring.
All figures are numbers (scalar_or_batch.py): floats of one tuner, or arrays [B].
"""

from collections.abc import Mapping
from dataclasses import dataclass

from rasp_tuner.base.numerics import Array
from rasp_tuner.base.state_checks import MOST_SAMPLES, Field
from rasp_tuner.engine.scalar_or_batch import Condition, Number, chosen, numbers_of, restored, saved
from rasp_tuner.types import Budget

START_STEPS = 300  # whose budget may be spent in advance, since most looks are made early
MOST_OF_LEFT = 0.5  # of what is left: that one run may stake, and that the error of a bill may leave open
MOST_PRICE = 2.0  # of one run, or its gain

FIELDS = {
    "steps": Field((), 0.0, MOST_SAMPLES, whole=True),
    "spent": Field((), 0.0, MOST_PRICE * MOST_SAMPLES),
    "earned": Field((), 0.0, MOST_PRICE * MOST_SAMPLES),
}


@dataclass(slots=True)
class BudgetLedger:
    """What was spent and earned so far; `share` of the default's loss may be spent at every step."""

    share: float
    steps: Number = 0
    spent: Number = 0.0
    earned: Number = 0.0

    @classmethod
    def of_many(cls, share: float, zero: Number) -> "BudgetLedger":
        """Of as many tuners as there are zeros [B]."""
        return cls(share, zero, zero, zero)

    def allows(self, price: Number, deviation: Number, owed: Number = 0.0) -> Condition:
        """Whether a suggestion of this expected price may be tried: it lowers the bill, or the budget is not spent.

        `deviation`: what it adds to that of the whole bill. `owed`: what memory says own steps cost, with deviations.
        """
        left = self.left(self.steps + 1) - owed
        return price + deviation <= numbers_of(left).clip(left, 0.0, None)

    def left(self, steps: Number) -> Number:
        """What may be spent by the end of so many steps."""
        return self.share * (START_STEPS + steps) - (self.spent - self.earned)

    def record(self, price: Number, told: Condition = True, times: int = 1) -> None:
        """One step, that is expected to have cost `price` more than the default; negative if it gained.

        Errors of single steps cancel over many. Tuners that were not told book nothing. `times`: so many such steps.
        """
        n = numbers_of(price)
        price = n.clip(price, -MOST_PRICE, MOST_PRICE)
        self.steps = chosen(told, self.steps + times, self.steps)
        self.spent = chosen(told, self.spent + times * n.clip(price, 0.0, None), self.spent)
        self.earned = chosen(told, self.earned + times * n.clip(-price, 0.0, None), self.earned)

    def merge(self, other: "BudgetLedger") -> None:
        """Take in what another one booked; the start-up allowance stays that of one."""
        for name in FIELDS:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def report(self, spent: float = 0.0, earned: float = 0.0, deviation: float = 0.0) -> Budget:
        """Of one tuner; with what memory says own steps cost and gained."""
        left = self.left(self.steps) - (spent - earned + deviation)
        return Budget(self.share, self.steps, self.spent + spent, self.earned + earned, left)

    def state(self) -> dict[str, Array]:
        return {name: saved([getattr(self, name)])[0, ...] for name in FIELDS}

    def restore(self, state: Mapping[str, Array]) -> None:
        read = restored(state, FIELDS, self.spent)
        for name, (value,) in read.items():
            whole = FIELDS[name].whole and isinstance(value, float)
            setattr(self, name, int(value) if whole else value)
