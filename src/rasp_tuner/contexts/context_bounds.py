"""ContextBounds: contexts as scales are learned from them: no dimension lies far outside of what it was seen to be.

A model divides each dimension by how much it varies, over all time. One value of 1000 among zeros and ones would make
all others look alike. So what lies more than a width outside of the trusted range (trusted_range.py) counts as if it
lay there when scales are learned. The sample itself is remembered where it was: unlike all others. Where a dimension
was constant so far, or there are few samples, no width is known and all counts as it came; once it is known, models
mend their scales (`Family.bound_contexts`).

symbol   shape    meaning
B, c     scalar   tuners; context dimensions
"""

import numpy as np

from rasp_tuner.base.numerics import LARGEST, Array
from rasp_tuner.base.trusted_range import Flags, TrustedRange


class ContextBounds(TrustedRange):
    """Of c dimensions of each of B tuners."""

    def clipped(self, contexts: Array) -> Array:
        """Contexts [n, c] of the one tuner within the bounds."""
        return np.clip(contexts, self.least[0], self.most[0])

    def outside(self, contexts: Array) -> Flags:
        """[B] whether contexts [B, c] lie outside of the bounds, in a dimension at least."""
        outside: Flags = np.any((contexts < self.least) | (contexts > self.most), axis=1)
        return outside

    def new(self, contexts: Array) -> Flags:
        """[B] the same, and outside of the one value of a dimension that was constant."""
        width = self.high - self.low
        new: Flags = np.any((contexts > self.high + width) | (contexts < self.low - width), axis=1)
        return new

    def _derive(self) -> None:
        super()._derive()
        slack = self.high - self.low  # some new values are no mistakes
        self.least = np.where(self.known, self.low - slack, -LARGEST)  # [B, c]
        self.most = np.where(self.known, self.high + slack, LARGEST)
