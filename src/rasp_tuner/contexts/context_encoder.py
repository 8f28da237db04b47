"""ContextEncoder: what a caller says about the situation -> a checked vector."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rasp_tuner.base.checks import number, same_names, show, vector, whole
from rasp_tuner.base.numerics import LARGEST, Array
from rasp_tuner.contexts import ContextKind, Number, kind_json, kind_of
from rasp_tuner.errors import InvalidSpace, InvalidValue

Schema = Mapping[str, ContextKind | str | Mapping[str, Any]] | Sequence[str] | int | None
RawContext = Mapping[str, Any] | Sequence[Any] | Array | None

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
            raise InvalidSpace(
                f"context must be a list of names, names with their kinds, a length or None, got {show(schema)}"
            )
        self._named = dict.fromkeys(self.names or ())

    @property
    def features(self) -> list[list[int]]:
        """The dimensions of each feature."""
        return [[i] for i in range(self.dim)]

    @property
    def labels(self) -> list[str] | None:
        """The name of the feature that each dimension belongs to."""
        return None if self.names is None else [self.names[i] for i, own in enumerate(self.features) for _ in own]

    @property
    def optional(self) -> frozenset[str]:
        """Names whose values may be missing."""
        return frozenset()

    def encode(self, context: RawContext) -> Array:
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

    def encode_readonly(self, context: RawContext) -> Array:
        """The same, of a context that will not be kept: a shield treats the two differently."""
        return self.encode(context)

    def keep(self, encoded: Array) -> Array:
        """A vector that another encoder of this schema made, as it may be kept: a shield changes it."""
        return encoded

    def decode(self, encoded: Array) -> dict[str, Any] | list[Any]:
        """The context of a vector [d_c], as far as that tells: by name, or a list where there are no names."""
        values = encoded.tolist()
        return values if self.names is None else dict(zip(self.names, values, strict=True))

    def to_json(self) -> dict[str, Any] | list[str] | int | None:
        return self.names if self.names is not None else (self.dim or None)

    def _example(self) -> str:
        if self.names is not None:
            return "{" + ", ".join(f"{name!r}: ..." for name in self.names) + "}"
        return f"[{self.dim} numbers]"


class KindEncoder(ContextEncoder):
    """The same for names with kinds (contexts/kinds.py): each feature has a fixed number of dimensions.

    >>> context_encoder({"qps": "number", "cached": "flag"}).encode({"qps": 420, "cached": True}).tolist()
    [420.0, 1.0, 0.0]
    """

    def __init__(self, kinds: Mapping[str, ContextKind]) -> None:
        super().__init__(list(kinds))
        self.kinds = dict(kinds)
        self.dim = whole("context", sum(kind.dim for kind in kinds.values()), 1, LARGEST_CONTEXT, InvalidSpace)

    @property
    def features(self) -> list[list[int]]:
        ends = np.cumsum([kind.dim for kind in self.kinds.values()]).tolist()
        return [list(range(end - kind.dim, end)) for kind, end in zip(self.kinds.values(), ends, strict=True)]

    @property
    def missing_flags(self) -> list[list[int]]:
        """The dimensions of each feature that may be missing; the last of them is a one where it is."""
        pairs = zip(self.kinds.values(), self.features, strict=True)
        return [own for kind, own in pairs if kind.may_be_missing]

    @property
    def optional(self) -> frozenset[str]:
        return frozenset(name for name, kind in self.kinds.items() if kind.may_be_missing)

    def encode(self, context: RawContext) -> Array:
        """The vector [d_c]; a mapping may leave out what may be missing, a sequence has one value for each name."""
        if context is None:
            raise InvalidValue(f"context is missing: give {self._example()}")
        if not isinstance(context, Mapping):
            if not isinstance(context, Sequence | np.ndarray) or isinstance(context, str | bytes):
                raise InvalidValue(f"context must be given as {self._example()}, got {show(context)}")
            if len(context) != len(self.kinds):
                raise InvalidValue(f"context must hold {len(self.kinds)} values, got {len(context)}: {show(context)}")
            context = dict(zip(self.kinds, context, strict=True))
        left_out = {name: None for name, kind in self.kinds.items() if kind.may_be_missing and name not in context}
        given = same_names("context", {**context, **left_out} if left_out else context, self._named)
        encoded: list[float] = []
        for name, kind in self.kinds.items():
            try:
                encoded += kind.encode(given[name])
            except InvalidValue as reason:
                raise InvalidValue(f"context[{name!r}] {reason}") from None
        return np.array(encoded)

    def decode(self, encoded: Array) -> dict[str, Any] | list[Any]:
        values, own = encoded.tolist(), zip(self.kinds.items(), self.features, strict=True)
        return {name: kind.decode([values[i] for i in places]) for (name, kind), places in own}

    def to_json(self) -> dict[str, Any] | list[str] | int | None:
        return {name: kind_json(kind) for name, kind in self.kinds.items()}


def context_encoder(schema: Schema) -> ContextEncoder:
    """The encoder of a schema; names whose kinds are plain numbers are as good as a list of names."""
    if not isinstance(schema, Mapping):
        return ContextEncoder(schema)
    if not schema or not all(isinstance(name, str) and name for name in schema):
        raise InvalidSpace(f"context must have names that are non-empty strings, got {show(schema)}")
    kinds = {name: kind_of(f"context[{name!r}]", given) for name, given in schema.items()}
    if all(kind == Number() for kind in kinds.values()):
        return ContextEncoder(list(kinds))
    return KindEncoder(kinds)
