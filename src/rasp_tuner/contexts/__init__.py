"""What a situation is told by: kinds of values, their encoding, and how alike two contexts are."""

from rasp_tuner.contexts.kinds import (
    HASHED_WIDTH,
    KINDS,
    Category,
    ContextKind,
    Flag,
    Name,
    Number,
    TimeOfDay,
    Weekday,
    kind_json,
    kind_of,
    now,
    same_text,
    value_json,
)

__all__ = [
    "HASHED_WIDTH",
    "KINDS",
    "Category",
    "ContextKind",
    "Flag",
    "Name",
    "Number",
    "TimeOfDay",
    "Weekday",
    "kind_json",
    "kind_of",
    "now",
    "same_text",
    "value_json",
]
