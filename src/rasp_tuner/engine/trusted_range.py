"""TrustedRange: between which values each number of a stream lies, as far as three of its values say so.

One value proves nothing: a counter was reset, seconds were told for milliseconds, a sensor said 65535. So each end of
the range is one that three values reached or passed within fifty samples. One absurd value never moves it, nor do
several that are rare; a new regime moves it with its third sample.

symbol   shape         meaning
B, n     scalar        tuners; numbers in a sample
ends     [B, 2 n]      the upper ends of the numbers, then of the same with the other sign: less their lower ends
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.core.numerics import LARGEST, Array
from rasp_tuner.core.state_checks import MOST_SAMPLES, Field, checked

AGREE_WITHIN_SAMPLES = 50.0  # values beyond an end count together if they came within so many
KNOWN_FROM_SAMPLES = 12.0  # on: the third of fewer values from either end leaves out half of what is normal
NOTHING = -4.0 * LARGEST  # below every value: no end yet

FIELDS = {
    "seen": Field(("tuners",), 0, MOST_SAMPLES, whole=True),
    "ends": Field(("tuners", "sides"), NOTHING, -NOTHING),
    "beyond": Field(("tuners", 2, "sides"), NOTHING, -NOTHING),
    "since": Field(("tuners", 2, "sides"), 0, MOST_SAMPLES, whole=True),
}

Flags = NDArray[np.bool_]


class TrustedRange:
    """Of n numbers of each of B tuners."""

    def __init__(self, n: int, tuners: int) -> None:
        self._n = n
        self.seen = np.zeros(tuners)  # [B] samples
        self.ends = np.full((tuners, 2 * n), NOTHING)
        self.beyond = np.full((tuners, 2, 2 * n), NOTHING)  # values that passed an end; the end where there is none
        self.since = np.zeros((tuners, 2, 2 * n))  # how many samples came before them
        self.known = self._known()  # [B, n] of which numbers both ends are known, and differ

    @property
    def low(self) -> Array:
        """[B, n]"""
        return -self.ends[:, self._n :]

    @property
    def high(self) -> Array:
        """[B, n]"""
        return self.ends[:, : self._n]

    def observe(self, values: Array, told: Flags) -> Flags | None:
        """Take in values [B, n] of the tuners that were told [B].

        Which of the numbers [B, n] are known from now on; None if the range is as it was.
        """
        now, before = self.seen[:, None, None], self.known
        sides = np.concatenate([values, -values], axis=1)
        further = told[:, None] & (sides > self.ends)
        moved = further.any()
        self.seen = self.seen + told
        if moved:
            beyond = np.where(self.since < now - AGREE_WITHIN_SAMPLES, self.ends[:, None], self.beyond)
            first, second = beyond[:, 0], beyond[:, 1]
            least = np.minimum(first, second)
            instead = np.stack([first <= second, first > second], axis=1) & (further & (sides > least))[:, None]
            self.ends = np.where(further, np.minimum(least, sides), self.ends)
            self.beyond = np.where(instead, sides[:, None], beyond)
            self.since = np.where(instead, now, self.since)
        self.known = self._known()
        new = self.known & ~before
        return new if moved or new.any() else None

    def restate(self, factors: Array, shifts: Array) -> None:
        """All values so far become values * factors + shifts, [B, n] each; factors are above zero."""
        factors, shifts = np.concatenate([factors, factors], axis=1), np.concatenate([shifts, -shifts], axis=1)
        ends, beyond = factors * self.ends + shifts, factors[:, None] * self.beyond + shifts[:, None]
        self.ends = np.where(self.ends > NOTHING, np.clip(ends, -LARGEST, LARGEST), NOTHING)
        self.beyond = np.where(self.beyond > NOTHING, np.clip(beyond, -LARGEST, LARGEST), NOTHING)

    def merge(self, other: "TrustedRange") -> None:
        """Trust what either does; what came close together in another stream says nothing about this one."""
        self.seen, self.ends = self.seen + other.seen, np.maximum(self.ends, other.ends)
        self.beyond, self.known = np.maximum(self.beyond, self.ends[:, None]), self._known()

    def state(self) -> dict[str, Array]:
        return {name: getattr(self, name) for name in FIELDS}

    def restore(self, state: Mapping[str, Array]) -> None:
        sizes = {"tuners": len(self.seen), "sides": 2 * self._n}
        for name, array in checked(state, FIELDS, sizes).items():
            setattr(self, name, array)
        self.known = self._known()

    def _known(self) -> Flags:
        return (self.seen >= KNOWN_FROM_SAMPLES)[:, None] & (self.high > self.low)
