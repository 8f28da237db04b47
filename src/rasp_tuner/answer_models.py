"""Answers of the library as the HTTP service documents them; the MCP tools give the same fields.

Each is the JSON of a class of the library with the same fields. It takes pydantic, so only those interfaces load it.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, StringConstraints

Number = FiniteFloat
Word = Annotated[str, StringConstraints(min_length=1, max_length=128)]
ContextValue = FiniteFloat | bool | Annotated[str, StringConstraints(max_length=1_024)] | None
# A list stops at its first wrong entry: to collect the errors of a hundred thousand takes seconds.
ContextList = Annotated[list[ContextValue], Field(max_length=1_024, fail_fast=True)]
ContextValues = dict[Word, ContextValue] | ContextList | None
Params = dict[str, Any]
Serves = Literal["suggestions", "recommendation", "default"]


class LazyModel(BaseModel):
    """Compiled at first use, not at every start."""

    model_config = ConfigDict(defer_build=True)


class GainAnswer(LazyModel):
    """What was gained a step over the default, above 0 where it was better, with its interval of 95%.

    The ends are null while too little is known.
    """

    kind: Literal["share", "difference"] = Field(description="Of the default's level (0.1 is 10% better), or in units.")
    value: float
    low: float | None = None
    high: float | None = None
    maximised: bool
    words: str


class VersusDefaultAnswer(LazyModel):
    """What suggestions have gained against the default: measured with a holdout or controls, else by forecast."""

    measured: bool = Field(description="False: against what the tuner expected of the default; no proof.")
    steps: int = Field(description="Suggestions that were answered and count, failed ones too.")
    held_out: int = Field(description="Runs of the default that were drawn in the place of a suggestion.")
    paired: int = Field(description="Runs with a control.")
    gain: GainAnswer | None = Field(description="Of all metrics together; null if one of several is not positive.")
    metrics: dict[str, GainAnswer]
    lately: dict[str, GainAnswer] = Field(description="Of the latest 200 steps or so; empty where it is measured.")
    better_since: int | None = Field(description="Step at which a gain was first proven.")
    worse_since: int | None = Field(description="Step at which a loss was first proven.")
    left_out: int = Field(0, description="Steps with values that are not believed.")
    bounded: int = Field(0, description="Outliers: steps that count as ten times the usual at most.")
    failed: int = Field(0, description="Of the steps, those whose run failed.")
    words: str


class BudgetAnswer(LazyModel):
    """What suggestions have cost and gained against the default; 1 is what one run of the default costs."""

    share: float = Field(description="Of the default's loss that may be spent at every step: the study's budget.")
    steps: int = Field(description="Answered suggestions that were counted; the very first are free.")
    spent: float
    earned: float
    left: float = Field(description="What may still be spent, in the worst case that is likely (95%).")
    allowed: float | None = Field(None, description="In all so far; null where nothing is measured.")
    measured: float | None = Field(None, description="The bill as runs of the default show it.")
    error: float | None = Field(None, description="Deviation of `measured`.")


class MarginAnswer(LazyModel):
    """How far some settings keep a metric from its limit, in the metric's own units."""

    expected: float
    bound: float = Field(description="Nine runs of ten keep it.")
    limit: float
    kept: float = Field(description="Probability that a run keeps the limit.")


class ExpectedAnswer(LazyModel):
    """The mean of a metric in its own unit, and the interval of that mean (90%); single runs scatter more."""

    mean: float
    low: float
    high: float


class ForecastAnswer(LazyModel):
    params: Params
    metrics: dict[str, ExpectedAnswer] = Field(description="Empty while too little is known.")
    better: float | None = Field(description="Probability of beating the default here; null for the default itself.")
    margins: dict[str, MarginAnswer] = Field(description="Of every metric with a limit.")


class WhatIfAnswer(LazyModel):
    given: ForecastAnswer
    default: ForecastAnswer
    recommended: ForecastAnswer
    runs: float | None = Field(description="Earlier runs in a situation like this one: few mean a guess.")
    ago: float | None = Field(description="How many runs ago the latest of them was.")
    words: str = Field(description="The same for people.")


class DamagedStudy(LazyModel):
    name: str
    health: str = Field(description="Why it cannot be loaded.")
