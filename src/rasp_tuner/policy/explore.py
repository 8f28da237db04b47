"""Policies that explore: which settings the leaves of a tree try, how often, and what is at stake.

A leaf has what is recommended there, the default, and what the tuner would ask for next in contexts of that leaf, each
with a weight. Until the next export nobody learns, so that looks are bounded: by the tuner's budget, or to a few runs.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rasp_tuner.base.checks import show, whole
from rasp_tuner.base.numerics import Array
from rasp_tuner.errors import InvalidValue
from rasp_tuner.optimizer.preset import Preset
from rasp_tuner.policy.evaluate import MOST_SETTINGS, WEIGHTS
from rasp_tuner.space import MaxChange
from rasp_tuner.types import Budget

DRAWS = 16  # of what the tuner would ask for, in contexts of a leaf
LOOKS = 8.0  # runs of a leaf that may explore before the next export, whatever the budget says
MOST_EXPLORED = 0.1  # of the runs of a leaf, if more than those are expected, have settings with a stake
MOST_OTHERS = 0.5  # of the runs of a leaf have settings that are not what is recommended
LEAST_DEFAULT = 0.01  # of the runs of a leaf have the default: what is gained against it stays measurable

Stake = Callable[[Array, Array], float]  # of a point [d] in a context [d_c]: see Model.stake
Asked = Callable[[Array, np.random.Generator], Array]  # a context [d_c] -> what would be asked for there [d]


@dataclass(frozen=True)
class Explore:
    """How a policy explores."""

    asked: Asked | None  # None: nothing but what is recommended
    stake: Stake
    budget: float | None  # share of the default's loss that exploring may cost on average; None: any
    default_share: float  # of the runs that have the default, at least
    left: float  # of the budget up to now, in steps of the default's loss
    outcomes: int | None  # expected before the next export; None: many
    salt: str


def explore_of(
    explore: bool | int,
    salt: object,
    preset: Preset,
    max_change: MaxChange | None,
    holdout: float | None,
    budget: Budget | None,
    stake: Stake,
    asked: Asked | None,
) -> Explore:
    """How a policy explores, as the tuner of these settings would; an InvalidValue where it cannot.

    `explore` is True, or how many outcomes are expected before the next export.
    """
    outcomes = None if explore is True else whole("explore", explore, 1, 2**50)
    if not isinstance(salt, str) or not salt:
        raise InvalidValue(f"salt must be a text, got {show(salt)}")
    if (why := why_not(preset, max_change)) is not None:
        raise InvalidValue(f"explore: {why}; export without it")
    left = 0.0 if budget is None else max(budget.left, 0.0)
    share = LEAST_DEFAULT if holdout is None else holdout
    return Explore(asked, stake, preset.constants.get("budget"), share, left, outcomes, salt)


def why_not(preset: Preset, max_change: MaxChange | None) -> str | None:
    """Why no policy can explore for a tuner of these settings; None: one can."""
    if preset.name == "paper":
        return 'preset "paper" forecasts nothing, so that no stake is known'
    if preset.constants.get("find"):
        return 'goal "find" tries settings whatever they cost, which is not for those who use them'
    return None if max_change is None else "max_change holds from one run to the next, which no key knows"


@dataclass(frozen=True)
class Setting:
    """One of the settings of a leaf."""

    point: Array  # [d]
    weight: int  # of WEIGHTS
    stake: float  # by what share of the default's loss a run may be worse than the default


def settings_of(
    how: Explore, contexts: Sequence[Array], share: float, recommended: Array, default: Array, rng: np.random.Generator
) -> list[Setting]:
    """The settings of a leaf with these contexts [d_c], which has a share of all: what is recommended comes first."""
    looks = _looks(how, contexts, rng)
    points = {point.tobytes(): point for point in (recommended, default, *(point for point, _ in looks))}
    wanted = dict.fromkeys(points, 0.0) | {point.tobytes(): often for point, often in looks}
    own, control = recommended.tobytes(), default.tobytes()
    others = sorted((key for key in points if key not in (own, control)), key=lambda key: -wanted[key])
    kept = [key for key in (control, *others[: MOST_SETTINGS - 2]) if key != own]
    stakes = {key: _mean_stake(how.stake, contexts, points[key]) for key in (own, *kept)}
    shares = _bounded([wanted[key] for key in kept], [stakes[key] for key in kept], how, share)
    weights = [int(WEIGHTS * part) for part in shares]
    if kept and kept[0] == control and how.asked is not None:
        weights[0] = max(weights[0], int(WEIGHTS * how.default_share))
    weights = [min(weight, WEIGHTS - sum(weights[:i])) for i, weight in enumerate(weights)]
    every = [(own, WEIGHTS - sum(weights)), *zip(kept, weights, strict=True)]
    return [Setting(points[key], weight, stakes[key]) for key, weight in every if weight or key == own]


def version_of(policy: dict[str, Any]) -> str:
    """A name of what a policy says: 16 hexadecimal digits; equal policies have equal ones."""
    return hashlib.sha256(json.dumps(policy, sort_keys=True).encode()).hexdigest()[:16]


def _looks(how: Explore, contexts: Sequence[Array], rng: np.random.Generator) -> list[tuple[Array, float]]:
    """What would be asked for in some of the contexts, and how often, most often first."""
    if how.asked is None or not contexts:
        return []
    found: dict[bytes, tuple[Array, float]] = {}
    for i in rng.integers(len(contexts), size=DRAWS):
        point = how.asked(contexts[i], rng)
        found[point.tobytes()] = point, found.get(point.tobytes(), (point, 0.0))[1] + 1.0 / DRAWS
    return sorted(found.values(), key=lambda one: -one[1])


def _bounded(wanted: list[float], stakes: list[float], how: Explore, share: float) -> list[float]:
    """Shares of the runs, as wanted or all by the same factor less."""
    free = sum(part for part, stake in zip(wanted, stakes, strict=True) if stake == 0.0)
    risked, cost = sum(wanted) - free, float(np.dot(wanted, stakes))
    allowed, few = how.budget or 0.0, 0.0
    if how.outcomes is not None:
        allowed = max(allowed, how.left / how.outcomes)
        few = LOOKS / max(how.outcomes * share, LOOKS)
    affordable = 1.0 if how.budget is None or cost == 0.0 else allowed / cost
    risk = min(1.0, max(_part(few, risked), min(affordable, _part(MOST_EXPLORED, risked))))
    whole = _part(max(few, MOST_OTHERS), free + risk * risked)
    return [whole * part * (1.0 if stake == 0.0 else risk) for part, stake in zip(wanted, stakes, strict=True)]


def _part(most: float, of: float) -> float:
    """The factor that brings a share down to the most that it may be."""
    return 1.0 if of <= most else most / of


def _mean_stake(stake: Stake, contexts: Sequence[Array], point: Array) -> float:
    return float(np.mean([stake(context, point) for context in contexts[:DRAWS]])) if contexts else 0.0
