"""Tuners: all that B tuners know, side by side; some can be taken out, put back, added and removed."""

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from rasp_tuner.engine.budget import BudgetLedger
from rasp_tuner.engine.kernel.backend import Rows
from rasp_tuner.engine.kernel.learn import reweigh
from rasp_tuner.engine.kernel.namespace import namespace
from rasp_tuner.engine.kernel.state import Dims, State, Tensor
from rasp_tuner.engine.objective import Objective
from rasp_tuner.engine.safety import Calibration
from rasp_tuner.fleet.records import Records


@dataclass
class Tuners:
    """Every array in every part begins with the axis of tuners."""

    state: State
    objective: Objective
    calibration: Calibration
    budget: BudgetLedger | None
    records: Records
    rows: Rows | None = None  # of the state that are theirs, where it has others, too

    @property
    def size(self) -> int:
        return len(self.records.asks)

    def parts(self) -> tuple[Any, ...]:
        return self.state, self.objective, self.calibration, self.budget, self.records

    def map(self, change: Callable[[Tensor], Tensor]) -> "Tuners":
        """Tuners with every array changed, as by taking some of them."""
        return Tuners(*(mapped(part, change) for part in self.parts()))

    def arrays(self) -> Iterator[Tensor]:
        for part in self.parts():
            for _, _, array in _arrays(part):
                yield array

    def take(self, rows: Any) -> "Tuners":
        """Some of them: views of a slice, copies of positions."""
        return self.map(lambda array: array[rows])

    def take_beside(self, rows: Rows) -> "Tuners":
        """The same with the state left where it is, for a kernel that takes rows."""
        others = (mapped(part, lambda array: array[rows]) for part in self.parts()[1:])
        taken = Tuners(self.state, *others)
        taken.rows = rows if self.rows is None else self.rows[rows]
        return taken

    def known(self, name: str) -> Tensor:
        """[n, ...] an array of their state."""
        array = getattr(self.state, name)
        return array if self.rows is None else array[self.rows]

    def know(self, name: str, values: Tensor) -> None:
        """Change an array of their state."""
        getattr(self.state, name)[slice(None) if self.rows is None else self.rows] = values

    def reweigh(self, dims: Dims, changed: Tensor) -> None:
        """Tell the state of the tuners in a mask [n] that their metrics weigh something else now."""
        weights = self.objective.weights
        if self.rows is not None:
            rows, changed = self.rows[changed], np.zeros(self.state.size, dtype=bool)
            changed[rows] = True
            everyone = np.zeros_like(self.state.weights)
            everyone[self.rows] = weights
            weights = everyone
        reweigh(dims, self.state, weights, changed)

    def put(self, rows: Any, part: "Tuners", only_records: bool = False) -> None:
        """Take back what `take` gave, or its records only."""
        views = isinstance(rows, slice) and part.rows is None
        for old, new in zip(self.parts(), part.parts(), strict=True):
            if only_records and old is not self.records:
                continue
            if new is old or (views and (old is self.state or old is self.records)):
                continue  # left where it is, or changed in place
            for (_, _, own), (_, _, given) in zip(_arrays(old), _arrays(new), strict=True):
                own[rows] = given

    def join(self, other: "Tuners") -> "Tuners":
        """These, then those."""
        room = max(tuners.records.failed_at.shape[1] for tuners in (self, other))
        self.make_room_for_failures(room)
        other.make_room_for_failures(room)
        more = other.arrays()
        return self.map(lambda array: namespace(array).concat([array, next(more)]))

    def make_room_for_failures(self, most: int) -> None:
        """Have rows for so many failures of each tuner, before anything succeeded."""
        old = self.records.failed_at
        if old.shape[1] < most:
            xp = namespace(old)
            more = xp.zeros((old.shape[0], most - old.shape[1], old.shape[2]), dtype=old.dtype, device=old.device)
            self.records.failed_at = xp.concat([old, more], axis=1)


def _arrays(part: Any) -> Iterator[tuple[str, int | None, Tensor]]:
    """Attribute, place in it if it is a list, and array, of everything that a part keeps for each tuner."""
    if part is None:
        return
    names = vars(part) if hasattr(part, "__dict__") else part.__slots__
    for name in names:
        value = getattr(part, name)
        if hasattr(value, "shape"):
            yield name, None, value
        elif isinstance(value, list):
            for i, array in enumerate(value):
                if hasattr(array, "shape"):
                    yield name, i, array


def mapped(part: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A copy of the part, with its arrays changed."""
    changed = copy(part)
    for name, i, array in _arrays(part):
        if i is None:
            setattr(changed, name, change(array))
        else:
            if i == 0:
                setattr(changed, name, list(getattr(part, name)))
            getattr(changed, name)[i] = change(array)
    return changed
