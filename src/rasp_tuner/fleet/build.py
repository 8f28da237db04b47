"""Plan: what all tuners of a fleet have in common; and tuners made by it that know nothing yet."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from rasp_tuner.base.numerics import Array
from rasp_tuner.contexts.context_bounds import ContextBounds
from rasp_tuner.contexts.context_encoder import Schema, context_encoder
from rasp_tuner.engine.budget import BudgetLedger
from rasp_tuner.engine.intake_notes import IntakeNotes
from rasp_tuner.engine.kernel.state import Dims
from rasp_tuner.engine.loss_bounds import LossBounds
from rasp_tuner.engine.measured_bill import MeasuredBill
from rasp_tuner.engine.objective import Objective
from rasp_tuner.engine.safety import Calibration
from rasp_tuner.engine.stops import StopRecord
from rasp_tuner.engine.unit_watch import UnitWatch
from rasp_tuner.errors import InvalidSpace
from rasp_tuner.files import snapshot
from rasp_tuner.fleet import records
from rasp_tuner.fleet.device import Device
from rasp_tuner.fleet.tuners import Tuners, mapped
from rasp_tuner.space import Space
from rasp_tuner.tuner import Tuner
from rasp_tuner.types import Metric

MOST_TUNERS = 10_000_000  # of a fleet


@dataclass(frozen=True)
class Plan:
    """A tuner that knows nothing yet, as a snapshot: header and arrays by the names that they have there."""

    header: dict[str, Any]
    arrays: dict[str, Array]

    @classmethod
    def of(cls, tuner: Tuner) -> "Plan":
        plan = cls(*snapshot.decode(tuner.to_bytes()))
        for name, metric in plan.metrics.items():
            if metric.limit is not None:
                raise InvalidSpace(f"metrics[{name!r}]: a RayFleet keeps no limits; a Fleet or a Tuner does")
        return plan

    def to_bytes(self) -> bytes:
        return snapshot.encode(self.header, self.arrays)

    @cached_property
    def space(self) -> Space:
        header = self.header
        return Space.from_json(header["space"], header["constraints"], header["default"])

    @cached_property
    def metrics(self) -> dict[str, Metric]:
        return {name: Metric(**fields) for name, fields in self.header["metrics"].items()}

    @property
    def context(self) -> Schema:
        schema: Schema = self.header["context"]
        return schema

    @property
    def default(self) -> Array:
        """[d]"""
        return self.arrays["default"]

    @property
    def constants(self) -> dict[str, Any]:
        """Of the preset: budget, guard, switching_cost."""
        constants: dict[str, Any] = self.header["preset"]["constants"]
        return constants

    @property
    def seed(self) -> int:
        return int(self.header["seed"])

    @cached_property
    def dims(self) -> Dims:
        return Dims(self.space.dim, context_encoder(self.context).dim, Objective(self.metrics).columns)


def blank(plan: Plan, device: Device, size: int, first: int) -> Tuners:
    """Tuners that know nothing, numbered from `first` on."""
    zero, share = np.zeros(size), plan.constants["budget"]
    objective = Objective(plan.metrics, zero=zero)
    tuners = Tuners(
        device.batch(plan.dims, plan.default, size),
        np.arange(size),
        mapped(objective, np.copy),  # these arrays are changed in place, so no two may be the same one
        Calibration(zero + 1.0),
        mapped(StopRecord(zero), np.copy),
        None if share is None else mapped(BudgetLedger.of_many(share, zero), np.copy),
        None if share is None else mapped(MeasuredBill(zero), np.copy),
        records.blank(size, plan.default, plan.dims.context, first),
        ContextBounds(plan.dims.context, size),
        LossBounds(objective.logs, size),
        UnitWatch(plan.dims, len(plan.metrics), size),
        IntakeNotes.blank(plan.dims, size),
    )
    tuners.know("weights", objective.weights)
    return tuners
