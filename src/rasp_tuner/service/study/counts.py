"""Counts: how many of what a study has seen."""

from dataclasses import dataclass


@dataclass(slots=True)
class Counts:
    """Stored in snapshots by name: do not rename the fields."""

    asks: int = 0
    tells: int = 0
    failures: int = 0
    observations: int = 0
    late: int = 0
    dropped: int = 0  # unanswered asks pushed out by newer ones and not answered since
    diverged: int = 0  # replayed asks with other parameters than in the log, apart from erasures
    erased: int = 0  # records
