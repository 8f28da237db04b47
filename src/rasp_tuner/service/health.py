"""HealthCheck: the result of one check of `rasp doctor`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """The result of one check; `rasp doctor --json` prints the fields."""

    name: str
    good: bool
    said: str
    mend: str = ""
