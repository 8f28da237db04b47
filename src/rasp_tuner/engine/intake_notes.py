"""IntakeNotes: what stands between what B tuners are told and what they learn has to remember, beside its ranges."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rasp_tuner.core.numerics import LARGEST, Array
from rasp_tuner.core.state_checks import MOST_SAMPLES, Field, checked
from rasp_tuner.engine.trials import Sizes, Trials, trials_of
from rasp_tuner.engine.trusted_range import AGREE_WITHIN_SAMPLES

MOST_FIRST = 24  # trials kept: what fails counts for no metric
LONG_AGO = -AGREE_WITHIN_SAMPLES
FIELDS = {
    "open": Field(("B",), 0.0, 1.0, whole=True),
    "left_out_at": Field(("B",), LONG_AGO, MOST_SAMPLES, whole=True),
    "changed_at": Field(("B",), LONG_AGO, MOST_SAMPLES, whole=True),
    "kept": Field(("B",), 0.0, MOST_FIRST, whole=True),
    "first": Field(("B", MOST_FIRST, "W"), -LARGEST, LARGEST),
}


@dataclass
class IntakeNotes:
    """Of B tuners; every array is of float64."""

    open: Array  # [B] 1 while the first trials are kept
    left_out_at: Array  # [B] samples seen when a trial was last left out as false
    changed_at: Array  # [B] and when settings had not changed alike: it is the world that changes
    kept: Array  # [B] how many of the first trials are kept
    first: Array  # [B, MOST_FIRST, W + 1] those, as of Trials.rows_with_failed

    @classmethod
    def blank(cls, sizes: Sizes, tuners: int) -> "IntakeNotes":
        """Of tuners that know nothing."""
        far = np.full(tuners, LONG_AGO)
        first = np.zeros((tuners, MOST_FIRST, sizes.width + 1))
        return cls(np.ones(tuners), far, far.copy(), np.zeros(tuners), first)

    def first_trials(self, count: int, sizes: Sizes) -> list[Trials]:
        """The first of each tuner, the second, and so on; copies."""
        first = self.first.copy()
        return [trials_of(first[:, i], sizes) for i in range(count)]

    def close(self) -> None:
        """Keep no more of them."""
        self.open[...], self.kept[...], self.first[...] = 0.0, 0.0, 0.0

    def state(self) -> dict[str, Array]:
        return dict(vars(self))

    def restore(self, state: Mapping[str, Array]) -> None:
        sizes = {"B": len(self.open), "W": self.first.shape[2]}
        for name, array in checked(state, FIELDS, sizes).items():
            setattr(self, name, array)

    def one(self) -> dict[str, Array]:
        """Of one tuner, as its own snapshot has them."""
        notes = np.array([self.open[0], self.left_out_at[0], self.changed_at[0]])
        return {"first": self.first[0, : int(self.kept[0])], "notes": notes}

    def restore_one(self, state: Mapping[str, Array]) -> None:
        """Take back what `one` gave."""
        fields = {
            "first": Field(("n", self.first.shape[2]), -LARGEST, LARGEST),
            "notes": Field((3,), LONG_AGO, MOST_SAMPLES, whole=True),
        }
        found = checked(state, fields, {"n": range(MOST_FIRST + 1)})
        first = found["first"]
        self.first[0, : len(first)], self.first[0, len(first) :], self.kept[0] = first, 0.0, len(first)
        self.open[0], self.left_out_at[0], self.changed_at[0] = found["notes"].tolist()
