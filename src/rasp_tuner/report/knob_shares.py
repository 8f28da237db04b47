"""Which knobs a gain comes from, by what the tuner believes now.

A knob has a share only where its effect is shown: where the tuner is sure that putting it back to its default, with all
others as they are, would cost something. The share is its Shapley value among those knobs: the mean, over all orders in
which they can be moved from the default, of what its own move gains.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations

import numpy as np

from rasp_tuner.base.numerics import Array
from rasp_tuner.gain.versus_default import NORMAL_90
from rasp_tuner.optimizer.optimizer import Expected
from rasp_tuner.space import Auto, Knob
from rasp_tuner.tuner_forecasts import TunerForecasts
from rasp_tuner.types import KnobShares

MOST_ORDERED = 6  # knobs, of which all orders are looked at: 64 forecasts; of more each knob first and last
# Deviations of a difference. Two are too few: what is asked about is the best of very many settings by the same
# forecasts, so it differs from the default wherever that looks good.
SURE = 2.5
LEAST_SHARE = 0.01  # of the gain: less is none


def knob_shares(belief: TunerForecasts, context: Array, point: Array) -> KnobShares:
    """Shares of the knobs that are moved at a point [d], in a context [d_c]."""
    places = _places(belief.space.knobs)
    moved = [name for name, own in places.items() if not np.array_equal(point[own], belief.default[own])]
    known: dict[frozenset[str], Expected | None] = {}

    def without(names: frozenset[str]) -> Expected | None:
        """The loss with these knobs back at their defaults."""
        if names not in known:
            known[names] = belief.optimizer.model.expect(context, put_back(belief, point, names))
        return known[names]

    now, back = without(frozenset()), {name: without(frozenset([name])) for name in moved}
    shown = [name for name, other in back.items() if surely_more(other, now)]
    harmful = [name for name, other in back.items() if surely_more(now, other)]  # an effect, and no gain

    def loss(names: frozenset[str]) -> float:
        """Expected with only these of the shown knobs moved."""
        found = without(frozenset(shown) - names)
        return math.nan if found is None else found.mean

    shares = _shares(loss, shown)
    return KnobShares(shares, tuple(name for name in moved if name not in {*shares, *harmful}))


def put_back(belief: TunerForecasts, point: Array, names: Iterable[str]) -> Array:
    """The point [d] with these knobs at their default."""
    mixed, places = point.copy(), _places(belief.space.knobs)
    for name in names:
        mixed[places[name]] = belief.default[places[name]]
    return mixed


def _places(knobs: Mapping[str, Knob]) -> dict[str, slice]:
    """Where each knob lies in a point."""
    places, at = {}, 0
    for name, knob in knobs.items():
        wide = 2 if isinstance(knob, Auto) else 1
        places[name], at = slice(at, at + wide), at + wide
    return places


def surely_more(one: Expected | None, other: Expected | None, sure: float = SURE) -> bool:
    """Whether a loss is surely above another one, by so many deviations.

    Of a loss that is compared by factors, an interval is wider above its mean than below. Errors that both losses share
    are not known here; they would make it surer.
    """
    if one is None or other is None:
        return False
    return one.mean - other.mean > sure / NORMAL_90 * math.hypot(one.mean - one.low, other.high - other.mean)


def _shares(loss: Callable[[frozenset[str]], float], names: Sequence[str]) -> dict[str, float]:
    everything, nothing = frozenset(names), frozenset[str]()
    if not names or not loss(nothing) > loss(everything):
        return {}
    if len(names) <= MOST_ORDERED:
        effects = {name: _shapley(loss, name, names) for name in names}
    else:
        effects = {
            name: 0.5 * (loss(nothing) - loss(frozenset([name])) + loss(everything - {name}) - loss(everything))
            for name in names
        }
    whole = sum(effects.values())
    kept = {name: effect for name, effect in effects.items() if effect > LEAST_SHARE * whole > 0.0}
    total = sum(kept.values())
    return dict(sorted(((name, effect / total) for name, effect in kept.items()), key=lambda item: -item[1]))


def _shapley(loss: Callable[[frozenset[str]], float], name: str, moved: Sequence[str]) -> float:
    others, total = [other for other in moved if other != name], 0.0
    for size in range(len(others) + 1):
        for before in combinations(others, size):
            total += (loss(frozenset(before)) - loss(frozenset([*before, name]))) / math.comb(len(others), size)
    return total / len(moved)
