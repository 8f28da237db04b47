"""TunerForecasts: what a tuner expects of settings in a context, and which settings it holds for the best there."""

import math
from collections.abc import Iterable, Mapping

import numpy as np

from rasp_tuner.base.checks import show
from rasp_tuner.base.common_constants import LIKELY
from rasp_tuner.base.numerics import Array
from rasp_tuner.engine.safety import PROVEN
from rasp_tuner.errors import InvalidValue
from rasp_tuner.gain.versus_default import StepForecast
from rasp_tuner.optimizer.optimizer import Expected, Optimizer
from rasp_tuner.presets import Preset
from rasp_tuner.space import Listed, Params, Space
from rasp_tuner.types import LIMIT_KEPT
from rasp_tuner.what_if import Forecast


class TunerForecasts:
    """Nothing here learns, and nothing is left to chance."""

    def __init__(
        self,
        space: Space,
        context_dim: int,
        preset: Preset,
        optimizer: Optimizer,
        default: Array,
    ) -> None:
        self.space, self.optimizer, self._preset, self._context_dim = space, optimizer, preset, context_dim
        self.default = default  # [d]
        self.searches = preset.constants.get("find") is True  # whether the goal is "find"
        self._copy: Optimizer | None = None  # of the optimizer, made when it is needed

    def recommended(self, context: Array, among: Listed | Iterable[Mapping[str, object]] | None = None) -> Array:
        if isinstance(among, Listed):
            return self._best_of(context, list(among.points))
        if among is not None:
            if isinstance(among, str | Mapping) or not isinstance(among, Iterable):
                raise InvalidValue(f"among must be a list of settings, got {show(among)}")
            points = [self.space.to_unit(params, f"among[{i}]") for i, params in enumerate(among)]
            return self._best_of(context, points)
        best = self.optimizer.best_known(context)
        return self.default if best is None else self.space.snap(best)

    def forecast(self, seen: Array, point: Array, params: Params, levels: dict[str, Expected]) -> Forecast:
        is_default = np.array_equal(point, self.default)
        better = self.optimizer.model.probability_better(seen, point) if levels and not is_default else None
        return Forecast(params, levels, better, self.optimizer.margins(seen, point))

    def levels(self, seen: Array, points: list[Array]) -> list[dict[str, Expected]]:
        """For each point what it is expected to give of each metric, in the metric's own units."""
        metrics = self.optimizer.metrics
        optimizer = self.optimizer if len(metrics) == 1 else self._copy_of_optimizer()
        found: list[dict[str, Expected]] = [{} for _ in points]
        for name, metric in metrics.items():
            for levels, point in zip(found, points, strict=True):
                expected = optimizer.forecast_metric(name, seen, point)
                if expected is not None:
                    mean, low, high = expected
                    levels[name] = expected if metric.direction == "min" else Expected(-mean, -high, -low)
        return found

    def _copy_of_optimizer(self) -> Optimizer:
        """Another one that knows the same; it is kept, since making one takes longer than copying its state."""
        if self._copy is None or len(self.optimizer.metrics) > 1:  # whose weights may have changed
            layout = self.space.layout(self.default)
            self._copy = self._preset.build(layout, self._context_dim, self.optimizer.metrics, np.random.default_rng(0))
        self._copy.restore({name: array.copy() for name, array in self.optimizer.state().items()})
        return self._copy

    def _best_of(self, seen: Array, points: list[Array]) -> Array:
        """The best of some points that is known to beat the default here, and to keep the limits; else the default."""
        if self._preset.name == "paper":
            raise InvalidValue('preset "paper" forecasts no settings of others: among=[...] is of preset "default"')
        if self.searches and points and not any(np.array_equal(point, self.default) for point in points):
            return self._best_found(seen, points)
        best, least = self.default, math.inf
        for point in points:
            expected = self.optimizer.model.expect(seen, point)
            if expected is None or expected.mean >= least:
                continue
            better, margins = self.optimizer.model.probability_better(seen, point), self.optimizer.margins(seen, point)
            if better is not None and better >= PROVEN and all(one.kept >= LIMIT_KEPT for one in margins.values()):
                best, least = point, expected.mean
        return best

    def _best_found(self, seen: Array, points: list[Array]) -> Array:
        """Of some points the best that surely keeps the limits, or likely; or else the likeliest to."""
        margins, expect = self.optimizer.margins, self.optimizer.model.expect
        kept = [min((one.kept for one in margins(seen, point).values()), default=1.0) for point in points]
        for least in (LIMIT_KEPT, LIKELY, max(kept)):
            safe = [point for point, own in zip(points, kept, strict=True) if own >= least]
            known = [(own.mean, i) for i, point in enumerate(safe) if (own := expect(seen, point)) is not None]
            if known:
                return safe[min(known)[1]]
        return self.default

    def step_forecasts(self, context: Array, point: Array) -> dict[str, StepForecast]:
        """What is expected of each metric in this context, beside the default."""
        name, (default, own) = self.optimizer.model.own_metric, self.levels(context, [self.default, point])
        return {
            metric: StepForecast(level.mean, level.deviation, own[metric].deviation, own[metric].mean)
            for metric, level in default.items()
            if name in (None, metric)
        }
