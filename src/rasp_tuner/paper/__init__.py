"""Preset `paper`: Algorithm 1 of the paper and its parts, to the letter (docs/PAPER.md)."""

from typing import TYPE_CHECKING

from rasp_tuner.base.numerics import RunningEMA
from rasp_tuner.paper.adaptation import HybridAdaptation
from rasp_tuner.paper.candidates import CandidatePolicy
from rasp_tuner.paper.composer import RealErrorComposer
from rasp_tuner.paper.hybrid_tuner import AdaptiveHybridTuner
from rasp_tuner.paper.load_experts import load_experts
from rasp_tuner.paper.memory import PromptMemory
from rasp_tuner.paper.param_bounds import ParamBounds
from rasp_tuner.paper.preset import PAPER

if TYPE_CHECKING:
    from rasp_tuner.paper.experts import PromptMoE as PromptMoE

__all__ = [
    "PAPER",
    "AdaptiveHybridTuner",
    "CandidatePolicy",
    "HybridAdaptation",
    "ParamBounds",
    "PromptMemory",
    "RealErrorComposer",
    "RunningEMA",
]


def __getattr__(name: str) -> object:
    if name == "PromptMoE":  # needs torch: loaded only when somebody asks for it
        return load_experts().PromptMoE
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
