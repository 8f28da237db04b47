"""The final comparison: recommendation against default, in pairs that run back to back in random order."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rasp_tuner.tune.loop import Session
from rasp_tuner.tune.measure import measure
from rasp_tuner.tune.situations import CaseGroup, nearest_situation

LEAST_PAIRS = 6  # in a situation
USUAL_PAIRS = 20  # in all situations together, unless the least is more


@dataclass(frozen=True, slots=True)
class PairedRun:
    """The default and the recommendation, run one after the other; None in the place of metrics: it failed."""

    situation: int
    input: str | None
    default: dict[str, float] | None
    recommended: dict[str, float] | None
    seconds: float


@dataclass(frozen=True, slots=True)
class _Planned:
    index: int
    situation: int | None  # None: whatever the situation is when it runs
    input: str | None
    default_first: bool


def pairs_each(compared: int, wanted: int | None) -> int:
    """How many pairs each of the situations that have something to compare gets."""
    if wanted is not None or not compared:
        return wanted or 0
    return max(LEAST_PAIRS, math.ceil(USUAL_PAIRS / compared))


def compare(
    session: Session, situations: Sequence[CaseGroup], each: int, on_pair: Callable[[int, int], None]
) -> list[PairedRun]:
    """All pairs; those that the journal does not hold yet are run. `on_pair` gets how many are done, of how many."""
    plan = _plan(session, situations, each)
    after = len(session.runs)
    known = {entry["pair"]: entry for entry in session.journal.of_kind_now("final") if entry["after"] == after}
    pairs: list[PairedRun] = []
    for planned in plan:
        entry = known.get(planned.index)
        if entry is None:
            on_pair(len(pairs), len(plan))
            entry = _run_pair(session, situations, planned, after)
            if entry is None:
                continue
            session.journal.append(entry)
        pairs.append(
            PairedRun(entry["situation"], entry["input"], entry["default"], entry["recommended"], entry["seconds"])
        )
    return pairs


def _plan(session: Session, situations: Sequence[CaseGroup], each: int) -> list[_Planned]:
    """Rounds over all situations that have something to compare, shuffled within each round; the same on every call."""
    rng = np.random.default_rng([session.study.seed, len(session.runs)])
    compared = [i for i, situation in enumerate(situations) if situation.params != session.study.default]
    plan: list[_Planned] = []
    for turn in range(each):
        for i in rng.permutation(len(compared)):
            place = compared[i]
            inputs = situations[place].inputs
            free = bool(situations[place].cases[0].context) and not inputs  # nobody can choose the hour of the day
            input = inputs[turn % len(inputs)] if inputs else None
            plan.append(_Planned(len(plan), None if free else place, input, bool(rng.integers(2))))
    return plan


def _run_pair(
    session: Session, situations: Sequence[CaseGroup], planned: _Planned, after: int
) -> dict[str, Any] | None:
    """The journal's line of one pair; None where the recommendation is the default right now."""
    context = session.read_context(planned.input)
    if planned.situation is None:
        place, params = nearest_situation(situations, context), session.tuner.recommend(session.given(context))
        if params == session.study.default:
            return None
    else:
        place, params = planned.situation, situations[planned.situation].params
    sides = {"default": session.study.default, "recommended": params}
    order = ["default", "recommended"] if planned.default_first else ["recommended", "default"]
    limit = session.limit_of(planned.input)
    done = {side: measure(session.study, session.runner, sides[side], planned.input, after, limit) for side in order}
    return {
        "kind": "final",
        "after": after,
        "pair": planned.index,
        "situation": place,
        "input": planned.input,
        "context": context,
        "order": order,
        "params": params,
        "default": done["default"].metrics,
        "recommended": done["recommended"].metrics,
        "failures": {side: result.failure for side, result in done.items() if result.failure},
        "seconds": round(sum(result.seconds for result in done.values()), 6),
    }
