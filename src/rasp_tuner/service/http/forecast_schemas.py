"""What-if: the request and the answer."""

from pydantic import Field

from rasp_tuner.service.http.context_schemas import LazyModel, StrictModel, Word
from rasp_tuner.service.http.knob_schemas import KnobValue
from rasp_tuner.service.http.schemas import ContextField, MarginReport, ParamsField


class WhatIf(StrictModel):
    """What would these parameters give here? Nothing changes."""

    context: ContextField
    params: dict[Word, KnobValue] | None = Field(
        default=None,
        description="Knobs left out are as in the default; without any it is about the recommendation.",
        examples=[{"pool": 16}],
    )


class ExpectedValue(LazyModel):
    """The mean of a metric in its own unit, and the interval of that mean (90%); single runs scatter more."""

    mean: float
    low: float
    high: float


class ForecastView(LazyModel):
    params: ParamsField
    metrics: dict[str, ExpectedValue] = Field(description="Empty while too little is known.")
    better: float | None = Field(description="Probability of beating the default here; null for the default itself.")
    margins: dict[str, MarginReport] = Field(description="Of every metric with a limit.")


class WhatIfAnswer(LazyModel):
    given: ForecastView
    default: ForecastView
    recommended: ForecastView
    runs: float | None = Field(description="Earlier runs in a situation like this one; null where memory is silent.")
    ago: float | None = Field(description="How many runs ago the latest of them was.")
    words: str = Field(description="The same for people.")
