"""What every sink has: a name, the modes it is for, the knobs it carries, and a way to deliver."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rasp_tuner.space import Params
from rasp_tuner.study_file import template
from rasp_tuner.study_file.fields import check_fields


@dataclass(frozen=True)
class Sink(ABC):
    """Hands parameters to a system."""

    name: str
    modes: tuple[str, ...]
    knobs: tuple[str, ...]  # that it carries

    @abstractmethod
    def deliver(self, params: Params) -> None:
        """Return once the parameters are handed over; SinkFailed if they are not."""

    @abstractmethod
    def shown(self, params: Params) -> str:
        """What `deliver` would do, in words and with what it would write."""

    @abstractmethod
    def problems(self) -> list[str]:
        """What would keep it from delivering, as far as can be seen without doing it."""

    def placeholder_values(self, params: Params) -> Params:
        """What the names in braces stand for; a knob that does not exist here is empty."""
        return {**dict.fromkeys(self.knobs, ""), **params}


@dataclass
class SinkFields:
    """The fields of one sink in a study file, taken out one by one."""

    study: str
    name: str
    modes: tuple[str, ...]
    knobs: tuple[str, ...]  # of the study
    folder: Path
    rest: dict[str, Any]
    taken: list[str] = field(default_factory=list)

    @property
    def where(self) -> str:
        return f"sinks.{self.name}"

    def take(self, key: str, otherwise: Any = None) -> Any:
        self.taken.append(key)
        return self.rest.pop(key, otherwise)

    def used_knobs(self, where: str, texts: Iterable[str]) -> tuple[str, ...]:
        """The knobs whose placeholder is in one of the texts; each placeholder must be a knob."""
        found = set()
        for text in texts:
            template.check(where, text, self.knobs)
            found |= set(template.placeholders(text))
        return tuple(name for name in self.knobs if name in found)

    def check_all_used(self) -> None:
        check_fields(self.where, self.rest, [*self.taken, "modes"])
