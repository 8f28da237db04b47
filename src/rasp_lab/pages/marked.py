"""The measured part of a page: what stands between two marks, which a command writes."""

from pathlib import Path
from typing import NamedTuple

from rasp_tuner.errors import InvalidValue
from rasp_tuner.files.snapshot import write as write_whole

END = "<!-- end of what was measured -->"


class MarkedPage(NamedTuple):
    """A page in three parts."""

    before: str
    measured: str
    after: str


def read(page: Path, start: str, otherwise: str = "") -> MarkedPage:
    """A page, or `otherwise` where there is none yet; `start` is the line before what was measured."""
    before, found, rest = (page.read_text() if page.is_file() else otherwise).partition(start)
    measured, end, after = rest.partition(END)
    if not found or not end:
        raise InvalidValue(f"{page} must have the lines {start!r} and {END!r}: what was measured goes between them")
    return MarkedPage(before, measured.strip(), after)


def write(page: Path, start: str, measured: str, otherwise: str = "") -> None:
    """Put what was measured between the marks; the rest of the page stays."""
    known = read(page, start, otherwise)
    write_whole(page, f"{known.before}{start}\n\n{measured}\n\n{END}{known.after}".encode())
