"""Lists on a command line: names between commas."""

import csv

from rasp_tuner.base.checks import show
from rasp_tuner.errors import InvalidValue


def words(text: str) -> tuple[str, ...]:
    """The words between commas; one that has a comma in it stands in quotes.

    >>> words('threads, "size, MB"')
    ('threads', 'size, MB')
    """
    try:
        row = next(csv.reader([text], skipinitialspace=True, strict=True), [])
    except csv.Error as reason:
        raise InvalidValue(f"{show(text)} cannot be split at its commas: {reason}") from reason
    return tuple(word.strip() for word in row if word.strip())
