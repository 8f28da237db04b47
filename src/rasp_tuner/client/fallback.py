"""Answers without the server: remembered recommendations, and the suggestions made from them."""

import logging
import math
import uuid
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rasp_tuner.base.checks import same_names
from rasp_tuner.base.numerics import LARGEST, Array
from rasp_tuner.contexts import Category
from rasp_tuner.contexts.context_metric import ContextMetric
from rasp_tuner.errors import AlreadyAnswered, UnknownSuggestion
from rasp_tuner.space import Params

FALLBACK_PREFIX = "fallback-"
MAX_CONTEXTS = 64  # with a remembered recommendation
MAX_OPEN_FALLBACKS = 1_000  # newest, that can still be told
WINDOW_ASKS, LEAST_ASKS = 100, 20  # newest asks whose share of fallbacks is watched; before the first warning
WARN_SHARE, FINE_SHARE = 0.2, 0.05  # of fallbacks: a warning; the next warning needs fewer in between

log = logging.getLogger("rasp_tuner.client")


def is_fallback(id: str) -> bool:
    """Whether the client made this suggestion itself because the server did not answer."""
    return id.startswith(FALLBACK_PREFIX)


ALIKE_WITHIN = 0.2  # of a number, or of the spread of all that are remembered: so near, one context stands for another


class RecommendationCache:
    """The default, and the latest recommendation for each of a bounded number of contexts."""

    def __init__(self, default: Params) -> None:
        self._default = dict(default)
        self._recommended: list[tuple[Array, Params]] = []  # oldest first

    def remember(self, context: Any, params: Params) -> None:
        """Store a recommendation; once full, it replaces the one with the nearest context."""
        where = _position(context)
        nearest = self._nearest(where)
        if nearest is not None:
            same = np.array_equal(self._recommended[nearest][0], where)
            if same or len(self._recommended) >= MAX_CONTEXTS:
                del self._recommended[nearest]
        self._recommended.append((where, dict(params)))
        del self._recommended[:-MAX_CONTEXTS]

    def best(self, context: Any) -> Params:
        """The recommendation for the nearest context, the newest on a tie; the default if that is another situation."""
        where = _position(context)
        nearest = self._nearest(where)
        if nearest is None or not self._alike(where, self._recommended[nearest][0]):
            return dict(self._default)
        return dict(self._recommended[nearest][1])

    def _alike(self, where: Array, known: Array) -> bool:
        """Whether one of two contexts stands for the other: each number is about the same."""
        all_known = np.array([own for own, _ in self._recommended if own.shape == where.shape])
        spread = ContextMetric.of(all_known, math.inf).deviation
        return bool((np.abs(where - known) <= ALIKE_WITHIN * np.maximum(np.abs(known), spread)).all())

    def _nearest(self, where: Array) -> int | None:
        """The index of the context most like this one, the newest on a tie."""
        alike = [i for i, (known, _) in enumerate(self._recommended) if known.shape == where.shape]
        if not alike:
            return None
        seen = np.array([self._recommended[i][0] for i in alike]).reshape(len(alike), len(where))
        apart = ContextMetric.of(seen, float(len(seen))).bounded(np.concatenate([seen, where[None]]))
        far = ((apart[:-1] - apart[-1]) ** 2).sum(1)
        return alike[len(alike) - 1 - int(np.argmin(far[::-1]))]


@dataclass(slots=True)
class FallbackSuggestion:
    """A suggestion that the client made, and its answer."""

    context: Any
    params: Params
    metrics: dict[str, float] | None = None
    failed: bool = False
    ran: Params = field(default_factory=dict)  # all knobs, once it was told


class Fallbacks:
    """Suggestions made without the server, and their answers; bounded."""

    def __init__(self) -> None:
        self._open: dict[str, FallbackSuggestion] = {}

    def make(self, context: Any, params: Params) -> str:
        """Store a suggestion; returns the id to tell it with."""
        id = f"{FALLBACK_PREFIX}{uuid.uuid4().hex}"
        self._open[id] = FallbackSuggestion(context, dict(params))
        while len(self._open) > MAX_OPEN_FALLBACKS:
            del self._open[next(iter(self._open))]
        return id

    def tell(
        self, id: str, metrics: dict[str, float] | None, params: Params | None = None
    ) -> FallbackSuggestion | None:
        """The suggestion, to send as an observation; None if the same was told before. `metrics` None: it failed.

        `params` says what ran; knobs it leaves out ran as suggested.
        """
        made = self._open.get(id)
        if made is None:
            raise UnknownSuggestion(
                f"no fallback {id!r} was made by this client, or {MAX_OPEN_FALLBACKS:,} newer ones replaced it"
            )
        ran = {**made.params, **(params or {})}
        same_names("params", ran, made.params)
        if made.metrics is None and not made.failed:
            made.metrics, made.failed, made.ran = metrics, metrics is None, ran
            return made
        if made.metrics != metrics or made.ran != ran:
            raise AlreadyAnswered(f"suggestion {id!r} was answered before with other values")
        return None


class FallbackShare:
    """How many asks were answered without the server: counted and logged."""

    def __init__(self, study: str) -> None:
        self._study = study
        self.asks = self.fallbacks = 0  # in all
        self._newest: deque[bool] = deque(maxlen=WINDOW_ASKS)
        self._warned = False

    def count(self, fell_back: bool) -> None:
        """Count an ask; warn when many of the newest were answered without the server."""
        self.asks += 1
        self.fallbacks += fell_back
        self._newest.append(fell_back)
        recent, asks = sum(self._newest), len(self._newest)
        many = asks >= LEAST_ASKS and recent > WARN_SHARE * asks
        if many and not self._warned:
            log.warning(
                "study %r: %d of the latest %d asks were answered without the server: little is tuned."
                " Is it up, and is ask_deadline long enough?",
                self._study,
                recent,
                asks,
            )
        self._warned = many or (self._warned and recent > FINE_SHARE * asks)


def _position(context: Any) -> Array:
    """A context as sent -> its numbers [d_c], sorted by name or in order; texts as a category has them."""
    values = [context[name] for name in sorted(context)] if isinstance(context, dict) else list(context or ())
    numbers = np.array([x for value in values for x in _numbers(value)], dtype=np.float64)
    return np.clip(numbers, -LARGEST, LARGEST)


def _numbers(value: str | float | None) -> list[float]:
    return Category().encode(value) if value is None or isinstance(value, str) else [float(value)]
