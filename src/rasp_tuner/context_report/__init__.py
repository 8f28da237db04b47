"""Is my context any good? A test with a stated rate of false alarms, and warnings (docs/CONTEXT.md)."""

from rasp_tuner.context_report.flaws import LATEST_SAMPLES as LATEST_SAMPLES
from rasp_tuner.context_report.report import ContextReport as ContextReport
from rasp_tuner.context_report.report import Dimension as Dimension
from rasp_tuner.context_report.report import screen as screen
from rasp_tuner.context_report.report import untested as untested
