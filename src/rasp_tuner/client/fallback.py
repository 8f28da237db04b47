"""What the client knows by itself: recommendations to fall back on, and the suggestions made from them."""

import threading
import uuid
from dataclasses import dataclass
from typing import Any

import numpy as np

from rasp_tuner.core.numerics import Array
from rasp_tuner.errors import AlreadyAnswered, UnknownSuggestion
from rasp_tuner.space import Params

PREFIX = "fallback-"
SITUATIONS = 64  # contexts whose recommendation is remembered
OPEN = 1_000  # fallbacks that can still be told, newest


def is_fallback(id: str) -> bool:
    """Whether the client made this suggestion by itself, because the server did not answer."""
    return id.startswith(PREFIX)


class Known:
    """The default, and the latest recommendation for each of a bounded number of contexts; for many threads."""

    def __init__(self, default: Params) -> None:
        self._default = dict(default)
        self._recommended: list[tuple[Array, Params]] = []  # oldest first
        self._lock = threading.Lock()

    def remember(self, context: Any, params: Params) -> None:
        """Take note of a recommendation; once full, it replaces the one whose context is nearest."""
        where = _position(context)
        with self._lock:
            nearest = self._nearest(where)
            if nearest is not None:
                same = np.array_equal(self._recommended[nearest][0], where)
                if same or len(self._recommended) >= SITUATIONS:
                    del self._recommended[nearest]
            self._recommended.append((where, dict(params)))
            del self._recommended[:-SITUATIONS]

    def best(self, context: Any) -> Params:
        """The recommendation for the nearest context, the newest of equals; the default if there is none."""
        with self._lock:
            nearest = self._nearest(_position(context))
            return dict(self._default if nearest is None else self._recommended[nearest][1])

    def _nearest(self, where: Array) -> int | None:
        """Distances count in widths of what was seen of each feature."""
        alike = [i for i, (known, _) in enumerate(self._recommended) if known.shape == where.shape]
        if not alike:
            return None
        seen = np.array([self._recommended[i][0] for i in alike]).reshape(len(alike), len(where))
        low, high = (np.minimum(seen.min(0), where), np.maximum(seen.max(0), where)) if len(where) else (where, where)
        width = np.where(high / 2 > low / 2, high / 2 - low / 2, 1.0)  # halves: their difference cannot overflow
        far = (((seen / 2 - where / 2) / width) ** 2).sum(1)
        return alike[len(alike) - 1 - int(np.argmin(far[::-1]))]


@dataclass(slots=True)
class Made:
    """A suggestion the client made, and the metrics told of it."""

    context: Any
    params: Params
    metrics: dict[str, float] | None = None
    failed: bool = False


class Fallbacks:
    """Suggestions made without the server, until they are told; bounded, for many threads."""

    def __init__(self) -> None:
        self._made: dict[str, Made] = {}
        self._lock = threading.Lock()

    def make(self, context: Any, params: Params) -> str:
        """The id under which it can be told."""
        id = f"{PREFIX}{uuid.uuid4().hex}"
        with self._lock:
            self._made[id] = Made(context, dict(params))
            while len(self._made) > OPEN:
                del self._made[next(iter(self._made))]
        return id

    def told(self, id: str, metrics: dict[str, float] | None) -> Made | None:
        """What was suggested, to be observed; None if the same was told before. `metrics` None: it failed."""
        with self._lock:
            made = self._made.get(id)
            if made is None:
                raise UnknownSuggestion(
                    f"no fallback {id!r} was made by this client, or {OPEN:,} newer ones pushed it out"
                )
            if made.metrics is None and not made.failed:
                made.metrics, made.failed = metrics, metrics is None
                return made
            if made.metrics != metrics:
                raise AlreadyAnswered(f"suggestion {id!r} was answered before, and not with this")
            return None


def _position(context: Any) -> Array:
    """A context as sent over the wire -> its numbers [d_c], by name or in order."""
    values = [context[name] for name in sorted(context)] if isinstance(context, dict) else list(context or ())
    return np.array(values, dtype=np.float64)
