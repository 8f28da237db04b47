"""The play-off: of every input, the settings that may be the best run a few times more beside the default.

Entrants are what the tuner recommends, what came out best, and the recommendation with the knobs that seem to do
nothing back at their defaults. The simplest of those that are as good as the best goes into the final comparison; the
default, unless it is clearly behind.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rasp_tuner.errors import InvalidValue
from rasp_tuner.space import Params
from rasp_tuner.tune.loop import Run, Session
from rasp_tuner.tune.measure import measure
from rasp_tuner.tune.situations import Case, cases_of
from rasp_tuner.tune.verdict import goals_of, keeps_limits, log_cost

ROUNDS = 3  # in each, every entrant runs once
MOST_INPUTS = 8  # with more of them, inputs have the recommendation without a play-off
IDLE = 0.01  # share of the cost: a knob that changes less is left at its default
CLEAR = 2.0  # deviations by which a setting must beat the default
UNKNOWN_NOISE = 0.05  # deviation of log(cost), where no setting ran twice


@dataclass(frozen=True, slots=True)
class Standing:
    """How an entrant did: log of its cost over the default's."""

    params: Params
    cost: float
    runs: int


def play_off(session: Session, on_run: Callable[[int, int], None]) -> dict[str | None, Params]:
    """Input -> the setting to compare with the default; empty where situations cannot be chosen, or are too many."""
    cases = cases_of(session)
    if not cases or len(cases) > MOST_INPUTS or (cases[0].input is None and cases[0].context):
        return {}
    after, known = len(session.runs), _known(session)
    chosen: dict[str | None, Params] = {}
    for place, case in enumerate(cases):
        first = known.get((place, 0))
        entrants = first["entrants"] if first is not None else entrants_of(session, case)
        rounds = []
        for turn in range(ROUNDS if len(entrants) > 1 else 0):
            entry = known.get((place, turn))
            if entry is None:
                on_run(place * ROUNDS + turn, len(cases) * ROUNDS)
                entry = _run_round(session, case, place, turn, entrants, after)
                session.journal.append(entry)
            rounds.append(entry["metrics"])
        chosen[case.input] = winner(session, case, entrants, rounds)
    return chosen


def entrants_of(session: Session, case: Case) -> list[Params]:
    """The default first, and what may be better."""
    recommended = session.tuner.recommend(session.given(case.context))
    tried = _scores(session, _own_runs(session, case))
    best = min(tried.values(), key=lambda one: one.cost, default=None)
    found = [session.study.default, simplified(session, case, recommended), recommended]
    found += [best.params] if best is not None else []
    return [params for i, params in enumerate(found) if params not in found[:i]]


def simplified(session: Session, case: Case, params: Params) -> Params:
    """The setting with knobs back at their defaults, one by one, as long as that may well cost nothing."""
    study, context = session.study, session.given(case.context)
    given, left = dict(params), [name for name in params if params[name] != study.default.get(name)]

    def expected(setting: Params) -> float:
        levels = session.tuner.what_if(context, setting).given.metrics
        best = session.tuner.what_if(context, params).given.metrics
        if not levels or not best:
            return math.inf
        before, after = ({name: one.mean for name, one in side.items()} for side in (best, levels))
        return log_cost(before, after, goals_of(study.metrics))

    while left:
        offers = {name: offer for name in left if (offer := _with_default(session, given, name)) is not None}
        if not offers:
            break
        costs = {name: expected(offer) for name, offer in offers.items()}
        name = min(costs, key=costs.__getitem__)
        if costs[name] > max(IDLE, session.noise() or 0.0):  # what is chosen was lucky: the play-off tells
            break
        given = offers[name]
        left.remove(name)
    return given


def _with_default(session: Session, params: Params, name: str) -> Params | None:
    """The setting with one knob at its default; None where that cannot be."""
    space, default = session.study.space, session.study.default
    try:
        offer, _ = space.what_ran(params, {name: default[name]})
        space.check_constraints(offer)
    except (InvalidValue, KeyError):  # a knob that does not exist beside the default, or a rule between knobs
        return None
    return offer


def winner(
    session: Session, case: Case, entrants: Sequence[Params], rounds: Sequence[Sequence[Mapping[str, float] | None]]
) -> Params:
    """The simplest entrant of those that cannot be told from the best."""
    default = session.study.default
    fresh = [
        Run(0, False, case.input, case.context, params, dict(metrics), 0.0, 0.0)
        for one in rounds
        for params, metrics in zip(entrants, one, strict=True)
        if metrics
    ]
    runs = _own_runs(session, case)
    by_search = [run for run in runs if not rounds or run.params == default]  # others were chosen for a lucky run
    stand = _scores(session, [*by_search, *fresh])
    stand = {key: one for key, one in stand.items() if one.params in entrants}
    if _key(default) not in stand:
        return entrants[-1]
    noise, best = _noise(session, [*runs, *fresh]), min(stand.values(), key=lambda one: one.cost)

    def behind(one: Standing, deviations: float) -> bool:
        unsure = noise * math.sqrt(1.0 / one.runs + 1.0 / best.runs)
        return one.cost - best.cost > max(IDLE, deviations * unsure)

    if not behind(stand[_key(default)], CLEAR):
        return default
    as_good = [one for one in stand.values() if not behind(one, 1.0)]
    return min(as_good, key=lambda one: (_moved(one.params, default), one.cost)).params


def _run_round(
    session: Session, case: Case, place: int, turn: int, entrants: Sequence[Params], after: int
) -> dict[str, Any]:
    """The journal's line of one round: all entrants, in random order."""
    order = np.random.default_rng([session.study.seed, after, place, turn]).permutation(len(entrants)).tolist()
    limit = session.limit_of(case.input)
    done = {i: measure(session.study, session.runner, entrants[i], case.input, after, limit).metrics for i in order}
    found = [done[i] for i in range(len(entrants))]
    names = ("kind", "after", "case", "round", "input", "entrants", "metrics")
    return dict(zip(names, ("playoff", after, place, turn, case.input, list(entrants), found), strict=True))


def _known(session: Session) -> dict[tuple[int, int], dict[str, Any]]:
    after = len(session.runs)
    return {(e["case"], e["round"]): e for e in session.journal.of_kind_now("playoff") if e["after"] == after}


def _own_runs(session: Session, case: Case) -> list[Run]:
    return [run for run in session.runs if run.input == case.input and run.metrics is not None and not run.stopped]


def _scores(session: Session, runs: Sequence[Run]) -> dict[str, Standing]:
    """By setting; those that break a limit are left out."""
    metrics, default = session.study.metrics, session.study.default
    level = {
        name: float(np.median([run.metrics[name] for run in runs if run.metrics and run.params == default] or [1.0]))
        for name in metrics
    }
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(_key(run.params), []).append(run)
    return {
        key: Standing(own[0].params, float(np.mean([_log_cost(session, level, run) for run in own])), len(own))
        for key, own in groups.items()
        if own[0].params == default or all(keeps_limits(run.metrics or {}, level, metrics) for run in own)
    }


def _log_cost(session: Session, level: Mapping[str, float], run: Run) -> float:
    return log_cost(level, run.metrics or {}, goals_of(session.study.metrics))


def _noise(session: Session, runs: Sequence[Run]) -> float:
    """The deviation of log(cost) of one run, from settings that ran more than once here."""
    level = dict.fromkeys(session.study.metrics, 1.0)
    groups: dict[str, list[float]] = {}
    for run in runs:
        groups.setdefault(_key(run.params), []).append(_log_cost(session, level, run))
    squares = sum(float(np.var(own)) * len(own) for own in groups.values())
    spare = sum(len(own) - 1 for own in groups.values())
    return math.sqrt(squares / spare) if spare else UNKNOWN_NOISE


def _key(params: Params) -> str:
    return repr(sorted(params.items()))


def _moved(params: Params, default: Params) -> int:
    """How many knobs are not as they were."""
    return sum(value != default.get(name) for name, value in params.items())
