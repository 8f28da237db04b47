"""`rasp watch`: tune a running system by what Prometheus knows of it, with no code at all (docs/WATCH.md)."""

from rasp_tuner.watch.check import Check, check_study
from rasp_tuner.watch.session import Result, watch
from rasp_tuner.watch.study import Mode, WatchStudy, build_study, read_study

__all__ = ["Check", "Mode", "Result", "WatchStudy", "build_study", "check_study", "read_study", "watch"]
