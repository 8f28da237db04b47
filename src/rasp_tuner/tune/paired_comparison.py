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


def pairs_each(compared: int, wanted: int | None) -> int:
    """How many pairs each of the situations that have something to compare gets."""
    if wanted is not None or not compared:
        return wanted or 0
    return max(LEAST_PAIRS, math.ceil(USUAL_PAIRS / compared))


def compare(
    session: Session, situations: Sequence[CaseGroup], each: int, on_pair: Callable[[int, int], None]
) -> list[PairedRun]:
    """All pairs; those that the journal does not hold yet are run. `on_pair` gets how many are done, of how many.

    They are rounds over all situations that have something to compare, shuffled within each round; the same on every
    call.
    """
    after, default = len(session.runs), session.study.default
    known = {entry["pair"]: entry for entry in session.journal.of_kind_now("final") if entry["after"] == after}
    rng = np.random.default_rng([session.study.seed, after])
    compared = [i for i, situation in enumerate(situations) if situation.params != default]
    order = ((turn, compared[i]) for turn in range(each) for i in rng.permutation(len(compared)))
    pairs: list[PairedRun] = []
    for index, (turn, place) in enumerate(order):
        inputs, default_first = situations[place].inputs, bool(rng.integers(2))  # drawn before the next round's order
        entry = known.get(index)
        if entry is None:
            on_pair(len(pairs), each * len(compared))
            found = _run_pair(session, situations, place, inputs[turn % len(inputs)] if inputs else None, default_first)
            if found is None:
                continue
            entry = {"kind": "final", "after": after, "pair": index, **found}
            session.journal.append(entry)
        pairs.append(
            PairedRun(entry["situation"], entry["input"], entry["default"], entry["recommended"], entry["seconds"])
        )
    return pairs


def _run_pair(
    session: Session, situations: Sequence[CaseGroup], place: int, input: str | None, default_first: bool
) -> dict[str, Any] | None:
    """What came of one pair; None where the recommendation is the default right now."""
    context, params = session.read_context(input), situations[place].params
    if situations[place].cases[0].context and input is None:  # nobody can choose the hour of the day: it is as it is
        place, params = nearest_situation(situations, context), session.tuner.recommend(session.given(context))
        if params == session.study.default:
            return None
    sides = {"default": session.study.default, "recommended": params}
    order = ["default", "recommended"] if default_first else ["recommended", "default"]
    after, limit = len(session.runs), session.limit_of(input)
    done = {side: measure(session.study, session.runner, sides[side], input, after, limit) for side in order}
    return {
        "situation": place,
        "input": input,
        "context": context,
        "order": order,
        "params": params,
        "default": done["default"].metrics,
        "recommended": done["recommended"].metrics,
        "failures": {side: result.failure for side, result in done.items() if result.failure},
        "seconds": round(sum(result.seconds for result in done.values()), 6),
    }
