"""Something new in the place of a repeat: a setting that ran twice on an input is known well enough.

The play-off runs it again if it is one of the best. First every value of a knob with few values is tried once on every
input. Then, in studies with limits, the setting with the most to gain: expected improvement over the best that keeps
the limits, times the chance that it keeps them. (With limits a tuner stays at what is known to keep them. On a live
system that is right; where only the end counts, a run that breaks a limit costs nothing.)
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from rasp_tuner.errors import InvalidValue
from rasp_tuner.space import Categorical, Knob, Params, Value
from rasp_tuner.tune.context_sources import ContextValue
from rasp_tuner.tune.loop import Session
from rasp_tuner.tune.playoff import best_measured, with_value
from rasp_tuner.tune.situations import Case
from rasp_tuner.tune.verdict import goals_of, log_cost

KNOWN_WELL = 2  # runs of a setting on one input
FROM_ANYWHERE = 24  # settings that are looked at besides neighbours
MOST_VALUES = 12  # of a knob, from end to end
FEW_VALUES = 12  # of a knob that is tried value by value
LEAST_GAIN = 1e-4  # share of the cost: with less to gain, a repeat is as good
WIDTH = 2.0 * 1.645  # deviations in an interval of nine in ten


def instead_of_repeat(session: Session, input: str | None, context: dict[str, ContextValue], params: Params) -> Params:
    """The suggestion itself, or a setting that never ran on this input where the suggestion ran often enough."""
    study, case = session.study, Case(input, context)
    own = [run.params for run in session.runs if run.input == input]
    if study.budget is not None or study.max_change is not None or own.count(params) < KNOWN_WELL:
        return params
    best = best_measured(session, case)
    bases = [params] if best is None else [best.params, params]
    level = 0.0 if best is None else best.cost
    limited = any(source.metric.limit is not None for source in study.metrics.values())
    unseen = _unseen_values(session, bases[0], own)
    near = [one for base in bases for one in _neighbours(session, base)] if limited else []
    offers = [one for one in [*near, *(_anywhere(session) if limited else ())] if one not in own]
    for group, least in ((unseen, 0.0), (offers, LEAST_GAIN)):
        gains = [_gain(session, case, one, level) for one in group]
        if gains and max(gains) >= least:
            return group[int(np.argmax(gains))]
    return params


def _unseen_values(session: Session, base: Params, own: Sequence[Params]) -> list[Params]:
    """The setting with a value of one knob that no run on this input had, of knobs with few values."""
    found = []
    for name, knob in session.study.knobs.items():
        values = values_of(knob, session, name, FEW_VALUES + 1)
        if name not in base or len(values) > FEW_VALUES:
            continue
        seen = [run[name] for run in own if name in run]
        offers = (with_value(session, base, name, value) for value in values if value not in seen)
        found += [offer for offer in offers if offer is not None]
    return found


def values_of(knob: Knob, session: Session, name: str, most: int = MOST_VALUES) -> list[Value]:
    """Some values of a knob, from end to end."""
    if isinstance(knob, Categorical):
        return list(knob.choices)
    space = session.study.space
    found = (space.from_unit(np.full(space.dim, at)) for at in np.linspace(0.0, 1.0, most))
    return list(dict.fromkeys(one[name] for one in found if name in one))


def _neighbours(session: Session, base: Params) -> list[Params]:
    """Settings that differ in one knob."""
    found = []
    for name, knob in session.study.knobs.items():
        for value in values_of(knob, session, name) if name in base else ():
            offer = with_value(session, base, name, value)
            if offer is not None and offer != base:
                found.append(offer)
    return found


def _anywhere(session: Session) -> list[Params]:
    """Settings from the whole space, others at every step."""
    space, rng = session.study.space, np.random.default_rng([session.study.seed, len(session.runs)])
    found = []
    for at in rng.random((FROM_ANYWHERE, space.dim)):
        params = space.from_unit(at)
        try:
            space.check_constraints(params)
        except InvalidValue:
            continue  # a rule between knobs
        found.append(params)
    return found


def _gain(session: Session, case: Case, params: Params, best: float) -> float:
    """Expected improvement of the log cost over `best`, times the probability that every limit is kept."""
    forecast = session.tuner.what_if(session.given(case.context), params)
    given, default = forecast.given, forecast.default
    if not given.metrics or not default.metrics:
        return 0.0
    goals = goals_of(session.study.metrics)
    means, usual = ({name: one.mean for name, one in side.metrics.items()} for side in (given, default))
    cost, deviation = log_cost(usual, means, goals), _deviation(given.metrics, goals)
    z = (best - cost) / deviation
    expected = deviation * (
        z * 0.5 * math.erfc(-z / math.sqrt(2.0)) + math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    )
    return expected * math.prod(margin.kept for margin in given.margins.values())


def _deviation(found: Mapping[str, tuple[float, float, float]], goals: Mapping[str, object]) -> float:
    """Of the log cost, from the intervals of the metrics that are improved."""
    parts = []
    for name in goals:
        mean, low, high = found[name]
        wide = math.log(high / low) if low > 0.0 else (high - low) / (abs(mean) or 1.0)
        parts.append(wide / WIDTH)
    return max(math.sqrt(sum(part**2 for part in parts)) / len(parts), 1e-6)
