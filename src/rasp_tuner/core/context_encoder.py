"""ContextEncoder: what a caller says about the situation -> a checked vector."""

from collections.abc import Mapping, Sequence

import numpy as np

from rasp_tuner.core.checks import number, same_names, show, vector, whole
from rasp_tuner.core.numerics import LARGEST, Array
from rasp_tuner.errors import InvalidSpace, InvalidValue

LARGEST_CONTEXT = 100_000  # dimensions
SHORT_CONTEXT = 32  # dimensions, up to which one look at each costs less than NumPy


class ContextEncoder:
    """Named or plain context of fixed length -> float vector [d_c].

    The paper measures distance between raw contexts, so nothing is rescaled here; values beyond +-1e100 saturate.

    >>> ContextEncoder(["qps", "payload_kb"]).encode({"payload_kb": 3.2, "qps": 420}).tolist()
    [420.0, 3.2]
    """

    def __init__(self, schema: Sequence[str] | int | None) -> None:
        self.names: list[str] | None = None
        if schema is None:
            self.dim = 0
        elif isinstance(schema, (int, np.integer)) and not isinstance(schema, bool):
            self.dim = whole("context", schema, 1, LARGEST_CONTEXT, InvalidSpace)
        elif isinstance(schema, Sequence) and not isinstance(schema, (str, bytes)):
            self.names = list(schema)
            self.dim = len(self.names)
            if not self.names:
                raise InvalidSpace("context must name at least one feature, or be None for context-free tuning, got []")
            if not all(isinstance(name, str) and name for name in self.names):
                raise InvalidSpace(f"context names must be non-empty strings, got {show(schema)}")
            if len(set(self.names)) < self.dim:
                raise InvalidSpace(f"context names must differ, got {show(schema)}")
        else:
            raise InvalidSpace(f"context must be a list of names, a length or None, got {show(schema)}")
        self._named = dict.fromkeys(self.names or ())

    def encode(self, context: Mapping[str, float] | Sequence[float] | Array | None) -> Array:
        """The vector [d_c]; a mapping needs exactly the declared names, a sequence exactly the declared length."""
        plain = self._plain(context)
        if plain is not None:
            return plain
        if self.dim == 0:
            if context is None or (isinstance(context, (Mapping, Sequence, np.ndarray)) and len(context) == 0):
                return np.zeros(0)
            raise InvalidValue(f"this tuner was built without context, got {show(context)}; leave it out")
        if context is None:
            raise InvalidValue(f"context is missing: give {self._example()}")
        if isinstance(context, Mapping):
            if self.names is None:
                raise InvalidValue(f"context has no names here: give {self._example()}, got {show(context)}")
            given = same_names("context", context, self._named)
            encoded = np.array([number(f"context[{name!r}]", given[name]) for name in self.names])
        else:
            encoded = vector("context", context, self.dim)
        clipped: Array = np.minimum(np.maximum(encoded, -LARGEST), LARGEST)
        return clipped

    def _plain(self, context: object) -> Array | None:
        """The usual case: a context that is right, of floats that need no clipping. Else None."""
        if isinstance(context, np.ndarray):
            if context.dtype != np.float64 or context.shape != (self.dim,):
                return None
            if self.dim > SHORT_CONTEXT:
                return context.copy() if np.abs(context).max() <= LARGEST else None
        values: object = None
        if isinstance(context, dict):
            values = list(map(context.get, self._named)) if context.keys() == self._named.keys() else None
        elif isinstance(context, (list, tuple, np.ndarray)):
            values = list(context) if isinstance(context, (list, tuple)) else context.tolist()
        if not isinstance(values, list) or not 0 < len(values) == self.dim <= SHORT_CONTEXT:
            return None
        for value in values:
            if type(value) is not float or not -LARGEST <= value <= LARGEST:
                return None
        return np.array(values)

    def encode_readonly(self, context: Mapping[str, float] | Sequence[float] | Array | None) -> Array:
        """The same, of a context that will not be kept: a shield treats the two differently."""
        return self.encode(context)

    def to_json(self) -> list[str] | int | None:
        return self.names if self.names is not None else (self.dim or None)

    def _example(self) -> str:
        if self.names is not None:
            return "{" + ", ".join(f"{name!r}: ..." for name in self.names) + "}"
        return f"[{self.dim} numbers]"
