"""The nouns a user meets. All frozen; those a user builds check themselves at birth."""

from typing import Literal

from rasp_tuner.history.revisits import Revisit
from rasp_tuner.types.explanation import Explanation, Outlook, Path, Why
from rasp_tuner.types.knob_shares import KnobShares
from rasp_tuner.types.metric import LIMIT_KEPT, Direction, Limit, Margin, Metric, Scale
from rasp_tuner.types.nouns import Budget, Slots, Suggestion

Goal = Literal["live", "find"]

__all__ = [
    "LIMIT_KEPT",
    "Budget",
    "Direction",
    "Explanation",
    "Goal",
    "KnobShares",
    "Limit",
    "Margin",
    "Metric",
    "Outlook",
    "Path",
    "Revisit",
    "Scale",
    "Slots",
    "Suggestion",
    "Why",
]
