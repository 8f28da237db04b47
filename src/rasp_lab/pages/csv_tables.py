"""Tables of text as CSV files: the long tables of pages are kept beside them, for people and for programs."""

import csv
import io
from pathlib import Path

from rasp_tuner.files.snapshot import write as write_whole
from rasp_tuner.page.html_page import Table


def write(path: Path, table: Table) -> None:
    """Write the heading and the rows, whole or not at all."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([table[0], *table[1]])
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text.getvalue().encode())


def read(path: Path) -> Table:
    """The heading and the rows."""
    head, *rows = csv.reader(io.StringIO(path.read_text(encoding="utf-8")))
    return head, rows
