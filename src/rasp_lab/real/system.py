"""What is tuned: knobs with their shipped defaults, pieces of work, and how one of them is run."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from rasp_tuner.contexts.context_encoder import Schema
from rasp_tuner.space import Knob, Params, Value

Knobs = Mapping[str, tuple[Knob, Value]]  # each with its shipped default
Tried = Mapping[str, Sequence[Value]]  # by hand, of some knobs

STRETCH = (2, 7)  # steps for which a kind of work goes on: from 2 to 6


class RunFailed(Exception):
    """The settings could not run, or took too long; the work costs `cost_ms`, or else the time until the failure."""

    def __init__(self, reason: str, cost_ms: float | None = None) -> None:
        super().__init__(reason)
        self.cost_ms = cost_ms


@dataclass(frozen=True, slots=True)
class Work:
    """One piece of work, the same for every agent of a step."""

    kind: str  # what a person would call it; only for tables, and for peers that keep one search for each kind
    context: dict[str, float | str]  # what a contextual agent sees
    seed: int  # of what is random in it: keys, rows


class System(ABC):
    """A program with settings. Used as a context manager: it is prepared once, then runs many pieces of work.

    The docstring of a subclass names knobs, work and cost: it is printed in docs/REAL.md.
    """

    title: ClassVar[str]
    knobs: ClassVar[Knobs]
    context: ClassVar[Schema]
    kinds: ClassVar[tuple[str, ...]]
    constraints: ClassVar[tuple[str, ...]] = ()
    grid: ClassVar[tuple[Params, ...]] = ()  # what a person would try by hand; empty: nobody would

    def __init__(self, folder: Path) -> None:
        self.folder = folder  # empty; the system may write there

    @property
    def space(self) -> dict[str, Knob]:
        return {name: knob for name, (knob, _) in self.knobs.items()}

    @property
    def default(self) -> Params:
        return {name: value for name, (_, value) in self.knobs.items()}

    @classmethod
    def missing(cls) -> str | None:
        """What is missing on this machine to run it; None if nothing is."""
        return None

    @classmethod
    @abstractmethod
    def version(cls) -> str:
        """What is measured, for the page."""

    @abstractmethod
    def work(self, kind: str, rng: np.random.Generator) -> Work:
        """A piece of work of this kind; its size differs from one to the next."""

    @abstractmethod
    def run(self, params: Params, work: Work) -> float:
        """Milliseconds that this work takes with these settings; raises RunFailed."""

    def built(self, params: Params) -> tuple[str, float] | None:
        """What these settings are compiled to, and the milliseconds that takes; None where nothing is compiled."""
        del params
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        return

    def sequence(self, steps: int, seed: int) -> list[Work]:
        """The work of a run: stretches of one kind after another; all kinds in random order, then all again."""
        rng = np.random.default_rng([seed, 1])
        found: list[Work] = []
        while len(found) < steps:
            for kind in rng.permutation(self.kinds).tolist():
                found += [self.work(kind, rng) for _ in range(rng.integers(*STRETCH))]
        return found[:steps]


class SelfTuning(System):
    """A system with a tuner of its own, which tries some candidates in each new context."""

    candidates: ClassVar[tuple[Params, ...]]

    @abstractmethod
    def best_fixed(self) -> Params:
        """The settings that are best for all work together, in hindsight."""


def coarse_grid(knobs: Knobs, tried: Tried) -> tuple[Params, ...]:
    """All combinations of a few values of a few knobs, the others at their defaults.

    >>> from rasp_tuner import Int
    >>> coarse_grid({"x": (Int(0, 9), 1), "y": (Int(0, 9), 2)}, {"x": (1, 5)})
    ({'x': 1, 'y': 2}, {'x': 5, 'y': 2})
    """
    default = {name: value for name, (_, value) in knobs.items()}
    return tuple({**default, **dict(zip(tried, values, strict=True))} for values in product(*tried.values()))


def new_seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**32))
