"""SlotMemory: micro-clusters of contexts, each with a conjugate prompt; merged when full, never thrown away.

symbol    shape     meaning
keys      [N, d_c]  mean context of a slot's samples, relative to the first context ever
prompts   [N, P]    sums over a slot's samples: natural parameters, so that adding prompts is pooling evidence
trust     [E, N]    how far each expert believes a slot's samples
counts    [N]       samples in a slot
last      [N]       step of its latest sample
wobble    [d_c]     half the mean squared change of a dimension from one sample to the next
spread    [d_c]     its variance over all samples
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.core.distance import scaled_pairs, scaled_squares
from rasp_tuner.core.numerics import Array, assign

SHARP_STEPS = 64  # steps in which a slot is not merged: what is recent stays sharp
SPARE_SLOTS = 8  # slots beyond its size, after which as many pairs as that are merged at once
MERGE_CANDIDATES = 32  # slots that look for a partner then; they take turns
JUMP_TIMES = 6.0  # a change of more than this many times the usual one tells of a new situation, not of wobble
LEAST_SHARE = 0.0025  # of the spread: contexts that move smoothly still have neighbours
REACH_DEVIATIONS = 1.36  # deviations of the usual distance between neighbours that still count as near
ALIKE_REACHES = 2.0  # times that reach: beyond, a situation has nothing in common with another
LARGEST_DISTANCE = 4.0  # the most that one distance adds to those statistics: twice its mean
SETTLED_SAMPLES = 32  # samples from which on one more hardly changes the scales of the context


class SlotMemory:
    """One slot a sample until it is full; then near ones become one, pair by pair, until `size` are left."""

    def __init__(self, context_dim: int, width: int, experts: int, size: int) -> None:
        self.size = size
        self.count = 0
        self.steps = 0
        self._latest = 0  # the slot of the latest sample
        rows = size + min(SPARE_SLOTS, size // 4)
        self._slots = {
            "keys": np.zeros((rows, context_dim)),
            "squares": np.zeros((rows, context_dim)),  # of the keys
            "prompts": np.zeros((rows, width)),
            "trust": np.zeros((rows, experts)),
            "counts": np.zeros(rows),
            "last": np.zeros(rows),
        }
        self._contexts = {
            "origin": np.zeros(context_dim),
            "latest": np.zeros(context_dim),
            "mean": np.zeros(context_dim),
            "moment": np.zeros(context_dim),  # mean square
            "changes": np.zeros(context_dim),  # sum of half the squared changes
            "distance": np.array([2.0, 6.0]),  # mean and mean square of the distance between neighbours
        }
        self._scales = _scales(self._contexts["mean"], self._contexts["moment"], self._contexts["changes"])
        self._set_views()

    @property
    def contexts(self) -> Array:
        """[N, d_c] mean context of each slot; a copy."""
        contexts: Array = self._slots["keys"][: self.count] + self._contexts["origin"]
        return contexts

    @property
    def ages(self) -> Array:
        """[N] steps since each slot's latest sample."""
        ages: Array = self.steps - 1 - self._slots["last"][: self.count]
        return ages

    @property
    def reach(self) -> float:
        """How far apart, in units of the wobble, two contexts of one situation may well lie."""
        mean, square = self._contexts["distance"].tolist()
        return 2.0 + REACH_DEVIATIONS * math.sqrt(max(square - mean**2, 0.0))

    def gaps(self, context: Array) -> Array:
        """[2, N] mean squared distances of `context` to each slot: in units of the wobble, and of the spread."""
        if not len(context):
            return np.zeros((2, self.count))
        now, n = context - self._contexts["origin"], self.count
        return scaled_squares(self._slots["keys"][:n], self._slots["squares"][:n], now, self._scales_at(now).both)

    def write(self, context: Array, prompt: Array, trust: float) -> None:
        """A new slot for one sample, whose prompt holds the sample's own sums."""
        n, s, i = self.steps, self._slots, self.count
        if n == 0:
            self._contexts["origin"] = context.copy()
        now = context - self._contexts["origin"]
        self._observe(now)
        s["keys"][i], s["squares"][i], s["prompts"][i], s["trust"][i] = now, now**2, prompt, trust
        s["counts"][i], s["last"][i] = 1.0, n
        self.steps += 1
        self.count += 1
        self._latest = i
        if self.count == len(s["counts"]):
            self._merge()
        self._set_views()

    def seen_before(self, slot: int) -> bool:
        """Whether the situation of a slot is like that of an earlier one."""
        gaps = self.gaps(self._slots["keys"][slot] + self._contexts["origin"])[0][:slot]
        return bool((gaps < ALIKE_REACHES * self.reach).any())

    def restore_trust(self) -> None:
        """The latest sample was no mistake after all."""
        self._slots["trust"][self._latest] = 1.0

    def state(self) -> dict[str, Array]:
        slots = {name: array[: self.count] for name, array in self._slots.items() if name != "squares"}
        return {**slots, **self._contexts, "clock": np.array([self.steps, self._latest], dtype=np.float64)}

    def restore(self, state: Mapping[str, Array]) -> None:
        self.steps, self._latest = (int(x) for x in state["clock"])
        self.count = len(state["counts"])
        for name, array in self._slots.items():
            if name != "squares":
                assign(array[: self.count], state[name])
        self._slots["squares"][: self.count] = self._slots["keys"][: self.count] ** 2
        for name, array in self._contexts.items():
            assign(array, state[name])
        c = self._contexts
        self._scales = _scales(c["mean"], c["moment"], c["changes"] / max(self.steps - 1, 1))
        self._set_views()

    def _set_views(self) -> None:
        """What experts read, and write to: the slots in use."""
        self.prompts: Array = self._slots["prompts"][: self.count]
        self.counts: Array = self._slots["counts"][: self.count]
        self.trust: Array = self._slots["trust"][: self.count].T  # [E, N]

    def _scales_at(self, now: Array) -> "Scales":
        """Scales as if this context had come: a dimension that never moved may do so now."""
        n, c = self.steps, self._contexts
        if n >= SETTLED_SAMPLES and self._scales.moved == len(now):
            return self._scales
        mean, moment = (n * c["mean"] + now) / (n + 1), (n * c["moment"] + now**2) / (n + 1)
        return _scales(mean, moment, c["changes"] / max(n - 1, 1))

    def _observe(self, now: Array) -> None:
        n, c = self.steps, self._contexts
        if n:
            change = (now - c["latest"]) ** 2
            if n > 3:
                size = min(float(self._scales.both[0] @ change), LARGEST_DISTANCE)
                c["distance"] += (np.array([size, size**2]) - c["distance"]) / (n - 3)
                change = np.minimum(change, self._scales.most)
            c["changes"] += 0.5 * change
        c["latest"] = now
        c["mean"] += (now - c["mean"]) / (n + 1)
        c["moment"] += (now**2 - c["moment"]) / (n + 1)
        self._scales = _scales(c["mean"], c["moment"], c["changes"] / max(n, 1))

    def _merge(self) -> None:
        """Fold near slots into one, pair by pair: of some that take turns, and of any that are not fresh."""
        s, n = self._slots, self.count
        keys, squares, counts = s["keys"], s["squares"], s["counts"]
        fresh = s["last"] > self.steps - 1 - min(SHARP_STEPS, self.size // 2)
        settled = np.flatnonzero(~fresh)
        turn = settled[(np.arange(MERGE_CANDIDATES) + MERGE_CANDIDATES * (self.steps // SPARE_SLOTS)) % len(settled)]
        gaps = scaled_pairs(keys, squares, self._scales.both[0], turn)
        gaps[:, fresh] = np.inf
        gaps[np.arange(MERGE_CANDIDATES), turn] = np.inf
        near, gone = _pairs(turn, gaps, n - self.size)
        share = (counts[gone] / (counts[gone] + counts[near]))[:, None]
        for name in ("keys", "trust"):
            s[name][near] += share * (s[name][gone] - s[name][near])
        squares[near] = keys[near] ** 2
        for name in ("prompts", "counts"):
            s[name][near] += s[name][gone]
        s["last"][near] = np.maximum(s["last"][near], s["last"][gone])
        kept = np.delete(np.arange(n), gone)
        for array in s.values():
            array[: len(kept)] = array[kept]
        self.count = len(kept)
        self._latest = self.count - 1


def _pairs(turn: NDArray[np.intp], gaps: Array, most: int) -> tuple[list[int], list[int]]:
    """The nearest pairs, each slot in one at most: those that stay, and those that are folded into them."""
    near, gone = [], []
    for _ in range(most):
        row, other = divmod(int(gaps.argmin()), gaps.shape[1])
        if gaps[row, other] == np.inf:
            break  # no two are left
        pair = sorted((int(turn[row]), other))
        near.append(pair[0])
        gone.append(pair[1])
        gaps[:, pair] = np.inf
        gaps[(turn == pair[0]) | (turn == pair[1])] = np.inf
    return near, gone


class Scales(NamedTuple):
    """Of the dimensions of a context."""

    both: Array  # [2, d_c] factors that turn squared differences into mean squares in units of wobble, and of spread
    most: Array  # [d_c] squared change beyond which it tells of a new situation; infinite where none has come yet
    moved: int  # how many have moved at all; the others have factors of zero


def _scales(mean: Array, moment: Array, changes: Array) -> Scales:
    variance = moment - mean**2
    moving = variance > 1e-12 * moment
    moved = int(np.count_nonzero(moving))
    both = np.empty((2, len(mean)))
    both[1] = np.where(moving, variance, np.inf)
    both[0] = np.maximum(changes, LEAST_SHARE * both[1])
    return Scales(1.0 / (both * max(moved, 1)), 2.0 * JUMP_TIMES * both[0], moved)
