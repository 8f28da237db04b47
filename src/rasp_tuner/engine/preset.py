"""The settings of preset `default`, and which families of experts a space gets."""

from typing import Any

import numpy as np

from rasp_tuner.core.checks import number, show
from rasp_tuner.core.preset import Metrics, PresetKind, Setting, Settings
from rasp_tuner.engine.context_gate import ContextGate
from rasp_tuner.engine.discrete.family import DiscreteFamily
from rasp_tuner.engine.engine import Engine
from rasp_tuner.engine.family import Family
from rasp_tuner.engine.gate import EvidenceGate
from rasp_tuner.engine.objective import Objective
from rasp_tuner.engine.quadratic.family import QuadraticFamily
from rasp_tuner.engine.quadratic.moving_optimum import WINDOW_SAMPLES
from rasp_tuner.errors import InvalidSpace
from rasp_tuner.space import Layout

DEFAULT: Settings = {
    "switching_cost": 0.0,  # what a change of settings costs, in units of the target
    "guard": None,  # share of the default's loss by which a suggestion may be worse; None: no guard
    "screen": False,  # whether the context is ignored until it improves predictions
}
RETIRED = frozenset({"anomaly_threshold", "disagreement_threshold", "momentum"})  # of the slow path of version 0.1

FEW_LEVELS = 3  # a space where no knob has more is left to the discrete family
FAMILY_ODDS = 6.0  # nats between the families of an all-discrete and an all-continuous space, either way


def _check(key: str, value: object) -> Setting:
    """A legal setting; also as version 0.1 wrote it into snapshots: numbers, with a guard of -1 for none."""
    if key == "screen":
        if not isinstance(value, bool | float | int):
            raise InvalidSpace(f"screen must be True or False, got {show(value)}")
        return bool(value)
    if key == "guard":
        if value is None or value == -1.0:
            return None
        margin = number("guard", value, InvalidSpace)
        if not 0.0 <= margin <= 1e9:
            raise InvalidSpace(f"guard must be a share from 0 up, got {show(value)}")
        return margin
    cost = number("switching_cost", value, InvalidSpace)
    if not 0.0 <= cost <= 1e300:
        raise InvalidSpace(f"switching_cost must be a number from 0 to 1e300, got {show(value)}")
    return cost


def _build(
    settings: Settings, layout: Layout, context_dim: int, metrics: Metrics, _: np.random.Generator
) -> Engine | ContextGate:
    seeing = _engine(settings, layout, context_dim, metrics)
    if settings["screen"] and context_dim:
        return ContextGate(seeing, _engine(settings, layout, 0, metrics))
    return seeing


def _engine(settings: Settings, layout: Layout, context_dim: int, metrics: Metrics) -> Engine:
    objective = Objective(metrics)
    families: list[Family[Any]] = []
    odds = []
    discrete = [levels is not None for levels in layout.levels]
    few = [levels is not None and len(levels) <= FEW_LEVELS for levels in layout.levels]
    share = sum(discrete) / len(discrete)
    if not all(few):
        families.append(QuadraticFamily(layout.default, context_dim, len(objective.metrics)))
        odds.append(0.0)
    if any(discrete):
        window = 0 if families else WINDOW_SAMPLES  # the quadratic family keeps one
        families.append(DiscreteFamily(layout.levels, layout.unordered, layout.default, context_dim, window))
        odds.append(FAMILY_ODDS * (2.0 * share - 1.0))
    guard = settings["guard"]
    return Engine(
        objective,
        EvidenceGate(families, odds),
        layout.default,
        switching_cost=float(settings["switching_cost"] or 0.0),
        guard=None if guard is None else float(guard),
    )


KIND = PresetKind(DEFAULT, _check, _build, RETIRED)
