"""Situations: contexts that get the same settings, in words a person would use."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rasp_tuner.page.words import number_words
from rasp_tuner.space import Params

MOST_SITUATIONS = 8  # beyond that, similar ones are joined
JOINED_SITUATIONS = 5
NAMES_SHOWN = 3
NARROW_RANGE = 0.3  # of its middle: a range this narrow is told as one number


def grouped(contexts: Sequence[Mapping[str, Any]], recommended: Sequence[Params]) -> list[tuple[list[int], int]]:
    """Places of contexts that belong together, and of one that stands for them; the largest group first."""
    groups: dict[object, list[int]] = {}
    for i, params in enumerate(recommended):
        groups.setdefault(tuple(params.items()), []).append(i)
    chosen = [(members, members[0]) for members in groups.values()]
    if len(chosen) > MOST_SITUATIONS:
        points = features(contexts)
        chosen = [(members, _middle(points, members)) for members in clusters(points, JOINED_SITUATIONS)]
    return sorted(chosen, key=lambda group: (-len(group[0]), group[0][0]))


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


def context_words(contexts: Sequence[Mapping[str, Any]], names: Sequence[str]) -> str:
    """What some contexts have in common: each number, about or in a range, and some of the texts.

    >>> context_words([{"qps": 880.0, "codec": "zstd"}, {"qps": 921.0, "codec": "zstd"}], ["qps", "codec"])
    'qps about 900, codec zstd'
    >>> context_words([{"qps": 100}, {"qps": 900}], ["qps"])
    'qps 100 to 900'
    """
    return ", ".join(f"{name} {_span([context.get(name) for context in contexts])}" for name in names)


def _span(values: Sequence[Any]) -> str:
    numbers = [value for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
    if len(numbers) < len(values):
        return some_of(list(dict.fromkeys(map(str, values))), " ...")
    low, high = min(numbers), max(numbers)
    if low == high:
        return number_words(low)
    middle = float(np.median(numbers))
    if high - low <= NARROW_RANGE * abs(middle):
        return f"about {number_words(float(f'{middle:.2g}'))}"
    return f"{number_words(low)} to {number_words(high)}"


def some_of(names: Sequence[str], more: str) -> str:
    """The first few, and `more` if there are others."""
    return ", ".join(names[:NAMES_SHOWN]) + (more if len(names) > NAMES_SHOWN else "")


def _middle(points: np.ndarray, members: Sequence[int]) -> int:
    rows = points[list(members)]
    return members[int(np.argmin(np.square(rows - rows.mean(axis=0)).sum(axis=1)))]
