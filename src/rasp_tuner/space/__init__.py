"""Knobs and their unit box: the only room that knows units."""

from rasp_tuner.space.auto import Auto, Optional
from rasp_tuner.space.choices import Bool, Categorical
from rasp_tuner.space.listed import Listed
from rasp_tuner.space.max_change import MaxChange
from rasp_tuner.space.numbers import DIGITS, LARGEST_INT, MOST_DIGITS, MOST_LEVELS, Float, Int, PowerOfTwo, check_box
from rasp_tuner.space.rules import Knob, Rules
from rasp_tuner.space.space import KINDS, Layout, Space, knob_from_json, knob_to_json
from rasp_tuner.space.values import Params, Value

__all__ = [
    "DIGITS",
    "KINDS",
    "LARGEST_INT",
    "MOST_DIGITS",
    "MOST_LEVELS",
    "Auto",
    "Bool",
    "Categorical",
    "Float",
    "Int",
    "Knob",
    "Layout",
    "Listed",
    "MaxChange",
    "Optional",
    "Params",
    "PowerOfTwo",
    "Rules",
    "Space",
    "Value",
    "check_box",
    "knob_from_json",
    "knob_to_json",
]
