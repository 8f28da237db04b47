"""Trials: one of each of n tuners, side by side; and as rows of numbers, in which they are kept.

symbol   meaning
n        tuners
W        numbers in the row of a trial: point, context, losses, what was asked for; if anything was, and if it failed
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from rasp_tuner.base.numerics import LARGEST, Array
from rasp_tuner.base.state_checks import Field
from rasp_tuner.engine.family import RunOutcome
from rasp_tuner.engine.kernel.masks import Flags
from rasp_tuner.engine.kernel.state import Dims, Places
from rasp_tuner.optimizer.optimizer import Asked


@dataclass(frozen=True)
class Trials:
    """Points that ran in contexts, and what came of them."""

    points: Array  # [n, d]
    contexts: Array  # [n, c]
    losses: Array  # [n, C]; of failures twice the default's
    failed: Flags  # [n]
    wanted: Array  # [n, d] the suggestions that they answer; the points where they answer none
    asked: Flags  # [n] whether they do, so that a budget counts them
    stops: Array  # [n] the costs from which on they should have been ended; infinite where there is none
    ended: Array  # [n] y at which they were ended; infinite where they were not, as all that are kept

    @classmethod
    def of(cls, trial: RunOutcome) -> "Trials":
        """That of one tuner."""
        point, context, losses, failed, asked, ended, *_ = trial
        wanted, stop = (point, None) if asked is None else asked
        stops = np.array([math.inf if stop is None else stop])
        return cls(
            point[None], context[None], losses[None], np.array([failed]), wanted[None], np.array([asked is not None]),
            stops, np.array([math.inf if ended is None else ended]),
        )  # fmt: skip

    def one(self) -> RunOutcome:
        """What `of` was given, but for how many runs it was."""
        stop, ended = self.stops.item(), self.ended.item()
        asked = Asked(self.wanted[0], None if stop == math.inf else stop) if self.asked[0] else None
        known = None if ended == math.inf else ended
        return RunOutcome(self.points[0], self.contexts[0], self.losses[0], bool(self.failed[0]), asked, known)

    def some(self, places: Places | Flags) -> "Trials":
        return Trials(*(array[places] for array in vars(self).values()))

    def with_losses(self, losses: Array) -> "Trials":
        return replace(self, losses=losses)

    def rows(self) -> Array:
        """[n, W]; how they were ended, or should have been, is not kept."""
        flags = np.stack([self.asked, self.failed], axis=1)
        return np.concatenate([self.points, self.contexts, self.losses, self.wanted, flags], axis=1)


def trials_of(rows: Array, dims: Dims) -> Trials:
    """What `Trials.rows` gave; views."""
    d, c, columns = dims.knobs, dims.context, dims.columns
    points, contexts, losses, wanted, flags = np.split(rows, np.cumsum([d, c, columns, d]), axis=1)
    none = np.full(len(rows), math.inf)
    return Trials(points, contexts, losses, flags[:, 1] > 0.0, wanted, flags[:, 0] > 0.0, none, none)


def rows_field(dims: Dims, *shape: int | str) -> Field:
    """The rule of an array of rows in a snapshot, [*shape, W]."""
    point, number, flags = [(0.0, 1.0)] * dims.knobs, (-LARGEST, LARGEST), [(0.0, 1.0)] * 2
    bounds = [*point, *[number] * (dims.context + dims.columns), *point, *flags]
    least, most = zip(*bounds, strict=True)
    return Field((*shape, len(bounds)), least, most)
