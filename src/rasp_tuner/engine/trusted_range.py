"""TrustedRange: between which values each number of a stream lies, as far as three of its values say so.

One value proves nothing: a counter was reset, seconds were told for milliseconds, a sensor said 65535. So each end of
the range is one that three values reached or passed within fifty samples. One absurd value never moves it, nor do
several that are rare; a new regime moves it with its third sample.

symbol   shape         meaning
B, n     scalar        tuners; numbers in a sample
ends     [B, 2 n]      the upper ends of the numbers, then of the same with the other sign: less their lower ends
"""

from collections.abc import Mapping

from rasp_tuner.core.numerics import LARGEST, Array
from rasp_tuner.core.state_checks import MOST_SAMPLES, Field, checked
from rasp_tuner.engine.kernel.namespace import namespace
from rasp_tuner.engine.numbers import Tensor

AGREE_WITHIN_SAMPLES = 50.0  # values beyond an end count together if they came within so many
KNOWN_FROM_SAMPLES = 12.0  # on: the third of fewer values from either end leaves out half of what is normal
NOTHING = -4.0 * LARGEST  # below every value: no end yet

FIELDS = {
    "seen": Field(("tuners",), 0, MOST_SAMPLES, whole=True),
    "ends": Field(("tuners", "sides"), NOTHING, -NOTHING),
    "beyond": Field(("tuners", 2, "sides"), NOTHING, -NOTHING),
    "since": Field(("tuners", 2, "sides"), 0, MOST_SAMPLES, whole=True),
}


class TrustedRange:
    """Of n numbers of as many tuners as there are zeros [B], in the kind of array and on the device to be used."""

    def __init__(self, n: int, zeros: Tensor) -> None:
        xp = namespace(zeros)
        self._n, self.seen = n, zeros + 0.0  # [B] samples
        self.ends: Tensor = xp.full((len(zeros), 2 * n), NOTHING, dtype=zeros.dtype, device=zeros.device)
        self.beyond: Tensor = xp.stack([self.ends, self.ends], axis=1)  # [B, 2, 2 n] values that passed the ends
        self.since: Tensor = xp.zeros_like(self.beyond)  # when they came; where there is none, `beyond` is the end
        self.known: Tensor = self._known()  # [B, n] of which numbers both ends are known, and differ

    def observe(self, values: Tensor, told: Tensor) -> Tensor | None:
        """Take in values [B, n] of the tuners that were told [B].

        Which of the numbers [B, n] are known from now on; None if nothing has changed.
        """
        xp, now = namespace(values), self.seen[:, None, None]
        sides = xp.concat([values, -values], axis=1)
        further = told[:, None] & (sides > self.ends)
        moved, before = xp.any(further), self.known
        self.seen = self.seen + told
        if moved:
            beyond = xp.where(self.since < now - AGREE_WITHIN_SAMPLES, self.ends[:, None], self.beyond)
            first, second = beyond[:, 0], beyond[:, 1]
            least = xp.minimum(first, second)
            instead = xp.stack([first <= second, first > second], axis=1) & (further & (sides > least))[:, None]
            self.ends = xp.where(further, xp.minimum(least, sides), self.ends)
            self.beyond = xp.where(instead, sides[:, None], beyond)
            self.since = xp.where(instead, now, self.since)
        known = self._known()
        if not moved and xp.all(known == before):
            return None
        self.known = known
        return known & ~before

    @property
    def low(self) -> Tensor:
        """[B, n]"""
        return -self.ends[:, self._n :]

    @property
    def high(self) -> Tensor:
        """[B, n]"""
        return self.ends[:, : self._n]

    def restate(self, factors: Tensor, shifts: Tensor) -> None:
        """All values so far become values * factors + shifts, [B, n] each; factors are above zero."""
        xp = namespace(self.ends)
        factors, shifts = xp.concat([factors, factors], axis=1), xp.concat([shifts, -shifts], axis=1)
        ends, beyond = factors * self.ends + shifts, factors[:, None] * self.beyond + shifts[:, None]
        self.ends = xp.where(self.ends > NOTHING, ends, NOTHING)
        self.beyond = xp.where(self.beyond > NOTHING, beyond, NOTHING)

    def merge(self, other: "TrustedRange") -> None:
        """Trust what either does; what came close together in another stream says nothing about this one."""
        xp = namespace(self.ends)
        self.seen, self.ends = self.seen + other.seen, xp.maximum(self.ends, other.ends)
        self.beyond, self.known = xp.maximum(self.beyond, self.ends[:, None]), self._known()

    def state(self) -> dict[str, Tensor]:
        return {name: getattr(self, name) for name in FIELDS}

    def restore(self, state: Mapping[str, Array]) -> None:
        sizes = {"tuners": len(self.seen), "sides": 2 * self._n}
        for name, array in checked(state, FIELDS, sizes).items():
            setattr(self, name, array)
        self.known = self._known()

    def _known(self) -> Tensor:
        return (self.seen >= KNOWN_FROM_SAMPLES)[:, None] & (self.high > self.low)
