"""CSV files as people have them: UTF-8 with or without a byte order mark, packed by gzip or not, comma or semicolon."""

import csv
import gzip
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

from rasp_tuner.base.checks import show
from rasp_tuner.errors import InvalidValue

if TYPE_CHECKING:
    import _csv

GZIP = b"\x1f\x8b"  # how a file packed by gzip begins
DELIMITERS = ",;\t"  # the one that makes most columns of the header counts


@dataclass(frozen=True, slots=True)
class CsvFile:
    """What was read; cells are text as it stands."""

    path: Path
    header: list[str]
    rows: list[tuple[int, list[str]]]  # number of the line, and its cells; empty lines are left out

    def columns(self, wanted: Sequence[str]) -> list[list[str | None]]:
        """The cells of these columns, row by row; None where a row is too short."""
        if not any(self.header):
            raise InvalidValue(f"{self.path} must begin with a line that names its columns; it is empty")
        if missing := [name for name in wanted if name not in self.header]:
            raise InvalidValue(f"{self.path} lacks the columns {show(missing)}; it has {show(self.header)}")
        if twice := [name for name in wanted if self.header.count(name) > 1]:
            raise InvalidValue(f"{self.path} must name each column once; these are there twice: {show(twice)}")
        places = [self.header.index(name) for name in wanted]
        return [[row[i] if i < len(row) else None for i in places] for _, row in self.rows]


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
        return CsvFile(path, header, [(reader.line_num, row) for row in reader if row])
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as reason:
        raise InvalidValue(f"{path} must be a readable CSV file in UTF-8: {reason}") from reason


def _reader(text: str, delimiter: str) -> "_csv.Reader":
    return csv.reader(StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
