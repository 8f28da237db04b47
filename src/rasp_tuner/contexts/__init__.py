"""What a situation is told by: kinds of values, their encoding, and how alike two contexts are."""

from rasp_tuner.contexts.kinds import HASHED_WIDTH as HASHED_WIDTH
from rasp_tuner.contexts.kinds import KINDS as KINDS
from rasp_tuner.contexts.kinds import Category as Category
from rasp_tuner.contexts.kinds import ContextKind as ContextKind
from rasp_tuner.contexts.kinds import Flag as Flag
from rasp_tuner.contexts.kinds import Name as Name
from rasp_tuner.contexts.kinds import Number as Number
from rasp_tuner.contexts.kinds import TimeOfDay as TimeOfDay
from rasp_tuner.contexts.kinds import Weekday as Weekday
from rasp_tuner.contexts.kinds import kind_json as kind_json
from rasp_tuner.contexts.kinds import kind_of as kind_of
from rasp_tuner.contexts.kinds import now as now
from rasp_tuner.contexts.kinds import same_text as same_text
from rasp_tuner.contexts.kinds import value_json as value_json
