"""CSV files as people have them: UTF-8 with or without a byte order mark, packed by gzip or not, comma or semicolon."""

import csv
import gzip
import zlib
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

from rasp_tuner.errors import InvalidValue

if TYPE_CHECKING:
    import _csv

GZIP = b"\x1f\x8b"  # how a file packed by gzip begins
DELIMITERS = ",;\t"  # the one that makes most columns of the header counts


@dataclass(frozen=True, slots=True)
class CsvFile:
    """What was read; cells are text as it stands."""

    header: list[str]
    rows: list[tuple[int, list[str]]]  # number of the line, and its cells; empty lines are left out


def read_csv(path: Path) -> CsvFile:
    """The file's header and rows, or an InvalidValue that says why it cannot be read."""
    try:
        content = path.read_bytes()
        if content.startswith(GZIP):
            content = gzip.decompress(content)
        text = content.decode("utf-8-sig")
        delimiter = max(DELIMITERS, key=lambda between: len(next(_reader(text, between), [])))
        reader = _reader(text, delimiter)
        header = [name.strip() for name in next(reader, [])]
        return CsvFile(header, [(reader.line_num, row) for row in reader if row])
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as reason:
        raise InvalidValue(f"{path} must be a readable CSV file in UTF-8: {reason}") from reason


def _reader(text: str, delimiter: str) -> "_csv.Reader":
    return csv.reader(StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
