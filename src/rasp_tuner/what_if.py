"""WhatIf: what is expected of some settings in a situation, beside the default and the recommendation."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rasp_tuner.base.checks import printable
from rasp_tuner.optimizer.optimizer import Expected
from rasp_tuner.page.words import counted, number_words, settings_words
from rasp_tuner.space import Params
from rasp_tuner.types import Margin
from rasp_tuner.types.explanation import chance


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is expected of some settings in one situation."""

    params: Params
    metrics: Mapping[str, Expected]  # each in its own unit, on average; empty while too little is known
    better: float | None  # probability that they beat the default here; None for the default, or if not known
    margins: Mapping[str, Margin]  # of every metric with a limit

    def __str__(self) -> str:
        if not self.metrics:
            return "no forecast: too little is known, or the preset gives none."
        expected = ", ".join(f"{name} {_interval(found)}" for name, found in self.metrics.items())
        odds = "" if self.better is None else f"; better than the default with a probability of {chance(self.better)}"
        limits = "".join(f" Limit of {name}: {margin}." for name, margin in self.margins.items())
        return f"{expected}{odds}.{limits}"


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Forecasts for one situation; `str()` of it is a few lines in plain words."""

    given: Forecast  # of the settings that were asked about; without any, of the recommendation
    default: Forecast
    recommended: Forecast
    runs: float | None  # earlier runs in a situation like this one; None where memory does not say
    ago: float | None  # how many runs ago the latest of them was

    def __str__(self) -> str:
        told: dict[str, tuple[str, Forecast]] = {}
        for name, forecast in (
            ("The default", self.default),
            ("The recommendation", self.recommended),
            ("These settings", self.given),
        ):
            told.setdefault(settings_words(forecast.params), (name, forecast))
        lines = [f"{name} ({settings}): {forecast}" for settings, (name, forecast) in reversed(told.items())]
        if self.recommended.params == self.default.params:
            lines.append("The recommendation here is the default.")
        if self.given.metrics:
            lines.append(
                "Each number is the mean of many runs, with the interval that should hold that mean nine times in ten;"
                " one run scatters more."
            )
        return "\n".join(map(printable, [*lines, self._situation()])).rstrip()

    def _situation(self) -> str:
        if self.runs is None:
            return ""
        if self.runs < 0.5:
            guess = ": the forecast is a guess" if self.given.metrics else ""
            return f"No run so far was in a situation like this one{guess}."
        ago = "" if self.ago is None else f", the latest {counted(self.ago, 'run')} ago"
        many = counted(self.runs, "run")
        return f"{many} so far {'was' if many == '1 run' else 'were'} in a situation like this one{ago}."

    def to_json(self) -> dict[str, Any]:
        """As `from_json` takes it."""
        forecasts = {name: _forecast_json(getattr(self, name)) for name in ("given", "default", "recommended")}
        return {**forecasts, "runs": self.runs, "ago": self.ago}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "WhatIf":
        """What `to_json` gave."""
        given, default, recommended = (_forecast_from(data[name]) for name in ("given", "default", "recommended"))
        return cls(given, default, recommended, data["runs"], data["ago"])


def _forecast_json(forecast: Forecast) -> dict[str, Any]:
    return {
        "params": forecast.params,
        "metrics": {name: expected._asdict() for name, expected in forecast.metrics.items()},
        "better": forecast.better,
        "margins": {name: asdict(margin) for name, margin in forecast.margins.items()},
    }


def _forecast_from(data: Mapping[str, Any]) -> Forecast:
    return Forecast(
        data["params"],
        {name: Expected(**expected) for name, expected in data["metrics"].items()},
        data["better"],
        {name: Margin(**margin) for name, margin in data["margins"].items()},
    )


def _interval(expected: Expected) -> str:
    mean, low, high = map(number_words, expected)
    return f"{mean} ({low} to {high})"
