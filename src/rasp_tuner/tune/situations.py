"""Situations: inputs or contexts that get the same settings, in words a person would use."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rasp_tuner.report.situations import NAMES_SHOWN, context_words, features, grouped, some_of
from rasp_tuner.space import Params
from rasp_tuner.tune.context_sources import ContextValue
from rasp_tuner.tune.loop import Session


@dataclass(frozen=True)
class Case:
    """One input, or one context without an input, as it was met."""

    input: str | None
    context: dict[str, ContextValue] = field(hash=False)


@dataclass(frozen=True)
class CaseGroup:
    """Cases that get the same settings."""

    label: str
    cases: tuple[Case, ...]
    params: Params

    @property
    def inputs(self) -> list[str]:
        return [case.input for case in self.cases if case.input is not None]


def cases_of(session: Session) -> list[Case]:
    """What was met so far."""
    met: dict[object, Case] = {}
    for run in session.runs:
        key = run.input if run.input is not None else tuple(run.context.items())
        met[key] = Case(run.input, run.context)  # the latest context of an input
    return list(met.values())


def situations_of(session: Session, found: Mapping[str | None, Params] | None = None) -> list[CaseGroup]:
    """The situations met so far, each with its recommendation; most cases first.

    `found` has the settings of inputs that a play-off was about: each of these is a situation of its own.
    """
    cases = cases_of(session)
    if not cases:
        return []
    if found:
        label = "all" if len(cases) == 1 else None
        return [CaseGroup(label or str(case.input), (case,), found[case.input]) for case in cases]
    recommended = [session.tuner.recommend(session.given(case.context)) for case in cases]
    chosen = grouped([case.context for case in cases], recommended)
    alone = len(chosen) == 1
    return [
        CaseGroup(
            "all" if alone else _label([cases[i] for i in members]),
            tuple(cases[i] for i in members),
            recommended[typical],
        )
        for members, typical in chosen
    ]


def nearest_situation(situations: Sequence[CaseGroup], context: Mapping[str, ContextValue]) -> int:
    """Which situation a context belongs to: that of the most similar case."""
    owners = [i for i, situation in enumerate(situations) for _ in situation.cases]
    points = features([*(case.context for situation in situations for case in situation.cases), context])
    distances = np.square(points[:-1] - points[-1]).sum(axis=1)
    return owners[int(np.argmin(distances))]


def _label(cases: Sequence[Case]) -> str:
    names = [case.input for case in cases if case.input is not None]
    if names:
        return some_of(names, f" and {len(names) - NAMES_SHOWN} more")
    return context_words([case.context for case in cases], list(cases[0].context))
