"""LossBounds: losses as models see them, and what a few of them prove.

A value far beyond all others is very bad, or very good, but not without bound: what 1e9 milliseconds mean beside 100 is
that something went wrong. So it counts as ten times what was seen (trusted_range.py), or a thousand times in a situation
that was never met, for levels may differ by that much. A new level is taken in full from its third sample on. No rule
that holds for ever believes one value: two must show it.

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
NEW_TIMES = 1000.0  # the same in a new situation
GOOD_SHARE = 0.1  # of that, for what is better than all before: enough to be the best, and to be looked at again
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

    def bounded_if_new(self, losses: Tensor) -> Tensor:
        """The same in situations that were never met."""
        xp, (least, most) = namespace(losses), self._bounds(NEW_TIMES)
        return xp.minimum(xp.maximum(losses, least), most)

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
        self.least, self.most = self._bounds(TIMES)  # [B, C]

    def _bounds(self, times: float) -> tuple[Tensor, Tensor]:
        """The least and the most [B, C] that are believed, so many times beyond what was seen."""
        xp, low, high = namespace(self.ends), self.low, self.high
        size = xp.maximum(high - low, xp.maximum(xp.abs(low), xp.abs(high)))
        slack = xp.where(self._logs, math.log1p(times), times * size)
        known = (self.seen >= KNOWN_FROM_SAMPLES)[:, None] & (slack > 0.0)
        below = xp.where(self._logs, slack, GOOD_SHARE * slack)
        return xp.where(known, low - below, -LARGEST), xp.where(known, high + slack, LARGEST)
