"""Growing a policy's tree: always the split that lowers the loss most, until nothing worth it is left.

symbol   meaning
n        contexts to grow from
K        candidates: settings that a leaf may hold
costs    [n, K] what candidate k loses in context i; a leaf costs the least column sum over its contexts
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rasp_tuner.base.numerics import Array
from rasp_tuner.policy.evaluate import Value, holds, walk

LEAST_LEAF_CONTEXTS = 2  # in a leaf
LEAST_GAIN = 0.01  # of a split, as a share of what a single leaf would cost
MOST_MEDOIDS = 16  # contexts of a leaf that the others are compared with
NUMERIC = ("number", "time of day")  # kinds whose values are compared by size

Node = dict[str, Any]


@dataclass(frozen=True)
class Column:
    """A field of the context with its value in each context; in the place of a text that cannot be named a number."""

    field: Mapping[str, Any]
    values: Sequence[Value]


@dataclass(frozen=True)
class _Split:
    cost: float
    test: dict[str, Any]


def grow(columns: Sequence[Column], costs: Array, recommended: Sequence[int], leaves: int, least: float = 0.0) -> Node:
    """A tree with at most so many leaves; a leaf has the candidate of least cost, and its share of the contexts.

    recommended   [n] which candidate the tuner recommends in each context: of equals the most frequent is taken
    least         gain that a split must have in any case, summed over contexts
    """
    rows = list(range(len(costs)))
    least = max(LEAST_GAIN * float(costs.sum(axis=0).min()), least)
    root: Node = {}
    open_leaves = [(root, rows, _best_split(columns, costs, rows))]
    while len(open_leaves) < leaves:
        gains = [-np.inf if split is None else _cost(costs, at) - split.cost for _, at, split in open_leaves]
        chosen = int(np.argmax(gains))
        node, at, split = open_leaves[chosen]
        if split is None or gains[chosen] <= least:
            break
        column = next(column for column in columns if column.field["name"] == split.test["field"])
        passing = [i for i in at if holds(split.test, column.values[i])]
        failing = [i for i in at if not holds(split.test, column.values[i])]
        node |= {"if": split.test, "then": {}, "else": {}}
        del open_leaves[chosen]
        for branch, own in (("then", passing), ("else", failing)):
            open_leaves.append((node[branch], own, _best_split(columns, costs, own)))
    for node, at, _ in open_leaves:
        node |= {"candidate": _candidate(costs[at], [recommended[i] for i in at]), "share": len(at) / len(rows)}
    return root


def refine(tree: Node, columns: Sequence[Column], contexts: Array, most: int) -> None:
    """Split leaves whose contexts [n, d_c] are far apart, up to so many leaves in all: sums over a leaf then tell
    situations apart. The parts keep what their leaf holds, and have its share as `whole`.
    """
    rows: dict[int, list[int]] = {}
    for i in range(len(contexts)):
        rows.setdefault(id(walk(tree, {column.field["name"]: column.values[i] for column in columns})), []).append(i)
    leaves = list(leaves_of(tree))
    for leaf in leaves:
        leaf["whole"] = leaf["share"]
        own = rows.get(id(leaf), [])
        if len(own) < 2 * LEAST_LEAF_CONTEXTS or most < 2 * len(leaves):
            continue
        near = contexts[own[:: -(-len(own) // MOST_MEDOIDS)]]  # a part is as wide as its contexts are from one of them
        apart = np.square(contexts[own][:, None] - near[None]).sum(axis=2)
        parts = grow(
            [Column(column.field, [column.values[i] for i in own]) for column in columns],
            apart,
            [0] * len(own),
            most // len(leaves),
        )
        held = dict(leaf)
        for part in leaves_of(parts):
            share = part["share"] * held["share"]
            del part["candidate"]
            part |= {**held, "share": share}
        leaf.clear()
        leaf |= parts


def leaves_of(node: Node) -> Iterator[Node]:
    """The leaves, from left to right."""
    if "if" not in node:
        yield node
        return
    yield from leaves_of(node["then"])
    yield from leaves_of(node["else"])


def _cost(costs: Array, rows: list[int]) -> float:
    return float(costs[rows].sum(axis=0).min())


def _candidate(costs: Array, recommended: Sequence[int]) -> int:
    """The cheapest column; of equally cheap ones that which is recommended most often."""
    total = costs.sum(axis=0)
    often = np.bincount(recommended, minlength=costs.shape[1])
    cheap = total <= total.min() + 1e-12 * max(float(total.max()), 1e-300)
    return int(np.where(cheap, often, -1).argmax())


def _best_split(columns: Sequence[Column], costs: Array, rows: list[int]) -> _Split | None:
    """The cheapest split of these contexts; None if there is none."""
    found = [split for column in columns for split in _splits(column, costs[rows], [column.values[i] for i in rows])]
    return min(found, key=lambda split: split.cost, default=None)


def _splits(column: Column, costs: Array, values: Sequence[Value]) -> Iterator[_Split]:
    name = column.field["name"]
    missing = np.array([value is None for value in values])
    if column.field["kind"] not in NUMERIC:
        yield from _splits_by_text(name, costs, values)
        return
    if LEAST_LEAF_CONTEXTS <= missing.sum() <= len(values) - LEAST_LEAF_CONTEXTS:
        yield _Split(_two_sides(costs[missing].sum(axis=0), costs), {"field": name, "missing": True})
    numbers = np.array([np.nan if value is None else float(value) for value in values])
    order = np.argsort(numbers, kind="stable")[: len(values) - int(missing.sum())]  # NaN comes last
    sorted_numbers, sums = numbers[order], np.cumsum(costs[order], axis=0)
    cuts = np.flatnonzero(np.diff(sorted_numbers) > 0.0)
    for with_missing in (False, True) if missing.any() else (False,):
        below = cuts + 1 + (int(missing.sum()) if with_missing else 0)
        allowed = cuts[(below >= LEAST_LEAF_CONTEXTS) & (below <= len(values) - LEAST_LEAF_CONTEXTS)]
        if not len(allowed):
            continue
        left = sums[allowed] + (costs[missing].sum(axis=0) if with_missing else 0.0)
        cost = left.min(axis=1) + (costs.sum(axis=0) - left).min(axis=1)
        best = int(cost.argmin())
        at = allowed[best]
        test = {"field": name, "at_most": _between(float(sorted_numbers[at]), float(sorted_numbers[at + 1]))}
        yield _Split(float(cost[best]), {**test, "missing": True} if with_missing else test)


def _splits_by_text(name: str, costs: Array, values: Sequence[Value]) -> Iterator[_Split]:
    """Texts against the others: first the one that helps most, then more of them as long as they help."""
    groups: dict[Value, list[int]] = {}
    for i, value in enumerate(values):
        if value is None or isinstance(value, str):
            groups.setdefault(value, []).append(i)
    sums = {value: costs[rows].sum(axis=0) for value, rows in groups.items()}
    chosen: list[Value] = []
    left, best = np.zeros(costs.shape[1]), np.inf
    while len(chosen) < len(sums):
        offers = {value: _two_sides(left + one, costs) for value, one in sums.items() if value not in chosen}
        value = min(offers, key=lambda value: offers[value])
        if offers[value] >= best:
            return
        chosen, left, best = [*chosen, value], left + sums[value], offers[value]
        count = sum(len(groups[one]) for one in chosen)
        if LEAST_LEAF_CONTEXTS <= count <= len(values) - LEAST_LEAF_CONTEXTS:
            test: dict[str, Any] = {"field": name}
            if any(one is not None for one in chosen):
                test["in"] = sorted(one for one in chosen if isinstance(one, str))
            yield _Split(best, {**test, "missing": True} if None in chosen else test)


def _two_sides(left: Array, costs: Array) -> float:
    return float(left.min() + (costs.sum(axis=0) - left).min())


def _between(low: float, high: float) -> float:
    """A number with few digits that is at least `low` and below `high`.

    >>> _between(1.98, 2.4), _between(300.0, 900.0)
    (2.0, 600.0)
    """
    for digits in range(1, 18):
        short = float(f"{low / 2.0 + high / 2.0:.{digits}g}")
        if low <= short < high:
            return short
    return low
