"""The two presets: `paper`, the paper's stack to the letter, and `default`, what users get."""

from rasp_tuner.core import preset as _preset
from rasp_tuner.core.preset import Preset as Preset
from rasp_tuner.core.preset import Setting, named, resolved, saved
from rasp_tuner.engine.preset import DEFAULT as DEFAULT
from rasp_tuner.engine.preset import KIND as _DEFAULT_KIND
from rasp_tuner.paper.preset import KIND as _PAPER_KIND
from rasp_tuner.paper.preset import PAPER as PAPER

_preset.register("paper", _PAPER_KIND)
_preset.register("default", _DEFAULT_KIND)
NAMES = _preset.names()

__all__ = ["DEFAULT", "NAMES", "PAPER", "Preset", "default", "named", "paper", "resolved", "saved"]


def paper(**changes: float) -> Preset:
    """The paper's stack to the letter, with any constants of `PAPER` changed.

    >>> paper(base_step=0.25).constants["base_step"]
    0.25
    """
    return named("paper", changes)


def default(**changes: Setting) -> Preset:
    """What users get unless they ask otherwise, with any settings of `DEFAULT` changed."""
    return named("default", changes)
