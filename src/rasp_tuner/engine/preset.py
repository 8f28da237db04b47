"""The settings of preset `default`, and which families of experts a space gets."""

from typing import Any

import numpy as np

from rasp_tuner.base.checks import number, show
from rasp_tuner.engine.engine import Engine
from rasp_tuner.engine.family import Family
from rasp_tuner.engine.gp.family import GpFamily
from rasp_tuner.engine.gp.knobs import MOST_FEW
from rasp_tuner.engine.kernel.state import WINDOW_SAMPLES
from rasp_tuner.engine.limited import LimitedEngine
from rasp_tuner.engine.limits import LimitModel
from rasp_tuner.engine.objective import Objective
from rasp_tuner.engine.quadratic.family import QuadraticFamily
from rasp_tuner.engine.quadratics_first import QuadraticsFirst
from rasp_tuner.engine.settings import EngineSettings
from rasp_tuner.errors import InvalidSpace
from rasp_tuner.optimizer.metric_table import MetricTable
from rasp_tuner.optimizer.preset import Metrics, PresetKind, Setting, Settings
from rasp_tuner.space import Layout
from rasp_tuner.types import Metric

DEFAULT: Settings = {
    "switching_cost": 0.0,  # what a change of settings costs, in units of the target
    "guard": None,  # share of the default's loss by which a suggestion may be worse; None: no guard
    "budget": None,  # share of the default's loss by which the sum of losses may exceed it; None: no budget
    "find": False,  # whether only the end counts, not what runs on the way cost
    "quadratic": False,  # whether continuous knobs have quadratics for good, as in a fleet
}


SWITCHES = 0.5  # the share of knobs with few levels, or none in order, from which on effects are taken for factors


def _check(key: str, value: object) -> Setting:
    if key in ("find", "quadratic"):
        if not isinstance(value, bool | np.bool_):
            raise InvalidSpace(f"{key} must be True or False, got {show(value)}")
        return bool(value)
    share = key in ("guard", "budget")
    if share and value is None:
        return None
    given, most = number(key, value, InvalidSpace), 1e9 if share else 1e300
    if not 0.0 <= given <= most:
        kind = "a share" if share else "a number"
        raise InvalidSpace(f"{key} must be {kind} from 0 up to {most:g}, got {show(value)}")
    return given


def _build(
    settings: Settings, layout: Layout, context_dim: int, metrics: Metrics, _: np.random.Generator
) -> Engine | LimitedEngine:
    typed = EngineSettings(**settings)  # type: ignore[arg-type]  # each was checked
    table = MetricTable(metrics)
    minimised = {name: metric for name, metric in table.metrics.items() if metric.weight > 0.0}
    if not minimised:
        raise InvalidSpace("every metric is a limit: give one that is to be minimised or maximised a weight")
    main = _engine(typed, layout, context_dim, minimised)
    limits = []
    for name, metric in table.metrics.items():
        if metric.limit is not None:
            own = {name: Metric(metric.direction, scale=metric.scale)}
            alike = EngineSettings(find=typed.find, quadratic=typed.quadratic)
            engine = _engine(alike, layout, context_dim, own)
            limits.append(LimitModel(name, metric, metric.limit, engine))
    return LimitedEngine(main, limits, table, list(minimised), layout) if limits else main


def _engine(settings: EngineSettings, layout: Layout, context_dim: int, metrics: Metrics) -> Engine:
    family: Family[Any]
    discrete = [levels is not None for levels in layout.levels]
    few = [levels is not None and len(levels) <= MOST_FEW for levels in layout.levels]
    choices = [
        own and levels is not None and len(levels) > 2
        for own, levels in zip(layout.unordered, layout.levels, strict=True)
    ]
    switches = sum(a or b for a, b in zip(few, choices, strict=True)) / len(few)
    objective = Objective(metrics, logs_first=switches >= SWITCHES)
    single = len(discrete) == 1 and not settings.quadratic  # any shape is learned from as few runs as a bowl
    if any(discrete) or settings.find or single:
        family = GpFamily(layout, context_dim, objective.columns, WINDOW_SAMPLES, settings.find)
    elif settings.quadratic:
        family = QuadraticFamily(layout.default, context_dim, objective.columns)
    else:
        family = QuadraticsFirst(layout, context_dim, objective.columns)
    return Engine(objective, family, layout, context_dim, settings)


def _least_numbers(settings: Settings, layout: Layout, context_dim: int) -> int:
    """Of one context; and of the covariance of the moving optimum of quadratics."""
    d, continuous = len(layout.default), all(levels is None for levels in layout.levels)
    quadratics = continuous and (d > 1 or bool(settings["quadratic"]))
    return context_dim + ((1 + 2 * d) ** 2 if quadratics else d)


KIND = PresetKind(DEFAULT, _check, _build, _least_numbers)
