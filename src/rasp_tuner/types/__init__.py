"""The nouns a user meets. All frozen; those a user builds check themselves at birth."""

from typing import Literal

from rasp_tuner.history.revisits import Revisit as Revisit
from rasp_tuner.types.explanation import Explanation as Explanation
from rasp_tuner.types.explanation import Outlook as Outlook
from rasp_tuner.types.explanation import Path as Path
from rasp_tuner.types.explanation import Why as Why
from rasp_tuner.types.knob_shares import KnobShares as KnobShares
from rasp_tuner.types.metric import LIMIT_KEPT as LIMIT_KEPT
from rasp_tuner.types.metric import Direction as Direction
from rasp_tuner.types.metric import Limit as Limit
from rasp_tuner.types.metric import Margin as Margin
from rasp_tuner.types.metric import Metric as Metric
from rasp_tuner.types.metric import Scale as Scale
from rasp_tuner.types.nouns import Budget as Budget
from rasp_tuner.types.nouns import Slots as Slots
from rasp_tuner.types.nouns import Suggestion as Suggestion

Goal = Literal["live", "find"]
