"""Answers without the server: remembered recommendations, and the suggestions made from them."""

import threading
import uuid
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rasp_tuner.contexts import Category
from rasp_tuner.core.checks import same_names
from rasp_tuner.core.numerics import Array
from rasp_tuner.errors import AlreadyAnswered, UnknownSuggestion
from rasp_tuner.space import Params

FALLBACK_PREFIX = "fallback-"
MAX_CONTEXTS = 64  # with a remembered recommendation
MAX_OPEN_FALLBACKS = 1_000  # newest, that can still be told


def is_fallback(id: str) -> bool:
    """Whether the client made this suggestion itself because the server did not answer."""
    return id.startswith(FALLBACK_PREFIX)


class RecommendationCache:
    """The default, and the latest recommendation for each of a bounded number of contexts; thread-safe."""

    def __init__(self, default: Params) -> None:
        self._default = dict(default)
        self._recommended: list[tuple[Array, Params]] = []  # oldest first
        self._lock = threading.Lock()

    def remember(self, context: Any, params: Params) -> None:
        """Store a recommendation; once full, it replaces the one with the nearest context."""
        where = _position(context)
        with self._lock:
            nearest = self._nearest(where)
            if nearest is not None:
                same = np.array_equal(self._recommended[nearest][0], where)
                if same or len(self._recommended) >= MAX_CONTEXTS:
                    del self._recommended[nearest]
            self._recommended.append((where, dict(params)))
            del self._recommended[:-MAX_CONTEXTS]

    def best(self, context: Any) -> Params:
        """The recommendation for the nearest context, the newest on a tie; the default if there is none."""
        with self._lock:
            nearest = self._nearest(_position(context))
            return dict(self._default if nearest is None else self._recommended[nearest][1])

    def _nearest(self, where: Array) -> int | None:
        """The index of the nearest context; each feature is scaled by its observed range."""
        alike = [i for i, (known, _) in enumerate(self._recommended) if known.shape == where.shape]
        if not alike:
            return None
        seen = np.array([self._recommended[i][0] for i in alike]).reshape(len(alike), len(where))
        low, high = (np.minimum(seen.min(0), where), np.maximum(seen.max(0), where)) if len(where) else (where, where)
        width = np.where(high / 2 > low / 2, high / 2 - low / 2, 1.0)  # halves: their difference cannot overflow
        far = (((seen / 2 - where / 2) / width) ** 2).sum(1)
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
    """Suggestions made without the server, and their answers; bounded, thread-safe."""

    def __init__(self) -> None:
        self._open: dict[str, FallbackSuggestion] = {}
        self._lock = threading.Lock()

    def make(self, context: Any, params: Params) -> str:
        """Store a suggestion; returns the id to tell it with."""
        id = f"{FALLBACK_PREFIX}{uuid.uuid4().hex}"
        with self._lock:
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
        with self._lock:
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


def _position(context: Any) -> Array:
    """A context as sent -> its numbers [d_c], sorted by name or in order; texts as a category has them."""
    values = [context[name] for name in sorted(context)] if isinstance(context, dict) else list(context or ())
    return np.array([x for value in values for x in _numbers(value)], dtype=np.float64)


def _numbers(value: str | float | None) -> list[float]:
    return Category().encode(value) if value is None or isinstance(value, str) else [float(value)]
