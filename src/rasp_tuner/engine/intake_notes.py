"""IntakeNotes: what stands between what B tuners are told and what they learn has to remember, beside its ranges."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from rasp_tuner.base.common_constants import FADING_SAMPLES
from rasp_tuner.base.numerics import Array
from rasp_tuner.base.state_checks import MOST_SAMPLES, Field, checked, fields_of
from rasp_tuner.engine.kernel.state import Dims
from rasp_tuner.engine.trials import Trials, rows_field, trials_of

PUT_ASIDE = "put aside: it is far from what was expected, and the next runs show whether the metric has changed"
SAYS_NOTHING = "left out: a first value of 0 or less, where all were above it, may be false"

MOST_FIRST = 24  # trials kept: what fails counts for no metric
LONG_AGO = -FADING_SAMPLES
_WHEN = Field(("B",), LONG_AGO, MOST_SAMPLES, whole=True)


@dataclass
class IntakeNotes:
    """Of B tuners; every array is of float64."""

    dims: Dims
    open: Annotated[Array, Field(("B",), 0.0, 1.0, whole=True)]  # 1 while the first trials are kept
    left_out_at: Annotated[Array, _WHEN]  # samples seen when a trial was last left out as false
    changed_at: Annotated[Array, _WHEN]  # and when settings had not changed alike: it is the world that changes
    kept: Annotated[Array, Field(("B",), 0.0, MOST_FIRST, whole=True)]  # how many of the first trials are kept
    first: Array  # [B, MOST_FIRST, W] those, as of Trials.rows

    @classmethod
    def blank(cls, dims: Dims, tuners: int) -> "IntakeNotes":
        """Of tuners that know nothing."""
        far, field = np.full(tuners, LONG_AGO), rows_field(dims)
        first = np.zeros((tuners, MOST_FIRST, *map(int, field.shape)))
        return cls(dims, np.ones(tuners), far, far.copy(), np.zeros(tuners), first)

    def first_trials(self) -> list[Trials]:
        """The first of each tuner, the second, and so on; copies."""
        first = self.first[:, : self._most].copy()
        return [trials_of(first[:, i], self.dims) for i in range(self._most)]

    @property
    def _most(self) -> int:
        """Kept of any tuner."""
        return int(self.kept.max(initial=0.0))

    def close(self) -> None:
        """Keep no more of them."""
        self.open[...], self.kept[...], self.first[...] = 0.0, 0.0, 0.0

    def state(self) -> dict[str, Array]:
        return {**{name: getattr(self, name) for name in FIELDS}, "first": self.first[:, : self._most]}

    def restore(self, state: Mapping[str, Array]) -> None:
        fields = FIELDS | {"first": rows_field(self.dims, "B", "kept")}
        found = checked(state, fields, {"B": len(self.open), "kept": range(MOST_FIRST + 1)})
        first = found.pop("first")
        self.first[:, : first.shape[1]], self.first[:, first.shape[1] :] = first, 0.0
        for name, array in found.items():
            setattr(self, name, array)


FIELDS = fields_of(IntakeNotes)
