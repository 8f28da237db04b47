"""IntakeNotes: what stands between what B tuners are told and what they learn has to remember, beside its ranges."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rasp_tuner.core.numerics import LARGEST, Array
from rasp_tuner.core.state_checks import MOST_SAMPLES, Field, checked
from rasp_tuner.engine.intake import LONG_AGO, MOST_FIRST, trial_width
from rasp_tuner.engine.kernel.state import Dims

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
    changed_at: Array  # [B] and when settings had not changed alike
    kept: Array  # [B] how many of the first trials are kept
    first: Array  # [B, MOST_FIRST, W + 1] those; the last number says whether one failed

    @classmethod
    def blank(cls, dims: Dims, tuners: int) -> "IntakeNotes":
        """Of tuners that know nothing."""
        width = trial_width(dims.knobs, dims.context, dims.columns) + 1
        far = np.full(tuners, LONG_AGO)
        return cls(np.ones(tuners), far, far.copy(), np.zeros(tuners), np.zeros((tuners, MOST_FIRST, width)))

    def state(self) -> dict[str, Array]:
        return dict(vars(self))

    def restore(self, state: Mapping[str, Array]) -> None:
        sizes = {"B": len(self.open), "W": self.first.shape[2]}
        for name, array in checked(state, FIELDS, sizes).items():
            setattr(self, name, array)
