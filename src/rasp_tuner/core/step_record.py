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
FIRST_ROWS = 32  # allocated at first; doubled when full
NOBODY = -1  # asked


class StepRecord:
    """A ring of rows [n, 3 + C + d + d_c]; the oldest are written over once there are `MOST_STEPS`."""

    def __init__(self, metrics: Sequence[str], dim: int, context_dim: int) -> None:
        self._names = tuple(metrics)
        self._point = 3 + len(self._names)
        self._context = self._point + dim
        self.keeps_context = 0 < context_dim <= LONGEST_CONTEXT
        self._rows = np.zeros((FIRST_ROWS, self._context + (context_dim if self.keeps_context else 0)))
        self._held = 0

    def __len__(self) -> int:
        return min(self._held, MOST_STEPS)

    def add(self, step: int, asked: int, context: Array, point: Array, metrics: Mapping[str, float] | None) -> None:
        """One more step: the metrics, which were checked, of the point [d] that ran; None if it failed."""
        if self._held == len(self._rows) < MOST_STEPS:
            more = min(len(self._rows), MOST_STEPS - len(self._rows))
            self._rows = np.concatenate([self._rows, np.zeros((more, self._rows.shape[1]))])
        row = self._rows[self._held % MOST_STEPS]
        values = [0.0] * len(self._names) if metrics is None else [float(metrics[name]) for name in self._names]
        row[: self._point] = [step, asked, metrics is None, *values]
        row[self._point : self._context] = point
        if self.keeps_context:
            row[self._context :] = context
        self._held += 1

    def rows(self, latest: int | None = None) -> Array:
        """A copy of the rows, oldest first; of the latest so many only, if that is given."""
        count = len(self) if latest is None else min(latest, len(self))
        at = np.arange(self._held - count, self._held) % MOST_STEPS
        kept: Array = self._rows[at]
        return kept

    def parts(self) -> tuple[Array, Array, Array, Array]:
        """What the rows hold: numbers and flags [n, 3], metrics [n, C], points [n, d], contexts [n, d_c or 0]."""
        rows = self.rows()
        return rows[:, :3], rows[:, 3 : self._point], rows[:, self._point : self._context], rows[:, self._context :]

    def restore(self, rows: Array | None) -> None:
        """Take back what `rows` gave. None, as in earlier versions: nothing is on record of what was learned."""
        if rows is None:
            return
        if rows.ndim != 2 or rows.shape[1] != self._rows.shape[1] or len(rows) > MOST_STEPS:
            raise ValueError(f"the record of steps has another shape: {rows.shape}")
        size = len(self._rows)
        while size < len(rows):
            size = min(2 * size, MOST_STEPS)
        self._rows = np.zeros((size, rows.shape[1]))
        self._rows[: len(rows)] = rows
        self._held = len(rows)
