"""Listed: settings to choose among, where not everything that the space allows can run."""

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.base.checks import show
from rasp_tuner.base.numerics import Array
from rasp_tuner.errors import InvalidValue
from rasp_tuner.space.space import Space


class Listed:
    """Settings as points [m, d], checked once: that takes longer than a choice among them."""

    def __init__(self, points: Array) -> None:
        self.points = points

    @classmethod
    def of(cls, space: Space, settings: Iterable[Mapping[str, object]], field: str = "among") -> "Listed":
        if isinstance(settings, str | Mapping) or not isinstance(settings, Iterable):
            raise InvalidValue(f"{field} must be a list of settings, got {show(settings)}")
        points = []
        for i, given in enumerate(settings):
            points.append(space.to_unit(given, f"{field}[{i}]"))
            space.check_constraints(dict(given))  # type: ignore[arg-type]  # to_unit has checked the values
        if not points:
            raise InvalidValue(f"{field} must have at least one setting")
        return cls(np.array(points))

    def where(self, kept: NDArray[np.bool_]) -> "Listed":
        """Those of them for which `kept` [m] is true."""
        if not kept.any():
            raise InvalidValue("no setting is left to choose")
        return Listed(self.points[kept])

    def nearest(self, point: Array) -> Array:
        """The one with the fewest knobs elsewhere than at `point` [d], and of those the nearest."""
        apart = np.abs(self.points - point)
        found: Array = self.points[int(((apart > 0.0).sum(axis=1) + apart.mean(axis=1)).argmin())]
        return found
