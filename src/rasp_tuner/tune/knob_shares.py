"""Which knobs matter: what each knob that was moved changes, measured; those without an effect go back.

After the play-off, the winner of an input and the winner with one knob back at its default run in rounds, for each
knob that was moved. Knobs that change nothing go back together, if that is as good. What the others change is told,
and of the knobs that were left alone whether they seem to do anything.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rasp_tuner.page.words import TIMES_FROM, times_words, value_words
from rasp_tuner.report.paired import Effect
from rasp_tuner.space import Categorical, Params, Value
from rasp_tuner.tune.loop import Session
from rasp_tuner.tune.playoff import (
    IDLE,
    Rounds,
    expected_cost,
    known_rounds,
    run_round,
    with_default,
    with_value,
)
from rasp_tuner.tune.situations import Case, cases_of
from rasp_tuner.tune.verdict import LEAST_RATIO, goals_of, is_upwards
from rasp_tuner.types.knob_shares import NO_EFFECT

FEWEST_ROUNDS, MOST_ROUNDS = 4, 8  # the more only where noise asks for it
MOST_KNOBS = 8  # that are measured on an input: of more, those with the least expected effect
SURE = 2.5  # deviations: after each round it is asked again, and of two knobs without an effect one more is lucky
LOOKED_AT = 5  # values of a knob whose effect is expected by the model
FAINT = 0.03  # share of the cost: less is "no effect shown", if it is only expected

NO_EFFECT_NOTE = f"{NO_EFFECT}, left alone"
CHECK, JOINT, SOME = "knobs", "knobs_back", "knobs_some_back"  # kinds of lines in the journal


@dataclass(frozen=True, slots=True)
class KnobShare:
    """What one knob does in a recommendation."""

    name: str
    value: Value
    moved: bool
    change: float | None = None  # of the metric by moving it, as a share: -0.55; None: not known
    measured: bool = False
    note: str = ""  # in the place of a change

    def __str__(self) -> str:
        """In words: "LC_ALL=C: -55%".

        >>> str(KnobShare("LC_ALL", "C", True, -0.55, True)), str(KnobShare("buffer", 8, True, -0.08))
        ('LC_ALL=C: -55%', 'buffer=8: about -8.0%')
        >>> str(KnobShare("threads", 2, False, note=NO_EFFECT_NOTE))
        'threads: no effect shown, left alone'
        """
        head = f"{self.name}={value_words(self.value)}" if self.moved else self.name
        if self.change is None:
            return f"{head}: {self.note}"
        return f"{head}: {'' if self.measured else 'about '}{change_words(self.change)}"

    def to_json(self) -> dict[str, Any]:
        how = "measured" if self.measured else "expected"
        known = {} if self.change is None else {"change": self.change, "how": how}
        return {"knob": self.name, "moved": self.moved, **known, **({"note": self.note} if self.note else {})}


Shares = Mapping[str | None, Sequence[KnobShare]]


def change_words(change: float) -> str:
    """A change of a metric: percent, or a factor where percent would be long.

    >>> [change_words(x) for x in (-0.551, 0.3, -0.987, 11.0, -0.004, -0.9999)]
    ['-55%', '+30%', '-98.7%', '12 times', 'under 1%', 'under 0.001 times']
    """
    percent = 100.0 * change
    if abs(percent) < 100.0 * IDLE:
        return "under 1%"
    if 1.0 + change >= TIMES_FROM:
        return times_words(1.0 + change)
    if 1.0 + change < LEAST_RATIO:
        return f"under {times_words(LEAST_RATIO)}"
    return f"{percent:+.0f}%" if 9.95 <= abs(percent) < 95.0 or percent > 0.0 else f"{percent:+.1f}%"


def check_knobs(
    session: Session, found: Mapping[str | None, Params], pairs: int, on_round: Callable[[int, int], None]
) -> tuple[dict[str | None, Params], Shares]:
    """Settings without idle knobs, and what each knob does; `pairs` are those that each final comparison will have."""
    cases = cases_of(session)
    settled: dict[str | None, Params] = {}
    shares: dict[str | None, Sequence[KnobShare]] = {}
    for place, case in enumerate(cases):
        params = found[case.input]
        if params == session.study.default:
            settled[case.input] = params
            continue
        check = _Check(session, case, place, max(2, pairs // 2), lambda i=place: on_round(i, len(cases)))  # type: ignore[misc]
        settled[case.input], shares[case.input] = check.settle(params)
    return settled, shares


def expected_shares(session: Session, case: Case, params: Params) -> list[KnobShare]:
    """What each knob does as the tuner expects it, where nothing was measured for it."""
    shares = []
    for name in session.study.knobs:
        if name not in params:
            continue
        if params[name] == session.study.default.get(name):
            shares.append(left_alone(session, case, params, name))
        else:
            offer = with_default(session, params, name)
            cost = math.inf if offer is None else expected_cost(session, case, offer, params)
            shares.append(_share(session, params, name, -cost if math.isfinite(cost) else None, measured=False))
    return shares


def with_final_pairs(shares: Sequence[KnobShare], effect: Effect | None) -> list[KnobShare]:
    """The shares, where a knob that alone was moved has the whole effect of the final comparison."""
    moved = [share for share in shares if share.moved]
    if effect is None or len(moved) != 1:
        return list(shares)
    is_ratio = effect.kind == "ratio"
    change, note = (effect.value - 1.0, "") if is_ratio else (None, "the whole difference")
    return [replace(one, change=change, measured=is_ratio, note=note) if one.moved else one for one in shares]


def left_alone(session: Session, case: Case, params: Params, name: str) -> KnobShare:
    """A knob at its default: whether it seems to do nothing, or its default to be the best."""
    others = [with_value(session, params, name, value) for value in values_of(session, name)]
    offers = [offer for offer in others if offer is not None and offer != params]
    costs = [cost for offer in offers if math.isfinite(cost := expected_cost(session, case, offer, params))]
    if not costs:
        note = "left alone"
    elif max(map(abs, costs)) <= max(FAINT, 0.5 * (session.noise() or 0.0)):
        note = NO_EFFECT_NOTE
    else:
        least = min(expected_cost(session, case, offer, params, "low") for offer in offers)
        note = "the default is best, left alone" if least > 0.0 else "no gain was shown, left alone"
    return KnobShare(name, params[name], False, note=note)


class _Check:
    """The check of one input's winner."""

    def __init__(self, session: Session, case: Case, place: int, most: int, on_round: Callable[[], None]) -> None:
        self._session, self._case, self._place, self._on_round = session, case, place, on_round
        self._least, self._most = min(FEWEST_ROUNDS, most), min(MOST_ROUNDS, most)

    def settle(self, params: Params) -> tuple[Params, list[KnobShare]]:
        default = self._session.study.default
        moved = [name for name in params if params[name] != default.get(name)]
        backs = {name: with_default(self._session, params, name) for name in moved}
        offers = {name: offer for name, offer in backs.items() if offer is not None}
        if len(moved) < 2 or not offers:  # one knob alone: the final pairs are about it
            return params, self._told(params, {})
        likely = {name: expected_cost(self._session, self._case, offer, params) for name, offer in offers.items()}
        looked_at = sorted(offers, key=lambda name: likely[name])[:MOST_KNOBS]
        rounds = self._rounds(CHECK, [params, *(offers[name] for name in looked_at)])
        costs = {name: rounds.cost(i) for i, name in enumerate(looked_at, 1) if rounds.keeps_limits(i)}
        needed = [name for name in looked_at if costs.get(name) is None]  # fails or breaks a limit without it
        known = {name: cost for name, cost in costs.items() if cost is not None}
        idle = sorted(
            (name for i, name in enumerate(looked_at, 1) if name in known and _is_idle(rounds, i)),
            key=known.__getitem__,
        )
        kept, together = self._without(params, idle)
        changes = {name: -cost for name, cost in known.items() if name not in idle} | together
        return kept, self._told(kept, changes, needed, [name for name in idle if kept[name] == default.get(name)])

    def _without(self, params: Params, idle: Sequence[str]) -> tuple[Params, dict[str, float]]:
        """The setting with idle knobs back, as many as go back together, and what the next of them does.

        Each of them alone changes nothing, but several together may.
        """
        names, fewer = [""], [params]  # each setting has one knob less that was moved
        for name in idle:
            offer = with_default(self._session, fewer[-1], name)
            if offer is not None and offer != self._session.study.default:
                names.append(name)
                fewer.append(offer)
        if len(fewer) <= 2 or _is_idle(self._rounds(JOINT, [params, fewer[-1]]), 1):
            return fewer[-1], {}
        rounds = self._rounds(SOME, fewer)
        back = max((i for i in range(2, len(fewer) - 1) if _is_idle(rounds, i)), default=1)
        before, after = rounds.cost(back), rounds.cost(back + 1)
        change = None if before is None or after is None else before - after
        clear = change is not None and change < -max(IDLE, rounds.unsure())
        return fewer[back], {names[back + 1]: change} if change is not None and clear else {}

    def _rounds(self, kind: str, settings: Sequence[Params]) -> Rounds:
        """As many rounds as it takes to tell, or as there may be; those in the journal are not run again."""
        known = known_rounds(self._session, kind)
        done: list[Sequence[Mapping[str, float] | None]] = []
        while True:
            table = Rounds(self._session, self._case, done) if len(done) >= self._least else None
            if table is not None and (len(done) >= self._most or _can_be_told(table, len(settings))):
                return table
            entry = known.get((self._place, len(done)))
            if entry is None:
                self._on_round()
                entry = run_round(self._session, self._case, kind, self._place, len(done), settings)
                self._session.journal.append(entry)
            done.append(entry["metrics"])

    def _told(
        self, params: Params, changes: Mapping[str, float], needed: Sequence[str] = (), back: Sequence[str] = ()
    ) -> list[KnobShare]:
        default, shares = self._session.study.default, []
        for name in params:
            if name in back:
                shares.append(KnobShare(name, params[name], False, note=NO_EFFECT_NOTE))
            elif params[name] == default.get(name):
                shares.append(left_alone(self._session, self._case, params, name))
            elif name in needed:
                shares.append(KnobShare(name, params[name], True, note="needed: without it runs fail or break a limit"))
            else:
                shares.append(_share(self._session, params, name, changes.get(name), measured=True))
        return shares


def values_of(session: Session, name: str) -> list[Value]:
    """Some values of a knob, from end to end; all choices."""
    knob, space = session.study.knobs[name], session.study.space
    if isinstance(knob, Categorical):
        return list(knob.choices)
    found = (space.from_unit(np.full(space.dim, at)) for at in np.linspace(0.0, 1.0, LOOKED_AT))
    return list(dict.fromkeys(one[name] for one in found if name in one))


def _is_idle(table: Rounds, place: int) -> bool:
    """Whether a setting runs, keeps the limits, and is not surely worse than the first one."""
    cost = table.cost(place)
    return cost is not None and table.keeps_limits(place) and cost <= max(IDLE, SURE * table.unsure())


def _can_be_told(table: Rounds, settings: int) -> bool:
    """Whether every cost is idle or clear, as far as noise lets one say."""
    unsure = table.unsure()
    costs = [table.cost(i) for i in range(1, settings)]
    return unsure <= IDLE or all(cost is None or abs(cost) > SURE * unsure for cost in costs)


def _share(session: Session, params: Params, name: str, log_change: float | None, measured: bool) -> KnobShare:
    """The share of a knob that was moved, from the logarithm of what moving it does to the cost."""
    if log_change is None:
        return KnobShare(name, params[name], True, note="moved together with others")
    upwards = is_upwards(goals_of(session.study.metrics))
    return KnobShare(name, params[name], True, math.expm1(-log_change if upwards else log_change), measured)
