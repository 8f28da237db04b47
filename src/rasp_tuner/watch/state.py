"""WatchState: where a study stands, moved by the lines of its journal; the same for a line of today and a replayed one.

kind         what happened
step         something ran and was measured; it was learned
asked        a suggestion whose step does not count: the tuner was asked, and not told
applying     parameters are being handed to the sinks
unknown      a sink failed, and so did putting back what was there: nobody knows what runs
rollback     back to the default, until somebody says --resume
resumed      somebody did
checkpoint   the state itself; what the tuner knows is in the file `snapshot` names
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rasp_tuner.space import Params

SETTINGS_COUNTED = 20


@dataclass
class WatchState:
    """What is known besides what the tuner has learned."""

    default: Params
    steps: int = 0
    in_place: Params | None = None  # None: not known
    in_place_mode: str = "live"  # in which it was put there
    good: Params = field(default_factory=dict)  # to go back to
    rolled_back: str = ""  # why, if it is
    spent_at: float = 0.0  # what the budget must have left; less once somebody has resumed
    broken_in_row: int = 0  # steps that broke a limit, one after the other
    settings: list[Params] = field(default_factory=list)  # different ones that ran, the first few

    @classmethod
    def at_start(cls, default: Params) -> "WatchState":
        """Before anything happened the default runs."""
        return cls(default, in_place=dict(default), good=dict(default))

    def apply(self, entry: Mapping[str, Any]) -> None:
        """Move on by one line of the journal."""
        kind = entry["kind"]
        if kind == "step":
            self._step(entry)
        elif kind == "applying":
            self.in_place, self.in_place_mode = entry["params"], entry["mode"]
        elif kind == "unknown":
            self.in_place = None
        elif kind == "rollback":
            self.rolled_back, self.good, self.broken_in_row = entry["reason"], dict(self.default), 0
        elif kind == "resumed":
            self.rolled_back, self.broken_in_row, self.spent_at = "", 0, entry["spent_at"]

    def _step(self, entry: Mapping[str, Any]) -> None:
        self.steps += 1
        ran = entry["ran"] or entry["params"]
        if ran not in self.settings and len(self.settings) < SETTINGS_COUNTED:
            self.settings.append(ran)
        if entry["role"] == "suggestion":
            self.broken_in_row = self.broken_in_row + 1 if entry["broken"] else 0
        if entry["good"]:
            self.good = ran  # which may not be what was handed over

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "WatchState":
        return cls(**data)
