"""Docstrings for the API page: aligned lists of arguments become tables, examples become code blocks."""

import re
from typing import Any

from griffe import Extension, Object


class PlainDocstrings(Extension):
    """Plain docstrings as Markdown."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = "\n\n".join(_markdown(block) for block in obj.docstring.value.split("\n\n"))


def _markdown(block: str) -> str:
    lines = block.splitlines()
    if lines and lines[0].startswith(">>>"):
        return "\n".join(["```python", *lines, "```"])
    if len(lines) > 1 and re.match(r"^\w+ {2,}\S", lines[0]):
        return _table(lines)
    return block


def _table(lines: list[str]) -> str:
    """Lines `name   text`, which may go on in indented lines, as a table."""
    rows: list[list[str]] = []
    for line in lines:
        if line.startswith(" ") and rows:
            rows[-1][1] += f" {line.strip()}"
        else:
            name, _, text = line.partition(" ")
            rows.append([name, text.strip()])
    body = [f"| `{name}` | {text.replace('|', chr(92) + '|')} |" for name, text in rows]
    return "\n".join(["| argument | meaning |", "|---|---|", *body])
