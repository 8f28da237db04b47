"""StudyDefinition: converts between a study's JSON and the arguments of a Tuner; no other file knows both."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rasp_tuner.base.checks import STUDY_NAME, number, one_of, whole
from rasp_tuner.contexts.context_encoder import context_encoder
from rasp_tuner.errors import InvalidSpace
from rasp_tuner.gain.savings import checked_holdout
from rasp_tuner.presets import NAMES, named
from rasp_tuner.space import Params, Space
from rasp_tuner.tuner import BUDGET, Tuner
from rasp_tuner.types import Metric

NAME_PATTERN = STUDY_NAME
MAX_LEASE_S = 30 * 86_400.0
MAX_PENDING_LIMIT = 10_000


@dataclass(frozen=True, slots=True)
class StudyDefinition:
    """What a study is. All defaults are filled in, so equal studies compare equal."""

    name: str
    space: dict[str, dict[str, Any]]
    metrics: dict[str, dict[str, Any]]
    context: dict[str, Any] | list[str] | int | None
    default: Params
    preset: str = "default"
    seed: int = 0
    guard: float | None = None
    switching_cost: float = 0.0
    lease_s: float = 3600.0
    max_pending: int = 1000
    budget: float | None = None  # of the library, 0.02, where a new study has a default of its own
    constraints: list[str] = field(default_factory=list)
    holdout: float | None = None  # share of steps that run the default, by draw
    max_change: float | str | dict[str, float | str] | None = None  # of a knob, from one run to the next
    approve_s: float | None = None  # seconds that a suggestion waits for a person; None: it needs nobody

    @classmethod
    def from_wire(cls, data: Mapping[str, Any]) -> "StudyDefinition":
        """The definition that a request describes; an InvalidSpace or InvalidValue names the wrong field."""
        check_name(data["name"])
        default, knobs = data.get("default"), {name: _without_unset(one) for name, one in data["space"].items()}
        space = Space.from_json(knobs, data.get("constraints", ()), default)
        metrics = {name: _metric(given) for name, given in data["metrics"].items()}
        preset = data.get("preset", "default")
        one_of("preset", preset, NAMES, InvalidSpace)
        guard = data.get("guard")
        budget = data.get("budget", _usual_budget(preset) if default is not None else None)
        definition = cls(
            name=data["name"],
            space=space.to_json(),
            metrics={name: metric.to_json() for name, metric in metrics.items()},
            context=context_encoder(data.get("context")).to_json(),
            default=space.from_unit(space.default),
            preset=preset,
            seed=whole("seed", data.get("seed", 0), 0, 2**64 - 1, InvalidSpace),
            guard=None if guard is None else number("guard", guard, InvalidSpace),
            switching_cost=number("switching_cost", data.get("switching_cost", 0.0), InvalidSpace),
            lease_s=_lease(data.get("lease_s", 3600.0)),
            max_pending=whole("max_pending", data.get("max_pending", 1000), 1, MAX_PENDING_LIMIT, InvalidSpace),
            budget=None if budget is None else number("budget", budget, InvalidSpace),
            constraints=space.constraints,
            holdout=checked_holdout(data.get("holdout"), True),
            max_change=data.get("max_change"),
            approve_s=_approve(data.get("approve_s"), preset),
        )
        definition.tuner()  # raises on anything else that is wrong
        return definition

    def to_wire(self) -> dict[str, Any]:
        return asdict(self)

    def tuner(self) -> Tuner:
        """A new tuner, without any data."""
        return Tuner(
            Space.from_json(self.space).knobs,
            {name: Metric(**fields) for name, fields in self.metrics.items()},
            self.context,
            self.default,
            preset=self.preset,
            seed=self.seed,
            max_pending=self.max_pending,
            switching_cost=self.switching_cost,
            guard=self.guard,
            budget=self.budget,
            holdout=self.holdout,
            max_change=self.max_change,
            constraints=self.constraints,
        )


def check_default_given(data: Mapping[str, Any]) -> None:
    """An InvalidSpace if a request has an option that is measured against the default, and no default."""
    for option in ("guard", "budget", "holdout", "approve_s"):
        if data.get(option) is not None and data.get("default") is None:
            raise InvalidSpace(f"{option} is measured against what runs today: give that as default")


def check_name(name: object) -> str:
    """`name` if it is a valid name of a study, else an InvalidSpace."""
    if not isinstance(name, str) or not re.fullmatch(NAME_PATTERN, name):
        raise InvalidSpace("name must be 1 to 64 of A-Z a-z 0-9 . _ - and not start with a dot")
    return name


def _without_unset(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A knob in JSON without the fields that say nothing."""
    known = {name: value for name, value in fields.items() if value is not None or name in ("choices", "word")}
    return {**known, "knob": _without_unset(known["knob"])} if "knob" in known else known


def _metric(given: Any) -> Metric:
    return Metric(**({"direction": given} if isinstance(given, str) else given))


def _usual_budget(preset: str) -> float | None:
    """None for a preset that knows no budgets."""
    return BUDGET if "budget" in named(preset, {}).constants else None


def _approve(value: object, preset: str) -> float | None:
    if value is None:
        return None
    seconds = number("approve_s", value, InvalidSpace)
    if not 1.0 <= seconds <= MAX_LEASE_S:
        raise InvalidSpace(f"approve_s must lie in [1, {MAX_LEASE_S:g}], got {seconds!r}")
    if preset == "paper":
        raise InvalidSpace(
            'approve_s needs preset "default": "paper" cannot say which of the approved settings is best'
        )
    return seconds


def _lease(value: object) -> float:
    seconds = number("lease_s", value, InvalidSpace)
    if not 1.0 <= seconds <= MAX_LEASE_S:
        raise InvalidSpace(f"lease_s must lie in [1, {MAX_LEASE_S:g}], got {seconds!r}")
    return seconds
