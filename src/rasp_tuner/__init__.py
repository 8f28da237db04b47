"""RASP-Tuner: the online, context-aware black-box optimizer that remembers."""

from importlib import import_module
from typing import TYPE_CHECKING

from rasp_tuner import presets
from rasp_tuner.contexts import Category, Flag, Name, Number, TimeOfDay, Weekday, now
from rasp_tuner.errors import (
    AlreadyAnswered,
    BudgetSpent,
    ExpiredSuggestion,
    InvalidSpace,
    InvalidValue,
    MissingExtra,
    RaspError,
    SnapshotError,
    SnapshotFileError,
    UnknownSuggestion,
)
from rasp_tuner.gain.versus_default import Gain, VersusDefault
from rasp_tuner.logs import LogReport
from rasp_tuner.presets import Preset
from rasp_tuner.privacy import ContextShield, GaussianNoise, PrivacyBudget
from rasp_tuner.report.looks import Looks
from rasp_tuner.space import Auto, Bool, Categorical, Float, Int, Optional, PowerOfTwo
from rasp_tuner.tuner import Tuner
from rasp_tuner.types import Explanation, Margin, Metric, Revisit, Suggestion
from rasp_tuner.what_if import Forecast, WhatIf

if TYPE_CHECKING:
    from rasp_tuner.fleet import Fleet as Fleet

__version__ = "0.2.0"

__all__ = [
    "AlreadyAnswered",
    "Auto",
    "Bool",
    "BudgetSpent",
    "Categorical",
    "Category",
    "ContextShield",
    "ExpiredSuggestion",
    "Explanation",
    "Flag",
    "Fleet",
    "Float",
    "Forecast",
    "Gain",
    "GaussianNoise",
    "Int",
    "InvalidSpace",
    "InvalidValue",
    "LogReport",
    "Looks",
    "Margin",
    "Metric",
    "MissingExtra",
    "Name",
    "Number",
    "Optional",
    "PowerOfTwo",
    "Preset",
    "PrivacyBudget",
    "RaspError",
    "Revisit",
    "SnapshotError",
    "SnapshotFileError",
    "Suggestion",
    "TimeOfDay",
    "Tuner",
    "UnknownSuggestion",
    "VersusDefault",
    "Weekday",
    "WhatIf",
    "now",
    "presets",
]


def __getattr__(name: str) -> object:
    if name == "Fleet":  # a program with one tuner does not need it
        return import_module("rasp_tuner.fleet").Fleet
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
