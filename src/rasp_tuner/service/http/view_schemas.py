"""Parts of a study's view in the HTTP API: what it serves, what it gained, when its steps were."""

from pydantic import Field

from rasp_tuner.answer_models import LazyModel


class Switched(LazyModel):
    """Who froze or unfroze the study, and when."""

    by: str | None = Field(description="Id of a key; local without keys.")
    at: float


class Looks(LazyModel):
    """Whether the tuner still tries what is less known."""

    steps: int = Field(description="The latest answered suggestions: up to 50.")
    looks: int = Field(description="Of them, those that tried something less known.")
    refused: int = Field(description="Of them, those at which budget, guard, stops or a missing approval forbade one.")
    quiet: int = Field(description="The latest in a row that were neither.")
    ended: bool = Field(description="No look is worth its price now; it looks again if things drift.")
    words: str


class Coverage(LazyModel):
    forecasts: int
    held: float | None = Field(description="Share of outcomes within the intervals that should hold 0.9 of them.")


class SituationView(LazyModel):
    """One regime: how often it was visited, and whether returns recover sooner than at first (docs/RETURNS.md)."""

    regime: int
    label: str = Field(description="Its contexts in words; empty if none of the latest suggestions was in it.")
    visits: int
    steps: int = Field(description="Of all its visits; steps that somebody asked for.")
    last_step: int
    last_at: float | None
    first_took: int | None = Field(description="Steps until it had settled at first; null if not measured.")
    returns_measured: int = Field(description="Returns that became as good as that.")
    took_on_return: float | None = Field(description="Their median of steps until then.")
    returns_missed: int = Field(description="Returns that ended before, or did not within 256 steps.")
    saved: float | None = Field(description="The difference; null if not measured, or too little to tell.")
    current: bool
    words: str = Field(description="Of the return that is going on, if one is.")


class Times(LazyModel):
    """When the steps of each piece were told, in unix seconds."""

    step: list[int]
    first: list[float]
    last: list[float]
