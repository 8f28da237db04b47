"""RASP-Tuner as a package of OptunaHub's registry."""

from rasp_tuner.integrations.optuna import RaspSampler

__all__ = ["RaspSampler"]
