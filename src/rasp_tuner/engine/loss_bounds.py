"""LossBounds: losses as models see them, and what a few of them prove.

A value far beyond all others is very bad, or very good, but not without bound: what 1e9 milliseconds mean beside 100 is
that something went wrong. So it counts as a thousand times what was seen (trusted_range.py): settings may be ruinous,
and levels of situations may differ by that much. A new level is taken in full from its third sample on.
No rule that holds for ever believes one value: two must show it.

symbol   shape    meaning
B, C     scalar   tuners; columns of losses, as of an Objective
"""

import math
from collections.abc import Sequence

import numpy as np

from rasp_tuner.base.common_constants import NORMAL_FROM_SAMPLES
from rasp_tuner.base.numerics import LARGEST, Array
from rasp_tuner.base.trusted_range import KNOWN_FROM_SAMPLES, TrustedRange

TIMES = 1000.0  # the level or the width of what was seen, whichever is more: settings may be ruinous, levels may differ
GOOD_SHARE = 0.1  # of that, for what is better than all before: enough to be the best, and to be looked at again


class LossBounds(TrustedRange):
    """Of each of B tuners; `logs` says which of the C columns are logarithms."""

    def __init__(self, logs: Sequence[bool], tuners: int) -> None:
        self._logs = tuple(logs)
        super().__init__(len(logs), tuners)

    def bounded(self, losses: Array) -> Array:
        """Losses [B, C] as models see them."""
        return np.minimum(np.maximum(losses, self.least), self.most)

    def proven(self) -> Array:
        """[B, 2 C] upper ends that two values have reached, or one of the first few: of the columns, then turned."""
        first, second = self.beyond[:, 0], self.beyond[:, 1]
        few = (self.seen <= NORMAL_FROM_SAMPLES)[:, None]
        proven: Array = np.where(few, np.maximum(first, second), np.minimum(first, second))
        return proven

    def _derive(self) -> None:
        super()._derive()
        self.least, self.most = self._bounds(TIMES)  # [B, C]

    def _bounds(self, times: float) -> tuple[Array, Array]:
        """The least and the most [B, C] that are believed, so many times beyond what was seen."""
        low, high, logs = self.low, self.high, np.array(self._logs)
        size = np.maximum(high - low, np.maximum(np.abs(low), np.abs(high)))
        slack = np.where(logs, math.log1p(times), times * size)
        below = np.where(logs, slack, GOOD_SHARE * slack)
        known = (self.seen >= KNOWN_FROM_SAMPLES)[:, None] & (slack > 0.0)
        return np.where(known, low - below, -LARGEST), np.where(known, high + slack, LARGEST)
