"""Situations: contexts that get the same settings, in words a person would use."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rasp_tuner.page.words import number_words
from rasp_tuner.space import Params

MOST_SITUATIONS = 8  # beyond that, similar ones are joined
JOINED_SITUATIONS = 5
NAMES_SHOWN = 3
LEAST_PART = 0.5  # of the values in the largest part of a range: a part with fewer is not told
MOST_KEPT = 0.8  # of the contexts: of names that keep so many, the one with the fewest parts tells them apart
NARROW_RANGE = 0.3  # of its middle: a range this narrow is told as one number


def grouped(
    contexts: Sequence[Mapping[str, Any]], recommended: Sequence[Params], settings: np.ndarray | None = None
) -> list[tuple[list[int], int]]:
    """Places of contexts that belong together, and of one that stands for them; the largest group first.

    Where there are too many groups, contexts that are alike are joined; `settings` [n, d] must be alike, too.
    """
    chosen = [(members, members[0]) for members in same_settings(recommended)]
    if len(chosen) > MOST_SITUATIONS:
        points = features(contexts)
        points = points if settings is None else np.hstack([points, settings])
        chosen = [(members, _middle(points, members)) for members in clusters(points, JOINED_SITUATIONS)]
    return sorted(chosen, key=lambda group: (-len(group[0]), group[0][0]))


def same_settings(recommended: Sequence[Params]) -> list[list[int]]:
    """Places with the same settings."""
    groups: dict[object, list[int]] = {}
    for i, params in enumerate(recommended):
        groups.setdefault(tuple(params.items()), []).append(i)
    return list(groups.values())


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


def features(contexts: Sequence[Mapping[str, Any]]) -> np.ndarray:
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


def context_words(
    contexts: Sequence[Mapping[str, Any]], names: Sequence[str], others: Sequence[Mapping[str, Any]] = ()
) -> str:
    """What some contexts have in common: each number, about or in a range, and some of the texts.

    No range holds one of the `others`, which belong elsewhere, if one name tells them apart.

    >>> context_words([{"qps": 880.0, "codec": "zstd"}, {"qps": 921.0, "codec": "zstd"}], ["qps", "codec"])
    'qps about 900, codec zstd'
    >>> context_words([{"qps": 100}, {"qps": 900}], ["qps"])
    'qps 100 to 900'
    >>> context_words([{"qps": 100}, {"qps": 900}], ["qps"], [{"qps": 500}])
    'qps 100 or 900'
    """
    spans = {name: _span([context.get(name) for context in contexts]) for name in names}
    among = [other for other in others if all(_holds(contexts, name, other.get(name)) for name in names)]
    if among:
        runs = {name: _runs(contexts, name, [other[name] for other in among]) for name in names if name in among[0]}
        told = {name: found for name, found in runs.items() if found}
        if told:
            best = max(
                told, key=lambda name: (sum(map(len, told[name])) >= MOST_KEPT * len(contexts), -len(told[name]))
            )
            spans[best] = some_of([_span(run) for run in told[best]], " ...", " or ")
    return ", ".join(f"{name} {span}" for name, span in spans.items())


def _holds(contexts: Sequence[Mapping[str, Any]], name: str, value: Any) -> bool:
    """Whether a value lies among those of some contexts."""
    own: list[Any] = [context.get(name) for context in contexts]
    if _is_number(value) and all(map(_is_number, own)):
        return bool(min(own) <= value <= max(own))
    return str(value) in set(map(str, own))


def _runs(contexts: Sequence[Mapping[str, Any]], name: str, among: Sequence[Any]) -> list[list[Any]]:
    """The values of a number in parts without any of `among`, in order; parts of few values are left out."""
    own: list[Any] = [context.get(name) for context in contexts]
    if not all(map(_is_number, [*own, *among])):
        return []
    between, parts = sorted(among), dict[int, list[Any]]()
    for value in sorted(own):
        if value not in between:
            parts.setdefault(bisect_left(between, value), []).append(value)
    least = max(map(len, parts.values()), default=0) * LEAST_PART
    return [part for part in parts.values() if len(part) >= least][:NAMES_SHOWN]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _span(values: Sequence[Any]) -> str:
    numbers = [value for value in values if _is_number(value)]
    if len(numbers) < len(values):
        return some_of(list(dict.fromkeys(map(str, values))), " ...")
    low, high = min(numbers), max(numbers)
    if low == high:
        return number_words(low)
    middle = float(np.median(numbers))
    if high - low <= NARROW_RANGE * abs(middle):
        return f"about {number_words(float(f'{middle:.2g}'))}"
    return f"{number_words(low)} to {number_words(high)}"


def some_of(names: Sequence[str], more: str, between: str = ", ") -> str:
    """The first few, and `more` if there are others."""
    return between.join(names[:NAMES_SHOWN]) + (more if len(names) > NAMES_SHOWN else "")


def _middle(points: np.ndarray, members: Sequence[int]) -> int:
    rows = points[list(members)]
    return members[int(np.argmin(np.square(rows - rows.mean(axis=0)).sum(axis=1)))]
