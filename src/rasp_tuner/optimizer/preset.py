"""Preset: the name of an optimizer with its constants. Enough to be written into a snapshot and built again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from rasp_tuner.base.checks import show
from rasp_tuner.errors import InvalidSpace
from rasp_tuner.optimizer.optimizer import Optimizer
from rasp_tuner.space import Layout
from rasp_tuner.types import Direction, Metric

Setting = float | bool | None
Settings = Mapping[str, Setting]
Metrics = Mapping[str, Metric | Direction]


@dataclass(frozen=True)
class PresetKind:
    """What the name of a preset stands for."""

    constants: Settings  # with their usual values
    check: Callable[[str, object], Setting]  # a constant's name and new value -> that value, or an InvalidSpace
    build: Callable[[Settings, Layout, int, Metrics, np.random.Generator], Optimizer]
    least_numbers: Callable[[Settings, Layout, int], int]  # that a snapshot of it holds, however little was learned


_KINDS: dict[str, Callable[[], PresetKind]] = {}


def register(name: str, load: Callable[[], PresetKind]) -> None:
    """Have `named(name)` know a kind, loaded at its first use; presets.py does so for every preset there is."""
    _KINDS[name] = load


@dataclass(frozen=True)
class Preset:
    """An optimizer by name, with its constants; make one with `presets.paper(...)` or `presets.default(...)`."""

    name: str
    constants: Settings

    def build(self, layout: Layout, context_dim: int, metrics: Metrics, rng: np.random.Generator) -> Optimizer:
        return _KINDS[self.name]().build(self.constants, layout, context_dim, metrics, rng)

    def least_numbers(self, layout: Layout, context_dim: int) -> int:
        """That a snapshot of such an optimizer holds at least, however little it has learned."""
        return _KINDS[self.name]().least_numbers(self.constants, layout, context_dim)


def names() -> tuple[str, ...]:
    return tuple(_KINDS)


def named(name: object, changes: object = None) -> Preset:
    """The preset called `name`, with some constants changed; a typed error names the choices."""
    if not isinstance(name, str) or name not in _KINDS:
        raise InvalidSpace(f"preset must be one of {list(_KINDS)} or a Preset, got {show(name)}")
    kind = _KINDS[name]()
    constants = dict(kind.constants)
    if changes is not None and not isinstance(changes, Mapping):
        raise InvalidSpace(f"preset constants must be a mapping, got {show(changes)}")
    for key, value in (changes or {}).items():
        if key not in constants:
            raise InvalidSpace(f"preset {name!r} has no constant {show(key)}; it has {list(constants)}")
        constants[key] = kind.check(key, value)
    return Preset(name, constants)


def resolved(preset: object) -> Preset:
    """A preset given by name or made by hand, with every constant checked."""
    return named(preset.name, preset.constants) if isinstance(preset, Preset) else named(preset)
