"""Landscape: a random function of mixed knobs whose least value is known exactly.

symbol   shape   meaning
d        scalar  knobs
theta    [d]     the index of a level, or a number from 0 to 1 where the knob is a Float
effect   [L_i]   what each level of knob i adds
pair     [L_i, L_j]  what two levels add together
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.base.numerics import Array
from rasp_tuner.space import Knob

SPREAD = 0.3  # mean of the exponential from which the size of a knob's effects is drawn
PAIR_SHARE = 0.3  # of all pairs of discrete knobs interact
PAIR_SIZE = 0.1  # standard deviation of what two levels add together
FLOAT_WEIGHT = 4.0  # a bowl over [0, 1] then spans about as much as the levels of a discrete knob
FLOAT_RANGE = (0.15, 0.85)  # of a Float knob's optimum: inside the box

Factor = tuple[tuple[int, ...], Array]  # which knobs, in rising order, and a table with one axis for each


@dataclass(frozen=True, slots=True)
class Bowl:
    """What a Float knob adds: weight * (u - target)^2, where the target depends on the level of a partner knob."""

    weight: float
    targets: Array  # [levels of the partner], or [1]
    partner: int | None  # none where all knobs are Floats


@dataclass(frozen=True, slots=True)
class Landscape:
    """Effects of levels, of pairs of levels, and bowls of Float knobs, added up."""

    effects: Mapping[int, Array]
    pairs: Mapping[tuple[int, int], Array]
    bowls: Mapping[int, Bowl]

    def values(self, thetas: Array) -> Array:
        """f of settings [n, d], as [n]."""
        level: NDArray[np.int64] = np.round(thetas).astype(np.int64)
        total = np.zeros(len(thetas))
        for i, effect in self.effects.items():
            total += effect[level[:, i]]
        for (i, j), pair in self.pairs.items():
            total += pair[level[:, i], level[:, j]]
        for i, bowl in self.bowls.items():
            at = 0 if bowl.partner is None else level[:, bowl.partner]
            total += bowl.weight * (thetas[:, i] - bowl.targets[at]) ** 2
        return total

    def optimum(self) -> Array:
        """The settings [d] of the least value: exact, since a bowl's least is 0 whatever the levels are."""
        factors: list[Factor] = [((i,), effect) for i, effect in self.effects.items()]
        factors += [((i, j), pair) for (i, j), pair in self.pairs.items()]
        best = least(factors)
        theta = np.zeros(len(self.effects) + len(self.bowls))
        for i, level in best.items():
            theta[i] = level
        for i, bowl in self.bowls.items():
            theta[i] = bowl.targets[0 if bowl.partner is None else best[bowl.partner]]
        return theta


def draw(knobs: Sequence[Knob], rng: np.random.Generator, useless: Sequence[int] = ()) -> Landscape:
    """A landscape over these knobs; those numbered in `useless` add nothing."""
    discrete = {i: knob.levels for i, knob in enumerate(knobs) if knob.levels is not None}
    effects = {
        i: rng.normal(size=levels) * rng.exponential(SPREAD) * (i not in useless) for i, levels in discrete.items()
    }
    pairs = {}
    for j in discrete:
        for i in (i for i in discrete if i < j):
            pair = PAIR_SIZE * rng.normal(size=(discrete[i], discrete[j]))
            if rng.uniform() < PAIR_SHARE and not {i, j} & set(useless):
                pairs[i, j] = pair
    bowls = {}
    for i in (i for i, knob in enumerate(knobs) if knob.levels is None):
        partner = int(rng.choice(list(discrete))) if discrete else None
        levels = 1 if partner is None else discrete[partner]
        # two decimals: a Float knob takes them exactly, so that the least value is reached
        targets = np.round(rng.uniform(*FLOAT_RANGE, size=levels), 2)
        bowls[i] = Bowl(FLOAT_WEIGHT * rng.exponential(SPREAD) * (i not in useless), targets, partner)
    return Landscape(effects, pairs, bowls)


def least(factors: Sequence[Factor]) -> dict[int, int]:
    """The level of each knob at the least sum of the tables: knobs are minimised out one after the other.

    The knob that leaves the smallest table goes first, so a dozen knobs with few interactions cost next to nothing.
    """
    left, rest, decided = {i for knobs, _ in factors for i in knobs}, list(factors), list[tuple[int, Factor]]()
    sizes = {i: table.shape[axis] for knobs, table in factors for axis, i in enumerate(knobs)}
    while left:
        out = min(left, key=lambda i: (np.prod([sizes[k] for k in _neighbours(i, rest)]), i))
        joint = _join([f for f in rest if out in f[0]], sizes)
        decided.append((out, joint))
        kept = tuple(i for i in joint[0] if i != out)
        rest = [f for f in rest if out not in f[0]] + [(kept, joint[1].min(axis=joint[0].index(out)))]
        left.remove(out)
    chosen: dict[int, int] = {}
    for knob, (knobs, table) in reversed(decided):  # whatever a table still depends on was decided after it
        at = tuple(slice(None) if i == knob else chosen[i] for i in knobs)
        chosen[knob] = int(np.argmin(table[at]))
    return chosen


def _neighbours(knob: int, factors: Sequence[Factor]) -> set[int]:
    return {i for knobs, _ in factors if knob in knobs for i in knobs}


def _join(factors: Sequence[Factor], sizes: Mapping[int, int]) -> Factor:
    """The sum of tables over all of their knobs."""
    knobs = tuple(sorted({i for names, _ in factors for i in names}))
    total = np.zeros([sizes[i] for i in knobs])
    for names, table in factors:
        total += table.reshape([sizes[i] if i in names else 1 for i in knobs])
    return knobs, total
