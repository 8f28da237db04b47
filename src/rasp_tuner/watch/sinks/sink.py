"""What every sink has: a name, the modes it is for, the knobs it carries, and a way to deliver."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from rasp_tuner.base.checks import show
from rasp_tuner.errors import InvalidSpace
from rasp_tuner.space import Params, Value
from rasp_tuner.study_file import template
from rasp_tuner.study_file.fields import check_fields


class Sink(Protocol):
    """Hands parameters to a system."""

    @property
    def name(self) -> str: ...

    @property
    def modes(self) -> tuple[str, ...]: ...

    @property
    def knobs(self) -> tuple[str, ...]:
        """The knobs that it carries."""
        ...

    def deliver(self, params: Params) -> None:
        """Return once the parameters are handed over; SinkFailed if they are not."""
        ...

    def shown(self, params: Params) -> str:
        """What `deliver` would do, in words and with what it would write."""
        ...

    def problems(self) -> list[str]:
        """What would keep it from delivering, as far as can be seen without doing it."""
        ...


@dataclass
class SinkFields:
    """The fields of one sink in a study file, taken out one by one."""

    study: str
    name: str
    modes: tuple[str, ...]
    knobs: tuple[str, ...]
    folder: Path
    rest: dict[str, Any]
    taken: list[str] = field(default_factory=list)

    @property
    def where(self) -> str:
        return f"sinks.{self.name}"

    def take(self, key: str, otherwise: Any = None) -> Any:
        self.taken.append(key)
        return self.rest.pop(key, otherwise)

    def text(self, key: str, otherwise: str | None = None) -> str:
        """A field that must be a text with something in it."""
        given = self.take(key, otherwise)
        if not isinstance(given, str) or not given:
            raise InvalidSpace(f"{self.where}.{key} must be a text, got {show(given)}")
        return given

    def path(self, key: str) -> Path:
        """A file, relative to the study's folder."""
        return self.folder / Path(self.text(key)).expanduser()

    def check_all_used(self) -> None:
        check_fields(self.where, self.rest, [*self.taken, "modes"])


def placeholder_values(knobs: tuple[str, ...], params: Mapping[str, Value]) -> dict[str, Value]:
    """What the names in braces stand for; a knob that does not exist here is empty."""
    return {**dict.fromkeys(knobs, ""), **params}


def used_knobs(knobs: tuple[str, ...], texts: list[str]) -> tuple[str, ...]:
    """The knobs whose placeholder is in one of the texts."""
    found = {name for text in texts for name in template.placeholders(text)}
    return tuple(name for name in knobs if name in found)
