"""Lists on a command line: names between commas, and metrics with their directions."""

import csv
from typing import cast

from rasp_tuner.base.checks import show
from rasp_tuner.errors import InvalidValue
from rasp_tuner.types import Direction


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


def parse_metrics(text: str) -> tuple[tuple[str, Direction], ...]:
    """Metrics written as time_ms:min,fps:max; a name alone is to be minimised.

    >>> parse_metrics("time_ms,fps:max")
    (('time_ms', 'min'), ('fps', 'max'))
    """
    parsed: list[tuple[str, Direction]] = []
    for item in words(text) or ("",):
        name, _, direction = item.rpartition(":") if ":" in item else (item, "", "min")
        if not name or direction not in ("min", "max"):
            raise InvalidValue(f"metrics must look like time_ms:min,fps:max, got {show(item)}")
        if name in dict(parsed):
            raise InvalidValue(f"metrics must be different, got {name!r} twice")
        parsed.append((name, cast(Direction, direction)))
    return tuple(parsed)
