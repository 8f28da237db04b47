"""Pieces of a self-contained HTML page: tables, and the frame around them."""

from collections.abc import Callable, Iterable
from html import escape

Table = tuple[list[str], list[list[str]]]  # the head, and rows as long as it

BASE_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 84rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
h1, h2 { line-height: 1.2 } h2 { margin-top: 2.5rem; border-bottom: 1px solid #ddd }
.wide { overflow-x: auto; margin: 1rem 0 } table { border-collapse: collapse; font-size: 0.85rem }
caption { text-align: left; padding: .3rem 0; font-weight: 600 }
th, td { padding: .25rem .35rem; border-bottom: 1px solid #e5e5e5; text-align: right; vertical-align: top }
td { white-space: nowrap } .words { text-align: left } .long { white-space: normal }
img, svg { max-width: 100%; height: auto } summary { cursor: pointer; font-weight: 600 }
"""

_POLICY = (  # a page needs its own style and pictures; whatever a name or text smuggles in, nothing else loads or runs
    '<meta http-equiv="Content-Security-Policy" '
    "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">"
)


def page(title: str, body: Iterable[str], style: str = "") -> str:
    """The whole document, with nothing to fetch; `style` is added to the usual one."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width">{_POLICY}'
        f"<title>{escape(title)}</title><style>{BASE_STYLE}{style}</style></head><body>{''.join(body)}</body></html>"
    )


def table(content: Table, caption: str = "", shade: Callable[[str, str], str] | None = None) -> str:
    """A table; `shade` says which class of its own a cell has, by its head and its text."""
    head, rows = content
    words = are_words(content)

    def cell(i: int, text: str) -> str:
        own = "" if shade is None else shade(head[i], text)
        return f"<td{_class(words[i] and 'words', len(text) > 30 and 'long', own)}>{escape(text)}</td>"

    heading = "".join(f"<th{_class(words[i] and 'words')}>{escape(name)}</th>" for i, name in enumerate(head))
    body = "".join(f"<tr>{''.join(map(cell, range(len(row)), row))}</tr>" for row in rows)
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f'<div class="wide"><table>{title}<thead><tr>{heading}</tr></thead><tbody>{body}</tbody></table></div>'


def folded(summary: str, content: str) -> str:
    """Content behind a line to click."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def are_words(content: Table) -> list[bool]:
    """Of each column, whether it holds words rather than numbers."""
    head, rows = content
    return [any(row[i][:1].isalpha() for row in rows) for i in range(len(head))]


def _class(*kinds: str | bool) -> str:
    named = " ".join(kind for kind in kinds if isinstance(kind, str) and kind)
    return f' class="{named}"' if named else ""
