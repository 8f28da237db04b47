"""Lineage: whose samples a tuner holds. Merged tuners must have none in common, or some would count twice.

A tuner is named after its seed and the first sample that it learned itself. So a copy keeps the name of its original
whatever it learns later, and equal tuners have equal names: their snapshots stay equal byte for byte. The price is that
two tuners of one seed that began with the very same sample look like copies.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rasp_tuner.base.checks import show, whole
from rasp_tuner.base.numerics import Array
from rasp_tuner.base.state_checks import MOST_SAMPLES
from rasp_tuner.errors import InvalidValue


@dataclass
class Lineage:
    """Names of tuners, and how many samples of each are held."""

    seed: int
    held: dict[str, int] = field(default_factory=dict)
    own: str | None = None  # the name under which this tuner's own samples are held

    @property
    def total(self) -> int:
        return sum(self.held.values())

    def add(self, context: Array, point: Array, metrics: Mapping[str, float] | None, count: int = 1) -> None:
        """One more sample of its own, or so many; a failure has no metrics."""
        if self.own is None:
            came = None if metrics is None else sorted((name, float(value)) for name, value in metrics.items())
            self.own = named(self.seed, context.tolist(), point.tolist(), came)
        self.held[self.own] = self.held.get(self.own, 0) + count

    def before(self, other: "Lineage") -> bool:
        """Whether this one comes first: an order of any number of tuners that is the same however they are merged."""
        return not other.held or (bool(self.held) and min(self.held) < min(other.held))

    def check_apart(self, other: "Lineage") -> None:
        """An InvalidValue if both hold samples of one tuner."""
        for name in self.held.keys() & other.held.keys():
            count = min(self.held[name], other.held[name])
            raise InvalidValue(
                f"both tuners hold samples of tuner {name}, up to {count} the same, and none may count twice: one is a"
                " copy of the other, or they were merged before; tuners that only began alike need seeds of their own"
            )

    def merge(self, other: "Lineage") -> None:
        self.held = {**self.held, **other.held}

    def to_json(self) -> dict[str, Any]:
        return {"own": self.own, "held": dict(self.held)}

    @classmethod
    def rebuild(cls, seed: int, data: object, learned: int) -> "Lineage":
        """What `to_json` gave. Samples learned since then are the tuner's own."""
        if not isinstance(data, Mapping) or not isinstance(data.get("held"), Mapping):
            raise InvalidValue(f"lineage must say whose samples are held, got {show(data)}")
        own = data["own"]
        held = {_name(name): whole("lineage", count, 1, MOST_SAMPLES) for name, count in data["held"].items()}
        lineage = cls(seed, held, None if own is None else _name(own))
        since = whole("samples since the lineage was noted", learned - lineage.total, 0, MOST_SAMPLES)
        if since:
            lineage.held[_name(own)] = held.get(own, 0) + since
        return lineage


def named(*what: object) -> str:
    """A name made of this: 16 hexadecimal digits."""
    return hashlib.sha256(repr(what).encode()).hexdigest()[:16]


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise InvalidValue(f"lineage: a tuner is named by a string, got {show(name)}")
    return name
