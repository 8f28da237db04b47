"""StepRecord: the latest steps of a tuner as rows of one array, so that they cost little to keep and to save.

column    meaning
0         number of the step: how many samples the tuner had learned before it
1         number of the suggestion; -1 if nobody asked
2         1 if the run failed, 2 if it was ended: its metrics are then at least so bad
3 ...     C metrics, 0 if it failed; d coordinates of what ran; d_c numbers of the context, or none if those are many

A step takes 8 (3 + C + d + d_c) bytes, in memory and in a snapshot. Contexts are kept as models see them: as a shield
made them, and texts as hashes.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from rasp_tuner.base.numerics import LARGEST, Array
from rasp_tuner.base.state_checks import FINITE, MOST_SAMPLES, Field, broken, checked

MOST_STEPS = 1000  # on record
LONGEST_CONTEXT = 32  # numbers; those of a longer one are not kept
FRESH_STEPS = 64  # that wait, as they came, until they are written into the array together: that is faster
NOT_ASKED = -1  # asked
WHOLE, FAILED, STOPPED = 0, 1, 2  # how a run ended

Fresh = tuple[int, int, int, list[float], Array, Array]


class StepRecord:
    """The latest `MOST_STEPS` rows [n, 3 + C + d + d_c]."""

    def __init__(self, metrics: Sequence[str], dim: int, context_dim: int) -> None:
        self._names = tuple(metrics)
        self._point = 3 + len(self._names)
        self._context = self._point + dim
        self.keeps_context = 0 < context_dim <= LONGEST_CONTEXT
        self._rows: Array = np.zeros((0, self._context + (context_dim if self.keeps_context else 0)))
        self._fresh: list[Fresh] = []

    def __len__(self) -> int:
        return min(len(self._rows) + len(self._fresh), MOST_STEPS)

    def add(
        self,
        step: int,
        asked: int,
        context: Array,
        point: Array,
        metrics: Mapping[str, float] | None,
        stopped: bool = False,
    ) -> None:
        """One more step: the metrics, which were checked, of the point [d] that ran; None if it failed."""
        end = FAILED if metrics is None else STOPPED if stopped else WHOLE
        values = [0.0] * len(self._names) if metrics is None else [float(metrics[name]) for name in self._names]
        self._fresh.append((step, asked, end, values, point, context))
        if len(self._fresh) >= FRESH_STEPS:
            self._write()

    def rows(self, latest: int | None = None) -> Array:
        """A copy of the rows, oldest first; of the latest so many only, if that is given."""
        self._write()
        return self._rows[0 if latest is None else max(len(self._rows) - latest, 0) :].copy()

    def parts(self, latest: int | None = None) -> tuple[Array, Array, Array, Array]:
        """What the rows hold: numbers and flags [n, 3], metrics [n, C], points [n, d], contexts [n, d_c or 0]."""
        rows = self.rows(latest)
        return rows[:, :3], rows[:, 3 : self._point], rows[:, self._point : self._context], rows[:, self._context :]

    def restore(self, state: Mapping[str, Array]) -> None:
        """Take back what `rows` gave, under that name."""
        dim, width = self._context - self._point, self._rows.shape[1]
        metrics, contexts = self._point - 3, width - self._context
        least = (0.0, float(NOT_ASKED), 0.0, *[-FINITE] * metrics, *[0.0] * dim, *[-LARGEST] * contexts)
        most = (MOST_SAMPLES, MOST_SAMPLES, float(STOPPED), *[FINITE] * metrics, *[1.0] * dim, *[LARGEST] * contexts)
        rows = checked(state, {"rows": Field(("n", width), least, most)}, {"n": range(MOST_STEPS + 1)})["rows"]
        if (rows[:, :3] % 1.0).any():
            raise broken(state, "rows", "begin with a step, a suggestion and a flag", rows[:, :3].tolist())
        self._rows, self._fresh = rows, []

    def _write(self) -> None:
        if not self._fresh:
            return
        written = np.empty((len(self._fresh), self._rows.shape[1]))
        steps, asked, ends, values, points, contexts = zip(*self._fresh, strict=True)
        written[:, 0], written[:, 1], written[:, 2] = steps, asked, ends
        written[:, 3 : self._point], written[:, self._point : self._context] = values, points
        if self.keeps_context:
            written[:, self._context :] = contexts
        self._rows = np.concatenate([self._rows, written])[-MOST_STEPS:]
        self._fresh = []
