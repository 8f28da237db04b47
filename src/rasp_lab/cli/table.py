"""The options of `rasp bench --table`: how to read your own measurements, as words on a command line."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from rasp_tuner.base.checks import show
from rasp_tuner.cli.common import words
from rasp_tuner.errors import InvalidValue
from rasp_tuner.types import Direction

if TYPE_CHECKING:
    from rasp_lab.bench.domains.table import TableFile

PANEL = "Your own measurements"


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


def _option(help: str, **more: Any) -> Any:
    return typer.Option(help=help, rich_help_panel=PANEL, show_default=False, **more)


File = Annotated[Path | None, _option("Your file instead of a suite: CSV, gzipped CSV or npz.")]
Knobs = Annotated[str | None, _option("Knob columns of the CSV, separated by commas.")]
Context = Annotated[str | None, _option("Context columns of the CSV, separated by commas.")]
Metrics = Annotated[
    str | None,
    _option(
        "Columns to minimise or maximise, as in time_ms:min,fps:max; the first is the objective. "
        "With a star, as in ms_*, there is one column for each context."
    ),
]
Loss = Annotated[str | None, _option("log (the default): how many times worse than the best; raw: as measured.")]
Noise = Annotated[float | None, _option("Noise added to every metric; with log, 0.05 is about 5%.", min=0.0)]
ContextNoise = Annotated[
    float | None, _option("Noise added to every context column, as a share of its spread.", min=0.0)
]
Block = Annotated[str | None, _option("Fewest and most steps that a context lasts; by default 10,30.")]
Default = Annotated[str | None, _option("What runs today, as in threads=4,codec=lz4; by default the middle.")]


def read_options(path: Path | None, options: Mapping[str, str | float | None]) -> "TableFile | None":
    """The table that the options describe; None without --table, which all of them need."""
    given = {name: value for name, value in options.items() if value is not None}
    if path is None:
        for name in given:
            flag = "--" + name.replace("_", "-")
            raise InvalidValue(f"{flag} says how to read a table: name its file with --table")
        return None
    from rasp_lab.bench.domains.table import TableFile

    if "metrics" not in given:
        raise InvalidValue("--table needs --metrics, as in --metrics time_ms:min")
    fields: dict[str, Any] = {name: PARSERS[name](value) if name in PARSERS else value for name, value in given.items()}
    return TableFile(str(path), **fields)


def parse_block(text: str) -> tuple[int, int]:
    """Shortest and longest block.

    >>> parse_block("10,30")
    (10, 30)
    """
    numbers = words(text)
    if len(numbers) != 2 or not all(number.isdecimal() for number in numbers):
        raise InvalidValue(f"block must be two whole numbers, as in block=(10, 30) or --block 10,30, got {show(text)}")
    return int(numbers[0]), int(numbers[1])


def parse_default(text: str) -> tuple[tuple[str, str], ...]:
    """A configuration, knob by knob.

    >>> parse_default("threads=4,codec=lz4")
    (('threads', '4'), ('codec', 'lz4'))
    """
    parsed: list[tuple[str, str]] = []
    for item in words(text) or ("",):
        knob, equals, level = (part.strip() for part in item.partition("="))
        if not knob or not equals:
            raise InvalidValue(f"default must look like threads=4,codec=lz4, got {show(item)}")
        if knob in dict(parsed):
            raise InvalidValue(f"default must name a knob once, got {knob!r} twice")
        parsed.append((knob, level))
    return tuple(parsed)


PARSERS: Mapping[str, Callable[[Any], object]] = {
    "knobs": words,
    "context": words,
    "metrics": parse_metrics,
    "block": parse_block,
    "default": parse_default,
}
