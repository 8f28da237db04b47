"""Situations: inputs or contexts that get the same settings, in words a person would use."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rasp_tuner.space import Params
from rasp_tuner.tune.context_sources import ContextValue
from rasp_tuner.tune.loop import Session
from rasp_tuner.tune.words import number_words

MOST_SITUATIONS = 8  # beyond that, similar ones are joined
JOINED_SITUATIONS = 5
NAMES_SHOWN = 3


@dataclass(frozen=True)
class Case:
    """One input, or one context without an input, as it was met."""

    input: str | None
    context: dict[str, ContextValue] = field(hash=False)


@dataclass(frozen=True)
class Situation:
    """Cases that get the same settings."""

    label: str
    cases: tuple[Case, ...]
    params: Params

    @property
    def inputs(self) -> list[str]:
        return [case.input for case in self.cases if case.input is not None]


def situations_of(session: Session) -> list[Situation]:
    """The situations met so far, each with its recommendation; most cases first."""
    met: dict[object, Case] = {}
    for run in session.runs:
        key = run.input if run.input is not None else tuple(run.context.items())
        met[key] = Case(run.input, run.context)  # the latest context of an input
    cases = list(met.values())
    if not cases:
        return []
    recommended = [session.tuner.recommend(session.given(case.context)) for case in cases]
    groups: dict[object, list[int]] = {}
    for i, params in enumerate(recommended):
        groups.setdefault(tuple(params.items()), []).append(i)
    chosen = [(members, members[0]) for members in groups.values()]
    if len(chosen) > MOST_SITUATIONS:
        points = _features([case.context for case in cases])
        chosen = [(members, _middle(points, members)) for members in clusters(points, JOINED_SITUATIONS)]
    chosen.sort(key=lambda group: (-len(group[0]), group[0][0]))
    alone = len(chosen) == 1
    return [
        Situation(
            "all" if alone else _label([cases[i] for i in members]),
            tuple(cases[i] for i in members),
            recommended[typical],
        )
        for members, typical in chosen
    ]


def nearest_situation(situations: Sequence[Situation], context: Mapping[str, ContextValue]) -> int:
    """Which situation a context belongs to: that of the most similar case."""
    owners = [i for i, situation in enumerate(situations) for _ in situation.cases]
    points = _features([*(case.context for situation in situations for case in situation.cases), context])
    distances = np.square(points[:-1] - points[-1]).sum(axis=1)
    return owners[int(np.argmin(distances))]


def clusters(points: np.ndarray, count: int) -> list[list[int]]:
    """Rows of `points` [n, d] in at most `count` groups: k-means from far-apart rows, the same on every call."""
    chosen = [0]
    while len(chosen) < count:
        distances = np.min([np.square(points - points[i]).sum(axis=1) for i in chosen], axis=0)
        if distances.max() <= 0.0:
            break
        chosen.append(int(np.argmax(distances)))
    centres = points[chosen]
    for _ in range(50):
        owner = np.argmin(np.square(points[:, None, :] - centres[None]).sum(axis=2), axis=1)
        moved = np.array([points[owner == k].mean(axis=0) if (owner == k).any() else c for k, c in enumerate(centres)])
        if np.allclose(moved, centres):
            break
        centres = moved
    return [list(np.flatnonzero(owner == k)) for k in range(len(centres)) if (owner == k).any()]


def _middle(points: np.ndarray, members: Sequence[int]) -> int:
    rows = points[list(members)]
    return members[int(np.argmin(np.square(rows - rows.mean(axis=0)).sum(axis=1)))]


def _features(contexts: Sequence[Mapping[str, ContextValue]]) -> np.ndarray:
    """Contexts as rows [n, d]: ranks of numbers, one column for each text, so that no unit outweighs another."""
    columns = []
    for name in contexts[0]:
        values = [context[name] for context in contexts]
        if all(isinstance(value, (int, float)) for value in values):
            order = np.unique(np.array(values, dtype=np.float64), return_inverse=True)[1]
            columns.append(order / max(1, order.max()))
        else:
            columns += [np.array([float(v == text) for v in values]) for text in dict.fromkeys(map(str, values))]
    return np.stack(columns, axis=1) if columns else np.zeros((len(contexts), 1))


def _label(cases: Sequence[Case]) -> str:
    names = [case.input for case in cases if case.input is not None]
    if names:
        shown = ", ".join(names[:NAMES_SHOWN])
        return shown if len(names) <= NAMES_SHOWN else f"{shown} and {len(names) - NAMES_SHOWN} more"
    parts = []
    for name in cases[0].context:
        values = [case.context[name] for case in cases]
        numbers = [value for value in values if isinstance(value, (int, float))]
        if len(numbers) == len(values):
            low, high = min(numbers), max(numbers)
            span = number_words(low) if low == high else f"{number_words(low)} to {number_words(high)}"
        else:
            texts = list(dict.fromkeys(map(str, values)))
            span = ", ".join(texts[:NAMES_SHOWN]) + (" ..." if len(texts) > NAMES_SHOWN else "")
        parts.append(f"{name} {span}")
    return "; ".join(parts)
