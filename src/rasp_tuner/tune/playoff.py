"""The play-off: of every input, the settings that may be the best run a few times more beside the default.

Entrants are what the tuner recommends, what came out best, and the recommendation with the knobs that seem to do
nothing back at their defaults. The simplest of those that are as good as the best goes into the final comparison; the
default, unless it is clearly behind, or was far behind in the search.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rasp_tuner.errors import InvalidValue
from rasp_tuner.space import Params, Value
from rasp_tuner.tune.loop import Run, Session, deviation_within
from rasp_tuner.tune.measure import measure
from rasp_tuner.tune.situations import Case, cases_of
from rasp_tuner.tune.study import TuneStudy
from rasp_tuner.tune.verdict import goals_of, keeps_limits, log_cost

ROUNDS = 3  # in each, every entrant runs once
MOST_INPUTS = 8  # with more of them, inputs have the recommendation without a play-off
IDLE = 0.01  # share of the cost: a knob that changes less is left at its default
CLEAR = 2.0  # deviations by which a setting must beat the default
FAR, LARGE = 4.0, 0.25  # deviations of one run, and of log(cost): what was so much better in the search is compared
OF_MEDIAN = 0.5 * math.pi  # variance of a median over that of a mean
UNKNOWN_NOISE = 0.05  # deviation of log(cost), where no setting ran twice


@dataclass(frozen=True, slots=True)
class Standing:
    """How an entrant did."""

    params: Params
    cost: float  # log of it over the default's
    metrics: Mapping[str, float]  # medians
    usual: Mapping[str, float] | None  # those of the default; None: every run of it failed


def play_off(session: Session, on_run: Callable[[int, int], None]) -> dict[str | None, Params]:
    """Input -> the setting to compare with the default; empty where situations cannot be chosen, or are too many."""
    cases = cases_of(session)
    if not cases or len(cases) > MOST_INPUTS or (cases[0].input is None and cases[0].context):
        return {}
    known = known_rounds(session, "playoff")
    chosen: dict[str | None, Params] = {}
    for place, case in enumerate(cases):
        first = known.get((place, 0))
        entrants = first["entrants"] if first is not None else entrants_of(session, case)
        rounds = []
        for turn in range(ROUNDS if len(entrants) > 1 else 0):
            entry = known.get((place, turn))
            if entry is None:
                on_run(place * ROUNDS + turn, len(cases) * ROUNDS)
                entry = run_round(session, case, "playoff", place, turn, entrants)
                session.journal.append(entry)
            rounds.append(entry["metrics"])
        chosen[case.input] = winner(session, case, entrants, rounds)
    return chosen


def entrants_of(session: Session, case: Case) -> list[Params]:
    """The default first, and what may be better."""
    recommended = session.tuner.recommend(session.given(case.context))
    best = best_measured(session, case)
    found = [session.study.default, simplified(session, case, recommended), recommended]
    found += [best.params] if best is not None else []
    return [params for i, params in enumerate(found) if params not in found[:i]]


def best_measured(session: Session, case: Case) -> Standing | None:
    """The setting that came out best on an input, of those that keep the limits; None where nothing did."""
    tried = _scores(session, _own_runs(session, case))
    return min(tried.values(), key=lambda one: one.cost, default=None)


def simplified(session: Session, case: Case, params: Params) -> Params:
    """The setting with knobs back at their defaults, one by one, as long as that may well cost nothing."""
    default = session.study.default
    given, left = dict(params), [name for name in params if params[name] != default.get(name)]
    while left:
        offers = {name: offer for name in left if (offer := with_default(session, given, name)) is not None}
        if not offers:
            break
        costs = {name: expected_cost(session, case, offer, params) for name, offer in offers.items()}
        name = min(costs, key=lambda name: costs[name])
        if costs[name] > max(IDLE, session.noise() or 0.0):  # what is chosen was lucky: the play-off tells
            break
        given = offers[name]
        left.remove(name)
    return given


def expected_cost(
    session: Session, case: Case, params: Params, beside: Params, end: Literal["mean", "low"] = "mean"
) -> float:
    """Log cost of a setting over that of another, by the tuner's model: on average, or the least that it may be.

    Infinite while nothing is known.
    """
    goals, context = goals_of(session.study.metrics), session.given(case.context)
    sides = [session.tuner.what_if(context, one).given.metrics for one in (beside, params)]
    if not all(sides):
        return math.inf
    before = {name: one.mean for name, one in sides[0].items()}
    after = {name: one.mean for name, one in sides[1].items()}
    if end == "low":
        for name, one in sides[1].items():
            after[name] = one.low if name in goals and goals[name].metric.direction == "min" else one.high
    return log_cost(before, after, goals)


def with_default(session: Session, params: Params, name: str) -> Params | None:
    """The setting with one knob at its default; None where that cannot be."""
    default = session.study.default
    return with_value(session, params, name, default[name]) if name in default else None


def with_value(session: Session, params: Params, name: str, value: Value) -> Params | None:
    """The setting with another value of one knob; None where that cannot be."""
    space = session.study.space
    try:
        offer, _ = space.what_ran(params, {name: value})
        space.check_constraints(offer)
    except InvalidValue:  # a rule between knobs, or a knob that does not exist beside the others
        return None
    return offer


def winner(
    session: Session, case: Case, entrants: Sequence[Params], rounds: Sequence[Sequence[Mapping[str, float] | None]]
) -> Params:
    """The simplest entrant of those that cannot be told from the best; the default unless it is clearly behind."""
    if not rounds:
        return entrants[-1]
    table = Rounds(session, case, rounds)
    costs = {i: cost for i in range(len(entrants)) if table.keeps_limits(i) and (cost := table.cost(i)) is not None}
    if not costs:  # the default fails, or nothing keeps the limits
        return entrants[-1 if table.cost(0) is None else 0]
    best = min(costs.values())
    unsure = table.unsure()
    clear = 0.0 if _was_far_ahead(session, case, entrants) else CLEAR
    if 0 in costs and costs[0] - best <= max(IDLE, clear * unsure):
        return entrants[0]
    as_good = [i for i, cost in costs.items() if i and cost - best <= max(IDLE, unsure)]
    return entrants[min(as_good, key=lambda i: (_moved(entrants[i], entrants[0]), costs[i]))]


def _was_far_ahead(session: Session, case: Case, entrants: Sequence[Params]) -> bool:
    """Whether an entrant came out so much better than the default in the search that noise does not explain it."""
    own = _own_runs(session, case)
    tried = _scores(session, own)
    costs = [tried[key].cost for params in entrants[1:] if (key := _key(params)) in tried]
    noise = max(_noise(session, own), session.noise() or 0.0)  # few repeats may agree by luck
    return min(costs, default=0.0) < -max(FAR * noise, LARGE)


class Rounds:
    """Settings that ran in rounds, each once in every round: what changes from round to round hits all alike."""

    def __init__(self, session: Session, case: Case, rounds: Sequence[Sequence[Mapping[str, float] | None]]) -> None:
        self._goals, self._metrics = goals_of(session.study.metrics), session.study.metrics
        self._rounds, self._usual = rounds, _usual(session, case)
        self._before = _noise(session, _own_runs(session, case))

    def cost(self, place: int) -> float | None:
        """Median log cost of a setting over the first one's; None where one of them always fails."""
        gaps = self._gaps(place)
        return float(np.median(gaps)) if gaps else None

    def keeps_limits(self, place: int) -> bool:
        """Whether a setting runs and keeps all limits, in most rounds."""
        own = [turn[place] for turn in self._rounds]
        return 2 * sum(one is not None and keeps_limits(one, self._usual, self._metrics) for one in own) > len(own)

    def unsure(self) -> float:
        """The deviation of a cost: from what rounds leave unexplained and, as two rounds more, from the search."""
        squares, spare = 2.0 * self._before**2, 2.0
        for place in range(1, len(self._rounds[0])):
            gaps = self._gaps(place)
            squares += 0.5 * float(np.var(gaps)) * len(gaps) if gaps else 0.0  # each is of two runs
            spare += max(len(gaps) - 1, 0)
        return math.sqrt(squares / spare) * math.sqrt(OF_MEDIAN * 2.0 / len(self._rounds))

    def _gaps(self, place: int) -> list[float]:
        pairs = [(turn[0], turn[place]) for turn in self._rounds]
        return [log_cost(first, other, self._goals) for first, other in pairs if first and other]


def _level(found: Sequence[Mapping[str, float]], study: TuneStudy) -> dict[str, float]:
    """The median of each metric; 1 where nothing was measured."""
    return {name: float(np.median([one[name] for one in found] or [1.0])) for name in study.metrics}


def run_round(
    session: Session, case: Case, kind: str, place: int, turn: int, entrants: Sequence[Params]
) -> dict[str, Any]:
    """The journal's line of one round: all entrants, in random order."""
    after = len(session.runs)
    order = np.random.default_rng([session.study.seed, after, place, turn]).permutation(len(entrants)).tolist()
    limit = session.limit_of(case.input)
    done = {i: measure(session.study, session.runner, entrants[i], case.input, after, limit).metrics for i in order}
    found = [done[i] for i in range(len(entrants))]
    names = ("kind", "after", "case", "round", "input", "entrants", "metrics")
    return dict(zip(names, (kind, after, place, turn, case.input, list(entrants), found), strict=True))


def known_rounds(session: Session, kind: str) -> dict[tuple[int, int], dict[str, Any]]:
    """(case, round) -> the journal's line of it."""
    after = len(session.runs)
    return {(e["case"], e["round"]): e for e in session.journal.of_kind_now(kind) if e["after"] == after}


def never_kept(session: Session, cases: Sequence[Case]) -> str:
    """The limit that no run kept in these cases, in words: "errors at most 3"; empty where each was kept by some."""
    study, runs = session.study, [(run, _usual(session, case)) for case in cases for run in _own_runs(session, case)]
    for name, source in study.metrics.items():
        kept = (keeps_limits(run.metrics or {}, usual, {name: source}) for run, usual in runs)
        if source.limit_words and runs and not any(kept):
            return f"{name} {source.limit_words}"
    return ""


def _usual(session: Session, case: Case) -> dict[str, float]:
    """What the default comes to in a case: the median of each metric."""
    own = [run.metrics for run in _own_runs(session, case) if run.params == session.study.default and run.metrics]
    return _level(own, session.study)


def _own_runs(session: Session, case: Case) -> list[Run]:
    return [run for run in session.runs if run.input == case.input and run.metrics is not None and not run.stopped]


def _scores(session: Session, runs: Sequence[Run]) -> dict[str, Standing]:
    """By setting; those that break a limit are left out."""
    metrics, default = session.study.metrics, session.study.default
    found = [run.metrics for run in runs if run.metrics and run.params == default]
    level = _level(found, session.study)
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(_key(run.params), []).append(run)
    return {
        key: Standing(
            own[0].params,
            float(np.mean([_log_cost(session, level, run) for run in own])),
            _level([run.metrics or {} for run in own], session.study),
            level if found else None,
        )
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
    found = deviation_within(groups.values())
    return UNKNOWN_NOISE if found is None else found


def _key(params: Params) -> str:
    return repr(sorted(params.items()))


def _moved(params: Params, default: Params) -> int:
    """How many knobs are not as they were."""
    return sum(value != default.get(name) for name, value in params.items())
