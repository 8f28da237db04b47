"""Trials: one of each of n tuners, side by side; and as rows of numbers, in which they are kept.

symbol   meaning
n        tuners
W        numbers in the row of a trial: point, context, losses, what was asked for, and whether anything was
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from rasp_tuner.core.numerics import Array
from rasp_tuner.core.state_checks import broken
from rasp_tuner.engine.family import Trial
from rasp_tuner.engine.kernel.masks import Flags
from rasp_tuner.engine.kernel.state import Places


class Sizes(NamedTuple):
    """Of a trial."""

    knobs: int
    context: int
    columns: int  # of losses

    @property
    def width(self) -> int:
        """W."""
        return 2 * self.knobs + self.context + self.columns + 1


@dataclass(frozen=True)
class Trials:
    """Points that ran in contexts, and what came of them."""

    points: Array  # [n, d]
    contexts: Array  # [n, c]
    losses: Array  # [n, C]; of failures the worst seen
    failed: Flags  # [n]
    wanted: Array  # [n, d] the suggestions that they answer; the points where they answer none
    asked: Flags  # [n] whether they do, so that a budget counts them

    @classmethod
    def of(cls, trial: Trial) -> "Trials":
        """That of one tuner."""
        point, context, losses, failed, asked = trial
        wanted = point if asked is None else asked
        return cls(
            point[None], context[None], losses[None], np.array([failed]), wanted[None], np.array([asked is not None])
        )

    def one(self) -> Trial:
        """What `of` was given."""
        asked = self.wanted[0] if self.asked[0] else None
        return Trial(self.points[0], self.contexts[0], self.losses[0], bool(self.failed[0]), asked)

    def some(self, places: Places | Flags) -> "Trials":
        return Trials(*(array[places] for array in vars(self).values()))

    def with_losses(self, losses: Array) -> "Trials":
        return replace(self, losses=losses)

    def rows(self) -> Array:
        """[n, W]"""
        return np.concatenate([self.points, self.contexts, self.losses, self.wanted, self.asked[:, None]], axis=1)

    def rows_with_failed(self) -> Array:
        """[n, W + 1] the last number says whether one failed."""
        return np.concatenate([self.rows(), self.failed[:, None]], axis=1)


def trials_of(rows: Array, sizes: Sizes) -> Trials:
    """What `Trials.rows` gave, none of which failed, or `Trials.rows_with_failed`; views."""
    d, c, columns = sizes
    points, contexts, losses, wanted, more = np.split(rows, np.cumsum([d, c, columns, d]), axis=1)
    failed = more[:, 1] > 0.0 if more.shape[1] > 1 else np.zeros(len(rows), dtype=bool)
    return Trials(points, contexts, losses, failed, wanted, more[:, 0] > 0.0)


def check_trials(state: Mapping[str, Array], name: str, rows: Array, knobs: int) -> None:
    """Nothing, if rows of trials begin with points of the unit box; else a SnapshotError."""
    points = rows[..., :knobs]
    if not ((points >= 0.0) & (points <= 1.0)).all():
        raise broken(state, name, "begin with points of the unit box", points.tolist())
