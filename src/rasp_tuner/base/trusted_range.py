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

from rasp_tuner.base.common_constants import FADING_SAMPLES
from rasp_tuner.base.numerics import LARGEST, Array
from rasp_tuner.base.state_checks import MOST_SAMPLES, Field, checked

KNOWN_FROM_SAMPLES = 12.0  # on: the third of fewer values from either end leaves out half of what is normal
NOTHING = -4.0 * LARGEST  # below every value: no end yet
SHORT = 32  # numbers, up to which one look at each costs less than NumPy

FIELDS = {
    "seen": Field(("tuners",), 0, MOST_SAMPLES, whole=True),
    "ends": Field(("tuners", "sides"), NOTHING, -NOTHING),
    "beyond": Field(("tuners", 2, "sides"), NOTHING, -NOTHING),
    "since": Field(("tuners", 2, "sides"), 0, MOST_SAMPLES, whole=True),
}

Flags = NDArray[np.bool_]
Places = NDArray[np.intp]


class TrustedRange:
    """Of n numbers of each of B tuners."""

    def __init__(self, n: int, tuners: int) -> None:
        self._n = n
        self.seen = np.zeros(tuners)  # [B] samples
        self.ends = np.full((tuners, 2 * n), NOTHING)
        self.beyond = np.full((tuners, 2, 2 * n), NOTHING)  # values that passed an end; the end where there is none
        self.since = np.zeros((tuners, 2, 2 * n))  # how many samples came before them
        self._derive()

    def usual(self, values: Array) -> bool:
        """Whether values [n] of the one tuner lie within ranges that are known: they are taken in, and move nothing.

        For n up to SHORT.
        """
        if self.seen[0] <= KNOWN_FROM_SAMPLES:
            return False
        for value, low, high in zip(values.tolist(), *self._one, strict=True):
            if not low <= value <= high:
                return False
        self.seen[0] += 1.0
        return True

    def observe(self, values: Array, told: Flags) -> Flags | None:
        """Take in values [B, n] of the tuners that were told [B].

        Which of the numbers [B, n] are known from now on; None if the range is as it was.
        """
        sides = np.concatenate([values, -values], axis=1)
        rows, places = np.nonzero(told[:, None] & (sides > self.ends))
        counted = told & (self.seen == KNOWN_FROM_SAMPLES - 1.0)
        moved = len(rows) > 0 and self._passed(rows, places, sides[rows, places])
        self.seen = self.seen + told
        if not moved and not counted.any():
            return None
        before = self.known
        self._derive()
        return self.known & ~before

    def _passed(self, rows: Places, places: Places, values: Array) -> bool:
        """Take in values [h] that passed ends; whether they moved any: the third one does, and becomes the end."""
        ends, now = self.ends[rows, places], self.seen[rows]
        late = self.since[rows, :, places] < (now - FADING_SAMPLES)[:, None]
        beyond = np.where(late, ends[:, None], self.beyond[rows, :, places])  # [h, 2]
        least = beyond.argmin(axis=1)
        lower = beyond[np.arange(len(rows)), least]
        higher = values > lower
        beyond[higher, least[higher]] = values[higher]
        self.since[rows[higher], least[higher], places[higher]] = now[higher]
        self.beyond[rows, :, places] = beyond
        self.ends[rows, places] = np.minimum(lower, values)
        return bool((self.ends[rows, places] > ends).any())

    def restate(self, factors: Array, shifts: Array) -> None:
        """All values so far become values * factors + shifts, [B, n] each; factors are above zero."""
        factors, shifts = np.concatenate([factors, factors], axis=1), np.concatenate([shifts, -shifts], axis=1)
        ends, beyond = factors * self.ends + shifts, factors[:, None] * self.beyond + shifts[:, None]
        self.ends = np.where(self.ends > NOTHING, np.clip(ends, -LARGEST, LARGEST), NOTHING)
        self.beyond = np.where(self.beyond > NOTHING, np.clip(beyond, -LARGEST, LARGEST), NOTHING)
        self._derive()

    def merge(self, other: "TrustedRange") -> None:
        """Trust what either does; what came close together in another stream says nothing about this one."""
        self.seen, self.ends = self.seen + other.seen, np.maximum(self.ends, other.ends)
        self.beyond = np.maximum(self.beyond, self.ends[:, None])
        self._derive()

    def state(self) -> dict[str, Array]:
        return {name: getattr(self, name) for name in FIELDS}

    def restore(self, state: Mapping[str, Array]) -> None:
        sizes = {"tuners": len(self.seen), "sides": 2 * self._n}
        for name, array in checked(state, FIELDS, sizes).items():
            setattr(self, name, array)
        self._derive()

    def _derive(self) -> None:
        """What follows from the ends, whenever they have moved."""
        self.low, self.high = -self.ends[:, self._n :], self.ends[:, : self._n].copy()  # [B, n]
        if len(self.seen) == 1 and self._n <= SHORT:
            self._one = self.low[0].tolist(), self.high[0].tolist()
        self.known = (self.seen >= KNOWN_FROM_SAMPLES)[:, None] & (
            self.high > self.low
        )  # [B, n] both ends, and they differ
