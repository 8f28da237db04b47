"""What samples prove about metrics: on which scale they are, and by how much one must have changed.

Every function is about one objective: of one tuner, whose losses are [C], or of B tuners, whose losses are [B, C].
"""

from rasp_tuner.base.common_constants import FEWEST_SAMPLES
from rasp_tuner.base.numerics import Array
from rasp_tuner.engine.loss_bounds import LossBounds
from rasp_tuner.engine.objective import LEAST_LOG, Objective
from rasp_tuner.engine.scalar_or_batch import Condition, Number, columns_of, numbers_of, rows_of
from rasp_tuner.engine.unit_watch import Change

LEAP = 50.0  # two values so many times the others call for logarithms


def leaps(objective: Objective, bounds: LossBounds, losses: Array) -> Condition:
    """Whether a sample is so many times all that was seen before that it would drown it on a linear scale."""
    high, value = _columns(objective, bounds.high)[0], columns_of(losses)[0]
    open_ = objective.one_open & objective.positive[0] & (objective.seen >= FEWEST_SAMPLES)
    return open_ & (value > LEAP * high) & (high > 0.0)


def observe_extreme(objective: Objective, bounds: LossBounds, leap: Condition, told: Condition = True) -> Condition:
    """Choose the scale by what leaves no choice, before a sample is used; whether that changed the weights.

    What is not positive has no logarithm, so its metric is linear for ever. A sample that `leaps` calls for logarithms
    in a new situation, which may well have another level. Nothing else is believed of one sample: `bounds` has seen it.
    """
    n, changed = numbers_of(objective.column_weights[0]), told & (objective.seen < 0)
    for k, fallen in _fallen(objective, bounds):
        fallen = told & fallen
        changed = changed | (fallen & objective.uses_log[k])
        objective.positive[k] = objective.positive[k] & n.logical_not(fallen)
        objective.uses_log[k] = objective.uses_log[k] & n.logical_not(fallen)
    if objective.one_open:
        leap = leap | leaps(objective, bounds, bounds.proven() if objective.batch else bounds.proven()[0])
        leap = told & leap & objective.positive[0] & n.logical_not(objective.uses_log[0])
        objective.uses_log[0] = objective.uses_log[0] | leap
        changed = changed | leap
    if n.any(changed):
        objective.set_weights()
    return changed


def hasty(objective: Objective, bounds: LossBounds) -> Condition:
    """Whether a single value of 0 or less has decided on a scale: one of the first few, when one was enough."""
    n, found = numbers_of(objective.column_weights[0]), objective.seen < 0
    for k, fallen in _fallen(objective, bounds):
        found = found | n.logical_not(objective.positive[k] | fallen)
    return found


def says_nothing(objective: Objective, losses: Array) -> Condition:
    """Whether a sample has a first value of 0 or less, of a metric that is compared by its logarithm.

    That would be the best ever. `observe_extreme` has seen it.
    """
    nothing, columns = objective.seen < 0, columns_of(losses)
    for c, k in objective.linear:
        nothing = nothing | (objective.uses_log[k] & (objective.signs[k] * columns[c] <= 0.0))
    return nothing


def changes(objective: Objective, losses: Array, bounds: LossBounds, gap: Number, deviation: Number) -> list[Change]:
    """How each metric would have had to change to bring about a gap in the target of a sample.

    Of a metric above zero by a factor, of another by a shift; all other metrics being as expected.
    """
    n, columns = numbers_of(gap), columns_of(losses)
    low, high = _columns(objective, bounds.low), _columns(objective, bounds.high)
    found: list[Change] = [Change(0.0, 1.0, True, 0.0)] * len(objective.metrics)
    for c, (k, log) in enumerate(objective.table):
        sign, weight, width = objective.signs[k], objective.column_weights[c], high[c] - low[c]
        used = weight > 0.0
        if used is False:
            continue
        unit = n.where(used, weight, 1.0)
        shift, unsure = gap / unit, deviation / unit
        if not objective.one:  # of several, only one that has left its range may be the cause
            shift = n.where((columns[c] < low[c]) | (columns[c] > high[c]), shift, 0.0)
        if log:  # what is 0 or less has no factor
            own = Change(n.where(sign * columns[c] > LEAST_LOG, sign * shift, 0.0), unsure, used, width)
        else:
            now, before = sign * columns[c], sign * (columns[c] - shift)
            factor = objective.positive[k] & (now > 0.0) & (before > 0.0)
            before = n.where(factor, before, 1.0)
            ratio = n.log(n.where(factor, now, 1.0) / before)
            own = Change(n.where(factor, ratio, shift), n.where(factor, unsure / before, unsure), factor, width)
        both = zip(own, found[k], strict=True)
        found[k] = own if used is True else Change(*(n.where(used, new, old) for new, old in both))
    return found


def by_column(objective: Objective, factors: Array, shifts: Array) -> tuple[Array, Array]:
    """Factors and shifts of losses, where metrics have become so many times as large and losses shifted, [K] each."""
    n, given, more = numbers_of(objective.column_weights[0]), columns_of(factors), columns_of(shifts)
    own = [
        (1.0 + 0.0 * given[k], objective.signs[k] * n.log(given[k])) if log else (given[k], more[k])
        for k, log in objective.table
    ]
    by, plus = zip(*own, strict=True)
    return rows_of(by), rows_of(plus)


def _fallen(objective: Objective, bounds: LossBounds) -> list[tuple[int, Condition]]:
    """Of every metric that has a linear column, whether it is proven to be 0 or less at times."""
    upper = _columns(objective, bounds.proven())
    return [(k, upper[c if objective.signs[k] < 0.0 else objective.columns + c] >= 0.0) for c, k in objective.linear]


def _columns(objective: Objective, array: Array) -> list[Number]:
    """The columns of an array [B, .] of the objective's bounds, as numbers of its kind."""
    return columns_of(array if objective.batch else array[0])
