"""Is a step good? Whether it kept its limits, and whether it was worse than the default would have been."""

from collections.abc import Mapping

from rasp_tuner.optimizer.optimizer import Expected
from rasp_tuner.page.words import number_words
from rasp_tuner.types import Metric

Levels = Mapping[str, Expected]  # what the default is expected to give, in a situation


def broken_limits(
    metrics: Mapping[str, Metric],
    values: Mapping[str, float],
    levels: Levels,
    control: Mapping[str, float] | None = None,
) -> dict[str, str]:
    """The metrics that passed their limit, each in words; one relative to the default counts where that is known.

    >>> broken_limits({"p99": Metric("min", max=200)}, {"p99": 231.0}, {})
    {'p99': 'p99 is 231, its limit 200'}
    """
    found = {}
    for name, metric in metrics.items():
        limit = metric.limit
        if limit is None:
            continue
        bound: float | None = limit.value
        if limit.relative:
            level = control[name] if control is not None else levels[name].mean if name in levels else None
            bound = None if level is None else limit.value * level
        sign = 1.0 if metric.direction == "min" else -1.0
        if bound is not None and sign * values[name] > sign * bound:
            found[name] = f"{name} is {number_words(values[name])}, its limit {number_words(bound)}"
    return found


def is_worse(metrics: Mapping[str, Metric], values: Mapping[str, float], levels: Levels) -> bool:
    """Whether a metric to be improved came out worse than the default would have, nine times in ten."""
    for name, metric in metrics.items():
        if metric.weight and name in levels:
            worst = levels[name].high if metric.direction == "min" else levels[name].low
            if (values[name] > worst) if metric.direction == "min" else (values[name] < worst):
                return True
    return False
