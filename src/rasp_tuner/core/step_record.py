"""StepRecord: the latest steps of a tuner as rows of one array, so that they cost little to keep and to save.

column    meaning
0         number of the step: how many samples the tuner had learned before it
1         number of the suggestion; -1 if nobody asked
2         1 if the run failed
3 ...     C metrics, 0 if it failed; d coordinates of what ran; d_c numbers of the context, or none if those are many

A step takes 8 (3 + C + d + d_c) bytes, in memory and in a snapshot. Contexts are kept as models see them: as a shield
made them, and texts as hashes.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from rasp_tuner.core.numerics import Array

MOST_STEPS = 1000  # on record
LONGEST_CONTEXT = 32  # numbers; those of a longer one are not kept
FRESH_STEPS = 64  # that wait, as they came, until they are written into the array together: that is faster
NOBODY = -1  # asked

Fresh = tuple[int, int, bool, list[float], Array, Array]


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

    def add(self, step: int, asked: int, context: Array, point: Array, metrics: Mapping[str, float] | None) -> None:
        """One more step: the metrics, which were checked, of the point [d] that ran; None if it failed."""
        values = [0.0] * len(self._names) if metrics is None else [float(metrics[name]) for name in self._names]
        self._fresh.append((step, asked, metrics is None, values, point, context))
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

    def restore(self, rows: Array | None) -> None:
        """Take back what `rows` gave. None, as in earlier versions: nothing is on record of what was learned."""
        if rows is None:
            return
        if rows.ndim != 2 or rows.shape[1] != self._rows.shape[1] or len(rows) > MOST_STEPS:
            raise ValueError(f"the record of steps has another shape: {rows.shape}")
        self._rows, self._fresh = rows, []

    def _write(self) -> None:
        if not self._fresh:
            return
        written = np.empty((len(self._fresh), self._rows.shape[1]))
        steps, asked, failed, values, points, contexts = zip(*self._fresh, strict=True)
        written[:, 0], written[:, 1], written[:, 2] = steps, asked, failed
        written[:, 3 : self._point], written[:, self._point : self._context] = values, points
        if self.keeps_context:
            written[:, self._context :] = contexts
        self._rows = np.concatenate([self._rows, written])[-MOST_STEPS:]
        self._fresh = []
