"""Suggestion: what to run; Budget: what exploring has cost; Slots: situations in memory."""

from dataclasses import dataclass

from rasp_tuner.base.numerics import Array
from rasp_tuner.space import Params


@dataclass(frozen=True, slots=True)
class Suggestion:
    """What to run next, and the id to answer with."""

    id: str
    params: Params
    stop: float | None = None  # value of the metric from which on the run should be ended; None: let it run


@dataclass(frozen=True, slots=True)
class Budget:
    """What own suggestions have cost and gained against the default, in steps of the default's loss.

    A run 30% worse than the default would have been spends 0.3; one that is 30% better earns 0.3.
    """

    share: float  # of the default's loss that may be spent at every step
    steps: int  # suggestions answered so far
    spent: float
    earned: float
    left: float  # what may still be spent
    allowed: float | None = None  # in all so far: the start-up allowance, and the share of every step
    measured: float | None = None  # the bill as runs of the default show it; None with several metrics
    error: float | None = None  # of that: one deviation

    @property
    def contract(self) -> str:
        """What the rule aims to keep at every step, where runs are ended at their stops; no proof (docs/STOPS.md)."""
        return (
            f"Own runs cost at most {self.share:.1%} more than the default would have, plus a start-up allowance, one"
            " stake, and the error to which the default's own cost was measured."
        )

    def __str__(self) -> str:
        text = (
            f"Exploring may cost {self.share:.1%} more than the default. So far it lost"
            f" {_runs(self.spent)} runs of the default and won {_runs(self.earned)}, as far as is known today; a single"
            f" run counts for two at most. It may still lose {_runs(max(self.left, 0.0))}."
        )
        if self.allowed is None or self.measured is None or self.error is None:
            return text
        size = f"{_runs(abs(self.measured))} +- {_runs(self.error)}"
        bill = f"won {size}" if self.measured < 0.0 else f"lost {size}, of {_runs(self.allowed)} allowed"
        return f"{text} Measured against runs of the default it {bill}."


def _runs(count: float) -> str:
    return f"{count:.3g}" if count >= 0.005 else "0"


@dataclass(frozen=True, slots=True)
class Slots:
    """Situations in memory."""

    contexts: Array  # [N, d_c]
    visits: Array  # [N] samples in each, as far as memory counts them
    last: Array  # [N] how many samples ago each was met; NaN where memory does not say
