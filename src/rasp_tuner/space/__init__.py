"""Knobs and their unit box: the only room that knows units."""

from rasp_tuner.space.auto import Auto as Auto
from rasp_tuner.space.auto import Optional as Optional
from rasp_tuner.space.choices import Bool as Bool
from rasp_tuner.space.choices import Categorical as Categorical
from rasp_tuner.space.listed import Listed as Listed
from rasp_tuner.space.max_change import MaxChange as MaxChange
from rasp_tuner.space.numbers import DIGITS as DIGITS
from rasp_tuner.space.numbers import LARGEST_INT as LARGEST_INT
from rasp_tuner.space.numbers import MOST_DIGITS as MOST_DIGITS
from rasp_tuner.space.numbers import MOST_LEVELS as MOST_LEVELS
from rasp_tuner.space.numbers import Float as Float
from rasp_tuner.space.numbers import Int as Int
from rasp_tuner.space.numbers import PowerOfTwo as PowerOfTwo
from rasp_tuner.space.numbers import check_box as check_box
from rasp_tuner.space.rules import Knob as Knob
from rasp_tuner.space.rules import Rules as Rules
from rasp_tuner.space.space import KINDS as KINDS
from rasp_tuner.space.space import Layout as Layout
from rasp_tuner.space.space import Space as Space
from rasp_tuner.space.space import knob_from_json as knob_from_json
from rasp_tuner.space.space import knob_to_json as knob_to_json
from rasp_tuner.space.values import Params as Params
from rasp_tuner.space.values import Value as Value
