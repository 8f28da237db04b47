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

from collections.abc import Mapping

import numpy as np

from rasp_tuner.numerics import Array, assign

FRESH = 64  # steps in which a slot is not merged: what is recent stays sharp
TURN = 8  # slots looked at for a merger each time
JUMP = 6.0  # a change of more than this many times the usual one tells of a new situation, not of wobble
FLOOR = 0.0025  # of the spread: contexts that move smoothly still have neighbours
REACH = 1.36  # deviations of the usual distance between neighbours that still count as near
USUAL = 4.0  # the most that one distance adds to those statistics: twice its mean
DIRECT = 32  # dimensions up to which differences are formed; above, squares are multiplied out


class SlotMemory:
    """One slot a sample until `size`; from then on two near ones become one for every sample that comes."""

    def __init__(self, context_dim: int, width: int, experts: int, size: int) -> None:
        self.size = size
        self.count = 0
        self.steps = 0
        self._latest = 0  # the slot of the latest sample
        rows = size + 1  # one more than it keeps: a sample moves in before two slots merge
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

    @property
    def prompts(self) -> Array:
        return self._slots["prompts"][: self.count]

    @property
    def counts(self) -> Array:
        return self._slots["counts"][: self.count]

    @property
    def trust(self) -> Array:
        """[E, N]; a view that may be written to."""
        view: Array = self._slots["trust"][: self.count].T
        return view

    @property
    def ages(self) -> Array:
        """[N] steps since each slot's latest sample."""
        ages: Array = self.steps - 1 - self._slots["last"][: self.count]
        return ages

    @property
    def latest(self) -> Array:
        """[d_c] the context of the latest sample."""
        latest: Array = self._contexts["latest"] + self._contexts["origin"]
        return latest

    @property
    def reach(self) -> float:
        """How far apart, in units of the wobble, two contexts of one situation may well lie."""
        mean, square = self._contexts["distance"]
        return 2.0 + REACH * float(np.sqrt(max(square - mean**2, 0.0)))

    def gaps(self, context: Array) -> tuple[Array, Array]:
        """[N] mean squared distances of `context` to each slot: in units of the wobble, and of the spread."""
        n, c = self.steps, self._contexts
        if not len(context):
            return np.zeros(self.count), np.zeros(self.count)
        now = context - c["origin"]
        mean = (n * c["mean"] + now) / (
            n + 1
        )  # as if this context had come: a dimension that never moved may do so now
        moment = (n * c["moment"] + now**2) / (n + 1)
        wobble, spread, moving = _scales(mean, moment, c["changes"] / max(n - 1, 1))
        scales = np.stack([moving / wobble, moving / spread], axis=1) / max(moving.sum(), 1.0)
        keys = self._slots["keys"][: self.count]
        if len(context) <= DIRECT:
            both = (keys - now) ** 2 @ scales
        else:
            both = (
                self._slots["squares"][: self.count] @ scales - 2.0 * (keys @ (scales * now[:, None])) + now**2 @ scales
            )
            both = np.maximum(both, 0.0)
        return both[:, 0], both[:, 1]

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
        if self.count > self.size:
            self._merge()

    def pardon(self) -> None:
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

    def _observe(self, now: Array) -> None:
        n, c = self.steps, self._contexts
        if n:
            change = (now - c["latest"]) ** 2
            if n > 3:
                wobble, _, moving = _scales(c["mean"], c["moment"], c["changes"] / (n - 1))
                size = float((moving / wobble) @ change) / max(float(moving.sum()), 1.0)
                c["distance"] += (np.array([min(size, USUAL), min(size, USUAL) ** 2]) - c["distance"]) / (n - 3)
                change = np.where(moving > 0.0, np.minimum(change, 2.0 * JUMP * wobble), change)
            c["changes"] += 0.5 * change
        c["latest"] = now
        c["mean"] += (now - c["mean"]) / (n + 1)
        c["moment"] += (now**2 - c["moment"]) / (n + 1)

    def _merge(self) -> None:
        """Fold the nearest two slots into one: of a few that take turns, and of any that are not fresh."""
        s, n, c = self._slots, self.count, self._contexts
        keys, squares = s["keys"][:n], s["squares"][:n]
        fresh = s["last"][:n] > self.steps - 1 - min(FRESH, self.size // 2)
        settled = np.flatnonzero(~fresh)
        turn = settled[(np.arange(TURN) + TURN * self.steps) % len(settled)]
        wobble, _, moving = _scales(c["mean"], c["moment"], c["changes"] / self.steps)
        scale = moving / wobble
        sizes = squares @ scale
        gaps = sizes - 2.0 * (keys[turn] * scale) @ keys.T + sizes[turn, None]
        gaps[:, fresh] = np.inf
        gaps[np.arange(TURN), turn] = np.inf
        one, other = np.unravel_index(int(gaps.argmin()), gaps.shape)
        near, gone = sorted((int(turn[one]), int(other)))  # whichever of the two was found first
        share = s["counts"][gone] / (s["counts"][gone] + s["counts"][near])
        for name in ("keys", "trust"):
            s[name][near] += share * (s[name][gone] - s[name][near])
        squares[near] = keys[near] ** 2
        for name in ("prompts", "counts"):
            s[name][near] += s[name][gone]
        s["last"][near] = max(s["last"][near], s["last"][gone])
        for array in s.values():  # the latest one moves into the gap
            array[gone] = array[n - 1]
        self._latest = gone
        self.count -= 1


def _scales(mean: Array, moment: Array, changes: Array) -> tuple[Array, Array, Array]:
    """Wobble and spread [d_c], and one where a dimension has moved at all, else zero."""
    variance = moment - mean**2
    moving = variance > 1e-12 * moment
    spread = np.where(moving, variance, 1.0)
    return np.maximum(changes, FLOOR * spread), spread, moving.astype(np.float64)
