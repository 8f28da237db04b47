"""EngineSettings: what a preset says of its engine."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Of a preset."""

    switching_cost: float = 0.0
    guard: float | None = None
    budget: float | None = None
    find: bool = False  # whether only the end counts: the best setting found, not what runs on the way cost
    quadratic: bool = False  # whether continuous knobs have quadratics for good, as in a fleet
