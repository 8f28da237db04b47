"""Tuning any command or Python function, from a slow thing to proof that it is faster (docs/TUNE.md)."""

from rasp_tuner.tune.api import run_study, tune
from rasp_tuner.tune.result import SituationResult, TuneResult
from rasp_tuner.tune.study import StopRules, TuneStudy, build_study

__all__ = ["SituationResult", "StopRules", "TuneResult", "TuneStudy", "build_study", "run_study", "tune"]
