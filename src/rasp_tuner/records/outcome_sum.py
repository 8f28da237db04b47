"""OutcomeSum: runs of one setting that were added up before they were told (policy/sums.py), checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rasp_tuner.base.checks import number, same_names, show, whole
from rasp_tuner.errors import InvalidValue
from rasp_tuner.types import Metric

MOST_RUNS = 2**40  # of one sum
MOST_SUM_CONTEXTS = 64  # of one sum
ROUNDING = 1e-9  # by which squares may be less than those of the mean
FIELDS = ("params", "contexts", "count", "metrics", "policy", "leaf", "setting", "probability")


@dataclass(frozen=True)
class OutcomeSum:
    """How many runs there were, and what they came to."""

    params: Mapping[str, object]
    contexts: Sequence[Any]  # some of those in which they ran
    count: int
    means: dict[str, float]
    variances: dict[str, float]  # of the runs around the mean
    is_own: bool  # whether a policy of the tuner chose the setting


def outcome_sum(field: str, given: object, metrics: Mapping[str, Metric], has_context: bool) -> OutcomeSum:
    """The sum, or an InvalidValue that names the field."""
    if not isinstance(given, Mapping) or not isinstance(given.get("params"), Mapping):
        raise InvalidValue(f"{field} must have params, contexts, count and metrics by name, got {show(given)}")
    for name in given:
        if name not in FIELDS:
            raise InvalidValue(f"{field} has no field {show(name)}; there are {', '.join(FIELDS)}")
    count = whole(f"{field}.count", given.get("count"), 1, MOST_RUNS)
    contexts = given.get("contexts") or []
    if not isinstance(contexts, Sequence) or isinstance(contexts, str) or len(contexts) > MOST_SUM_CONTEXTS:
        raise InvalidValue(f"{field}.contexts must be a list of up to {MOST_SUM_CONTEXTS}, got {show(contexts)}")
    if has_context != bool(contexts):
        need = "at least one of those in which it ran" if has_context else "none: the tuner has no context"
        raise InvalidValue(f"{field}.contexts must have {need}")
    if not isinstance(given.get("policy"), str | None):
        raise InvalidValue(f"{field}.policy must be the version of a policy, got {show(given['policy'])}")
    sums = same_names(f"{field}.metrics", given.get("metrics"), metrics)
    means, variances = {}, {}
    for name, metric in metrics.items():
        place = f"{field}.metrics[{name!r}]"
        parts = same_names(place, sums[name], ("sum", "squares"))
        total, squares = (number(f"{place}[{part!r}]", parts[part]) for part in ("sum", "squares"))
        mean = total / count
        if metric.scale == "log" and mean <= 0.0:
            raise InvalidValue(f"{place} must be above 0 on average, since its scale is 'log'; got {mean!r}")
        variance = squares / count - mean * mean
        if not -ROUNDING * abs(mean * mean) <= variance < float("inf"):
            raise InvalidValue(
                f"{place}: squares of {squares!r} cannot be those of {count} numbers whose sum is {total!r}"
            )
        means[name], variances[name] = mean, max(variance, 0.0)
    return OutcomeSum(given["params"], contexts, count, means, variances, given.get("policy") is not None)
