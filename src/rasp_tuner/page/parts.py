"""Pieces that the pages of a tuner and of `rasp tune` share: their style, tiles of facts, a table of settings."""

from collections.abc import Sequence
from html import escape

from rasp_tuner.page.charts import CHART_STYLE
from rasp_tuner.page.words import value_words
from rasp_tuner.space import Params

PAGE_STYLE = (
    CHART_STYLE
    + """
body { background: var(--back); color: var(--ink); max-width: 62rem }
h2 { border-color: var(--line) } th, td { border-color: var(--line) }
.verdict { font-size: 1.6rem; line-height: 1.25; font-weight: 650; margin: .3rem 0 1rem }
.good { color: var(--good) } .bad { color: var(--bad) }
.tiles { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1rem 0 }
.tiles div { background: var(--raised); border-radius: 8px; padding: .5rem .9rem }
.tiles b { display: block; font-size: 1.25rem } .tiles span, .note { color: var(--soft); font-size: .85rem }
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 21rem), 1fr)); gap: 1rem }
pre { background: var(--raised); padding: .8rem 1rem; border-radius: 8px; overflow-x: auto; font-size: .85rem }
td.long { min-width: 9rem }
td.changed { font-weight: 650; color: var(--good) } .key { display: inline-block; margin-right: 1.2rem }
ul.knobs { margin: .2rem 0 1rem; padding-left: 1.2rem } ul.knobs b { color: var(--good) }
.key i { display: inline-block; width: .7rem; height: .7rem; border-radius: 50%; margin-right: .35rem }
"""
)


def key(default: str, trend: bool = True, stopped: bool = False) -> str:
    """What the marks in a picture of runs mean; `default` says what those of the default are."""
    least = '<span class="key"><b style="color:var(--accent)">&uarr;</b> stopped early: at least</span>'
    median = '<span class="key"><b style="color:var(--accent)">&mdash;</b> median of ten</span>' if trend else ""
    return (
        '<p class="note"><span class="key"><i style="background:var(--accent)"></i>tried</span>'
        f'<span class="key"><i style="border:2px solid var(--base)"></i>{escape(default)}</span>'
        f'{least if stopped else ""}<span class="key"><b style="color:var(--bad)">&times;</b> failed</span>'
        f'<span class="key"><b style="color:var(--accent)">&#9650;</b> beyond the picture</span>{median}</p>'
    )


def tiles(facts: Sequence[tuple[str, str]]) -> str:
    """Facts in large letters, each a value and what it is."""
    each = "".join(f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for value, name in facts)
    return f'<div class="tiles">{each}</div>'


def settings_table(
    names: Sequence[str], default: Params, rows: Sequence[tuple[str, Params, str]], corner: str, said: str
) -> str:
    """The default, then a row for each label, its settings and what is said of them; changes are marked.

    `corner` and `said` head the first and the last column.
    """
    head = "".join(f'<th class="words">{escape(name)}</th>' for name in names)
    lines = [
        f'<tr><td class="words long">{escape(label)}</td>{_cells(names, params, default)}'
        f'<td class="words long">{escape(words)}</td></tr>'
        for label, params, words in [("default", default, ""), *rows]
    ]
    return (
        f'<div class="wide"><table><thead><tr><th class="words">{escape(corner)}</th>{head}'
        f'<th class="words">{escape(said)}</th></tr></thead><tbody>{"".join(lines)}</tbody></table></div>'
    )


def _cells(names: Sequence[str], params: Params, default: Params) -> str:
    def cell(name: str) -> str:
        changed = " changed" if name in params and params[name] != default.get(name) else ""
        return f'<td class="words{changed}">{escape(value_words(params[name])) if name in params else "-"}</td>'

    return "".join(map(cell, names))
