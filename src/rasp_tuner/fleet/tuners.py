"""Tuners: all that B tuners know, side by side; some can be taken out, put back, added and removed."""

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rasp_tuner.base.numerics import Array
from rasp_tuner.contexts.context_bounds import ContextBounds
from rasp_tuner.engine.budget import BudgetLedger
from rasp_tuner.engine.intake_notes import IntakeNotes
from rasp_tuner.engine.kernel.batch import Batch, Beliefs
from rasp_tuner.engine.kernel.learn import FORGOTTEN
from rasp_tuner.engine.kernel.masks import Flags, Rows
from rasp_tuner.engine.kernel.state import Places
from rasp_tuner.engine.loss_bounds import LossBounds
from rasp_tuner.engine.measured_bill import MeasuredBill
from rasp_tuner.engine.objective import Objective
from rasp_tuner.engine.safety import Calibration
from rasp_tuner.engine.stops import StopRecord
from rasp_tuner.engine.unit_watch import UnitWatch
from rasp_tuner.fleet.records import Records
from rasp_tuner.optimizer.optimizer import Stateful


@dataclass
class Tuners:
    """Every array in every part begins with the axis of tuners; what the kernel knows of them stays in its batch."""

    batch: Batch
    rows: Places  # [B] of the batch that are theirs
    objective: Objective
    calibration: Calibration
    stops: StopRecord
    budget: BudgetLedger | None
    measured: MeasuredBill | None  # with a budget
    records: Records
    contexts: ContextBounds
    losses: LossBounds
    watch: UnitWatch
    notes: IntakeNotes

    @property
    def size(self) -> int:
        return len(self.rows)

    @property
    def wider(self) -> Array:
        """[B] by which deviations are wider than believed, at least 1."""
        wider: Array = np.clip(self.calibration.factor, 1.0, None)
        return wider

    def _parts(self) -> tuple[Any, ...]:
        books = self.objective, self.calibration, self.stops, self.budget, self.measured, self.records
        return *books, self.contexts, self.losses, self.watch, self.notes

    def stateful(self) -> dict[str, Stateful]:
        """The parts that files have, by their names there; but for the batch and the records."""
        parts: dict[str, Stateful | None]
        parts = {"objective": self.objective, "calibration": self.calibration, "stops": self.stops}
        parts |= {"budget": self.budget, "measured": self.measured}
        return {name: part for name, part in parts.items() if part is not None} | self.intake()

    def intake(self) -> dict[str, Stateful]:
        """The parts that remember what they were told, by their names in files."""
        parts: dict[str, Stateful]
        parts = {"contexts": self.contexts, "losses": self.losses, "watch": self.watch, "notes": self.notes}
        return {f"intake/{name}": part for name, part in parts.items()}

    def arrays(self) -> Iterator[Array]:
        """But for those of the batch."""
        for part in self._parts():
            for _, _, array in _arrays(part):
                yield array

    def some(self, places: Rows) -> "Tuners":
        """Some of them: copies, or views of a slice; the batch is that of all."""
        return Tuners(
            self.batch, self.rows[places], *(mapped(part, lambda array: array[places]) for part in self._parts())
        )

    def known(self, name: str) -> Array:
        """[B, ...] of the kernel's state."""
        return self.batch.read(name, self.rows)

    def know(self, name: str, values: ArrayLike) -> None:
        """Change an array of the kernel's state."""
        self.batch.write(name, self.rows, values)

    def believe(self, contexts: Array) -> Beliefs:
        return self.batch.believe(contexts, self.rows)

    def reweigh(self, changed: Flags) -> None:
        """Tell the kernel that the metrics of the tuners in a mask [B] weigh something else now."""
        rows = self.rows[changed]
        self.batch.write("weights", rows, self.objective.weights[changed])
        for name, value in FORGOTTEN.items():
            self.batch.write(name, rows, value)

    def put(self, places: Rows, part: "Tuners", only_records: bool = False) -> None:
        """Take back what `some` gave, or its records only; of others, what they know."""
        for own, given in zip(self._parts(), part._parts(), strict=True):
            if given is part.records or not only_records:
                for (_, _, old), (_, _, new) in zip(_arrays(own), _arrays(given), strict=True):
                    old[places] = new
        if part.batch is not self.batch:
            self.batch.put(self.rows[places], part.batch.take(part.rows))

    def kept(self, places: Places) -> "Tuners":
        """Only some of them."""
        batch = self.batch.kept(self.rows[places])
        return Tuners(batch, np.arange(len(places)), *self.some(places)._parts())

    def join(self, other: "Tuners", blank: bool = False) -> "Tuners":
        """These, then those, who may be known to know nothing."""
        room = max(tuners.records.failed_at.shape[1] for tuners in (self, other))
        self.make_room_for_failures(room)
        other.make_room_for_failures(room)
        more, batch = other.arrays(), self.batch.grown(other.size)
        new = np.arange(self.size, batch.size)
        if blank:
            batch.write("weights", new, other.objective.weights)
        else:
            batch.put(new, other.batch.take(other.rows))
        parts = (mapped(part, lambda array: np.concatenate([array, next(more)])) for part in self._parts())
        return Tuners(batch, np.arange(batch.size), *parts)

    def make_room_for_failures(self, most: int) -> None:
        """Have rows for so many failures of each tuner, before anything succeeded."""
        old = self.records.failed_at
        if old.shape[1] < most:
            more = np.zeros((old.shape[0], most - old.shape[1], old.shape[2]))
            self.records.failed_at = np.concatenate([old, more], axis=1)


def _arrays(part: Any) -> Iterator[tuple[str, int | None, Array]]:
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


def mapped(part: Any, change: Callable[[Array], Array]) -> Any:
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
