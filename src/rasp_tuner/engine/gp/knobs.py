"""Knobs: the features of a point that the model is linear in, and where its residual lives.

A knob is of one of four kinds: a *scale* (continuous, or ordered with more than MOST_FEW levels), *few* (ordered, with
few levels), a *switch* (two levels) or a *choice* (no order).

symbol     shape    meaning
d          scalar   knobs
u          [m, d]   how far a knob is from its default, in units of the farthest it can go
effects    [m, p]   u of ordered knobs; whether a switch is moved; which level a choice, or a knob with few, has
curved     [m, q]   u^2 of ordered knobs, and the prior mean: effects that all contexts share
mean       [m]      what is expected before anything is seen: worse, the farther from the default
embedding  [m, e]   where a point lies for the residual
"""

import numpy as np
from numpy.typing import NDArray

from rasp_tuner.base.numerics import Array
from rasp_tuner.engine.gp.native_gp import Features, KnobTables, ready
from rasp_tuner.space import Layout

MOST_FEW = 8  # levels up to which an ordered knob has an effect for each
SLOPE_VARIANCE = 0.64  # of an ordered knob's slope and a switch's effect: (2 x 0.4)^2, an optimum 0.4 of the way off
LEVEL_VARIANCE = 0.5 * SLOPE_VARIANCE  # of the effect of one of few levels: two differ as much as a switch's
# of the effect of a choice: two differ as a switch's levels do, and a ruinous one says little about the others
DEFAULT_CHOICE_VARIANCE = 0.2
OTHER_CHOICE_VARIANCE = SLOPE_VARIANCE - DEFAULT_CHOICE_VARIANCE
BOWL = 0.3  # prior mean of a scale moved to its end
CURVATURE_VARIANCE = BOWL  # of the curvature of an ordered knob: about the size of the bowl that is expected of it
HARM = 0.1  # prior mean of a moved switch or choice: a default is better than chance
BOWL_VARIANCE = 0.25  # of the size of the prior mean
CHOICE_APART = 0.7  # coordinate of a choice's own axis: two choices are as far apart as a switch's two levels
SAME_LEVEL = 1e-6  # positions in the unit box closer than this are one level
ROUNDING, COARSE_ROUNDING = 1e-9, 0.02  # of a level; of a continuous knob, by the system that runs it

Indices = NDArray[np.intp]


class Knobs:
    """The knobs of one space, as the model sees them."""

    def __init__(self, layout: Layout, find: bool = False) -> None:
        levels, self.rules, self._snap = layout.levels, layout.rules, layout.snap
        self.levels, self.default = levels, np.array(layout.default, dtype=np.float64)
        self.dim = len(self.default)
        self.default_key = self.default.tobytes()
        self.reach = np.maximum(np.maximum(self.default, 1.0 - self.default), 1e-9)
        count = np.array([0 if own is None else len(own) for own in levels])
        self.unordered = np.array(layout.unordered, dtype=bool)
        self.discrete = count > 0
        switch = count == 2
        choice = self.unordered & (count > 2)
        few = ~choice & (count > 2) & (count <= MOST_FEW)
        self.scale = ~(switch | choice | few)
        self.has_scale = bool(self.scale.any())
        ordered = np.flatnonzero(self.scale | few)
        self.ordered, self.switches = ordered, np.flatnonzero(switch)
        hot = [
            (j, at) for j, own in enumerate(levels) if own is not None and (few[j] or choice[j]) for at in own.tolist()
        ]
        self.hot_knob = np.array([j for j, _ in hot], dtype=np.intp)
        self.hot_at = np.array([at for _, at in hot])
        self.effect_knob: Indices = np.concatenate([ordered, self.switches, self.hot_knob])  # [p]
        self.effect_variance = np.concatenate(
            [np.full(len(ordered) + len(self.switches), SLOPE_VARIANCE), np.full(len(hot), LEVEL_VARIANCE)]
        )
        # [p] of an effect at a setting drawn at random: a third of the way squared, one half, one of the levels
        third, half = np.full(len(ordered), 1.0 / 3.0), np.full(len(self.switches), 0.5)
        self.usual_squares = np.concatenate([third, half, 1.0 / count[self.hot_knob]])
        at_default = np.abs(self.hot_at - self.default[self.hot_knob]) < SAME_LEVEL
        of_choices = np.where(at_default, DEFAULT_CHOICE_VARIANCE, OTHER_CHOICE_VARIANCE)
        self.effect_variance[len(ordered) + len(self.switches) :] = np.where(
            choice[self.hot_knob], of_choices, LEVEL_VARIANCE
        )
        self.of_few = np.concatenate([np.zeros(len(ordered) + len(self.switches), bool), few[self.hot_knob]])  # [p]
        self.of_choice = (switch | choice)[self.effect_knob]  # [p] effects that may turn around between contexts
        self.share_of_choices = float((switch | choice).mean())
        self.curved_variance = np.append(np.full(len(ordered), CURVATURE_VARIANCE), BOWL_VARIANCE)  # [q]
        self.hot_choice = np.flatnonzero(choice[self.hot_knob])
        self.embedding_knob: Indices = np.concatenate([ordered, self.switches, self.hot_knob[self.hot_choice]])  # [e]
        # a search expects nothing of the default: else, where all settings that can run are far, it stays near it
        self.harm = np.where(self.scale | find, 0.0, HARM)
        self.bowl = np.where(self.scale & (not find), BOWL, 0.0)
        self.few, self.choices = few, np.flatnonzero(choice)
        self.tables: KnobTables | None = KnobTables(self) if ready() else None

    def features(self, points: Array) -> Features:
        """Of points [m, d] on legal levels."""
        if self.tables is not None:
            return self.tables.features(points)
        u = (points - self.default) / self.reach
        moved = np.abs(u) > SAME_LEVEL
        on = moved[:, self.switches].astype(np.float64)
        hot = (np.abs(points[:, self.hot_knob] - self.hot_at) < SAME_LEVEL).astype(np.float64)
        ordered = u[:, self.ordered]
        far = np.where(self.few, np.abs(u), moved)
        mean: Array = (u * u) @ self.bowl + far @ self.harm
        return Features(
            np.concatenate([ordered, on, hot], axis=1),
            np.concatenate([ordered**2, mean[:, None] / np.sqrt(self.dim)], axis=1),
            mean,
            np.concatenate([ordered, on, CHOICE_APART * hot[:, self.hot_choice]], axis=1),
        )

    def compiled(self) -> KnobTables:
        """The tables for compiled code, where it is used."""
        if self.tables is None:
            raise RuntimeError("there is no compiled code")
        return self.tables

    def same(self, point: Array, other: Array) -> bool:
        """Whether two points are the same but for rounding, which may be coarse where a knob is continuous."""
        return bool(self.alike(point, other).all())

    def alike(self, point: Array, other: Array) -> NDArray[np.bool_]:
        """[d] the same, of each knob."""
        alike: NDArray[np.bool_] = np.abs(point - other) < np.where(self.discrete, ROUNDING, COARSE_ROUNDING)
        return alike

    def as_run(self, point: Array) -> Array:
        """[d] the legal point that will run in the place of a point: many levels are taken for a continuum here."""
        return point if self._snap is None else self._snap(point)

    def lawful(self, points: Array) -> Array:
        """Points [m, d], with those that are not legal replaced by legal ones."""
        return points if self.rules is None else self.rules.lawful(points)
