"""BudgetLedger: what suggestions have cost and gained against the default, and whether one more may be tried.

The contract, as of conservative bandits (arXiv 1611.06426, 2002.03221): the sum of losses stays within 1 + share of
what the default would have cost, plus a start-up allowance, at every step, with a confidence of 95%. The allowance is
the budget of a hundred steps; the first looks, one at every knob, are free.
All figures are in steps of the default's loss: a run 30% worse than the default costs 0.3. Where knobs matter by a few
percent only, the share is taken of those few percent: what has little to gain may spend little.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rasp_tuner.core.numerics import Array
from rasp_tuner.types import Budget

START_STEPS = 100  # whose budget may be spent in advance
CONFIDENCE_DEVIATIONS = 1.645  # 95%, one side
EARNED_DEVIATIONS = 1.0  # taken off a gain before it is booked
PRICE_DEVIATIONS = 0.5  # added to the expected price of a suggestion that is not surely better
MOST_PRICE = 3.0  # of one run, or its gain
WHOLE_STEPS = 5.0  # runs that speak for differences as large as the default's loss, until others are seen


@dataclass(slots=True)
class BudgetLedger:
    """What was spent and earned so far; `share` of the default's loss may be spent at every step."""

    share: float
    steps: int = 0
    spent: float = 0.0
    earned: float = 0.0
    variance: float = 0.0  # of what was spent
    moved: int = 0  # steps whose run was not the default
    squares: float = 0.0  # summed, of how far their losses lay from the default's

    @property
    def typical(self) -> float:
        """How far runs of other settings came out from the default, noise included: root mean square, at most 1."""
        return min(math.sqrt((WHOLE_STEPS + self.squares) / (WHOLE_STEPS + self.moved)), 1.0)

    def allows(self, price: float, deviation: float) -> bool:
        """Whether a suggestion of this expected price may be tried: it is surely a gain, or within the budget."""
        if price + CONFIDENCE_DEVIATIONS * deviation <= 0.0:
            return True
        return price + PRICE_DEVIATIONS * deviation <= self.left(self.steps + 1)

    def left(self, steps: int) -> float:
        """What may be spent by the end of so many steps, in the worst case that is likely."""
        owed = self.spent - self.earned + CONFIDENCE_DEVIATIONS * math.sqrt(self.variance)
        return self.share * self.typical * (START_STEPS + steps) - owed

    def record(self, price: float, deviation: float, seen: float | None) -> None:
        """One step, that cost `price` more than the default would have; negative if it gained.

        What a step costs is booked as expected: such errors cancel over many looks. Of a gain only what is sure is
        booked, for the same belief may be wrong at every step. `seen` is what was measured less what the default would
        have come to; None if the default ran.
        """
        self.steps += 1
        price, deviation = min(max(price, -MOST_PRICE), MOST_PRICE), min(deviation, MOST_PRICE)
        self.earned += max(-(price + EARNED_DEVIATIONS * deviation), 0.0)
        if price > 0.0:
            self.spent += price
            self.variance += deviation**2
        if seen is not None:
            self.moved += 1
            self.squares += min(abs(seen), 1.0) ** 2

    def report(self) -> Budget:
        return Budget(self.share, self.steps, self.spent, self.earned, self.left(self.steps))

    def state(self) -> dict[str, Array]:
        figures = [self.steps, self.spent, self.earned, self.variance, self.moved, self.squares]
        return {"ledger": np.array(figures, dtype=np.float64)}

    def restore(self, state: Mapping[str, Array]) -> None:
        steps, self.spent, self.earned, self.variance, *typical = state["ledger"].tolist()
        moved, self.squares = typical or (0.0, 0.0)
        self.steps, self.moved = int(steps), int(moved)
