"""ContextShield: transforms a raw context before anything is learned, stored or logged.

symbol   meaning
x        the context, each dimension scaled so that its stated range becomes [-1, 1]; [d]
R        radius to which noise clips x; sqrt(d), the corner of that box, unless stated
sigma    deviation of the noise in each dimension, 2 R / sqrt(2 rho)
rho      what one record costs in zero-concentrated differential privacy (Bun and Steinke, 2016); costs add up
W, b     rotation or projection [d_out, d] and shift, drawn from HMAC(key)

The order is: scale, clip, add noise, turn. What comes after the noise is post-processing. A turned context is hidden
from those who only read, not encrypted: distances stay, and d + 1 known contexts give W and b away.
"""

import hashlib
import hmac
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rasp_tuner.base.checks import number, show, whole
from rasp_tuner.base.numerics import LARGEST, Array
from rasp_tuner.base.threads import one_thread
from rasp_tuner.contexts import ContextKind, Number
from rasp_tuner.contexts.context_encoder import RawContext, Schema, context_encoder
from rasp_tuner.errors import BudgetSpent, InvalidSpace, SnapshotError

SHORTEST_KEY = 16  # bytes

Ranges = Mapping[str, tuple[float, float] | ContextKind] | Sequence[tuple[float, float]]


class PrivacyBudget:
    """Counts what was given away, as if every record were about the same person, and refuses beyond the limit.

    >>> budget = PrivacyBudget(epsilon=1.0, delta=1e-6)
    >>> budget.spend(0.01), round(budget.spent, 3)
    (None, 0.753)
    """

    def __init__(self, epsilon: float, delta: float = 1e-6) -> None:
        self.epsilon, self.delta = _positive("epsilon", epsilon), _share("delta", delta)
        self.rho = 0.0

    @property
    def spent(self) -> float:
        """The epsilon of all that was given away, at `delta`."""
        return epsilon_of(self.rho, self.delta)

    def spend(self, rho: float) -> None:
        if epsilon_of(self.rho + rho, self.delta) > self.epsilon:
            raise BudgetSpent(
                f"the privacy budget epsilon={self.epsilon:g}, delta={self.delta:g} is spent: another context would"
                f" make it {epsilon_of(self.rho + rho, self.delta):.4g}; recommend() keeps no context and goes on"
            )
        self.rho += rho


class GaussianNoise:
    """Noise that makes one stored context (epsilon, delta)-private; `budget` counts and bounds all of them together.

    epsilon, delta  of one record: replacing its context by any other changes what is stored by no more than that
    radius          to which scaled contexts are clipped; smaller means less noise, and less to tell apart
    seed            for experiments: who knows it can take the noise away
    """

    def __init__(
        self,
        epsilon: float,
        delta: float = 1e-6,
        budget: PrivacyBudget | None = None,
        radius: float | None = None,
        seed: int | None = None,
    ) -> None:
        self.epsilon, self.delta, self.budget = _positive("epsilon", epsilon), _share("delta", delta), budget
        self.radius = None if radius is None else _positive("radius", radius)
        self.rho = rho_of(self.epsilon, self.delta)
        self._rng = np.random.default_rng(
            seed
        )  # of its own: the tuner's is saved with it, and would give the noise away

    def sigma(self, dim: int) -> float:
        """Deviation in each scaled dimension."""
        return 2.0 * self.clip(dim) / math.sqrt(2.0 * self.rho)

    def clip(self, dim: int) -> float:
        return math.sqrt(dim) if self.radius is None else self.radius

    def apply(self, x: Array) -> Array:
        """The clipped context with fresh noise; what it costs is spent."""
        if self.budget is not None:
            self.budget.spend(self.rho)
        noisy: Array = self.clipped(x) + self._rng.normal(0.0, self.sigma(len(x)), len(x))
        return noisy

    def clipped(self, x: Array) -> Array:
        size = float(np.linalg.norm(x))
        inside: Array = x * min(1.0, self.clip(len(x)) / size) if size > 0.0 else x
        return inside


class ContextShield:
    """Scales contexts by stated ranges, adds noise if it is given, and turns them by a secret key if that is given.

    The key and the noise stay outside: a snapshot holds a mark by which a wrong key is refused, and what was spent.
    `Tuner(context=..., shield=...)` has it at its door; at another door, as of a service, call it.

    >>> shield = ContextShield({"qps": (0.0, 1000.0), "payload_kb": (0.0, 64.0)}, key="kept outside, and long")
    >>> [round(x, 3) for x in shield({"qps": 420.0, "payload_kb": 3.2})]
    [1.059, 0.033]
    """

    def __init__(
        self,
        ranges: Ranges,
        *,
        key: str | bytes | None = None,
        dim: int | None = None,
        noise: GaussianNoise | None = None,
    ) -> None:
        self.names = list(ranges) if isinstance(ranges, Mapping) else None
        pairs = list(ranges.values()) if isinstance(ranges, Mapping) else list(ranges)
        kinds = [pair if isinstance(pair, ContextKind) else Number() for pair in pairs]
        named = None if self.names is None else dict(zip(self.names, kinds, strict=True))
        self._encoder = context_encoder(len(pairs) if named is None else named)
        limits = np.array(
            [
                limit
                for i, (pair, kind) in enumerate(zip(pairs, kinds, strict=True))
                for limit in _limits(self.names[i] if self.names else i, pair, kind)
            ]
        )
        self._middle, self._half = limits.mean(axis=1), (limits[:, 1] - limits[:, 0]) / 2.0
        self.noise = noise
        self.dim = self._encoder.dim if dim is None else whole("dim", dim, 1, self._encoder.dim, InvalidSpace)
        if key is None and dim is not None:
            raise InvalidSpace("dim asks for a projection, which needs a key")
        said = f"{self._encoder.to_json()} {limits.tolist()} {self.dim}"
        secret = b"" if key is None else _secret(key)
        self.mark = hmac.new(secret, f"mark {said} {key is None}".encode(), hashlib.sha256).hexdigest()[:16]
        self._turn = None if key is None else _drawn(secret, self._encoder.dim, self.dim)

    def __call__(self, context: RawContext) -> list[float]:
        """The context as it may be kept and sent; noise is spent."""
        return self.encode(context).tolist()  # type: ignore[no-any-return]

    def encode(self, context: RawContext) -> Array:
        """[dim] to keep."""
        return self.keep(self._encoder.encode(context))

    def keep(self, encoded: Array) -> Array:
        """[dim] the same of a context that is a vector already."""
        x = self._scaled(encoded)
        return self._turned(x if self.noise is None else self.noise.apply(x))

    def encode_readonly(self, context: RawContext) -> Array:
        """[dim] to look with and not to keep: clipped, but without noise, and free."""
        x = self._scaled(self._encoder.encode(context))
        return self._turned(x if self.noise is None else self.noise.clipped(x))

    @property
    def labels(self) -> list[str] | None:
        """The name of the feature that each dimension belongs to; None where a key mixes them."""
        return self._encoder.labels if self._turn is None else None

    def to_json(self) -> dict[str, Any] | list[str] | int | None:
        return self._encoder.to_json()

    def decode(self, kept: Array) -> list[Any]:
        """[dim] as it is kept: no names, and no way back."""
        return kept.tolist()  # type: ignore[no-any-return]

    def check(self, schema: Schema) -> "ContextShield":
        """Itself, if it is one for contexts like these."""
        if context_encoder(schema).to_json() != self.to_json():
            raise InvalidSpace(f"shield has ranges for the context {show(self.to_json())}, got context={show(schema)}")
        return self

    def state(self) -> dict[str, Any]:
        """What a snapshot says of it."""
        budget = None if self.noise is None else self.noise.budget
        return {"mark": self.mark, "rho": None if budget is None else budget.rho}

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Nothing, if a snapshot with this state was made with such a shield."""
        if state["mark"] != self.mark:
            raise SnapshotError("the snapshot was made with another shield: its key, ranges or dim are others")
        if state["rho"] is not None:
            number("rho", state["rho"], SnapshotError)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take back how much of the budget was spent; the state was checked."""
        if state["rho"] is not None and self.noise is not None and self.noise.budget is not None:
            self.noise.budget.rho = max(self.noise.budget.rho, state["rho"])

    def _scaled(self, encoded: Array) -> Array:
        x: Array = np.clip((encoded - self._middle) / self._half, -LARGEST, LARGEST)
        return x

    @one_thread()
    def _turned(self, x: Array) -> Array:
        if self._turn is None:
            return x
        matrix, shift = self._turn
        turned: Array = matrix @ x + shift
        return turned


def epsilon_of(rho: float, delta: float) -> float:
    """The epsilon at `delta` of a mechanism that is rho-zCDP."""
    return rho + 2.0 * math.sqrt(rho * math.log(1.0 / delta))


def rho_of(epsilon: float, delta: float) -> float:
    """The rho whose `epsilon_of` is this."""
    log = math.log(1.0 / delta)
    return (epsilon / (math.sqrt(log + epsilon) + math.sqrt(log))) ** 2


@one_thread()
def _drawn(secret: bytes, dim: int, out: int) -> tuple[Array, Array]:
    """Orthonormal rows [out, dim], scaled to keep lengths on average, and a shift [out]."""
    seed = hmac.new(secret, f"turn {dim} {out}".encode(), hashlib.sha256).digest()
    rng = np.random.default_rng(int.from_bytes(seed))
    q, r = np.linalg.qr(rng.normal(size=(dim, dim)))
    q = q * np.sign(np.diag(r))  # uniform over rotations
    return q[:, :out].T * math.sqrt(dim / out), rng.normal(size=out)


def _secret(key: str | bytes) -> bytes:
    secret = key.encode() if isinstance(key, str) else key
    if not isinstance(secret, bytes) or len(secret) < SHORTEST_KEY:
        raise InvalidSpace(f"key must have at least {SHORTEST_KEY} bytes, as secrets.token_bytes(32) gives")
    return secret


def _limits(name: object, pair: object, kind: ContextKind) -> list[tuple[float, float]]:
    """Of each dimension of a feature; what is no number lies between -1 and 1 anyhow."""
    if pair is not kind:
        return [_range(name, pair)]
    if isinstance(kind, Number):
        raise InvalidSpace(f"ranges[{name!r}] must be (low, high) for a number, got {show(pair)}")
    return [(-1.0, 1.0)] * kind.dim


def _range(name: object, pair: object) -> tuple[float, float]:
    if not isinstance(pair, Sequence) or len(pair) != 2:
        raise InvalidSpace(f"ranges[{name!r}] must be (low, high), got {show(pair)}")
    low, high = (number(f"ranges[{name!r}]", value, InvalidSpace) for value in pair)
    if not low < high:
        raise InvalidSpace(f"ranges[{name!r}] needs low < high, got {low=} {high=}")
    return low, high


def _positive(field: str, value: object) -> float:
    result = number(field, value, InvalidSpace)
    if result <= 0.0:
        raise InvalidSpace(f"{field} must be positive, got {result!r}")
    return result


def _share(field: str, value: object) -> float:
    result = _positive(field, value)
    if result >= 1.0:
        raise InvalidSpace(f"{field} must lie between 0 and 1, got {result!r}")
    return result
