"""FileStudy: what the studies of `rasp tune` and `rasp watch` have in common."""

import re
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from rasp_tuner.base.checks import show
from rasp_tuner.errors import InvalidSpace
from rasp_tuner.space import Knob, MaxChange, Params, Space
from rasp_tuner.types import Metric


class MetricOrigin(Protocol):
    """Where a metric comes from."""

    @property
    def metric(self) -> Metric: ...


M = TypeVar("M", bound=MetricOrigin)


@dataclass(frozen=True, kw_only=True)
class FileStudy(Generic[M]):
    """Knobs, their default, metrics and what a tuner of them is given."""

    name: str
    knobs: dict[str, Knob]
    default: Params
    metrics: dict[str, M]
    constraints: tuple[str, ...] = ()  # that the knobs of every run keep
    seed: int = 0
    budget: float | None = None
    max_change: Any = None  # how far a knob moves at most from one run to the next, as of a Tuner

    @property
    def space(self) -> Space:
        return Space(self.knobs, self.constraints, self.default)

    @property
    def objective(self) -> str:
        """The metric that is shown and that gains are told of: the first that is to be improved."""
        return next((name for name, source in self.metrics.items() if source.metric.weight), next(iter(self.metrics)))

    def shared_json(self) -> dict[str, Any]:
        """The part of a definition that both kinds of studies have."""
        return {
            "name": self.name,
            "knobs": self.space.to_json(),
            "constraints": list(self.constraints),
            "default": self.default,
            "seed": self.seed,
            "budget": self.budget,
            **({} if self.max_change is None else {"max_change": self.max_change}),
        }

    def check(self) -> None:
        """InvalidSpace unless the default keeps the constraints, and name and largest change make sense."""
        space = self.space
        if self.max_change is not None:
            MaxChange(space, self.max_change)
        if not re.fullmatch(r"\w[\w.-]{0,99}", self.name):
            raise InvalidSpace(f"name must be letters, digits, dots and dashes, got {show(self.name)}")


def rules_of(given: Any) -> tuple[str, ...]:
    """Constraints as a study file has them: one, or a list."""
    return tuple(given) if isinstance(given, (list, tuple)) else (given,)
