"""LossBounds: losses as models see them, and what a few of them prove.

A value far beyond all others is very bad, or very good, but not without bound: what 1e9 milliseconds mean beside 100 is
that something went wrong. So it counts as ten times as far as what was seen (trusted_range.py); a new regime is taken in
full from its third sample on. No rule that holds for ever believes one value: two must show it.

symbol   shape    meaning
B, C     scalar   tuners; columns of losses, as of an Objective
"""

import math
from collections.abc import Mapping, Sequence

from rasp_tuner.core.numerics import LARGEST, Array
from rasp_tuner.engine.kernel.namespace import namespace
from rasp_tuner.engine.numbers import Tensor
from rasp_tuner.engine.trusted_range import KNOWN_FROM_SAMPLES, TrustedRange

TIMES = 10.0  # the level or the width of what was seen, whichever is more: a ruinous setting must still look ruinous
LOG_SLACK = math.log1p(TIMES)  # the same, of a factor
FIRST_SAMPLES = 5.0  # up to which one value proves as much as two: what is normal is not known yet


class LossBounds(TrustedRange):
    """Of as many tuners as there are zeros [B]; `logs` says which of the C columns are logarithms."""

    def __init__(self, logs: Sequence[bool], zeros: Tensor) -> None:
        super().__init__(len(logs), zeros)
        xp = namespace(zeros)
        self._logs = xp.asarray(list(logs), device=zeros.device)
        self._derive()

    def bounded(self, losses: Tensor) -> Tensor:
        """Losses [B, C] as models see them."""
        xp = namespace(losses)
        return xp.minimum(xp.maximum(losses, self.least), self.most)

    def observe(self, values: Tensor, told: Tensor) -> Tensor | None:
        """Take in losses [B, C] as they came."""
        new = super().observe(values, told)
        if new is not None or KNOWN_FROM_SAMPLES in self.seen:
            self._derive()
        return new

    def proven(self) -> Tensor:
        """[B, 2 C] upper ends that two values have reached, or one of the first few: of the columns, then turned."""
        xp, few = namespace(self.ends), (self.seen <= FIRST_SAMPLES)[:, None]
        first, second = self.beyond[:, 0], self.beyond[:, 1]
        return xp.where(few, xp.maximum(first, second), xp.minimum(first, second))

    def restate(self, factors: Tensor, shifts: Tensor) -> None:
        super().restate(factors, shifts)
        self._derive()

    def merge(self, other: TrustedRange) -> None:
        super().merge(other)
        self._derive()

    def restore(self, state: Mapping[str, Array]) -> None:
        super().restore(state)
        self._derive()

    def _derive(self) -> None:
        xp, low, high = namespace(self.ends), self.low, self.high
        size = TIMES * xp.maximum(high - low, xp.maximum(xp.abs(low), xp.abs(high)))
        slack = xp.where(self._logs, LOG_SLACK, size)
        known = (self.seen >= KNOWN_FROM_SAMPLES)[:, None] & (slack > 0.0)
        self.least = xp.where(known, low - slack, -LARGEST)  # [B, C]
        self.most = xp.where(known, high + slack, LARGEST)
