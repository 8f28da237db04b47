"""A tuner in a notebook: a small table. It inherits colours and fonts: for dark and light pages alike."""

from collections.abc import Mapping, Sequence
from html import escape

from rasp_tuner.space import Auto, Categorical, Knob, Params, Value

SHOWN_KNOBS = 40
SHOWN_CHOICES = 8


def tuner_html(
    title: str, knobs: Mapping[str, Knob], default: Params, recommended: Params, heading: str, notes: Sequence[str]
) -> str:
    """Each knob with its range, its value in the default and the one recommended, under that heading; then notes."""
    head = "".join(_cell("th", text) for text in ("knob", "range", "default", heading))
    rows = [
        "".join(
            _cell("td", text) for text in (name, range_words(knob), *(_value(p, name) for p in (default, recommended)))
        )
        for name, knob in list(knobs.items())[:SHOWN_KNOBS]
    ]
    left_out = len(knobs) - len(rows)
    more = [f"{left_out} more knobs"] if left_out > 0 else []
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    told = "; ".join([*more, *notes])
    return (
        f'<div><div style="font-weight:600">{escape(title)}</div>'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        f'<div style="opacity:.75">{escape(told)}</div></div>'
    )


def range_words(knob: Knob) -> str:
    """The values that a knob may have.

    >>> from rasp_tuner import Auto, Categorical, Int
    >>> range_words(Auto(Int(1, 64, log=True)))
    'auto, or 1 to 64 (log)'
    >>> range_words(Categorical(["lz4", "zstd"], when={"compress": [True]}))
    'lz4, zstd; if compress is True'
    """
    if isinstance(knob, Auto):
        told = f"{knob.word}, or {range_words(knob.knob)}"
    elif isinstance(knob, Categorical):
        told = ", ".join(str(choice) for choice in knob.choices[:SHOWN_CHOICES])
        told += ", ..." if len(knob.choices) > SHOWN_CHOICES else ""
    else:
        told = f"{knob.low:g} to {knob.high:g}" + (" (log)" if getattr(knob, "log", True) else "")
    conditions = [f"{name} is {' or '.join(map(str, values))}" for name, values in (knob.when or {}).items()]
    return f"{told}; if {' and '.join(conditions)}" if conditions else told


def _value(params: Params, name: str) -> str:
    if name not in params:
        return "-"
    value: Value = params[name]
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _cell(tag: str, text: str) -> str:
    return f'<{tag} style="text-align:left">{escape(text)}</{tag}>'
