"""Requests and answers of decisions at the edge: sums of runs, and policies (docs/EDGE.md)."""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from rasp_tuner.answer_models import ContextValues, GainAnswer, LazyModel, Number, Word
from rasp_tuner.records.outcome_sum import MOST_RUNS, MOST_SUM_CONTEXTS
from rasp_tuner.service.http.context_schemas import StrictModel
from rasp_tuner.service.http.schemas import CONTEXT_EXAMPLE, ParamsField

LARGEST_SEQUENCE = 2**53

Source = Annotated[
    str, StringConstraints(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._:-]+$"), Field(examples=["edge-7"])
]


class MetricSums(StrictModel):
    sum: Number
    squares: Number


class RunSums(StrictModel):
    """Runs of one setting, added up."""

    params: ParamsField
    contexts: Annotated[list[ContextValues], Field(fail_fast=True)] = Field(
        max_length=MOST_SUM_CONTEXTS, description="Some of those in which it ran.", examples=[[CONTEXT_EXAMPLE]]
    )
    count: int = Field(ge=1, le=MOST_RUNS)
    metrics: dict[Word, MetricSums] = Field(min_length=1, examples=[{"p99_ms": {"sum": 1812.0, "squares": 331000.0}}])
    policy: Word | None = Field(default=None, description="Version of the policy that chose it; null: somebody else.")
    leaf: int | None = None
    setting: int | None = None
    probability: Number | None = None


SumsField = Annotated[list[RunSums], Field(min_length=1, fail_fast=True)]


class TellSums(StrictModel):
    """Sums of runs, which count once however often they are sent."""

    source: Source
    sequence: int = Field(ge=0, le=LARGEST_SEQUENCE, description="Goes up by one for all that a source sends.")
    sums: SumsField


class ToldSums(LazyModel):
    status: Literal["learned", "duplicate"]
    runs: int = Field(description="How many runs were told.")


class PolicyFile(LazyModel):
    """A policy, as docs/POLICY.md has it; its version is also the ETag."""

    format: str
    version: int
    context: list[dict[str, Any]]
    default: dict[str, Any]
    tree: dict[str, Any]
    explore: dict[str, str]


class FlagdFile(LazyModel):
    """Flags as https://flagd.dev/reference/flag-definitions has them: one for the study, one for each knob."""

    metadata: dict[str, str]
    flags: dict[str, dict[str, Any]]


class MeasuredEdge(LazyModel):
    runs: int = Field(description="At edges, of the latest.")
    default_runs: int = Field(description="Of them, those that ran the default.")
    metrics: dict[str, GainAnswer]
    words: str


class EdgeGained(LazyModel):
    """What runs by policies gained over the default, by the probabilities with which settings were drawn."""

    edge: MeasuredEdge | None = Field(description="Null while the default has not run at an edge.")
