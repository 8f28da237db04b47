"""One tuner of a fleet as a `Tuner`, and back: through the names that a tuner's state has in snapshots."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from rasp_tuner.base.checks import show
from rasp_tuner.base.numerics import Array
from rasp_tuner.base.state_checks import under
from rasp_tuner.engine.kernel.convert import from_family, to_family
from rasp_tuner.errors import InvalidValue
from rasp_tuner.files import snapshot
from rasp_tuner.fleet.build import Plan, blank
from rasp_tuner.fleet.device import Device
from rasp_tuner.fleet.records import NO_STOP
from rasp_tuner.fleet.tuners import Tuners
from rasp_tuner.records.ledger import to_fields
from rasp_tuner.records.lineage import named
from rasp_tuner.tuner import Tuner
from rasp_tuner.types import Explanation

FAMILY = "family/"  # in the snapshot of a tuner
HINT = "; one that may join a fleet is made with preset=presets.default(quadratic=True)"


def tuner_of(plan: Plan, one: Tuners, lineage: Mapping[str, Any] | None) -> Tuner:
    """A Tuner that knows what this one knows. It draws random numbers of its own.

    `lineage` says whose samples it had when it came to the fleet, if it did.
    """
    records = {name: array[0] for name, array in vars(one.records).items()}
    asks, waiting = int(records["asks"]), bool(records["waiting"])
    arrays = dict(plan.arrays)
    arrays |= {FAMILY + name: array for name, array in to_family(plan.dims, one.batch.take(one.rows), 0).items()}
    for name, part in one.stateful().items():
        axis = ... if name in one.intake() else (..., 0)  # those of the intake have their axis of tuners there, too
        arrays |= {f"{name}/{key}": array[axis] for key, array in part.state().items()}
    failures = int(records["failures"])
    arrays["early"] = records["failed_at"][:failures]
    arrays["current"] = records["current"]
    arrays["ledger/contexts"] = records["context"][None][: int(waiting)]
    arrays["ledger/points"] = records["point"][None][: int(waiting)]
    arrays["ledger/came"] = np.zeros(int(waiting))
    stop = float(records["stop"])
    why = to_fields(Explanation(source="asked by a fleet", stop=stop if stop < NO_STOP else None))
    ledger = {**plan.header["ledger"], "issued": asks, "pending": [[f"s{asks - 1}", why]] if waiting else []}
    random = np.random.default_rng([plan.seed, int(records["number"]), asks]).bit_generator.state
    held, own = ({}, None) if lineage is None else (lineage["held"], lineage["own"])
    header = {
        **plan.header,
        "learned": int(records["learned"]),
        "lineage": {"own": own or named("fleet", plan.seed, int(records["number"])), "held": held},
        "ledger": ledger,
        "random": random,
    }
    return Tuner.from_bytes(snapshot.encode(header, arrays))


def tuners_of(plan: Plan, tuner: object, number: float) -> tuple[Tuners, Mapping[str, Any]]:
    """What a Tuner knows, as one tuner of a fleet; of several suggestions that wait, the latest. And its lineage."""
    if not isinstance(tuner, Tuner):
        raise InvalidValue(f"only a Tuner can become a tuner of a fleet, got {show(tuner)}")
    header, arrays = snapshot.decode(tuner.to_bytes())
    check_same_kind(plan, header, arrays)
    one = blank(plan, Device("cpu"), 1, int(number))
    one.batch.put(one.rows, from_family(plan.dims, under(FAMILY, arrays)))
    for name, part in one.stateful().items():
        axis = ... if name in one.intake() else (..., None)
        part.restore({key: array[axis] for key, array in under(f"{name}/", arrays).items()})
    issued, early = int(header["ledger"]["issued"]), arrays["early"]
    one.make_room_for_failures(len(early))
    waiting = len(arrays["ledger/points"]) > 0
    records: dict[str, Any] = {
        "asks": issued,
        "learned": header["learned"],
        "waiting": waiting,
        "current": arrays["current"],
        "failures": len(early),
    }
    if waiting:
        records |= {"point": arrays["ledger/points"][-1], "context": arrays["ledger/contexts"][-1]}
        stop = header["ledger"]["pending"][-1][1].get("stop")
        records["stop"] = NO_STOP if stop is None else stop
    if len(early):
        records["failed_at"] = early
    for name, value in records.items():
        getattr(one.records, name)[0] = value
    return one, header["lineage"]


def check_same_kind(plan: Plan, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Raise if the tuner of a snapshot could be none of this fleet."""
    for field in ("space", "constraints", "metrics", "context"):
        own, theirs = header.get(field) or None, plan.header.get(field) or None
        if own != theirs:
            raise InvalidValue(f"the tuner has another {field} than the fleet: {show(own)}, not {show(theirs)}")
    if header.get("shield") is not None or not np.array_equal(arrays["default"], plan.default):
        raise InvalidValue("the tuner has another default than the fleet, or a shield, which a fleet has not")
    for field in ("holdout", "max_change", "frozen"):
        if header.get(field):
            raise InvalidValue(f"the tuner is frozen, or has a holdout or max_change, which a fleet has not: {field}")
    _check_same_preset(header["preset"], plan.header["preset"], HINT if plan.constants.get("quadratic") else "")


def _check_same_preset(own: Mapping[str, Any], theirs: Mapping[str, Any], hint: str) -> None:
    if own["name"] != theirs["name"]:
        raise InvalidValue(f"the tuner has another preset than the fleet: {own['name']}, not {theirs['name']}")
    for name, wanted in theirs["constants"].items():
        if (found := own["constants"].get(name)) != wanted:
            said = f"the tuner has another {name} than the fleet: {show(found)}, not {show(wanted)}"
            raise InvalidValue(said + (hint if name == "quadratic" else ""))
