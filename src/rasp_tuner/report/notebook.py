"""A tuner in a notebook: a small table. It inherits colours and fonts: for dark and light pages alike."""

from collections.abc import Mapping, Sequence
from html import escape

from rasp_tuner.page.words import range_words, value_words
from rasp_tuner.space import Knob, Params

SHOWN_KNOBS = 40


def tuner_html(
    title: str, knobs: Mapping[str, Knob], default: Params, recommended: Params, heading: str, notes: Sequence[str]
) -> str:
    """Each knob with its range, its value in the default and the one recommended, under that heading; then notes."""
    head = "".join(_cell("th", text) for text in ("knob", "range", "default", heading))
    rows = []
    for name, knob in list(knobs.items())[:SHOWN_KNOBS]:
        values = (value_words(params[name]) if name in params else "-" for params in (default, recommended))
        rows.append("".join(_cell("td", text) for text in (name, range_words(knob), *values)))
    left_out = len(knobs) - len(rows)
    more = [f"{left_out} more knobs"] if left_out > 0 else []
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    told = "; ".join([*more, *notes])
    return (
        f'<div><div style="font-weight:600">{escape(title)}</div>'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        f'<div style="opacity:.75">{escape(told)}</div></div>'
    )


def _cell(tag: str, text: str) -> str:
    return f'<{tag} style="text-align:left">{escape(text)}</{tag}>'
