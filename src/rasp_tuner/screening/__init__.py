"""Is my context any good? A test with a stated rate of false alarms, and warnings (docs/CONTEXT.md)."""

from rasp_tuner.screening.flaws import LATEST as LATEST
from rasp_tuner.screening.report import ContextReport as ContextReport
from rasp_tuner.screening.report import Dimension as Dimension
from rasp_tuner.screening.report import screen as screen
from rasp_tuner.screening.report import untested as untested
