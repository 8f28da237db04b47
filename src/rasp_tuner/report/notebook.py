"""Tables in a notebook. They inherit colours and fonts: for dark and light pages alike."""

from collections.abc import Mapping, Sequence
from html import escape

from rasp_tuner.page.words import range_words, value_words
from rasp_tuner.space import Knob, Params

SHOWN_KNOBS = 40


def notebook_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]], note: str) -> str:
    """A table between a title and a note."""
    lines = ["".join(f'<td style="text-align:left">{escape(text)}</td>' for text in row) for row in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    heading = "".join(f'<th style="text-align:left">{escape(name)}</th>' for name in head)
    return (
        f'<div><div style="font-weight:600">{escape(title)}</div>'
        f"<table><thead><tr>{heading}</tr></thead><tbody>{body}</tbody></table>"
        f'<div style="opacity:.75">{escape(note)}</div></div>'
    )


def tuner_html(
    title: str, knobs: Mapping[str, Knob], default: Params, recommended: Params, heading: str, notes: Sequence[str]
) -> str:
    """Each knob with its range, its value in the default and the one recommended, under that heading; then notes."""
    rows = []
    for name, knob in list(knobs.items())[:SHOWN_KNOBS]:
        values = (value_words(params[name]) if name in params else "-" for params in (default, recommended))
        rows.append([name, range_words(knob), *values])
    more = [f"{len(knobs) - SHOWN_KNOBS} more knobs"] if len(knobs) > SHOWN_KNOBS else []
    return notebook_table(title, ["knob", "range", "default", heading], rows, "; ".join([*more, *notes]))
